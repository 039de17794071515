"""The steps of the emulated GPU: device IR, retargeted units, the library of kernels, tests.

Outside the default plan: nothing here is part of a zip. What these steps make holds code of
NVIDIA's headers and libdevice; it stays in the local store, never in a bundle, a remote cache or
a CI artifact.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from qbuild import host
from qbuild.binary import cubin, fatbin
from qbuild.emulator import counted, graphs, make, retarget
from qbuild.emulator.table import FILE as TABLE_FILE
from qbuild.emulator.table import table
from qbuild.errors import CompileError, ToolchainError
from qbuild.held import remove_tree
from qbuild.process import run_logged
from qbuild.resources import data_dir
from qbuild.steps.base import Step
from qbuild.steps.builder import Builder
from qbuild.steps.configure import configure
from qbuild.steps.ensure import ensure
from qbuild.steps.plan import Plan
from qbuild.steps.work import Work, lay_out
from qbuild.store import Entry, step_key
from qbuild.toolchains.base import CUDA_TREE, CUDA_WRAPPER

IR: Final = "device-ir"
UNIT: Final = "emulated-unit"
KERNELS: Final = "emulated-kernels"
TESTS: Final = "emulated-tests"
GRAPHS: Final = "emulated-graphs"
INDEX: Final = "emulated-zip"

_MAKERS: Final = ("checked", "layout", "make", "retarget", "table", "tensor")
"""The modules of the emulator's room that decide what is made; the others only run it."""

_INLINED: Final = ("halves.h", "intrinsics.c", "kernel.h")  # what is compiled into every unit

_DROPPED: Final = ("-MT", "-MF", "-o")
_LEFT_OUT: Final = "no-tensor-cores"
"""The unit whose kernels are never launched: stubs that only say so."""

TEST_OBJECT: Final = "tests/CMakeFiles/test-backend-ops.dir/test-backend-ops.cpp.o"


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One compiled unit of ggml-cuda."""

    name: str  # its file's, without suffix
    command: tuple[str, ...]  # how its device IR is made, but for the output
    sources: tuple[Path, ...]  # the files that it names, for the key


def _step(kind: str, inputs: Mapping[str, Any], label: str) -> Step:
    return Step(kind=kind, label=label, key=step_key(kind, inputs), inputs=inputs)


def _ensured(builder: Builder, step: Step, make: Callable[[Path], Mapping[str, Any]]) -> Entry:
    return ensure(step, make, builder.store, builder.reporter, builder.record)


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return one sha256 over the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        data = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def code_digest() -> str:
    """Return one sha256 over everything of ours that makes kernels run: C, table, rewriting."""
    package = Path(retarget.__file__).parent
    own = [path for path in sorted(make.sources().iterdir()) if path.suffix in (".c", ".h", ".map")]
    modules = [package / f"{name}.py" for name in _MAKERS]
    return digest_of_files([*own, data_dir() / TABLE_FILE, *modules])


def kernels_step(
    plan: Plan, *, checks: bool = False, only: Sequence[str] = (), counts: bool = False
) -> Step:
    """Return the step that makes a recipe's library of kernels and the runtime beside it.

    Args:
        plan: The recipe's plan.
        checks: Let every access to memory be checked: memcheck and races.
        only: The units to make, for a sample; all without it.
        counts: Let kernels count their instructions and accesses (not together with checks).

    Raises:
        ToolchainError: The recipe has no CUDA kernels that clang compiles.
    """
    if plan.toolchain.name != "clang-cuda":
        raise ToolchainError(
            "the emulated GPU runs what the clang-cuda toolchain compiles",
            where=f"recipe {plan.recipe.name}: toolchain.name",
            fix="use a recipe with clang-cuda, e.g. gtx1060",
        )
    configured = plan["configure"].inputs
    inputs = {
        "format": make.FORMAT,
        "patch": plan["patch"].key,
        "tree": plan[CUDA_TREE].key,
        "layout": configured["layout"],
        "cache": {k: v for k, v in configured["cache"].items() if "UI" not in k},
        "code": code_digest(),
        **({"checks": True} if checks else {}),
        **({"counts": _counts_digest()} if counts else {}),
        **({"only": sorted(only)} if only else {}),
    }
    return _step(KERNELS, inputs, "emulated kernels")


def _counts_digest() -> str:
    room = Path(counted.__file__).parent
    modules = [room / f"{name}.py" for name in ("counted", "joined")]
    return digest_of_files([make.sources() / "counters" / "counters.c", *modules])


def kernels(
    builder: Builder, *, checks: bool = False, only: Sequence[str] = (), counts: bool = False
) -> Entry:
    """Return the library of kernels (``files/``) of a builder's plan, made when it is missing."""
    step = kernels_step(builder.plan, checks=checks, only=only, counts=counts)
    return _ensured(
        builder, step, lambda dest: _make_kernels(builder, dest, checks, only, counts=counts)
    )


