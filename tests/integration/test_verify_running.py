"""Running a bundle: stand-ins that behave well or badly, an older CPU, and real zips when given.

``QBUILD_TEST_ZIP_LINUX`` and ``QBUILD_TEST_ZIP_WINDOWS`` name finished bundles.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from qbuild.verify import runners, tiny_gguf, trials, wine
from qbuild.verify.run import run_checks, run_zip
from qbuild.verify.sandbox import Limits
from qbuild.verify.trials import Wanted
from qbuild.verify.verdict import Check
from support.systems import on_linux
from support.verify_zips import COMMIT

pytestmark = [pytest.mark.integration, on_linux]

ZIG = os.environ.get("QBUILD_TEST_ZIG", "")

CLI = """
    import os, sys, time
    if "--version" in sys.argv:
        print("version: 0.5.0-dev (build 0, commit {commit})")
        sys.exit({status})
    assert sys.argv[sys.argv.index("--model") + 1].endswith(".gguf")
    time.sleep({sleep})
    print("> say it\\n{says}")
"""
SERVER = """
    import http.server, json, sys
    if "--version" in sys.argv:
        print("version: 0.5.0-dev (build 0, commit {commit})")
        sys.exit()
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            said = {{
                "/health": {{"status": "ok"}},
                "/completion": {{"content": "{says}"}},
                "/v1/chat/completions": {{"choices": [{{"message": {{"content": "{says}"}}}}]}},
            }}[self.path]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())
        do_GET = do_POST = answer
    port = int(sys.argv[sys.argv.index("--port") + 1])
    if {serves}:
        http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def script(path: Path, code: str, **values: object) -> None:
    usual = {"commit": COMMIT[:9], "says": tiny_gguf.SENTENCE, "status": 0, "sleep": 0,
             "serves": True}  # fmt: skip
    text = textwrap.dedent(code).format(**{**usual, **values})
    path.write_text(f"#!{sys.executable} -I\n{text}")
    path.chmod(0o755)


def stand_ins(folder: Path, **values: object) -> Path:
    bundle = folder / "bundle"
    bundle.mkdir()
    script(bundle / "llama-cli", CLI, **values)
    script(bundle / "llama-server", SERVER, **values)
    return bundle


def native(bundle: Path) -> dict[str, Check]:
    checks = run_checks(bundle, target_os="linux", cpu_level="x86-64", commit=COMMIT)
    return {check.id: check for check in checks}


@pytest.fixture(autouse=True)
def _no_qemu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("qemu"):
        monkeypatch.setattr(runners, "find_qemu", lambda: None)


def test_a_bundle_that_behaves(tmp_path: Path) -> None:
    checks = native(stand_ins(tmp_path))
    for id in ("run.native.version", "run.native.generate", "run.native.server"):
        assert checks[id].status == "passed", checks[id]
    assert checks["run.qemu"].status == "not-run"
    assert not list((tmp_path / "bundle").glob("*.gguf"))


@pytest.mark.parametrize(
    ("values", "id", "says"),
    [
        ({"commit": "unknown"}, "run.native.version", "llama-cli: not the pin"),
        ({"status": 3}, "run.native.version", "llama-cli --version ended with status 3"),
        ({"says": "qbuild worms"}, "run.native.generate", "llama-cli says 'qbuild worms'"),
        ({"says": ""}, "run.native.server", "/completion says ''"),
        ({"serves": False}, "run.native.server", "ended with status 0 before it answered"),
    ],
)
def test_a_bundle_that_misbehaves(
    tmp_path: Path, values: dict[str, object], id: str, says: str
) -> None:
    check = native(stand_ins(tmp_path, **values))[id]
    assert check.status == "failed"
    assert says in "\n".join(check.details)


def test_options_that_patches_add_are_in_the_help(tmp_path: Path) -> None:
    bundle = stand_ins(tmp_path)
    script(bundle / "llama-bench", "print('--old-flag N')")
    wanted = [
        Wanted(program="llama-bench", text="--old-flag", patch="s/0001"),
        Wanted(program="llama-bench", text="--new-flag", patch="s/0002"),
        Wanted(program="llama-gone", text="--x", patch="s/0003"),
    ]
    checks = run_checks(
        bundle, target_os="linux", cpu_level="x86-64", commit=COMMIT, wanted=tuple(wanted)
    )
    check = next(item for item in checks if item.id == "run.native.help")
    assert check.details == (
        "llama-bench: --help lacks '--new-flag' of patch s/0002",
        "s/0003: there is no llama-gone to ask for its help",
    )


def test_a_tool_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_SECONDS", 2.0)
    check = native(stand_ins(tmp_path, sleep=600))["run.native.generate"]
    assert check.status == "failed"
    assert re.search(r"llama-cli was stopped after \d+ s", check.details[0])


