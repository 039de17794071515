"""The wheel of a bundle: its name, tag, commands and licences come from the bundle's own papers."""

from __future__ import annotations

import hashlib
import json
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from qbuild.binary.zip_writer import ZipEntry, write_zip
from qbuild.errors import BundleError
from qbuild.extras import pywheel
from qbuild.extras.pywheel import describe, make_wheel, project_files


def manifest(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": "llama-g0c1e57098-avx2-linux-x86_64",
        "recipe": "avx2",
        "version": "g0c1e57098",
        "source": {"version": "0.5.0-dev"},
        "target": {"os": "linux", "arch": "x86_64", "cpu": "x86-64-v3", "glibc": "2.28"},
        "files": [
            {"path": "llama-cli", "executable": True},
            {"path": "llama-server", "executable": True},
            {"path": "libllama.so.0", "executable": False},
        ],
    }
    return data | changes


WINDOWS = {
    "target": {"os": "windows", "arch": "x86_64", "cpu": "x86-64-v3"},
    "files": [
        {"path": "llama-cli.exe", "executable": True},
        {"path": "llama.dll", "executable": False},
    ],
}


def sbom(*licences: dict[str, Any]) -> dict[str, Any]:
    return {"components": [{"licenses": [each]} for each in licences]}


def test_name_version_and_tag() -> None:
    what = describe(manifest(), sbom())
    assert what.filename == (
        "qbuild_llama_avx2-0.5.0.dev0+g0c1e57098-py3-none-manylinux_2_28_x86_64.whl"
    )
    assert what.programs == {"llama-cli": "llama-cli", "llama-server": "llama-server"}


def test_windows() -> None:
    what = describe(manifest(**WINDOWS), sbom())
    assert what.platform == "win_amd64"
    assert what.programs == {"llama-cli": "llama-cli.exe"}
    assert 'start("llama-cli.exe")' in project_files(what)["launch.py"]


@pytest.mark.parametrize(
    ("upstream", "version"),
    [("0.5.0-dev", "0.5.0.dev0+b7"), ("0", "0+b7"), ("what?", "0+b7"), ("1.2.3", "1.2.3+b7")],
)
def test_versions_are_what_pip_orders(upstream: str, version: str) -> None:
    assert describe(manifest(source={"version": upstream}, version="b7"), {}).version == version


def test_recipe_names_become_project_names() -> None:
    assert describe(manifest(recipe="gtx1060.v2_x"), {}).project == "qbuild-llama-gtx1060-v2-x"


def test_the_project_is_valid_and_starts_every_program() -> None:
    what = describe(manifest(), sbom({"license": {"id": "MIT"}}))
    files = project_files(what)
    data = tomllib.loads(files["pyproject.toml"])
    assert data["build-system"]["build-backend"] == "scikit_build_core.build"
    assert data["project"]["license-files"] == ["bundle/licenses/*"]
    space: dict[str, Any] = {"__file__": __file__}
    exec(compile(files["launch.py"], "launch.py", "exec"), space)
    for command, target in data["project"]["scripts"].items():
        module, _, function = target.partition(":")
        assert module == "qbuild_llama_avx2.launch"
        started: list[str] = []
        space["start"] = started.append
        space[function]()
        assert started == [what.programs[command]]


def test_every_licence_is_in_the_expression_and_alternatives_stay_together() -> None:
    found = sbom(
        {"license": {"id": "MIT"}},
        {"expression": "MIT-0 OR Unlicense"},
        {"expression": "Apache-2.0 WITH LLVM-exception"},
        {"license": {"id": "MIT"}},
    )
    assert describe(manifest(), found).licence == (
        "(MIT-0 OR Unlicense) AND Apache-2.0 WITH LLVM-exception AND MIT"
    )


@pytest.mark.parametrize("odd", [{"license": {"name": "Some text"}}, {"expression": "Mine"}])
def test_a_licence_without_an_identifier_leaves_the_expression_out(odd: dict[str, Any]) -> None:
    what = describe(manifest(), sbom({"license": {"id": "MIT"}}, odd))
    assert what.licence == ""
    assert "\nlicense = " not in project_files(what)["pyproject.toml"]


def test_a_bundle_without_programs_or_for_an_unknown_machine_is_refused() -> None:
    with pytest.raises(BundleError, match="no program"):
        describe(manifest(files=[]), {})
    with pytest.raises(BundleError, match="no wheel tag"):
        describe(manifest(target={"os": "haiku", "arch": "x86_64", "cpu": "x"}), {})


def written_on(system: str, folder: Path) -> Path:
    """Return a wheel as scikit-build-core writes it on a system: its order, modes and zlib."""
    unix = system == "linux"
    package, inside = "qbuild_llama_avx2", "qbuild_llama_avx2/bundle"
    files = {f"{inside}/llama-cli": b"program" * 99, f"{inside}/libllama.so.0": b"library"}
    record = [f"{name},sha256=x,1\n" for name in files]
    info = f"{package}-0.5.0.dev0+g0c1e57098.dist-info"
    files[f"{info}/RECORD"] = "".join(record if unix else reversed(record)).encode()
    path = folder / f"{package}-0.5.0.dev0+g0c1e57098-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.create_system = 3 if unix else 0
            entry.external_attr = (0o100755 if name.endswith("-cli") and unix else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=6 if unix else 9)
    return path


def test_the_wheel_is_the_same_from_every_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = {"manifest.json": manifest(), "sbom.cdx.json": sbom()}
    bundle = write_zip(tmp_path / "bundle.zip", [
        ZipEntry(name="llama-cli", source=b"program" * 99, executable=True),
        ZipEntry(name="libllama.so.0", source=b"library"),
        *(ZipEntry(name=name, source=json.dumps(data).encode()) for name, data in papers.items()),
    ]).path  # fmt: skip
    made = []
    for system in ("linux", "windows"):
        (tmp_path / system).mkdir()
        built = written_on(system, tmp_path / system)
        monkeypatch.setattr(pywheel, "_built", lambda *_, built=built: built)
        work = tmp_path / system / "work"
        work.mkdir()
        made.append(make_wheel(bundle, tmp_path / system / "dist", work, programs=()))
    assert made[0].read_bytes() == made[1].read_bytes()
    assert made[0].name == built.name
    digest = hashlib.sha256(made[0].read_bytes()).hexdigest()
    assert Path(f"{made[0]}.sha256").read_text() == f"{digest}  {built.name}\n"
    with zipfile.ZipFile(made[1]) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        record = archive.read("qbuild_llama_avx2-0.5.0.dev0+g0c1e57098.dist-info/RECORD")
    assert modes.pop("qbuild_llama_avx2/bundle/llama-cli") == 0o100755
    assert set(modes.values()) == {0o100644}
    assert record.splitlines() == sorted(record.splitlines()) and len(record.splitlines()) == 2
