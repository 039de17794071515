"""Windows' codes in every spelling, and the plain pieces of regular expressions."""

from __future__ import annotations

import re

import pytest

from qbuild.doctor.codes import rounded, seen_in, spellings, win32
from qbuild.doctor.examine import explain
from qbuild.doctor.findings import findings
from qbuild.doctor.signatures import compact, required
from qbuild.source.causes import cause_of

CODES = sorted({code for row in findings().values() for code in row.codes})


@pytest.mark.parametrize("code", CODES, ids=[f"{code:08X}" for code in CODES])
def test_a_code_is_found_in_every_spelling(code: int) -> None:
    for text in spellings(code):
        for line in (f"exit code {text}", f"({text})", f"code: {text}, at 12:00", f"a\n{text}\nb"):
            (seen,) = seen_in(line, CODES)
            assert code in seen.codes, line


def test_how_javascript_rounds() -> None:
    # public reports of Electron programs show these two
    assert rounded(0xC0000005) == "18446744072635810000"
    assert rounded(0xC0000409) == "18446744072635812000"
    assert rounded(0xC0000135) == rounded(0xC000001D)


@pytest.mark.parametrize(
    "text",
    [
        "main.main(0xc0000051d0, 0x18)",  # an address in Go's heap
        "seed = 3221225477123",
        "slot release: id 0 | task 1073741515 |",
        "sha256: c0000135c0000135c0000135c0000135",
        "0xc00001350",
        "token 13221225781",
    ],
)
def test_other_numbers_are_no_codes(text: str) -> None:
    assert list(seen_in(text, CODES)) == []
    assert explain(text) == ()


def test_a_win32_error_is_its_hresult() -> None:
    assert win32(126) == 0x8007007E
    for text in (
        "[WinError 126]",
        "[Error 126]",
        "(os error 126)",
        "Win32Exception (126)",
        "(0x7E)",
    ):
        (seen,) = seen_in(f"x {text} y", [win32(126)])
        assert seen.codes == (win32(126),)


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        ("abcd.{0,9}efghij", ("efghij",)),
        ("(alpha|betagamma)x?", ("alpha", "betagamma")),
        ("(alpha)?", ()),
        ("alpha|", ()),
        ("[abc]+longpiece(?!x)", ("longpiece",)),
        (r"a\.dll(one|two)", ("a.dll",)),
        ("(?:abcde)+f", ("abcde",)),
    ],
)
def test_pieces_that_must_be_there(pattern: str, pieces: tuple[str, ...]) -> None:
    assert required(pattern) == pieces


def test_what_an_expression_needs_is_in_what_it_finds() -> None:
    for row in findings().values():
        text = compact(row.example)
        for each in row.patterns:
            if each.pattern and (match := re.search(each.pattern, text)):
                pieces = required(each.pattern.pattern)
                assert not pieces or any(piece in match[0] for piece in pieces), row.id


def test_a_fetch_is_told_in_the_doctor_s_words() -> None:
    said = (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'ProxyError('Cannot connect "
        "to proxy.', OSError('Tunnel connection failed: 407 Proxy Authentication Required'))'\n"
        "ERROR: No matching distribution found for cmake==4.2.3\n"
    )
    cause = cause_of(said)
    assert cause is not None
    assert (cause.id, cause.passing) == ("proxy-auth", False)
    assert "HTTPS_PROXY" in cause.mend
    other = cause_of("fatal: https://me:secret@mirror.example/x.git/: early EOF")
    assert other is not None
    assert other.passing
    assert "secret" not in str(other)
    assert cause_of("all is well") is None


def test_the_commands_that_the_tables_name_exist() -> None:
    from qbuild.cli.main import COMMANDS

    verbs = {"launch": {"show", "systemd", "scripts", "fit"}, "patch": {"status", "rebase"}}
    for row in findings().values():
        for words in re.findall(r"`qbuild ([^`]+)`", f"{row.mend} {row.verb} {row.recipe}"):
            first, *rest = words.split()
            assert first in COMMANDS or first == "--recipe", (row.id, words)
            assert not rest or first not in verbs or rest[0] in verbs[first], (row.id, words)
