"""``qbuild build`` from its command line to what it says, with a builder that is done at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qbuild.cli import build
from qbuild.cli.main import run as main
from qbuild.console import Silent
from qbuild.doctor import detect
from qbuild.doctor.detect import Recommendation
from qbuild.errors import StoreError, UsageError
from qbuild.steps.options import BuildOptions, Record
from qbuild.steps.shared import Shared
from qbuild.verify.verdict import Check, Verdict, judge, not_run, passed

BYTES = b"a zip" * 100_000
DIGEST = hashlib.sha256(BYTES).hexdigest()


class Heard(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


class Told:
    """What the stand-ins saw."""

    def __init__(self) -> None:
        self.options: list[BuildOptions] = []
        self.checked: list[bool] = []
        self.cleaned = 0
        self.held = False
        self.emulated: list[str] = []
        self.shared: list[str] = []


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Builder and checks that are done at once; the plan is the real one."""
    out = Told()

    class Quick:
        def __init__(self, plan: Any, store: Any, _: Any, options: BuildOptions) -> None:
            self.plan, self.store, self.record = plan, store, Record()
            out.options.append(options)

        def bundle(self) -> Any:
            out.held = bool(list((self.store.root / "locks").glob("run-*.lock")))
            (tmp_path / self.plan.zip_name).write_bytes(BYTES)
            return SimpleNamespace(path=tmp_path)

        def result(self, kind: str) -> Any:
            assert kind == "compile"
            return SimpleNamespace(facts={"shared": out.shared})

    def checked(path: Path, *_: Any, run: bool, **__: Any) -> Verdict:
        assert path.read_bytes() == BYTES
        out.checked.append(run)
        checks = (
            passed("a", "is sound"),
            passed("c", "has its licences"),
            not_run("b", "runs on the CPU it names", "no qemu"),
        )
        return Verdict(zip_name=path.name, sha256=DIGEST, checks=checks)

    monkeypatch.setattr("qbuild.steps.builder.Builder", Quick)
    monkeypatch.setattr(build, "check", checked)
    monkeypatch.setattr("qbuild.steps.emulator.kernels", lambda builder: builder.plan.zip_name)
    monkeypatch.setattr(
        "qbuild.steps.emulator.tie", lambda builder, found: out.emulated.append(found)
    )
    return out


def run(tmp_path: Path, *words: str, recipe: str = "avx2") -> int:
    places = ["--store", str(tmp_path / "store"), "--dist", str(tmp_path / "dist")]
    return main(["build", recipe, "--os", "linux", *places, *words])


NAME = "llama-g0c1e57098-avx2-linux-x86_64.zip"


