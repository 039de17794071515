"""Write ``toolchain/data/launch/options.json``: the options of the pinned programs, from source.

    python ci/launch_options.py SOURCE      # the patched tree of recipe avx2; --check only compares

``qbuild plan`` and ``qbuild launch`` look a recipe's flags up in it, so a typing error costs no
download. A build looks into the patched source itself.
"""

from __future__ import annotations

import json
from pathlib import Path

from from_source import write_or_compare

from qbuild.bundle.launch.source_options import in_tree
from qbuild.recipe.load import known_recipes
from qbuild.recipe.lock import load_lock

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "toolchain" / "data" / "launch" / "options.json"
PROGRAMS = ("llama-server", "llama-cli", "llama-bench")


def table(source: Path) -> str:
    """Return the table as JSON, an option a line."""
    found = {program: in_tree(source, program) or {} for program in PROGRAMS}
    removed = {
        name[2:]: each.removed
        for program in found.values()
        for name, each in program.items()
        if each.removed and name.startswith("--")
    }
    recipes = known_recipes()
    head = {
        "commit": load_lock(ROOT / "qbuild.lock").source("llama.cpp").commit,
        "series": sorted({name for each in recipes for name in _series(each)}),
        "removed": dict(sorted(removed.items())),
    }
    lines = json.dumps(head, indent=1)[:-2] + ',\n "programs": {\n'
    parts = []
    for program, options in found.items():
        rows = [
            f"   {json.dumps(name)}: "
            + json.dumps([o.option.hint, "", list(o.option.values), o.removed])
            for name, o in sorted(options.items())
            if name.startswith("--")
        ]
        parts.append(f"  {json.dumps(program)}: {{\n" + ",\n".join(rows) + "\n  }")
    return lines + ",\n".join(parts) + "\n }\n}\n"


def _series(name: str) -> tuple[str, ...]:
    from qbuild.recipe.load import load_recipe

    return tuple(load_recipe(name).series)


if __name__ == "__main__":
    raise SystemExit(write_or_compare(lambda source: {OUT: table(source)}))
