"""What a failed fetch says: git, pip and npm against local servers that misbehave for real.

Each fault must be told by its cause, with what can be done, on one screen; and what cannot pass is
not tried again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qbuild.console import Silent
from qbuild.errors import OriginError
from qbuild.recipe.lock import WheelPin
from qbuild.source import remote, wheels
from qbuild.source.causes import Cause
from qbuild.source.gitenv import run_git
from qbuild.source.origins import Job
from qbuild.source.quarantine import Unusable
from qbuild.steps.npm import unfetched
from support import faulty
from support.faulty import Faulty

pytestmark = pytest.mark.integration

COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
SCREEN = 24  # lines of 98 characters
NOWHERE = Faulty(url="http://localhost:9")  # the discard port: refused at once

Server = Callable[[Path], AbstractContextManager[Faulty]]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A server, what the environment holds (``{url}``: the server's), and what must be told."""

    name: str
    cause: str
    server: Server
    tools: tuple[str, ...] = ("git", "pip", "npm")
    env: dict[str, str] = field(default_factory=dict)
    through: str = ""
    """An address beyond the server, where that is a proxy."""


def _web(answer: faulty.Answer) -> Server:
    return lambda _: faulty.web(answer)


def _tls(**options: str) -> Server:
    def server(folder: Path) -> AbstractContextManager[Faulty]:
        certificate = faulty.make_certificate(folder, "made", **options)
        return faulty.web(faulty.status(200), certificate)

    return server


def _plain_as_tls(folder: Path) -> AbstractContextManager[Faulty]:
    @contextlib.contextmanager
    def server() -> Iterator[Faulty]:
        with faulty.web(faulty.status(200)) as running:
            running.url = running.url.replace("http://", "https://")
            yield running

    return server()


def _at(url: str) -> Server:
    return lambda _: nullcontext(Faulty(url=url))


BEYOND = "https://mirror.example"
PROXY = {
    **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "npm_config_https_proxy"), "{url}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy", "npm_config_noproxy"), ""),
}
FAULTS = [
    Fault(name="401", cause="access-refused", server=_web(faulty.status(401))),
    Fault(name="403", cause="access-refused", server=_web(faulty.status(403))),
    Fault(name="404", cause="not-there", server=_web(faulty.status(404))),
    Fault(
        name="429", cause="too-many-requests", server=_web(faulty.status(429)), tools=("git", "npm")
    ),
    Fault(name="500", cause="server-down", server=_web(faulty.status(500))),
    Fault(name="503", cause="server-down", server=_web(faulty.status(503))),
    Fault(name="login page", cause="html-instead", server=_web(faulty.portal())),
    Fault(name="sent to a login page", cause="html-instead", server=_web(faulty.redirect())),
    Fault(
        name="proxy 403",
        cause="proxy-refuses",
        server=_web(faulty.status(403)),
        env=PROXY,
        through=BEYOND,
        tools=("git", "pip"),
    ),
    Fault(
        name="proxy 407",
        cause="proxy-auth",
        server=_web(faulty.status(407, Proxy_Authenticate="Basic")),
        env=PROXY,
        through=BEYOND,
        tools=("git", "pip"),
    ),
    Fault(
        name="proxy 502",
        cause="proxy-unreachable",
        server=_web(faulty.status(502)),
        env=PROXY,
        through=BEYOND,
        tools=("git", "pip"),
    ),
    Fault(
        name="no proxy there",
        cause="proxy-unreachable",
        server=_at("http://localhost:9"),
        env=PROXY,
        through=BEYOND,
        tools=("git", "pip"),
    ),
    Fault(
        name="proxy's name",
        cause="proxy-unreachable",
        server=_at("http://proxy.invalid:3128"),
        env=PROXY,
        through=BEYOND,
        tools=("git", "pip"),
    ),
    Fault(name="own certificate", cause="tls-trust", server=_tls()),
    Fault(name="another host's certificate", cause="tls-trust", server=_tls(host="other.example")),
    Fault(name="plain HTTP on an https port", cause="tls-broken", server=_plain_as_tls),
    Fault(
        name="reset",
        cause="transfer-cut",
        server=lambda _: faulty.raw(faulty.reset),
        tools=("git", "pip"),
    ),
    Fault(
        name="reset (npm)",
        cause="origin-unreachable",
        server=lambda _: faulty.raw(faulty.reset),
        tools=("npm",),
    ),
    Fault(
        name="hangs up",
        cause="transfer-cut",
        server=lambda _: faulty.raw(faulty.hang_up),
        tools=("git", "pip"),
    ),
    Fault(
        name="cut in the middle",
        cause="transfer-cut",
        server=_web(faulty.cut("application/x-git-upload-pack-advertisement")),
        tools=("git",),
    ),
    Fault(name="nobody listens", cause="origin-unreachable", server=_at("http://localhost:9")),
    Fault(name="no such name", cause="name-not-resolved", server=_at("https://mirror.invalid")),
    Fault(
        name="index without TLS",
        cause="index-not-trusted",
        server=_at("http://mirror.invalid"),
        tools=("pip",),
    ),
    Fault(
        name="file of certificates missing",
        cause="ca-file-missing",
        server=_tls(),
        env={"GIT_SSL_CAINFO": "/nonexistent/ca.pem", "PIP_CERT": "/nonexistent/ca.pem"},
        tools=("git", "pip"),
    ),
]
CASES = [(fault, tool) for fault in FAULTS for tool in fault.tools]
PASSING = {"transfer-cut", "server-down", "origin-unreachable", "name-not-resolved"}


