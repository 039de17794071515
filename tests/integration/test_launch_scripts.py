"""The start scripts for real: sh on this machine, cmd in Wine; a stand-in is the program.

The real programs are started by the same scripts in ``verify --run`` (checks ``run.*.scripts``).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbuild.bundle.launch.scripts import extra_files
from qbuild.extras.services import watchdog
from qbuild.recipe.load import load_recipe
from qbuild.store import Store
from qbuild.verify import tiny_gguf, wine
from support.systems import on_linux
from support.tools import needs, require

pytestmark = pytest.mark.integration

ODD = "with space (1) & 中文'é"
ZIG = os.environ.get("QBUILD_TEST_ZIG", "")

STUB = """\
#!/bin/sh
[ "$1" = --help ] && cat <<'HELP' && exit 0
--mlock, --no-mlock                     lock the model in memory
-k,    --top-k N                        top k
--name NAME                             a name
--last N                                the last of them
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max
--chat-template-kwargs STRING           JSON
HELP
for word in "$@"; do
    case $word in --exit-*) code=${word#--exit-} ;; esac
    printf '[%s]\\n' "$word"
done
exit ${code:-0}
"""


@pytest.fixture(autouse=True)
def _shell_tools(request: pytest.FixtureRequest) -> None:
    """The start scripts use what every system has that people run them on; a container may not."""
    if "_sh_" in request.node.name:
        require("sed", "awk", "grep")


@pytest.fixture
def port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def unpack(folder: Path, system: str, recipe: str = "avx2", **changes: str) -> Path:
    """Write a recipe's scripts and settings as if unpacked, with a model; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in extra_files(load_recipe(recipe, os=system)):
        text = file.content.decode()
        for old, new in changes.items() if file.name.startswith("config-") else ():
            lines = text.splitlines(keepends=True)
            text = "".join(
                new + ("\r\n" if system == "windows" else "\n") if line.startswith(old) else line
                for line in lines
            )
        (folder / file.name).write_bytes(text.encode())
        (folder / file.name).chmod(0o755 if file.executable else 0o644)
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "model.gguf").write_bytes(b"GGUF")
    return folder


# -- sh ---------------------------------------------------------------------------------------


def linux(folder: Path, recipe: str = "avx2", **changes: str) -> Path:
    unpack(folder, "linux", recipe, **changes)
    for name in ("llama-server", "llama-cli", "llama-bench"):
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    return folder


def sh(
    folder: Path, *words: str, script: str = "run-server.sh", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(folder / script), *words], capture_output=True, text=True, timeout=60, cwd="/",
        env={**os.environ, **(env or {})},
    )  # fmt: skip


def words_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line[1:-1] for line in done.stdout.splitlines() if line.startswith("[")]


def test_sh_passes_every_setting_on_from_any_folder(tmp_path: Path) -> None:
    bundle = linux(tmp_path / ODD, model="model =  models/mein 模型 $x `y`.gguf \r")
    (bundle / "models" / "mein 模型 $x `y`.gguf").write_bytes(b"GGUF")
    with (bundle / "config-server.txt").open("a") as stream:
        stream.write("mlock\n  top-k=7\n#off = 1\nname = a = b\nlast = 1")
    done = sh(bundle)
    assert done.returncode == 0, done.stderr
    words = words_of(done)
    physical = words[words.index("--threads") + 1]
    assert 1 <= int(physical) <= len(os.sched_getaffinity(0))
    assert words == [
        "--host", "127.0.0.1", "--port", "8080", "--ctx-size", "8192", "--parallel", "1",
        "--flash-attn", "auto", "--mlock", "--top-k", "7", "--name", "a = b", "--last", "1",
        "--threads", physical, "--model", "models/mein 模型 $x `y`.gguf",
    ]  # fmt: skip


def test_sh_takes_a_model_and_options_from_the_command_line(tmp_path: Path) -> None:
    bundle = linux(tmp_path / ODD)
    other = tmp_path / "other 模型.gguf"
    other.write_bytes(b"GGUF")
    words = words_of(sh(bundle, str(other), "--temp", "0.5", "a b"))
    assert words[-5:] == ["--model", str(other), "--temp", "0.5", "a b"]
    (tmp_path / "link.sh").symlink_to(bundle / "run-server.sh")
    assert words_of(sh(tmp_path, script="link.sh"))[-1] == "models/model.gguf"


def test_sh_reads_settings_that_windows_saved(tmp_path: Path) -> None:
    bundle = linux(tmp_path)
    config = bundle / "config-server.txt"
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes().replace(b"\n", b"\r\n"))
    done = sh(bundle)
    assert done.returncode == 0 and "\r" not in done.stdout


