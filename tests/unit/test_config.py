"""The user's settings: file, environment, command line, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.errors import UsageError
from qbuild.recipe.config import (
    Config,
    config_path,
    is_url,
    load_config,
    parse_config,
    source_origins,
)


def test_missing_file_is_an_empty_one(tmp_path: Path) -> None:
    assert load_config(tmp_path / "none.toml", env={}) == Config()


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'origins = ["clone", "https://example.org/x.git", "git@host:x.git"]\n'
        'mirrors = ["/srv/wheels"]\nstore = "big"\n',
        encoding="utf-8",
    )
    found = load_config(path, env={})
    assert found.origins == (
        str(tmp_path / "clone"),
        "https://example.org/x.git",
        "git@host:x.git",
    )
    assert found.mirrors == (str(tmp_path / "/srv/wheels"),)  # with Windows' drive there
    assert found.store == str(tmp_path / "big")


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('origins = ["a"]\nmirrors = ["b"]\nstore = "c"\n', encoding="utf-8")
    env = {
        "QBUILD_ORIGIN": "https://one.example/x.git; /two and more",
        "QBUILD_MIRROR": "/three",
        "QBUILD_STORE": "/four",
    }
    assert load_config(path, env=env) == Config(
        origins=("https://one.example/x.git", "/two and more"),
        mirrors=("/three",),
        store="/four",
    )


def test_command_line_wins_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBUILD_ORIGIN", "/env")
    assert source_origins([]) == ("/env",)
    assert source_origins(["/given"]) == ("/given",)


def test_another_file_by_environment(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert config_path({"QBUILD_CONFIG": str(path)}) == path
    with pytest.raises(UsageError, match="the configuration file is missing") as caught:
        load_config(env={"QBUILD_CONFIG": str(path)})
    assert caught.value.fix == "QBUILD_CONFIG names it"


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("origins = ", "is not valid TOML", None),
        ('origin = ["/x"]', "`origin` is not a key", 1),
        ('\norigins = "/x"', "`origins` must be a list of string, not string", 2),
        ("origins = [1]", "`origins[0]` must be string, not integer", 1),
        ('origins = [""]', "`origins[0]` is empty", 1),
        ('origins = ["a", "a"]', "the same value twice", 1),
        ("store = true", "`store` must be string, not boolean", 1),
        ('[mirrors]\na = "b"', "`mirrors` must be a list of string, not table", 1),
    ],
)
def test_bad_file(text: str, what: str, line: int | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(text, "my.toml")
    assert what in caught.value.what
    assert caught.value.where == (f"my.toml:{line}" if line else "my.toml")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("data", [b"\xff", None])
def test_unreadable_file(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.mkdir() if data is None else path.write_bytes(data)
    with pytest.raises(UsageError, match=r"not UTF-8|cannot be read"):
        load_config(path, env={})


def test_empty_origin() -> None:
    with pytest.raises(UsageError, match="--origin is empty"):
        source_origins([" "])


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://x/y", True),
        ("ssh://git@x/y", True),
        ("file:///x", True),
        ("git@host:x.git", True),
        ("C:\\clones\\llama.cpp", False),
        ("C:/clones", False),
        ("/srv/a:b", False),
        ("clone", False),
        ("ext::sh -c id", False),
        ("--upload-pack=id", False),
    ],
)
def test_is_url(text: str, url: bool) -> None:
    assert is_url(text) is url


def test_the_configured_store_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from qbuild.cli.common import store

    config = tmp_path / "config.toml"
    config.write_text(f"store = {str(tmp_path / 'big')!r}\n")
    monkeypatch.setenv("QBUILD_CONFIG", str(config))
    assert store(Namespace(store=None)).root == tmp_path / "big"
    monkeypatch.setenv("QBUILD_STORE", str(tmp_path / "env"))
    assert store(Namespace(store=None)).root == tmp_path / "env"
    assert store(Namespace(store=str(tmp_path / "arg"))).root == tmp_path / "arg"
