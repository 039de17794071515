"""NVIDIA's component archives from a server on the loopback: what is laid down, what is refused.

The archives are made here: NVIDIA's own cannot be had where these tests run.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qbuild.cli.main import run
from qbuild.console import Silent
from qbuild.cuda import redist, toolkit
from qbuild.errors import ArchiveError, OriginError, ToolchainError
from support.links import need_links

pytestmark = pytest.mark.integration

FILES = {
    "cuda_nvcc": {"bin/nvcc": b"#!/bin/sh\n", "LICENSE": b"one"},
    "cuda_cudart": {
        "include/cuda_runtime.h": b"",
        "lib/libcudart.so.12": b"elf",
        "LICENSE": b"two",
    },
    "cuda_cccl": {"include/cub/cub.cuh": b""},
    "libcublas": {"include/cublas_v2.h": b"", "lib/libcublas.so.12": b"elf"},
}


def archive(name: str, files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as tar:
        for file, data in files.items():
            member = tarfile.TarInfo(f"{name}/{file}")
            member.size, member.mode = len(data), 0o755 if "bin/" in file else 0o644
            tar.addfile(member, io.BytesIO(data))
        for file, to in (links or {}).items():
            member = tarfile.TarInfo(f"{name}/{file}")
            member.type, member.linkname = tarfile.SYMTYPE, to
            tar.addfile(member)
    return out.getvalue()


def publish(folder: Path) -> dict[str, Any]:
    """Write archives and return the index over them."""
    index: dict[str, Any] = {"release_date": "2026-01-01", "release_label": "12.9.1"}
    for name, files in FILES.items():
        links = {"lib/libcublas.so": "libcublas.so.12"} if name == "libcublas" else {}
        data = archive(f"{name}-linux-x86_64-12.9.86-archive", files, links)
        path = f"{name}/linux-x86_64/{name}-linux-x86_64-12.9.86-archive.tar.xz"
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(data)
        index[name] = {
            "name": name,
            "license": "CUDA Toolkit",
            "version": "12.9.86",
            "linux-x86_64": {
                "relative_path": path,
                "sha256": hashlib.sha256(data).hexdigest(),
                "size": str(len(data)),
            },
        }
    return index


Served = tuple[str, Path, dict[str, Any]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "server"
    folder.mkdir()
    index = publish(folder)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/redistrib_12.9.1.json", folder, index
    server.shutdown()
    server.server_close()


def write(folder: Path, index: object) -> str:
    data = json.dumps(index).encode()
    (folder / "redistrib_12.9.1.json").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def test_a_toolkit_from_a_server(served: Served, tmp_path: Path) -> None:
    need_links(tmp_path)  # Linux' parts hold some
    url, folder, index = served
    pin = write(folder, index)
    root = tmp_path / "cuda 12.9"
    release = redist.assemble(url, root, reporter=Silent(), sha256=pin)
    assert release.label == "12.9.1"
    assert (root / "bin/nvcc").stat().st_mode & 0o111
    assert (root / "lib/libcublas.so").readlink() == Path("libcublas.so.12")
    assert (root / "lib64/libcudart.so.12").read_bytes() == b"elf"
    assert (root / "LICENSE").read_bytes() == b"one"
    read = toolkit.read_toolkit(root, "CUDA_HOME", lambda words: pytest.fail(f"ran {words}"))
    assert isinstance(read, toolkit.Toolkit)
    assert (read.version, read.cublas) == ("12.9.86", True)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]


def test_the_command(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, folder, index = served
    pin = write(folder, index)
    root = str(tmp_path / "cuda")
    assert run(["toolkit", "--from", url, "--into", root, "--sha256", pin, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["label"] == "12.9.1"
    assert len(made["digest"]) == 64
    assert run(["toolkit", "--from", url, "--into", root]) == ArchiveError.exit_code
    assert "only laid into an empty folder" in capsys.readouterr().err
    assert run(["toolkit", "--from", url]) == 2
    assert "--from and --into go together" in capsys.readouterr().err
    other = str(tmp_path / "other")
    assert run(["toolkit", "--from", url, "--into", other, "--sha256", "0" * 64]) == 5
    err = capsys.readouterr().err
    assert "other bytes than pinned" in err
    assert "Traceback" not in err
    assert run(["toolkit", "--from", "C:/x", "--into", other]) == 5
    assert run(["toolkit", "--from", url, "--into", other, "--sha256", "xyz"]) == 2


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda i: i.pop("libcublas"), "has no component libcublas"),
        (lambda i: i["cuda_nvcc"].pop("linux-x86_64"), "cuda_nvcc has no archive for linux-x86_64"),
        (lambda i: i.update(release_label="newest"), "is not a release: 'newest'"),
        (lambda i: i["cuda_nvcc"].update(version="../1"), "its version is not one"),
        (lambda i: i["cuda_nvcc"]["linux-x86_64"].update(sha256="AB" * 32), "64 lower-case hex"),
        (lambda i: i["cuda_nvcc"]["linux-x86_64"].update(sha256=None), "64 lower-case hex"),
        (lambda i: i["cuda_nvcc"]["linux-x86_64"].update(size="-1"), "size is not a number"),
        (lambda i: i["cuda_nvcc"]["linux-x86_64"].update(size=True), "size is not a number"),
        (lambda i: i["cuda_nvcc"]["linux-x86_64"].update(size=1 << 40), "size is not a number"),
        *[
            (
                lambda i, path=path: i["cuda_nvcc"]["linux-x86_64"].update(relative_path=path),
                "relative_path is not a plain path",
            )
            for path in (
                "../../etc/x.tar.xz",
                "/etc/x.tar.xz",
                "https://elsewhere.invalid/x.tar.xz",
                "//elsewhere.invalid/x.tar.xz",
                "a//x.tar.xz",
                "a\\x.tar.xz",
                "a/x.zip",
                "a/x.tar.xz?y",
                7,
            )
        ],
    ],
)
def test_an_index_that_is_not_nvidias(change: Change, says: str, tmp_path: Path) -> None:
    index = publish(tmp_path)
    change(index)
    with pytest.raises(ToolchainError) as caught:
        redist.parse(json.dumps(index).encode(), where="redistrib.json")
    assert says in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_index(data: bytes) -> None:
    with pytest.raises(ToolchainError):
        redist.parse(data, where="redistrib.json")


def test_releases_from_13_on_have_more_parts(tmp_path: Path) -> None:
    index = publish(tmp_path)
    index["libnvvm"] = index["cuda_nvcc"]
    names = [c.name for c in redist.parse(json.dumps(index).encode(), where="x").components]
    assert names == ["cuda_nvcc", "cuda_cudart", "cuda_cccl", "libcublas", "libnvvm"]


def test_changed_bytes_leave_nothing_behind(served: Served, tmp_path: Path) -> None:
    url, folder, index = served
    write(folder, index)
    path = folder / index["libcublas"]["linux-x86_64"]["relative_path"]
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    root = tmp_path / "cuda"
    with pytest.raises(OriginError, match="other bytes than pinned"):
        redist.assemble(url, root, reporter=Silent())
    path.write_bytes(bytes(data) + b"more")
    with pytest.raises(OriginError, match="more than the"):
        redist.assemble(url, root, reporter=Silent())
    path.unlink()
    with pytest.raises(OriginError, match="the server answers 404"):
        redist.assemble(url, root, reporter=Silent())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["server"]


@pytest.mark.parametrize(
    ("files", "links", "says"),
    [
        ({"../x": b""}, {}, ".."),
        ({}, {"lib/x.so": "../../../etc/passwd"}, "a link to"),
        ({}, {"lib/x.so": "/etc/passwd"}, "a link to"),
        ({}, {"lib/x.so": ".."}, "a link to"),
    ],
)
def test_unsafe_archives(
    tmp_path: Path, files: dict[str, bytes], links: dict[str, str], says: str
) -> None:
    (tmp_path / "a.tar.xz").write_bytes(archive("top", files, links))
    with pytest.raises(ArchiveError) as caught:
        redist.unpack(tmp_path / "a.tar.xz", tmp_path / "out", name="a.tar.xz")
    assert says in caught.value.what


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "out" / "real").mkdir(parents=True)
    first = archive("top", {}, {"lib": "real"})
    second = archive("top", {"lib/x": b"1"})
    for data in (first, second):
        (tmp_path / "a.tar.xz").write_bytes(data)
        try:
            redist.unpack(tmp_path / "a.tar.xz", tmp_path / "out", name="a.tar.xz")
        except ArchiveError as error:
            assert "behind a link" in error.what
    assert not (tmp_path / "out" / "real" / "x").exists()


def test_damage_anywhere_is_an_archive_error_or_harmless(tmp_path: Path) -> None:
    good = archive("top", {"lib/x": b"1" * 5000})
    refused = 0
    for at in range(0, len(good), 3):
        broken = bytearray(good)
        broken[at] ^= 0x5A
        (tmp_path / "a.tar.xz").write_bytes(broken)
        out = tmp_path / f"out{at}"
        out.mkdir()
        try:
            redist.unpack(tmp_path / "a.tar.xz", out, name="a.tar.xz")
        except ArchiveError:
            refused += 1
        else:  # behind the last member nothing is read
            assert (out / "lib/x").read_bytes() == b"1" * 5000
    assert refused > len(good) // 6