def test_sh_says_what_is_missing(tmp_path: Path) -> None:
    bundle = linux(tmp_path / ODD)
    (bundle / "models" / "model.gguf").rename(bundle / "models" / "本.gguf")
    done = sh(bundle)
    assert done.returncode == 3 and not done.stdout
    assert "The model is not there:\n  models/model.gguf" in done.stderr
    assert "config-server.txt" in done.stderr and "models/本.gguf" in done.stderr
    (bundle / "config-server.txt").write_text("# first\nport = 1\n")
    done = sh(bundle)
    assert done.returncode == 2 and "names no model" in done.stderr
    (bundle / "config-server.txt").write_text(
        "# first\nmodel = models/本.gguf\nmmproj = models/p.gguf\n"
    )
    done = sh(bundle)
    assert done.returncode == 3 and "mmproj" in done.stderr
    (bundle / "config-server.txt").unlink()
    assert "Take it from the zip again" in sh(bundle).stderr
    (bundle / "llama-server").chmod(0o644)
    assert "chmod +x" in sh(bundle).stderr
    (bundle / "llama-server").unlink()
    done = sh(bundle)
    assert done.returncode == 3 and "Unpack the whole zip" in done.stderr


def test_sh_says_which_option_is_unknown_and_what_it_is_called_now(tmp_path: Path) -> None:
    bundle = linux(tmp_path)
    config = bundle / "config-server.txt"
    whole = config.read_text()
    config.write_text(whole + "no-mmap\n")
    done = sh(bundle)
    assert done.returncode == 2 and not done.stdout
    assert 'names the option "no-mmap", which llama-server does not have' in done.stderr
    assert "There is --load-mode." in done.stderr
    config.write_text(whole + "draft-max = 4\n")
    done = sh(bundle)
    assert done.returncode == 2
    assert 'names the option "draft-max", which llama-server no longer has' in done.stderr
    assert "use --spec-draft-n-max" in done.stderr
    config.write_text(whole + "of-tomorrow = 4\n")
    assert "All options: ./llama-server --help" in sh(bundle).stderr
    # a program that cannot be asked is started as before
    (bundle / "llama-server").write_text("#!/bin/sh\nexit 7\n")
    assert sh(bundle).returncode == 7


def test_sh_passes_json_on(tmp_path: Path) -> None:
    bundle = linux(tmp_path)
    value = '{"enable_thinking": false, "note": "a b"}'
    with (bundle / "config-server.txt").open("a") as stream:
        stream.write(f"chat-template-kwargs =  {value} \n")
    words = words_of(sh(bundle))
    assert words[words.index("--chat-template-kwargs") + 1] == value


def test_78_sh_says_which_library_is_missing(tmp_path: Path) -> None:
    bundle = linux(tmp_path)
    files = [
        {"executable": False, "needed_by": [], "path": name, "role": role}
        for name, role in (("libllama.so.0", "library"), ("libggml.so.0", "library"),
                           ("llama-bench", "executable"), ("README.txt", "doc"))
    ]  # fmt: skip
    (bundle / "manifest.json").write_text(json.dumps({"files": files}, indent=2, sort_keys=True))
    for name in ("libllama.so.0", "libggml.so.0"):
        (bundle / name).write_bytes(b"")
    assert sh(bundle).returncode == 0
    (bundle / "libllama.so.0").unlink()
    done = sh(bundle)
    assert done.returncode == 3
    assert "Missing in this folder, though the zip held it: libllama.so.0" in done.stderr
    assert "virus scanner" in done.stderr


def test_sh_says_who_took_the_port(tmp_path: Path, port: int) -> None:
    bundle = linux(tmp_path, port=f"port = {port}")
    done = sh(bundle)
    assert done.returncode == 4
    assert f"Port {port} is taken: " in done.stderr
    assert f"(process {os.getpid()}) listens on it" in done.stderr


def test_sh_sees_a_taken_port_before_it_starts(tmp_path: Path, port: int) -> None:
    bundle = linux(tmp_path, port=f"port = {port}")
    done = sh(bundle)
    assert done.returncode == 4 and not done.stdout
    assert f"Port {port} is taken" in done.stderr and "config-server.txt" in done.stderr
    assert sh(bundle, "--port", "1").returncode == 0
    assert sh(linux(tmp_path / "two"), "--port", str(port)).returncode == 4


