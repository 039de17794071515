"""Put the machine together: CPython from Maven Central, wheels by pip, a prefix of Wine.

What it is not: Windows. The kernel below is Wine's. Where Wine cannot run a pinned program, an
altered copy of it is put into a store for tests; whatever is built with that store says so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from qbuild import resources
from qbuild.recipe.lock import Lock, WheelPin
from qbuild.steps.base import Step
from qbuild.steps.ensure import ALTERED
from qbuild.steps.wheel import wheel_step
from qbuild.store import Entry, Store
from windows_host.libraries import Builder

CPYTHON = "3.11.3-1.5.9"
CPYTHON_SHA256 = "3263a50b256447bb7b9e604d6587627e419891370fc33b94469e6a06ff4de834"
"""`org.bytedeco:cpython:VERSION:jar:windows-x86_64`: python.exe, DLLs, the standard library."""

HERE = Path(__file__).parent
REPO = HERE.parent.parent

KEY_LETTERS = 24
"""What `qbuild.host.key_letters` says on Windows."""

SHIM = "zig.exe runs on a shim over Wine's ntdll.dll, and what serves other systems was left out"
BRIDGE = "zig.exe hands everything to the zig of the Linux below Wine"
"""What a store for tests says about its compiler, and every build with it repeats."""


class MissingError(Exception):
    """A program that the machine is made of is not installed."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine.

    Args:
        folder: Where Python and the prefix lie; kept between runs.
        builder: What builds the libraries it needs.
        byte_code: Where its Python keeps what it compiled; None: nowhere.
    """

    folder: Path
    builder: Builder
    byte_code: Path | None = None

    @property
    def python(self) -> Path:
        """Return python.exe."""
        return self.folder / f"python-{CPYTHON}" / "python.exe"

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a program on this machine."""
        byte_code = (
            {"PYTHONDONTWRITEBYTECODE": "1"}
            if self.byte_code is None
            else {"PYTHONPYCACHEPREFIX": windows_path(self.byte_code)}
        )
        git = os.environ.get("QBUILD_TEST_WINDOWS_GIT")  # the folder of a git.exe
        return {
            "HOME": str(Path.home()),
            "PATH": os.environ.get("PATH", os.defpath),
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree=;mshtml=;winemenubuilder.exe=",
            "PYTHONPATH": windows_path(REPO / "toolchain"),
            "LC_ALL": "C.UTF-8",
            **byte_code,
            **({"WINEPATH": windows_path(Path(git))} if git else {}),
            **more,
        }

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs Python there."""
        return ["wine", str(self.python), *words]

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Keep Wine's servers running: each start of a program is five seconds shorter.

        The program that keeps them ends with its input, so with this process, however that ends.
        """
        with subprocess.Popen(
            self.command("-c", "import sys; print('up', flush=True); sys.stdin.read()"),
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # pytest's is a file without a name, which Wine refuses
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            said: list[bytes] = []  # the first time Wine tells of its new prefix
            while (line := process.stdout.readline()).strip() != b"up":
                if not line:
                    raise RuntimeError(f"Python does not start: {b''.join(said)!r}")
                said.append(line)
            yield
            process.stdin.close()

    def run(
        self, *words: str, timeout: float = 600, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python there and return what it said."""
        return subprocess.run(
            self.command(*words),
            cwd=cwd,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )


def windows_path(path: Path) -> str:
    """Return how Wine names a file of this system."""
    return str(PureWindowsPath("Z:", path.absolute()))


def make(folder: Path, pinned_zig: Path) -> Machine:
    """Return the machine, put together when it is not there yet.

    Args:
        folder: Where it lies.
        pinned_zig: zig of this system.

    Raises:
        MissingError: wine or mvn is not installed.
    """
    for program, package in (("wine", "wine"), ("mvn", "maven")):
        if shutil.which(program) is None:
            raise MissingError(f"{program} is not installed (apt install {package})")
    builder = Builder(zig=pinned_zig, cache=folder / "zig")
    machine = Machine(folder=folder, builder=builder)
    ready = folder / f"ready-{_digest_of_inputs()}"
    if not ready.is_file():
        for stale in ("jars", machine.python.parent.name, "prefix"):
            shutil.rmtree(folder / stale, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        _unpack_cpython(machine)
        _install_wheels(machine)
        ready.touch()
    return machine


def _digest_of_inputs() -> str:
    digest = hashlib.sha256(CPYTHON.encode())
    for name in ("requirements.txt", "libraries.py"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:12]


def _unpack_cpython(machine: Machine) -> None:
    jars = machine.folder / "jars"
    coordinates = f"org.bytedeco:cpython:{CPYTHON}:jar:windows-x86_64"
    subprocess.run(
        ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:copy",
         f"-Dartifact={coordinates}", f"-DoutputDirectory={jars}"],
        check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    (jar,) = jars.glob("*.jar")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != CPYTHON_SHA256:
        raise RuntimeError(f"{jar.name} is not the file that was reviewed")
    inner = "org/bytedeco/cpython/windows-x86_64/"
    root = machine.python.parent
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith(inner) and not name.endswith("/"):
                target = root / name.removeprefix(inner)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
    jar.unlink()
    name = "python" + "".join(CPYTHON.split(".")[:2])
    machine.builder.stable_abi(root, name)
    machine.builder.random_bytes(root)


def _install_wheels(machine: Machine) -> None:
    numbers = CPYTHON.split(".")[:2]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--upgrade",
         "--target", str(machine.python.parent / "lib" / "site-packages"),
         "--platform", "win_amd64", "--implementation", "cp",
         "--python-version", ".".join(numbers), "--only-binary", ":all:",
         "-c", str(HERE / "requirements.txt"), "-r", str(HERE / "requirements.txt")],
        check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def fill_store(
    machine: Machine, store: Store, lock: Lock, wheels: Mapping[str, Path], *, bridge: bool
) -> None:
    """Put Windows' wheels into a store for tests; what of zig is in it says so itself.

    Args:
        machine: Whose zig builds what stands between.
        store: A store for tests.
        lock: The pins.
        wheels: Project → folder of the unpacked Windows wheel.
        bridge: Put a zig.exe there that hands everything to this system's zig (quick); otherwise
            zig.exe itself on a shim over Wine (it builds its C runtime for the better part of an
            hour).
    """
    below = Path(os.environ.get("QBUILD_TEST_ZIG_CACHE", machine.folder / "zig-below"))
    for project, files in wheels.items():
        wheel = lock.wheel(project, "windows-x86_64")
        step = wheel_step(wheel)
        short = store.root / step.kind / step.key[:KEY_LETTERS]
        if short.is_dir():
            continue

        def fill(dest: Path, wheel: WheelPin = wheel, files: Path = files) -> dict[str, str]:
            inside = dest / "files"
            facts = {"project": wheel.project, "version": wheel.version}
            if wheel.project != "ziglang":
                shutil.copytree(files, inside, copy_function=_link, ignore=_not_needed)
            elif bridge:
                _licences_only(files, inside)
                machine.builder.bridge(inside / "ziglang", below)
                facts[ALTERED] = BRIDGE
            else:
                shutil.copytree(files, inside, copy_function=_link, ignore=_not_needed)
                _licences_only(files, inside)
                machine.builder.alter_zig(inside / "ziglang")
                facts[ALTERED] = SHIM
            return facts

        store.put(step.kind, step.key, step.inputs, fill).path.rename(short)


def lend(store: Store, entry: Entry, step: Step, *, altered: str | None = None) -> None:
    """Put a result of this system into a store for tests.

    Args:
        store: A store for tests.
        entry: The result.
        step: The step there that it stands for.
        altered: What the entry says of itself when it is not what that step would have made.
    """

    def fill(dest: Path) -> dict[str, Any]:
        shutil.copytree(entry.path, dest, copy_function=_link, dirs_exist_ok=True)
        (dest / "entry.json").unlink()
        return {**entry.facts, **({ALTERED: altered} if altered else {})}

    short = store.root / step.kind / step.key[:KEY_LETTERS]
    if not short.is_dir():
        store.put(step.kind, step.key, step.inputs, fill).path.rename(short)


def _link(file: str, new: str) -> None:
    try:
        os.link(file, new)
    except OSError:  # on another disk
        shutil.copy2(file, new)


def _not_needed(folder: str, names: list[str]) -> set[str]:
    """Name what no build here reads: each run hashes everything, and that is slow in Wine."""
    path = Path(folder)
    if path.name == "include" and path.parent.name == "libc":
        return {name for name in names if "windows" not in name}
    if path.name == "libc" and path.parent.name == "lib":
        return set(names) - {"include", "mingw"}
    return set(names) & {"Help", "doc", "man", "cmake-gui.exe", "cpack.exe"}


def _licences_only(files: Path, dest: Path) -> None:
    """Copy of zig's wheel what goes into a bundle's papers."""
    table = tomllib.loads((resources.data_dir() / "third-party.toml").read_text(encoding="utf-8"))
    for row in table["component"]:
        if row["from"] != "ziglang":
            continue
        for name in (each["file"] for each in row["licences"]):
            (dest / name).parent.mkdir(parents=True, exist_ok=True)
            if not (dest / name).exists():
                shutil.copy(files / name, dest / name)
        if (files / row["path"]).is_dir() and not (dest / row["path"]).exists():
            (dest / row["path"]).mkdir(parents=True)
            (dest / row["path"] / "left-out").touch()
