"""CPU level on real compiled programs: what must be refused is, by name, and nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.verify_zips import COMMIT, Made, check, findings

ZIG = os.environ.get("QBUILD_TEST_ZIG", "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not ZIG, reason="QBUILD_TEST_ZIG names no zig"),
]

TRIPLE = {"linux": "x86_64-linux-gnu.2.28", "windows": "x86_64-windows-gnu"}
CPU = {"x86-64-v2": "x86_64_v2", "x86-64-v3": "x86_64_v3"}

# No C runtime: zig compiles that per CPU and target, which takes minutes for Windows.
PROGRAM = f"""
const char *volatile commit = "{COMMIT[:9]}";
static volatile int seen;
__attribute__((noinline)) static int choose(int n) {{
    switch (n) {{
        case 0: seen = 7; return 1; case 1: seen = n; return 5; case 2: seen = -n; return 8;
        case 3: seen = n * n; return 2; case 4: seen ^= n; return 9; case 5: return seen;
        case 6: seen = n + 3; return 4; case 7: return -seen; default: return n;
    }}
}}
__attribute__((noinline)) static void work(void) {{ BODY }}
int ENTRY(void) {{
    work();
    return choose(seen + commit[0]) < 0;
}}
"""
ENTRY = {"linux": "_start", "windows": "wWinMainCRTStartup"}

# A function that jumps through a table lying in .text whose entries look like `vaddps zmm`:
# offsets 0x487cf162 are the bytes 62 f1 7c 48, the start of an EVEX instruction.
TABLE_IN_TEXT = r"""
__asm__(
    ".text\n"
    ".globl tabled\n"
    "tabled:\n"
    ".seh_proc tabled\n"
    ".seh_endprologue\n"
    "  cmpl $3, %ecx\n"
    "  ja 1f\n"
    "  leaq 2f(%rip), %rax\n"
    "  movslq (%rax,%rcx,4), %rcx\n"
    "  addq %rcx, %rax\n"
    "  jmpq *%rax\n"
    ".p2align 2\n"
    "2: .long 1f-2b, 1f-2b, 1f-2b, 1f-2b\n"
    "  .byte 0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc0\n"
    ".p2align 4\n"
    "1: xorl %eax, %eax\n"
    "  ret\n"
    ".seh_endproc\n");
extern int tabled(void);
"""


@pytest.fixture(scope="module")
def zig_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    given = os.environ.get("QBUILD_TEST_ZIG_CACHE")
    return given or str(tmp_path_factory.mktemp("zig-cache"))


def compile_program(
    folder: Path, cache: str, *, os: str, cpu: str, body: str, before: str = ""
) -> bytes:
    source = folder / "main.c"
    program = PROGRAM.replace("BODY", body).replace("ENTRY", ENTRY[os])
    if os == "linux":
        before = before.replace(".seh_proc tabled", ".cfi_startproc")
        before = before.replace(".seh_endprologue", "").replace(".seh_endproc", ".cfi_endproc")
    source.write_text(before + program)
    made = folder / ("main.exe" if os == "windows" else "main")
    subprocess.run(
        [ZIG, "cc", "-target", TRIPLE[os], f"-mcpu={CPU[cpu]}", "-O2", "-g0", "-s", "-nostdlib",
         "-funwind-tables", "-fno-stack-protector", "-o", made.name, "main.c"],
        check=True, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder),
                                     "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
    )  # fmt: skip
    return made.read_bytes()


def bundle(os: str, cpu: str, program: bytes) -> Made:
    name = "llama-cli.exe" if os == "windows" else "llama-cli"
    return Made(os=os, cpu=cpu, recipe="test", files={name: program})


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_a_program_within_its_level_is_accepted(
    tmp_path: Path, zig_cache: str, os: str, cpu: str
) -> None:
    program = compile_program(tmp_path, zig_cache, os=os, cpu=cpu, body="")
    verdict = bundle(os, cpu, program).verify(tmp_path)
    assert verdict.ok, verdict.render()
    assert check(verdict, "cpu").status == "passed"


ABOVE = {
    "zmm": ("x86-64-v3", "vaddps %%zmm1, %%zmm2, %%zmm0", "vaddps"),
    "evex128": ("x86-64-v3", "vaddps %%xmm17, %%xmm2, %%xmm0", "vaddps"),
    "mask": ("x86-64-v3", "kmovw %%eax, %%k1", "kmovw"),
    "vnni": ("x86-64-v3", "%{vex%} vpdpbusd %%ymm1, %%ymm2, %%ymm0", "vpdpbusd"),
    "bmi2": ("x86-64-v2", "pdepq %%rax, %%rcx, %%rdx", "pdep"),
    "bmi2-shift": ("x86-64-v2", "shlxl %%eax, %%ecx, %%edx", "shlx"),
    "fma": ("x86-64-v2", "vfmadd231ps %%xmm1, %%xmm2, %%xmm0", "vfmadd231ps"),
    "avx": ("x86-64-v2", "vaddps %%xmm1, %%xmm2, %%xmm0", "vaddps"),
    "f16c": ("x86-64-v2", "vcvtph2ps %%xmm1, %%xmm0", "vcvtph2ps"),
    "lzcnt": ("x86-64-v2", "lzcntl %%eax, %%ecx", "lzcnt"),
}


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize("kind", ABOVE)
def test_one_instruction_above_the_level_is_refused_by_name(
    tmp_path: Path, zig_cache: str, os: str, kind: str
) -> None:
    cpu, instruction, mnemonic = ABOVE[kind]
    body = f'__asm__ volatile("{instruction}" ::: "rax", "rcx", "rdx", "xmm0");'
    program = compile_program(tmp_path, zig_cache, os=os, cpu=cpu, body=body)
    verdict = bundle(os, cpu, program).verify(tmp_path)
    assert [item.id for item in verdict.failed] == ["cpu"], verdict.render()
    assert "llama-cli" in findings(verdict)
    assert mnemonic in findings(verdict)


@pytest.mark.parametrize("os", ["linux", "windows"])
def test_the_same_instructions_are_fine_one_level_up(
    tmp_path: Path, zig_cache: str, os: str
) -> None:
    body = "".join(
        f'__asm__ volatile("{text}" ::: "rax", "rcx", "rdx", "xmm0");'
        for cpu, text, _ in ABOVE.values()
        if cpu == "x86-64-v2"
    )
    program = compile_program(tmp_path, zig_cache, os=os, cpu="x86-64-v3", body=body)
    verdict = bundle(os, "x86-64-v3", program).verify(tmp_path)
    assert verdict.ok, verdict.render()


@pytest.mark.parametrize("os", ["linux", "windows"])
def test_a_jump_table_in_text_is_no_false_alarm(tmp_path: Path, zig_cache: str, os: str) -> None:
    program = compile_program(
        tmp_path, zig_cache, os=os, cpu="x86-64-v3", body="tabled();", before=TABLE_IN_TEXT
    )
    assert bytes.fromhex("62f17c4858c0") in program
    verdict = bundle(os, "x86-64-v3", program).verify(tmp_path)
    assert verdict.ok, verdict.render()