def kit_of(builder: Builder) -> make.Kit:
    """Return the compilers and headers of a plan."""
    target = builder.plan.recipe.target.os
    zig = builder.unpacked("ziglang") / "ziglang" / "zig"
    headers = builder.result(CUDA_TREE).path / "tree" / "include"
    cache = builder.store.root / "cache" / "zig"
    cache.mkdir(parents=True, exist_ok=True)
    return make.Kit(zig=zig, target=target, cache=cache, headers=headers)


@contextlib.contextmanager
def _configured(builder: Builder) -> Iterator[Work]:
    """Give a configured build tree of its own, in which nothing need have been compiled.

    A build that goes on in the recipe's is not disturbed.
    """
    key = step_key("configured", builder.plan["configure"].inputs)
    folder = builder.store.work_path(key)
    with builder.store.lock("work", key, builder.reporter):
        work = lay_out(builder, folder)
        configure(builder, work)
        yield work
        builder.store.discard(folder)


def _make_kernels(
    builder: Builder, dest: Path, checks: bool, only: Sequence[str], *, counts: bool
) -> Mapping[str, Any]:
    kit = kit_of(builder)
    files = dest / "files"
    files.mkdir(parents=True)
    scratch = dest / "scratch"
    scratch.mkdir()
    made: dict[str, Entry] = {}
    with _configured(builder) as work:
        units = _chosen(read_units(work.folder, work.tools["ninja"]), only)
        source = _source_digest(work.folder / "src")
        jobs = builder.options.jobs or host.default_jobs()
        with (
            builder.reporter.task("emulated kernels", total=len(units)) as task,
            ThreadPoolExecutor(max_workers=jobs) as pool,
        ):
            begun = {
                pool.submit(_unit, builder, kit, unit, work, source, checks, counts): unit.name
                for unit in units
            }
            try:
                for future in as_completed(begun):
                    made[begun[future]] = future.result()
                    task.update(done=len(made), note=begun[future])
            finally:
                pool.shutdown(cancel_futures=True)  # after a failure: no further units
    names = [unit.name for unit in units if made[unit.name].facts["kernels"]]
    (scratch / "units.h").write_text(make.units_header(names), encoding="ascii", newline="\n")
    library = files / make.KERNELS[kit.target]
    objects = [made[name].path / "unit.o" for name in names]
    commands = make.kernels_commands(kit, objects, scratch, library, counts=counts)
    commands += make.runtime_commands(kit, files, scratch)
    for command in commands:
        make.run(command, kit, cwd=scratch, what=Path(command[-1]).name)
    remove_tree(scratch)
    return {
        "target": kit.target,
        "units": {name: made[name].facts["kernels"] for name in names},
        "limits": {name: made[name].facts["limits"] for name in names},
    }


