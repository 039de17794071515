#!/usr/bin/env python3
"""Throw damaged files at every reader of foreign bytes, with bounds on time, memory and files.

    python ci/fuzz.py                       every reader, 300 inputs each
    python ci/fuzz.py zip pe --inputs 5000  two readers
    python ci/fuzz.py --seed 7 --json FILE  other inputs; the table as JSON

Inputs are mutations of the files below ``tests/data/fuzz/<reader>/``: bits, numbers, lengths,
pieces cut out, doubled or taken from another file, one token repeated ten thousand times. A reader
may accept an input or raise the one error its callers expect. Anything else, and whatever takes
more than a bound, is a failure: the input is kept in ``fuzz-failures/`` and belongs into the corpus
once it is mended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "data" / "fuzz"
KEPT = ROOT / "fuzz-failures"

SECONDS = 10.0
"""CPU seconds that reading one input of at most 256 KB may take."""

MEMORY = 256 << 20
"""Bytes that a batch of inputs may add to what the process has."""

FILES = 12_000
"""Files and folders that unpacking one input may make: what the bounds of archives allow."""

BATCH = 50
LARGEST = 256 << 10


@dataclass
class Row:
    """What became of one reader's inputs."""

    reader: str
    inputs: int = 0
    accepted: int = 0
    worst_seconds: float = 0.0
    worst_memory_mb: float = 0.0
    most_files: int = 0
    failures: list[str] = field(default_factory=list)


Reader = Callable[[bytes, Path], object]


def _zip(data: bytes, folder: Path) -> object:
    from qbuild.binary.zip_reader import open_zip

    path = folder / "x.zip"
    path.write_bytes(data)
    with open_zip(path) as view:
        return view.extract_to(folder / "out")


def _verify(data: bytes, folder: Path) -> object:
    from qbuild.verify import verify_zip

    path = folder / "llama-g0c1e57098-avx2-linux-x86_64.zip"
    path.write_bytes(data)
    return verify_zip(path)


def _tar(data: bytes, folder: Path) -> object:
    from qbuild.source.quarantine import take_from_sdist

    path = folder / "x.tar.gz"
    path.write_bytes(data)
    (folder / "out" / "objects").mkdir(parents=True)
    return take_from_sdist(path, "r", folder / "out", lambda _done, _size: None)


def _pe(data: bytes, _: Path) -> object:
    from qbuild.binary.isa import scan
    from qbuild.binary.pe import read_pe_data

    return scan(read_pe_data(data), data, level="x86-64")


def _elf(data: bytes, _: Path) -> object:
    from qbuild.binary.elf import read_elf_data
    from qbuild.binary.isa import scan

    return scan(read_elf_data(data), data, level="x86-64")


def _coff(data: bytes, _: Path) -> object:
    from qbuild.binary.coff import read_coff

    return read_coff(data, "x.obj")


def _fatbin(data: bytes, _: Path) -> object:
    from qbuild.binary.fatbin import kernels, read_fatbin

    return [kernels(data, entry) for entry in read_fatbin(data).entries]


def _gguf(data: bytes, folder: Path) -> object:
    from qbuild.modelfile.header import read_header

    path = folder / "x.gguf"
    path.write_bytes(data)
    return read_header(path)


def _patch(data: bytes, _: Path) -> object:
    from qbuild.patches.mail import parse

    return parse(data, "x.patch")


def _recipe(data: bytes, folder: Path) -> object:
    from qbuild.recipe.load import load_recipe

    path = folder / "small.toml"
    path.write_bytes(data)
    return load_recipe(str(path), os=None, overrides=())


def _toml(data: bytes, _: Path) -> object:
    from qbuild.recipe import toml

    return toml.loads(data.decode("utf-8", "replace"))


def _lock(data: bytes, _: Path) -> object:
    from qbuild.recipe.lock import parse_lock

    return parse_lock(data.decode("utf-8", "replace"), "x.lock")


def _manifest(data: bytes, _: Path) -> object:
    from qbuild.bundle.manifest import load_manifest

    return load_manifest(data)


def _verdict(data: bytes, _: Path) -> object:
    from qbuild.verify.verdict import from_json

    return from_json(data.decode("utf-8", "replace"))


def _entry(data: bytes, folder: Path) -> object:
    from qbuild.console import Silent
    from qbuild.store import Store

    place = folder / "thing" / ("0" * 64)
    place.mkdir(parents=True)
    (place / "entry.json").write_bytes(data)
    return Store(folder).get("thing", "0" * 64, Silent())


def _facts(data: bytes, folder: Path) -> object:
    from qbuild.doctor.machine_facts import load_facts

    path = folder / "facts.json"
    path.write_bytes(data)
    return load_facts(path)


READERS: dict[str, Reader] = {
    "zip": _zip, "verify": _verify, "tar": _tar, "pe": _pe, "elf": _elf, "coff": _coff,
    "fatbin": _fatbin, "gguf": _gguf, "patch": _patch, "recipe": _recipe, "toml": _toml,
    "lock": _lock, "manifest": _manifest, "verdict": _verdict, "entry": _entry, "facts": _facts,
}  # fmt: skip

