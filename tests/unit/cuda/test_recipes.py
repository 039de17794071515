"""CUDA recipes: what they resolve to, and what is refused before anything is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild import resources
from qbuild.cli.common import cuda_archs
from qbuild.console import Silent
from qbuild.cuda import runtime
from qbuild.cuda.arch import parse_archs
from qbuild.errors import RecipeError, ToolchainError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.builder import Builder
from qbuild.steps.options import BuildOptions
from qbuild.steps.plan import Plan, make_plan
from qbuild.store import Store

LOCK = load_lock(resources.lockfile())
BUNDLED = "bundle.cublas=bundled"


def plan(name: str, *overrides: str, os: str | None = None, host: str = "linux-x86_64") -> Plan:
    return make_plan(load_recipe(name, os=os, overrides=overrides), LOCK, host=host)


def wheels(found: Plan) -> dict[str, str]:
    return {wheel.project: f"{wheel.version} {wheel.platform}" for wheel in found.wheels}


def test_programs_are_the_hosts_libraries_the_targets() -> None:
    have = wheels(plan("gtx1060", "bundle.cublas=bundled"))
    assert have["nvidia-cuda-nvcc-cu12"] == "12.9.86 linux-x86_64"
    assert have["nvidia-cuda-runtime-cu12"] == "12.9.79 windows-x86_64"
    assert have["nvidia-cublas-cu12"] == "12.4.5.8 windows-x86_64"
    other = wheels(plan("a100", "bundle.cublas=separate", host="windows-x86_64"))
    assert other["nvidia-cuda-nvcc-cu12"] == "12.9.86 windows-x86_64"
    assert other["nvidia-cublas-cu12"] == "12.4.5.8 linux-x86_64"


@pytest.mark.parametrize("name", ["gtx1060", "a100", "pascal-to-blackwell"])
def test_without_cublas_nothing_of_it_is_fetched_linked_or_shipped(name: str) -> None:
    found = plan(name)
    assert "nvidia-cublas-cu12" not in wheels(found)
    assert found["configure"].inputs["cache"]["GGML_CUDA_OWN_BLAS"] is True
    assert not [file for file in found.toolchain.provides() if "cublas" in file]
    assert any("cudart" in file for file in found.toolchain.provides())


@pytest.mark.parametrize("name", ["gtx1060", "a100"])
def test_a_cold_build_fetches_at_most_310_mb_without_the_web_ui(name: str) -> None:
    """The git objects of the source are 76 MB more than the lockfile's sizes say."""
    found = plan(name, "build.ui=false")
    assert sum(wheel.size for wheel in found.wheels) + 76e6 <= 310e6


@pytest.mark.parametrize("cublas", ["none", "separate", "bundled"])
@pytest.mark.parametrize("cudart", ["separate", "bundled"])
def test_what_is_inside_by_where_nvidias_libraries_come_from(cudart: str, cublas: str) -> None:
    words = (f"bundle.cuda_runtime={cudart}", f"bundle.cublas={cublas}")
    if (cudart, cublas) == ("separate", "bundled"):
        with pytest.raises(RecipeError, match="leaves out what it needs"):
            plan("gtx1060", *words)
        return
    found = plan("gtx1060", *words)
    inside = {name.partition("64_")[0] for name in found.toolchain.provides()}
    expected = {"cudart"} if cudart == "bundled" else set()
    assert inside == expected | ({"cublas", "cublasLt"} if cublas == "bundled" else set())
    assert ("GGML_CUDA_OWN_BLAS" in found["configure"].inputs["cache"]) is (cublas == "none")


def test_cublas_goes_with_the_runtime_where_only_that_is_named(tmp_path: Path) -> None:
    text = resources.recipes_dir().joinpath("gtx1060.toml").read_text(encoding="utf-8")
    own = tmp_path / "gtx1060.toml"
    own.write_text(text.replace('cublas = "none"', 'cuda_runtime = "separate"'), encoding="utf-8")
    assert load_recipe(str(own)).bundle.cublas == "separate"


