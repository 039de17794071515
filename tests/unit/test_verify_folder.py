"""Unpacked folders, and zips that others made: what is missing, and what to do about it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from qbuild.cli import main
from qbuild.console import Silent
from qbuild.verify import verify_zip
from qbuild.verify.folder import verify_folder
from qbuild.verify.remedies import remedies
from qbuild.verify.verdict import Verdict
from support.systems import keeps_modes
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe
from support.verify_zips import COMMIT, Made, check, findings

MARK = COMMIT[:9].encode() + b"\0"


def unpacked(tmp_path: Path) -> Path:
    """An own Linux bundle as it was unpacked, with a model and changed settings beside it."""
    made = Made(
        os="linux",
        files={
            "llama-server": make_elf(
                ["libllama.so.0"], runpath="$ORIGIN", sections={".rodata": MARK}
            ),
            "libllama.so.0": make_elf(soname="libllama.so.0", sections={".rodata": MARK}),
        },
    )
    folder = tmp_path / "llama"
    with zipfile.ZipFile(made.write(tmp_path)) as archive:
        archive.extractall(folder)
    (folder / "llama-server").chmod(0o755)
    (folder / "models").mkdir()
    (folder / "models" / "m.gguf").write_bytes(b"GGUF")
    return folder


def folder_verdict(folder: Path) -> Verdict:
    return verify_folder(folder, reporter=Silent())


def test_78_a_whole_folder_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = unpacked(tmp_path)
    verdict = folder_verdict(folder)
    assert check(verdict, "folder").status == "passed"
    assert check(verdict, "closure").status == "passed", verdict.render()
    assert verdict.ok, verdict.render()
    assert main.run(["verify", str(folder)]) == 0
    assert "every file of the zip is there" in capsys.readouterr().out
    assert main.run(["verify", str(folder), "--run"]) == 2


def test_78_a_library_was_taken_away(tmp_path: Path, told: Callable[[str], None]) -> None:
    folder = unpacked(tmp_path)
    (folder / "libllama.so.0").unlink()
    said = findings(folder_verdict(folder))
    told(said)
    assert "libllama.so.0: is missing" in said
    assert "virus scanner" in said


@keeps_modes
def test_a_link_became_a_text_and_a_bit_was_lost(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    (folder / "libllama.so.0").write_text("libllama.so.0.5")
    (folder / "llama-server").chmod(0o644)
    said = findings(folder_verdict(folder))
    assert "libllama.so.0: is a text of 15 bytes: a link that became a file" in said
    assert "llama-server: is not executable any more; to do: chmod +x llama-server" in said
    (folder / "llama-server").write_bytes(b"other" * 100)
    assert "llama-server: is not the one of the zip" in findings(folder_verdict(folder))


def test_a_folder_that_others_filled(tmp_path: Path) -> None:
    (tmp_path / "a.exe").write_bytes(make_pe(["MSVCP140.dll", "KERNEL32.dll"]))
    said = findings(folder_verdict(tmp_path))
    assert "vc_redist.x64.exe" in said


def foreign(
    tmp_path: Path, files: dict[str, bytes], *, modes: dict[str, int] | None = None
) -> Path:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (2026, 3, 1, 0, 0, 0))
            info.external_attr = (0o100000 | (modes or {}).get(name, 0o755)) << 16
            info.create_system = 3
            archive.writestr(info, data)
    return path


def test_138_programs_that_are_not_marked_executable(
    tmp_path: Path, told: Callable[[str], None]
) -> None:
    files = {"bin/llama-server": make_elf(), "bin/libllama.so": make_elf(soname="libllama.so")}
    path = foreign(tmp_path, files, modes=dict.fromkeys(files, 0o640))
    found = check(verify_zip(path), "unpacking")
    assert found.status == "failed"
    told(found.details[0])
    assert "bin/llama-server: not marked executable (1 programs)" in found.details[0]
    assert "chmod +x llama-server" in found.details[0]
    assert check(verify_zip(foreign(tmp_path, files)), "unpacking").status == "passed"


def test_133_names_without_the_utf8_flag(tmp_path: Path, told: Callable[[str], None]) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("läs-mig.txt", b"x")
        archive.writestr("a.exe", make_pe(["KERNEL32.dll"]))
    assert check(verify_zip(path), "unpacking").status == "passed"
    raw = path.read_bytes()
    name = "läs-mig.txt"
    raw = raw.replace(name.encode(), name.encode("cp437") + b"x")  # as long as in UTF-8
    at = 0
    while (at := raw.find(b"PK\x03\x04", at)) >= 0:
        raw = raw[: at + 6] + b"\0\0" + raw[at + 8 :]
        at += 4
    at = 0
    while (at := raw.find(b"PK\x01\x02", at)) >= 0:
        raw = raw[: at + 8] + b"\0\0" + raw[at + 10 :]
        at += 4
    path.write_bytes(raw)
    found = check(verify_zip(path), "unpacking")
    assert found.status == "failed"
    told(found.details[0])
    assert "is not marked as UTF-8, and comes out garbled on Windows" in found.details[0]


def test_paths_too_long_for_explorer_and_links_as_texts(tmp_path: Path) -> None:
    deep = "/".join(["a-rather-long-folder-name-for-nothing"] * 6) + "/a.exe"
    path = foreign(tmp_path, {deep: make_pe(["KERNEL32.dll"])})
    assert "Explorer stops at 260" in findings(verify_zip(path))
    files = {"libllama.so.0": b"libllama.so.0.5.0", "llama-cli": make_elf()}
    said = findings(verify_zip(foreign(tmp_path, files)))
    assert "libllama.so.0: is no library but the name of one (libllama.so.0.5.0)" in said
    assert "ln -sf libllama.so.0.5.0 libllama.so.0" in said


def test_131_cuda_alone_says_whose_libraries_are_missing(
    tmp_path: Path, told: Callable[[str], None]
) -> None:
    exe = make_pe(["cudart64_12.dll", "cublas64_12.dll", "KERNEL32.dll"])
    other = make_pe(["KERNEL32.dll"], dll="cudart64_13.dll")
    path = foreign(tmp_path, {"ctransformers.dll": exe, "cudart64_13.dll": other})
    said = findings(verify_zip(path))
    told(said)
    assert "to do: put cudart64_12.dll, cublas64_12.dll, cublasLt64_12.dll beside it" in said
    assert "cudart zip of the same release" in said
    assert "cudart64_13.dll lies beside it: of another major version" in said


def test_130_a_foreign_zip_with_variants_and_link_times(
    tmp_path: Path, told: Callable[[str], None]
) -> None:
    avx512 = bytes.fromhex("62f16c4858c1c3")
    files = {
        "llama-addon.node": make_pe(["MSVCP140.dll", "VCRUNTIME140.dll"], timestamp=0x65000000),
        "ggml-cpu-haswell.dll": make_pe(
            ["KERNEL32.dll"], dll="ggml-cpu-haswell.dll", timestamp=0x65000000
        ),
        "ggml-cpu-skylakex.dll": make_pe(
            ["KERNEL32.dll"], dll="ggml-cpu-skylakex.dll", code=avx512, timestamp=0x65000000
        ),
    }
    verdict = verify_zip(foreign(tmp_path, files))
    traces = check(verdict, "traces")
    assert traces.status == "not-run"
    assert traces.details[0] == "3 files hold the time they were linked at"
    level = check(verdict, "cpu")
    assert level.status == "not-run"
    assert level.details[0].endswith("what is inside needs x86-64")
    assert "ggml-cpu-skylakex.dll (x86-64-v4)" in level.details[1]
    told("; ".join([findings(verdict), *level.details, traces.details[0]]))
    assert "winget install Microsoft.VCRedist.2015+.x64" in findings(verdict)


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (["VCRUNTIME140_1.dll"], "vc_redist.x64.exe"),
        (["MSVCP140D.dll"], "debug build"),
        (["ucrtbased.dll"], "debug build"),
        (["libomp140.x86_64.dll"], "OpenMP runtime"),
        (["libstdc++-6.dll", "libgcc_s_seh-1.dll"], "MinGW's runtime"),
        (["libgomp.so.1"], "sudo apt install libgomp1"),
        (["libcudart.so.12", "libcublas.so.12"], "nvidia-cublas-cu12"),
        (["cublas64_13.dll"], "cublasLt64_13.dll"),
        (["vulkan-1.dll"], "GPU's driver"),
    ],
)
def test_remedies(missing: list[str], says: str) -> None:
    found = list(remedies(missing, []))
    assert len(found) == 1 and says in found[0]


def test_no_remedy_is_made_up() -> None:
    assert list(remedies(["of-tomorrow.dll"], ["a.dll"])) == []
