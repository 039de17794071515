"""The ``qbuild`` program: find the command, run it, turn errors into messages and exit codes."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import re
import select
import sys
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

from qbuild import __version__
from qbuild.cli.common import add_everywhere
from qbuild.errors import Interrupted, QbuildError, StoreError, UsageError

COMMANDS = {
    "build": "make a verified zip from a recipe (the default command)",
    "list": "list the recipes",
    "show": "show one recipe, resolved",
    "plan": "show the steps of a build, or a script of them",
    "verify": "check a finished zip",
    "bench": "measure how fast a zip is, alone and with several users",
    "report": "write a page about a finished zip, to look at and to pass on",
    "reproduce": "build twice from scratch under varied conditions and compare",
    "patch": "look after the patch series",
    "test": "build and run the tests that ride in the patch series",
    "wheel": "make a pip-installable wheel of a recipe's binaries",
    "ci": "write pipelines from the recipes, or run their jobs here",
    "doctor": "explain what is wrong with this machine or a failed log",
    "crt": "say which C runtime prebuilt Windows libraries ask for",
    "detect": "say which recipe fits this machine",
    "model": "say what a GGUF file is, and what of it fits this machine",
    "launch": "write what starts a bundle: scripts, services, nginx, Ollama",
    "toolkit": "list the CUDA toolkits here, or put one together from NVIDIA's archives",
    "lock": "check or move the pins",
    "cache": "size, prune or verify the store",
    "completion": "print what lets a shell complete commands, options and recipes",
    "version": "print the version",
}


class _Parser(argparse.ArgumentParser):
    """argparse, but its errors are qbuild's."""

    def error(self, message: str) -> NoReturn:
        missing = message.partition("required: ")[2]
        for action in self._actions:
            if action.choices and missing and missing == action.metavar:
                verbs = ", ".join(str(each) for each in action.choices)
                raise UsageError(
                    f"`{self.prog}` does one of several things: which one?",
                    fix=f"one of: {verbs}; see `{self.prog} --help`",
                )
        raise UsageError(message, fix=f"see `{self.prog} --help`")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; only the named command's module is imported.

    Raises:
        UsageError: The command line is wrong.
    """
    words = list(argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    name = _command_in(words)
    if words in (["-h"], ["--help"]):
        words, name = ["--help"], None
    elif words in (["-V"], ["--version"]):
        words, name = ["version"], "version"
    elif name is None:
        # `qbuild --recipe avx2` and `qbuild avx2` mean `qbuild build …`; with no recipe at all
        # it builds what fits this machine.
        _refuse_misspelt_command(words)
        words, name = ["build", *words], "build"
    else:
        words.remove(name)
        words = [name, *words]
    parser, chosen = _parser(name)
    args, unknown = parser.parse_known_args(words)
    if unknown:
        options = re.findall(r"(?<![\w-])--[a-z][a-z-]+", chosen.format_help())
        import difflib

        near = difflib.get_close_matches(unknown[0].partition("=")[0], options, n=1, cutoff=0.8)
        raise UsageError(
            f"unrecognized arguments: {' '.join(unknown)}",
            fix=f"did you mean `{near[0]}`?" if near else f"see `{chosen.prog} --help`",
        )
    return args


def _parser(name: str | None) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Return the parser of all commands, and the one of the named command, which it describes."""
    parser = _Parser(
        prog="qbuild",
        description="Turns a recipe for a machine into a verified, reproducible llama.cpp zip.",
        epilog="`qbuild --recipe avx2` is short for `qbuild build --recipe avx2`; plain `qbuild` "
        "builds the recipe that `qbuild detect` names. "
        "Exit codes: see docs/reference/exit-codes.md.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"qbuild {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    chosen = parser
    for command in COMMANDS if name is None else (name,):  # each of 22 would take time
        text = COMMANDS[command]
        sub = commands.add_parser(command, help=text, description=text[0].upper() + text[1:] + ".")
        if command == name:  # the others are only names in a list
            chosen = sub
            _describe(command, sub)
    return parser, chosen


def _parser_to_complete(words: list[str], begun: str) -> argparse.ArgumentParser:
    """Return the parser for a line that is being typed: without a command it is that of `build`.

    Args:
        words: What is there already.
        begun: The word that is being typed, as far as it is.
    """
    name = _command_in(words)
    if name is not None or not (words or begun.startswith("-")):
        return _parser(name)[0]
    parser = _Parser(prog="qbuild")
    _describe("build", parser)
    return parser


def _describe(command: str, parser: argparse.ArgumentParser) -> None:
    """Add a command's own options and those of all commands: the one place that knows them."""
    importlib.import_module(f"qbuild.cli.{command}").configure_parser(parser)
    add_everywhere(parser)


@cache
def _with_value(command: str) -> frozenset[str]:
    """Return the options of a command that a value follows."""
    parser = _Parser(add_help=False)
    _describe(command, parser)
    return frozenset(
        name for action in parser._actions if action.nargs != 0 for name in action.option_strings
    )


def _plain(words: Sequence[str], command: str) -> list[str]:
    """Return the words that are neither an option nor an option's value."""
    valued = _with_value(command) if any(word.startswith("-") for word in words) else frozenset()
    before = ["", *words]
    return [
        word
        for word, last in zip(words, before, strict=False)
        if not word.startswith("-") and last not in valued
    ]


def _command_in(words: Sequence[str]) -> str | None:
    """Return the command: a command's name with nothing but its own options before it."""
    named = [word for word in words if word in COMMANDS]
    for index, word in enumerate(words):
        if word not in COMMANDS or _plain(words[:index], word):
            continue
        last = words[index - 1] if index else ""
        possible = [*named, "build"] if last.startswith("-") else []
        if any(last in _with_value(each) for each in possible):
            continue  # `--recipe list`: a recipe of that name
        return word
    return None


def _refuse_misspelt_command(words: Sequence[str]) -> None:
    """Raise UsageError when what stands for a recipe is nearer to a command's name."""
    word = next(iter(_plain(words, "build")), "")
    if not word.isalpha():  # paths and most recipes have other characters
        return
    import difflib

    from qbuild.recipe.load import known_recipes

    near = difflib.get_close_matches(word, [*known_recipes(), *COMMANDS], n=1)
    if near and near[0] in COMMANDS:
        raise UsageError(
            f"there is no command and no recipe `{word}`", fix=f"did you mean `qbuild {near[0]}`?"
        )


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (the console script's entry point)."""
    if "_ARGCOMPLETE" in os.environ and argv is None:  # a shell asks what may come next
        from qbuild.cli import completion

        return completion.answer(_parser_to_complete)
    words = sys.argv[1:] if argv is None else list(argv)
    as_json, debug = "--json" in words, "--debug" in words
    _open_closed_streams()
    _say_what_can_be_said()
    try:
        args = parse(words)
        _check_working_folder()
        from qbuild import console, process

        process.stop_on_signals()
        reporter = console.reporter(quiet=args.quiet or args.json)
        module = importlib.import_module(f"qbuild.cli.{args.command}")
        status = int(module.execute(args, reporter))
        sys.stdout.flush()
        return status
    except BaseException as error:
        return _end(error, as_json=as_json, debug=debug)


def _end(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Say what ended the command and return its exit code; what is not ours to say is raised."""
    from qbuild import process

    # Whoever is being stopped finds children dead and files half read: none of it is a finding.
    if isinstance(error, KeyboardInterrupt) or process.stop_asked():
        where = str(error) if isinstance(error, KeyboardInterrupt) else ""
        stopped = Interrupted(
            "stopped", where=where or None, fix="run the same command again: it carries on"
        )
        with process.signals_ignored():  # a second Ctrl-C must not cut the message short
            return _fail(stopped, as_json=as_json, debug=debug)
    if isinstance(error, QbuildError):
        return _fail(error, as_json=as_json, debug=debug)
    if isinstance(error, OSError):
        if isinstance(error, BrokenPipeError) and _reader_left():
            return 0
        problem = _os_error(error)
        unwritable = isinstance(problem, StoreError)  # then standard error has to say it
        return _fail(problem, as_json=as_json and not unwritable, debug=debug)
    if debug or not isinstance(error, Exception):
        raise error
    return _fail(_unexpected(error), as_json=as_json, debug=debug)


def _check_working_folder() -> None:
    """Refuse to run where relative paths mean nothing.

    Raises:
        UsageError: The working folder was deleted, or may not be looked at.
    """
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() is this call
    except OSError as error:
        raise UsageError(
            f"the working folder is gone: {error.strerror}", fix="change into another one: cd"
        ) from None


def _open_closed_streams() -> None:
    """Put /dev/null where a standard stream is closed (`>&-`).

    Otherwise the next file that is opened, in the store maybe, would be standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                opened = os.open(os.devnull, os.O_RDWR)
                if opened != number:
                    os.dup2(opened, number)
                    os.close(opened)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def _say_what_can_be_said() -> None:
    """Let a letter that the terminal's code page lacks come out as `?` instead of ending the run.

    Output that is redirected on Windows is in the system's code page (1252, 936, ...); a name from
    another alphabet is no reason to fail. Scripts and pages are written as UTF-8 by themselves.
    """
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.errors == "strict":
        with contextlib.suppress(ValueError, OSError):
            reconfigure(errors="replace")


def _reader_left() -> bool:
    """Tell whether standard output goes to a pipe that nobody reads (`| head`).

    That is no failure: the reader has what it wanted. A pipe to a child of ours is another thing.
    """
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        left = any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):  # no descriptor, or a system without poll
        left = False
    try:
        sys.stdout.flush()
    except OSError as error:
        left = left or isinstance(error, BrokenPipeError)
    if left:
        _drop_output()
    return left


def _drop_output() -> None:
    """Send what is still buffered nowhere: the interpreter would fail on it at its exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _os_error(error: OSError) -> QbuildError:
    """Return what the system said as an error of the class it belongs to."""
    # Steps turn a full disk under the store into an error of its own; this one is the output's.
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        _drop_output()
        return StoreError(
            f"the output cannot be written: {error.strerror}",
            fix="free some space, or send the output somewhere else",
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return UsageError(
            f"this path cannot be used: {error.strerror}",
            where=str(error.filename or ""),
            fix="name a shorter one" if error.errno == errno.ENAMETOOLONG else "mend the link",
        )
    return _unexpected(error)


def _unexpected(error: Exception) -> QbuildError:
    return QbuildError(
        f"unexpected {type(error).__name__}: {error}",
        fix="this is a fault in qbuild: run again with --debug and report what it prints",
    )


def _fail(error: QbuildError, *, as_json: bool, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    if as_json:
        from qbuild.cli.common import print_json

        try:
            print_json(error.as_json())
            sys.stdout.flush()
        except OSError:
            _drop_output()
            as_json = False
    if not as_json:
        with contextlib.suppress(OSError):  # the exit code says it, too
            print(f"qbuild: {error.render()}", file=sys.stderr, flush=True)
    return error.exit_code
