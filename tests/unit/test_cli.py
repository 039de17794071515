"""The command line: words found, mistakes told, exit codes kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from qbuild.cli.main import COMMANDS, parse, run
from qbuild.errors import Interrupted, QbuildError, StoreError, UsageError


@pytest.mark.parametrize(
    ("words", "command", "name"),
    [
        (["--recipe", "avx2"], "build", None),
        (["avx2"], "build", "avx2"),
        (["build", "avx2"], "build", "avx2"),
        (["--os", "linux", "show", "avx2"], "show", "avx2"),
        (["--recipe", "list"], "build", None),
        (["--store", "plan", "show", "avx2"], "show", "avx2"),
    ],
)
def test_the_command_is_found_among_the_words(
    words: list[str], command: str, name: str | None
) -> None:
    args = parse(words)
    assert args.command == command
    assert args.name == name


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["show"], 2, "no recipe named"),
        (["build", "--recipe"], 2, "expected one argument"),
        (["--recipe", "nope"], 3, "no recipe `nope`"),
        (["avx2", "--recipe", "laptop"], 2, "two recipes named"),
        (["show", "avx2", "--os", "dos"], 3, "`target.os` must be"),
        (["show", "avx2", "--frobnicate"], 2, "unrecognized arguments"),
        (["show", "avx2", "--set", "x"], 2, "--set takes"),
        (["plan", "avx2", "--script", "fish"], 2, "invalid choice"),
        (["plan", "avx2", "--lockfile", "/nonexistent/file"], 4, "lock"),
        (["plan", "avx2", "--patches", "/nonexistent"], 6, "windows-gnu"),
        (["avx2", "--jobs", "0"], 2, "--jobs takes a number from 1 on"),
        (["avx2", "--jobs", "many"], 2, "invalid int value"),
        (["reproduce", "avx2", "--jobs", "-1"], 2, "--jobs takes a number"),
        (["cache", "burn"], 2, "invalid choice"),
        (["verify"], 2, "required"),
        (["verify", "/nonexistent.zip"], 2, "there is no zip"),
        (["verify", "/"], 2, "name one zip, not the folder"),
        (["lits"], 2, "did you mean `qbuild list`?"),
        (["plna", "avx2"], 2, "did you mean `qbuild plan`?"),
        (["lapptop"], 3, "did you mean `laptop`?"),
        (["--recipie", "avx2"], 2, "did you mean `--recipe`?"),
        (["plan", "avx2", "--scrpt=sh"], 2, "did you mean `--script`?"),
        (["plan", "avx2", "laptop"], 2, "see `qbuild plan --help`"),
        (["plan", "avx2.toml"], 3, "did you mean `avx2`"),
        (["plan", "avx2", "--set", "linkage=static"], 3, "did you mean `build.linkage`?"),
    ],
)
def test_mistakes_have_a_message_and_a_code(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_errors_are_json_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "nope", "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["error"] == "recipe"
    assert data["exit_code"] == 3
    assert "nope" in data["what"]


@pytest.mark.parametrize("command", ["list", "show avx2", "plan avx2", "version"])
def test_json_is_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--json"]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", ["list", "show avx2", "plan avx2", "version"])
def test_text_is_for_people(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command.split()) == 0
    assert capsys.readouterr().out.strip()


def test_show_prints_toml_that_resolves_to_the_same_recipe(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    from qbuild.recipe.load import as_dict, load_recipe

    assert run(["show", "baseline"]) == 0
    path = tmp_path_factory.mktemp("show") / "baseline.toml"
    path.write_text(capsys.readouterr().out)
    assert as_dict(load_recipe(str(path))) == as_dict(load_recipe("baseline"))


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run([command, "--help"])
    assert ended.value.code == 0
    assert "usage: qbuild" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["help plan", "help patch status", "help"])
def test_help_is_a_word_too(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(words.split())
    assert ended.value.code == 0
    usage = " ".join(["qbuild", *words.split()[1:]])
    assert capsys.readouterr().out.startswith(f"usage: {usage} ")


def test_a_verb_keeps_the_common_options_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["patch", "status", "--help"])
    own, _, everywhere = capsys.readouterr().out.partition("everywhere:")
    assert "--pin NAME  " in own and "--json  " in everywhere


def test_a_fault_in_qbuild_is_one_message_not_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import qbuild.cli.version as module

    def boom(*args: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(module, "execute", boom)
    assert run(["version"]) == 1
    err = capsys.readouterr().err
    assert "unexpected ZeroDivisionError: oops" in err and "--debug" in err
    with pytest.raises(ZeroDivisionError):
        run(["version", "--debug"])


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import qbuild.cli.version as module

    def interrupted(*args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "execute", interrupted)
    assert run(["version"]) == Interrupted.exit_code == 130
    assert "stopped" in capsys.readouterr().err


def test_exit_codes_are_unique() -> None:
    def all_classes(cls: type[QbuildError]) -> list[type[QbuildError]]:
        return [cls, *(c for sub in cls.__subclasses__() for c in all_classes(sub))]

    codes = [c.exit_code for c in all_classes(QbuildError) if "exit_code" in vars(c)]
    assert len(codes) == len(set(codes))
    assert UsageError.exit_code == 2


def test_a_listing_imports_no_heavy_library(capsys: pytest.CaptureFixture[str]) -> None:
    """The second run of a build must take half a second: heavy imports belong in functions."""
    heavy = {"pefile", "elftools", "iced_x86", "numpy", "gguf", "git", "cyclonedx", "unidiff"}
    before = heavy & set(sys.modules)
    run(["list"])
    assert heavy & set(sys.modules) == before


def test_no_recipe_means_the_one_that_fits_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import qbuild.cli.build as build
    from qbuild.doctor import detect
    from qbuild.doctor.detect import Recommendation

    seen = {}

    def stop(args: object, **_: bool) -> None:
        seen.update(vars(args))
        raise UsageError("far enough")

    monkeypatch.setattr(
        detect,
        "recommend",
        lambda facts, available: Recommendation(
            recipe="baseline", os="linux", reasons=("no AVX",), hints=()
        ),
    )
    monkeypatch.setattr("qbuild.cli.doctor.this_machine", lambda args: None)
    monkeypatch.setattr(build, "make_plan", stop)
    assert run([]) == 2
    assert (seen["recipe"], seen["os"]) == ("baseline", "linux")


def test_a_failed_log_is_explained_by_the_doctor() -> None:
    from qbuild.steps.ninja import advice

    text = advice("c++: fatal error: Killed signal terminated program cc1plus\n")
    assert text is not None and "memory" in text
    assert advice("nothing that anybody knows\n") is None


@pytest.mark.parametrize("action", ["size", "verify", "prune"])
def test_a_store_that_is_a_file(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").write_text("not a folder", encoding="ascii")
    assert run(["cache", action, "--store", str(tmp_path / "store")]) == StoreError.exit_code
    assert "the store is a file, not a folder" in capsys.readouterr().err
    assert (tmp_path / "store").read_text(encoding="ascii") == "not a folder"


def test_an_output_folder_that_cannot_be_is_told_before_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dist").write_text("a file", encoding="ascii")
    words = ["avx2", "--dist", str(tmp_path / "dist"), "--store", str(tmp_path / "store")]
    assert run(words) == StoreError.exit_code
    assert "cannot write into the output folder" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_an_empty_pin_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lock", "--pin", " "]) == 2
    assert "--pin takes a commit" in capsys.readouterr().err


def test_a_sound_lockfile_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lock", "--offline"]) == 0
    assert "pins, sound" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--facts", "x.json", "detect"], "detect"),
        (["--facts", "x.json", "plan", "avx2"], "plan"),
        (["--zip-a", "a.zip", "list"], "build"),
        (["--log", "detect", "doctor"], "doctor"),
        (["--store", "detect", "list"], "list"),
        (["--recipe", "list"], "build"),
        (["--recipe=avx2", "verify"], "verify"),
        (["avx2", "--jobs", "2"], "build"),
        ([], "build"),
    ],
)
def test_the_command_may_stand_behind_its_own_options(words: list[str], command: str) -> None:
    """`qbuild --facts x.json detect` once took x.json for a recipe: a second list of options."""
    from qbuild.cli.main import _command_in

    assert (_command_in(words) or "build") == command


def test_options_with_values_come_from_the_commands_themselves() -> None:
    from qbuild.cli.main import COMMANDS, _with_value

    for command in COMMANDS:
        assert {"--store", "--lockfile", "--patches"} <= _with_value(command)
        assert not {"--json", "-q", "--quiet", "--debug"} & _with_value(command)


@pytest.mark.parametrize(
    "words",
    [
        ["patch", "status"],
        ["patch", "check", "--against", "master"],
        ["patch", "edit", "qwen3-mtp"],
        ["patch", "refresh"],
        ["patch", "rebase", "qwen3-mtp", "--to", "master"],
        ["lock", "--pin", "master"],
    ],
    ids=" ".join,
)
def test_what_needs_git_says_so_before_it_fetches_anything(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbuild.source.gitless.shutil.which", lambda *_: None)
    assert run(words) == 7
    err = capsys.readouterr().err
    assert "git was not found" in err
    assert "winget install Git.Git" in err
    assert "fetch" not in err


def test_what_needs_no_git_does_not_ask_for_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from qbuild.cli import lock
    from qbuild.recipe.lock import load_lock
    from qbuild.resources import lockfile

    monkeypatch.setattr("qbuild.source.gitless.shutil.which", lambda *_: None)
    assert run(["patch", "explain", "qwen3-mtp"]) == 0
    assert "qwen3-mtp" in capsys.readouterr().out
    said = lock._commit_there(load_lock(lockfile()).source("llama.cpp"))
    assert said == "there is no git on this machine to ask it with"
