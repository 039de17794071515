"""What a recipe may ask for: all that the types cannot say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from qbuild.cuda.arch import parse_archs
from qbuild.cuda.flags import check_kv_types
from qbuild.cuda.table import parse_version
from qbuild.errors import QbuildError
from qbuild.recipe import isa, launch
from qbuild.recipe.convert import KeyProblem
from qbuild.recipe.model import Recipe
from qbuild.recipe.toolchains import by_visual_studio, traits

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_TARGET = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
_OPTION = re.compile(r"[A-Z][A-Z0-9_]*")
_GLIBC = re.compile(r"2\.(\d{1,2})")
_TOOLSET = re.compile(r"14\.\d{2}(\.\d+)*")
_SDK = re.compile(r"10\.0\.\d{5}\.\d+")
_CUDA = re.compile(r"\d{2}\.\d{1,2}")

OWNED_OPTIONS = {
    "BLAS_INCLUDE_DIRS": "use `openblas.origin`",
    "BLAS_LIBRARIES": "use `openblas.origin`",
    "BUILD_SHARED_LIBS": "use `build.linkage`",
    "CMAKE_BUILD_TYPE": "use `build.type`",
    "CMAKE_MSVC_RUNTIME_LIBRARY": "use `toolchain.runtime`",
    "CMAKE_C_COMPILER": "use `toolchain.name`",
    "CMAKE_CXX_COMPILER": "use `toolchain.name`",
    "CMAKE_TOOLCHAIN_FILE": "use `toolchain.name`",
    "CMAKE_CUDA_ARCHITECTURES": "use `cuda.architectures`",
    "CMAKE_CUDA_COMPILER": "use `toolchain.name` and the variable CUDA_HOME",
    "CMAKE_CUDA_FLAGS": "determinism and mathematics are qbuild's and upstream's business",
    "CMAKE_CUDA_HOST_COMPILER": "the first compiler that the toolkit accepts is taken",
    "CMAKE_CUDA_RUNTIME_LIBRARY": "the bundle carries the shared runtime",
    "CMAKE_INSTALL_PREFIX": "qbuild chooses the stage folder",
    "FETCHCONTENT_FULLY_DISCONNECTED": "the build has no network",
    "GGML_BACKEND_DL": "loaded with CUDA or `target.variants`, linked otherwise",
    "GGML_CPU_ALL_VARIANTS": "use `target.variants`",
    "GGML_BLAS": "use `openblas.origin`",
    "GGML_BLAS_VENDOR": "use `openblas.origin`",
    "GGML_CUDA": "use `cuda.architectures`",
    "GGML_CUDA_CLANG": "use `toolchain.name`",
    "GGML_CUDA_CLANG_COMPILER": "use `toolchain.name`",
    "GGML_CUDA_CLANG_LIBRARIES": "use `toolchain.name`",
    "GGML_CUDA_DRIVER_DYNAMIC": "a bundle must load without a driver",
    "GGML_CUDA_FA_QUANTS": "use `cuda.kv_cache`",
    "GGML_CUDA_NCCL": "no pin holds NCCL",
    "GGML_CUDA_NO_PEER_COPY": "use `cuda.peer_copy`",
    "GGML_CUDA_OWN_BLAS": "use `bundle.cublas`",
    "GGML_CCACHE": "qbuild decides about compiler caches; see `--no-compiler-cache`",
    "GGML_NATIVE": "use `target.cpu` and `target.isa`: a bundle never depends on the build machine",
    "LLAMA_BUILD_COMMIT": "it is the pin's commit",
    "LLAMA_BUILD_NUMBER": "it comes from the lockfile",
    "LLAMA_BUILD_UI": "use `build.ui`",
    "LLAMA_USE_PREBUILT_UI": "use `build.ui`; prebuilt UIs are downloads that nothing pins",
}
"""CMake options a recipe may not set, and what to use instead."""


def check(recipe: Recipe, path: Path) -> None:
    """Check a recipe.

    Raises:
        KeyProblem: It asks for something impossible.
    """
    if recipe.schema != 1:
        raise KeyProblem(
            ("schema",), f"is {recipe.schema}; this qbuild reads schema 1", "update qbuild"
        )
    if not _NAME.fullmatch(recipe.name):
        raise KeyProblem(("name",), "must be lower-case letters, digits, `.`, `_` or `-`")
    if recipe.name != path.stem:
        raise KeyProblem(
            ("name",), f"is `{recipe.name}` but the file is `{path.name}`", "make them equal"
        )
    if not recipe.summary.strip() or "\n" in recipe.summary:
        raise KeyProblem(("summary",), "must be one line of text")
    if not recipe.supports:
        raise KeyProblem(("supports",), "must name at least one operating system")
    if recipe.target.os not in recipe.supports:
        raise KeyProblem(
            ("target", "os"),
            f"is `{recipe.target.os}`, which recipe `{recipe.name}` does not support",
            f"supported: {', '.join(recipe.supports)}",
        )
    if not _GLIBC.fullmatch(recipe.target.glibc):
        raise KeyProblem(("target", "glibc"), "must look like `2.28`")
    isa.check(recipe.target.cpu, recipe.target.isa)
    _check_variants(recipe)
    if "web-ui" in recipe.patches.series and not recipe.web_ui:
        raise KeyProblem(
            ("patches", "series"),
            "names `web-ui`, but no web UI is built",
            "leave it out: `build.ui = true` applies it by itself",
        )
    _check_msvc(recipe)
    if not recipe.build.targets:
        raise KeyProblem(("build", "targets"), "must name at least one CMake target")
    for index, name in enumerate(recipe.build.targets):
        if not _TARGET.fullmatch(name):
            raise KeyProblem(("build", "targets", str(index)), f"`{name}` is not a target name")
    for name in recipe.patches.series:
        if not _NAME.fullmatch(name):
            raise KeyProblem(("patches", "series"), f"`{name}` is not a series name")
    for name, value in recipe.build.options.items():
        _check_option(name, value)
    _check_cuda(recipe)
    launch.check(recipe.launch, recipe.cuda.kv_cache if recipe.cuda.architectures else ())


def _check_variants(recipe: Recipe) -> None:
    """Check that loadable variants of the CPU backend can be built and checked."""
    if not recipe.target.variants:
        return
    where = ("target", "variants")
    if recipe.build.linkage != "shared":
        raise KeyProblem(
            where,
            "needs libraries that are loaded at start, and build.linkage is static",
            'set build.linkage = "shared"',
        )
    if recipe.target.isa:
        raise KeyProblem(
            where,
            "covers every extension, and target.isa names some",
            "leave target.isa out: the programs themselves stay at target.cpu",
        )
    if by_visual_studio(recipe):
        raise KeyProblem(
            where,
            f"is not built with {recipe.toolchain.name}: ggml has fewer variants there",
            'set toolchain.name = "zig" or "clang-cuda"',
        )


def _check_cuda(recipe: Recipe) -> None:
    """Check the GPU side, and that toolchain and architectures agree on whether there is one."""
    compiles_cuda = traits(recipe).cuda
    if not recipe.cuda.architectures:
        if compiles_cuda:
            raise KeyProblem(
                ("cuda", "architectures"),
                f"is empty, and the {recipe.toolchain.name} toolchain compiles CUDA code",
                'name what the GPU is, e.g. ["61-real"], or use the zig toolchain',
            )
        for key, usual in (("cuda_runtime", "bundled"), ("cublas", "bundled")):
            if getattr(recipe.bundle, key) != usual:
                raise KeyProblem(("bundle", key), "is about CUDA, and cuda.architectures is empty")
        return
    _check_cublas(recipe)

    if not compiles_cuda:
        raise KeyProblem(
            ("cuda", "architectures"),
            f"asks for CUDA code, which the {recipe.toolchain.name} toolchain does not compile",
            'set toolchain.name = "clang-cuda"',
        )
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("architectures", lambda: parse_archs(recipe.cuda.architectures)),
        ("kv_cache", lambda: check_kv_types(recipe.cuda.kv_cache)),
        ("driver", lambda: recipe.cuda.driver and parse_version(recipe.cuda.driver)),
    )
    for key, check in checks:
        try:
            check()
        except QbuildError as error:
            raise KeyProblem(("cuda", key), f"is wrong: {error.what}", error.fix) from error
    for arch in parse_archs(recipe.cuda.architectures):
        if arch.number // 10 == 12 and not arch.suffix:
            raise KeyProblem(
                ("cuda", "architectures"),
                f"names {arch}, which ggml compiles as {arch.number}a: its FP4 kernels need it",
                f"write {str(arch).replace(arch.name, arch.name + 'a')}",
            )
    if recipe.build.linkage != "shared":
        raise KeyProblem(
            ("build", "linkage"), "must be shared: the CUDA backend is loaded at run time"
        )
    if recipe.build.type != "Release" and recipe.toolchain.name == "clang-cuda":
        raise KeyProblem(("build", "type"), "must be Release: clang-cuda compiles no assertions")


OWN_BLAS = "own-blas"  # the series without which a bundle needs cuBLAS


def _check_cublas(recipe: Recipe) -> None:
    """Check where matrix products come from against where NVIDIA's other libraries are.

    ============  ==========================  ==========================================
    cublas        cuda_runtime = bundled      cuda_runtime = separate
    ============  ==========================  ==========================================
    none          cudart inside               the user brings cudart
    separate      the user brings cuBLAS      the user brings cudart and cuBLAS
    bundled       both inside                 refused: a cuBLAS that cannot load alone
    ============  ==========================  ==========================================
    """
    if recipe.bundle.cublas == "none" and OWN_BLAS not in recipe.patches.series:
        raise KeyProblem(
            ("bundle", "cublas"),
            f"is `none`, and patches.series lacks {OWN_BLAS}, whose kernels stand in for it",
            f'add "{OWN_BLAS}" to patches.series, or set bundle.cublas = "bundled"',
        )
    if recipe.bundle.cublas == "bundled" and recipe.bundle.cuda_runtime == "separate":
        raise KeyProblem(
            ("bundle", "cublas"),
            "is `bundled`, and bundle.cuda_runtime = separate leaves out what it needs",
            'set bundle.cublas = "separate" or "none"',
        )


def _check_msvc(recipe: Recipe) -> None:
    """Check what only Visual Studio's compiler needs, and that nothing else asks for it."""
    uses = by_visual_studio(recipe)
    dynamic = uses and recipe.toolchain.runtime == "dynamic"
    if not dynamic and recipe.bundle.vc_runtime != "none":
        raise KeyProblem(
            ("bundle", "vc_runtime"),
            f"is `{recipe.bundle.vc_runtime}`, and this build needs no runtime of Microsoft's",
            "leave it out: it is for msvc and nvcc on Windows with toolchain.runtime = dynamic",
        )
    for key, pattern in (("toolset", _TOOLSET), ("sdk", _SDK), ("cuda", _CUDA)):
        value = getattr(recipe.toolchain, key)
        if value and not pattern.fullmatch(value):
            raise KeyProblem(("toolchain", key), f"does not look like one: `{value}`")


def _check_option(name: str, value: object) -> None:
    where = ("build", "options", name)
    if not _OPTION.fullmatch(name):
        raise KeyProblem(where, "is not a CMake option name (upper case, digits, `_`)")
    if name in OWNED_OPTIONS:
        raise KeyProblem(where, "is decided by qbuild", OWNED_OPTIONS[name])
    if name in isa.GGML_SWITCHES:
        raise KeyProblem(where, "is an instruction-set switch", "use `target.cpu` and `target.isa`")
    if isinstance(value, str) and any(c in value for c in '"\\$;\n\r\0'):
        raise KeyProblem(
            where, "holds a character that CMake would interpret", "leave out quotes, $, ; and \\"
        )
