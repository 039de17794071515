"""Find a recipe, follow ``extends``, apply overrides, and check what types cannot say."""

from __future__ import annotations

import copy
import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qbuild import bounds, resources, toml
from qbuild.cuda.arch import parse_archs
from qbuild.cuda.flags import check_kv_types
from qbuild.cuda.table import parse_version
from qbuild.errors import QbuildError, RecipeError, UsageError
from qbuild.recipe import gpu, isa, launch
from qbuild.recipe.convert import KeyProblem, build, suggest
from qbuild.recipe.model import Recipe
from qbuild.recipe.toolchains import by_visual_studio, traits
from qbuild.toml import locate

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")
_TARGET = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")
_OPTION = re.compile(r"[A-Z][A-Z0-9_]*")
_GLIBC = re.compile(r"2\.(\d{1,2})")
_TOOLSET = re.compile(r"14\.\d{2}(\.\d+)*")
_SDK = re.compile(r"10\.0\.\d{5}\.\d+")
_CUDA = re.compile(r"\d{2}\.\d{1,2}")
_MAX_EXTENDS = 8

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


def known_recipes() -> dict[str, Path]:
    """Return name → file of the recipes that come with qbuild."""
    return {p.stem: p for p in sorted(resources.recipes_dir().glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """Return the file of a recipe given by name or by path.

    Raises:
        RecipeError: There is no such recipe.
    """
    if name.endswith(".toml") or "/" in name or "\\" in name:
        path = Path(name)
        if not _is_file(path):
            ours = path.name == name and path.stem in known_recipes()
            raise RecipeError(
                "recipe file not found",
                where=name,
                fix=f"did you mean `{path.stem}`, qbuild's own recipe?"
                if ours
                else "check the path, or run `qbuild list`",
            )
        return path
    known = known_recipes()
    if name not in known:
        raise RecipeError(
            f"there is no recipe `{name}`",
            where=str(resources.recipes_dir()),
            fix=suggest(name, known) or f"one of: {', '.join(known)}; or a path to a .toml file",
        )
    return known[name]


def _is_file(path: Path) -> bool:
    """Tell whether there is such a file; a name that no disk could hold is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Layer:
    """One file (or the command line) that contributed keys."""

    label: str
    text: str
    data: Mapping[str, Any]


def load_recipe(
    name: str,
    *,
    os: str | None = None,
    overrides: Sequence[str] = (),
) -> Recipe:
    """Return the resolved recipe.

    Args:
        name: A recipe that comes with qbuild, or a path to a file.
        os: What ``--os`` said; wins over the recipe's ``target.os``.
        overrides: ``key.path=value`` as ``--set`` takes them; values are TOML, bare words strings.

    Raises:
        RecipeError: Unknown, malformed or impossible recipe; names file, line and key path.
        UsageError: An override cannot be read.
    """
    path = find_recipe(name)
    layers = _layers(path)
    command_line: dict[str, Any] = {}
    for item in overrides:
        _set_override(command_line, item)
    if os is not None:
        command_line.setdefault("target", {})["os"] = os
    layers.append(_Layer(label="--set/--os", text="", data=command_line))

    merged: dict[str, Any] = {}
    for layer in layers:
        _merge(merged, layer.data)
    merged.pop("extends", None)
    per_os = merged.pop("os", {})
    if not isinstance(per_os, Mapping):
        raise _error(
            layers, KeyProblem(("os",), "must be a table of tables, e.g. `[os.windows.…]`")
        )
    for system in per_os:
        if system not in ("linux", "windows"):
            raise _error(
                layers,
                KeyProblem(
                    ("os", system),
                    "is not an operating system qbuild builds for",
                    suggest(system, ("linux", "windows")),
                ),
            )
        if not isinstance(per_os[system], Mapping):
            raise _error(layers, KeyProblem(("os", system), "must be a table"))
    target = merged.get("target")
    chosen = target.get("os") if isinstance(target, Mapping) else None
    if isinstance(chosen, str) and chosen in per_os:
        _merge(merged, per_os[chosen])
        _merge(merged, command_line)
    _follow_runtime(merged, command_line)
    try:
        gpu.resolve(merged, command_line)
        recipe: Recipe = build(Recipe, merged)
        _check(recipe, path)
    except KeyProblem as problem:
        raise _error(layers, problem) from None
    return gpu.named(recipe, command_line)


def _follow_runtime(merged: Mapping[str, Any], command_line: Mapping[str, Any]) -> None:
    """Leave cuBLAS out where NVIDIA's runtime is left out and only that is named.

    On the command line it is as well: whoever leaves the runtime out of a recipe that bundles both
    means both.
    """
    bundle, named = merged.get("bundle"), command_line.get("bundle", {})
    if not isinstance(bundle, dict) or bundle.get("cuda_runtime") != "separate":
        return
    bundle.setdefault("cublas", "separate")
    if isinstance(named, Mapping) and "cuda_runtime" in named and "cublas" not in named:
        bundle["cublas"] = "separate" if bundle["cublas"] == "bundled" else bundle["cublas"]


def as_dict(recipe: Recipe) -> dict[str, Any]:
    """Return the resolved recipe as plain JSON-able data (it becomes part of step keys)."""
    data = dataclasses.asdict(recipe)

    def plain(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [plain(v) for v in value]
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in sorted(value.items())}
        return value

    result: dict[str, Any] = plain(data)
    return result


def _layers(path: Path) -> list[_Layer]:
    """Return the file and what it extends, the base first."""
    layers: list[_Layer] = []
    seen: list[Path] = []
    current: Path | None = path
    while current is not None:
        resolved = current.resolve()
        if resolved in seen or len(seen) >= _MAX_EXTENDS:
            chain = " → ".join(p.stem for p in [*seen, resolved])
            raise RecipeError("`extends` goes in a circle", where=f"{path}: {chain}")
        seen.append(resolved)
        text, data = _read(current)
        layers.insert(0, _Layer(label=str(current), text=text, data=data))
        parent = data.get("extends")
        if parent is None:
            break
        if not isinstance(parent, str):
            raise _error(layers, KeyProblem(("extends",), "must be the name of a recipe"))
        sibling = current.parent / f"{parent}.toml"
        current = sibling if _is_file(sibling) else find_recipe(parent)
    return layers


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = bounds.read_bytes(path, bounds.TEXT).decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(f"recipe cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise RecipeError(
            "recipe is not UTF-8",
            where=f"{path}, byte {error.start}",
            fix="save the file as UTF-8",
        ) from None
    try:
        return text, toml.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"recipe is not valid TOML: {error}", where=str(path)) from None


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> None:
    """Lay ``extra`` over ``base``: tables merge, everything else replaces."""
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = copy.deepcopy(value)


def _set_override(data: dict[str, Any], item: str) -> None:
    key, equals, raw = item.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UsageError(
            f"--set takes key.path=value, not `{item}`", fix="e.g. --set build.linkage=static"
        )
    try:
        value = toml.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw  # a bare word: what a person means is the string
    table = data
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {item}: `{part}` was set to a value before")
    table[parts[-1]] = value


def _check(recipe: Recipe, path: Path) -> None:
    """Check what the types cannot say."""
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


OWN_BLAS = "own-blas"
"""The series without which a bundle needs cuBLAS."""


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


def _error(layers: Sequence[_Layer], problem: KeyProblem) -> RecipeError:
    """Return the problem as an error that names the file and line the key stands in."""
    dotted = ".".join(problem.path)
    for layer in reversed(layers):
        if _has(layer.data, problem.path):
            line = locate(layer.text, problem.path)
            where = f"{layer.label}:{line}" if line else layer.label
            return RecipeError(f"`{dotted}` {problem.message}", where=where, fix=problem.fix)
    files = layers[:-1] or layers  # the last layer is the command line; an empty file counts
    return RecipeError(f"`{dotted}` {problem.message}", where=files[-1].label, fix=problem.fix)


def _has(data: object, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, Mapping) and part in data:
            data = data[part]
        else:
            return False
    return True
