"""The plan as commands that a person can type: the same source, patches, options and compiler.

The script needs git, Python with pip, and the checkout's ``patches`` folder; its binaries are
those of the bundle when it runs in a folder of any name.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from qbuild.errors import UsageError
from qbuild.recipe.load import as_dict
from qbuild.recipe.model import Recipe
from qbuild.recipe.rebuild import recipe_words
from qbuild.steps.order import BY_NAME
from qbuild.steps.plan import Plan
from qbuild.steps.shells import SHELLS

_BUILD_VARIABLES: Final = (
    "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CUDAFLAGS", "CUDAHOSTCXX", "SOURCE_DATE_EPOCH",
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
    "CMAKE_BUILD_TYPE", "CMAKE_GENERATOR", "CMAKE_GENERATOR_INSTANCE", "CMAKE_GENERATOR_PLATFORM",
    "CMAKE_GENERATOR_TOOLSET", "CMAKE_PREFIX_PATH", "CMAKE_C_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER",
)  # fmt: skip
"""What CMake and compilers read of a person's environment; a build by qbuild gets none of it."""


def _command(recipe: Recipe, shell: str) -> str:
    """Return the command that the script stands for, with every change, as that shell takes it."""
    given = ["qbuild", *recipe_words(as_dict(recipe))]
    if shell == "sh":
        return shlex.join(given)
    plain = re.compile(r"[\w./:=+-]+")
    if shell == "ps1":
        return " ".join(
            each if plain.fullmatch(each) else "'" + each.replace("'", "''") + "'" for each in given
        )
    quoted = [
        each if plain.fullmatch(each) else '"' + each.replace('"', '\\"') + '"' for each in given
    ]
    return " ".join(quoted)


def render(plan: Plan, shell: str) -> str:
    """Return the script text.

    Args:
        plan: What to build.
        shell: ``sh``, ``cmd`` or ``ps1``.

    Raises:
        UsageError: The shell is unknown, or the toolchain does not build where it runs.
    """
    if shell not in SHELLS:
        raise UsageError(f"there is no script for `{shell}`", fix="sh, cmd or ps1")
    out = SHELLS[shell]()
    words = plan.toolchain.script(shell, out.here)
    recipe = plan.recipe
    out.start(f"Builds what `{_command(recipe, shell)}` compiles: llama.cpp {plan.pin.commit[:9]}.")
    for line in (
        "Everything it makes lies in the current folder: run it in an empty one inside qbuild's",
        "clone, or let PATCHES name the `patches` folder.",
        *words.notes,
        "Nothing of the environment that changes what compilers do",
    ):
        out.note(line)
    out.clear([*_BUILD_VARIABLES, *words.variables])
    for step in plan.steps:
        BY_NAME[step.kind].script(plan, step, out)
    return out.text()
