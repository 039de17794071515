"""Places that a run cannot live in: said before anything is fetched, with what to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from qbuild import host
from qbuild.cli import main
from qbuild.errors import ConfigureError, StoreError, UsageError
from qbuild.recipe.config import config_path, load_config, source_origins
from qbuild.steps import cmake
from qbuild.steps.work import check_place
from support.links import make_link

SEPARATES = pytest.mark.skipif(os.sep == "\\", reason="there it separates folders")


@pytest.mark.parametrize(
    "character",
    ['"', ":", ";", "[", "]", "|", "\n", "\t", "\x7f", "$H", "${",
     pytest.param("\\", marks=SEPARATES)],
)  # fmt: skip
def test_a_store_whose_path_build_tools_misread_is_refused(character: str) -> None:
    with pytest.raises(StoreError, match="which build tools do not take") as caught:
        check_place(Path(f"/srv/a{character}b/store"))
    assert repr(character) in caught.value.what and "--store" in (caught.value.fix or "")


def test_a_name_that_begins_with_an_asterisk_is_refused() -> None:
    # CMake 4.4.5 crashes there, when everything has been fetched and patched already
    with pytest.raises(StoreError, match=r"holds '/\*', which build tools do not take"):
        check_place(Path("/srv/*009Z1/store"))


@pytest.mark.parametrize(
    "name", ["with space", "quote'dollar$", "中文 папка", "a,b=c@d+e#f(g)<h>?*&", "é"]
)
def test_a_store_whose_path_is_only_unusual_is_taken(name: str) -> None:
    check_place(Path("/srv") / name)


def test_a_store_path_that_is_no_text_or_endless_is_refused() -> None:
    with pytest.raises(StoreError, match="is not UTF-8"):
        check_place(Path("/srv/bad\udcff"))  # what Python makes of the byte 0xff
    with pytest.raises(StoreError, match="is longer than 512 bytes"):
        check_place(Path("/srv/" + "/".join(["d" * 200] * 3)))
    check_place(Path("/" + "d" * 200 + "/" + "e" * 200))


def test_a_link_to_such_a_store_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "[real]").mkdir()
    make_link(tmp_path / "link", tmp_path / "[real]")
    with pytest.raises(StoreError, match="which build tools do not take"):
        check_place(tmp_path / "link")


def test_a_build_is_refused_before_anything_is_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["avx2", "--store", str(tmp_path / "[s]"), "--dist", str(tmp_path / "dist")]
    assert main.run(["build", *words]) == StoreError.exit_code
    assert "which build tools do not take" in capsys.readouterr().err
    assert not (tmp_path / "[s]" / "wheel").exists() and not (tmp_path / "[s]" / "source").exists()


@pytest.mark.parametrize(
    ("language", "text", "fine"),
    [
        ("C", 'set(CMAKE_C_COMPILER_ID "Clang")\n', True),
        ("C", 'set(CMAKE_C_COMPILER_ID "")\n', False),
        ("CXX", 'set(X 1)\nset(CMAKE_CXX_COMPILER_ID "")\n', False),
        ("CUDA", 'set(CMAKE_CUDA_COMPILER_ID "")\n', False),
        ("RC", 'set(CMAKE_RC_COMPILER "rc")\n', True),
    ],
)
def test_a_compiler_that_cmake_does_not_know_ends_the_configure_step(
    tmp_path: Path, language: str, text: str, fine: bool
) -> None:
    folder = tmp_path / "CMakeFiles" / "4.4.5"
    folder.mkdir(parents=True)
    (folder / f"CMake{language}Compiler.cmake").write_text(text)
    if fine:
        cmake.check_compilers_known(tmp_path)
        return
    with pytest.raises(ConfigureError, match=f"did not recognise the {language} compiler"):
        cmake.check_compilers_known(tmp_path)


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME whom the system does not know: `docker run -u 4242`."""

    def unknown(*_: Any, **__: Any) -> str:
        raise RuntimeError("Could not determine home directory.")

    for name in list(os.environ):
        if name.startswith("XDG_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("platformdirs.user_cache_dir", unknown)
    monkeypatch.setattr("platformdirs.user_config_dir", unknown)
    monkeypatch.setattr(Path, "expanduser", unknown)
    monkeypatch.setattr(Path, "home", unknown)


@pytest.mark.usefixtures("homeless")
def test_without_a_home_there_is_no_configuration() -> None:
    assert config_path({}) is None
    assert load_config(env={}).store == ""
    assert host.user_folder("cache") is None


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("words", [["cache", "size"], ["build", "avx2", "--offline"]])
def test_without_a_home_a_store_must_be_named(
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # where no zip in dist/ is up to date
    assert main.run(words) == 2
    err = capsys.readouterr().err
    assert "no home folder" in err and "--store" in err
    assert main.run(["cache", "size", "--store", str(tmp_path)]) == 0


@pytest.mark.usefixtures("homeless")
def test_without_a_home_the_machine_is_described_all_the_same() -> None:
    from qbuild.doctor.capture import personal_names

    assert all(personal_names())
    with pytest.raises(UsageError, match="which home folder `~/x` means"):
        host.expand_user("~/x")


def test_a_working_folder_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    assert main.run(["list"]) == 2
    assert "the working folder is gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    "origin", ["http://[::1", "https://host:port/x", "https://host:99999/x", "https:///x", "git://"]
)
def test_an_origin_that_is_no_url_is_named(origin: str) -> None:
    with pytest.raises(UsageError, match="URL") as caught:
        source_origins([origin])
    assert caught.value.where == origin


@pytest.mark.parametrize(
    "origin", ["/srv/x", "x.git", "file:///srv/x", "https://h:8443/x", "git@host:x/y", "C:\\x"]
)
def test_an_origin_that_is_a_path_or_a_url_is_taken(origin: str) -> None:
    assert source_origins([origin]) == (origin,)


@pytest.mark.parametrize(("said", "key"), [("win-amd64", "x86_64"), ("win-arm64", "aarch64")])
def test_windows_is_known_without_a_process(
    said: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """platform.machine() may run `cmd /c ver`, and from 3.12 on asks WMI."""
    monkeypatch.delattr(os, "uname", raising=False)
    monkeypatch.setattr("platform.uname", lambda: pytest.fail("platform was asked"))
    monkeypatch.setattr("sysconfig.get_platform", lambda: said)
    monkeypatch.setattr("qbuild.host.system", lambda: "windows")
    assert host.platform_key() == f"windows-{key}"
