"""The example agent: its tools, its errors, and a whole conversation with the real server.

The last test needs a server, see ``test_toolcalls_server.py``; the others only the client.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from integration.test_toolcalls_server import serving, setting

AGENT = Path(__file__).parent.parent.parent / "examples" / "agent" / "agent.py"


@pytest.fixture(scope="module")
def agent() -> ModuleType:
    pytest.importorskip("openai")
    spec = importlib.util.spec_from_file_location("agent", AGENT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("expression", "result"),
    [("6*7", "42"), ("(2+3)*-4", "-20"), ("2**10 % 7", "2"), ("7/2", "3.5"), (" 1e3//3 ", "333.0")],
)
def test_arithmetic(agent: ModuleType, expression: str, result: str) -> None:
    assert agent.calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    ["__import__('os').system('x')", "a", "1;2", "'a'*9", "9**9**9", "10**-5000", "1/0", "",
     "(" * 400, "True", "[1]", "f()", "1 if 1 else 2", "(-8)**0.5", "9" * 600,
     "1e308*10**400", "2**True"],
)  # fmt: skip
def test_everything_else_is_refused(agent: ModuleType, expression: str) -> None:
    with pytest.raises(agent.ToolError):
        agent.calculate(expression)


def test_files_below_the_folder_only(agent: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha", encoding="utf-8")
    (folder / "long.txt").write_text("x" * 30_000, encoding="utf-8")
    (folder / "image.png").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    assert agent.read_file("a.txt", folder=folder) == "alpha"
    assert agent.read_file("long.txt", folder=folder).endswith("[cut here]")
    for path in ("../secret.txt", "/etc/passwd", "link.txt", "none.txt", ".", "image.png", "a\0b",
                 "x" * 5000):  # fmt: skip
        with pytest.raises(agent.ToolError):
            agent.read_file(path, folder=folder)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("calculate", '{"expression": "6*7"}', "42"),
        ("remove_file", "{}", "error: there is no tool 'remove_file'"),
        ("calculate", '{"expression": ', "error: the arguments are not JSON"),
        ("calculate", "[1]", "error: the arguments are not an object"),
        ("calculate", '{"expression": 5}', "error: expression must be a string"),
        ("calculate", '{"expr": "1"}', "error: the arguments must be exactly: expression"),
        ("calculate", "[" * 100_000, "error: the arguments are not JSON"),
    ],
)
def test_what_the_model_did_wrong_goes_back_to_it(
    agent: ModuleType, tmp_path: Path, name: str, arguments: str, said: str
) -> None:
    assert agent.use_tool(agent.tools_for(tmp_path), name, arguments).startswith(said)


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(AGENT), *words],
        capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.integration
def test_no_server_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    done = ask("--url", "http://127.0.0.1:9/v1", "--folder", str(tmp_path), "hello")
    assert done.returncode == 1
    assert "nothing answers at http://127.0.0.1:9/v1" in done.stderr
    assert "Traceback" not in done.stderr


def call(name: str, key: str, value: str) -> str:
    return (
        f"<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n"
        "</function>\n</tool_call>"
    )


@pytest.mark.server
def test_a_conversation_with_the_real_server(tmp_path: Path) -> None:
    """Three rounds: two good calls with words before them, one that must be refused, the answer.

    The template ends the prompt with another character after each round, which is how the
    scripted model knows where it is.
    """
    server_bin, templates = setting("QBUILD_TEST_SERVER"), setting("QBUILD_TEST_TEMPLATES")
    end = "{{- '<|im_start|>assistant\\n' }}"
    template = (templates / "Qwen3-Coder.jinja").read_text(encoding="utf-8")
    assert end in template
    template = template.replace(
        end,
        "{%- set results = messages | selectattr('role', 'equalto', 'tool') | list | length %}"
        + end
        + "{%- if results == 2 %}{{- ' ' }}{%- elif results > 2 %}{{- '!' }}{%- endif %}",
    )
    scripts = {
        "\n": "Let me see.\n"
        + call("calculate", "expression", "6*7")
        + "\n"
        + call("read_file", "path", "budget.txt"),
        " ": call("read_file", "path", "../secret.txt"),
        "!": "It is forty-two, and the file says so.",
    }
    notes = tmp_path / "my notes 笔记"
    notes.mkdir()
    (notes / "budget.txt").write_text("rent 42\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret")
    with serving(server_bin, tmp_path, scripts, template, longest=14) as server:
        done = ask("--url", f"{server.base}/v1", "--folder", str(notes), "What is it?")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Let me see.")
    assert done.stdout.rstrip().endswith("It is forty-two, and the file says so.")
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert lines == [
        '[calculate({"expression":"6*7"}) -> 42]',
        '[read_file({"path":"budget.txt"}) -> rent 42]',
        '[read_file({"path":"../secret.txt"}) -> error: \'../secret.txt\' is outside the folder]',
    ]
    assert "secret\n" not in done.stdout


def test_the_example_never_evaluates_code() -> None:
    import ast

    names = {
        node.id for node in ast.walk(ast.parse(AGENT.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name)
    }  # fmt: skip
    assert not names & {"eval", "exec", "compile", "__import__", "getattr", "os"}