def test_a_tool_that_cannot_be_started(tmp_path: Path) -> None:
    bundle = stand_ins(tmp_path)
    (bundle / "llama-cli").chmod(0o644)
    check = native(bundle)["run.native.generate"]
    assert check.status == "failed"
    assert "llama-cli could not be started: Permission denied" in check.details[0]


@pytest.mark.qemu
@pytest.mark.skipif(not ZIG, reason="QBUILD_TEST_ZIG names no zig")
@pytest.mark.parametrize(("cpu", "status"), [("x86-64-v2", "failed"), ("x86-64-v3", "passed")])
def test_an_older_cpu_refuses_newer_code(tmp_path: Path, cpu: str, status: str) -> None:
    """The stand-in uses AVX2 before it prints: Haswell runs it, Nehalem does not."""
    line = f"version: 0.5.0-dev (build 0, commit {COMMIT[:9]})\\n"
    (tmp_path / "main.c").write_text(
        f"""
        static const char line[] = "{line}";
        static long call(long n, long a, long b, long c) {{
            long r;
            __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c)
                             : "rcx", "r11", "memory");
            return r;
        }}
        void _start(void) {{
            __asm__ volatile("vpaddd %ymm1, %ymm2, %ymm0");
            call(1, 1, (long)line, sizeof line - 1);
            call(60, 0, 0, 0);
        }}
        """
    )
    (tmp_path / "bundle").mkdir()
    cache = os.environ.get("QBUILD_TEST_ZIG_CACHE", str(tmp_path / "cache"))
    subprocess.run(
        [ZIG, "cc", "-target", "x86_64-linux-musl", "-static", "-nostdlib", "-O1",
         "-fno-stack-protector", "-o", "bundle/llama-cli", "main.c"],
        check=True, cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path),
                                       "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
    )  # fmt: skip
    if runners.find_qemu() is None:
        pytest.skip("qemu-user is not installed (ci/apt.txt lists it)")
    checks = run_checks(tmp_path / "bundle", target_os="linux", cpu_level=cpu, commit=COMMIT)
    check = next(item for item in checks if item.id == "run.qemu.version")
    assert check.status == status, check
    if status == "failed":
        assert "llama-cli --version was ended by SIGILL" in check.details[0]


def find_wine() -> str:
    loader = wine.find_wine()
    if loader is None:
        pytest.skip("Wine is not installed (ci/apt.txt lists it)")
    return loader


@pytest.mark.wine
@pytest.mark.qemu
def test_windows_programs_run_on_an_emulated_cpu(tmp_path: Path) -> None:
    loader, qemu = find_wine(), runners.find_qemu()
    if qemu is None:
        pytest.skip("qemu-user is not installed (ci/apt.txt lists it)")
    env = {**wine.ENV, "WINEPREFIX": str(wine.wine_prefix(loader, tmp_path / "prefix", None))}
    assert wine.emulates(qemu, loader, {**env, "WINELOADERNOEXEC": "1"}, tmp_path)
    # The very case the canary is for: this Wine leaves the emulator when it is not told to stay.
    assert not wine.emulates(qemu, loader, env, tmp_path)


@pytest.mark.wine
def test_a_wine_prefix_is_made_once_and_copied(tmp_path: Path) -> None:
    loader = find_wine()
    first = wine.wine_prefix(loader, tmp_path / "one", tmp_path / "cache")
    prepared = [entry.name for entry in (tmp_path / "cache").iterdir()]
    assert len(prepared) == 1
    assert (first / "system.reg").is_file()
    kept = (tmp_path / "cache" / prepared[0] / "system.reg").stat()
    second = wine.wine_prefix(loader, tmp_path / "two", tmp_path / "cache")
    (second / "system.reg").write_text("changed by a program")
    assert (tmp_path / "cache" / prepared[0] / "system.reg").stat() == kept
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == prepared


@pytest.mark.wine
def test_a_wine_that_does_not_work_is_an_error_not_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from qbuild.errors import VerifyError

    monkeypatch.setattr(wine, "_PREFIX_LIMITS", Limits(seconds=5))
    script(tmp_path / "wine64", "import sys; sys.exit('no display')")
    with pytest.raises(VerifyError, match="Wine could not make a prefix: it ended with status 1"):
        wine.wine_prefix(str(tmp_path / "wine64"), tmp_path / "p", None)


@pytest.mark.server
@pytest.mark.wine
@pytest.mark.qemu
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_a_real_bundle(tmp_path: Path, system: str) -> None:
    path = os.environ.get(f"QBUILD_TEST_ZIP_{system.upper()}", "")
    if not path:
        pytest.skip(f"QBUILD_TEST_ZIP_{system.upper()} names no zip")
    checks = {check.id: check for check in run_zip(Path(path), cache_dir=tmp_path)}
    expected = {"linux": ("native", "qemu"), "windows": ("wine", "qemu")}[system]
    for runner in expected:
        for kind in ("version", "generate", "server"):
            check = checks[f"run.{runner}.{kind}"]
            assert check.status == "passed", check
