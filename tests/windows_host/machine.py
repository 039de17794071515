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
import zipfile
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from qbuild.recipe.lock import Lock, WheelPin
from qbuild.steps.pinned import ALTERED
from qbuild.steps.plan import wheel_step
from qbuild.store import Store

CPYTHON = "3.11.3-1.5.9"
CPYTHON_SHA256 = "3263a50b256447bb7b9e604d6587627e419891370fc33b94469e6a06ff4de834"
"""`org.bytedeco:cpython:VERSION:jar:windows-x86_64`: python.exe, DLLs, the standard library."""

HERE = Path(__file__).parent
REPO = HERE.parent.parent

ZIG_IMPORTS, SHIM = b"\0ntdll.dll\0", b"\0ntqbw.dll\0"
"""zig.exe's name of the library below it, and of the one that stands before it in Wine."""

WHY = "zig.exe runs on a shim over Wine's ntdll.dll; for tests, it was not seen on Windows"


class MissingError(Exception):
    """A program that the machine is made of is not installed."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine.

    Args:
        folder: Where Python and the prefix lie; kept between runs.
    """

    folder: Path

    @property
    def python(self) -> Path:
        """Return python.exe."""
        return self.folder / f"python-{CPYTHON}" / "python.exe"

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a program on this machine."""
        return {
            "HOME": str(Path.home()),
            "PATH": os.environ.get("PATH", os.defpath),
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree=;mshtml=;winemenubuilder.exe=",
            "PYTHONPATH": windows_path(REPO / "toolchain"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",
            **more,
        }

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs Python there."""
        return ["wine", str(self.python), *words]

    def run(
        self, *words: str, timeout: float = 600, cwd: Path | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run Python there and return what it said."""
        return subprocess.run(
            self.command(*words),
            cwd=cwd,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )


def windows_path(path: Path) -> str:
    """Return how Wine names a file of this system."""
    return str(PureWindowsPath("Z:", path.absolute()))


def make(folder: Path) -> Machine:
    """Return the machine, put together when it is not there yet.

    Raises:
        MissingError: wine or mvn is not installed.
    """
    for program, package in (("wine", "wine"), ("mvn", "maven")):
        if shutil.which(program) is None:
            raise MissingError(f"{program} is not installed (apt install {package})")
    machine = Machine(folder=folder)
    ready = folder / f"ready-{_digest_of_inputs()}"
    if not ready.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _unpack_cpython(machine)
        _install_wheels(machine)
        ready.touch()
    return machine


def _digest_of_inputs() -> str:
    digest = hashlib.sha256(CPYTHON.encode())
    digest.update((HERE / "requirements.txt").read_bytes())
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


def fill_store(store: Store, lock: Lock, wheels: dict[str, Path], zig: Path, cache: Path) -> None:
    """Put Windows' wheels into a store; zig.exe is altered so that Wine runs it.

    Args:
        store: A store for tests.
        lock: The pins.
        wheels: Project → folder of the unpacked Windows wheel.
        zig: The pinned zig of this system; it builds the shim.
        cache: zig's cache folder for that.
    """
    for project, files in wheels.items():
        wheel = lock.wheel(project, "windows-x86_64")
        step = wheel_step(wheel)
        if store.find(step.kind, step.key) is not None:
            continue

        def fill(dest: Path, wheel: WheelPin = wheel, files: Path = files) -> dict[str, str]:
            shutil.copytree(files, dest / "files", copy_function=os.link)
            facts = {"project": wheel.project, "version": wheel.version}
            if wheel.project == "ziglang":
                alter_zig(dest / "files" / "ziglang", zig, cache)
                facts[ALTERED] = WHY
            for path in (dest / "files").rglob("*"):
                if path.is_file() and path.stat().st_mtime_ns % 1_000_000_000:
                    os.utime(path, (1, int(path.stat().st_mtime)))  # Windows keeps 100 ns only
            return facts

        store.put(step.kind, step.key, step.inputs, fill)


def alter_zig(folder: Path, zig: Path, cache: Path) -> None:
    """Make the zig.exe in a folder load the shim, and put the shim beside it."""
    import pefile

    program = folder / "zig.exe"
    data = program.read_bytes()
    if data.count(ZIG_IMPORTS) != 1:
        raise RuntimeError("zig.exe names ntdll.dll elsewhere than it did")
    image = pefile.PE(data=data, fast_load=True)
    image.parse_data_directories(directories=[1])  # imports
    (imports,) = (i for i in image.DIRECTORY_ENTRY_IMPORT if i.dll.lower() == b"ntdll.dll")
    program.unlink()  # it may be a hard link to the pinned file
    program.write_bytes(data.replace(ZIG_IMPORTS, SHIM))
    names = [each.name.decode() for each in imports.imports]
    build_shim(folder / "ntqbw.dll", names, zig, cache)


def build_shim(target: Path, names: list[str], zig: Path, cache: Path) -> None:
    """Build the library that hands everything but four functions on to ntdll.dll."""
    own = {
        name: f"Shim{name.removeprefix('Nt')}"
        for name in ("NtLockFile", "NtUnlockFile", "NtQueryAttributesFile", "NtSetInformationFile")
    }
    work = cache / "wine-shim"
    work.mkdir(parents=True, exist_ok=True)
    exports = "".join(f"{name} = {own.get(name, f'ntdll.{name}')}\n" for name in names)
    (work / "ntqbw.def").write_text(f"LIBRARY ntqbw.dll\nEXPORTS\n{exports}")
    real = ["NtOpenFile", "NtQueryInformationFile", "NtClose"]
    real += [f"Real{name}==Nt{name}" for name in ("SetInformationFile", "QueryAttributesFile")]
    (work / "real.def").write_text("LIBRARY ntdll.dll\nEXPORTS\n" + "\n".join(real) + "\n")
    env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    for command in (
        ["dlltool", "-m", "i386:x86-64", "-d", "real.def", "-l", "libreal.a"],
        ["cc", "-target", "x86_64-windows-gnu", "-O1", "-nostdlib", "-shared", "-s",
         "-Wl,-e,DllMain", "-o", str(target), str(HERE / "wine_shim.c"), "ntqbw.def", "libreal.a"],
    ):  # fmt: skip
        subprocess.run([str(zig), *command], cwd=work, env=env, check=True)
