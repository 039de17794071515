"""Pinned files through pip and mirrors, and wheels that try to do harm when unpacked.

pip runs for real, against a folder of files instead of an index.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from qbuild.cli import main
from qbuild.console import Silent
from qbuild.errors import ArchiveError, OriginError, QbuildError, StoreError
from qbuild.recipe.lock import FilePin, WheelPin, load_lock
from qbuild.source import wheels
from qbuild.source.wheels import check_room, fetch_file, latest, resolve, unpack_wheel
from support.systems import WINDOWS, kept

pytestmark = pytest.mark.integration

FILES = {
    "tool/__init__.py": b"VALUE = 1\n",
    "tool/bin/tool": b"#!/bin/sh\necho hi\n",
    "tool/Case.h": b"one\n",
    "tool-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n",
    "tool-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
RECORD = "tool-1.0.dist-info/RECORD"


def record_of(files: dict[str, bytes]) -> bytes:
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{RECORD},,\n"]).encode()


def make_wheel(
    folder: Path,
    files: dict[str, bytes] | None = None,
    *,
    name: str = "tool-1.0-py3-none-any.whl",
    record: bytes | None = None,
    modes: dict[str, int] | None = None,
) -> Path:
    files = dict(FILES if files is None else files)
    version = name.split("-")[1]
    files = {
        key.replace("tool-1.0", f"tool-{version}"): data.replace(b"1.0\n", f"{version}\n".encode())
        for key, data in files.items()
    }
    content = {
        **files,
        RECORD.replace("1.0", version): record_of(files) if record is None else record,
    }
    folder.mkdir(exist_ok=True)
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for member, data in content.items():
            info = zipfile.ZipInfo(member)
            info.create_system = (
                3  # Unix, whose modes these are, also where a test makes it elsewhere
            )
            default = 0o100755 if "/bin/" in member else 0o100644
            info.external_attr = (modes or {}).get(member, default) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(info, data)
    return path


def pin_of(path: Path, platform: str = "any", version: str = "1.0") -> WheelPin:
    return WheelPin(
        project=path.name.split("-")[0],
        version=version,
        platform=platform,
        filename=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=path.stat().st_size,
    )


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of pip's world, and no waiting between tries."""
    folder = tmp_path / "index ü"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    monkeypatch.setattr(wheels.time, "sleep", lambda _: None)
    return folder


def get(
    pin: FilePin | WheelPin, dest: Path, *, offline: bool = False, mirrors: tuple[str, ...] = ()
) -> Path:
    return fetch_file(pin, dest, offline=offline, reporter=Silent(), mirrors=mirrors)


# -- fetching -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        ("tool-1.0-py3-none-any.whl", "any"),
        ("tool-1.0-py3-none-win_amd64.whl", "windows-x86_64"),
        ("tool-1.0-py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64.whl", "linux-x86_64"),
        ("tool-1.0-py2.py3-none-any.whl", "any"),
        ("tool-1.0-cp310-abi3-win_amd64.whl", "windows-x86_64"),
    ],
)
def test_fetch(name: str, platform: str, index: Path, tmp_path: Path) -> None:
    path = make_wheel(index, name=name)
    got = get(pin_of(path, platform), tmp_path / "d ü")
    assert got.read_bytes() == path.read_bytes()
    assert [p.name for p in got.parent.iterdir()] == [name]
    path.unlink()
    assert get(pin_of(got, platform), tmp_path / "d ü", offline=True) == got  # it is there already


def test_the_right_one_of_several(index: Path, tmp_path: Path) -> None:
    right = make_wheel(index)
    make_wheel(index, name="tool-2.0-py3-none-any.whl")
    elsewhere = "manylinux_2_17_x86_64" if WINDOWS else "win_amd64"
    make_wheel(index, name=f"tool-1.0-py3-none-{elsewhere}.whl")
    assert get(pin_of(right), tmp_path / "d").name == right.name


