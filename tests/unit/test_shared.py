"""What is shared with other machines: asked for in one place, refused where it must not be."""

from __future__ import annotations

import pytest

from qbuild.errors import UsageError
from qbuild.recipe.config import Config
from qbuild.steps.shared import Shared, refuse, shared


def ask(*args: object, env: dict[str, str] | None = None, config: Config | None = None) -> Shared:
    return shared(*args, env=env or {}, config=config or Config())  # type: ignore[arg-type]


def test_nothing_is_shared_unless_somebody_asks() -> None:
    nothing = ask()
    assert not nothing
    assert nothing.environment({}) == {}
    assert nothing.words() == []
    assert not nothing.needs_network


def test_the_command_line_wins_over_the_environment_and_that_over_the_file() -> None:
    config = Config(remote_cache="redis://file", cache_mode="read", compile_hosts=("a",))
    env = {"QBUILD_REMOTE_CACHE": "redis://env", "QBUILD_COMPILE_HOSTS": "b c:3633/2"}
    assert ask(config=config).cache == "redis://file"
    assert ask(config=config).mode == "read"
    assert ask(config=config).hosts == ("a",)
    assert ask(env=env, config=config).cache == "redis://env"
    assert ask(env=env, config=config).hosts == ("b", "c:3633/2")
    given = ask("http://line/x", "read-write", ["d,e", "f"], env=env, config=config)
    assert (given.cache, given.mode) == ("http://line/x", "read-write")
    assert given.hosts == ("d", "e", "f")
    assert ask("", env=env, config=config).cache == "", "an empty --remote-cache means none"


@pytest.mark.parametrize("name", ["QBUILD_REMOTE_CACHE", "QBUILD_REMOTE_CACHE_MODE"])
def test_an_empty_variable_is_no_wish(name: str) -> None:
    """A pipeline hands over a variable that its project never set as an empty one."""
    assert not ask(env={name: ""})


def test_read_only_reaches_the_engine() -> None:
    assert "read-only" not in ask("redis://h").environment({})["CCACHE_REMOTE_STORAGE"]
    only_read = ask("redis://h", "read").environment({})["CCACHE_REMOTE_STORAGE"].split()
    assert only_read[:2] == ["redis://h", "read-only"]
    assert ask("s3://b", "read").environment({})["SCCACHE_S3_RW_MODE"] == "READ_ONLY"


def test_s3_takes_the_users_credentials_and_nothing_else() -> None:
    user = {"AWS_ACCESS_KEY_ID": "k", "SCCACHE_REGION": "eu", "HOME": "/home/me", "SECRET": "s"}
    env = ask("s3://bucket/a/b").environment(user)
    assert env["SCCACHE_BUCKET"] == "bucket"
    assert env["SCCACHE_S3_KEY_PREFIX"] == "a/b"
    assert env["AWS_ACCESS_KEY_ID"] == "k"
    assert env["SCCACHE_REGION"] == "eu"
    assert not {"HOME", "SECRET"} & set(env)


def test_the_build_record_shows_no_password() -> None:
    words = ask("redis://user:hunter2@cache.example:6390", None, ["b:1/2"]).words()
    assert words == [
        "object cache redis://cache.example:6390 (read-write)",
        "compiled on b:1/2",
    ]


def test_a_socket_needs_no_network() -> None:
    assert ask("redis://h").needs_network
    assert ask(None, None, ["h"]).needs_network
    assert not ask("redis+unix:/run/redis.sock").needs_network


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("ftp://h",), "no remote object cache for `ftp`"),
        (("cache.example",), "no remote object cache"),
        (("redis://h read-only=false",), "blank"),
        (("redis://h|read-only=false",), "blank"),
        (("http:///x",), "names no host"),
        ((None, "write"), "no mode"),
        ((None, None, ["-x"]), "no host"),
        ((None, None, ["a;b"]), "no host"),
        ((None, None, ["a:port"]), "no host"),
        (("s3://b", None, ["h"]), "do not go together"),
    ],
)
def test_what_cannot_be_used_is_refused(args: tuple[object, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ask(*args)


def test_releases_share_nothing() -> None:
    refuse(Shared(), "a release build")
    for some in (Shared(cache="redis://h"), Shared(hosts=("h",))):
        with pytest.raises(UsageError, match="a release build shares nothing"):
            refuse(some, "a release build")
