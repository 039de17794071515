"""Paths of the build machine."""

from __future__ import annotations

import pytest

from qbuild.binary.strings import find_build_paths


@pytest.mark.parametrize(
    "path",
    [
        "/home/me/llama.cpp/ggml/src/ggml.c",
        "/root/.cache/qbuild/x.cpp",
        "/tmp/build-1234/a.o",
        "/build/src/ggml.c",
        "/github/workspace/x.c",
        "/Users/me/x.c",
        "C:\\Users\\me\\llama.cpp\\x.c",
        "D:\\a\\llama.cpp\\llama.cpp\\x.c",
        "c:/build/llama.cpp/x.c",
    ],
)
def test_build_paths_are_found(path: str) -> None:
    data = b"\0\1\2abc\0" + path.encode() + b"\0more"
    (found,) = find_build_paths(data)
    assert (found.text, found.offset) == (path, 7)


@pytest.mark.parametrize(
    "text",
    [
        "/dev/null", "/proc/self/exe", "/proc/cpuinfo", "/etc/ssl/cert.pem", "/tmp", "/tmp/",
        "/usr/lib/x86_64-linux-gnu", "/sys/devices/system/cpu", "https://example.org/home/me/x",
        "ggml/src/ggml.c", "C:\\Windows\\System32", "C:\\Program Files\\x", "a/home/b/c",
    ],
)  # fmt: skip
def test_constants_of_programs_are_not(text: str) -> None:
    assert not list(find_build_paths(b"\0" + text.encode() + b"\0"))


def test_each_path_once_and_not_too_many() -> None:
    assert len(list(find_build_paths(b"/home/me/x.c\0" * 50))) == 1
    many = b"".join(f"/home/me/{i}.c".encode() + b"\0" for i in range(50))
    assert len(list(find_build_paths(many, limit=5))) == 5