class Ears(Silent):
    """Keeps the warnings: one for each try that is made again."""

    def __init__(self) -> None:
        self.warned: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No waits, and none of this machine's own settings."""
    monkeypatch.setattr(remote, "_pause", lambda _: None)
    monkeypatch.setattr("qbuild.source.wheels.time.sleep", lambda _: None)
    for name in [*os.environ]:
        if (
            name.lower().endswith("_proxy")
            or name.startswith(("PIP_", "npm_config_", "SSL_CERT"))
            or (name.endswith("_CA_BUNDLE"))
        ):
            monkeypatch.delenv(name)
    empty = tmp_path / "empty"
    empty.write_text("", encoding="utf-8")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("npm_config_userconfig", str(empty))
    monkeypatch.setenv("npm_config_globalconfig", str(tmp_path / "none"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")


def _git(url: str, tmp_path: Path, ears: Ears) -> tuple[Cause | None, str]:
    job = Job(commit=COMMIT, git_dir="", sdist_name="", dest=tmp_path / "repo.git", reporter=ears)
    with pytest.raises(Unusable) as caught:
        remote.from_url(f"{url}/llama.cpp.git", job)
    return caught.value.cause, str(caught.value)


def _pip(url: str, tmp_path: Path, ears: Ears) -> tuple[Cause | None, str]:
    os.environ["PIP_INDEX_URL"] = f"{url}/simple"
    pin = WheelPin(
        project="tool",
        version="1.0",
        platform="any",
        filename="tool-1.0-py3-none-any.whl",
        sha256="0" * 64,
        size=10,
    )
    try:
        with pytest.raises(OriginError) as caught:
            wheels.fetch_file(pin, tmp_path / "files", offline=False, reporter=ears, mirrors=())
    finally:
        del os.environ["PIP_INDEX_URL"]
    return getattr(caught.value, "cause", None), caught.value.render()


def _npm(url: str, tmp_path: Path, ears: Ears) -> tuple[Cause | None, str]:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm on this machine; the pinned one is asked by a build")
    lock = {
        "name": "x", "version": "1.0.0", "lockfileVersion": 3,
        "packages": {
            "": {"name": "x", "version": "1.0.0", "dependencies": {"tool": "1.0.0"}},
            "node_modules/tool": {
                "version": "1.0.0",
                "resolved": f"{url}/tool/-/tool-1.0.0.tgz",
                "integrity": "sha512-" + "A" * 86 + "==",
            },
        },
    }  # fmt: skip
    project = tmp_path / "project"
    project.mkdir()
    (project / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    manifest = {"name": "x", "version": "1.0.0", "dependencies": {"tool": "1.0.0"}}
    (project / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
    words = [npm, "ci", "--ignore-scripts", "--cache", str(tmp_path / "cache"), f"--registry={url}"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode
    error = unfetched((done.stdout + done.stderr).splitlines())
    return error.cause, error.render()


WITHOUT_HTTP = "this git was built without http (tests/windows_host/git.sh)"


@pytest.fixture
def git_speaks_http() -> None:
    """Let a test be skipped where git lacks the program for it."""
    programs = Path(run_git(["--exec-path"], Path.cwd()).text)
    if not list(programs.glob("git-remote-http*")):
        pytest.skip(WITHOUT_HTTP)


ASK = {"git": _git, "pip": _pip, "npm": _npm}


@pytest.mark.parametrize(
    ("fault", "tool"), CASES, ids=[f"{tool}: {fault.name}" for fault, tool in CASES]
)
def test_a_fault_is_told_by_its_cause(
    fault: Fault,
    tool: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[[str], None],
) -> None:
    ears = Ears()
    with fault.server(tmp_path) as running:
        for name, value in fault.env.items():
            monkeypatch.setenv(name, value.replace("{url}", running.url))
        cause, text = ASK[tool](fault.through or running.url, tmp_path, ears)
    if "'remote-http" in text:
        pytest.skip(WITHOUT_HTTP)
    assert cause is not None, text
    assert cause.id == fault.cause, text
    assert cause.found in text
    told(text)
    assert sum(1 + len(line) // 98 for line in text.splitlines()) <= SCREEN
    if fault.cause not in PASSING:
        assert ears.warned == []


def test_enough_faults() -> None:
    assert len(CASES) >= 40


def _mirror(folder: Path) -> tuple[Path, str]:
    """Make a bare repository of one commit, without its history, as an sdist carries it."""
    work, bare = folder / "work", folder / "llama.cpp.git"
    work.mkdir()
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b.example"), ("DATE", "1790000000 +0000"))
    }
    run_git(["init", "--quiet"], work)
    for number in range(3):
        (work / "file.txt").write_text(f"{number}\n" * 100, encoding="utf-8")
        run_git(["add", "."], work)
        run_git(["commit", "--quiet", "-m", str(number)], work, env=who)
    commit = run_git(["rev-parse", "HEAD"], work).text
    run_git(["clone", "--quiet", "--bare", "--depth=1", work.as_uri(), str(bare)], folder)
    run_git(["update-server-info"], bare)
    return bare, commit


@pytest.mark.usefixtures("git_speaks_http")
def test_a_mirror_on_a_plain_web_server_delivers(
    tmp_path: Path, told: Callable[[str], None]
) -> None:
    bare, commit = _mirror(tmp_path)
    with _files(bare.parent) as url:
        ears = Ears()
        job = Job(
            commit=commit, git_dir="", sdist_name="", dest=tmp_path / "got.git", reporter=ears
        )
        fetched = remote.from_url(f"{url}/llama.cpp.git", job)
    told(f"fetched {fetched.commit}, no warning")
    assert fetched.commit == commit
    assert ears.warned == []
    assert run_git(["rev-list", "--all"], tmp_path / "got.git").text == commit


@pytest.mark.usefixtures("git_speaks_http")
def test_a_plain_web_server_with_other_bytes_is_not_believed(tmp_path: Path) -> None:
    bare, commit = _mirror(tmp_path)
    (pack,) = (bare / "objects" / "pack").glob("*.pack")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    with _files(bare.parent) as url:
        job = Job(
            commit=commit, git_dir="", sdist_name="", dest=tmp_path / "got.git", reporter=Ears()
        )
        with pytest.raises(Exception, match=r".") as caught:
            remote.from_url(f"{url}/llama.cpp.git", job)
    assert type(caught.value).__name__ in ("Unusable", "Forged")


@contextlib.contextmanager
def _files(folder: Path) -> Iterator[str]:
    """Hand out a folder as a plain web server does."""
    server = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1",
         "--directory", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        port = server.stdout.readline().split("port ")[1].split()[0]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
