"""The nvcc toolchain on machines that are described, not there: plans, layouts, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.cli.main import run
from qbuild.cuda import toolkit
from qbuild.cuda.toolkit import HostCompiler, Machine, Toolkit
from qbuild.errors import ToolchainError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.bundle_facts import cuda_compiler
from qbuild.steps.captured import capture
from qbuild.steps.plan import Plan, make_plan
from qbuild.toolchains.base import Context, Place, WorkTree
from qbuild.toolchains.nvcc import Nvcc

LOCK = load_lock(resources.lockfile())
NVCC = "toolchain.name=nvcc"


@pytest.fixture(autouse=True)
def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine be the one that is described here, wherever the tests run."""
    monkeypatch.setattr("qbuild.host.platform_key", lambda: "linux-x86_64")
    monkeypatch.setattr("qbuild.host.system", lambda: "linux")


def kit(version: str, root: str = "/opt/cuda", *, cublas: bool = True) -> Toolkit:
    stamp = (("bin/nvcc", 1, 2), ("nvvm/bin/cicc", 3, 4))
    return Toolkit(root=root, version=version, found="CUDA_HOME", cublas=cublas, stamp=stamp)


def compiler(kind: str, version: str) -> HostCompiler:
    return HostCompiler(kind=kind, cc="/usr/bin/cc", cxx="/usr/bin/c++", version=version)


def machine(*kits: Toolkit, host: HostCompiler | None = None, problem: str = "") -> Machine:
    return Machine(
        toolkits=kits,
        compilers=(host or compiler("gcc", "12.2.0"),),
        problems=(problem,) if problem else (),
    )


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch):
    def install(found: Machine) -> None:
        monkeypatch.setattr(toolkit, "capture", lambda: found)

    return install


def plan(name: str, *overrides: str, host: str = "linux-x86_64") -> Plan:
    recipe = load_recipe(name, os="linux", overrides=[NVCC, *overrides])
    return make_plan(recipe, LOCK, host=host, captured=capture(recipe))


def test_a_plan_names_compilers_and_pinned_libraries(on) -> None:
    on(machine(kit("12.4.131")))
    found = plan("gtx1060", "bundle.cublas=bundled")
    described = found["configure"].inputs["toolchain"]
    assert described["toolkit"] == "12.4"
    assert described["host-compiler"] == "gcc 12.2.0"
    assert described["programs"]["/opt/cuda/nvvm/bin/cicc"] == [3, 4]
    assert {w.project: w.version for w in found.wheels if "nvidia" in w.project} == {
        "nvidia-cuda-runtime-cu12": "12.9.79",
        "nvidia-cublas-cu12": "12.4.5.8",
    }
    assert found.find("cuda-tree") is None
    assert cuda_compiler(found["configure"].inputs["toolchain"]) == "nvcc 12.4"
    entries = found["configure"].inputs["cache"]
    assert "GGML_CUDA_CLANG" not in entries
    assert entries["GGML_CUDA_COMPRESSION_MODE"] == "speed"
    assert entries["GGML_CUDA_DRIVER_DYNAMIC"] is True
    assert entries["GGML_CUDA_NCCL"] is False
    assert entries["GGML_BACKEND_DL"] is True
    assert entries["CMAKE_CUDA_ARCHITECTURES"] == "61-real"


def test_without_cublas_nothing_of_it_is_fetched_or_asked_for(on) -> None:
    on(machine(kit("12.4.131", cublas=False)))
    found = plan("gtx1060")
    assert [w.project for w in found.wheels if "nvidia" in w.project] == [
        "nvidia-cuda-runtime-cu12"
    ]
    assert found["configure"].inputs["cache"]["GGML_CUDA_OWN_BLAS"] is True
    with pytest.raises(ToolchainError, match="without cuBLAS"):
        plan("gtx1060", "bundle.cublas=bundled")


def test_another_compiler_is_another_build(on) -> None:
    keys = set()
    for found in (
        machine(kit("12.4.131")),
        machine(kit("12.9.86")),
        machine(kit("12.4.131"), host=compiler("gcc", "13.3.0")),
        machine(kit("12.4.131", "/opt/other")),
    ):
        on(found)
        keys.add(plan("gtx1060")["configure"].key)
    assert len(keys) == 4


