"""The bundle: what is needed and nothing else, and no byte that varies.

Binaries are stood in for by small JSON files that name what they load; reading real PE and ELF
files is tested elsewhere.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from qbuild.binary.zip_writer import open_zip
from qbuild.bundle import make as bundle
from qbuild.bundle.facts import BundleFacts
from qbuild.bundle.make import BundleResult, ExtraFile, make_bundle
from qbuild.bundle.manifest import Manifest, compare, read_manifest
from qbuild.errors import BundleError
from qbuild.recipe.model import Build
from support.bundles import FACTS, facts, source_tree, write_tree, zig_wheel
from support.tiny_pe import make_pe

SYSTEM = {"kernel32.dll", "libc.so.6"}


def fake(*loads: str, soname: str = "") -> str:
    return json.dumps({"loads": loads, "soname": soname}) + "x" * 200


def fake_read(path: Path, *, windows: bool) -> bundle._Linked:
    data = json.loads(path.read_text().rstrip("x"))
    loads = tuple(data["loads"])
    return bundle._Linked(image=cast("Any", loads), soname=data["soname"], loads=loads)


def fake_problems(
    images: Mapping[str, Any], given: BundleFacts, runtime_loaded: Sequence[str]
) -> list[str]:
    known = {name.lower() for name in images} | SYSTEM
    return [
        f"{user} needs {wanted}, which is nowhere"
        for user, loads in sorted(images.items())
        for wanted in loads
        if wanted.lower() not in known
    ]


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_read", fake_read)
    monkeypatch.setattr(bundle, "_problems", fake_problems)


WINDOWS = {
    "bin/llama-cli.exe": fake("llama.dll", "KERNEL32.dll"),
    "bin/llama-server.exe": fake("llama.dll", "mtmd.dll"),
    "bin/llama-bench.exe": fake("LLAMA.DLL"),
    "bin/llama-quantize.exe": fake("quant.dll"),
    "bin/llama.dll": fake("ggml.dll"),
    "bin/mtmd.dll": fake("llama.dll"),
    "bin/ggml.dll": fake("ggml-base.dll", "ggml-cpu.dll"),
    "bin/ggml-base.dll": fake("kernel32.dll"),
    "bin/ggml-cpu.dll": fake("ggml-base.dll"),
    "bin/quant.dll": fake(),
    "lib/libllama.dll.a": "import library",
    "include/llama.h": "header",
}
LINUX = {
    "bin/llama-cli": fake("libllama.so.0", "libc.so.6"),
    "bin/llama-server": fake("libllama.so.0"),
    "bin/llama-bench": fake("libllama.so.0"),
    "lib/libllama.so.0.5.0": fake("libggml.so.0", soname="libllama.so.0"),
    "lib/libggml.so.0.9.9": fake("libggml-base.so.0", soname="libggml.so.0"),
    "lib/libggml-base.so.0.9.9": fake("libc.so.6", soname="libggml-base.so.0"),
    "bin/libggml-cpu.so": fake("libggml-base.so.0", soname="libggml-cpu.so"),
    "bin/libunused.so": fake(soname="libunused.so"),
}
LINKS = {
    "lib/libllama.so": "libllama.so.0",
    "lib/libllama.so.0": "libllama.so.0.5.0",
    "lib/libggml.so.0": "libggml.so.0.9.9",
    "lib/libggml-base.so.0": "libggml-base.so.0.9.9",
}


def make(
    root: Path,
    files: dict[str, str] = WINDOWS,
    given: BundleFacts = FACTS,
    links: dict[str, str] | None = None,
    extras: Sequence[ExtraFile] = (),
) -> BundleResult:
    stage = write_tree(root / "a stage", files)
    for name, target in (links or {}).items():
        (stage / name).symlink_to(target)
    return make_bundle(
        stage=stage,
        source_tree=source_tree(root / "src"),
        toolchain_licences={"ziglang": zig_wheel(root / "zig")},
        facts=given,
        dest_dir=root / "dist",
        extras=extras,
    )


def manifest_of(result: BundleResult) -> Manifest:
    with open_zip(result.zip) as view:
        manifest = read_manifest(view)
        assert compare(manifest, view) == ()
    return manifest


def shipped(manifest: Manifest) -> list[str]:
    return [f.path for f in manifest.by_role("executable", "library", "backend")]


def test_a_windows_bundle_holds_what_is_needed(tmp_path: Path) -> None:
    result = make(tmp_path)
    assert re.fullmatch(r"llama-g0c1e57098-avx2-[0-9a-f]{6}-windows-x86_64\.zip", result.zip.name)
    assert result.sum_file.read_text() == f"{result.sha256}  {result.zip.name}\n"
    manifest = manifest_of(result)
    assert shipped(manifest) == [
        "ggml-base.dll", "ggml-cpu.dll", "ggml.dll", "llama-bench.exe", "llama-cli.exe",
        "llama-server.exe", "llama.dll", "mtmd.dll",
    ]  # fmt: skip
    llama = manifest.file("llama.dll")
    assert llama is not None
    assert llama.needed_by == ("llama-bench.exe", "llama-cli.exe", "llama-server.exe", "mtmd.dll")
    assert {f.path for f in manifest.files if f.executable} == {
        "llama-bench.exe", "llama-cli.exe", "llama-server.exe",
    }  # fmt: skip
    others = set(result.names) - set(shipped(manifest))
    assert {name for name in others if not name.startswith("licenses/")} == {
        "README.txt", "manifest.json", "provenance.json", "sbom.cdx.json",
    }  # fmt: skip
    assert {"licenses/llama.cpp.txt", "licenses/libcxx.txt"} <= others


def test_a_linux_bundle_ships_sonames_and_no_links(tmp_path: Path) -> None:
    result = make(tmp_path, LINUX, facts("linux"), LINKS)
    manifest = manifest_of(result)
    assert shipped(manifest) == [
        "libggml-base.so.0", "libggml.so.0", "libllama.so.0",
        "llama-bench", "llama-cli", "llama-server",
    ]  # fmt: skip
    with zipfile.ZipFile(result.zip) as other:
        assert other.testzip() is None
        modes = {info.external_attr >> 16 for info in other.infolist()}
    assert modes == {0o100644, 0o100755}


def test_copies_under_several_names_are_one_library(tmp_path: Path) -> None:
    """The stage step turns links into copies."""
    same = LINUX["lib/libllama.so.0.5.0"]
    files = {**LINUX, "lib/libllama.so": same, "lib/libllama.so.0": same}
    links = {name: target for name, target in LINKS.items() if "libllama" not in name}
    result = make(tmp_path, files, facts("linux"), links)
    assert [name for name in result.names if "libllama" in name] == ["libllama.so.0"]


def test_backends_loaded_at_run_time_ship(tmp_path: Path) -> None:
    given = facts("linux", cmake={"GGML_BACKEND_DL": True})
    manifest = manifest_of(make(tmp_path, LINUX, given, LINKS))
    backend = manifest.file("libggml-cpu.so")
    assert backend is not None
    assert backend.role == "backend"
    assert backend.needed_by == ("libggml.so.0",)
    base = manifest.file("libggml-base.so.0")
    assert base is not None
    assert base.role == "library"
    assert base.needed_by == ("libggml-cpu.so", "libggml.so.0")


def test_windows_backends_loaded_at_run_time(tmp_path: Path) -> None:
    files = {**WINDOWS, "bin/ggml.dll": fake("ggml-base.dll")}
    without = manifest_of(make(tmp_path / "1", files))
    assert without.file("ggml-cpu.dll") is None
    loaded = manifest_of(make(tmp_path / "2", files, facts(cmake={"GGML_BACKEND_DL": "ON"})))
    assert [f.path for f in loaded.by_role("backend")] == ["ggml-cpu.dll"]


def test_a_missing_library_is_named_with_its_user(tmp_path: Path) -> None:
    files = {name: text for name, text in WINDOWS.items() if name != "bin/mtmd.dll"}
    with pytest.raises(BundleError) as caught:
        make(tmp_path, files)
    assert caught.value.exit_code == 10
    assert "llama-server.exe needs mtmd.dll" in caught.value.what
    assert not (tmp_path / "dist").exists()


def test_a_missing_executable_is_named(tmp_path: Path) -> None:
    files = {name: text for name, text in WINDOWS.items() if name != "bin/llama-cli.exe"}
    with pytest.raises(BundleError, match=r"`llama-cli` has no executable llama-cli\.exe"):
        make(tmp_path, files)


def test_two_files_for_one_soname(tmp_path: Path) -> None:
    files = {**LINUX, "lib/libllama.so.9": fake(soname="libllama.so.0")}
    with pytest.raises(BundleError, match=r"two different staged files are libllama\.so\.0"):
        make(tmp_path, files, facts("linux"), LINKS)


def test_an_unknown_vendored_part_stops_the_bundle(tmp_path: Path) -> None:
    write_tree(tmp_path, {"src/vendor/newlib/new.h": ""})
    with pytest.raises(BundleError, match="vendor/newlib"):
        make(tmp_path)


def test_no_folder_of_this_machine_gets_in(tmp_path: Path) -> None:
    given = dataclasses.replace(FACTS, lock={"origin": str(tmp_path / "src" / "x")})
    with pytest.raises(BundleError, match=r"provenance\.json would hold the name of a folder"):
        make(tmp_path, given=given)


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    """Other folder, umask, time stamps and order of mappings; one sum."""
    one = make(tmp_path / "one")
    turned = dataclasses.replace(
        FACTS,
        lock=dict(reversed(list(FACTS.lock.items()))),
        cmake=dict(reversed(list(FACTS.cmake.items()))),
    )
    mask = os.umask(0o077)
    try:
        two = make(tmp_path / "another folder", dict(reversed(WINDOWS.items())), turned)
    finally:
        os.umask(mask)
    assert one.zip.read_bytes() == two.zip.read_bytes()
    assert one.sha256 == two.sha256


def test_nothing_in_the_zip_knows_this_machine(tmp_path: Path) -> None:
    with open_zip(make(tmp_path).zip) as view:
        everything = b"".join(view.read(name) for name in view.names)
    assert str(tmp_path).encode() not in everything


def test_given_licence_files_and_extras_ship(tmp_path: Path) -> None:
    eula = write_tree(tmp_path, {"EULA.txt": "line\r\n"}) / "EULA.txt"
    stage = write_tree(tmp_path / "stage", WINDOWS)
    script = ExtraFile(name="start.cmd", content=b"@echo off\r\n", role="script")
    result = make_bundle(
        stage=stage,
        source_tree=source_tree(tmp_path / "src"),
        toolchain_licences={"ziglang": zig_wheel(tmp_path / "zig"), "NVIDIA-EULA.txt": eula},
        facts=FACTS,
        dest_dir=tmp_path / "dist",
        extras=[script],
    )
    with open_zip(result.zip) as view:
        assert view.read("licenses/NVIDIA-EULA.txt") == b"line\n"
        assert view.read("start.cmd") == b"@echo off\r\n"
        manifest = read_manifest(view)
    assert [f.path for f in manifest.by_role("script")] == ["start.cmd"]


def test_a_given_licence_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"licence text EULA\.txt is missing"):
        make_bundle(
            stage=write_tree(tmp_path / "stage", WINDOWS),
            source_tree=source_tree(tmp_path / "src"),
            toolchain_licences={
                "ziglang": zig_wheel(tmp_path / "zig"),
                "EULA.txt": tmp_path / "gone",
            },
            facts=FACTS,
            dest_dir=tmp_path / "dist",
        )


def test_the_readme_can_be_left_out(tmp_path: Path) -> None:
    recipe = dataclasses.replace(
        FACTS.recipe, bundle=dataclasses.replace(FACTS.recipe.bundle, readme=False)
    )
    result = make(tmp_path, given=dataclasses.replace(FACTS, recipe=recipe))
    assert "README.txt" not in result.names


@pytest.mark.parametrize("missing", [False, True])
def test_real_import_tables_decide(
    missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-ins put aside: small true PE files and the committed table of system DLLs."""
    monkeypatch.undo()
    stage = tmp_path / "stage" / "bin"
    stage.mkdir(parents=True)
    (stage / "llama-cli.exe").write_bytes(
        make_pe(imports={"LLAMA.dll": ["f"], "KERNEL32.dll": ["Sleep"]})
    )
    if not missing:
        (stage / "llama.dll").write_bytes(make_pe(dll="llama.dll", exports=["f"]))
    (stage / "unused.dll").write_bytes(make_pe(dll="unused.dll", exports=["g"]))

    def bundled() -> BundleResult:
        return make_bundle(
            stage=tmp_path / "stage",
            source_tree=source_tree(tmp_path / "src"),
            toolchain_licences={"ziglang": zig_wheel(tmp_path / "zig")},
            facts=facts(build=Build(targets=("llama-cli",))),
            dest_dir=tmp_path / "dist",
        )

    if missing:
        with pytest.raises(BundleError, match=r"llama-cli\.exe: needs LLAMA\.dll"):
            bundled()
    else:
        manifest = manifest_of(bundled())
        assert shipped(manifest) == ["llama-cli.exe", "llama.dll"]
