"""The whole measurement: zips in turn, round by round, then the server under each load."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbuild import host
from qbuild.binary.zip_reader import open_zip
from qbuild.console import Reporter
from qbuild.errors import VerifyError
from qbuild.extras.bench import busy, load
from qbuild.extras.bench.model import FORMAT, Alone, Loaded, Measured, Ratio, ratio
from qbuild.extras.bench.programs import Programs, Server, run_alone, serving
from qbuild.hashing import sha256_file
from qbuild.verify import wine
from qbuild.verify.static import scratch_folder
from qbuild.verify.structure import unpack

CONTEXT = 1024
"""Tokens of context for each user; more where a model needs more for the longest prompt."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is to be measured."""

    prompt: int = 256  # tokens that llama-bench reads
    answer: int = 48  # tokens that it writes
    rounds: int = 3  # how often each zip is measured; with two zips the order alternates
    threads: int = 0  # of the CPU; 0: one for each core
    # loads of the server, by users at the same time; none: no server
    users: tuple[int, ...] = (1, 4, 16)
    seconds: float = 10.0  # how long requests are begun under each load
    tools: bool = True  # whether each load runs a second time with tools on offer
    patience: float = 600.0  # seconds that one start or one llama-bench may take


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was measured, and whether the machine was left alone meanwhile."""

    model: str
    wish: Wish
    threads: int
    zips: tuple[Measured, ...]
    ratios: dict[str, Ratio | None]
    others: float
    busy: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as a machine reads it."""
        import dataclasses

        return {
            "format": FORMAT,
            "model": self.model,
            "wish": dataclasses.asdict(self.wish),
            "threads": self.threads,
            "machine_busy": self.busy,
            "others_share": round(self.others, 3),
            "zips": [each.as_json() for each in self.zips],
            "ratios": {
                name: dataclasses.asdict(value) if value else None
                for name, value in self.ratios.items()
            },
        }


def measure(
    zips: Sequence[Path], model: Path, wish: Wish, reporter: Reporter, *, cache_dir: Path | None
) -> Result:
    """Measure one zip, or two against each other.

    The programs run as yours, outside the sandbox: only for zips that you would run anyway.

    Args:
        zips: One or two zips; the first is compared with the second.
        model: A GGUF file.
        wish: What to measure.
        reporter: Where progress goes.
        cache_dir: Where a prepared Wine prefix is kept, or None.

    Raises:
        VerifyError: A program is missing, fails or takes too long; a zip does not run here.
        ArchiveError: A zip is damaged.
    """
    threads = wish.threads or host.cpu_count()
    quiet = busy.before()
    if quiet.busy:
        reporter.warn(f"the machine is busy ({quiet.words()}): figures are marked")
    watch = busy.Watch()
    with ExitStack() as stack:
        unpacked = [stack.enter_context(programs_of(each, cache_dir, reporter)) for each in zips]
        alone = _alone(unpacked, model, wish, threads, reporter)
        loaded = [
            _loads(programs, model, wish, threads, reporter, name.name)
            for programs, name in zip(unpacked, zips, strict=True)
        ]
    seen = watch.look()
    if seen.busy and not quiet.busy:
        reporter.warn(f"the machine became busy ({seen.words()}): figures are marked")
    measured = tuple(
        Measured(
            zip_name=path.name,
            sha256=sha256_file(path),
            alone=tuple(alone[index]),
            loaded=tuple(loaded[index]),
        )
        for index, path in enumerate(zips)
    )
    return Result(
        model=model.name,
        wish=wish,
        threads=threads,
        zips=measured,
        ratios=_ratios(measured) if len(measured) == 2 else {},
        others=max(quiet.others, seen.others),
        busy=quiet.busy or seen.busy,
    )