def test_the_libraries_may_stay_with_the_user(on) -> None:
    on(machine(kit("13.0.88")))
    found = plan("a100", "bundle.cuda_runtime=separate")
    assert not [w for w in found.wheels if "nvidia" in w.project]
    assert found.toolchain.provides() == {}


@pytest.mark.parametrize(
    ("version", "seeded"),
    [("12.4.131", False), ("12.8.93", False), ("12.9.86", True), ("13.0", True)],
)
def test_random_names_are_seeded_where_nvcc_can(on, version: str, seeded: bool) -> None:
    on(machine(kit(version)))
    layout = plan("a100", "bundle.cuda_runtime=separate")["configure"].inputs["layout"]
    assert ("--frandom-seed=<OBJECT>" in layout["toolchain_file"]) is seeded


def test_cmake_is_told_where_everything_is(on) -> None:
    on(machine(kit("12.9.86", "/opt/cuda-12")))
    found = plan("gtx1060")
    programs = {"cc": "/usr/bin/gcc", "c++": "/usr/bin/g++", "cuda-root": "/opt/cuda-12"}
    layout = found.toolchain.layout(Place(programs=programs, work="/place", cache_dir=""))
    assert layout.wrappers["nvcc"] == ["/opt/cuda-12/bin/nvcc"]
    assert "-ffile-prefix-map=/place/src=." in layout.wrappers["c++"]
    text = layout.toolchain_file
    assert 'CUDAToolkit_ROOT "/opt/cuda-12"' in text
    assert "CMAKE_CUDA_RUNTIME_LIBRARY Shared" in text
    assert 'CMAKE_CUDA_HOST_COMPILER "${CMAKE_CURRENT_LIST_DIR}/tools/c++"' in text


def test_a_store_with_a_blank_is_refused(on, tmp_path: Path) -> None:
    """CMake splits the host compiler's path there, and says something else."""
    on(GOOD)
    work = tmp_path / "my store"
    with pytest.raises(ToolchainError) as caught:
        plan("gtx1060").toolchain.prepare(WorkTree(unpacked={}, work=work, cache_dir=tmp_path))
    assert "nvcc cannot build in a folder whose path holds ' '" in caught.value.what
    assert caught.value.where == str(work)
    assert "--store" in (caught.value.fix or "")
    assert not work.exists()


def test_a_script_names_this_machines_compilers(on, capsys: pytest.CaptureFixture[str]) -> None:
    on(machine(kit("12.9.86", "/opt/cuda-12")))
    assert run(["plan", "gtx1060", "--os", "linux", "--set", NVCC, "--script", "sh"]) == 0
    out = capsys.readouterr().out
    assert "/opt/cuda-12/bin/nvcc" in out
    assert 'CMAKE_CUDA_HOST_COMPILER "${CMAKE_CURRENT_LIST_DIR}/tools/c++"' in out
    assert "fatbinary" not in out


GOOD = machine(kit("12.9.86"))
SEPARATE = ["--set", "bundle.cuda_runtime=separate"]


