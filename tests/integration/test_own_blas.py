"""The series own-blas on the emulated GPU: its functions against loops in double precision."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.emulator import gpus
from support.emulated import build

pytestmark = [pytest.mark.integration, pytest.mark.build]

TEST = Path(__file__).parents[1] / "cuda" / "matrix_products.cu"


# Few multiprocessors: the largest tile is taken only where there is work for all of them.
GPUS = {gpu.arch: gpu for gpu in (gpus.find("GTX 1060"), replace(gpus.find("A100"), sms=2))}


@pytest.fixture(scope="module", params=GPUS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the test program from the added files of the patch, as they stand in it."""
    import platformdirs

    folder = tmp_path_factory.mktemp("own-blas")
    (patch,) = (resources.patches_dir() / "own-blas").glob("*.patch")
    for name, text in added_files(patch.read_text(encoding="utf-8")).items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    source = folder / "source" / "ggml" / "src" / "ggml-cuda"
    store = Path(platformdirs.user_cache_dir("qbuild", appauthor=False))
    more = [f"-I{source / 'own-blas'}", f"-I{source}", "-DGGML_CUDA_OWN_BLAS"]
    made = folder / f"sm_{request.param}"
    return build([TEST, source / "own-blas.cu"], made, store=store, arch=request.param, more=more)


def added_files(patch: str) -> dict[str, str]:
    """Return path → text of every file that a patch adds."""
    found = {}
    for part in patch.split("\ndiff --git ")[1:]:
        if "\nnew file mode" in part:
            path = re.search(r"^\+\+\+ b/(.+)$", part, re.MULTILINE)
            assert path
            lines = part[part.index("\n@@") :].split("\n")[2:]
            found[path[1]] = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_products_and_systems_are_right(program: Path, seed: int) -> None:
    arch = program.parent.name.removeprefix("sm_")
    report = program.parent / f"report{seed}.tsv"
    # lanes in another order each time: what only lockstep would make right is found
    env = os.environ | {
        "QBUILD_EMULATOR_SHUFFLE": str(seed),
        "QBUILD_EMULATOR_REPORT": str(report),
        **gpus.environment([GPUS[arch]]),
    }
    ran = subprocess.run(
        [str(program), str(seed), "150"], env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "150 products, 38 triangular systems" in ran.stdout
    kernels = report.read_text(encoding="utf-8")
    tiles = {int(size) for size in re.findall(r"gemm_mma\w*?mma_tileILi(\d+)E", kernels)}
    assert tiles == ({64, 128} if arch == "80" else set())
