"""ninja: its log read, its first real error found."""

from __future__ import annotations

from pathlib import Path

from qbuild.steps.ninja import first_error, read_log

FAILURE = """\
[1/3] Building CXX object a.o
FAILED: [code=1] b.o
/x/c++ -Werror=error-x -o b.o -c /src/b.cpp
/src/b.cpp:3:5: warning: unused error variable
/src/b.cpp:7:9: error: use of undeclared identifier 'foo'
    7 |         foo();
      |         ^
/src/b.cpp:9:9: error: second
ninja: build stopped: subcommand failed.
"""


def test_the_first_error_is_shown_with_its_place() -> None:
    text = first_error(FAILURE)
    assert text.splitlines()[0] == "/src/b.cpp:7:9: error: use of undeclared identifier 'foo'"
    assert "second" not in text


def test_linker_and_kill_count_as_errors() -> None:
    assert "duplicate symbol: atexit" in first_error("FAILED: x\nld: duplicate symbol: atexit\n")
    assert "undefined symbol: foo" in first_error("a\nld.lld: undefined symbol: foo\n")
    assert "Killed" in first_error("FAILED: x\nc++: fatal error: Killed signal\n")
    assert "LNK2038" in first_error("x.lib : error LNK2038: mismatch detected\n")


def test_without_a_known_error_the_failed_step_is_shown() -> None:
    assert first_error("[1/2] x\nFAILED: y\ncommand\n").startswith("FAILED: y")
    assert first_error("ninja: error: unknown target 'x'\n") == "ninja: error: unknown target 'x'"


def test_the_log_is_read_slowest_first_and_the_last_entry_of_an_output_counts(
    tmp_path: Path,
) -> None:
    (tmp_path / ".ninja_log").write_text(
        "# ninja log v7\n0\t10\t5\ta.o\tffff\n0\t500\t5\tb.o\teeee\n20\t25\t6\tb.o\tdddd\nbroken\n"
    )
    edges = read_log(tmp_path)
    assert [(e.output, e.end_ms - e.start_ms) for e in edges] == [("a.o", 10), ("b.o", 5)]


def test_no_path_of_the_machine_is_kept(tmp_path: Path) -> None:
    """Custom targets stand in ninja's log with their whole path, and reports are passed on."""
    inner = f"{tmp_path.as_posix()}/tools/ui/CMakeFiles/llama-ui-assets"
    (tmp_path / ".ninja_log").write_text(f"# ninja log v7\n0\t10\t5\t{inner}\tffff\n")
    (edge,) = read_log(tmp_path)
    assert edge.output == "tools/ui/CMakeFiles/llama-ui-assets"
