"""The plan as commands that a person can type: the same source, patches, options and compiler.

The script needs git, Python with pip, and the checkout's ``patches`` folder; its binaries are
those of the bundle when it runs in a folder of any name.
"""

from __future__ import annotations

from collections.abc import Sequence

from qbuild import cmake
from qbuild.errors import UsageError
from qbuild.plan import Plan
from qbuild.toolchains.base import Layout, wrapper_text


def render(plan: Plan, shell: str) -> str:
    """Return the script text.

    Args:
        plan: What to build.
        shell: ``sh``, ``cmd`` or ``ps1``.

    Raises:
        UsageError: The shell is unknown.
    """
    if shell not in ("sh", "cmd", "ps1"):
        raise UsageError(f"there is no script for `{shell}`", fix="sh, cmd or ps1")
    if plan.tree is not None:
        raise UsageError(
            "there is no script for the clang-cuda toolchain: its CUDA folder is put together from "
            "wheels by qbuild itself",
            where=f"recipe {plan.recipe.name}",
            fix="see docs/clang-cuda.md for what lies where, and `qbuild plan` for the steps",
        )
    windows = shell != "sh"
    here = {"sh": "$PWD", "cmd": "%CD:\\=/%", "ps1": "$here"}[shell]
    programs = {
        "zig": f"{here}/tools/ziglang/ziglang/zig{'.exe' if windows else ''}",
        "cc": plan.toolchain.name if plan.toolchain.name != "gcc" else "gcc",
        "c++": "clang++" if plan.toolchain.name == "clang" else "g++",
    }
    layout = plan.toolchain.layout(
        plan.recipe, programs=programs, work=here, cache_dir=f"{here}/cache"
    )
    writer = {"sh": _Sh, "cmd": _Cmd, "ps1": _Ps1}[shell]()
    _compose(plan, layout, writer, windows=windows)
    return writer.text()


def _compose(plan: Plan, layout: Layout, out: _Shell, *, windows: bool) -> None:
    pin, recipe = plan.pin, plan.recipe
    out.start(
        f"Builds what `qbuild --recipe {recipe.name} --os {recipe.target.os}` compiles: "
        f"llama.cpp {pin.commit[:9]}."
    )
    out.note(
        "Everything it makes lies in the current folder: run it in an empty one inside qbuild's"
    )
    out.note("clone, or let PATCHES name the `patches` folder.")
    out.note("Source: the pinned commit; compare the tree id that git prints with")
    out.note(pin.tree)
    out.run("git", "init", "-q", "src")
    out.run("git", "-C", "src", "config", "core.autocrlf", "false")
    out.run("git", "-C", "src", "fetch", "--depth", "1", pin.url, pin.commit)
    out.run("git", "-C", "src", "checkout", "-q", "FETCH_HEAD")
    out.run("git", "-C", "src", "log", "-1", "--format=%T")
    if plan.series:
        out.note("Patches, in the recipe's order (PATCHES is the `patches` folder of qbuild)")
        out.variable("PATCHES", "../patches")
        for series in plan.series:
            for patch in series.patches:
                out.run(
                    "git", "-C", "src", "-c", "user.name=me", "-c", "user.email=me@invalid", "am",
                    "--3way", "--keep-non-patch", out.path_in("PATCHES", series.name, patch.file),
                )  # fmt: skip
    out.note("Tools, as pinned")
    for wheel in plan.wheels:
        out.run(
            "python" if windows else "python3", "-m", "pip", "install", "--no-deps", "--target",
            f"tools/{wheel.project}", f"{wheel.project}=={wheel.version}",
        )  # fmt: skip
    out.note("The compiler as one program, and CMake's toolchain and options")
    suffix = ".cmd" if windows else ""
    for name, command in layout.wrappers.items():
        out.file(f"tools/{name}{suffix}", _wrapper(command, windows=windows), executable=True)
    toolchain = layout.toolchain_file
    if windows:
        for name in layout.wrappers:
            toolchain = toolchain.replace(f'/tools/{name}"', f'/tools/{name}.cmd"')
    out.file("toolchain.cmake", toolchain, literal=True)
    out.file("cache.cmake", cmake.init_cache(plan.configure.inputs["cache"]), literal=True)
    for name, value in layout.env.items():
        out.environment(name, value)
    out.note("Configure and compile")
    exe = ".exe" if windows else ""
    out.run(
        f"tools/cmake/cmake/data/bin/cmake{exe}", "-S", "src", "-B", "build", "-G", "Ninja",
        "-C", "cache.cmake", f"-DCMAKE_TOOLCHAIN_FILE={out.here}/toolchain.cmake",
        f"-DCMAKE_MAKE_PROGRAM={out.here}/tools/ninja/bin/ninja{exe}", "-Wno-author",
    )  # fmt: skip
    out.run(f"tools/ninja/bin/ninja{exe}", "-C", "build", *recipe.build.targets)
    out.note("The binaries lie in build/bin.")


