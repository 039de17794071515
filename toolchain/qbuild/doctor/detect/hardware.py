"""Processor, memory and graphics cards of a machine, through a probe."""

from __future__ import annotations

import re
from typing import Any, Final

from qbuild.doctor.detect.levels import PROCESSOR_FEATURES, flags_from_windows
from qbuild.doctor.machine_facts import CpuFacts, GpuFacts
from qbuild.doctor.probe import Probe

GIB: Final = 1 << 30
_PCI: Final = "/sys/bus/pci/devices"
_VENDORS: Final = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_DISPLAY: Final = (
    "SYSTEM\\CurrentControlSet\\Control\\Class\\{4d36e968-e325-11ce-bfc1-08002be10318}"
)
"""Windows' class of display adapters; its keys 0000, 0001 … are the cards."""
_CPU_KEY: Final = "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0"
_RELEVANT: Final = re.compile(
    r"sse|ssse3|pni|popcnt|cx16|lahf_lm|abm|movbe|bmi|f16c|fma|avx|amx|xsave$|hypervisor"
)


def capture_hardware(probe: Probe, *, cores: bool = True) -> dict[str, Any]:
    """Return the hardware's facts, as keywords of ``Facts``.

    Args:
        probe: The machine.
        cores: Count the physical cores, too; asking for them takes a while.
    """
    cpu, virtual = _cpu(probe, cores=cores)
    windows = probe.system() == "windows"
    gpus = _windows_cards(probe) if windows else _linux_cards(probe)
    return {
        "cpu": cpu,
        "virtual": virtual,
        "laptop": probe.battery(),
        "ram_gb": round(probe.memory() / GIB, 1),
        "memory_limit_gb": None if windows else _memory_limit(probe),
        "gpus": gpus,
    }


def parse_cpuinfo(text: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return vendor, model name and flags of the first processor in Linux's /proc/cpuinfo."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.partition(":")
        if not found and fields:
            break
        fields.setdefault(key.strip(), value.strip())
    flags = tuple(sorted(fields.get("flags", "").split()))
    return fields.get("vendor_id"), fields.get("model name"), flags


def _cpu(probe: Probe, *, cores: bool) -> tuple[CpuFacts, bool | None]:
    virtual: bool | None
    if probe.system() == "windows":
        flags = flags_from_windows(probe.processor_features(tuple(PROCESSOR_FEATURES)))
        vendor = probe.registry(_CPU_KEY, "VendorIdentifier")
        model = probe.registry(_CPU_KEY, "ProcessorNameString")
        virtual = None
    else:
        vendor, model, every = parse_cpuinfo(probe.read("/proc/cpuinfo") or "")
        flags = tuple(each for each in every if _RELEVANT.match(each))
        virtual = "hypervisor" in every if every else None
    cpu = CpuFacts(
        arch=probe.machine(),
        vendor=str(vendor) if vendor else None,
        model=re.sub(r"\s+", " ", str(model)).strip() if model else None,
        flags=flags,
        cores=probe.cores() if cores else None,
        threads=probe.threads(),
    )
    return cpu, virtual


def _memory_limit(probe: Probe) -> float | None:
    """Return the limit of a container, in GiB; cgroups of version 2, then 1."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = (probe.read(path) or "").strip()
        if text.isdigit() and int(text) < 1 << 50:  # version 1 says "none" by a huge number
            return round(int(text) / GIB, 1)
    return None


def _linux_cards(probe: Probe) -> tuple[GpuFacts, ...]:
    """Return NVML's cards, and those on the PCI bus that no NVIDIA driver knows."""
    driven = probe.nvml() or ()
    others = []
    for slot in probe.listing(_PCI):
        folder = f"{_PCI}/{slot}"
        kind = (probe.read(f"{folder}/class") or "").strip()
        vendor = _VENDORS.get((probe.read(f"{folder}/vendor") or "").strip())
        if not kind.startswith(("0x0300", "0x0302")) or vendor is None:
            continue
        if vendor == "nvidia" and driven:
            continue
        device = (probe.read(f"{folder}/device") or "").strip().removeprefix("0x")
        names = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}
        others.append(GpuFacts.of(vendor, f"{names[vendor]} card (PCI id {device})"))
    return (*driven, *others)


def nvidia_driver_version(windows: str) -> str | None:
    """Return NVIDIA's own version of a Windows driver: 31.0.15.2833 is 528.33.

    The last five digits of the two last numbers carry it, e.g. 15.2833 → 52833.
    """
    parts = windows.split(".")
    if len(parts) != 4 or not all(part.isdigit() for part in parts):
        return None
    digits = (parts[2] + parts[3].zfill(4))[-5:]
    return f"{int(digits[:3])}.{digits[3:]}" if len(digits) == 5 else None


def _windows_cards(probe: Probe) -> tuple[GpuFacts, ...]:
    """Return NVML's cards, and from the registry those that it does not know."""
    driven = probe.nvml() or ()
    others = []
    for number in probe.registry_keys(_DISPLAY):
        key = f"{_DISPLAY}\\{number}"
        name = str(probe.registry(key, "DriverDesc") or "")
        provider = str(probe.registry(key, "ProviderName") or "")
        text = f"{name} {provider}".lower()
        vendor = next(
            (each for each in ("nvidia", "amd", "intel") if each in text),
            "amd" if "radeon" in text or "advanced micro" in text else None,
        )
        if vendor is None or (vendor == "nvidia" and driven):
            continue
        version = str(probe.registry(key, "DriverVersion") or "")
        memory = probe.registry(key, "HardwareInformation.qwMemorySize")
        # Microsoft's basic display driver names no vendor, so an NVIDIA name is NVIDIA's driver
        driver = nvidia_driver_version(version) if vendor == "nvidia" else None
        vram = round(memory / GIB, 1) if isinstance(memory, int) and memory else None
        others.append(GpuFacts.of(vendor, name, driver=driver, vram_gb=vram))
    return (*driven, *others)
