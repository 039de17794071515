"""llama.cpp on the Windows machine of Wine: files of it, and ``avx2`` whole, beside Linux's.

``ci/windows-host.sh objects`` and ``ci/windows-host.sh avx2`` run these; see there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.console import Plain
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.pinned import fetch_wheel
from qbuild.steps.plan import Plan, make_plan
from qbuild.steps.web_ui import STEP as WEB_UI
from qbuild.store import Store
from qbuild.toolchains.base import hide_paths
from windows_host import machine as windows
from windows_host.machine import Machine, windows_path

pytestmark = [pytest.mark.integration, pytest.mark.windows_host]

WHOLE_BUILD_S = 4 * 3600

# -- the whole of avx2 -----------------------------------------------------------------------------


def _plan(host: str) -> Plan:
    recipe = load_recipe("avx2", os="windows")
    return make_plan(recipe, load_lock(resources.lockfile()), host=host)


@pytest.fixture
def lent(machine: Machine, user_store: Store) -> Iterator[Path]:
    """A store with what is the same on every host, the web UI of Linux and a labelled compiler.

    QBUILD_TEST_WINDOWS_STORE names one that is kept, so that a stopped build is resumed.
    """
    here, there = _plan("linux-x86_64"), _plan("windows-x86_64")
    kept = os.environ.get("QBUILD_TEST_WINDOWS_STORE")
    root = Path(kept or tempfile.mkdtemp(prefix="q"))  # Windows wants it short
    store = Store(root)
    wheels = {
        wheel.project: fetch_wheel(wheel, user_store, Plain(), offline=False).path / "files"
        for wheel in there.wheels
    }
    windows.fill_store(machine, store, load_lock(resources.lockfile()), wheels, bridge=True)
    for kind, altered in (("source", None), (WEB_UI, "npm built it on Linux")):
        entry = user_store.find(kind, here[kind].key)
        assert entry is not None, "build avx2 for Windows on Linux first"
        windows.lend(store, entry, there[kind], altered=altered)
    yield root
    if kept is None:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.avx2
def test_avx2_built_there_is_the_zip_that_linux_makes(
    machine: Machine, user_store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    build = ("build", "avx2", "--os", "windows")
    words = ("--store", str(user_store.root), "--dist", str(tmp_path / "here"))
    subprocess.run(["qbuild", *build, *words], check=True, timeout=WHOLE_BUILD_S)
    (wanted,) = (tmp_path / "here").glob("*.zip")

    store, dist = request.getfixturevalue("lent"), tmp_path / "there"
    done = machine.run(
        "-m", "qbuild", *build, "--store", windows_path(store), "--dist", windows_path(dist),
        "--no-compiler-cache", "--offline", "-j", str(os.cpu_count() or 1), timeout=WHOLE_BUILD_S,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    found = dist / wanted.name
    record = json.loads((dist / f"{found.name}.build.json").read_text())
    assert record["host"] == "windows-x86_64"
    assert len(record["altered"]) == 2, "the compiler and the web UI say what they are"
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wanted, found)]
    print(*sums)
    assert sums[0] == sums[1]


# -- files of llama.cpp, compiled by both ----------------------------------------------------------

FOLDERS = ("ggml/include", "ggml/src", "ggml/src/ggml-cpu", "include", "src", "common", "vendor")
FILES = (
    "ggml/src/ggml-threading.cpp", "ggml/src/ggml-alloc.c", "ggml/src/gguf.cpp",
    "ggml/src/ggml-backend.cpp", "ggml/src/ggml-backend-reg.cpp", "ggml/src/ggml-opt.cpp",
    "ggml/src/ggml.c", "ggml/src/ggml-quants.c", "src/llama-arch.cpp", "src/llama-hparams.cpp",
    "src/llama-io.cpp", "src/llama-mmap.cpp", "src/llama-cparams.cpp", "src/llama-impl.cpp",
    "src/llama-chat.cpp", "src/llama-adapter.cpp", "src/llama-batch.cpp", "src/llama-memory.cpp",
    "src/unicode-data.cpp", "src/unicode.cpp", "common/console.cpp", "common/log.cpp",
    "common/json-partial.cpp", "common/sampling.cpp",
)  # fmt: skip


def arguments(file: str, root: str) -> list[str]:
    """Return how a file is compiled for Windows, the folder's name hidden as a build hides it."""
    return [
        "cc" if file.endswith(".c") else "c++", "-target", "x86_64-windows-gnu", "-g0",
        *hide_paths(root), '-DGGML_VERSION="x"', '-DGGML_COMMIT="x"', "-D_WIN32_WINNT=0xA00",
        "-DNDEBUG", "-O3", f"-std={'gnu11' if file.endswith('.c') else 'gnu++17'}", "-mavx2",
        "-mfma", "-mf16c", "-mbmi2", *(f"-I{root}/src/{each}" for each in FOLDERS),
        "-c", f"{root}/src/{file}", "-o", "made.obj",
    ]  # fmt: skip


def sections(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return name, bytes and relocations of a COFF object's sections.

    Without ``.debug$S``: there clang records the name of the temporary file that it wrote, which is
    random in every run on every system. The link strips it.
    """
    count = int.from_bytes(data[2:4], "little")
    found = []
    for number in range(count):
        head = data[20 + 40 * number : 60 + 40 * number]
        size, at, relocations = (int.from_bytes(head[i : i + 4], "little") for i in (16, 20, 24))
        many = int.from_bytes(head[32:34], "little")
        if (name := head[:8].rstrip(b"\0")) != b".debug$S":
            relocated = data[relocations : relocations + 10 * many]
            found.append((name + head[36:40], data[at : at + size] if at else b"", relocated))
    return found


@pytest.mark.objects
def test_files_of_llama_cpp_give_the_same_objects(
    machine: Machine, user_store: Store, tmp_path: Path
) -> None:
    lock = load_lock(resources.lockfile())
    plan = make_plan(load_recipe("avx2", os="windows"), lock, host="linux-x86_64")
    patched = user_store.find("patch", plan["patch"].key)
    if patched is None:
        pytest.skip("the patched source is not in the store: build avx2 for Windows once")
    wheel = fetch_wheel(lock.wheel("ziglang", "windows-x86_64"), user_store, Plain(), offline=False)
    program = tmp_path / "ziglang"
    shutil.copytree(wheel.path / "files" / "ziglang", program, copy_function=os.link)
    machine.builder.alter_zig(program)
    differ = []
    for name in ("here", "there, with blanks"):
        shutil.copytree(patched.path / "tree", tmp_path / name / "src", copy_function=os.link)
        (tmp_path / name / "build").mkdir()
    for file in FILES:
        made = []
        for folder, root, command in (
            (tmp_path / "here", str(tmp_path / "here"), [str(machine.builder.zig)]),
            (tmp_path / "there, with blanks", f"Z:{tmp_path}/there, with blanks",
             ["wine", str(program / "zig.exe")]),
        ):  # fmt: skip
            cache = machine.folder / f"zig-objects-{command[0].rpartition('/')[2]}"
            places = {f"ZIG_{kind}_CACHE_DIR": str(cache) for kind in ("GLOBAL", "LOCAL")}
            subprocess.run(
                [*command, *arguments(file, root)], cwd=folder / "build", check=True,
                env=machine.environment(**places), stdin=subprocess.DEVNULL,
            )  # fmt: skip
            made.append((folder / "build" / "made.obj").read_bytes())
        same = sections(made[0]) == sections(made[1])
        print("same" if same else "DIFFERENT", len(made[0]), file)
        if not same:
            differ.append(file)
    assert differ == []
