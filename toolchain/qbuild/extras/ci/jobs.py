"""The jobs: what a pipeline does with the recipes, whatever service runs it.

Two things keep a stranger's pull request harmless: its jobs have a token that can only read the
repository, and nothing they leave behind (caches, artifacts) is used by a job that can write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbuild.extras.ci.matrix import LINUX_RUNNER, WINDOWS_RUNNER
from qbuild.extras.ci.pipeline import (
    NATIVE_NOTE,
    Attest,
    Checkout,
    Download,
    Entry,
    Job,
    Keep,
    Restore,
    Run,
    SetUpPython,
    Step,
    Upload,
    Workflow,
)

BRANCH = "main"
OTHER_RUNNER = "ubuntu-22.04"
"""The second machine of the reproducibility check: another kernel, another set of tools."""

COMMAND_POWERSHELL = """\
py -3 -m venv .venv
.venv\\Scripts\\python -m pip install -q -e ".[test]"
.venv\\Scripts\\qbuild --recipe laptop
"""
TESTS_WINDOWS = r".venv\Scripts\python -m pytest -n 2 tests\unit"
"""README's commands for Windows; a test holds README to them."""

_ARTIFACT = "llama-{recipe}-{os}"
_INPUTS = "qbuild-inputs"
_OBJECTS = "qbuild-objects-{recipe}-{os}"

_PACKAGES = Run(
    name="Programs that run the finished zip (Wine, qemu-user)",
    script="""\
sudo apt-get update -qq
grep -v '^#' ci/apt.txt | xargs sudo apt-get install -y -qq --no-install-recommends
""",
    runner_only="it installs system packages; what it would install stands in ci/apt.txt",
)

_NAMESPACES = Run(
    name="Let builds cut their network",
    script="""\
# Ubuntu 24.04 forbids user namespaces by default; with them qbuild builds without a network.
if [ -e /proc/sys/kernel/apparmor_restrict_unprivileged_userns ]; then
  sudo sysctl -q kernel.apparmor_restrict_unprivileged_userns=0
fi
""",
    runner_only="it changes a setting of the whole system",
)

_INSTALL = Run(
    name="Install qbuild",
    script="""\
python -m pip install -q --require-hashes -r ci/requirements.txt
python -m pip install -q --no-deps --no-build-isolation -e .
""",
)

_INSTALL_WINDOWS = Run(
    name="Install qbuild",
    # The hashes in ci/requirements.txt are those of a Linux machine's set of packages.
    script="python -m pip install -q -e .\n",
)

_BUILD = Run(
    name="Build, verify, run",
    script='qbuild build "$RECIPE" --os "$TARGET_OS" --dist dist\n',
)

_BUILD_FROM_SCRATCH = Run(
    name="Build from scratch, verify, run",
    script='qbuild build "$RECIPE" --os "$TARGET_OS" --dist dist --release\n',
)

_HASHES = Run(
    name="Check the hashes that go with it",
    script="(cd dist && sha256sum --check --strict -- *.sha256)\n",
)


def _start(*, install: Run = _INSTALL, packages: bool = False) -> tuple[Step, ...]:
    more = (_PACKAGES, _NAMESPACES) if packages else ()
    return (Checkout(), SetUpPython(), *more, install)


def _rows(entries: Sequence[Entry]) -> tuple[Mapping[str, str], ...]:
    return tuple(entry.row for entry in entries)


def workflows(entries: Sequence[Entry]) -> tuple[Workflow, ...]:
    """Return all workflows for these builds."""
    cross = [each for each in entries if not each.native]
    native = [each for each in entries if each.native]
    return (
        _build(cross, native),
        _canary(),
        _reproduce(cross),
        _release(cross, native),
        _windows_host(),
    )


# -- build: every push and pull request ---------------------------------------------------------


def check_job() -> Job:
    """Return the job that looks at the repository itself."""
    return Job(
        id="check",
        title="generated files, pins, patches, unit tests",
        steps=(
            *_start(),
            Run(name="Generated files are fresh", script="python ci/generate.py --check\n"),
            Run(name="Every pin resolves", script="qbuild lock\n"),
            Run(name="Every patch fits the pin", script="qbuild patch status\n"),
            Run(name="Unit tests", script="python -m pytest -q tests/unit -n 2\n"),
        ),
    )