def test_users_constraints_do_not_get_in_the_way(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.txt").write_text("tool<1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "c.txt"))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    assert get(pin_of(make_wheel(index)), tmp_path / "d").is_file()


def changed(pin: WheelPin) -> WheelPin:
    return dataclasses.replace(pin, sha256="0" * 64)


BAD: list[tuple[str, Callable[[WheelPin], WheelPin], str]] = [
    ("wrong hash", changed, "gave other bytes"),
    ("wrong size", lambda pin: dataclasses.replace(pin, size=pin.size + 1), "gave other bytes"),
    ("no such project", lambda pin: dataclasses.replace(pin, project="nothere"), "could not get"),
    ("no such version", lambda pin: dataclasses.replace(pin, version="9.9"), "could not get"),
    (
        "another platform's name",
        lambda pin: dataclasses.replace(pin, filename="tool-1.0-py3-none-win_amd64.whl"),
        "pip delivered another file",
    ),
    (
        "no wheel's name",
        lambda pin: dataclasses.replace(pin, filename="tool-1.0.whl"),
        "not a wheel's file name",
    ),
]


@pytest.mark.parametrize(("change", "part"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_pin(
    change: Callable[[WheelPin], WheelPin], part: str, index: Path, tmp_path: Path
) -> None:
    with pytest.raises(OriginError) as caught:
        get(change(pin_of(make_wheel(index))), tmp_path / "d")
    assert part in caught.value.what
    assert caught.value.exit_code == 5
    assert list((tmp_path / "d").iterdir()) == []


def test_dead_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = pin_of(make_wheel(tmp_path / "elsewhere"))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(OriginError, match="could not get") as caught:
        get(pin, tmp_path / "d")
    assert "cannot be reached" in caught.value.what
    assert "HTTPS_PROXY" in str(caught.value.fix)


def test_damaged_file_in_place_is_fetched_again(index: Path, tmp_path: Path) -> None:
    path = make_wheel(index)
    pin = pin_of(path)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / path.name).write_bytes(b"x" * pin.size)
    assert get(pin, tmp_path / "d").read_bytes() == path.read_bytes()


def test_offline(index: Path, tmp_path: Path) -> None:
    pin = pin_of(make_wheel(index))
    with pytest.raises(OriginError, match="--offline forbids"):
        get(pin, tmp_path / "d", offline=True)
    assert get(pin, tmp_path / "d", offline=True, mirrors=(str(index),)).is_file()


def test_mirror_folder(index: Path, tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "mirror")
    empty = tmp_path / "empty"
    empty.mkdir()
    mirrors = (str(tmp_path / "none"), str(empty), str(path.parent))
    assert get(pin_of(path), tmp_path / "d", mirrors=mirrors).is_file()


def test_mirror_page(index: Path, tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "mirror")
    assert get(pin_of(path), tmp_path / "d", mirrors=(path.parent.as_uri(),)).is_file()


def test_mirror_of_the_configuration(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_wheel(tmp_path / "mirror")
    monkeypatch.setenv("QBUILD_MIRROR", str(path.parent))
    pin = pin_of(path)
    assert fetch_file(pin, tmp_path / "d", offline=False, reporter=Silent()).is_file()


def test_lying_mirror_is_refused_and_named(index: Path, tmp_path: Path) -> None:
    pin = pin_of(make_wheel(index))
    liar = make_wheel(tmp_path / "mirror", {**FILES, "tool/__init__.py": b"VALUE = 2\n"})
    with pytest.raises(OriginError, match="gave other bytes") as caught:
        get(pin, tmp_path / "d", mirrors=(str(liar.parent),))
    assert caught.value.where == str(liar)
    assert list((tmp_path / "d").iterdir()) == []


def test_folder_that_cannot_be_made(index: Path, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("a file")
    with pytest.raises(StoreError):
        get(pin_of(make_wheel(index)), tmp_path / "d")


def test_room(index: Path, tmp_path: Path) -> None:
    pin = pin_of(make_wheel(index))
    assert check_room([pin], tmp_path, unpacked=5) == pin.size + 5
    with pytest.raises(StoreError, match="are needed and"):
        check_room([dataclasses.replace(pin, size=1 << 60)], tmp_path)


def test_resolve_and_latest(index: Path, tmp_path: Path) -> None:
    old = make_wheel(index)
    resolve(pin_of(old))
    with pytest.raises(OriginError):
        resolve(changed(pin_of(old)))
    new = make_wheel(index, name="tool-1.1-py3-none-any.whl")
    assert latest("tool", None, "any", tmp_path / "a") == pin_of(new, version="1.1")
    assert latest("tool", "1.0", "any", tmp_path / "b") == pin_of(old)
    with pytest.raises(OriginError, match="found no wheel of nothere"):
        latest("nothere", None, "any", tmp_path / "c")


def test_lock_update(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = pin_of(make_wheel(index))
    path = tmp_path / "my.lock"
    path.write_text(
        "# kept\nschema = 1\n\n[[wheel]]  # why\n"
        + "".join(f'{k} = "{v}"\n' for k, v in dataclasses.asdict(old).items() if k != "size")
        + f"size = {old.size}\n"
    )
    words = ["lock", "--lockfile", str(path), "-q"]
    assert main.run(words) == 0
    assert "tool 1.0" in capsys.readouterr().out
    new = pin_of(make_wheel(index, name="tool-1.1-py3-none-any.whl"), version="1.1")
    assert main.run([*words, "--update", "tool", "--dry-run"]) == 0
    assert load_lock(path).wheels == (old,)
    assert main.run([*words, "--update", "tool", "--json"]) == 0
    assert load_lock(path).wheels == (new,)
    assert path.read_text().startswith("# kept\nschema = 1\n\n[[wheel]]  # why\n")
    assert main.run([*words, "--update", "tol"]) == 4
    assert "did you mean `tool`" in capsys.readouterr().err
    (index / new.filename).unlink()
    assert main.run(words) == 5
    assert "1 of 1 pins do not resolve" in capsys.readouterr().err


# -- sdists -------------------------------------------------------------------------------------


def make_sdist(folder: Path, marker: Path) -> FilePin:
    """An sdist all of whose code leaves a mark when it runs."""
    trap = f"open({str(marker)!r}, 'w').close()\n"
    files = {
        "pyproject.toml": '[build-system]\nrequires = ["scikit-build-core[pyproject]>=0.9.2"]\n'
        'build-backend = "scikit_build_core.build"\n[project]\nname = "carrier"\ndynamic = '
        '["version"]\n[tool.scikit-build.metadata.version]\nprovider = "trap"\n'
        'provider-path = "."\n',
        "trap.py": trap,
        "setup.py": trap,
        "scikit_build_core/__init__.py": trap,
        "scikit_build_core/build.py": trap,
        "sitecustomize.py": trap,
        "CMakeLists.txt": f"file(TOUCH {marker})\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n",
    }
    path = folder / "carrier-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"carrier-1.0/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return FilePin(
        project="carrier",
        version="1.0",
        filename=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=path.stat().st_size,
    )


def test_sdist_is_fetched_and_nothing_of_it_runs(index: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    pin = make_sdist(index, marker)
    assert get(pin, tmp_path / "d").is_file()
    assert not marker.exists()


def test_sdist_of_another_hash(index: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    pin = dataclasses.replace(make_sdist(index, marker), sha256="0" * 64)
    with pytest.raises(OriginError, match="gave other bytes"):
        get(pin, tmp_path / "d")
    assert not marker.exists()


# -- unpacking ----------------------------------------------------------------------------------


def test_unpack(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, modes={"tool/__init__.py": 0o100600, "tool/Case.h": 0o104777})
    unpack_wheel(path, tmp_path / "out ü")
    out = tmp_path / "out ü"
    found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert found == {*FILES, RECORD}
    for name, data in FILES.items():
        assert (out / name).read_bytes() == data
    assert stat.S_IMODE((out / "tool/bin/tool").stat().st_mode) == kept(0o755)
    assert stat.S_IMODE((out / "tool/__init__.py").stat().st_mode) == kept(0o644)
    assert not (out / "tool/Case.h").stat().st_mode & 0o4000


def test_names_that_differ_in_case_only(tmp_path: Path) -> None:
    """Linux kernel's headers do, which wheels of compilers hold; Windows cannot make both."""
    path = make_wheel(tmp_path, {**FILES, "tool/case.h": b"two\n"})
    if WINDOWS:
        with pytest.raises(ArchiveError, match="collides with"):
            unpack_wheel(path, tmp_path / "out")
        return
    unpack_wheel(path, tmp_path / "out")
    assert (tmp_path / "out/tool/case.h").read_bytes() == b"two\n"
    assert (tmp_path / "out/tool/Case.h").read_bytes() == b"one\n"


def with_file(name: str, mode: int | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        modes = {name: mode} if mode is not None else {}
        return make_wheel(folder, {**FILES, name: b"/etc/passwd"}, modes=modes)

    return make


def with_record(change: Callable[[str], str]) -> Callable[[Path], Path]:
    return lambda folder: make_wheel(folder, record=change(record_of(FILES).decode()).encode())


def with_bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = make_wheel(folder)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


def without_record(folder: Path) -> Path:
    path = folder / "tool-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("tool/__init__.py", b"")
    return path


HARMFUL: list[tuple[str, Callable[[Path], Path]]] = [
    ("climbs", with_file("../evil")),
    ("climbs later", with_file("tool/../../evil")),
    ("absolute", with_file("/tmp/evil")),
    ("drive", with_file("C:/evil")),
    ("backslash", with_file("tool\\..\\..\\evil")),
    ("symlink", with_file("tool/link", 0o120777)),
    ("pipe", with_file("tool/pipe", 0o010644)),
    ("device", with_file("tool/device", 0o020644)),
    ("newline in a name", with_file("tool/a\nb")),
    ("not in RECORD", lambda d: make_wheel(d, {**FILES, "x": b"y"}, record=record_of(FILES))),
    ("only in RECORD", with_record(lambda text: text + "tool/gone.py,sha256=AAAA,1\n")),
    ("other hash", with_record(lambda text: text.replace("sha256=", "sha256=A", 1))),
    ("weak hash", with_record(lambda text: text.replace("sha256=", "md5=", 1))),
    ("two columns", with_record(lambda text: text + "tool/x,y\n")),
    ("RECORD not UTF-8", lambda d: make_wheel(d, record=b"\xff\xfe,,\n")),
    ("RECORD empty", lambda d: make_wheel(d, record=b"")),
    ("no RECORD", without_record),
    ("two RECORDs", with_file("other-1.0.dist-info/RECORD")),
    ("no zip", with_bytes(lambda data: b"not a zip" * 100)),
    ("empty", with_bytes(lambda data: b"")),
    ("cut short", with_bytes(lambda data: data[:-40])),
    ("cut in front", with_bytes(lambda data: data[100:])),
    ("flipped byte", with_bytes(lambda data: data[:50] + bytes([data[50] ^ 255]) + data[51:])),
]


@pytest.mark.parametrize("make", [h[1] for h in HARMFUL], ids=[h[0] for h in HARMFUL])
def test_harmful_wheel(make: Callable[[Path], Path], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = make(tmp_path / "in")
    with pytest.raises(ArchiveError) as caught:
        unpack_wheel(path, tmp_path / "a" / "out")
    assert caught.value.exit_code == 15
    assert isinstance(caught.value, QbuildError)
    assert path.name in caught.value.render()
    assert not (tmp_path / "a" / "out").exists()
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "a" / "evil").exists()


def test_missing_wheel(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be opened"):
        unpack_wheel(tmp_path / "gone.whl", tmp_path / "out")


def test_full_folder_is_left_alone(tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("keep")
    with pytest.raises(ArchiveError, match="only unpacked into an empty folder"):
        unpack_wheel(path, tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "keep"
