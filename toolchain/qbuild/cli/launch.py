"""``qbuild launch``: scripts, services and other files that start what a bundle holds."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from qbuild.cli.common import add_machine, add_recipe, add_verbs, load, load_lock, print_json
from qbuild.console import Reporter
from qbuild.errors import StoreError, UsageError

if TYPE_CHECKING:
    from qbuild.extras.together import Share
    from qbuild.modelfile.machine import Budget
    from qbuild.recipe.model import Recipe


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    verb = add_verbs(parser)
    show = verb("show", "the command line of each launch profile of a recipe")
    add_recipe(show)
    scripts = verb("scripts", "write the start scripts and files of settings of a recipe")
    add_recipe(scripts)
    scripts.add_argument("--dir", metavar="DIR", default=".", help="where to (default: here)")
    systemd = verb("systemd", "a systemd unit for a server profile (Linux)")
    add_recipe(systemd, gpu=False)
    _add_profile(systemd)
    systemd.add_argument(
        "--dir", metavar="DIR", default="/opt/llama", help="where the bundle is unpacked"
    )
    systemd.add_argument("--user", metavar="NAME", default="llama", help="system user that runs it")
    systemd.add_argument(
        "--memory", metavar="SIZE", default="80%", help="limit, e.g. 24G (default: 80%%)"
    )
    systemd.add_argument(
        "--models",
        metavar="DIR",
        help="the unpacked bundle with its models, to count whether servers fit side by side",
    )
    fit = verb("fit", "whether the servers that a profile starts fit this machine together")
    add_recipe(fit, gpu=False)
    _add_profile(fit)
    fit.add_argument(
        "--models", metavar="DIR", default=".", help="the unpacked bundle with its models (here)"
    )
    for sub in (systemd, fit):
        add_machine(sub)
    watchdog = verb("watchdog", "a batch file that starts a server profile again (Windows)")
    add_recipe(watchdog)
    _add_profile(watchdog)
    nginx = verb("nginx", "an nginx site in front of several servers")
    _add_nginx(nginx)
    ollama = verb("ollama", "an Ollama Modelfile for a model, with its own chat template")
    ollama.add_argument("model", metavar="FILE.gguf", help="only its header is read")
    ollama.add_argument("--ctx-size", type=int, metavar="N", help="tokens of context")
    for sub in (systemd, watchdog, nginx, ollama):
        sub.add_argument("-o", "--out", metavar="FILE", help="write it there, not to the screen")


def _add_nginx(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--upstream", action="append", default=[], metavar="HOST:PORT", help="may be repeated"
    )
    parser.add_argument("--listen", type=int, default=8000, metavar="PORT", help="default: 8000")
    parser.add_argument(
        "--queue",
        type=int,
        default=32,
        metavar="N",
        help="requests that are answered or wait at a time; others get 429 (default: 32)",
    )
    parser.add_argument("--server-name", default="_", metavar="NAME", help="default: any")


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", metavar="NAME", help="launch profile (default: the server's)")


def execute(args: argparse.Namespace, reporter: Reporter) -> int:
    """Run the verb."""
    if args.verb == "show":
        return _show(args)
    if args.verb == "scripts":
        return _scripts(args, reporter)
    if args.verb == "fit":
        return _fit(args)
    if args.verb == "systemd" and args.models:
        return _units(args, reporter)
    text = {"systemd": _systemd, "watchdog": _watchdog, "nginx": _nginx, "ollama": _ollama}[
        args.verb
    ](args)
    if args.json:
        print_json({"kind": args.verb, "text": text})
    if args.out:
        _write(Path(args.out), text.encode(), executable=False)
        reporter.say(f"wrote {args.out}")
    elif not args.json:
        print(text, end="")
    return 0


def _for(args: argparse.Namespace, system: str) -> Recipe:
    """Return the recipe for the one system that a service is for.

    Raises:
        UsageError: ``--os`` names the other one.
    """
    if args.os not in (None, system):
        raise UsageError(f"`launch {args.verb}` is for {system}, not for `{args.os}`")
    args.os = system
    return _checked(args)


def _systemd(args: argparse.Namespace) -> str:
    from qbuild.extras.services import server_profile, systemd_unit

    recipe = _for(args, "linux")
    name, _ = server_profile(recipe, args.profile)
    return systemd_unit(recipe, name, folder=args.dir, user=args.user, memory=args.memory)


def _counted(args: argparse.Namespace, recipe: Recipe) -> tuple[list[Share], Budget]:
    """Return what the servers of a profile take, and what the machine has."""
    from qbuild.cli.model import machine
    from qbuild.extras.together import profiles_together, shares
    from qbuild.modelfile.machine import budget_of, with_cards

    facts, _ = with_cards(machine(args), args.gpu, args.vram, args.ram)
    budget = budget_of(facts, recipe)
    profiles = profiles_together(recipe, args.profile or "services")
    return shares(profiles, Path(args.models), budget), budget


def _fit(args: argparse.Namespace) -> int:
    """Print what servers take together.

    Raises:
        UsageError: They do not fit.
    """
    from qbuild.extras.together import check_together, lines

    found, budget = _counted(args, _checked(args))
    if args.json:
        print_json(
            {
                "servers": [
                    {"profile": s.name, "model": s.model, "gpu_bytes": s.gpu, "ram_bytes": s.ram}
                    for s in found
                ],
                "gpu_bytes": budget.gpu,
                "ram_bytes": budget.ram,
            }
        )
    else:
        print("\n".join(lines(found, budget)))
    check_together(found, budget)
    return 0


def _units(args: argparse.Namespace, reporter: Reporter) -> int:
    """Write a unit for each server of a profile, when they fit together.

    Raises:
        UsageError: They do not fit, or no folder for the units is named.
    """
    from qbuild.extras.services import systemd_unit
    from qbuild.extras.together import check_together

    recipe = _for(args, "linux")
    found, budget = _counted(args, recipe)
    check_together(found, budget)
    if not args.out:
        raise UsageError(
            f"{len(found)} units go into a folder", fix="name it with -o, e.g. -o units"
        )
    for each in found:
        text = systemd_unit(recipe, each.name, folder=args.dir, user=args.user, memory=args.memory)
        path = Path(args.out) / f"llama-{each.name}.service"
        _write(path, text.encode(), executable=False)
        reporter.say(f"wrote {path}")
    return 0


def _watchdog(args: argparse.Namespace) -> str:
    from qbuild.extras.services import server_profile, watchdog

    recipe = _for(args, "windows")
    name, _ = server_profile(recipe, args.profile)
    return watchdog(recipe, name)


def _nginx(args: argparse.Namespace) -> str:
    from qbuild.extras.services import nginx_site

    upstreams = args.upstream or ["127.0.0.1:8080", "127.0.0.1:8081"]
    return nginx_site(upstreams, listen=args.listen, server_name=args.server_name, queue=args.queue)


def _ollama(args: argparse.Namespace) -> str:
    from qbuild.extras.ollama import modelfile, read_header

    path = Path(args.model)
    header = read_header(path)
    # A Modelfile's paths start where it lies.
    base = Path(args.out).absolute().parent if args.out else Path.cwd()
    shown = Path(os.path.relpath(path.absolute(), base)).as_posix()
    return modelfile(shown if shown.startswith("../") else f"./{shown}", header,
                     context=args.ctx_size)  # fmt: skip


def _checked(args: argparse.Namespace) -> Recipe:
    """Return the recipe whose options the pinned programs have.

    Raises:
        RecipeError: A profile names one that they do not have.
    """
    from qbuild.bundle.launch.profile import profiles_of
    from qbuild.bundle.launch.source_options import check_by_table

    recipe = load(args)
    commit = load_lock(args).source(recipe.source.pin).commit
    check_by_table(recipe, profiles_of(recipe), commit)
    return recipe


def _show(args: argparse.Namespace) -> int:
    import shlex

    from qbuild.bundle.launch.profile import command, profiles_of

    recipe = _checked(args)
    profiles = profiles_of(recipe)
    if args.json:
        print_json(
            {
                name: {"summary": profile.summary, "starts": list(profile.starts)}
                | ({} if profile.starts else {"command": command(profile)})
                for name, profile in profiles.items()
            }
        )
        return 0
    if not profiles:
        print(f"recipe {recipe.name} has no launch profiles")
    for name, profile in profiles.items():
        words = (
            f"starts {', '.join(profile.starts)}"
            if profile.starts
            else shlex.join(command(profile))
        )
        print(f"{name}: {profile.summary}\n  {words}")
    return 0


def _scripts(args: argparse.Namespace, reporter: Reporter) -> int:
    from qbuild.bundle.launch.scripts import extra_files

    files = extra_files(_checked(args))
    for file in files:
        _write(Path(args.dir) / file.name, file.content, executable=file.executable)
        reporter.say(f"wrote {Path(args.dir) / file.name}")
    if args.json:
        print_json([file.name for file in files])
    return 0


def _write(path: Path, content: bytes, *, executable: bool) -> None:
    from qbuild.store import write_atomically

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        with contextlib.suppress(OSError):  # a file system without permissions
            path.chmod(0o755 if executable else 0o644)
    except OSError as error:
        raise StoreError(
            f"cannot write {path.name}: {error.strerror or error}", where=str(path)
        ) from error
