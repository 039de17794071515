"""NVML through ctypes, against a real shared library that speaks its interface."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from qbuild.doctor.detect import nvml

pytestmark = pytest.mark.integration

# signatures as in NVIDIA's nvml.h; the handle of card i is a pointer that a 32-bit int cannot hold
SOURCE = """
#include <string.h>
typedef void *device;
typedef struct { unsigned long long total, free, used; } memory;
static char cards[2];
static int index_of(device d) { return (int)((char *)d - (cards + 0x100000000ULL)); }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size)
{ strncpy(text, "550.54.14", size); return size == 80 ? 0 : 2; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d)
{ *d = cards + 0x100000000ULL + i; return i < 2 ? 0 : 2; }
int nvmlDeviceGetName(device d, char *text, unsigned size)
{ strncpy(text, index_of(d) ? "NVIDIA A100-SXM4-80GB" : "NVIDIA GeForce GTX 1060", size);
  return 0; }
int nvmlDeviceGetCudaComputeCapability(device d, int *major, int *minor)
{ *major = index_of(d) ? 8 : 6; *minor = index_of(d) ? 0 : 1; return 0; }
int nvmlDeviceGetMemoryInfo(device d, memory *m)
{ m->total = (index_of(d) ? 80ULL : 6ULL) << 30; m->free = m->used = 0; return 0; }
"""


def test_a_library_of_the_same_interface(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (tmp_path / "nvml.c").write_text(SOURCE, encoding="utf-8")
    library = tmp_path / "libnvidia-ml.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")]
    subprocess.run(command, check=True)
    found = nvml.cards(ctypes.CDLL(str(library)))
    assert found is not None
    assert [(each.name, each.capability, each.vram_gb, each.driver) for each in found] == [
        ("NVIDIA GeForce GTX 1060", "6.1", 6.0, "550.54.14"),
        ("NVIDIA A100-SXM4-80GB", "8.0", 80.0, "550.54.14"),
    ]