def read_units(work: Path, ninja: Path) -> list[Unit]:
    """Return the units of ggml-cuda with the commands that a configured build has for them.

    Raises:
        CompileError: ninja does not tell.
    """
    ran = subprocess.run(
        [str(ninja), "-C", str(work / "build"), "-t", "compdb"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if ran.returncode != 0:
        raise CompileError(f"ninja does not tell its commands: {ran.stderr.strip()[:200]}")
    found = []
    for edge in json.loads(ran.stdout):
        file = Path(edge["file"])
        if file.suffix != ".cu" or "ggml-cuda" not in edge["output"]:
            continue
        words = shlex.split(edge["command"])
        while not words[0].endswith("clang-cuda"):
            del words[0]  # a compiler cache
        for flag in _DROPPED:
            at = words.index(flag)
            del words[at : at + 2]
        words = [word for word in words if word not in ("-MD", "-c")]
        if file.stem != _LEFT_OUT:
            found.append(Unit(name=file.stem, command=tuple(words), sources=(file,)))
    if not found:
        raise CompileError("the build has no .cu files", where=str(work))
    return found


def _chosen(units: Sequence[Unit], only: Sequence[str]) -> Sequence[Unit]:
    missing = set(only) - {unit.name for unit in units}
    if missing:
        raise CompileError(
            f"ggml-cuda has no unit {', '.join(sorted(missing))}",
            where="units to make",
            fix=f"it has {', '.join(sorted(unit.name for unit in units))}",
        )
    return [unit for unit in units if not only or unit.name in only]


def _source_digest(src: Path) -> str:
    """Return one sha256 over what units include: ggml's headers and the CUDA backend."""
    folders = (src / "ggml" / "include", src / "ggml" / "src" / "ggml-cuda", src / "ggml" / "src")
    digest = hashlib.sha256()
    for folder in folders:
        inside = folder.rglob("*") if folder.name == "ggml-cuda" else folder.glob("*.h")
        for path in sorted(path for path in inside if path.is_file()):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(src).as_posix()}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _unit(
    builder: Builder, kit: make.Kit, unit: Unit, work: Work, source: str, checks: bool, counts: bool
) -> Entry:
    """Return a unit's object for the host, from its IR."""
    plan, folder = builder.plan, str(work.folder)
    plain = [word.replace(folder, "@work@") for word in unit.command]
    text = unit.sources[0].read_text(encoding="utf-8").replace(folder, "@work@")
    inputs: dict[str, Any] = {
        "tree": plan[CUDA_TREE].key,
        "layout": plan["configure"].inputs["layout"]["wrappers"][CUDA_WRAPPER],
        "source": source,
        "command": [word for word in plain if not word.startswith("-DGGML_CUDA_CLANG_ID")],
        "text": text,
    }
    ir = _ensured(
        builder,
        _step(IR, inputs, f"device IR of {unit.name}"),
        lambda dest: _make_ir(unit, work, dest),
    )
    packed = gzip.decompress((ir.path / "unit.ll.gz").read_bytes())
    made = retarget.retarget(packed.decode("utf-8"), unit.name, table(), checks=checks or counts)
    rewritten = counted.counting(made.text) if counts else made.text
    # By the text and not by what rewrote it: another row of the table changes few units.
    of = {
        "text": hashlib.sha256(rewritten.encode()).hexdigest(),
        "code": digest_of_files([make.sources() / name for name in _INLINED]),
        "target": kit.target,
        "format": make.FORMAT,
    }
    return _ensured(
        builder,
        _step(UNIT, of, f"kernels of {unit.name}"),
        lambda dest: _make_unit(kit, unit.name, made, rewritten, dest),
    )


def _make_ir(unit: Unit, work: Work, dest: Path) -> Mapping[str, Any]:
    out = dest / "unit.ll"
    command = [*unit.command, "--cuda-device-only", "-emit-llvm", "-S", "-o", str(out)]
    log = work.folder / f"device-ir-{unit.name}.log"
    lines: list[str] = []
    folder = work.folder / "build"
    status = run_logged(command, cwd=folder, env=work.env, log=log, on_line=lines.append)
    if status != 0 or not out.is_file():
        raise CompileError(
            f"no device IR of {unit.name}: {lines[-1] if lines else f'exit code {status}'}",
            where=f"full log: {log}",
        )
    with gzip.GzipFile(dest / "unit.ll.gz", "wb", compresslevel=3, mtime=0) as packed:
        packed.write(out.read_bytes())
    out.unlink()
    return {"unit": unit.name}


def _make_unit(
    kit: make.Kit, name: str, made: retarget.Retargeted, text: str, dest: Path
) -> Mapping[str, Any]:
    rewritten, intrinsics = dest / "unit.ll", dest / make.INTRINSICS
    rewritten.write_text(text, encoding="utf-8", newline="\n")
    make.run(make.intrinsics_command(kit, intrinsics), kit, cwd=dest, what="intrinsics.c")
    command = make.unit_command(kit, rewritten, intrinsics, dest / "unit.o")
    make.run(command, kit, cwd=dest, what=f"unit {name}")
    for path in (rewritten, intrinsics, dest / "emulator.log"):
        path.unlink(missing_ok=True)
    return {
        "kernels": [kernel.name for kernel in made.kernels],
        "limits": {
            kernel.name: [kernel.max_threads, kernel.shared_size] for kernel in made.kernels
        },
    }


# -- a zip's kernels ---------------------------------------------------------------------


def index_step(kernels_key: str, digests: Sequence[str]) -> Step:
    """Return the step that ties a library of kernels to the fat binaries of one build."""
    inputs = {"format": 1, "kernels": kernels_key, "fat_binaries": list(digests)}
    return _step(INDEX, inputs, "kernels of the zip")


def tie(builder: Builder, made: Entry) -> Entry:
    """Tie kernels to the machine code of a builder's finished bundle.

    A fat binary belongs to the unit that has the very same kernels. Both were compiled from one
    source, with the same flags, by the same clang.

    Raises:
        CompileError: A fat binary of the bundle has no unit.
    """
    name = {"windows": "ggml-cuda.dll", "linux": "libggml-cuda.so"}[builder.plan.recipe.target.os]
    library = next(iter(sorted(builder.result("stage").path.rglob(name))), None)
    if library is None:
        raise CompileError(f"the bundle has no {name}", where=str(builder.result("stage").path))
    data = library.read_bytes()
    digests = fatbin.container_digests(data)
    held: dict[int, frozenset[str]] = {}
    used: dict[str, cubin.Usage] = {}
    for entry in fatbin.read_fatbin_data(data).entries:
        names = fatbin.kernels(data, entry)
        code = fatbin.payload(data, entry) if entry.kind == "cubin" else None
        used |= cubin.usage(code) if code else {}
        held[entry.container] = held.get(entry.container, frozenset()) | frozenset(names or ())
    units = {frozenset(names): unit for unit, names in made.facts["units"].items()}
    tied: dict[str, str] = {}
    for number, digest in enumerate(digests):
        unit = units.get(held.get(number, frozenset()))
        if unit is not None:
            tied[digest] = unit
        elif held.get(number) and not _only_stubs(held[number]):
            raise CompileError(
                f"fat binary {digest[:12]} of {name} holds other kernels than any unit's device IR",
                where=", ".join(sorted(held[number])[:3]),
                fix="this is a fault of qbuild; please report it",
            )
    step = index_step(made.key, digests)

    def make_index(dest: Path) -> Mapping[str, Any]:
        by_unit: dict[str, list[str]] = {}
        for digest, unit in tied.items():
            by_unit.setdefault(unit, []).append(digest)
        registers = {name: (each.registers, each.frame) for name, each in used.items()}
        library = dest / make.KERNELS[builder.plan.recipe.target.os]
        make.write_index(library, by_unit, registers)
        return {"fat_binaries": tied, "kernels": made.key, "units": made.facts["units"]}

    return _ensured(builder, step, make_index)


def _only_stubs(names: frozenset[str]) -> bool:
    """Say whether these are kernels for tensor cores that a build for older GPUs left out."""
    return all(
        "mul_mat_f" in name or "flash_attn_ext_f16" in name or "flash_attn_m" in name
        for name in names
    )


# -- test programs -----------------------------------------------------------------------


def test_targets() -> tuple[str, ...]:
    """Return what ninja builds for a test run on the emulated GPU."""
    return (TEST_OBJECT, "ggml")


def tests(builder: Builder) -> Entry:
    """Return ``bin/test-backend-ops`` and ggml's libraries, compiled without device code.

    The test needs ggml alone; upstream's target links all of llama.cpp to it.
    """
    plan = builder.plan
    inputs = {"format": 1, "compile": plan["compile"].key}

    def make_tests(dest: Path) -> Mapping[str, Any]:
        def link(work: Path, tools: Mapping[str, Path], env: Mapping[str, str]) -> None:  # noqa: ARG001
            bins = work / "build" / "bin"
            program = bins / "test-backend-ops"
            command = [
                str(work / "tools" / "c++"), "-O2", "-s", str(work / "build" / TEST_OBJECT),
                str(bins / "libggml.so"), str(bins / "libggml-base.so"),
                "-Wl,-rpath,$ORIGIN", "-o", str(program),
            ]  # fmt: skip
            log = work / "link.log"
            if run_logged(command, cwd=bins, env=env, log=log) != 0:
                raise CompileError("test-backend-ops does not link", where=f"full log: {log}")
            _copy(bins, dest / "bin")

        builder.after_compile = link
        remove_tree(builder.store.entry_path("compile", plan["compile"].key))
        builder.result("compile")
        return {}

    return _ensured(builder, _step(TESTS, inputs, "test programs"), make_tests)


def test_graphs(builder: Builder, programs: Entry) -> Entry:
    """Return ``bin/test-graphs``: graphs of our own, for kernels that take the place of several.

    Args:
        builder: One whose plan has the patched source.
        programs: What :func:`tests` made; the program needs its libraries.
    """
    kit = kit_of(builder)
    inputs = {
        "format": 1,
        "code": digest_of_files(graphs.files()),
        "tests": programs.key,
        "compiler": builder.plan.wheel("ziglang").sha256,
    }

    def make_graphs(dest: Path) -> Mapping[str, Any]:
        headers = builder.result("patch").path / "tree" / "ggml" / "include"
        scratch, made = dest / "scratch", dest / "bin"
        scratch.mkdir()
        made.mkdir()
        libraries = programs.path / "bin"
        program = made / graphs.PROGRAM
        for command in graphs.commands(kit, headers, libraries, scratch, program):
            make.run(command, kit, cwd=scratch, what=Path(command[-1]).name)
        remove_tree(scratch)
        return {}

    return _ensured(builder, _step(GRAPHS, inputs, "test graphs"), make_graphs)


def _copy(source: Path, dest: Path) -> None:
    shutil.copytree(source, dest, symlinks=True)


def put_together(folder: Path, *places: Path) -> None:
    """Fill a folder with programs and, where NVIDIA's libraries would be, the emulated GPU's."""
    for place in places:
        for path in sorted(place.iterdir()):
            # Copies: ggml looks for backends beside the file that a link to its program names.
            shutil.copy2(path, folder / path.name)


def coverage(entry: Entry, ran: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Return how many of how many kernels ran, counted by (unit, kernel)."""
    every = {(unit, name) for unit, names in entry.facts["units"].items() for name in names}
    return len(every & set(ran)), len(every)