_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
            0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # fmt: skip


def mutate(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """Return a damaged copy."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        at = dice.randrange(len(out)) if out else 0
        size = min(dice.choice((1, 2, 4, 8, 64, 1024)), len(out) - at)
        match dice.randrange(9):
            case 0 if out:
                out[at] ^= 1 << dice.randrange(8)
            case 1:
                width, code = dice.choice(((1, "<B"), (2, "<H"), (4, "<I"), (8, "<Q")))
                value = dice.choice((*_NUMBERS, len(out), at)) & ((1 << 8 * width) - 1)
                out[at : at + width] = struct.pack(code, value)
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = out[at : at + size]
            case 4:
                del out[at:]
            case 5:
                other = dice.choice(others)
                start = dice.randrange(len(other)) if other else 0
                out[at : at + size] = other[start : start + size]
            case 6:
                out[at:at] = bytes(dice.randrange(256) for _ in range(size))
            case 7:
                token = bytes(out[at : at + dice.choice((1, 2, 5, 12))])
                out[at:at] = token * dice.choice((10, 300, 10_000))
            case _:
                out[at : at + size] = bytes(size)
    return bytes(out[:LARGEST])


def _expected() -> tuple[type[BaseException], ...]:
    from qbuild.errors import QbuildError
    from qbuild.source.quarantine import Forged, Unusable

    return (QbuildError, Forged, Unusable, tomllib.TOMLDecodeError)


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*"))


def _one(reader: Reader, data: bytes, row: Row) -> str:
    """Read one input; return what is wrong with how it went, or nothing."""
    folder = Path(tempfile.mkdtemp(prefix="qbuild-fuzz-"))
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, 3 * SECONDS)
    problem = ""
    try:
        reader(data, folder)
        row.accepted += 1
    except _expected():
        pass
    except MemoryError:
        problem = "no memory was left"
    except TimeoutError:
        problem = "it does not end"
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"[:200]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    taken = time.process_time() - started
    row.worst_seconds = max(row.worst_seconds, round(taken, 3))
    row.most_files = max(row.most_files, files := _count(folder))
    shutil.rmtree(folder, ignore_errors=True)
    if not problem and taken > SECONDS:
        problem = f"{taken:.1f} s of processor time"
    if not problem and files > FILES:
        problem = f"{files} files"
    return problem


def _batch(name: str, inputs: list[bytes], pipe: int) -> None:
    """Read inputs in a child with a limit on memory, and write a row down the pipe."""

    def too_long(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, too_long)
    row = Row(name)
    reader = READERS[name]
    with contextlib.suppress(BaseException), tempfile.TemporaryDirectory() as folder:
        reader(b"", Path(folder))  # imports count for nobody
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * MEMORY, used + 4 * MEMORY))
    for data in inputs:
        row.inputs += 1
        if problem := _one(reader, data, row):
            KEPT.mkdir(exist_ok=True)
            kept = KEPT / f"{name}-{abs(hash(data)):x}"
            kept.write_bytes(data)
            row.failures.append(f"{kept.name}: {problem}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    row.worst_memory_mb = round(grown / 1e6, 1)
    if grown > MEMORY:
        row.failures.append(f"a batch took {grown >> 20} MB")
    with os.fdopen(pipe, "w") as stream:
        json.dump(asdict(row), stream)


def _in_child(name: str, inputs: list[bytes]) -> Row:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with contextlib.suppress(BaseException):
            _batch(name, inputs, write)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    if not text:
        return Row(name, len(inputs), failures=["the process died"])
    return Row(**json.loads(text))


def fuzz(name: str, count: int, seed: int) -> Row:
    """Return what became of a reader's corpus and of so many mutations of it."""
    seeds = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    dice = random.Random(f"{name} {seed}")
    inputs = [*seeds, *(mutate(dice.choice(seeds), seeds, dice) for _ in range(count))]
    total = Row(name)
    for at in range(0, len(inputs), BATCH):
        row = _in_child(name, inputs[at : at + BATCH])
        total.inputs += row.inputs
        total.accepted += row.accepted
        total.worst_seconds = max(total.worst_seconds, row.worst_seconds)
        total.worst_memory_mb = max(total.worst_memory_mb, row.worst_memory_mb)
        total.most_files = max(total.most_files, row.most_files)
        total.failures += row.failures
    return total


def main() -> int:
    """Run and print a table; the exit status says whether every input was survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("readers", nargs="*", metavar="READER", help=", ".join(READERS))
    parser.add_argument("--inputs", type=int, default=300, help="mutations per reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows = []
    print(f"{'reader':<10}{'inputs':>8}{'accepted':>10}{'worst s':>9}{'MB':>8}{'files':>7}")
    for name in args.readers or READERS:
        row = fuzz(name, args.inputs, args.seed)
        rows.append(row)
        print(
            f"{name:<10}{row.inputs:>8}{row.accepted:>10}{row.worst_seconds:>9.2f}"
            f"{row.worst_memory_mb:>8.1f}{row.most_files:>7}",
            flush=True,
        )
        for failure in row.failures:
            print(f"  FAILED {failure}", flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
