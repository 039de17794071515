"""Wrappers for Windows name no folder, so that no name can break them."""

from __future__ import annotations

import pytest

from qbuild.errors import ToolchainError
from qbuild.toolchains.batch import batch_text

ROOTS = [
    r"C:\q",
    r"C:\Users\Jürgen Groß\AppData\Local\qbuild\Cache", r"D:\构建\仓库", r"C:\100% sure\a&b (1)^",
    r"c:\Users\me",
]  # fmt: skip


def command(root: str) -> list[str]:
    slashes = root.replace("\\", "/")
    return [
        rf"{root}\wheel\ab\files\ziglang\zig.exe", "cc", "-target", "x86_64-windows-gnu",
        f"-ffile-prefix-map={slashes}/tree/12/src=.", "-ffile-prefix-map=../src=.",
    ]  # fmt: skip


@pytest.mark.parametrize("root", ROOTS)
def test_the_text_is_the_same_wherever_the_store_lies(root: str) -> None:
    text = batch_text(rf"{root}\tree\12\tools\cc.cmd", command(root))
    assert text == (
        "@setlocal\r\n"
        '@for %%d in ("%~dp0..\\..\\..") do @set "QBUILD_ROOT=%%~fd"\r\n'
        '@set "QBUILD_ROOT_SLASHES=%QBUILD_ROOT:\\=/%"\r\n'
        '@"%QBUILD_ROOT%\\wheel\\ab\\files\\ziglang\\zig.exe" "cc" "-target" "x86_64-windows-gnu" '
        '"-ffile-prefix-map=%QBUILD_ROOT_SLASHES%/tree/12/src=." "-ffile-prefix-map=../src=." %*'
        "\r\n"
    )


def test_another_spelling_of_the_same_folder_is_the_same_folder() -> None:
    words = command(r"c:\users\ME")
    assert batch_text(r"C:\Users\me\tree\12\tools\cc.cmd", words) == batch_text(
        r"C:\Users\me\tree\12\tools\cc.cmd", command(r"C:\Users\me")
    )


def test_a_program_on_another_drive_is_named_in_full() -> None:
    text = batch_text(r"C:\q\tree\12\tools\cc.cmd", [r"D:\llvm\clang.exe", "-O2"])
    assert text.endswith('@"D:\\llvm\\clang.exe" "-O2" %*\r\n')


@pytest.mark.parametrize("word", [r"D:\Jürgen\clang.exe", 'say="hello"', r"D:\100%\clang.exe"])
def test_what_a_batch_file_cannot_hold_is_refused(word: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        batch_text(r"C:\q\tree\12\tools\cc.cmd", [word])
    assert "--store" in str(caught.value)