def test_on_the_command_line_cublas_goes_with_the_runtime_too(tmp_path: Path) -> None:
    words = ["bundle.cuda_runtime=separate"]
    text = resources.recipes_dir().joinpath("gtx1060.toml").read_text(encoding="utf-8")
    own = tmp_path / "gtx1060.toml"
    own.write_text(text.replace('cublas = "none"', 'cublas = "bundled"'), encoding="utf-8")
    assert load_recipe(str(own), overrides=words).bundle.cublas == "separate"
    assert load_recipe("gtx1060", overrides=words).bundle.cublas == "none"


def test_no_cublas_without_the_kernels_that_stand_in_for_it() -> None:
    with pytest.raises(RecipeError, match=r"patches\.series lacks own-blas"):
        load_recipe("gtx1060", overrides=["patches.series=['cuda-clang', 'nvcuda']"])


def test_blackwell_takes_the_larger_cublas() -> None:
    words = ("bundle.cublas=bundled", "cuda.driver='551.61'")
    assert wheels(plan("pascal-to-blackwell", *words))["nvidia-cublas-cu12"].startswith("12.9.1.4 ")


def test_cmake_is_told_of_the_architectures() -> None:
    entries = plan("a100")["configure"].inputs["cache"]
    assert entries["CMAKE_CUDA_ARCHITECTURES"] == "80-real"
    assert entries["GGML_CUDA_FA_QUANTS"] == "q4_0-q4_0,q8_0-q8_0,bf16-bf16"
    assert entries["GGML_CUDA_NO_PEER_COPY"] is False
    assert entries["GGML_BACKEND_DL"] is True
    assert "GGML_CUDA" not in plan("avx2")["configure"].inputs["cache"]


def test_the_tree_is_a_step_of_its_own() -> None:
    windows, linux = plan("gtx1060"), plan("gtx1060", os="linux")
    assert windows["cuda-tree"].key != linux["cuda-tree"].key
    assert plan("gtx1060", "cuda.architectures=['75-real']")["cuda-tree"] == windows["cuda-tree"]
    assert plan("avx2").find("cuda-tree") is None


def test_a_patch_to_the_server_leaves_kernels_in_the_compiler_cache(tmp_path: Path) -> None:
    """ccache sees sources and command lines; this is what else the objects depend on."""

    def id_of(found: Plan) -> str:
        return Builder(found, Store(tmp_path), Silent(), BuildOptions()).objects.compiler_id()

    gtx = id_of(plan("gtx1060"))
    fewer = 'patches.series=["windows-gnu", "no-https", "cuda-clang", "nvcuda", "own-blas"]'
    assert id_of(plan("gtx1060", fewer)) == gtx
    assert id_of(plan("gtx1060", BUNDLED)) == gtx, "cuBLAS is linked, not compiled in"
    assert len({gtx, id_of(plan("avx2", os="windows")), id_of(plan("avx2", os="linux"))}) == 3


