"""Write the generated files: schemas, reference pages, pipelines, golden scripts.

``--check`` only looks.

Run it after a change to a recipe, the recipe model or the error classes; a test fails when it was
forgotten.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from goldens import goldens

from qbuild.doctor import schema as doctor_schema
from qbuild.extras.ci import github, gitlab
from qbuild.recipe import schema

ROOT = Path(__file__).resolve().parent.parent


@cache
def generated() -> dict[str, str]:
    """Return file name (below the checkout) → text."""
    return {
        "recipes/recipe.schema.json": schema.json_schema_text(),
        "docs/reference/recipe.md": schema.reference_page(),
        "docs/reference/exit-codes.md": schema.exit_codes_page(),
        "docs/reference/facts.schema.json": doctor_schema.facts_schema_text(),
        "docs/reference/doctor.md": doctor_schema.reference_page(),
        **github.files(),
        gitlab.FILE: gitlab.text(),
        **goldens(),
    }


def stale(root: Path = ROOT) -> list[str]:
    """Return the names of files that differ from what would be written."""
    names = []
    for name, text in generated().items():
        path = root / name
        if not path.is_file() or path.read_bytes() != text.encode():
            names.append(name)
    return names


def main() -> int:
    """Write, or with ``--check`` report and fail."""
    texts = generated()
    names = stale()
    for name in names:
        if "--check" in sys.argv:
            print(f"stale: {name}; run python ci/generate.py")
        else:
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(texts[name].encode())
            print(f"wrote {name}")
    return 1 if names and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
