"""Installed toolkits: what files and programs say, and which one is taken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from qbuild import host
from qbuild.cuda import toolkit
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.toolkit import HostCompiler, Machine, Toolkit, choose
from qbuild.errors import ToolchainError
from support.links import make_link

NVCC_SAYS = """nvcc: NVIDIA (R) Cuda compiler driver
Cuda compilation tools, release 12.4, V12.4.131
Build cuda_12.4.r12.4/compiler.34097967_0
"""


def kit(version: str, root: str = "", **changes: bool) -> Toolkit:
    fields = {"cublas": True} | changes
    return Toolkit(root=root or f"/opt/cuda-{version}", version=version, found="PATH", **fields)


def gcc(version: str) -> HostCompiler:
    return HostCompiler(
        kind="gcc", cc="/usr/bin/gcc", cxx=f"/usr/bin/g++-{version}", version=version
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('{"cuda": {"version": "12.9.1"}, "cuda_nvcc": {"version": "12.9.86"}}', "12.9.86"),
        ('{"cuda": {"version": "12.9.1"}}', "12.9.1"),
        ('{"cuda_nvcc": {"version": 12}}', ""),
        ('{"cuda_nvcc": {"version": "newest"}}', ""),
        ("[]", ""),
        ("{", ""),
        ("", ""),
    ],
)
def test_version_file(text: str, version: str) -> None:
    assert toolkit.version_in_json(text) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (NVCC_SAYS, "12.4.131"),
        ("Cuda compilation tools, release 9.0", "9.0"),
        ("bash: nvcc: cannot execute binary file", ""),
        ("", ""),
    ],
)
def test_version_of_nvcc(text: str, version: str) -> None:
    assert toolkit.version_in_output(text) == version


def test_the_folder_that_a_script_named_nvcc_stands_for() -> None:
    said = "#$ _HERE_=/opt/cuda/bin\n#$ TOP=/opt/cuda/bin/..\n#$ CICC_PATH=/opt/x\n"
    assert toolkit.top_in_output(said, "/") == str(Path("/opt/cuda"))
    assert toolkit.top_in_output("#$ TOP=cu da/bin/..\n", "/home/me") == str(Path("/home/me/cu da"))
    assert toolkit.top_in_output("not found", "/") == ""


def test_a_named_toolkit_is_the_only_one_looked_at() -> None:
    local = [
        "/usr/local/cuda-9.2",
        "/usr/local/cuda",
        "/usr/local/cuda-12.10",
        "/usr/local/cuda-12.9",
    ]
    assert toolkit.places({}, local) == [
        ("/usr/local/cuda", "/usr/local"),
        ("/usr/local/cuda-12.10", "/usr/local"),
        ("/usr/local/cuda-12.9", "/usr/local"),
        ("/usr/local/cuda-9.2", "/usr/local"),
    ]
    both = {"CUDA_PATH": "/b", "CUDA_HOME": "/a"}
    assert toolkit.places(both, local) == [("/a", "CUDA_HOME")]
    assert toolkit.places({"CUDA_HOME": "", "CUDA_PATH": "/b"}, local) == [("/b", "CUDA_PATH")]


def _folder(root: Path, *, version: str | None = "12.9.86", names: Sequence[str] = ()) -> Path:
    every = names or (
        "bin/nvcc",
        "include/cuda_runtime.h",
        "include/cublas_v2.h",
        "lib64/libcublas.so",
    )
    for name in every:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    if version is not None:
        text = json.dumps({"cuda_nvcc": {"version": version}})
        (root / "version.json").write_text(text, encoding="utf-8")
    return root


def test_reads_a_folder_with_a_blank_in_its_name(tmp_path: Path) -> None:
    root = _folder(tmp_path / "CUDA 12")
    read = toolkit.read_toolkit(root, "CUDA_HOME", lambda words: pytest.fail(f"ran {words}"))
    assert isinstance(read, Toolkit)
    assert (read.version, read.cublas, read.root) == ("12.9.86", True, str(root))
    assert [name for name, _, _ in read.stamp] == ["bin/nvcc"]


def test_nvcc_is_asked_where_no_file_says_the_version(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def run(words: Sequence[str]) -> str:
        asked.append(list(words))
        return NVCC_SAYS

    for version in (None, "nonsense"):
        read = toolkit.read_toolkit(_folder(tmp_path, version=version), "PATH", run)
        assert isinstance(read, Toolkit)
        assert read.version == "12.4.131"
    assert asked == [[str(tmp_path / "bin" / "nvcc"), "--version"]] * 2


def test_a_toolkit_without_cublas(tmp_path: Path) -> None:
    names = ("bin/nvcc", "include/cuda_runtime.h", "include/cublas_v2.h")
    read = toolkit.read_toolkit(_folder(tmp_path, names=names), "PATH")
    assert isinstance(read, Toolkit)
    assert not read.cublas
    assert not read.static
    for name in ("libcudart_static.a", "libcudadevrt.a"):
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / name).write_bytes(b"")
    again = toolkit.read_toolkit(tmp_path, "PATH")
    assert isinstance(again, Toolkit)
    assert again.static


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), "which is no folder"),
        (("include/cuda_runtime.h",), "which holds no bin/nvcc"),
        (("bin/nvcc",), "not the CUDA runtime's headers"),
    ],
)
def test_what_is_no_toolkit(tmp_path: Path, names: tuple[str, ...], says: str) -> None:
    root = tmp_path / "cuda"
    if names:
        _folder(root, names=names)
    read = toolkit.read_toolkit(root, "CUDA_HOME")
    assert isinstance(read, str)
    assert says in read
    assert str(root) in read


def test_the_first_toolkit_that_will_do() -> None:
    machine = Machine(
        toolkits=(kit("13.0.88"), kit("12.4.131"), kit("12.9.86")),
        compilers=(gcc("14.2.0"), gcc("13.3.0")),
    )
    pascal, hopper = parse_archs(["61-real"]), parse_archs(["90-real"])
    assert choose(machine, hopper)[0].version == "13.0.88"
    chosen, compiler = choose(machine, pascal)
    assert (chosen.version, compiler.version) == ("12.4.131", "13.3.0"), "its gcc is looked for"
    only14 = Machine(toolkits=machine.toolkits, compilers=machine.compilers[:1])
    assert choose(only14, pascal)[0].version == "12.9.86"


def test_reasons_are_told_for_each_toolkit() -> None:
    machine = Machine(toolkits=(kit("13.0"), kit("12.4", cublas=False)), compilers=(gcc("12.2"),))
    with pytest.raises(ToolchainError) as caught:
        choose(machine, parse_archs(["61-real"]), where="recipe x")
    assert "none of this machine's CUDA toolkits will do" in caught.value.what
    assert "/opt/cuda-13.0: CUDA 13.0 no longer compiles for architecture 61" in caught.value.what
    assert "/opt/cuda-12.4: CUDA 12.4 is installed without cuBLAS" in caught.value.what
    assert "use CUDA 12.9" in (caught.value.fix or "")


def test_compilers_are_asked_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(name: str) -> Path:
        return tmp_path / host.program_name(name)

    for name in ("gcc-12", "g++-12", "clang", "clang++", "gcc-13"):
        program(name).write_bytes(b"")
        program(name).chmod(0o755)
    for name in ("gcc", "g++"):
        make_link(program(name), program(f"{name}-12"))
    monkeypatch.setenv("PATH", str(tmp_path))
    said = {"g++-12": "12.2.0\n", "g++": "12.2.0\n", "clang++": "clang: error\n"}
    found = toolkit.find_compilers(lambda words: said[Path(words[0]).name.partition(".")[0]])
    assert [(each.kind, each.version) for each in found] == [("gcc", "12.2.0")]
    assert found[0].cxx == str(program("g++-12"))
    assert found[0].cc == str(program("gcc-12"))
