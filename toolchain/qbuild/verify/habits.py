"""How a zip comes out of people's unpackers: what Explorer, unzip and browsers make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from qbuild.binary.zip_reader import ZipView
from qbuild.binary.zip_writer import UTF8_FLAG
from qbuild.verify.binaries import Images
from qbuild.verify.structure import Unpacked

EXPLORER: Final = 180
"""Characters below the folder that still unpack: Explorer stops at 260 for the whole path, and
`C:\\Users\\someone\\Downloads\\name-of-the-zip\\` takes up to 80 of them."""
_LIBRARY: Final = re.compile(r".*\.so(\.\d+)*|.*\.dylib")
_LINK: Final = 256  # a link that became a file holds the name it pointed at, and nothing else


def unpacking_problems(view: ZipView, unpacked: Unpacked, images: Images) -> Iterator[str]:
    """Yield what goes wrong when somebody unpacks the zip, each with what to do."""
    yield from _not_executable(view, images)
    yield from _links(unpacked)
    for name in view.names:
        member = view.member(name)
        if not name.isascii() and not member.flags & UTF8_FLAG:
            yield (
                f"{name}: is not marked as UTF-8, and comes out garbled on Windows; to do: pack it "
                "again with a packer that marks names (7-Zip with -mcu=on, Python's zipfile)"
            )
    long = max(view.names, key=len, default="")
    if len(long) > EXPLORER:
        yield (
            f"{long[:60]}…: {len(long)} characters below the folder; Explorer stops at 260 in all "
            "(0x80010135). To do: unpack into a short folder such as C:\\llm, or with 7-Zip"
        )


def _not_executable(view: ZipView, images: Images) -> Iterator[str]:
    """Yield Linux programs that no bit marks as one."""
    found = [
        name
        for name, image in images.elf.items()
        if (image.interpreter or not (image.soname or _LIBRARY.fullmatch(name)))
        and not view.member(name).executable
    ]
    if found:
        shown = ", ".join(found[:4]) + (" …" if len(found) > 4 else "")
        yield (
            f"{shown}: not marked executable ({len(found)} programs), so they end with "
            f"“Permission denied”; to do: chmod +x {found[0].rpartition('/')[2]} after unpacking"
        )


def _links(unpacked: Unpacked) -> Iterator[str]:
    """Yield libraries that are a text: a link, packed by something that knows none."""
    for name, file in unpacked.files.items():
        if file.size > _LINK or not _LIBRARY.fullmatch(name):
            continue
        target = file.path.read_bytes().decode("utf-8", "replace").strip()
        folder = name.rpartition("/")[0]
        whole = f"{folder}/{target}" if folder else target
        if whole in unpacked.files or re.fullmatch(r"[\w.+-]+\.so[\w.]*", target):
            yield (
                f"{name}: is no library but the name of one ({target[:60]}): a link that became a "
                f"text; to do: ln -sf {target[:60]} {name}, or unpack the original with unzip"
            )