def test_sh_names_the_recipe_for_an_older_processor(tmp_path: Path) -> None:
    bundle = linux(tmp_path)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 cx16 popcnt avx f16c\n")
    done = sh(bundle, env={"QBUILD_CPUINFO": str(cpuinfo)})
    assert done.returncode == 5 and not done.stdout
    assert "x86-64-v3" in done.stderr and " avx2 " in done.stderr and "'baseline'" in done.stderr
    cpuinfo.write_text("")  # nothing is known: nothing is stopped
    assert sh(bundle, env={"QBUILD_CPUINFO": str(cpuinfo)}).returncode == 0


@pytest.mark.parametrize(
    ("driver", "code"),
    [
        ("525.60.13", 0),
        ("580.9", 0),
        ("525.60.9", 6),
        ("470.256.02", 6),
        ("NVIDIA-SMI has failed", 0),
    ],
)
def test_sh_knows_the_driver_a_cuda_bundle_needs(tmp_path: Path, driver: str, code: int) -> None:
    bundle = linux(tmp_path / "b", "a100")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\necho '{driver}'\necho '{driver}'\n")
    (tools / "nvidia-smi").chmod(0o755)
    done = sh(bundle, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert done.returncode == code, done.stderr
    assert (f"version {driver} is installed, 525.60.13 or newer" in done.stderr) is (code == 6)
    assert (bundle / "slots").is_dir() is True


@pytest.mark.parametrize("code", [1, 42, 132])
def test_sh_passes_the_exit_code_on(tmp_path: Path, code: int) -> None:
    done = sh(linux(tmp_path), f"--exit-{code}")
    assert done.returncode == code


@needs("ps")
def test_sh_on_a_terminal_explains_the_end(tmp_path: Path) -> None:
    """A terminal that is the script's own gets a word and waits; here it is another's."""
    import pty

    bundle = linux(tmp_path)
    seen = bytearray()

    def read(fd: int) -> bytes:
        data = os.read(fd, 4096)
        seen.extend(data)
        if b"Press Enter" in data:
            os.write(fd, b"\n")
        return data

    for word, says in (("--exit-9", b"ended with code 9"), ("--exit-132", b"'baseline'")):
        status = pty.spawn([str(bundle / "run-server.sh"), word], read)
        assert os.waitstatus_to_exitcode(status) == int(word.rpartition("-")[2])
        assert says in seen and b"Press Enter to close" in seen


def test_sh_starts_several_and_ends_them_together(tmp_path: Path) -> None:
    bundle = linux(tmp_path / ODD, "gtx1060")
    for name in ("Qwen3.6-35B-A3B", "Qwen3.5-9B", "Qwen3.5-4B"):
        (bundle / "models" / f"{name}-Q4_K_M.gguf").write_bytes(b"GGUF")
    (bundle / "llama-server").write_text('#!/bin/sh\necho $$ >"$PWD/pid-$4"\nexec sleep 60\n')
    process = subprocess.Popen([str(bundle / "run-services.sh")])
    try:
        deadline = time.monotonic() + 30
        while len(found := sorted(bundle.glob("pid-*"))) < 3 or not all(
            path.read_text().strip() for path in found
        ):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        pids = [int(path.read_text()) for path in found]
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_sh_is_plain_sh(tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    for file in extra_files(load_recipe("gtx1060", os="linux")):
        if file.name.endswith(".sh"):
            (tmp_path / file.name).write_bytes(file.content)
            done = subprocess.run([shell, "-n", str(tmp_path / file.name)], capture_output=True)
            assert done.returncode == 0, done.stderr


# -- cmd, in Wine -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cmd(tmp_path_factory: pytest.TempPathFactory, user_store: Store) -> tuple[str, dict[str, str]]:
    """The Wine loader and its environment, with a copy of the machine's prepared prefix."""
    loader = wine.find_wine()
    if loader is None:
        pytest.skip("Wine is not installed (Debian: apt-get install wine64)")
    folder = tmp_path_factory.mktemp("wine")
    prefix = wine.wine_prefix(loader, folder / "prefix", user_store.root / "cache")
    env = {**os.environ, **wine.ENV, "WINEPREFIX": str(prefix), "QBUILD_NO_PAUSE": "1"}
    return loader, env | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not ZIG:
        pytest.skip("QBUILD_TEST_ZIG names no zig")
    folder = tmp_path_factory.mktemp("stub")
    source = Path(__file__).parents[1] / "support" / "server_stub.c"
    cache = os.environ.get("QBUILD_TEST_ZIG_CACHE") or str(folder / "cache")
    subprocess.run(
        [ZIG, "cc", "-target", "x86_64-windows-gnu", "-O1", "-o", str(folder / "stub.exe"),
         str(source), "-lws2_32", "-lshell32"],
        check=True, env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache,
                         "ZIG_LOCAL_CACHE_DIR": str(folder / "local")},
    )  # fmt: skip
    return folder / "stub.exe"


def windows(folder: Path, stub: Path, **changes: str) -> Path:
    unpack(folder, "windows", **changes)
    shutil.copyfile(stub, folder / "llama-server.exe")
    return folder


def bat(
    cmd: tuple[str, dict[str, str]], folder: Path, *words: str, script: str = "run-server.bat",
    **env: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    loader, base = cmd
    return subprocess.run(
        [loader, "cmd.exe", "/c", script, *words], capture_output=True, text=True, timeout=120,
        cwd=folder, env={**base, **env}, stdin=subprocess.DEVNULL, errors="replace",
    )  # fmt: skip


@pytest.mark.wine
def test_cmd_passes_every_setting_on_and_comes_up(
    cmd: tuple[str, dict[str, str]], stub: Path, tmp_path: Path
) -> None:
    bundle = windows(
        tmp_path / ODD, stub, model="model =  models/a (1) & b.gguf  ", port="port = 18431"
    )
    (bundle / "models" / "a (1) & b.gguf").write_bytes(b"GGUF")
    with (bundle / "config-server.txt").open("a", newline="") as stream:
        stream.write('serve\r\n  top-k=7\r\n#off = 1\r\nname = "a = b | c > d"\r\nlast = 1')
    done = bat(cmd, bundle)
    assert done.returncode == 0, done.stdout + done.stderr
    words = words_of(done)
    log = words.index("--log-file")
    assert words[:log] + words[log + 2 :] == [
        "--host", "127.0.0.1", "--port", "18431", "--ctx-size", "8192", "--parallel", "1",
        "--flash-attn", "auto", "--serve", "--top-k", "7", "--name", "a = b | c > d",
        "--last", "1", "--model", "models/a (1) & b.gguf",
    ]  # fmt: skip
    assert "listening on http://127.0.0.1:18431" in done.stdout


@pytest.mark.wine
def test_cmd_passes_json_on_and_knows_what_options_became(
    cmd: tuple[str, dict[str, str]], stub: Path, tmp_path: Path
) -> None:
    bundle = windows(tmp_path / ODD, stub)
    config = bundle / "config-server.txt"
    whole = config.read_bytes()
    value = '{"enable_thinking": false, "note": "a b"}'
    config.write_bytes(whole + f"chat-template-kwargs =  {value} \r\n".encode())
    done = bat(cmd, bundle)
    words = words_of(done)
    assert words[words.index("--chat-template-kwargs") + 1] == value, done.stdout + done.stderr
    for name, use in (("no-mmap", "There is --load-mode."),
                      ("draft-max = 4", "There is --spec-draft-n-max.")):  # fmt: skip
        config.write_bytes(whole + f"{name}\r\n".encode())
        done = bat(cmd, bundle)
        assert done.returncode == 2 and not words_of(done), done.stdout
        assert f'names the option "{name.partition(" ")[0]}"' in done.stdout
        assert use in done.stdout


@pytest.mark.wine
def test_78_cmd_says_which_library_is_missing(
    cmd: tuple[str, dict[str, str]], stub: Path, tmp_path: Path
) -> None:
    bundle = windows(tmp_path, stub)
    files = [
        {"executable": False, "needed_by": [], "path": name, "role": role, "size": 1}
        for name, role in (("ggml.dll", "library"), ("llama.dll", "library"), ("x.txt", "doc"))
    ]
    # as a real one: long texts, and words that cmd reads as its own
    series = [{"why": " ".join([*map(str, range(200))]), "name": "a", "text": "(b) & <c> %d% | ^e"}]
    manifest = {"files": files, "series": series}
    (bundle / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True))
    (bundle / "ggml.dll").write_bytes(b"")
    done = bat(cmd, bundle)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "though the zip held it: llama.dll\n" in done.stdout
    assert "too long" not in done.stdout + done.stderr
    assert "virus scanner" in done.stdout


@pytest.mark.wine
def test_cmd_takes_a_model_that_is_dropped_on_it(
    cmd: tuple[str, dict[str, str]], stub: Path, tmp_path: Path
) -> None:
    bundle = windows(tmp_path / ODD, stub)
    other = tmp_path / "另一个 模型.gguf"
    other.write_bytes(b"GGUF")
    wide = "Z:" + str(other).replace("/", "\\")
    words = words_of(bat(cmd, bundle, wide, "--temp", "0.5"))
    assert words[words.index("--model") + 1] == wide and words[-2:] == ["--temp", "0.5"]


@pytest.mark.wine
def test_cmd_says_what_is_missing(
    cmd: tuple[str, dict[str, str]], stub: Path, tmp_path: Path
) -> None:
    bundle = windows(tmp_path / ODD, stub)
    (bundle / "models" / "model.gguf").rename(bundle / "models" / "other.gguf")
    done = bat(cmd, bundle)
    assert done.returncode == 3
    assert "The model is not there:" in done.stdout and '"models/model.gguf"' in done.stdout
    assert "config-server.txt" in done.stdout and "models\\other.gguf" in done.stdout
    assert not words_of(done)
    (bundle / "llama-server.exe").unlink()
    done = bat(cmd, bundle)
    assert done.returncode == 3 and "Unpack the whole zip" in done.stdout


@pytest.mark.wine
def test_cmd_explains_a_taken_port_and_passes_exit_codes_on(
    cmd: tuple[str, dict[str, str]], stub: Path, tmp_path: Path, port: int
) -> None:
    bundle = windows(tmp_path / ODD, stub, port=f"port = {port}")
    done = bat(cmd, bundle, "--serve")
    assert done.returncode == 4, done.stdout
    assert f"Port {port} is taken" in done.stdout and "config-server.txt" in done.stdout
    done = bat(cmd, bundle, "--exit", "42")
    assert done.returncode == 42 and "ended with code 42" in done.stdout


@pytest.mark.wine
def test_the_watchdog_starts_again_and_gives_up_in_time(
    cmd: tuple[str, dict[str, str]], stub: Path, tmp_path: Path
) -> None:
    bundle = windows(tmp_path / ODD, stub)
    text = watchdog(load_recipe("avx2", os="windows"), "server")
    (bundle / "watchdog.bat").write_bytes(text.encode())
    quick = {"QBUILD_WATCH_MAX": "3", "QBUILD_WATCH_WAIT": "0"}
    done = bat(cmd, bundle, "--exit", "42", script="watchdog.bat", **quick)
    assert done.returncode == 42 and "Given up" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("[--exit]") == 3
    assert (bundle / "watchdog-server.log").read_text().count("ended with code 42") == 3
    (bundle / "models" / "model.gguf").unlink()
    done = bat(cmd, bundle, script="watchdog.bat", **quick)
    assert done.returncode == 3 and done.stdout.count("The model is not there") == 1


# -- verify --run -----------------------------------------------------------------------------

SERVER = """\
#!{python} -I
import http.server, json, sys
if "--help" in sys.argv:
    if "q8_0" in sys.argv:
        sys.exit("error while handling argument")
    print("{help}")
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
port = len(sys.argv) - 1 - sys.argv[::-1].index("--port") + 1
http.server.HTTPServer(("127.0.0.1", int(sys.argv[port])), Handler).serve_forever()
"""
OPTIONS = ("host HOST", "port PORT", "model FNAME", "threads N", "ctx-size N", "parallel N",
           "flash-attn [on|off|auto]", "cache-type-k TYPE")  # fmt: skip


@on_linux  # its stand-in for a server is a script with #!
def test_verify_asks_the_programs_and_starts_every_script(tmp_path: Path) -> None:
    from qbuild.recipe.load import as_dict
    from qbuild.verify.run import run_checks

    def checks(says: str = tiny_gguf.SENTENCE, **flags: object) -> dict[str, tuple[str, str]]:
        text = SERVER.format(
            python=sys.executable, says=says, help="\\n".join(f"--{each}" for each in OPTIONS)
        )
        (bundle / "llama-server").write_text(text)
        recipe = load_recipe("avx2", os="linux", overrides=['build.targets=["llama-server"]'])
        data = as_dict(recipe)
        data["launch"]["server"]["flags"].update(flags)
        found = run_checks(bundle, target_os="linux", cpu_level="", commit="", recipe=data)
        return {c.id: (c.status, "\n".join(c.details)) for c in found if "native" in c.id}

    bundle = linux(tmp_path / "b")
    good = checks()
    assert good["run.native.flags"] == ("passed", "")
    assert good["run.native.scripts"] == ("passed", "")
    assert "--ctx-size" in checks(**{"ctx-sise": 1})["run.native.flags"][1]
    # A value that only the program knows to be wrong: the help says nothing about it.
    status, why = checks(**{"cache-type-k": "q8_0"})["run.native.flags"]
    assert status == "failed" and "refuses its options" in why
    assert checks(says="no")["run.native.scripts"][0] == "failed"
    (bundle / "run-server.sh").write_text("#!/bin/sh\nexit 3\n")
    status, why = checks()["run.native.scripts"]
    assert status == "failed" and "run-server.sh" in why and "status 3" in why
