"""A shared store of pinned inputs, so that each wheel is fetched once per machine."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import pytest

from qbuild import host, resources
from qbuild.console import Plain
from qbuild.recipe.lock import load_lock
from qbuild.steps.wheel import wheel_step
from qbuild.store import Store
from support import small_project

if TYPE_CHECKING:
    from windows_host.machine import Machine


def _user_store() -> Store:
    root = os.environ.get("QBUILD_TEST_STORE") or platformdirs.user_cache_dir(
        "qbuild", appauthor=False
    )
    return Store(Path(root).absolute())


def _offer_zig() -> None:
    """Name the pinned compiler, and a cache it may fill, to the tests that compile something."""
    from qbuild.steps.pinned import fetch_wheel

    store = _user_store()
    wheel = load_lock(resources.lockfile()).wheel("ziglang", host.platform_key())
    entry = fetch_wheel(wheel, store, Plain(), offline=False)
    os.environ["QBUILD_TEST_ZIG"] = str(entry.path / "files" / "ziglang" / "zig")
    os.environ.setdefault("QBUILD_TEST_ZIG_CACHE", str(store.root / "cache" / "zig"))


if "QBUILD_TEST_ZIG" not in os.environ:  # pytest-xdist's workers inherit it
    _offer_zig()


@pytest.fixture(scope="session")
def user_store() -> Store:
    """The machine's store: what real builds fill and later runs reuse."""
    return _user_store()


@pytest.fixture(scope="session")
def tool_wheels(user_store: Store) -> list[Path]:
    """Store entries of the pinned cmake, ninja and zig, fetched when missing."""
    from qbuild.steps.pinned import fetch_wheel

    lock = load_lock(resources.lockfile())
    entries = []
    for project in ("cmake", "ninja", "ziglang"):
        wheel = lock.wheel(project, host.platform_key())
        entry = fetch_wheel(wheel, user_store, Plain(), offline=False)
        assert entry.key == wheel_step(wheel).key
        entries.append(entry.path)
    return entries


@pytest.fixture
def new_store(tool_wheels: list[Path], tmp_path: Path) -> Path:
    """A store of this test's own that already has the tools and zig's C runtime."""
    return small_project.lend_tools(tmp_path / "store", tool_wheels)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> small_project.SmallProject:
    """A small project that builds in seconds with the pinned zig."""
    return small_project.make(tmp_path_factory.mktemp("small"), resources.lockfile())


@pytest.fixture(scope="session")
def small_gcc(tmp_path_factory: pytest.TempPathFactory) -> small_project.SmallProject:
    """The same for the system's gcc, for tests in which zig would build its C runtime anew."""
    if shutil.which("gcc") is None or shutil.which("g++") is None:
        pytest.skip("gcc is not installed (Debian: apt-get install g++)")
    folder = tmp_path_factory.mktemp("small-gcc")
    return small_project.make(folder, resources.lockfile(), toolchain="gcc")


@pytest.fixture(scope="session")
def machine(user_store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The Windows machine of Wine and a real CPython, kept between runs and awake during one."""
    from qbuild.steps.pinned import fetch_wheel
    from windows_host import machine as windows

    root = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))
    wheel = load_lock(resources.lockfile()).wheel("ziglang", "linux-x86_64")
    entry = fetch_wheel(wheel, user_store, Plain(), offline=False)
    made = windows.make(root / "qbuild-windows-host", entry.path / "files" / "ziglang" / "zig")
    made = dataclasses.replace(made, byte_code=tmp_path_factory.mktemp("byte-code"))
    with made.awake():
        yield made