def _build(cross: Sequence[Entry], native: Sequence[Entry]) -> Workflow:
    inputs = ("source", "wheel")
    build = Job(
        id="build",
        title="{recipe} for {os}",
        rows=_rows(cross),
        runner="{runner}",
        needs=("check",),
        minutes=120,
        steps=(
            *_start(packages=True),
            Restore(
                name="Pinned inputs", paths=inputs, key=f"{_INPUTS}-LOCK", prefix=f"{_INPUTS}-"
            ),
            Restore(
                name="Objects", paths=("cache",), key=f"{_OBJECTS}-COMMIT", prefix=f"{_OBJECTS}-"
            ),
            _BUILD,
            _HASHES,
            Upload(artifact=_ARTIFACT, path="dist/"),
            Keep(name="Pinned inputs", paths=inputs, key=f"{_INPUTS}-LOCK"),
            Keep(name="Objects", paths=("cache",), key=f"{_OBJECTS}-COMMIT"),
        ),
    )
    jobs = [check_job(), build, *_native(native, needs=("check",))]
    made = tuple(job.id for job in jobs[1:])
    jobs.append(
        Job(
            id="attest",
            title="provenance of what was built",
            needs=made,
            when="push",
            permissions={"id-token": "write", "attestations": "write"},
            steps=(Download(pattern="llama-*", path="dist"), Attest(path="dist/*.zip")),
            local="it signs with the service's identity",
        )
    )
    return Workflow(
        id="build",
        title="build",
        why="Builds and verifies every recipe; a pull request's jobs can only read.",
        on={"push": {"branches": [BRANCH]}, "pull_request": {}, "workflow_dispatch": {}},
        jobs=tuple(jobs),
    )


def _native(native: Sequence[Entry], *, needs: tuple[str, ...], release: bool = False) -> list[Job]:
    """Return the job for recipes that only a Windows machine can build, if there are any."""
    if not native:
        return []
    return [
        Job(
            id="native",
            title=f"{{recipe}} for {{os}}, native ({NATIVE_NOTE})",
            rows=_rows(native),
            runner="{runner}",
            needs=needs,
            minutes=240,
            steps=(
                *_start(install=_INSTALL_WINDOWS),
                _BUILD_FROM_SCRATCH if release else _BUILD,
                _HASHES,
                Upload(artifact=_ARTIFACT, path="dist/"),
            ),
            note=f"Needs a real Windows with Visual Studio: {NATIVE_NOTE}.",
            local="it needs a real Windows",
        )
    ]


# -- canary: does upstream still fit? -----------------------------------------------------------

CANARY_TITLE = "Patches no longer fit llama.cpp"

_TELL = """\
number=$(gh issue list --state open --search "in:title \\"$TITLE\\"" --json number \\
  --jq '.[0].number // empty')
{
  echo "$RUN_URL"
  echo '```'
  tail -c 50000 drift/drift.txt
  echo '```'
} > body.md
if [ -n "$number" ]; then
  gh issue comment "$number" --body-file body.md
else
  gh issue create --title "$TITLE" --body-file body.md
fi
"""


def _canary() -> Workflow:
    canary = Job(
        id="canary",
        title="do the patches fit upstream's newest commit?",
        steps=(
            *_start(),
            Run(
                name="Try every series on upstream",
                script='qbuild patch check --against "${CANARY_REF:-master}" 2>&1 '
                "| tee drift.txt\n",
            ),
            Upload(artifact="drift", path="drift.txt", when="always"),
        ),
    )
    report = Job(
        id="report",
        title="open or continue an issue",
        needs=("canary",),
        when="failed",
        # Apart from the job that runs code: this one can write, and runs nothing of ours.
        permissions={"issues": "write"},
        steps=(
            Download(pattern="drift", path="drift"),
            Run(name="Tell people", script=_TELL, env={"TITLE": CANARY_TITLE, "RUN_URL": "RUN"}),
        ),
        local="it writes to the project's issues",
    )
    return Workflow(
        id="canary",
        title="drift canary",
        why="Says within a day when llama.cpp moved under a patch.",
        on={"schedule": [{"cron": "17 4 * * *"}], "workflow_dispatch": {}},
        jobs=(canary, report),
    )


# -- reproduce: two machines, the same bytes? ---------------------------------------------------


