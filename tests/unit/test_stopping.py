"""Being stopped is no fault of what is read: no verdict, no error of the input, no traceback."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from qbuild import process
from qbuild.binary import pe
from qbuild.binary.elf import read_elf_data
from qbuild.binary.pe import read_pe_data
from qbuild.cli import main
from qbuild.errors import BinaryError, VerifyError
from qbuild.process import Stopped
from qbuild.verify import verify_zip
from support import report_zips
from support.tiny_elf import make_elf
from support.tiny_pe import make_pe


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal has arrived, and its exception was lost on the way."""
    monkeypatch.setattr(process, "_stop_asked", True)


def test_it_is_no_exception_that_readers_catch() -> None:
    assert not issubclass(Stopped, Exception)
    assert issubclass(Stopped, KeyboardInterrupt)  # what libraries know how to pass on


def test_a_reader_passes_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(pe, "_read", stopped)
    with pytest.raises(Stopped):
        read_pe_data(make_pe())


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    "read", [lambda: read_elf_data(make_elf()), lambda: read_pe_data(make_pe())]
)
def test_a_reader_whose_library_swallowed_it_finds_the_mark(read) -> None:
    with pytest.raises(Stopped):
        read()


@pytest.mark.usefixtures("asked")
def test_no_verdict_is_given(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        verify_zip(report_zips.make(tmp_path))


def test_no_verdict_is_given_when_the_last_check_was_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report_zips.make(tmp_path)

    def launch_check(*_: object):
        process._stop_asked = True
        yield from ()

    monkeypatch.setattr(process, "_stop_asked", False)
    monkeypatch.setattr("qbuild.verify.static.launch_check", launch_check)
    with pytest.raises(Stopped):
        verify_zip(path)


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    "error",
    [VerifyError("x.zip is refused"), BinaryError("damaged"), OSError("gone"), ValueError()],
)
def test_what_fails_while_being_stopped_is_not_reported_as_a_finding(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(*_: object) -> int:
        raise error

    monkeypatch.setattr("qbuild.cli.version.execute", execute)
    assert main.run(["version"]) == 130
    err = capsys.readouterr().err
    assert "stopped" in err and "refused" not in err and "damaged" not in err


def test_where_it_stood_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(*_: object) -> int:
        raise Stopped("work/build.log")

    monkeypatch.setattr("qbuild.cli.version.execute", execute)
    assert main.run(["version"]) == 130
    assert "where: work/build.log" in capsys.readouterr().err


def test_one_that_was_lost_in_a_destructor_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr("sys.__unraisablehook__", told.append)
    lost, fault = SimpleNamespace(exc_type=Stopped), SimpleNamespace(exc_type=ValueError)
    process._quiet_about_stopping(lost)  # type: ignore[arg-type]
    process._quiet_about_stopping(fault)  # type: ignore[arg-type]
    assert told == [fault]