def _wrapper(command: Sequence[str], *, windows: bool) -> str:
    if windows:
        return wrapper_text(command, windows=True).replace("\r\n", "\n")
    # Double quotes: the folder ($PWD) is filled in when the script writes the file.
    return "#!/bin/sh\nexec " + " ".join(f'"{part}"' for part in command) + ' "\\$@"\n'


class _Shell:
    """Collects lines in one shell's language."""

    comment = "#"
    end = "\n"
    here = "$PWD"

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, text: str) -> None:
        self.note(text)

    def note(self, text: str) -> None:
        self.lines.append(f"{self.comment} {text}")

    def quote(self, word: str) -> str:
        plain = all(c.isalnum() or c in "-_./=:+@" for c in word)
        return word if plain else f'"{word}"'

    def run(self, *words: str) -> None:
        self.lines.append(" ".join(self.quote(word) for word in words))

    def variable(self, name: str, value: str) -> None:
        raise NotImplementedError

    def path_in(self, variable: str, *parts: str) -> str:
        raise NotImplementedError

    def environment(self, name: str, value: str) -> None:
        raise NotImplementedError

    def file(
        self, name: str, text: str, *, literal: bool = False, executable: bool = False
    ) -> None:
        raise NotImplementedError

    def text(self) -> str:
        return self.end.join([*self.lines, ""])


class _Sh(_Shell):
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

    def file(
        self, name: str, text: str, *, literal: bool = False, executable: bool = False
    ) -> None:
        mark = "'EOF'" if literal else "EOF"
        self.lines.append(f"cat > {name} <<{mark}\n{text}EOF")
        if executable:
            self.lines.append(f"chmod +x {name}")


class _Cmd(_Shell):
    comment = "rem"
    end = "\r\n"
    here = "%CD:\\=/%"

    def start(self, text: str) -> None:
        self.lines += ["@echo off", f"rem {text}", "setlocal"]

    def quote(self, word: str) -> str:
        word = word.replace("--format=%T", "--format=%%T")
        return super().quote(word)

    def run(self, *words: str) -> None:
        # A program named with forward slashes is not found by cmd.
        program = words[0].replace("/", "\\")
        line = " ".join([self.quote(program), *(self.quote(w) for w in words[1:])])
        self.lines.append(f"{line} || exit /b 1")

    def variable(self, name: str, value: str) -> None:
        self.lines.append(f'if not defined {name} set "{name}={value}"')
        self.lines.append(f'for %%d in ("%{name}%") do set "{name}=%%~fd"')

    def path_in(self, variable: str, *parts: str) -> str:
        return "\\".join([f"%{variable}%", *parts])

    def environment(self, name: str, value: str) -> None:
        self.lines.append(f'set "{name}={value}"')

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
            if '"' not in line:  # cmd leaves what stands in quotes alone
                escaped = "".join(f"^{c}" if c in "^&<>|()" else c for c in escaped)
            self.lines.append(f'>>"{target}" echo({escaped}')


class _Ps1(_Shell):
    end = "\r\n"
    here = "$here"

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

    def variable(self, name: str, value: str) -> None:
        self.lines.append(f"if (-not ${name}) {{ ${name} = (Resolve-Path '{value}').Path }}")

    def path_in(self, variable: str, *parts: str) -> str:
        return "/".join([f"${variable}", *parts])

    def environment(self, name: str, value: str) -> None:
        self.lines.append(f'$env:{name} = "{value}"')

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
