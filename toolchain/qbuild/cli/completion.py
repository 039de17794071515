"""``qbuild completion``: shells that complete commands, options and recipes (by argcomplete)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, Final

from qbuild.console import Reporter
from qbuild.errors import UsageError

SHELLS: Final = ("bash", "zsh", "fish", "powershell")


def configure_parser(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=f"one of: {', '.join(SHELLS)}"
    )


def execute(args: argparse.Namespace, reporter: Reporter) -> int:  # noqa: ARG001
    """Print what the shell has to read at its start.

    Raises:
        UsageError: argcomplete is not installed.
    """
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise UsageError(
            "completion is done by argcomplete, which is not installed",
            fix="pip install 'qbuild[completion]' (in a checkout: pip install -e '.[completion]')",
        ) from None
    print(shellcode(["qbuild"], shell=args.shell))
    return 0


def answer(parser_for: Callable[[list[str], str], argparse.ArgumentParser]) -> int:
    """Tell the shell what may come next, and return the exit code when it cannot be told.

    Args:
        parser_for: Returns the parser for the words before the one that is being typed, and
            for how that begins.
    """
    try:
        import argcomplete
        from argcomplete.lexers import split_line
    except ImportError:
        return 1
    line = os.environ.get("COMP_LINE", "")
    point = int(os.environ.get("COMP_POINT", str(len(line))))
    # bash counts bytes: behind letters beyond ASCII the point lies past the line's end
    _, begun, _, words, _ = split_line(line, min(point, len(line)))
    parser = parser_for(list(words[1:]), begun)
    for action in _actions(parser):
        if action.dest == "recipe" or action.metavar == "RECIPE":
            action.completer = _recipes  # type: ignore[attr-defined]
        elif action.dest == "os":
            action.completer = _systems  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)
    return 1


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = []
    for action in parser._actions:
        found.append(action)
        if isinstance(action, argparse._SubParsersAction):
            found += [each for sub in action.choices.values() for each in _actions(sub)]
    return found


def _recipes(**_: Any) -> list[str]:
    from qbuild.recipe.load import known_recipes

    return sorted(known_recipes())


def _systems(**_: Any) -> list[str]:
    return ["linux", "windows"]
