"""What a newcomer types first, and what is said to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.bundle import readme
from qbuild.cli import main
from support.bundles import facts


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main.run(words) != 0
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "verb"), [("patch", "status"), ("launch", "systemd"), ("ci", "github")]
)
def test_a_command_of_several_verbs_lists_them(
    command: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    err = said([command], capsys)
    assert f"`qbuild {command}` does one of several things" in err
    assert verb in err and "--help" in err


def test_an_unknown_gpu_hears_that_names_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    err = said(["plan", "gtx1060", "--cuda-arch", "RTX9999"], capsys)
    assert '--cuda-arch "GTX 1060"' in err


def test_an_offline_build_lists_what_is_missing_line_by_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["build", "avx2", "--offline", "--store", str(tmp_path / "s")]
    # Not this checkout's dist/: a zip that is up to date there needs nothing.
    err = said([*words, "--dist", str(tmp_path / "dist")], capsys)
    lines = [line for line in err.splitlines() if line.endswith(".whl") and line[:2] == "  "]
    assert len(lines) >= 3 and "fetch:" not in err


def test_patches_for_another_system_come_last_and_short() -> None:
    from qbuild.bundle.facts import PatchFacts, SeriesFacts

    def series(name: str, system: str) -> SeriesFacts:
        patch = PatchFacts(
            file="0001.patch", subject=f"{name} subject", why="Because.", sha256="1" * 64,
            probe={"os": system},
        )  # fmt: skip
        return SeriesFacts(name=name, summary="S", digest="2" * 64, patches=(patch,))

    both = (series("windows-gnu", "windows"), series("other", ""))
    text = readme._differences(facts("linux", series=both))
    assert text.index("other subject") < text.index("windows-gnu")
    assert "windows-gnu subject" not in text and "change nothing here" in text.replace("\n", " ")
    text = readme._differences(facts("windows", series=both))
    assert text.index("windows-gnu subject") < text.index("other subject")
