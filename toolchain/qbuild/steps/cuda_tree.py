"""The folder that clang takes for a CUDA installation, from the wheels that the toolchain pins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild import host, process
from qbuild.cuda import tree
from qbuild.errors import ToolchainError
from qbuild.recipe.lock import WheelPin
from qbuild.steps.base import Before, Kind, Request, Step
from qbuild.toolchains.base import CUDA_TREE

if TYPE_CHECKING:
    from qbuild.steps.builder import Builder
    from qbuild.steps.plan import Plan
    from qbuild.steps.shells import Shell


class CudaTreeStep(Kind):
    """``tree``: headers, ptxas and import libraries."""

    kind = CUDA_TREE
    label = "CUDA tree"

    def wheels(self, ask: Request) -> tuple[WheelPin, ...]:
        """Return the toolchain's wheels: of some toolchains they are all there is to compile with.

        Raises:
            LockError: The lockfile lacks one.
            ToolchainError: The toolchain cannot build this recipe.
        """
        return ask.toolchain.wheels()

    def inputs(self, ask: Request, before: Before) -> Mapping[str, Any] | None:  # noqa: ARG002
        """Return what the toolchain makes it from, if it needs one."""
        return ask.toolchain.tree_inputs()

    def about(self, plan: Plan, step: Step) -> str:  # noqa: ARG002
        """Return what it is."""
        return "what clang takes for a CUDA installation, from those wheels"

    def make(self, step: Step, build: Builder, dest: Path) -> Mapping[str, Any]:
        """Put it together.

        Raises:
            ToolchainError: One of its own programs and libraries cannot be made.
        """
        build.reporter.say("CUDA tree: headers, ptxas and import libraries from the wheels")
        commands = tree.assemble(
            dest / "tree",
            build.all_unpacked(),
            host=step.inputs["host"],
            target=step.inputs["target"],
            cublas=_with_cublas(step),
        )
        cache = build.store.root / "cache" / "zig"
        cache.mkdir(parents=True, exist_ok=True)
        env = {"PATH": host.search_path(), "HOME": str(dest), "LC_ALL": "C", "TZ": "UTC"}
        env |= {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
        log = build.store.root / "cache" / "cuda-tree.log"
        lines: list[str] = []
        for command in commands:
            status = process.run_logged(
                list(command.argv), cwd=dest, env=env, log=log, on_line=lines.append
            )
            if status != 0 or not command.makes.is_file():
                raise ToolchainError(
                    f"{command.makes.name} of the CUDA tree could not be made: "
                    + (lines[-1] if lines else f"exit code {status}"),
                    where=f"full log: {log}",
                    fix="this is a fault of qbuild or of a wheel; please report it",
                )
        return {"makes": [command.makes.name for command in commands]}

    def script(self, plan: Plan, step: Step, out: Shell) -> None:
        """Write what puts it together."""
        system, target = "windows" if out.windows else "linux", str(step.inputs["target"])
        cublas = _with_cublas(step)
        out.note("The folder that clang takes for a CUDA installation (see docs/clang-cuda.md)")
        clang = plan.wheel(tree.CLANG_TIDY).version.split(".")[0]
        headers = f"tools/{tree.CLANG_TIDY}/clang_tidy/data/lib/clang/{clang}/include"
        folders = [
            *(
                (f"tools/{project}/{source}", dest)
                for project, source, dest in tree.folders(cublas=cublas)
            ),
            (headers, "resource/include"),
            (out.path_in("PATCHES", "..", "toolchain", "cuda", "overlay"), "overlay"),
        ]
        for source, dest in folders:
            out.copy_folder(source, f"cuda/{dest}")
        for project, source, dest in tree.files(host=system, target=target, cublas=cublas):
            out.copy_file(f"tools/{project}/{source}", f"cuda/{dest}")
        own = out.path_in("PATCHES", "..", "toolchain", "cuda", "fatbinary.c")
        zig = "tools/ziglang/ziglang/zig" + (".exe" if out.windows else "")
        command = tree.fatbinary_command(Path(zig), Path("cuda"), host=system)
        out.run(*(own if "fatbinary.c" in part else _slashes(part) for part in command.argv))
        if target == "windows" and cublas:
            name = tree.IMPORTED[0]
            text = tree.definition_file(f"{name}.dll", tree.CUBLAS_FUNCTIONS)
            out.file(f"cuda/lib/{name}.def", text, literal=True)
            made = tree.import_library_command(Path(zig), Path(f"cuda/lib/{name}.def"))
            out.run(*map(_slashes, made.argv))


def _with_cublas(step: Step) -> bool:
    """Return whether the tree holds cuBLAS: only where ggml-cuda links it."""
    return any(name.startswith("nvidia_cublas") for name in step.inputs["wheels"])


def _slashes(word: str) -> str:
    """Return a word with forward slashes, whatever this host's paths look like."""
    return word.replace("\\", "/")
