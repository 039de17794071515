"""Instructions above a level: found wherever code runs, and not where there is only data."""

from __future__ import annotations

import struct

import pytest

from qbuild.binary.elf import read_elf
from qbuild.binary.isa import IsaReport, allowed_features, dispatcher_reason, scan
from qbuild.binary.pe import read_pe
from qbuild.errors import RecipeError
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe

RET = b"\xc3"
LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")

# name → (bytes, lowest level that may hold it; "" when none may)
INSTRUCTIONS = {
    "endbr64": ("f30f1efa", "x86-64"),
    "pause": ("f390", "x86-64"),
    "cpuid": ("0fa2", "x86-64"),
    "rdtsc": ("0f31", "x86-64"),
    "xgetbv": ("0f01d0", "x86-64"),
    "multi-byte nop": ("660f1f440000", "x86-64"),
    "prefetchw [rax]": ("0f0d08", "x86-64"),
    "addps": ("0f58c1", "x86-64"),
    "ud2": ("0f0b", "x86-64"),
    "tzcnt runs as bsf": ("f30fbcc1", "x86-64"),
    "cmpxchg16b": ("480fc70f", "x86-64-v2"),
    "pshufb": ("660f3800c1", "x86-64-v2"),
    "popcnt": ("f30fb8c1", "x86-64-v2"),
    "lzcnt runs as bsr, with another result": ("f30fbdc1", "x86-64-v3"),
    "vaddps ymm": ("c5f458c2", "x86-64-v3"),
    "vpaddd ymm (AVX2)": ("c5f5fec2", "x86-64-v3"),
    "shlx (BMI2 only)": ("c4e269f7c1", "x86-64-v3"),
    "andn (BMI1)": ("c4e270f2c2", "x86-64-v3"),
    "vfmadd231ps (FMA only)": ("c4e271b8c2", "x86-64-v3"),
    "vcvtph2ps (F16C)": ("c4e27913c1", "x86-64-v3"),
    "movbe": ("0f38f000", "x86-64-v3"),
    "vaddps zmm": ("62f1744858c2", "x86-64-v4"),
    "vaddps xmm in EVEX (AVX512VL)": ("62f1740858c2", "x86-64-v4"),
    "vaddps xmm16": ("62a1740058c2", "x86-64-v4"),
    "kmovw (mask)": ("c5f892c8", "x86-64-v4"),
    "vpdpbusd zmm (VNNI)": ("62f2754850c2", ""),
    "vpdpbusd ymm in VEX (AVX-VNNI)": ("c4e27550c2", ""),
    "aesenc": ("660f38dcc1", ""),
    "rdrand": ("0fc7f0", ""),
    "sha256rnds2": ("0f38cbc1", ""),
}


def report(code: bytes, level: str, functions: list[tuple[int, int]] | None = None) -> IsaReport:
    """Scan the same code as a PE and as an ELF file; both must say the same."""
    pe, elf = make_pe(code=code, functions=functions), make_elf(code=code, functions=functions)
    one = scan(read_pe(pe), pe, level=level)
    two = scan(read_elf(elf), elf, level=level)
    assert [f.text for f in one.findings] == [f.text for f in two.findings]
    return one


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_one_instruction_at_each_level(name: str) -> None:
    text, lowest = INSTRUCTIONS[name]
    for level in LEVELS:
        allowed = bool(lowest) and LEVELS.index(level) >= LEVELS.index(lowest)
        found = report(bytes.fromhex(text) + RET, level).findings
        assert (not found) == allowed, (level, [str(f) for f in found])


def test_a_finding_names_function_instruction_and_feature() -> None:
    data = make_pe(code=bytes.fromhex("90 62f1744858c2") + RET, exports=["ggml_add"], dll="g.dll")
    (found,) = scan(read_pe(data), data, level="x86-64-v3").findings
    assert (found.symbol, found.address - found.function) == ("ggml_add", 1)
    assert found.text == "vaddps zmm0,zmm1,zmm2"
    assert "AVX512F" in found.features
    assert "ggml_add" in str(found)


