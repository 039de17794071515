"""``qbuild verify ZIP``: check a finished zip by reading it; with ``--run``, run what is in it."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild.cli.common import existing_zip, print_json, store
from qbuild.console import Reporter
from qbuild.errors import UsageError, VerifyError

if TYPE_CHECKING:
    from qbuild.verify.verdict import Check


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "zip", metavar="ZIP|FOLDER", help="the zip, or where it was unpacked; only read"
    )
    parser.add_argument(
        "--run",
        action="store_true",
        help="also run its programs (no network, scratch home, limits) natively, in Wine, in "
        "qemu-user; only for zips you would run anyway",
    )
    parser.add_argument(
        "--gpu",
        metavar="GPU",
        default="",
        help='say whether this GPU runs it, by name or compute capability: "GTX 1060", 6.1',
    )
    parser.add_argument(
        "--emulate",
        metavar="GPU",
        action="append",
        default=[],
        help='also run the zip\'s own host code and kernels on an emulated GPU: "GTX 1060"; twice '
        "for two devices. Needs what `qbuild build R --emulator` prepared; fetches nothing",
    )
    parser.add_argument(
        "--model",
        metavar="GGUF",
        action="append",
        default=[],
        help="with --emulate: also compare this model's tokens, GPU against CPU",
    )
    parser.add_argument(
        "--sizes", action="store_true", help="show what each file costs and why it is there"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Check the zip and print the verdict; the exit code says whether it is accepted."""
    from qbuild.verify import verify_zip

    if Path(args.zip).is_dir():
        return _folder(args, reporter)
    path = existing_zip(args.zip)
    if args.gpu:
        from qbuild.cuda.arch import find_gpu

        find_gpu(args.gpu)  # a name that nobody knows is told before a minute of reading
    from qbuild.emulator import gpus

    emulated = [gpus.find(name) for name in args.emulate]
    verdict = verify_zip(path, reporter=reporter, gpu=args.gpu)
    if args.run and verdict.ok:
        from qbuild.verify.run import run_zip

        cache = store(args).root / "cache"
        verdict = verdict.with_checks(run_zip(path, cache_dir=cache, reporter=reporter))
    elif args.run:
        reporter.warn("a zip that is refused is not run")
    if emulated and verdict.ok:
        from qbuild.verify.emulate import emulate_zip

        models = [Path(name).absolute() for name in args.model]
        found = emulate_zip(path, emulated, home=store(args), models=models, reporter=reporter)
        verdict = verdict.with_checks(found)
        _keep(path, found, verdict.sha256)
    elif emulated:
        reporter.warn("a zip that is refused is not run on the emulated GPU")
    sound = all(check.id != "archive" for check in verdict.failed)
    if args.json:
        print_json(verdict.as_json() | (_sizes_json(path) if args.sizes and sound else {}))
    elif not args.quiet:
        print(verdict.render())
        if args.sizes and sound:
            from qbuild.verify import sizes

            print("\n" + sizes.render(sizes.costs(path)))
    return 0 if verdict.ok else VerifyError.exit_code


def _keep(path: Path, found: tuple[Check, ...], sha256: str) -> None:
    """Put what the emulated GPU showed into the verdict beside the zip, where there is one.

    The zip itself says nothing of it: a run must not change what it ran.
    """
    from qbuild.store import write_atomically
    from qbuild.verify.verdict import from_json, to_json

    kept = path.with_name(path.name + ".verdict.json")
    if not kept.is_file():
        return
    before = from_json(kept.read_text(encoding="utf-8"), where=str(kept))
    if before.sha256 != sha256:
        return  # another zip's
    checks = tuple(check for check in before.checks if not check.id.startswith("emulated."))
    verdict = dataclasses.replace(before, checks=(*checks, *found))
    write_atomically(kept, to_json(verdict).encode("utf-8"))


def _folder(args: argparse.Namespace, reporter: Reporter) -> int:
    """Check an unpacked zip.

    Raises:
        UsageError: An option is for zips only.
    """
    from qbuild.verify.folder import verify_folder

    if args.run or args.emulate or args.sizes:
        raise UsageError(
            "--run, --emulate and --sizes are for a zip, not for a folder",
            where=args.zip,
            fix="name the zip that it was unpacked from",
        )
    verdict = verify_folder(Path(args.zip), reporter=reporter, gpu=args.gpu)
    if args.json:
        print_json(verdict.as_json())
    elif not args.quiet:
        print(verdict.render())
    return 0 if verdict.ok else VerifyError.exit_code


def _sizes_json(path: Path) -> dict[str, Any]:
    from qbuild.verify import sizes

    return {"sizes": [asdict(cost) for cost in sizes.costs(path)]}
