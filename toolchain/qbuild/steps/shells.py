"""Scripts in the languages of three shells, from the same calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from qbuild.toolchains.base import wrapper_text


class Shell:
    """Collects lines in one shell's language."""

    shell: ClassVar[str]  # its name for ``--script``

    windows: ClassVar[bool] = True
    comment: ClassVar[str] = "#"
    end: ClassVar[str] = "\r\n"
    here: ClassVar[str]  # how it spells the current folder

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, text: str) -> None:
        """Write the first lines."""
        self.note(text)

    def note(self, text: str) -> None:
        """Write a remark."""
        self.lines.append(f"{self.comment} {text}")

    def quote(self, word: str) -> str:
        """Return a word as the shell reads it back."""
        plain = all(c.isalnum() or c in "-_./=:+@" for c in word)
        return word if plain else f'"{word}"' if '"' not in word else self.quote_quotes(word)

    def quote_quotes(self, word: str) -> str:
        """Return a word that holds double quotes, as a program shall get it."""
        return f"'{word}'"

    def run(self, *words: str) -> None:
        """Run a program; stop when it fails."""
        self.lines.append(" ".join(self.quote(word) for word in words))

    def setup(self, words: Sequence[str]) -> None:
        """Run a batch file and keep what it puts into the environment."""
        raise NotImplementedError

    def variable(self, name: str, value: str) -> None:
        """Set a variable of the script, unless the person has."""
        raise NotImplementedError

    def path_in(self, variable: str, *parts: str) -> str:
        """Return a path in the folder that a variable names."""
        raise NotImplementedError

    def environment(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        raise NotImplementedError

    def clear(self, names: Sequence[str]) -> None:
        """Take variables out of the environment."""
        raise NotImplementedError

    def search_first(self, *folders: str) -> None:
        """Put folders of the current one before all others that programs are looked for in."""
        raise NotImplementedError

    def file(
        self, name: str, text: str, *, literal: bool = False, executable: bool = False
    ) -> None:
        """Write a text file; what the shell would fill in is filled in unless ``literal``."""
        raise NotImplementedError

    def wrapper(self, name: str, command: Sequence[str]) -> None:
        """Write a program below ``tools`` that runs a command with its own arguments added."""
        if self.windows:
            text = wrapper_text(command, windows=True).replace("\r\n", "\n")
        else:
            # Double quotes: the folder ($PWD) is filled in when the script writes the file.
            words = " ".join(f'"{part}"' for part in command)
            text = f'#!/bin/sh\nexec {words} "\\$@"\n'
        self.file(f"tools/{name}{'.cmd' if self.windows else ''}", text, executable=True)

    @property
    def suffix(self) -> str:
        """The end of a program's name."""
        return ".exe" if self.windows else ""

    def copy_folder(self, source: str, dest: str) -> None:
        """Copy what is in a folder into another one, which is made when missing."""
        raise NotImplementedError

    def copy_file(self, source: str, dest: str) -> None:
        """Copy a file into a folder, which is made when missing."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the script."""
        return self.end.join([*self.lines, ""])


class _Sh(Shell):
    """POSIX sh."""

    shell = "sh"
    windows = False
    end = "\n"
    here = "$PWD"

    def start(self, text: str) -> None:
        self.lines += ["#!/bin/sh", f"# {text}", "set -eu"]

    def variable(self, name: str, value: str) -> None:
        self.lines.append(f'{name}="${{{name}:-{value}}}"')

    def path_in(self, variable: str, *parts: str) -> str:
        # -C src: a relative folder is one level up from there
        return "/".join([f'$(cd "${variable}" && pwd)', *parts])

    def run(self, *words: str) -> None:
        quoted = [w if w.startswith("$(") else self.quote(w) for w in words]
        self.lines.append(" ".join(f'"{w}"' if w.startswith("$(") else w for w in quoted))

    def environment(self, name: str, value: str) -> None:
        self.lines.append(f'export {name}="{value}"')

    def clear(self, names: Sequence[str]) -> None:
        self.lines.append(f"unset {' '.join(names)}")

    def search_first(self, *folders: str) -> None:
        self.environment("PATH", ":".join([*(f"$PWD/{each}" for each in folders), "$PATH"]))

    def file(
        self, name: str, text: str, *, literal: bool = False, executable: bool = False
    ) -> None:
        mark = "'EOF'" if literal else "EOF"
        self.lines.append(f"cat > {name} <<{mark}\n{text}EOF")
        if executable:
            self.lines.append(f"chmod +x {name}")

    def copy_folder(self, source: str, dest: str) -> None:
        self.run("mkdir", "-p", dest)
        self.run("cp", "-R", f"{source}/.", dest)

    def copy_file(self, source: str, dest: str) -> None:
        self.run("mkdir", "-p", dest)
        self.run("cp", source, f"{dest}/")


class _Cmd(Shell):
    """Windows' cmd."""

    shell = "cmd"
    comment = "rem"
    here = "%CD:\\=/%"
    # Not `||`, which Wine 8 takes for `&`; not `if errorlevel 1`, which a crash is below.
    stop = "if not %ERRORLEVEL%==0 exit /b 1"

    def start(self, text: str) -> None:
        self.lines += ["@echo off", f"rem {text}", "setlocal"]

    def quote(self, word: str) -> str:
        word = word.replace("--format=%T", "--format=%%T")
        return super().quote(word)

    def quote_quotes(self, word: str) -> str:
        return '"' + word.replace('"', '\\"') + '"'

    def run(self, *words: str) -> None:
        # A program named with forward slashes is not found by cmd.
        program = words[0].replace("/", "\\")
        # python may be a batch file (pyenv-win); without `call` the script would end with it.
        call = "call " if program == "python" else ""
        line = call + " ".join([self.quote(program), *(self.quote(w) for w in words[1:])])
        self.lines += [line, self.stop]

    def setup(self, words: Sequence[str]) -> None:
        line = " ".join(self.quote(word) for word in words)
        self.lines += [f"call {line}", self.stop]

    def variable(self, name: str, value: str) -> None:
        self.lines.append(f'if not defined {name} set "{name}={value}"')
        self.lines.append(f'for %%d in ("%{name}%") do set "{name}=%%~fd"')

    def path_in(self, variable: str, *parts: str) -> str:
        return "\\".join([f"%{variable}%", *parts])

    def environment(self, name: str, value: str) -> None:
        self.lines.append(f'set "{name}={value}"')

    def clear(self, names: Sequence[str]) -> None:
        # A variable of that name would hide the one that cmd computes.
        wanted = " ".join(["ERRORLEVEL", *names])
        self.lines.append(f'for %%v in ({wanted}) do set "%%v="')

    def search_first(self, *folders: str) -> None:
        here = ";".join("%CD%\\" + each.replace("/", "\\") for each in folders)
        self.environment("PATH", f"{here};%PATH%")

    def file(
        self,
        name: str,
        text: str,
        *,
        literal: bool = False,
        executable: bool = False,  # noqa: ARG002
    ) -> None:
        target = name.replace("/", "\\")
        self.lines.append(f'type nul > "{target}"')
        for line in text.splitlines():
            # A script's own %CD% is filled in when it runs; the wrapper's %* must arrive as it is.
            escaped = line.replace("%", "%%") if literal else line.replace("%*", "%%*")
            # `echo.`, not `echo(`: Wine 8 writes the bracket as well.
            if '"' not in line:  # cmd leaves what stands in quotes alone
                escaped = "".join(f"^{c}" if c in "^&<>|()" else c for c in escaped)
            self.lines.append(f'>>"{target}" echo.{escaped}')

    def copy_folder(self, source: str, dest: str) -> None:
        source, dest = source.replace("/", "\\"), dest.replace("/", "\\")
        self.lines += [f'xcopy /e /i /q /y "{source}" "{dest}"', self.stop]

    def copy_file(self, source: str, dest: str) -> None:
        source, dest = source.replace("/", "\\"), dest.replace("/", "\\")
        self.lines.append(f'if not exist "{dest}" mkdir "{dest}"')
        self.lines += [f'copy /y "{source}" "{dest}\\" >nul', self.stop]


class _Ps1(Shell):
    """PowerShell 5 and later."""

    shell = "ps1"
    here = "$here"

    def quote_quotes(self, word: str) -> str:
        # PowerShell 5 hands quotes on to programs only with a backslash before them.
        return "'" + word.replace('"', '\\"') + "'"

    def start(self, text: str) -> None:
        self.lines += [
            f"# {text}",
            "$ErrorActionPreference = 'Stop'",
            "$here = $PWD.Path.Replace('\\', '/')",
            "function Step { $program, $rest = $args; & $program @rest; "
            "if ($LASTEXITCODE -ne 0) { exit 1 } }",
        ]

    def run(self, *words: str) -> None:
        program = f"./{words[0]}" if "/" in words[0] else words[0]
        self.lines.append(" ".join(["Step", self.quote(program), *map(self.quote, words[1:])]))

    def setup(self, words: Sequence[str]) -> None:
        # A batch file changes its own cmd only: that one prints what it has, and we take it over.
        line = " ".join([f'`"{words[0]}`"', *words[1:]])
        # What it says itself is shown, or else nobody learns why it failed.
        self.lines += [
            f'cmd /d /c "call {line} && set" | ForEach-Object {{ '
            "if ($_ -match '^([^=]+)=(.*)$') { Set-Item \"env:$($Matches[1])\" $Matches[2] } "
            "else { Write-Host $_ } }",
            "if ($LASTEXITCODE -ne 0) { exit 1 }",
        ]

    def variable(self, name: str, value: str) -> None:
        # git runs in another folder: a relative path is made a full one, whoever named it.
        self.lines += [
            f"if (-not ${name}) {{ ${name} = $env:{name} }}",
            f"if (-not ${name}) {{ ${name} = '{value}' }}",
            f"${name} = (Resolve-Path ${name}).Path",
        ]

    def path_in(self, variable: str, *parts: str) -> str:
        return "/".join([f"${variable}", *parts])

    def environment(self, name: str, value: str) -> None:
        self.lines.append(f'$env:{name} = "{value}"')

    def clear(self, names: Sequence[str]) -> None:
        wanted = ", ".join(f"'{name}'" for name in names)
        self.lines.append(
            f'{wanted} | ForEach-Object {{ Remove-Item "env:$_" -ErrorAction SilentlyContinue }}'
        )

    def search_first(self, *folders: str) -> None:
        here = ";".join("$PWD\\" + each.replace("/", "\\") for each in folders)
        self.environment("PATH", f"{here};$env:PATH")

    def file(
        self,
        name: str,
        text: str,
        *,
        literal: bool = False,
        executable: bool = False,  # noqa: ARG002
    ) -> None:
        # A here-string keeps quotes as they are; the double-quoted kind fills in $here.
        quote = "'" if literal else '"'
        self.lines.append(
            f"@{quote}\r\n{text.rstrip()}\r\n{quote}@ | Set-Content -Encoding ascii {name}"
        )

    def copy_folder(self, source: str, dest: str) -> None:
        self.lines.append(f"$null = New-Item -ItemType Directory -Force {dest}")
        self.lines.append(f'Copy-Item -Recurse -Force "{source}/*" {dest}')

    def copy_file(self, source: str, dest: str) -> None:
        self.lines.append(f"$null = New-Item -ItemType Directory -Force {dest}")
        self.lines.append(f'Copy-Item -Force "{source}" {dest}')


SHELLS: Final[Mapping[str, type[Shell]]] = {each.shell: each for each in (_Sh, _Cmd, _Ps1)}
"""Name for ``--script`` → writer."""
