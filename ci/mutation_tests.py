"""How ``ci/mutate.py`` runs tests: to see who runs which line, and with a mutant in place."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.abc
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from mutants import Mutant, mutated

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "toolchain" / "qbuild"

WORDS = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"]

MEMORY = 4 << 30
"""Bytes that a process with a mutant may take."""

Report = Callable[[Mutant, str], None]


class Mapper:
    """A pytest plugin that writes down which test runs which lines of some files."""

    def __init__(self, modules: dict[str, Path]) -> None:
        self._names = {str(path): name for name, path in modules.items()}
        self._now: set[tuple[str, int]] = set()
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, list[list[Any]]] = {}

    def _local(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self._now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._local

    def _trace(self, frame: FrameType, *_: object) -> Any:
        return self._local if frame.f_code.co_filename in self._names else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        """Look at one test."""
        self._now = set()
        started = sum(os.times()[:4])
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.seconds[item.nodeid] = round(sum(os.times()[:4]) - started, 3)
            found = sorted((self._names[file], line) for file, line in self._now)
            self.lines[item.nodeid] = [list(each) for each in found]


def map_lines(tests: list[str], modules: dict[str, Path], out: Path) -> int:
    """Run tests and add to the map in ``out``; return pytest's exit status."""
    known: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    mapper = Mapper(modules)
    status = int(pytest.main([*WORDS, *tests], plugins=[mapper]))
    for what, new in (("seconds", mapper.seconds), ("lines", mapper.lines)):
        kept = {k: v for k, v in known.get(what, {}).items() if not k.startswith(tuple(tests))}
        known[what] = {**kept, **new}
    out.write_text(json.dumps(known))
    return status


# -- a mutant in a process where everything was imported ---------------------------------------


def code_of(mutant: Mutant) -> CodeType:
    """Return the changed code of the mutant's function.

    Raises:
        LookupError: When the changed module has no such function.
    """
    path = PACKAGE / f"{mutant.module}.py"
    todo = [compile(mutated(mutant, path), str(path), "exec")]
    while todo:
        code = todo.pop()
        if (code.co_qualname, code.co_firstlineno) == (mutant.function, mutant.first_line):
            return code
        todo += [each for each in code.co_consts if isinstance(each, CodeType)]
    raise LookupError(mutant.function)


class Warm:
    """A pytest plugin that tries mutants in children instead of running what it collected."""

    def __init__(self, todo: list[Mutant], lines: Path, budget: float, report: Report,
                 seconds: float) -> None:  # fmt: skip
        data = json.loads(lines.read_text())
        self._todo, self._budget, self._report = todo, budget, report
        self._seconds: dict[str, float] = data["seconds"]
        self._size = {name: len(found) for name, found in data["lines"].items()}
        self._runs: dict[tuple[str, int], list[str]] = {}
        for name, found in data["lines"].items():
            for module, line in found:
                self._runs.setdefault((module, line), []).append(name)
        self._end = time.monotonic() + seconds
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notice a failure (in a child)."""
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every mutant."""
        items = {item.nodeid: item for item in session.items}
        functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        caches = []
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                code = each.__code__
                place = (code.co_filename, code.co_qualname, code.co_firstlineno)
                functions.setdefault(place, []).append(each)
            elif isinstance(each, functools._lru_cache_wrapper):
                caches.append(each)
        for cache in caches:
            cache.cache_clear()
        gc.freeze()
        for number, mutant in enumerate(self._todo):
            if time.monotonic() > self._end:
                print(f"\n{len(self._todo) - number} left: call again")
                break
            path = str(PACKAGE / f"{mutant.module}.py")
            places = functions.get((path, mutant.function, mutant.first_line), [])
            tests = self._tests(mutant, items)
            known = tests and places
            how = self._try(session, mutant, places, tests) if known else "survived"
            self._report(mutant, how)
        return True

    def _tests(self, mutant: Mutant, items: dict[str, pytest.Item]) -> list[pytest.Item]:
        """Return the tests that run the mutant's line, within the budget.

        First come those that run little else: they were written for it.
        """
        names = self._runs.get((mutant.module, mutant.line), [])
        names = sorted((n for n in names if n in items), key=lambda n: (self._size[n], n))
        out, sum_s = list[pytest.Item](), 0.0
        for name in names:
            sum_s += self._seconds[name]
            if out and sum_s > self._budget:
                break
            out.append(items[name])
        return out

    def _try(self, session: pytest.Session, mutant: Mutant, places: list[FunctionType],
             tests: list[pytest.Item]) -> str:  # fmt: skip
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))

        def child() -> int:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
            tempfile.tempdir = str(folder)
            code = code_of(mutant)
            for function in places:
                function.__code__ = code
            session.config.pluginmanager.unregister(name="terminalreporter")
            for item, after in zip(tests, [*tests[1:], None], strict=True):
                # What never ends is ended by this signal, and caught.
                signal.setitimer(signal.ITIMER_PROF, 1 + 5 * self._seconds[item.nodeid])
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if self._failed:
                    return 1
            return 0

        try:
            return outcome(child, 5 + 2 * self._budget)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def warm(todo: list[Mutant], lines: Path, budget: float, report: Report, seconds: float) -> None:
    """Try mutants of functions."""
    if todo and seconds > 0:
        files = sorted({name.split("::")[0] for name in json.loads(lines.read_text())["seconds"]})
        files = [name for name in files if (ROOT / name).exists()]
        plugin = Warm(todo, lines, budget, report, seconds)
        pytest.main([*WORDS, "--disable-warnings", *files], plugins=[plugin])


# -- a mutant in a process that imports the module anew ----------------------------------------


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the changed module to whoever imports it."""

    def __init__(self, mutant: Mutant) -> None:
        self._name = "qbuild." + mutant.module.replace("/", ".")
        self._path = PACKAGE / f"{mutant.module}.py"
        self._code = compile(mutated(mutant, self._path), str(self._path), "exec")

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find the module that is changed, and no other."""
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def create_module(self, _: ModuleSpec) -> None:
        """Let the machinery make it."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed code."""
        exec(self._code, module.__dict__)


def anew(todo: list[Mutant], tests: dict[str, list[str]], report: Report, seconds: float) -> None:
    """Try mutants of what runs at import, in a process that has nothing of qbuild yet."""
    started = time.monotonic()
    for name in ("pefile", "elftools.elf.elffile", "iced_x86", "deflate", "filelock", "tomlkit",
                 "cyclonedx.model.bom", "platformdirs", "psutil"):  # fmt: skip
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for mutant in todo:
        if time.monotonic() - started > seconds:
            return
        files = [str(ROOT / "tests" / "unit" / name) for name in tests[mutant.module]]

        def child(mutant: Mutant = mutant, files: list[str] = files) -> int:
            sys.meta_path.insert(0, Instead(mutant))
            return int(pytest.main([*WORDS, "-x", *files]))

        report(mutant, outcome(child, 60))


def outcome(test: Callable[[], int], limit_s: float) -> str:
    """Run ``test`` in a child and return ``caught`` or ``survived``.

    A child that takes more than ``limit_s`` seconds of processor time, or waits ten times as long,
    is ended: what never ends is caught.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        status = 1
        with contextlib.suppress(BaseException):
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1, int(limit_s) + 2))
            status = test()
        os._exit(0 if status == 0 else 1)
    end = time.monotonic() + 10 * limit_s
    pause = 0.005
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if status == 0 else "caught"
        time.sleep(pause)
        pause = min(0.1, 1.5 * pause)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "caught"