@contextmanager
def programs_of(path: Path, cache_dir: Path | None, reporter: Reporter) -> Iterator[Programs]:
    """Unpack a zip for as long as its programs are needed.

    Raises:
        VerifyError: It is for another system, and nothing here runs it.
        ArchiveError: It is damaged.
    """
    with open_zip(path) as view, scratch_folder() as scratch:
        total = sum(view.member(name).size for name in view.names)
        with reporter.task("unpack", total=total, unit="bytes") as task:
            files = unpack(view, scratch / "files", task)
        if files.damaged:
            name, why = next(iter(files.damaged.items()))
            raise VerifyError(f"{path.name} is damaged: {name}: {why}", where=str(path))
        windows = any(name.endswith(".exe") for name in files.files)
        suffix = ".exe" if windows else ""
        env = {**os.environ, "LC_ALL": "C"}
        if windows == (host.system() == "windows"):
            yield Programs(root=files.root.resolve(), suffix=suffix, env=env)
            return
        loader = wine.find_wine() if windows else None
        if loader is None:
            raise VerifyError(
                f"{path.name} is for {'Windows' if windows else 'Linux'} and does not run here",
                where=str(path),
                fix="install Wine (Debian: apt-get install wine64)" if windows else "",
            )
        prefix = wine.wine_prefix(loader, scratch / "wineprefix", cache_dir)
        env |= {**wine.ENV, "WINEPREFIX": str(prefix)}
        yield Programs(root=files.root.resolve(), suffix=suffix, prefix=(loader,), env=env)


def _alone(
    zips: Sequence[Programs], model: Path, wish: Wish, threads: int, reporter: Reporter
) -> list[list[Alone]]:
    """Run llama-bench on each zip in turn; every second round in the other order."""
    found: list[list[Alone]] = [[] for _ in zips]
    with reporter.task("llama-bench", total=wish.rounds * len(zips)) as task:
        for number in range(wish.rounds):
            order = range(len(zips)) if number % 2 == 0 else reversed(range(len(zips)))
            for index in order:
                task.update(
                    done=sum(len(each) for each in found),
                    note=f"round {number + 1} of {wish.rounds}",
                )
                found[index].append(
                    run_alone(
                        zips[index],
                        model,
                        prompt=wish.prompt,
                        answer=wish.answer,
                        threads=threads,
                        timeout=wish.patience,
                    )
                )
        task.update(done=wish.rounds * len(zips))
    return found


def _loads(
    programs: Programs, model: Path, wish: Wish, threads: int, reporter: Reporter, name: str
) -> list[Loaded]:
    kinds = [(users, tools) for users in wish.users for tools in (False, *([True] * wish.tools))]
    found = []
    with reporter.task("server", total=len(kinds)) as task:
        for done, (users, tools) in enumerate(kinds):
            with_tools = " with tools" if tools else ""
            task.update(done=done, note=f"{users} at a time{with_tools}: {name}")
            with _serving_all(programs, model, users, threads, wish, tools=tools) as server:
                seen = load.load(server.port, users=users, seconds=wish.seconds, tools=tools)
                found.append(
                    Loaded(
                        users=users,
                        tools=tools,
                        seconds=seen.seconds,
                        replies=seen.replies,
                        memory=server.memory(),
                    )
                )
        task.update(done=len(kinds))
    return found


@contextmanager
def _serving_all(
    programs: Programs, model: Path, users: int, threads: int, wish: Wish, *, tools: bool
) -> Iterator[Server]:
    """Start a server whose users have room for the longest request of the load."""
    context, needs, patience = 0, CONTEXT, wish.patience
    while True:  # twice at most: what a request needs does not change with the context
        context = max(context, needs)
        with serving(
            programs, model, users=users, threads=threads, context=context, patience=patience
        ) as server:
            needs = load.room(server.port, tools=tools, timeout=patience)
            if needs <= context:
                yield server
                return


def _ratios(measured: Sequence[Measured]) -> dict[str, Ratio | None]:
    ours, theirs = measured
    return {
        "prompt": ratio([r.prompt for r in ours.alone], [r.prompt for r in theirs.alone]),
        "answer": ratio([r.answer for r in ours.alone], [r.answer for r in theirs.alone]),
    }
