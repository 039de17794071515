"""``qbuild ci``: write pipelines from the recipes, or run their jobs on this machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from qbuild.cli.common import add_verbs, print_json
from qbuild.console import Reporter
from qbuild.errors import PipelineError, ReproduceError, UsageError

if TYPE_CHECKING:
    from qbuild.extras.ci.run import Instance


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verb = add_verbs(parser)
    for name, text in (
        ("github", "write .github/workflows/"),
        ("gitlab", "write ci/gitlab-ci.yml, a template to include or copy"),
    ):
        writer = verb(name, text, _write)
        writer.add_argument("--root", metavar="DIR", help="repository to write to (this one)")
        writer.add_argument(
            "--check", action="store_true", help="write nothing; fail when a file is not fresh"
        )
    verb("matrix", "every build the recipes stand for, for any other system (--json)", _matrix)
    runner = verb(
        "run", "do a job's steps here, from a clean clone of HEAD; no job named: list", _run
    )
    runner.add_argument("jobs", nargs="*", metavar="JOB", help="e.g. build-avx2-linux; `all`")
    runner.add_argument("--dry-run", action="store_true", help="print the steps, run nothing")
    runner.add_argument(
        "--artifacts",
        metavar="DIR",
        default="ci-artifacts",
        help="where jobs leave files for one another (ci-artifacts)",
    )
    runner.add_argument("--keep", action="store_true", help="keep clone and virtual environment")
    worker = verb(
        "host", "make this machine compile for others: the pinned compiler for distccd", _host
    )
    worker.add_argument("folder", metavar="DIR", help="new folder that everybody can read")
    compare = verb("compare", "compare the zips of two folders byte by byte", _compare)
    compare.add_argument("first", metavar="FIRST", help="folder of zips")
    compare.add_argument("second", metavar="SECOND", help="folder of zips with the same names")


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Run the verb."""
    return int(args.run(args, reporter))


def checkout() -> Path:
    """Return the repository that qbuild runs from.

    Raises:
        UsageError: It was installed from a wheel: there is none.
    """
    from qbuild import resources

    root = resources.data_root()
    if not (root / "pyproject.toml").is_file():
        raise UsageError(
            "this qbuild is not a clone's", fix="install it with `pip install -e .` in a clone"
        )
    return root


# -- github, gitlab -------------------------------------------------------------------------------


def _write(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    from qbuild.extras.ci import github, gitlab

    files = github.files() if args.verb == "github" else {gitlab.FILE: gitlab.text()}
    root = Path(args.root) if args.root else checkout()
    stale = [
        name
        for name, text in files.items()
        if not (root / name).is_file() or (root / name).read_bytes() != text.encode()
    ]
    for name in [] if args.check else stale:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(files[name].encode())
    if args.json:
        print_json({"files": sorted(files), "stale": stale, "written": not args.check})
        return PipelineError.exit_code if args.check and stale else 0
    if args.check and stale:
        raise PipelineError(
            "the pipelines are not what the recipes say",
            where=", ".join(stale),
            fix=f"run `qbuild ci {args.verb}` and commit what it writes",
        )
    for name in sorted(files):
        print(f"{'wrote' if name in stale else 'fresh'}: {name}")
    return 0


def _matrix(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    from qbuild.extras.ci.matrix import known_entries

    rows = known_entries()
    if args.json:
        print_json(rows)
        return 0
    for row in rows:
        note = f"  ({row['note']})" if row["note"] else ""
        print(f"{row['job']:<28} {row['runner']:<14} {row['toolchain']}{note}")
    return 0


# -- run ------------------------------------------------------------------------------------------


def _run(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild.extras.ci.jobs import workflows
    from qbuild.extras.ci.matrix import known_entries
    from qbuild.extras.ci.run import find, instances, lines

    known = instances(workflows(known_entries()))
    every = args.jobs == ["all"]
    wanted = [find(name, known) for name in (known if every else args.jobs)]
    if not wanted:
        width = max(len(name) for name in known)
        for name, each in known.items():
            remark = each.job.local or each.job.note
            print(f"{name:<{width}} {each.workflow:<10} {remark}".rstrip())
    for each in wanted:
        if args.dry_run:
            print("\n".join(lines(each)))
        elif not every or not each.job.local:
            _run_one(each, args, reporter)
    return 0


def _run_one(each: Instance, args: argparse.Namespace, reporter: Reporter) -> None:
    from qbuild import held
    from qbuild.extras.ci.run import Run, uncommitted

    root = checkout()
    if uncommitted(root):
        reporter.warn("the clone is of HEAD: what is not committed is not in it")
    if args.store:
        os.environ["QBUILD_STORE"] = str(Path(args.store).absolute())
    with contextlib.ExitStack() as ended:
        if args.keep:
            work = Path(tempfile.mkdtemp(prefix="qbuild-ci-"))
        else:
            work = ended.enter_context(held.scratch("qbuild-ci-"))
        reporter.say(f"job {each.name}, in {work}")
        artifacts = Path(args.artifacts).absolute()
        Run(instance=each, root=root, work=work, artifacts=artifacts, say=reporter.say).steps()
    print(f"job {each.name}: every step that runs here succeeded")


# -- host -----------------------------------------------------------------------------------------


def _host(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild import host
    from qbuild.cli.common import load_lock, store
    from qbuild.steps.pinned import fetch_wheel
    from qbuild.toolchains.spread import make_host

    folder = Path(args.folder).absolute()
    if folder.exists():
        raise UsageError("the folder exists already", where=str(folder), fix="name a new one")
    wheel = load_lock(args).wheel("ziglang", host.platform_key())
    entry = fetch_wheel(wheel, store(args), reporter, offline=False)
    offered = make_host(folder, entry.path / "files" / "ziglang" / "zig", wheel.version)
    if args.json:
        print_json({"programs": [str(path) for path in offered]})
        return 0
    print("Start the daemon so, with the network that may use it:\n")
    print(
        f"DISTCC_CMDLIST={folder}/allowed PATH={folder}/bin:/usr/bin:/bin \\\n"
        "  distccd --daemon --allow 192.0.2.0/24"
    )
    return 0


# -- compare --------------------------------------------------------------------------------------


def _compare(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    from qbuild.verify.compare import compare_zips

    first, second = Path(args.first), Path(args.second)
    names = [{path.name for path in folder.glob("*.zip")} for folder in (first, second)]
    for folder, found in zip((first, second), names, strict=True):
        if not found:
            raise UsageError("there are no zips to compare", where=str(folder))
    if lonely := sorted(names[0] ^ names[1]):
        raise UsageError("a zip has no counterpart", where=", ".join(lonely))
    results = {name: compare_zips(first / name, second / name) for name in sorted(names[0])}
    differing = {name: result for name, result in results.items() if not result.identical}
    if args.json:
        print_json({name: result.as_json() for name, result in results.items()})
        return ReproduceError.exit_code if differing else 0
    for name in results:
        print(f"{'DIFFERENT' if name in differing else 'identical'}: {name}")
    if differing:
        raise ReproduceError(
            f"{len(differing)} of {len(results)} zips differ: {', '.join(differing)}",
            where="\n         ".join(line for r in differing.values() for line in r.lines()),
        )
    return 0