def test_extensions_that_a_recipe_adds() -> None:
    data = make_elf(code=bytes.fromhex("c4e27550c2") + RET)
    image = read_elf(data)
    assert scan(image, data, level="x86-64-v3").findings
    assert not scan(image, data, level="x86-64-v3", isa=("avx-vnni",)).findings


@pytest.mark.parametrize("level", ["x86-64-v9", "", "V3", "haswell"])
def test_an_unknown_level_allows_nothing_by_accident(level: str) -> None:
    with pytest.raises(RecipeError, match="no CPU level"):
        allowed_features(level)


def test_an_unknown_extension_is_refused() -> None:
    with pytest.raises(RecipeError, match="no CPU extension 'avx1024'"):
        allowed_features("x86-64-v3", ["avx1024"])


def test_code_behind_a_branch_and_without_unwind_data_is_read() -> None:
    # je +1; ret; vaddps zmm; ret  - and the same in a gap that no unwind entry covers
    branch = bytes.fromhex("7401 c3 62f1744858c2") + RET
    assert report(branch, "x86-64-v3").findings
    leaf = RET + b"\xcc" * 15 + bytes.fromhex("62f1744858c2") + RET
    assert report(leaf, "x86-64-v3", functions=[(0, 1)]).findings


def switch(entry: int, case: bytes) -> bytes:
    """A switch whose table stands in the code; every entry has the value `entry`."""
    head = bytes.fromhex("488d0d 08000000 48630481 4801c8 ffe0".replace(" ", ""))
    # lea rcx,[table]; movsxd rax,[rcx+rax*4]; add rax,rcx; jmp rax
    head = head[:3] + struct.pack("<i", len(head) - 7) + head[7:]
    table = struct.pack("<4i", entry, entry, entry, entry)
    filler = b"\x90" * (entry - len(table))
    return head + table + filler + case + RET


# As an offset, 0x1e2c4 is a case 123,588 bytes on; as code, c4 e2 01 00 is an AVX instruction.
LOOKS_LIKE_AVX = 0x1E2C4


def test_a_jump_table_is_not_code() -> None:
    assert struct.pack("<i", LOOKS_LIKE_AVX) == bytes.fromhex("c4e20100")
    assert not report(switch(LOOKS_LIKE_AVX, b"\x90"), "x86-64-v2").findings
    assert report(bytes.fromhex("c4e20100c4") + RET, "x86-64-v2").findings  # it is, when run


def test_what_a_jump_table_leads_to_is_code() -> None:
    (found,) = report(switch(16, bytes.fromhex("c5f458c2")), "x86-64-v2").findings
    assert found.text.startswith("vaddps ymm")


def test_a_table_outside_of_the_function_cuts_no_instruction_in_two() -> None:
    """Where it ends nobody says: the next function's table stands behind it.

    Seen in a real libllama.so: `fisttp` was read in the middle of `call`, and a good zip refused.
    """
    head = bytes.fromhex("488d0d 11000000 48630481 4801c8 ffe0".replace(" ", ""))
    call = bytes.fromhex("e8eddf0e00")  # two bytes on it reads `fisttp word ptr [rsi]`, SSE3
    function = head + call + RET
    table = struct.pack("<3i", 16 - 24, 18 - 24, 0x7FFFFFFF)  # ours, another's, nobody's
    code = function + b"\xcc" * 2 + table
    assert not report(code, "x86-64", functions=[(0, len(function))]).findings
    # What only a table reaches is read all the same.
    case = bytes.fromhex("c5f458c2")  # vaddps ymm
    function = head + case + RET
    code = function + b"\xcc" * 3 + struct.pack("<2i", 16 - 24, 0x7FFFFFFF)
    (found,) = report(code, "x86-64-v2", functions=[(0, len(function))]).findings
    assert found.text.startswith("vaddps ymm")


def test_third_party_dispatchers_are_named_one_by_one() -> None:
    assert "CPUID" in dispatcher_reason("libscipy_openblas64_.dll")
    assert "CPUID" in dispatcher_reason("CUBLASLT64_12.DLL")
    for ours in ("ggml-cpu.dll", "llama-server.exe", "libllama.so.0", "libggml-cuda.so"):
        assert dispatcher_reason(ours) == ""
