"""Real builds of llama.cpp, start to verified zip. Minutes each; the compiler cache in the user's
store makes later runs fast.

Which ones: QBUILD_TEST_BUILDS, e.g. ``avx2:linux,laptop:windows``, or ``all``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbuild.recipe.load import known_recipes, load_recipe
from qbuild.store import Store

pytestmark = pytest.mark.build

DEFAULT = "avx2:linux,avx2:windows"


def builds() -> list[tuple[str, str]]:
    wanted = os.environ.get("QBUILD_TEST_BUILDS", DEFAULT)
    if wanted == "all":
        return [(name, system) for name in known_recipes() for system in load_recipe(name).supports]
    return [(a, b) for a, _, b in (item.partition(":") for item in wanted.split(","))]


@pytest.mark.parametrize(("recipe", "system"), builds())
def test_a_recipe_becomes_a_verified_zip(
    recipe: str, system: str, user_store: Store, tmp_path: Path
) -> None:
    dist = Path(os.environ.get("QBUILD_TEST_DIST") or tmp_path)
    command = [
        sys.executable, "-m", "qbuild", "--recipe", recipe, "--os", system,
        "--store", str(user_store.root), "--dist", str(dist),
    ]  # fmt: skip
    done = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE)
    assert done.returncode == 0
    (verdict_file,) = dist.glob(f"llama-*-{recipe}-{system}-*.verdict.json")
    verdict = json.loads(verdict_file.read_text())
    failed = [c for c in verdict["checks"] if c["status"] == "failed"]
    assert not failed
    if os.environ.get("QBUILD_REQUIRE_TOOLS"):
        ran = {c["id"] for c in verdict["checks"] if c["status"] == "passed"}
        assert any("version" in i for i in ran), "nothing of the zip was run"
        assert any("generate" in i for i in ran)
        assert any("server" in i for i in ran)
        if load_recipe(recipe).cuda.architectures:
            assert "cuda" in ran
            assert any("devices" in i for i in ran), "the CUDA backend was not loaded"
