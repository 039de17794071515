"""COFF objects and archives: what is read, and that damage is told as such."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbuild.binary.coff import read_coff, split_directives
from qbuild.errors import BinaryError
from support.tiny_coff import make_import, make_library, make_object, make_private_object

MT = '/DEFAULTLIB:"LIBCMT" /DEFAULTLIB:"OLDNAMES" /FAILIFMISMATCH:"_MSC_VER=1900" '
LONG = "a folder\\with-a-rather-long-name.obj"


@pytest.mark.parametrize("options", [{}, {"big": True}, {"bom": True}])
def test_an_objects_directives(options: dict[str, bool]) -> None:
    found = read_coff(make_object(MT, **options), "x.obj")
    (item,) = found.objects
    assert (item.name, item.machine, item.opaque) == ("x.obj", "x86_64", False)
    assert item.directives == ("/DEFAULTLIB:LIBCMT", "/DEFAULTLIB:OLDNAMES",
                               "/FAILIFMISMATCH:_MSC_VER=1900")  # fmt: skip


@pytest.mark.parametrize("gnu", [False, True])
def test_an_archives_members_and_dlls(gnu: bool) -> None:
    members = {"one.obj": make_object(MT), LONG: make_object(), "f.dll": make_import("f", "F.dll")}
    found = read_coff(make_library(members, gnu=gnu), "x.lib")
    assert [item.name for item in found.objects] == ["one.obj", "with-a-rather-long-name.obj"]
    assert found.objects[0].directives[0] == "/DEFAULTLIB:LIBCMT"
    assert found.dlls == ("F.dll",)


def test_an_object_made_with_gl_is_told_apart() -> None:
    (item,) = read_coff(make_private_object(), "x.obj").objects
    assert item.opaque


def test_quotes_hold_blanks_together() -> None:
    text = '-export:f /DEFAULTLIB:"C:\\a b\\c.lib"\t"/merge:.a=.b" '
    assert split_directives(text) == ("-export:f", "/DEFAULTLIB:C:\\a b\\c.lib", "/merge:.a=.b")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x7fELF" + bytes(100), "no object file"),
        (b"MZ" + bytes(200), "no object file"),
        (b"!<thin>\n", "thin archive"),
        (b"!<arch>\n" + b"x" * 60, "no member starts"),
        (make_library({"a.obj": make_object(MT)})[:-20], "beyond the end"),
        (make_object(MT)[:40], "beyond the end"),
        (b"\x64", "damaged object file"),
        (make_library({LONG: make_object()}).replace(b"/0   ", b"/9999"), "outside the table"),
    ],
)
def test_damage_is_named(data: bytes, says: str) -> None:
    with pytest.raises(BinaryError, match=says):
        read_coff(data)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_mutation_raises_anything_else(data: st.DataObject) -> None:
    sample = make_library({"a.obj": make_object(MT), LONG: make_import("f", "F.dll")})
    victim = bytearray(sample)
    for _ in range(data.draw(st.integers(1, 8))):
        victim[data.draw(st.integers(0, len(victim) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BinaryError):
        read_coff(bytes(victim[: data.draw(st.integers(0, len(victim)))]) or b"\0")
