"""Options and helpers that several commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbuild.errors import StoreError, UsageError

if TYPE_CHECKING:
    from qbuild.recipe.lock import Lock
    from qbuild.recipe.model import Recipe
    from qbuild.steps.options import BuildOptions
    from qbuild.steps.plan import Plan
    from qbuild.store import Store


def add_everywhere(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    group = parser.add_argument_group("everywhere")
    group.add_argument("--json", action="store_true", help="machine-readable output")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress, no chatter")
    group.add_argument("--store", metavar="DIR", help="where results and caches are kept")
    group.add_argument("--lockfile", metavar="FILE", help="pins to use instead of qbuild's own")
    group.add_argument("--patches", metavar="DIR", help="folder of patch series to use instead")
    group.add_argument("--debug", action="store_true", help="show Python tracebacks")


def add_verbs(parser: argparse.ArgumentParser) -> Callable[..., argparse.ArgumentParser]:
    """Give a command verbs; return what adds one: from its name, what it does, its function.

    The function becomes ``args.run``. The options of every command may stand behind the verb, too,
    without a default of theirs.
    """
    verbs = parser.add_subparsers(
        dest="verb", metavar="VERB", required=True, parser_class=type(parser)
    )
    everywhere = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    add_everywhere(everywhere)

    def verb(
        name: str, text: str, run: Callable[..., object] | None = None
    ) -> argparse.ArgumentParser:
        said = text[0].upper() + text[1:] + "."
        added = verbs.add_parser(name, help=text, description=said, parents=[everywhere])
        added.set_defaults(run=run)
        return added

    return verb


def add_recipe(parser: argparse.ArgumentParser, *, gpu: bool = True) -> None:
    """Add the ways to name a recipe and to override parts of it.

    Args:
        parser: Where to.
        gpu: Whether ``--gpu`` says what the recipe is for; in some commands it is the machine's.
    """
    parser.add_argument("name", nargs="?", metavar="RECIPE", help="recipe name or .toml file")
    parser.add_argument("--recipe", metavar="RECIPE", help="the same, as an option")
    parser.add_argument("--os", metavar="OS", help="linux or windows, instead of the recipe's")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one recipe key, e.g. build.linkage=static; may be repeated",
    )
    parser.add_argument(
        "--cuda-arch",
        action="append",
        default=[],
        metavar="ARCH",
        help="compile device code for this instead of the recipe's architectures, e.g. 86-real; "
        "may be repeated. One GPU's name alone means --gpu",
    )
    if gpu:
        parser.add_argument(
            "--gpu",
            dest="for_gpu",
            metavar="NAME",
            help='make the bundle for this GPU, e.g. "RTX 3060": name, papers and code are its own',
        )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which machine's memory is counted with."""
    parser.add_argument(
        "--facts", metavar="FILE", help="the machine (`qbuild doctor --capture`), not this one"
    )
    parser.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="NAME",
        help='a card instead of the machine\'s, e.g. "GTX 1060"; may be repeated',
    )
    parser.add_argument("--vram", type=_gigabytes, metavar="GB", help="memory of each card")
    parser.add_argument("--ram", type=_gigabytes, metavar="GB", help="main memory")


def _gigabytes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"a number of gigabytes above 0 is wanted, not {text!r}")
    return value


