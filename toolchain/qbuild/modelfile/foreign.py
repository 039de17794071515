"""What a file is that is no GGUF file, told from its first bytes."""

from __future__ import annotations

from typing import Final

_OLD: Final = "a GGML file from before GGUF (August 2023)"
_NEWER: Final = "get a .gguf conversion of the model"
_KINDS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer", "`git lfs pull` gets the file itself"),
    (b"version https://hawser", "a Git LFS pointer", "`git lfs pull` gets the file itself"),
    (b"PK\x03\x04", "a zip (a PyTorch checkpoint, maybe)", "unpack or convert it"),
    (b"\x1f\x8b", "a gzip archive", "unpack it"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (b"Rar!", "a RAR archive", "unpack it"),
    (b"lmgg", _OLD, _NEWER),
    (b"fmgg", _OLD, _NEWER),
    (b"tjgg", _OLD, _NEWER),
    (b"algg", _OLD, _NEWER),
    (b"FUGG", "a GGUF file whose bytes are swapped", "get the little-endian file"),
    (b"\x80\x02", "a PyTorch checkpoint", "convert it with convert_hf_to_gguf.py"),
    (b"MZ", "a Windows program", "name the model instead"),
    (b"\x7fELF", "a Linux program", "name the model instead"),
)


def what_it_is(head: bytes) -> tuple[str, str]:
    """Return what a file seems to be and what to do about it.

    Args:
        head: Its first bytes, up to 512.
    """
    for magic, what, fix in _KINDS:
        if head.startswith(magic):
            return what, fix
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page", "the server sent a page instead (a login, an error): open it and see"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 30:
        return "a safetensors file", "convert it with convert_hf_to_gguf.py"
    if text.startswith((b"{", b"[")):
        return "JSON", "the server sent a message instead of the file: open it and see"
    if not any(head):
        return "nothing but zeros", "the download reserved the space and did not fill it: resume it"
    return f"it begins with {head[:4]!r}", "name a .gguf file"
