"""The doctor reads what tools really say in every language this system has translations for."""

from __future__ import annotations

import gettext
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbuild.doctor.examine import explain

pytestmark = pytest.mark.integration

CATALOGS = Path("/usr/share/locale")
LOGS = {
    "git": [
        ("sha1 information is lacking or useless (%s).", "error: {}", "blobless-clone"),
        (
            "Repository lacks necessary blobs to fall back on 3-way merge.",
            "error: {}",
            "blobless-clone",
        ),
        # the line in front differs; that git names its own command does not
        (
            'To restore the original branch and stop patching, run "%s --abort".',
            "{}",
            "patch-does-not-apply",
        ),
    ],
    "libc": [
        ("No space left on device", "cc1: fatal error: a.o: {}", "disk-full"),
        ("Illegal instruction", "./run.sh: 3: {} ./llama-cli", "illegal-instruction"),
        (
            "Killed",
            "c++: fatal error: {} signal terminated program cc1plus",
            "out-of-memory",
        ),
    ],
    "coreutils": [("Try '%s --help' for more information.\n", "link: {}", "gnu-link-first")],
    "make": [("%s[%s: %s] Error %d", "make: {}", "out-of-memory")],
}
VALUES = {
    "blobless-clone": ("common/chat.cpp",),
    "patch-does-not-apply": ("git am",),
    "gnu-link-first": ("link",),
    "out-of-memory": ("*** ", "ggml.mk:3", "fattn.o", 137),
}


def translations() -> Iterator[tuple[str, str, str]]:
    for domain, messages in LOGS.items():
        for path in sorted(CATALOGS.glob(f"*/LC_MESSAGES/{domain}.mo")):
            try:
                with path.open("rb") as stream:
                    catalog = gettext.GNUTranslations(stream)
            except (OSError, UnicodeDecodeError, LookupError):
                continue
            language = path.parent.parent.name
            for message, frame, expect in messages:
                text = catalog.gettext(message)
                if text == message or "@" in language:
                    continue
                values = VALUES.get(expect, ()) if "%" in message else ()
                count = text.replace("%%", "").count("%")
                if count and count != len(values[:count]):
                    continue
                yield f"{domain}/{language}", frame.format(text % values[:count]), expect


def test_every_translation_is_understood() -> None:
    tried = list(translations())
    if not tried:
        pytest.skip("this system has no translations")
    missed = [
        (where, log)
        for where, log, expect in tried
        if expect not in [each.id for each in explain(log)]
    ]
    assert missed == []
