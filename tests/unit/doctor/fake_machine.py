"""A machine made of dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qbuild.doctor.machine_facts import Disk, GpuFacts
from qbuild.doctor.probe import RegistryValue


@dataclass(kw_only=True)
class FakeMachine:
    """Answers a capture's questions; everything is absent by default."""

    system_: str = "linux"
    release_: str = "6.1.0-38-amd64"
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    values: dict[tuple[str, str], str | int] = field(default_factory=dict)
    features: tuple[int, ...] = ()
    cards: tuple[GpuFacts, ...] | None = None
    disk_: Disk | None = "ssd"
    page: int | None = None

    def system(self) -> str:
        return self.system_

    def machine(self) -> str:
        return "x86_64"

    def release(self) -> str:
        return self.release_

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def listing(self, path: str) -> tuple[str, ...]:
        return self.folders.get(path, ())

    def env(self, name: str) -> str | None:
        return self.variables.get(name) or None

    def which(self, program: str) -> str | None:
        return self.programs.get(program)

    def output(self, command: Sequence[str]) -> str | None:
        return self.outputs.get(command[0])

    def registry(self, key: str, value: str) -> RegistryValue:
        return self.values.get((key, value))

    def registry_keys(self, key: str) -> tuple[str, ...]:
        below = {
            name[len(key) + 1 :].split("\\")[0]
            for name, _ in self.values
            if name.startswith(f"{key}\\")
        }
        return tuple(sorted(below))

    def processor_features(self, numbers: Sequence[int]) -> dict[int, bool]:
        return {each: each in self.features for each in numbers}

    def code_page(self) -> int | None:
        return self.page

    def nvml(self) -> tuple[GpuFacts, ...] | None:
        return self.cards

    def cores(self) -> int | None:
        return 4

    def threads(self) -> int | None:
        return 8

    def memory(self) -> int:
        return 16 << 30

    def battery(self) -> bool:
        return False

    def free_disk(self, path: str) -> int | None:
        return 100 << 30

    def disk(self, path: str) -> Disk | None:
        return self.disk_