def test_an_object_with_other_device_code_or_none_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ccache compares preprocessed texts, and these are equal: no macro of a command is in them."""
    monkeypatch.setattr(
        "qbuild.steps.object_cache.ObjectCache.launcher", lambda self: Path("ccache")
    )

    def check(*, device_code: bool = True, ptxas: str = "") -> str:
        found = make_plan(load_recipe("a100"), LOCK, host="linux-x86_64", device_code=device_code)
        if ptxas:
            found["configure"].inputs["toolchain"]["tree"]["wheels"]["nvidia-cuda-nvcc-cu12"] = (
                ptxas
            )
        made = Builder(found, Store(tmp_path), Silent(), BuildOptions())
        return made.objects.environment(tmp_path)["CCACHE_COMPILERCHECK"]

    assert len({check(), check(device_code=False), check(ptxas="another")}) == 3


@pytest.mark.parametrize(
    ("overrides", "what", "fix"),
    [
        (["cuda.architectures=['sm_61']"], "'sm_61' is not a CUDA architecture", "61-real"),
        (["cuda.architectures=['6.1']"], "is not a CUDA architecture", "61-real"),
        (["cuda.architectures=['native']"], "is not a CUDA architecture", "GPU of the build"),
        (["cuda.architectures=['62-cubin']"], "is not a CUDA architecture", "62-real"),
        (["cuda.architectures=['63-real']"], "there is no CUDA architecture 63", "nearest is 62"),
        (["cuda.architectures=['61-real', '61-virtual']"], "is there twice", "write 61 once"),
        (["cuda.architectures=['80a']"], "has no variant 80a", "write 80"),
        (["cuda.architectures=['120-real']"], "ggml compiles as 120a", "120a-real"),
        (["cuda.architectures=61"], "must be a list of string", None),
        (["cuda.architectures=[61]"], "must be string", None),
        (["cuda.architectures=[]"], "is empty, and the clang-cuda toolchain", "61-real"),
        (["toolchain.name=zig"], "which the zig toolchain does not compile", "clang-cuda"),
        (["toolchain.name=gcc"], "which the gcc toolchain does not compile", "clang-cuda"),
        (["cuda.kv_cache=['q4_0']"], "'q4_0' is not a pair of KV cache types", "q8_0-q8_0"),
        (["cuda.kv_cache=['q4_0-q3_k']"], "is not a pair of KV cache types", "q8_0-q8_0"),
        (["cuda.driver=newest"], "'newest' is not a version", "12.9"),
        (["cuda.arch=['61-real']"], "is not a key of this table", "architectures"),
        (["build.linkage=static"], "must be shared: the CUDA backend is loaded", None),
        (["build.type=RelWithDebInfo"], "must be Release", None),
        (["bundle.cuda_runtime=shared"], 'must be "bundled" or "separate"', None),
        (["build.options.GGML_CUDA=true"], "is decided by qbuild", "cuda.architectures"),
        (["build.options.GGML_CUDA_NCCL=true"], "is decided by qbuild", "NCCL"),
        (["build.options.CMAKE_CUDA_ARCHITECTURES=61"], "is decided by qbuild", "architectures"),
        (["build.options.GGML_CUDA_FA_QUANTS=all"], "is decided by qbuild", "cuda.kv_cache"),
    ],
)
def test_refused_recipes(overrides: list[str], what: str, fix: str | None) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("gtx1060", overrides=overrides)
    assert what in caught.value.what
    assert fix is None or fix in (caught.value.fix or "")
    assert caught.value.exit_code == 3


def test_cuda_keys_without_cuda() -> None:
    with pytest.raises(RecipeError, match="is about CUDA"):
        load_recipe("avx2", overrides=["bundle.cuda_runtime=separate"])


@pytest.mark.parametrize(
    ("name", "overrides", "host", "what"),
    [
        ("gtx1060", ["cuda.architectures=['110-real']"], "linux-x86_64", "12.9 does not compile"),
        ("gtx1060", ["cuda.architectures=['120f']"], "linux-x86_64", "family architecture 120f"),
        ("gtx1060", ["patches.series=['own-blas']"], "linux-x86_64", "cuda-clang and nvcuda"),
        ("gtx1060", ["cuda.driver='500.1'"], "linux-x86_64", "needs driver 528.33"),
        ("gtx1060", [BUNDLED, "cuda.driver='500.1'"], "linux-x86_64", "no pinned cuBLAS will do"),
        (
            "gtx1060",
            [BUNDLED, "cuda.architectures=['100-real']"],
            "linux-x86_64",
            "no device code for 100",
        ),
    ],
)
def test_refused_plans(name: str, overrides: list[str], host: str, what: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        plan(name, *overrides, host=host)
    assert what in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(
    ("words", "archs"),
    [
        (["61"], ["61-real"]),
        (["61-real,80-virtual"], ["61-real", "80-virtual"]),
        (["GTX 1060", "rtx 3060"], ["61-real", "86-real"]),
        (["120"], ["120a-real"]),
        (["RTX 5090"], ["120a-real"]),
        (["sm_61"], ["61-real"]),
    ],
)
def test_architectures_of_the_command_line(words: list[str], archs: list[str]) -> None:
    assert cuda_archs(words) == archs


def test_the_smallest_cublas_that_will_do() -> None:
    sizes = {"12.4.5.8": 397, "12.9.1.4": 553, "13.0.0": 1}

    def choose(archs: list[str], driver: str | None = None) -> str:
        return runtime.planned(sizes, parse_archs(archs), target="windows", driver=driver)

    assert choose(["61-real"]) == "12.4.5.8"
    assert choose(["61-real", "120a-real"]) == "12.9.1.4"
    assert choose(["61-real"], "528.33") == "12.4.5.8"
    with pytest.raises(ToolchainError, match=r"12\.9\.1\.4 needs driver 551\.61"):
        choose(["120a-real"], "528.33")