@pytest.mark.parametrize(
    ("found", "words", "code", "what", "fix"),
    [
        # nothing there, or not what it should be
        (Machine(), ["gtx1060"], 7, "this machine has no CUDA toolkit", "install CUDA 12.9"),
        (
            Machine(problems=("CUDA_HOME names /opt/x, which is no folder",)),
            ["gtx1060"],
            7,
            "CUDA_HOME names /opt/x, which is no folder",
            "clang-cuda",
        ),
        (
            Machine(problems=("CUDA_HOME names /opt/x, which holds no bin/nvcc",)),
            ["a100"],
            7,
            "which holds no bin/nvcc",
            "let CUDA_HOME name its folder",
        ),
        (machine(kit("")), ["gtx1060"], 7, "nvcc does not say its version", "install it again"),
        (
            machine(kit("12.9", cublas=False)),
            ["gtx1060", "--set", "bundle.cublas=bundled"],
            7,
            "without cuBLAS",
            "libcublas",
        ),
        (
            machine(dataclasses.replace(kit("12.9"), static=False)),
            ["gtx1060"],
            7,
            "without libcudart_static.a and libcudadevrt.a",
            "runtime's development package",
        ),
        (machine(kit("12.9", "/opt/a;b")), ["gtx1060"], 7, "path holds ';'", "link to it"),
        (machine(kit("12.9", "/opt/CUDA 12")), ["gtx1060"], 7, "path holds ' '", "link to it"),
        (machine(kit("12.9", "/opt/$x")), ["gtx1060"], 7, "path holds '$'", "link to it"),
        (Machine(toolkits=(kit("12.9"),)), ["gtx1060"], 7, "no gcc and no clang", "install gcc"),
        # architecture x toolkit
        (machine(kit("13.0.88")), ["gtx1060"], 7, "no longer compiles for architecture 61", "12.9"),
        (
            machine(kit("13.0.88")),
            ["a100", "--cuda-arch", "70", *SEPARATE],
            7,
            "architecture 70 (Volta)",
            "use CUDA 12.9",
        ),
        (
            machine(kit("12.4.131")),
            ["a100", "--cuda-arch", "RTX 5090", *SEPARATE],
            7,
            "architecture 120a (Blackwell) yet",
            "use CUDA 12.8",
        ),
        (
            machine(kit("12.9.86")),
            ["a100", "--cuda-arch", "110-real", *SEPARATE],
            7,
            "architecture 110 (Blackwell (Thor)) yet",
            "use CUDA 13.0",
        ),
        (machine(kit("10.2")), ["gtx1060"], 7, "CUDA 10.2 is older than", "11.8"),
        (machine(kit("14.1")), ["a100"], 7, "CUDA 14.1 is newer than", "13.0"),
        (
            machine(kit("13.0"), kit("11.2", "/opt/old")),
            ["gtx1060"],
            7,
            "/opt/old: CUDA 11.2 is older than",
            "use CUDA 12.9",
        ),
        # toolkit x host compiler
        (
            machine(kit("12.4.131"), host=compiler("gcc", "14.2.0")),
            ["gtx1060"],
            7,
            "nvcc of CUDA 12.4.131 does not accept gcc 14.2.0: 13 is its newest",
            "use gcc 13 or older, or CUDA 12.8 or newer",
        ),
        (
            machine(kit("12.9.86"), host=compiler("gcc", "15.1.0")),
            ["gtx1060"],
            7,
            "does not accept gcc 15.1.0",
            "CUDA 13.0 or newer",
        ),
        (
            machine(kit("13.0.88"), host=compiler("gcc", "16.1.0")),
            ["a100", *SEPARATE],
            7,
            "does not accept gcc 16.1.0",
            "use gcc 15 or older",
        ),
        (
            machine(kit("12.4.131"), host=compiler("clang", "18.1.8")),
            ["gtx1060"],
            7,
            "does not accept clang 18.1.8",
            "CUDA 12.6 or newer",
        ),
        (
            machine(kit("11.8"), host=compiler("gcc", "12.2.0")),
            ["gtx1060"],
            7,
            "CUDA 11.8 does not accept gcc 12.2.0: 11 is its newest",
            "CUDA 12.1 or newer",
        ),
        # target and libraries
        (
            GOOD,
            ["gtx1060", "--os", "windows"],
            7,
            "nvcc on linux cannot build for windows",
            "clang-cuda",
        ),
        (
            machine(kit("13.0.88")),
            ["a100"],
            7,
            "pins NVIDIA's libraries of CUDA 12, not those that a build with CUDA 13.0.88 needs",
            "bundle.cuda_runtime=separate",
        ),
        (
            machine(kit("11.8"), host=compiler("gcc", "11.4")),
            ["gtx1060"],
            7,
            "of CUDA 12, not",
            "CUDA 12",
        ),
        (
            GOOD,
            ["gtx1060", "--set", "cuda.driver='500.1'", "--set", "bundle.cublas=bundled"],
            7,
            "no pinned cuBLAS will do",
            "newer driver",
        ),
        (
            GOOD,
            [
                *["a100", "--cuda-arch", "RTX 5090", "--set", "cuda.driver='528.33'"],
                *["--set", "bundle.cublas=bundled"],
            ],
            7,
            "12.9.1.4 needs driver 550.54.14",
            "promise a newer driver",
        ),
        (
            GOOD,
            ["a100", "--set", "patches.series=['own-blas']"],
            7,
            "nvcc needs the patch series nvcuda",
            "add it",
        ),
        # recipes that make no sense with it
        (GOOD, ["avx2"], 3, "is empty, and the nvcc toolchain compiles CUDA code", "zig toolchain"),
        (GOOD, ["a100", "--set", "build.linkage=static"], 3, "must be shared", ""),
        (
            GOOD,
            ["a100", "--set", "build.options.CMAKE_CUDA_COMPILER=/usr/bin/nvcc"],
            3,
            "is decided by qbuild",
            "toolchain.name",
        ),
        (
            GOOD,
            ["a100", "--set", "build.options.CMAKE_CUDA_FLAGS=--finite"],
            3,
            "is decided by qbuild",
            "determinism",
        ),
        (
            GOOD,
            ["a100", "--script", "cmd"],
            2,
            "no cmd script for the nvcc toolchain",
            "--script sh",
        ),
    ],
)
def test_bad_combinations(
    on, found: Machine, words: list[str], code: int, what: str, fix: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    on(found)
    system = [] if "--os" in words else ["--os", "linux"]
    assert run(["plan", *words, *system, "--set", NVCC]) == code
    err = " ".join(capsys.readouterr().err.split())
    assert what in err
    assert fix in err
    assert "Traceback" not in err


def test_nvcc_on_windows_is_named(on) -> None:
    on(GOOD)
    recipe = load_recipe("gtx1060", os="windows", overrides=[NVCC])
    with pytest.raises(ToolchainError) as caught:
        make_plan(recipe, LOCK, host="windows-x86_64")
    assert "nvcc on windows needs MSVC" in caught.value.what
    assert "clang-cuda" in (caught.value.fix or "")
    with pytest.raises(ToolchainError, match="nvcc on windows cannot build for linux"):
        plan("a100", host="windows-x86_64")
    linux = load_recipe("a100", overrides=[NVCC])
    with pytest.raises(ToolchainError, match="cannot be compiled on darwin"):
        Nvcc(Context(recipe=linux, lock=LOCK, host="darwin-arm64")).wheels()


def _lockfile(tmp_path: Path, *changes: tuple[str, str]) -> str:
    text = resources.lockfile().read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "qbuild.lock").write_text(text, encoding="utf-8")
    return str(tmp_path / "qbuild.lock")


@pytest.mark.parametrize(
    ("project", "says"),
    [
        ("nvidia-cuda-nvcc-cu12", "pins no wheel of `nvidia-cuda-nvcc-cu12`"),
        ("nvidia-nvfatbin-cu12", "pins no wheel of `nvidia-nvfatbin-cu12`"),
        ("nvidia-cublas-cu12", "pins no wheel of `nvidia-cublas-cu12`"),
        ("clang-tidy", "pins no wheel of `clang-tidy`"),
    ],
)
def test_a_wheel_that_is_not_pinned(
    tmp_path: Path, project: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stem = project.replace("-", "_")
    lock = _lockfile(tmp_path, (f'"{project}"', f'"x-{project}"'), (f'"{stem}-', f'"x_{stem}-'))
    words = ["--set", "bundle.cublas=bundled"]
    assert run(["plan", "gtx1060", "--lockfile", lock, *words]) == 4
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_another_zig_than_the_flags_were_written_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = _lockfile(tmp_path, ("ziglang-0.17.1", "ziglang-0.18.0"), ('"0.17.1"', '"0.18.0"'))
    assert run(["plan", "gtx1060", "--lockfile", lock]) == 7
    assert "written for ziglang 0.17.1, not 0.18.0" in capsys.readouterr().err
