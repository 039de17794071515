"""``manifest.json``: deterministic when written, checked field by field when read."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbuild.binary.zip_writer import ZipEntry, open_zip, write_zip
from qbuild.bundle.manifest import (
    Manifest,
    ManifestFile,
    compare,
    load_manifest,
    make_manifest,
    read_manifest,
)
from qbuild.errors import VerifyError
from support.bundles import FACTS, facts

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
FILES = (
    ManifestFile(path="llama-cli.exe", size=3, sha256=ABC, role="executable", executable=True),
    ManifestFile(path="ggml.dll", size=3, sha256=ABC, role="library", needed_by=("llama-cli.exe",)),
    ManifestFile(path="licenses/ggml.txt", size=3, sha256=ABC, role="licence"),
)


def manifest() -> Manifest:
    return make_manifest(FACTS, FILES)


def test_it_survives_a_round_trip() -> None:
    written = manifest()
    again = load_manifest(written.to_json())
    assert again.files == written.files
    assert again.to_json() == written.to_json()


def test_the_order_of_files_does_not_matter() -> None:
    assert make_manifest(FACTS, tuple(reversed(FILES))).to_json() == manifest().to_json()


def test_it_says_what_the_bundle_is() -> None:
    data = json.loads(manifest().to_json())
    # the recipe of these tests is not quite avx2: a digest of the difference says so
    assert re.fullmatch(r"llama-g0c1e57098-avx2-[0-9a-f]{6}-windows-x86_64", data["name"])
    assert data["version"] == "g0c1e57098"
    assert data["target"] == {"os": "windows", "arch": "x86_64", "cpu": "x86-64-v3", "isa": []}
    assert data["source"]["tree"] == FACTS.source.tree
    assert data["series"][0]["patches"][0]["why"]
    assert data["features"] == {
        "linkage": "shared",
        "web_ui": False,
        "https": False,
        "gpu_validated": None,
    }
    assert [entry["path"] for entry in data["files"]] == sorted(f.path for f in FILES)
    assert json.loads(make_manifest(facts("linux"), ()).to_json())["target"]["glibc"] == "2.28"


def test_a_build_number_names_the_bundle() -> None:
    source = dataclasses.replace(FACTS.source, build_number=7321)
    numbered = dataclasses.replace(FACTS, source=source)
    assert re.fullmatch(r"llama-b7321-avx2-[0-9a-f]{6}-windows-x86_64", numbered.name)


def test_files_are_found_by_name_and_role() -> None:
    found = manifest().file("ggml.dll")
    assert found is not None
    assert found.needed_by == ("llama-cli.exe",)
    assert manifest().file("nope") is None
    assert [f.path for f in manifest().by_role("executable", "library")] == [
        "ggml.dll",
        "llama-cli.exe",
    ]


Change = Callable[[dict[str, Any]], object]


def put(*path: str | int, value: object) -> Change:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("schema"), "`schema` is missing"),
        (put("schema", value=2), "has schema 2; this qbuild reads 1"),
        (put("schema", value="1"), "`schema` has the wrong type (str)"),
        (put("schema", value=True), "`schema` has the wrong type (bool)"),
        (drop("name"), "`name` is missing"),
        (put("recipe", value=None), "`recipe` has the wrong type (NoneType)"),
        (put("source", value=[]), "`source` has the wrong type (list)"),
        (put("source", "commit", value="0c1e"), "`source.commit` is not a git object id"),
        (drop("source", "tree"), "`source.tree` is missing"),
        (put("patched", "tree", value="Z" * 40), "`patched.tree` is not a git object id"),
        (drop("target", "cpu"), "`target.cpu` is missing"),
        (put("series", value=["x"]), "`series` is not a list of objects"),
        (put("files", value={}), "`files` has the wrong type (dict)"),
        (put("files", 0, value="ggml.dll"), "`files[0]` is not an object"),
        (put("files", 0, "path", value="../x"), "climbs out of its folder"),
        (put("files", 0, "path", value="C:/x"), "drive letter"),
        (put("files", 0, "size", value=-1), "`files[0].size` of ggml.dll is negative"),
        (put("files", 0, "size", value=1.5), "`files[0].size` has the wrong type (float)"),
        (put("files", 0, "sha256", value="0" * 63), "`files[0].sha256` of ggml.dll is not"),
        (put("files", 0, "sha256", value="G" * 64), "`files[0].sha256` of ggml.dll is not"),
        (put("files", 0, "role", value="virus"), "`files[0].role` of ggml.dll is unknown: 'virus'"),
        (put("files", 0, "needed_by", value="x"), "`files[0].needed_by` has the wrong type"),
        (put("files", 0, "needed_by", value=[1]), "is not a list of names"),
        (put("files", 0, "needed_by", value=["gone.exe"]), "needed by gone.exe, which is not"),
        (drop("files", 0, "executable"), "`files[0].executable` is missing"),
        (put("files", 0, "path", value="LLAMA-CLI.EXE"), "which collide"),
        (drop("toolchain"), "`toolchain` is missing"),
        (drop("features"), "`features` is missing"),
    ],
)
def test_a_malformed_manifest_is_refused(change: Change, message: str) -> None:
    data = json.loads(manifest().to_json())
    change(data)
    with pytest.raises(VerifyError) as caught:
        load_manifest(json.dumps(data).encode())
    assert caught.value.exit_code == 11
    assert message in caught.value.what
    assert "manifest.json" in (caught.value.where or "")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b"[]"])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(VerifyError, match=r"manifest\.json: it is not"):
        load_manifest(text)


def zipped(path: Path, *changes: tuple[str, bytes | None]) -> Path:
    contents: dict[str, bytes] = {entry.path: b"abc" for entry in FILES}
    contents["manifest.json"] = manifest().to_json()
    for name, content in changes:
        if content is None:
            del contents[name]
        else:
            contents[name] = content
    entries = [
        ZipEntry(name=name, source=content, executable=name.endswith(".exe"))
        for name, content in contents.items()
    ]
    return write_zip(path, entries).path


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ([], []),
        ([("ggml.dll", None)], ["ggml.dll is missing from the zip"]),
        ([("extra.dll", b"")], ["extra.dll is not in the manifest"]),
        ([("ggml.dll", b"ab")], ["ggml.dll has 2 bytes, the manifest says 3"]),
        ([("ggml.dll", b"abd")], ["ggml.dll has sha256 a52d159f"]),
    ],
)
def test_differences_are_named(
    changes: list[tuple[str, bytes | None]], problems: list[str], tmp_path: Path
) -> None:
    with open_zip(zipped(tmp_path / "x.zip", *changes)) as view:
        found = compare(read_manifest(view), view)
    assert len(found) == len(problems)
    assert all(a.startswith(b) for a, b in zip(found, problems, strict=True))


def test_other_permissions_are_a_difference(tmp_path: Path) -> None:
    entries = [ZipEntry(name=f.path, source=b"abc") for f in FILES]
    entries.append(ZipEntry(name="manifest.json", source=manifest().to_json()))
    with open_zip(write_zip(tmp_path / "x.zip", entries).path) as view:
        assert compare(read_manifest(view), view) == (
            "llama-cli.exe has other permissions than the manifest says",
        )


def test_a_zip_without_manifest_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", ("manifest.json", None))
    with open_zip(path) as view, pytest.raises(VerifyError, match=r"x\.zip holds no manifest"):
        read_manifest(view)
