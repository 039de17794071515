"""``qbuild bench ZIP``: how fast a zip is with a model, alone and with several users."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from qbuild.cli.common import existing_zip, print_json, store
from qbuild.console import Reporter
from qbuild.errors import UsageError

_MOST_USERS = 256
_MOST_SECONDS = 3600


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("zip", metavar="ZIP", help="the zip; its programs are run as yours")
    parser.add_argument("--model", required=True, metavar="FILE", help="a GGUF file")
    parser.add_argument(
        "--against", metavar="OTHER.zip", help="measure this zip, too, in alternating rounds"
    )
    parser.add_argument(
        "--prompt", type=int, default=256, metavar="N", help="tokens that are read (256)"
    )
    parser.add_argument(
        "--answer", type=int, default=48, metavar="N", help="tokens that are written (48)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="how often each zip is measured (3)"
    )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads (one for each core)"
    )
    parser.add_argument(
        "--users",
        default="1,4,16",
        metavar="N,N",
        help="loads of the server, by users at a time (1,4,16); 0: no server",
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="length of each load (10)"
    )
    parser.add_argument("--no-tools", action="store_true", help="no second load with tools")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where the figures go as JSON (ZIP.bench.json)"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Measure, print tables (or JSON), and leave the figures beside the zip for the report."""
    from qbuild.extras.bench.run import Wish, measure
    from qbuild.extras.bench.table import render
    from qbuild.store import write_atomically

    zips = [existing_zip(each) for each in (args.zip, args.against) if each]
    model = Path(args.model)
    if not model.is_file():
        raise UsageError(
            f"there is no model {model.name}", where=str(model), fix="name a GGUF file with --model"
        )
    wish = Wish(
        prompt=_positive("--prompt", args.prompt),
        answer=_positive("--answer", args.answer),
        rounds=_positive("--rounds", args.rounds),
        threads=args.threads,
        users=_users(args.users),
        seconds=_seconds(args.seconds),
        tools=not args.no_tools,
    )
    cache = store(args).root / "cache"
    result = measure(zips, model.resolve(), wish, reporter, cache_dir=cache)
    data = result.as_json()
    output = Path(args.output) if args.output else zips[0].with_name(f"{zips[0].name}.bench.json")
    try:
        write_atomically(output, (json.dumps(data, indent=2, sort_keys=True) + "\n").encode())
    except OSError as error:
        raise UsageError(
            f"the figures cannot be written: {error.strerror or error}",
            where=str(output),
            fix="name another place with --output",
        ) from error
    if args.json:
        print_json(data)
    elif not args.quiet:
        print(render(result))
    return 0


def _positive(option: str, value: int) -> int:
    if value < 1:
        raise UsageError(f"{option} takes a number from 1 on, not {value}")
    return value


def _seconds(value: float) -> float:
    if not 0 < value <= _MOST_SECONDS:
        raise UsageError(f"--seconds takes more than 0 and at most {_MOST_SECONDS}, not {value:g}")
    return value


def _users(text: str) -> tuple[int, ...]:
    """Return the loads that ``--users`` names; none for ``0``.

    Raises:
        UsageError: It is no list of numbers.
    """
    words = [word.strip() for word in text.split(",")]
    if words == ["0"]:
        return ()
    if not all(
        word.isascii() and word.isdigit() and 0 < int(word) <= _MOST_USERS for word in words
    ):
        raise UsageError(
            f"--users takes numbers from 1 to {_MOST_USERS} with commas, not `{text}`",
            fix="e.g. --users 1,4,16; 0 leaves the server out",
        )
    return tuple(int(word) for word in words)
