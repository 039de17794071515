"""Pipelines for real: linted by actionlint, their jobs run here from a clean clone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qbuild.errors import PipelineError
from qbuild.extras.ci.jobs import Job, Said, Workflow, workflows
from qbuild.extras.ci.matrix import entries, known_entries
from qbuild.extras.ci.run import Run, instances
from qbuild.recipe.model import Recipe, Target, Toolchain
from support.tools import needs

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]


def qbuild(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qbuild", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def actionlint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run actionlint (with shellcheck for the scripts) from the test environment's wheels."""
    programs = Path(sys.executable).parent
    tool, shell = (shutil.which(name, path=str(programs)) for name in ("actionlint", "shellcheck"))
    if not (tool and shell):
        pytest.skip("not installed: actionlint and shellcheck, which the extra `test` brings")
    files = sorted(str(path) for path in folder.glob("*.yml"))
    command = [tool, "-no-color", "-shellcheck", shell, *files]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


# -- the files ------------------------------------------------------------------------------------


def test_the_committed_workflows_are_clean() -> None:
    done = actionlint(ROOT / ".github" / "workflows")
    assert done.returncode == 0, done.stdout


def test_workflows_with_native_jobs_are_clean_and_a_fault_is_noticed(tmp_path: Path) -> None:
    from qbuild.extras.ci.github import workflow_text

    native = Recipe(
        name="studio",
        summary="x",
        target=Target(os="windows", cpu="x86-64-v3"),
        toolchain=Toolchain(name="msvc"),
        supports=("windows",),
    )
    cross = Recipe(name="zoo", summary="x", target=Target(os="linux", cpu="x86-64-v3"))
    for each in workflows(entries([native, cross])):
        (tmp_path / f"{each.id}.yml").write_text(workflow_text(each), encoding="utf-8")
    done = actionlint(tmp_path)
    assert done.returncode == 0, done.stdout
    path = tmp_path / "build.yml"
    path.write_text(path.read_text().replace("matrix.recipe", "matrix.recipy"))
    assert "recipy" in actionlint(tmp_path).stdout
    path.write_text(path.read_text().replace("matrix.recipy", "matrix.recipe"))
    path.write_text(path.read_text().replace('"$RECIPE"', "$RECIPE"))
    assert "SC2086" in actionlint(tmp_path).stdout, "shellcheck did not look at the scripts"


def test_files_are_written_where_asked_and_staleness_is_an_error(tmp_path: Path) -> None:
    for verb, name in (("github", ".github/workflows/build.yml"), ("gitlab", "ci/gitlab-ci.yml")):
        stale = qbuild("ci", verb, "--root", str(tmp_path), "--check")
        assert stale.returncode == 18
        assert "not what the recipes say" in stale.stderr
        assert not (tmp_path / name).exists()
        assert qbuild("ci", verb, "--root", str(tmp_path)).returncode == 0
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
        assert qbuild("ci", verb, "--root", str(tmp_path), "--check").returncode == 0


def test_the_matrix_is_json_for_any_system() -> None:
    done = qbuild("ci", "matrix", "--json")
    assert done.returncode == 0
    (row,) = [each for each in json.loads(done.stdout) if each["job"] == "build-avx2-linux"]
    assert {"recipe": "avx2", "os": "linux", "native": False}.items() <= row.items()


def test_every_job_can_be_listed_and_shown_without_running() -> None:
    listed = qbuild("ci", "run")
    assert listed.returncode == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    columns = {line.index(" " + line.split()[1]) for line in listed.stdout.splitlines()}
    assert len(columns) == 1, "the table is crooked"
    shown = qbuild("ci", "run", "all", "--dry-run")
    assert shown.returncode == 0
    assert [line.split()[1] for line in shown.stdout.splitlines() if line[:3] == "== "] == names
    assert '$ qbuild build "$RECIPE" --os "$TARGET_OS" --dist dist' in shown.stdout
    assert "left out here: it installs system packages" in shown.stdout
    wrong = qbuild("ci", "run", "chekc")
    assert wrong.returncode == 2
    assert "did you mean `check`?" in wrong.stderr
    away = qbuild("ci", "run", "publish")
    assert away.returncode == 18
    assert "cannot run here: it publishes" in away.stderr


