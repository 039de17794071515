"""The CRT preflight on real COFF objects, against a real linker's own word.

clang's cl driver writes ``/DEFAULTLIB`` by itself; what Microsoft's C++ headers add with
``#pragma detect_mismatch`` is written into the sources here. lld-link says of each pair whether
its keys go together; the preflight must have said the same. Nothing that was compiled is run.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from qbuild.binary.coff import read_coff
from qbuild.recipe.model import Runtime
from qbuild.toolchains import crt

pytestmark = pytest.mark.integration

KEYS = {"/MT": "MT_StaticRelease", "/MTd": "MTd_StaticDebug", "/MD": "MD_DynamicRelease",
        "/MDd": "MDd_DynamicDebug"}  # fmt: skip
PRAGMAS = """\
#pragma detect_mismatch("RuntimeLibrary", "{key}")
#pragma detect_mismatch("_ITERATOR_DEBUG_LEVEL", "{level}")
#pragma detect_mismatch("_MSC_VER", "1900")
"""


def zig(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": os.environ["QBUILD_TEST_ZIG_CACHE"]}
    return subprocess.run(
        [os.environ["QBUILD_TEST_ZIG"], *words], cwd=cwd, env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``c-MT.obj`` (no keys), ``x-MT.obj`` (keys) … for four runtimes, and mixed.lib."""
    folder = tmp_path_factory.mktemp("coff")
    for flag, key in KEYS.items():
        name = flag[1:]
        level = 2 if name.endswith("d") else 0
        for kind, head in (("c", ""), ("x", PRAGMAS.format(key=key, level=level))):
            source = folder / f"{kind}-{name}.c"
            source.write_text(f"{head}int {kind}_{name}(void) {{ return 1; }}\n")
            done = zig(
                "clang", "--driver-mode=cl", "--target=x86_64-pc-windows-msvc", "/c", flag,
                f"/Fo{kind}-{name}.obj", source.name, cwd=folder,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    done = zig("lib", "/out:mixed.lib", "x-MT.obj", "c-MD.obj", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("runtime", ["dynamic", "static"])
@pytest.mark.parametrize("kind", ["c", "x"])
@pytest.mark.parametrize("flag", list(KEYS))
def test_each_object_against_each_recipe(
    objects: Path, flag: str, kind: str, runtime: Runtime
) -> None:
    found = crt.library_problems(read_coff(objects / f"{kind}-{flag[1:]}.obj"), runtime)
    assert bool(found) == (flag != crt.FLAGS[runtime])
    assert all(f"compiled with {flag} (" in problem.message for problem in found)


@pytest.mark.parametrize(("runtime", "other"), [("dynamic", "/MT"), ("static", "/MD")])
def test_a_mixed_library_is_refused_by_both(objects: Path, runtime: Runtime, other: str) -> None:
    (problem,) = crt.library_problems(read_coff(objects / "mixed.lib"), runtime)
    assert f"compiled with {other} (" in problem.message
    assert "members disagree" in problem.ways[0]


def test_the_linker_agrees_about_every_pair(objects: Path) -> None:
    for one, two in itertools.product(KEYS, KEYS):
        done = zig(
            "lld-link", "/dll", "/noentry", "/nodefaultlib", "/out:x.dll",
            f"x-{one[1:]}.obj", f"x-{two[1:]}.obj", cwd=objects,
        )  # fmt: skip
        said = done.stdout + done.stderr  # in Wine the bridge to zig joins the two
        stopped = "/failifmismatch" in said.lower()
        demand = crt.demand_of(read_coff(objects / f"x-{one[1:]}.obj").objects[0])
        assert list(demand.runtimes) == [one]
        assert stopped == (one != two), said
        if two in crt.FLAGS.values():
            runtime: Runtime = "dynamic" if two == "/MD" else "static"
            refused = crt.library_problems(read_coff(objects / f"x-{one[1:]}.obj"), runtime)
            assert bool(refused) == stopped