def add_build(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to build, none of which changes the zip."""
    parser.add_argument("-j", "--jobs", type=int, metavar="N", help="compilers at once")
    parser.add_argument("--offline", action="store_true", help="use only what the store has")
    parser.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="PATH|URL",
        help="try this place for the source first (clone, bare repository, sdist, URL)",
    )
    parser.add_argument(
        "--no-compiler-cache", action="store_true", help="compile every file, reuse no object"
    )
    parser.add_argument(
        "--remote-cache",
        metavar="URL",
        help="share objects with other machines: redis://, http:// or s3:// (not hermetic)",
    )
    parser.add_argument(
        "--remote-cache-mode",
        choices=("read-write", "read"),
        help="whether to put objects there as well (read-write)",
    )
    parser.add_argument(
        "--compile-on",
        action="append",
        default=[],
        metavar="HOST",
        help="let distcc compile on this host, NAME[:PORT][/JOBS]; may be repeated (not hermetic)",
    )
    parser.add_argument(
        "--keep-work", action="store_true", help="keep the build tree after success"
    )
    parser.add_argument("--dist", metavar="DIR", default="dist", help="output folder (dist)")


def build_options(args: argparse.Namespace) -> BuildOptions:
    """Return how to build, as :func:`add_build`'s options say.

    Raises:
        UsageError: ``--jobs`` is no positive number, or the configuration is malformed.
    """
    from qbuild.recipe.config import source_origins
    from qbuild.steps.options import BuildOptions
    from qbuild.steps.shared import Shared, shared

    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs takes a number from 1 on, not {args.jobs}")
    asked = shared(args.remote_cache, args.remote_cache_mode, args.compile_on)
    if args.no_compiler_cache and args.remote_cache:
        raise UsageError("--remote-cache and --no-compiler-cache contradict each other")
    if args.no_compiler_cache:
        asked = Shared(hosts=asked.hosts)
    return BuildOptions(
        jobs=args.jobs,
        offline=args.offline,
        origins=source_origins(args.origin),
        compiler_cache=not args.no_compiler_cache,
        keep_work=args.keep_work,
        shared=asked,
    )


def recipe_name(args: argparse.Namespace) -> str:
    """Return the one recipe the command line names.

    Raises:
        UsageError: None or two different ones are named.
    """
    if args.name and args.recipe and args.name != args.recipe:
        raise UsageError(f"two recipes named: `{args.name}` and `{args.recipe}`", fix="name one")
    name = args.recipe or args.name
    card = gpu_name(args)
    if not name and card:
        from qbuild.errors import RecipeError
        from qbuild.recipe.gpu import BASE, base_of

        try:
            return base_of(card)
        except RecipeError:  # the recipe's own check says what is wrong with it
            return BASE
    if not name:
        raise UsageError("no recipe named", fix="e.g. `qbuild --recipe avx2`; see `qbuild list`")
    return str(name)


def load(args: argparse.Namespace) -> Recipe:
    """Return the resolved recipe of the command line."""
    from qbuild.recipe.load import load_recipe

    overrides = list(args.overrides)
    if card := gpu_name(args):
        overrides.append(f"cuda.gpu={json.dumps(card)}")
    elif args.cuda_arch:
        overrides.append(f"cuda.architectures={json.dumps(cuda_archs(args.cuda_arch))}")
    return load_recipe(recipe_name(args), os=args.os, overrides=overrides)


def gpu_name(args: argparse.Namespace) -> str | None:
    """Return the one GPU that ``--gpu`` names, or ``--cuda-arch`` by a name.

    Raises:
        UsageError: Both are given.
    """
    card = getattr(args, "for_gpu", None)
    archs = getattr(args, "cuda_arch", None) or []
    if card and archs:
        raise UsageError(
            "--gpu and --cuda-arch contradict each other", fix="name the GPU, or the architectures"
        )
    if card:
        return str(card)
    if len(archs) != 1 or "," in archs[0] or archs[0][:1].isdigit():
        return None
    from qbuild.cuda.arch import find_gpu
    from qbuild.errors import RecipeError

    try:
        return find_gpu(archs[0]).name
    except RecipeError:
        return None


def cuda_archs(words: list[str]) -> list[str]:
    """Return architectures as a recipe spells them, from what ``--cuda-arch`` was given.

    A number without a kind is machine code alone (``61`` → ``61-real``): whoever names one GPU
    wants no PTX for others. A GPU's name stands for its architecture.
    """
    from qbuild.cuda.arch import find_gpu
    from qbuild.errors import RecipeError

    found = []
    for word in (part.strip() for each in words for part in each.split(",")):
        plain = word
        if not word[:1].isdigit():
            try:
                plain = find_gpu(word).cmake
            except RecipeError:
                plain = word  # the recipe's own check says what is wrong with it
        if plain.isdigit():
            plain += "a-real" if plain.startswith("12") else "-real"
        found.append(plain)
    return found


def load_lock(args: argparse.Namespace) -> Lock:
    """Return the lockfile: ``--lockfile``, else qbuild's own."""
    from qbuild import resources
    from qbuild.recipe import lock

    return lock.load_lock(Path(args.lockfile) if args.lockfile else resources.lockfile())


def make_plan(args: argparse.Namespace, *, mails: bool = True) -> Plan:
    """Return the plan of the command line's recipe on this host, or on the captured machine.

    Args:
        args: The command line.
        mails: Read the patches to their end; see :func:`qbuild.patches.load_series`.
    """
    from qbuild import host
    from qbuild.steps import plan
    from qbuild.steps.captured import capture
    from qbuild.toolchains.visual_studio.installed import load_facts

    recipe = load(args)
    facts = getattr(args, "facts", None)
    return plan.make_plan(
        recipe,
        load_lock(args),
        host="windows-x86_64" if facts else host.platform_key(),
        patches_root=Path(args.patches) if args.patches else None,
        captured=capture(recipe, load_facts(Path(facts)) if facts else None),
        mails=mails,
    )


def existing_zip(name: str) -> Path:
    """Return the path of a zip that the command line names.

    Raises:
        UsageError: There is no such file.
    """
    path = Path(name)
    if not path.is_file():
        raise UsageError(
            f"there is no zip {path.name}" if not path.exists() else f"`{name}` is not a file",
            where=str(path),
            fix="check the path; a build leaves its zip in dist/"
            if not path.exists()
            else "name one zip, not the folder it lies in",
        )
    return path


def store(args: argparse.Namespace) -> Store:
    """Return the store: ``--store``, QBUILD_STORE, the configuration, else the cache folder.

    Raises:
        UsageError: None is named, and the user has no home folder.
        StoreError: Its folder's name is too long for this system, or has letters that it minds.
    """
    from qbuild import host
    from qbuild.recipe.config import load_config
    from qbuild.store import Store

    root = args.store or load_config().store or host.user_folder("cache")
    if not root:
        raise UsageError(
            "there is no place for the store: this user has no home folder",
            fix="set HOME, or name a folder with --store or QBUILD_STORE",
        )
    path = Path(root).absolute()
    refuse_unfit(path)
    return Store(path)


def refuse_unfit(path: Path, what: str = "the store's folder") -> None:
    """Refuse a folder of a store that this system's programs cannot work below.

    Raises:
        StoreError: Its name is too long, or has letters that compilers mind.
    """
    from qbuild import host
    from qbuild.store import LONGEST

    limit = host.path_limit()
    if limit is not None and len(str(path)) + 1 + LONGEST > limit:
        raise StoreError(
            f"{what} has {len(str(path))} letters, and Windows' limit of {limit} for a "
            f"path leaves room for {limit - 1 - LONGEST}",
            where=str(path),
            fix="choose a shorter one with --store, e.g. --store C:\\q, or turn long paths on "
            "(gpedit: Enable Win32 long paths)",
        )
    if awkward := host.awkward_letters(str(path)):
        raise StoreError(
            f"compilers cannot be called in a folder with {' '.join(awkward)} in its name",
            where=str(path),
            fix="choose another one with --store, e.g. --store C:\\q; any alphabet will do",
        )


def print_json(data: Any) -> None:
    """Print data for machines on standard output: plain ASCII, valid whatever the locale is."""
    json.dump(data, sys.stdout, indent=2, sort_keys=True, ensure_ascii=True)
    sys.stdout.write("\n")