def test_what_a_person_is_told(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First run: what is made and what came of it; second: that nothing was to do."""
    assert run(tmp_path) == 0
    path = tmp_path / "dist" / NAME
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "accepted: 2 passed, 0 failed, 1 not run",
        f"{path}  (0.5 MB, verified)",
        f"sha256 {DIGEST}",
        "not run here: runs on the CPU it names",
    ]
    assert err.splitlines()[0].startswith("avx2: Any PC with AVX2")
    assert "is replaced" not in err
    assert told.held, "nothing may be pruned meanwhile"
    assert told.emulated == []
    assert run(tmp_path) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{path}  (0.5 MB, up to date)",
        f"sha256 {DIGEST}",
        "not run here: runs on the CPU it names",
    ]
    assert err == "" and len(told.options) == 1


def test_quiet_says_nothing_and_json_everything(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "-q") == 0
    assert capsys.readouterr() == ("", "")
    assert run(tmp_path, "--json") == 0
    old = json.loads(capsys.readouterr().out)
    assert (old["fresh"], old["path"]) == (False, str(tmp_path / "dist" / NAME))
    assert run(tmp_path, "--json", "--dist", str(tmp_path / "other")) == 0
    new = json.loads(capsys.readouterr().out)
    assert new["fresh"] is True and new["zip"]["sha256"] == DIGEST
    assert new["checks"] == {"passed": 2, "not_run": ["runs on the CPU it names"]}
    assert 0 <= new["seconds"]["verify"] < 60
    assert "altered" not in new
    text = (tmp_path / "other" / f"{NAME}.build.json").read_text()
    kept = {key: value for key, value in new.items() if key not in ("path", "fresh")}
    assert text == json.dumps(kept, indent=2, sort_keys=True) + "\n"


@pytest.mark.parametrize(
    ("words", "runs"), [((), True), (("--no-run",), False), (("--set", "checks.run=false"), False)]
)
def test_what_runs_the_zip(told: Told, tmp_path: Path, words: tuple[str, ...], runs: bool) -> None:
    assert run(tmp_path, *words) == 0
    assert told.checked == [runs]


def test_a_zip_that_was_there_is_replaced_and_that_is_said(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / NAME).write_bytes(b"old")
    assert run(tmp_path) == 0
    assert f"{NAME} was in {tmp_path / 'dist'} already: it is replaced" in capsys.readouterr().err
    assert (tmp_path / "dist" / NAME).read_bytes() == BYTES


@pytest.mark.parametrize(("name", "there"), [("avx2", False), ("gtx1060", True)])
def test_kernels_for_the_emulator_only_on_request(
    told: Told, tmp_path: Path, name: str, there: bool
) -> None:
    assert run(tmp_path, *(["--emulator"] if there else []), recipe=name) == 0
    assert told.emulated == ([NAME.replace("avx2", name)] if there else [])


def test_what_killed_runs_left_is_cleaned(told: Told, tmp_path: Path) -> None:
    left = tmp_path / "store" / "tmp" / "left"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    assert run(tmp_path) == 0
    assert not left.exists()


def test_a_release_uses_no_cache(told: Told, tmp_path: Path) -> None:
    assert run(tmp_path) == run(tmp_path, "--release", "--dist", str(tmp_path / "d")) == 0
    assert [each.compiler_cache for each in told.options] == [True, False]
    (again,) = {dataclasses.replace(each, compiler_cache=True) for each in told.options}
    assert again.jobs is None


def test_a_release_refuses_what_others_compiled(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told.shared = ["objects from redis://x"]
    assert run(tmp_path, "--release") == StoreError.exit_code
    err = capsys.readouterr().err
    assert "the store's result is not hermetic: objects from redis://x" in err
    assert str(tmp_path / "store" / "compile") in err and "cache prune" in err
    assert not (tmp_path / "dist" / NAME).exists()
    assert run(tmp_path) == 0, "without --release it is used"


def test_a_finished_zip_of_shared_objects_is_no_release(told: Told, tmp_path: Path) -> None:
    """It lies in dist, up to date, and says itself how it came about."""
    assert run(tmp_path) == 0
    record = tmp_path / "dist" / f"{NAME}.build.json"
    data = json.loads(record.read_text())
    assert run(tmp_path, "--release") == 0 and len(told.options) == 1
    record.write_text(json.dumps({**data, "shared": ["objects from redis://x"]}))
    told.shared = ["objects from redis://x"]
    assert run(tmp_path, "--release") == StoreError.exit_code
    assert len(told.options) == 2


def test_release_and_a_remote_cache_contradict_each_other(told: Told, tmp_path: Path) -> None:
    assert run(tmp_path, "--release", "--remote-cache", "redis://127.0.0.1:1") != 0
    assert told.options == []
    with pytest.raises(UsageError):
        build._for_release(BuildOptions(shared=Shared(hosts=("h",))))


@pytest.mark.parametrize("harm", ["file", "closed"])
def test_the_output_folder_is_tried_before_anything_is_made(
    told: Told, tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    dist = tmp_path / "dist"
    if harm == "file":
        dist.write_text("")
    else:
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert run(tmp_path) == StoreError.exit_code
    err = capsys.readouterr().err
    assert "cannot write into the output folder: " in err and str(dist) in err and "--dist" in err
    assert ("it is not writable" in err) is (harm == "closed")
    assert told.options == [] and not (tmp_path / "store").exists()


def test_a_disk_that_gives_no_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("odd")

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(StoreError, match="output folder: odd"):
        build._check_writable(tmp_path / "dist")


def test_a_folder_for_the_output_is_made_with_its_parents(told: Told, tmp_path: Path) -> None:
    assert run(tmp_path, "--dist", str(tmp_path / "a" / "b")) == 0
    assert (tmp_path / "a" / "b" / NAME).exists()


def take(monkeypatch: pytest.MonkeyPatch, found: Recommendation, **more: Any) -> tuple[Any, str]:
    """Return the arguments after a machine was looked at, and what was said."""
    monkeypatch.setattr(detect, "recommend", lambda *_: found)
    monkeypatch.setattr("qbuild.cli.doctor.this_machine", lambda _: None)
    args = SimpleNamespace(
        **{"overrides": [], "cuda_arch": [], "for_gpu": None, "os": None, "recipe": None, **more}
    )
    heard = Heard()
    build._take_detected(args, heard)  # type: ignore[arg-type]
    return args, "\n".join(heard.said)


def test_a_recipe_that_fits_is_taken_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Recommendation(
        recipe="gtx1060", os="linux", reasons=("a GTX 1060", "AVX2"), hints=(),
    )  # fmt: skip
    args, said = take(monkeypatch, found)
    assert (args.recipe, args.os) == ("gtx1060", "linux")
    assert said == (
        "no recipe named; `qbuild --recipe gtx1060 --os linux` fits this machine: a GTX 1060; AVX2"
    )
    args, _ = take(monkeypatch, found, os="windows")
    assert args.os == "windows", "what was asked for counts"


def test_every_option_of_what_fits_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    command = (
        "qbuild --recipe gtx1060 --set a.b=1 --set c=2 --cuda-arch 61-real --gpu 'GTX 1060' --os x"
    )
    found = Recommendation(recipe="gtx1060", os="linux", reasons=("a",), command=command)
    args, said = take(monkeypatch, found, overrides=["z=1"])
    assert args.overrides == ["z=1", "a.b=1", "c=2"] and args.cuda_arch == ["61-real"]
    assert (args.for_gpu, args.recipe, args.os) == ("GTX 1060", "gtx1060", "x")
    assert "`qbuild --recipe gtx1060 --set a.b=1" in said


def test_no_recipe_that_fits_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Recommendation(recipe=None, os="linux", reasons=("no SSE4.2", "old"), hints=())
    with pytest.raises(UsageError, match="none fits this machine") as caught:
        take(monkeypatch, found)
    assert caught.value.where == "no SSE4.2; old"
    assert "qbuild --recipe avx2" in str(caught.value.fix)


def test_reading_and_running_are_both_in_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And which zip is checked is said before the minutes that it takes."""
    path = tmp_path / "x.zip"
    path.write_bytes(BYTES)
    read = Verdict(zip_name="x.zip", sha256=DIGEST, checks=(passed("a", "is sound"),))
    monkeypatch.setattr("qbuild.verify.verify_zip", lambda *_, **__: read)
    where: list[Path] = []

    def run_zip(*_: Any, cache_dir: Path, **__: Any) -> tuple[Check, ...]:
        where.append(cache_dir)
        return (judge("b", "runs", []),)

    monkeypatch.setattr("qbuild.verify.run.run_zip", run_zip)
    heard = Heard()
    store = SimpleNamespace(root=tmp_path / "store")
    found = build.check(path, store, heard, run=True)  # type: ignore[arg-type]
    assert [each.id for each in found.checks] == ["a", "b"]
    assert heard.said == ["verify: x.zip"] and where == [tmp_path / "store" / "cache"]
    alone = build.check(path, store, heard, run=False)  # type: ignore[arg-type]
    assert [each.id for each in alone.checks] == ["a"] and len(where) == 1