def _reproduce(cross: Sequence[Entry]) -> Workflow:
    rows = tuple(
        {**entry.row, "runner": runner, "half": half}
        for entry in cross
        for half, runner in (("first", LINUX_RUNNER), ("second", OTHER_RUNNER))
    )
    half = Job(
        id="half",
        title="{recipe} for {os}, {half} machine",
        rows=rows,
        runner="{runner}",
        minutes=120,
        scratch=True,
        steps=(
            Checkout(),
            SetUpPython(),
            _NAMESPACES,
            _INSTALL,
            Run(
                name="Build from scratch",
                script='qbuild build "$RECIPE" --os "$TARGET_OS" --dist dist --release --no-run\n',
            ),
            Upload(artifact="{half}-{recipe}-{os}", path="dist/*.zip", days=7),
        ),
    )
    compare = Job(
        id="compare",
        title="the same bytes from both machines?",
        needs=("half",),
        steps=(
            *_start(),
            Download(pattern="first-*", path="first"),
            Download(pattern="second-*", path="second"),
            Run(name="Compare", script="qbuild ci compare first second\n"),
        ),
    )
    return Workflow(
        id="reproduce",
        title="reproducibility",
        why="Builds every cross recipe on two kinds of runner and compares the zips.",
        on={"schedule": [{"cron": "41 3 * * 0"}], "workflow_dispatch": {}},
        jobs=(half, compare),
    )


# -- Windows as a host: README's commands there, the same bytes? ----------------------------------

WINDOWS_RECIPE = "laptop"
"""What both hosts build: static, for Windows, without CUDA."""


def _windows_host() -> Workflow:
    here = Job(
        id="on-windows",
        title=f"README's commands on Windows: {WINDOWS_RECIPE}",
        runner=WINDOWS_RUNNER,
        minutes=240,
        scratch=True,
        steps=(
            Checkout(),
            SetUpPython(),
            Run(name="README's command 1", windows_shell="pwsh", script=COMMAND_POWERSHELL),
            Run(name="README's command 2", windows_shell="cmd", script=f"{TESTS_WINDOWS}\n"),
            Upload(artifact=f"first-{WINDOWS_RECIPE}-windows", path="dist/*.zip", days=7),
        ),
        local="it needs a real Windows",
        note="Nobody has run it yet: qbuild was run in Wine only, with a real Windows CPython.",
    )
    there = Job(
        id="on-linux",
        title=f"the same on Linux: {WINDOWS_RECIPE}",
        minutes=120,
        scratch=True,
        steps=(
            Checkout(),
            SetUpPython(),
            _NAMESPACES,
            _INSTALL,
            Run(
                name="Build from scratch",
                script=f"qbuild build {WINDOWS_RECIPE} --os windows --dist dist --release "
                "--no-run\n",
            ),
            Upload(artifact=f"second-{WINDOWS_RECIPE}-windows", path="dist/*.zip", days=7),
        ),
        local="it is one half of a comparison whose other half needs a real Windows",
    )
    compare = Job(
        id="compare-hosts",
        title="the same bytes from both hosts?",
        needs=("on-windows", "on-linux"),
        steps=(
            *_start(),
            Download(pattern="first-*", path="first"),
            Download(pattern="second-*", path="second"),
            Run(name="Compare", script="qbuild ci compare first second\n"),
        ),
        local="one of the zips it compares needs a real Windows",
    )
    return Workflow(
        id="windows",
        title="Windows as a host",
        why="Runs README's commands on a Windows runner and compares the zip with Linux's.",
        on={"schedule": [{"cron": "53 2 * * 6"}], "workflow_dispatch": {}},
        jobs=(here, there, compare),
    )


# -- release: a tag -----------------------------------------------------------------------------

_PUBLISH = """\
(cd dist && sha256sum --check --strict -- *.sha256)
gh release create "$GITHUB_REF_NAME" --verify-tag --generate-notes \\
  --title "$GITHUB_REF_NAME" dist/*
"""


def _release(cross: Sequence[Entry], native: Sequence[Entry]) -> Workflow:
    build = Job(
        id="release-build",
        title="{recipe} for {os}, from scratch",
        rows=_rows(cross),
        runner="{runner}",
        minutes=120,
        # No cache of any kind: what is released is made from the pins alone.
        scratch=True,
        steps=(
            *_start(packages=True),
            _BUILD_FROM_SCRATCH,
            _HASHES,
            Upload(artifact=_ARTIFACT, path="dist/"),
        ),
    )
    jobs = [build, *_native(native, needs=(), release=True)]
    jobs.append(
        Job(
            id="publish",
            title="attest and publish",
            needs=tuple(job.id for job in jobs),
            permissions={"contents": "write", "id-token": "write", "attestations": "write"},
            steps=(
                Download(pattern="llama-*", path="dist"),
                Attest(path="dist/*.zip"),
                Run(name="Publish", script=_PUBLISH),
            ),
            local="it publishes",
        )
    )
    return Workflow(
        id="release",
        title="release",
        why="A tag `v…` builds everything from scratch, signs its provenance and publishes it.",
        on={"push": {"tags": ["v*"]}},
        jobs=tuple(jobs),
    )
