"""Manifest, provenance, SBOM and packing: each thing that does not fit is named."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from qbuild.verify import verify_zip
from support.tiny_pe import make_pe
from support.verify_zips import COMMIT, Made, check, findings

EXE = make_pe(["KERNEL32.dll"], extra=COMMIT[:9].encode() + b"\0")


def made(**changes: Any) -> Made:
    return Made(files={"llama-cli.exe": EXE, "README.txt": b"read me\n" * 20}, **changes)


def test_a_good_bundle_passes_every_check_of_its_papers(tmp_path: Path) -> None:
    verdict = made().verify(tmp_path)
    for id in ("archive", "packing", "manifest", "provenance", "sbom", "machine", "source"):
        assert check(verdict, id).status == "passed", check(verdict, id)
    assert verdict.zip_name == f"llama-g{COMMIT[:9]}-avx2-windows-x86_64.zip"


def test_one_byte_changed_anywhere_is_refused(tmp_path: Path) -> None:
    """No reader looks at every byte; packing again does. (All bytes: the integration tests.)"""
    path = Made(files={"a.txt": b"some text, some text, some text"}).write(tmp_path)
    good = path.read_bytes()
    for at in range(0, len(good), 61):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        verdict = verify_zip(path)
        assert not verdict.ok, f"byte {at:#x}"
        assert findings(verdict)


def test_a_changed_byte_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = made().write(tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(b"llama-cli.exe") + 60  # inside the compressed program
    data[at] ^= 1
    path.write_bytes(data)
    assert "llama-cli.exe" in findings(verify_zip(path))


def test_an_exchanged_file_is_told_by_its_hash(tmp_path: Path) -> None:
    bundle = made()
    bundle.papers["README.txt"] = b"READ me\n" * 20
    verdict = bundle.verify(tmp_path)
    assert "README.txt: has sha256" in findings(verdict)
    assert {item.id for item in verdict.failed} == {"manifest", "provenance", "sbom"}


@pytest.mark.parametrize(
    ("papers", "without", "says"),
    [
        ({}, ("README.txt",), "README.txt: is in manifest.json, but missing from the zip"),
        ({"more.txt": b"x"}, (), "more.txt: is in the zip, but not in manifest.json"),
        ({"more.txt": b"x"}, (), "more.txt: is no subject of provenance.json"),
        ({"README.txt": b"x"}, (), "README.txt: has 1 bytes, manifest.json says 160"),
        ({}, ("provenance.json",), "provenance.json: is missing or no JSON object"),
        ({"provenance.json": b"{}"}, (), "is not an in-toto v1 statement"),
        ({"sbom.cdx.json": b"{"}, (), "sbom.cdx.json: is not JSON"),
        ({"sbom.cdx.json": b"{}"}, (), "sbom.cdx.json: is not a CycloneDX document"),
        ({}, ("sbom.cdx.json",), "sbom.cdx.json: is missing"),
        ({"manifest.json": b"nonsense"}, (), "manifest.json: it is not JSON"),
        ({"manifest.json": b"[1]"}, (), "manifest.json: it is not an object"),
    ],
)
def test_papers_that_do_not_fit(
    tmp_path: Path, papers: dict[str, bytes], without: tuple[str, ...], says: str
) -> None:
    bundle = made()
    bundle.papers.update(papers)
    assert says in findings(bundle.verify(tmp_path, without=without))


def test_a_renamed_zip_is_told(tmp_path: Path) -> None:
    path = made().write(tmp_path)
    other = path.rename(tmp_path / "llama-g0c1e57098-gtx1060-windows-x86_64.zip")
    assert "was renamed" in findings(verify_zip(other))


def test_a_manifest_that_contradicts_itself(tmp_path: Path) -> None:
    bundle = made(changes={"recipe": "baseline"})
    assert "its other entries make llama-g0c1e57098-baseline" in findings(bundle.verify(tmp_path))


def test_provenance_of_another_source(tmp_path: Path) -> None:
    bundle = made(changes={"source": {"commit": "a" * 40, "tree": "b" * 40}})
    assert "provenance.json: names another source" in findings(bundle.verify(tmp_path))


def test_a_zip_by_another_tool_with_our_manifest(tmp_path: Path) -> None:
    bundle = made()
    path = tmp_path / f"{bundle.stem}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in bundle.contents().items():
            archive.writestr(name, data)
    packing = check(verify_zip(path), "packing")
    assert packing.status == "failed"
    assert "has a time of its own" in "\n".join(packing.details)


def test_a_zip_that_qbuild_did_not_make(tmp_path: Path) -> None:
    path = tmp_path / "upstream.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llama-cli.exe", EXE)
    verdict = verify_zip(path)
    for id in ("packing", "manifest", "provenance", "sbom", "source", "patches"):
        assert check(verdict, id).status == "not-run"
    assert check(verdict, "machine").status == "passed"


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip at all", b"PK\x05\x06" + bytes(17)])
def test_what_is_no_zip_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    verdict = verify_zip(path)
    assert [item.id for item in verdict.failed] == ["archive"]
    assert "x.zip" in findings(verdict)


def test_a_traversing_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../evil.dll", b"x")
    assert "climbs out of its folder" in findings(verify_zip(path))


def test_stray_bytes_between_members(tmp_path: Path) -> None:
    """A longer local extra field hides bytes that no directory entry mentions."""
    path = Made(files={"a.txt": b"x"}).write(tmp_path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        archive.comment = b"hello"
    packing = check(verify_zip(path), "packing")
    assert packing.status == "failed"
    assert "is not what qbuild writes for these files" in packing.details[0]


def test_a_sbom_hash_that_is_wrong(tmp_path: Path) -> None:
    bundle = made()
    data = json.loads(bundle.contents()["sbom.cdx.json"])
    data["components"][0]["hashes"][0]["content"] = "0" * 64
    bundle.papers["sbom.cdx.json"] = json.dumps(data).encode()
    assert "sbom.cdx.json says 000" in "\n".join(check(bundle.verify(tmp_path), "sbom").details)


def test_no_binary_holds_the_commit(tmp_path: Path) -> None:
    bundle = Made(files={"llama-cli.exe": make_pe(["KERNEL32.dll"])})
    assert "no file of the bundle holds the commit id 0c1e57098" in findings(
        bundle.verify(tmp_path)
    )


SERVER = make_pe(["KERNEL32.dll"], extra=COMMIT[:9].encode() + b"\0application/manifest+json\0")


@pytest.mark.parametrize(
    ("promised", "program", "says"),
    [
        (True, SERVER, ""),
        (False, EXE, ""),
        (True, EXE, "no program holds the web UI that manifest.json promises"),
        (False, SERVER, "llama-server.exe: holds a web UI, manifest.json says that none is inside"),
    ],
)
def test_a_web_ui_is_there_exactly_when_promised(
    tmp_path: Path, promised: bool, program: bytes, says: str
) -> None:
    bundle = Made(files={"llama-server.exe": program}, features={"web_ui": promised})
    found = check(bundle.verify(tmp_path), "web-ui")
    assert found.status == ("failed" if says else "passed")
    if says:
        assert found.details == (says,)


def test_a_web_ui_of_somebody_else_s_zip_is_seen_at_least(tmp_path: Path) -> None:
    path = Made(files={"llama-server.exe": SERVER}).write(tmp_path, without=("manifest.json",))
    found = check(verify_zip(path), "web-ui")
    assert found.status == "not-run"
    assert "inside: llama-server.exe" in found.details[0]