# -- running them ---------------------------------------------------------------------------------


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository whose working tree is not what its HEAD is."""
    root = tmp_path / "repo"
    root.mkdir()
    for words in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@invalid", "commit", "-q", "--allow-empty", "-m1"],
    ):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
    (root / "uncommitted").write_text("not in a clone")
    return root


def pipeline(*jobs: Job) -> tuple[Workflow, ...]:
    return (Workflow(id="w", said={}, jobs=jobs),)


CHECKOUT: Said = {"uses": "actions/checkout"}
ENV = {"RECIPE": "${{ matrix.recipe }}", "TARGET_OS": "${{ matrix.os }}"}


def script(name: str, text: str) -> Said:
    return {"name": name, "run": text}


def upload(name: str, path: str) -> Said:
    return {"uses": "actions/upload-artifact", "with": {"name": name, "path": path}}


class Here:
    """Runs jobs of a pipeline one after the other and remembers what was said."""

    def __init__(self, repo: Path, tmp_path: Path, *jobs: Job) -> None:
        self.repo, self.tmp, self.said = repo, tmp_path, ""
        self.known = instances(pipeline(*jobs))

    def run(self, name: str) -> None:
        work = self.tmp / f"work-{name}"
        work.mkdir()
        lines: list[str] = []
        try:
            Run(
                instance=self.known[name],
                root=self.repo,
                work=work,
                artifacts=self.tmp / "artifacts",
                say=lines.append,
            ).steps()
        finally:
            self.said = "\n".join(lines)


ROWS = ({"recipe": "a b;$(touch pwned)", "os": "linux"}, {"recipe": "c", "os": "windows"})


@needs("bash")
def test_a_job_runs_from_a_clean_clone_with_its_rows_values(repo: Path, tmp_path: Path) -> None:
    text = 'ls; echo "$RECIPE/$TARGET_OS"; mkdir dist; echo "$RECIPE" > "dist/$TARGET_OS.zip"\n'
    left_out = {**script("system", "touch /never-run\n"), "x-left-out": "it is the system's"}
    steps = (CHECKOUT, script("all", text), left_out, upload("llama-${{ matrix.os }}", "dist/"))
    job = Job(id="build", said={"env": ENV, "steps": steps}, rows=ROWS)
    fetch = {
        "uses": "actions/download-artifact",
        "with": {"pattern": "llama-*", "path": "dist", "merge-multiple": True},
    }
    see = (CHECKOUT, fetch, script("see", "cat dist/*.zip\n"))
    collect = Job(id="collect", said={"needs": ["build"], "steps": see})
    here = Here(repo, tmp_path, job, collect)
    with pytest.raises(PipelineError, match="no such artifact") as missing:
        here.run("collect")
    assert "run the jobs it needs first: build" in str(missing.value)
    shutil.rmtree(tmp_path / "work-collect")
    for name in here.known:
        here.run(name)
        if "windows" in name:
            assert "    c/windows" in here.said
        if name != "collect":
            assert "system: left out, it is the system's" in here.said
            assert "uncommitted" not in here.said
    assert "a b;$(touch pwned)" in here.said, "a value is data, not script"
    assert not list(tmp_path.rglob("pwned"))


@needs("bash")
def test_two_builds_from_scratch_share_nothing(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else `compare` would compare one build with itself."""
    monkeypatch.setenv("QBUILD_STORE", str(tmp_path / "mine"))
    made = {each.id: each for flow in workflows(known_entries()) for each in flow.jobs}
    assert made["half"].said["x-scratch"]
    assert made["release-build"].said["x-scratch"]
    steps = (CHECKOUT, script("build", 'echo "store: $QBUILD_STORE"; mkdir "$QBUILD_STORE"\n'))
    scratch = {"x-scratch": True, "steps": steps}
    jobs = [Job(id=name, said=scratch) for name in ("first", "second")]
    here = Here(repo, tmp_path, *jobs, Job(id="usual", said={"steps": steps}))
    for name in ("first", "second"):
        here.run(name)
        assert f"store: {tmp_path}/work-{name}/store" in here.said
    here.run("usual")
    assert f"store: {tmp_path}/mine" in here.said


@needs("bash")
def test_a_failed_step_ends_the_job_but_not_what_always_runs(repo: Path, tmp_path: Path) -> None:
    steps = (
        CHECKOUT,
        script("look", "echo drift | tee drift.txt; false | cat\n"),
        script("never", "echo must-not-happen\n"),
        {**upload("drift", "drift.txt"), "if": "always()"},
    )
    job = Job(id="canary", said={"steps": steps})
    here = Here(repo, tmp_path, job)
    with pytest.raises(PipelineError, match="step `look` ended with status 1"):
        here.run("canary")
    assert "must-not-happen" not in here.said
    assert (tmp_path / "artifacts" / "drift" / "drift.txt").read_text() == "drift\n"


def test_a_missing_program_is_named(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(id="j", said={"steps": (script("say", "echo never\n"),)})
    monkeypatch.setattr("shutil.which", lambda *_: None)
    with pytest.raises(PipelineError, match="step `say` needs `bash`") as caught:
        Here(repo, tmp_path, job).run("j")
    assert "Git for Windows" in str(caught.value)


def test_an_empty_hand_is_a_failure(repo: Path, tmp_path: Path) -> None:
    job = Job(id="j", said={"steps": (CHECKOUT, upload("a", "dist/*.zip"))})
    with pytest.raises(PipelineError, match="found no file"):
        Here(repo, tmp_path, job).run("j")


# -- compare --------------------------------------------------------------------------------------


def test_two_folders_of_zips_are_compared(tmp_path: Path) -> None:
    import zipfile

    for folder, text in (("first", "1"), ("same", "1"), ("other", "2"), ("empty", None)):
        (tmp_path / folder).mkdir()
        if text is not None:
            with zipfile.ZipFile(tmp_path / folder / "x.zip", "w") as made:
                made.writestr(zipfile.ZipInfo("llama-cli"), text)
    first, same, other, empty = (str(tmp_path / n) for n in ("first", "same", "other", "empty"))
    done = qbuild("ci", "compare", first, same)
    assert (done.returncode, done.stdout) == (0, "identical: x.zip\n")
    done = qbuild("ci", "compare", first, other)
    assert done.returncode == 12
    assert "llama-cli" in done.stderr
    assert qbuild("ci", "compare", first, empty).returncode == 2
    (tmp_path / "same" / "lonely.zip").write_bytes(b"")
    assert "no counterpart" in qbuild("ci", "compare", first, same).stderr
