"""Origins of every kind: good ones give the same repository, bad ones are skipped or refused.

Everything happens on a small repository made here; the network is loopback.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import shutil
import socket
import struct
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qbuild.cli import main
from qbuild.console import Silent
from qbuild.errors import LockError, OriginError, StoreError
from qbuild.held import remove_tree
from qbuild.recipe.lock import GIT_DIR, FilePin, SourcePin, load_lock
from qbuild.source import gitenv
from qbuild.source.fetch import checkout_tree, fetch_commit, fetch_source
from qbuild.source.gitenv import run_git
from support.systems import WINDOWS, end_with_children

pytestmark = pytest.mark.integration

WHO = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "A"), ("EMAIL", "a@example.org"), ("DATE", "1790000000 +0000"))
}
FILES = {
    "CMakeLists.txt": b"project(x)\n",
    "crlf.txt": b"one\r\ntwo\r\n",
    ".gitattributes": b"* text=auto eol=crlf\n",
    "src/main.c": b"int main(void) { return 0; }\n",
    "src/n\xc3\xa4me with blank.txt".encode("latin-1").decode("utf-8"): b"x\n",
    "tool.sh": b"#!/bin/sh\n",
}
NOWHERE = "https://127.0.0.1:9/none/llama.cpp.git"  # the discard port: refused at once


class Ears(Silent):
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warned: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A small upstream and its pin."""

    root: Path
    clone: Path
    pin: SourcePin
    sdist: Path = field(default=Path())


def git(*args: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    result = run_git(args, cwd, env={**WHO, **(env or {})})
    assert result.rc == 0, result.err
    return result.text


def add_link(clone: Path, name: str, target: str) -> None:
    """Put a symbolic link into the index, also where the system can make none."""
    text = clone.parent / "target"
    text.write_bytes(target.encode())
    blob = git("hash-object", "-w", str(text), cwd=clone)
    git("update-index", "--add", "--cacheinfo", f"120000,{blob},{name}", cwd=clone)
    text.unlink()


def remove(path: Path) -> None:
    """Remove one of git's objects, which are read-only: on Windows that keeps them there."""
    path.chmod(0o644)
    path.unlink()


def build_lab(root: Path) -> Lab:
    clone = root / "clone"
    clone.mkdir(parents=True)
    git("init", "-q", ".", cwd=clone)
    (clone / "old.txt").write_bytes(b"first\n")
    git("add", "-A", cwd=clone)
    git("commit", "-qm", "first", cwd=clone)
    (clone / "old.txt").unlink()
    for name, data in FILES.items():
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_bytes(data)
    (clone / "tool.sh").chmod(0o755)
    (clone / ".git" / "info" / "attributes").write_text("* -text\n")
    git("add", "-A", cwd=clone)
    add_link(clone, "link", "src/main.c")
    git("commit", "-qm", "second", cwd=clone)
    git("tag", "-a", "v1", "-m", "annotated", cwd=clone)
    pin = SourcePin(
        name="llama.cpp",
        url=NOWHERE,
        commit=git("rev-parse", "HEAD", cwd=clone),
        tree=git("rev-parse", "HEAD^{tree}", cwd=clone),
        date="2026-09-21",
        version="0",
    )
    sdist = make_sdist(root / "llama_cpp_python-1.0.tar.gz", clone / ".git")
    file = FilePin(
        project="llama-cpp-python",
        version="1.0",
        filename=sdist.name,
        sha256=hashlib.sha256(sdist.read_bytes()).hexdigest(),
        size=sdist.stat().st_size,
    )
    return Lab(root=root, clone=clone, pin=dataclasses.replace(pin, sdist=file), sdist=sdist)


def make_sdist(path: Path, git_dir: Path, inner: str = GIT_DIR) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        tar.add(git_dir, f"llama_cpp_python-1.0/{inner}")
    return path


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return build_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def lab(pristine: Lab, tmp_path: Path) -> Lab:
    """A copy that a test may spoil."""
    shutil.copytree(pristine.root, tmp_path / "lab", symlinks=True)
    root = tmp_path / "lab"
    return dataclasses.replace(
        pristine, root=root, clone=root / "clone", sdist=root / pristine.sdist.name
    )


def fetch(lab: Lab, *origins: object, reporter: Silent | None = None, offline: bool = False) -> str:
    """Fetch and look at everything that came; return the origin that delivered."""
    dest = lab.root / "store" / "repo.git"
    got = fetch_source(
        lab.pin,
        dest,
        origins=[str(o) for o in origins],
        offline=offline,
        reporter=reporter or Silent(),
        fetch_sdist=lambda _pin: lab.sdist,
    )
    assert (got.commit, got.tree) == (lab.pin.commit, lab.pin.tree)
    assert got.bytes > 0
    assert git("rev-list", "--count", "--all", cwd=dest) == "1"  # the commit and no history
    assert git("symbolic-ref", "HEAD", cwd=dest) == "refs/heads/pin"
    git("fsck", "--full", "--strict", cwd=dest)
    assert sorted(p.name for p in dest.parent.iterdir()) == ["repo.git"]  # nothing left behind
    assert not (dest / "hooks").exists()
    return got.origin


# -- good origins -------------------------------------------------------------------------------


def as_clone(lab: Lab) -> object:
    return lab.clone


def as_git_folder(lab: Lab) -> object:
    return lab.clone / ".git"


def as_file_url(lab: Lab) -> object:
    odd = lab.root / "a b%20ü#"
    lab.clone.rename(odd)
    return odd.absolute().as_uri()


def as_odd_path(lab: Lab) -> object:
    quotes = "'q" if WINDOWS else "'q\""
    odd = lab.root / (f"sp ace {quotes} ünï " + "x" * 100) / ("y" * 150)
    odd.parent.mkdir()
    lab.clone.rename(odd)
    return odd


def as_bare(lab: Lab) -> object:
    git("clone", "-q", "--bare", "--no-hardlinks", str(lab.clone), "b.git", cwd=lab.root)
    return lab.root / "b.git"


def as_packed(lab: Lab) -> object:
    git("repack", "-q", "-a", "-d", cwd=lab.clone)
    assert not list((lab.clone / ".git/objects").glob("??/*"))
    return lab.clone


def as_half_packed(lab: Lab) -> object:
    git("repack", "-q", "-a", "-d", cwd=lab.clone)
    (lab.clone / "new").write_text("new")
    git("add", "-A", cwd=lab.clone)
    git("commit", "-qm", "third", cwd=lab.clone)
    return lab.clone


def as_shallow(lab: Lab) -> object:
    url = lab.clone.absolute().as_uri()
    git("clone", "-q", "--depth=1", url, "shallow", cwd=lab.root)
    return lab.root / "shallow"


def as_worktree(lab: Lab) -> object:
    git("worktree", "add", "-q", "../wt", cwd=lab.clone)
    return lab.root / "wt"


def as_sdist(lab: Lab) -> object:
    return lab.sdist


def as_folder_with_sdist(lab: Lab) -> object:
    folder = lab.root / "downloads"
    folder.mkdir()
    shutil.copy(lab.sdist, folder)
    return folder


def as_unpacked_sdist(lab: Lab) -> object:
    folder = lab.root / "un"
    shutil.copytree(lab.clone / ".git", folder / GIT_DIR)
    return folder


def as_plain_tar(lab: Lab) -> object:
    with tarfile.open(lab.root / "x.tar", "w") as tar:
        tar.add(lab.clone / ".git", f"top/{GIT_DIR}")
    return lab.root / "x.tar"


GOOD = [
    as_clone, as_git_folder, as_file_url, as_odd_path, as_bare, as_packed, as_half_packed,
    as_shallow, as_worktree, as_sdist, as_folder_with_sdist, as_unpacked_sdist, as_plain_tar,
]  # fmt: skip


@pytest.mark.parametrize("make", GOOD)
def test_good_origin(make: Callable[[Lab], object], lab: Lab) -> None:
    origin = make(lab)
    ears = Ears()
    assert fetch(lab, origin, reporter=ears) == str(origin)
    assert ears.warned == []


def test_default_order_ends_at_the_sdist(lab: Lab) -> None:
    ears = Ears()
    started = time.monotonic()
    assert fetch(lab, reporter=ears) == "sdist llama_cpp_python-1.0.tar.gz"
    assert time.monotonic() - started < 15
    assert len(ears.warned) == 1
    assert "127.0.0.1 cannot be reached" in ears.warned[0]


def test_offline_asks_local_places_only(lab: Lab) -> None:
    ears = Ears()
    assert fetch(lab, "https://127.0.0.1:9/x", lab.clone, reporter=ears, offline=True)
    assert ears.warned == []


def test_offline_without_any(lab: Lab) -> None:
    with pytest.raises(OriginError, match="--offline: only local places") as caught:
        fetch_source(lab.pin, lab.root / "s" / "r.git", origins=[], offline=True, reporter=Silent())
    assert "llama_cpp_python-1.0.tar.gz" in str(caught.value.where)
    assert not (lab.root / "s" / "r.git").exists()


def test_nothing_of_the_origin_runs(lab: Lab) -> None:
    """Its hooks, filters and configured programs stay untouched; so does every file."""
    trap = lab.root / "trap.sh"
    marker = lab.root / "ran"
    trap.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat\n")
    trap.chmod(0o755)
    git_dir = lab.clone / ".git"
    with (git_dir / "config").open("a") as config:
        config.write(
            f"[core]\n\tfsmonitor = {trap}\n\thooksPath = {lab.root / 'hooks'}\n\tpager = {trap}\n"
            f"[uploadpack]\n\tpackObjectsHook = {trap}\n[alias]\n\trev-parse = !{trap}\n"
            f'[filter "x"]\n\tsmudge = {trap}\n\tclean = {trap}\n'
            f"[include]\n\tpath = {lab.root / 'more.cfg'}\n"
        )
    (lab.root / "more.cfg").write_text(f"[core]\n\tsshCommand = {trap}\n")
    for folder in (git_dir / "hooks", lab.root / "hooks"):
        folder.mkdir(exist_ok=True)
        for hook in ("post-checkout", "reference-transaction", "pre-auto-gc", "post-update"):
            shutil.copy(trap, folder / hook)
    before = {p: p.stat().st_mtime_ns for p in lab.clone.rglob("*")}
    fetch(lab, lab.clone)
    assert not marker.exists()
    assert before == {p: p.stat().st_mtime_ns for p in lab.clone.rglob("*")}


def test_users_git_settings_change_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    home = lab.root / "home"
    (home / ".config/git").mkdir(parents=True)
    (home / ".gitconfig").write_text(
        "[core]\n\tautocrlf = true\n[fetch]\n\tfsckObjects = false\n"
        f'[url "{lab.root}/elsewhere"]\n\tinsteadOf = file://\n[commit]\n\tgpgSign = true\n'
    )
    (home / ".config/git/attributes").write_text("* text eol=crlf\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_INDEX_FILE"):
        monkeypatch.setenv(name, str(lab.root / "wrong"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.autocrlf=true'")
    fetch(lab, lab.clone)
    tree = lab.root / "tree"
    checkout_tree(lab.root / "store" / "repo.git", lab.pin.commit, tree)
    assert (tree / "src/main.c").read_bytes() == FILES["src/main.c"]
    assert os.environ["GIT_DIR"] == str(lab.root / "wrong")


# -- bad origins --------------------------------------------------------------------------------


def loose(lab: Lab, spec: str) -> Path:
    """Return the file of an object, after making sure that it is a loose one."""
    found = git("rev-parse", spec, cwd=lab.clone)
    return lab.clone / ".git" / "objects" / found[:2] / found[2:]


def replace_loose(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def an_object(kind: str, data: bytes) -> bytes:
    return zlib.compress(f"{kind} {len(data)}\0".encode() + data)


def forged_blob(lab: Lab) -> object:
    replace_loose(loose(lab, "HEAD:src/main.c"), an_object("blob", b"int main() { evil(); }\n"))
    return lab.clone


def forged_blob_of_same_size(lab: Lab) -> object:
    evil = FILES["src/main.c"].replace(b"0", b"1")
    replace_loose(loose(lab, "HEAD:src/main.c"), an_object("blob", evil))
    return lab.clone


def forged_tree(lab: Lab) -> object:
    other = git("rev-parse", "HEAD~1^{tree}", cwd=lab.clone)
    data = (lab.clone / ".git/objects" / other[:2] / other[2:]).read_bytes()
    replace_loose(loose(lab, "HEAD^{tree}"), data)
    return lab.clone


def forged_commit(lab: Lab) -> object:
    data = (loose(lab, "HEAD~1")).read_bytes()
    replace_loose(loose(lab, "HEAD"), data)
    return lab.clone


def forged_in_bare(lab: Lab) -> object:
    forged_blob(lab)
    return lab.clone / ".git"


def forged_in_sdist(lab: Lab) -> object:
    forged_blob(lab)
    return make_sdist(lab.root / "bad.tar.gz", lab.clone / ".git")


def cut_loose(lab: Lab) -> object:
    path = loose(lab, "HEAD:src/main.c")
    replace_loose(path, path.read_bytes()[:-8])
    return lab.clone


def garbage_loose(lab: Lab) -> object:
    replace_loose(loose(lab, "HEAD:src/main.c"), b"garbage")
    return lab.clone


def empty_commit_object(lab: Lab) -> object:
    replace_loose(loose(lab, "HEAD"), b"")
    return lab.clone


def the_pack(lab: Lab) -> Path:
    git("repack", "-q", "-a", "-d", cwd=lab.clone)
    (pack,) = (lab.clone / ".git/objects/pack").glob("*.pack")
    for path in pack.parent.iterdir():
        path.chmod(0o644)
    return pack


def forged_packed(lab: Lab) -> object:
    """A pack whose index calls another blob by the right id: each file is sound by itself."""
    good = git("rev-parse", "HEAD:src/main.c", cwd=lab.clone)
    evil = run_git(["hash-object", "-w", "--stdin"], lab.clone, stdin=b"evil\n").text
    rest = git("rev-list", "--objects", "--no-object-names", "--all", cwd=lab.clone).split()
    names = "\n".join([*(name for name in rest if name != good), evil]) + "\n"
    packed = run_git(["pack-objects", "-q", "p"], lab.root, stdin=names.encode(), env={
        "GIT_DIR": str(lab.clone / ".git")})  # fmt: skip
    pack = lab.root / f"p-{packed.text}.pack"
    objects = lab.clone / ".git" / "objects"
    remove_tree(objects)
    (objects / "pack").mkdir(parents=True)
    (objects / "info").mkdir()
    # git 2.47 crashes outside of a repository when it must find out the kind of ids.
    words = ["show-index", "--object-format=sha1"]
    index = run_git(words, lab.root, stdin=pack.with_suffix(".idx").read_bytes())
    entries = []
    for line in index.text.splitlines():
        offset, name, crc = line.split()
        name = good if name == evil else name
        entries.append((bytes.fromhex(name), int(crc.strip("()"), 16), int(offset)))
    entries.sort()
    counts = [sum(1 for e in entries if e[0][0] <= byte) for byte in range(256)]
    data = b"\xfftOc" + struct.pack(">I256I", 2, *counts)
    data += b"".join(e[0] for e in entries)
    data += b"".join(struct.pack(">I", e[1]) for e in entries)
    data += b"".join(struct.pack(">I", e[2]) for e in entries)
    data += pack.read_bytes()[-20:]
    data += hashlib.sha1(data).digest()
    shutil.copy(pack, objects / "pack" / pack.name)
    (objects / "pack" / pack.name).with_suffix(".idx").write_bytes(data)
    # git itself is fooled: it shows the evil blob under the right id
    assert run_git(["cat-file", "blob", good], lab.clone).out == b"evil\n"
    return lab.clone


def cut_pack(lab: Lab) -> object:
    pack = the_pack(lab)
    pack.write_bytes(pack.read_bytes()[:-100])
    return lab.clone


def flipped_pack(lab: Lab) -> object:
    pack = the_pack(lab)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    return lab.clone


def flipped_pack_with_right_checksum(lab: Lab) -> object:
    """One bit of an object that the pin needs; which one lies in the middle is git's choice."""
    pack = the_pack(lab)
    name = git("rev-parse", "HEAD:src/main.c", cwd=lab.clone)
    rows = git("verify-pack", "-v", str(pack.with_suffix(".idx")), cwd=lab.clone).splitlines()
    size, offset = next(map(int, row.split()[3:5]) for row in rows if row.startswith(name))
    data = bytearray(pack.read_bytes())[:-20]
    data[offset + size // 2] ^= 1
    data += hashlib.sha1(data).digest()
    pack.write_bytes(data)
    index = pack.with_suffix(".idx")
    body = bytearray(index.read_bytes()[:-40]) + data[-20:]
    index.write_bytes(body + hashlib.sha1(body).digest())
    return lab.clone


def empty_pack(lab: Lab) -> object:
    the_pack(lab).write_bytes(b"")
    return lab.clone


def tar_with(lab: Lab, change: Callable[[tarfile.TarInfo], tarfile.TarInfo]) -> object:
    member = change(tarfile.TarInfo(f"top/{GIT_DIR}/objects/ab/{'c' * 38}"))
    path = lab.root / "bad.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(lab.clone / ".git", f"top/{GIT_DIR}")
        tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def named(member: tarfile.TarInfo, name: str) -> tarfile.TarInfo:
    member.name = name
    return member


def tar_climbs(lab: Lab) -> object:
    return tar_with(lab, lambda m: named(m, "top/../../../evil"))


def tar_absolute(lab: Lab) -> object:
    return tar_with(lab, lambda m: named(m, "/tmp/evil"))


def _typed(kind: bytes) -> Callable[[tarfile.TarInfo], tarfile.TarInfo]:
    def change(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.type = kind
        member.linkname = "/etc/passwd"
        return member

    return change


def tar_symlink(lab: Lab) -> object:
    return tar_with(lab, _typed(tarfile.SYMTYPE))


def tar_hardlink(lab: Lab) -> object:
    return tar_with(lab, _typed(tarfile.LNKTYPE))


def tar_device(lab: Lab) -> object:
    return tar_with(lab, _typed(tarfile.CHRTYPE))


def tar_pipe(lab: Lab) -> object:
    return tar_with(lab, _typed(tarfile.FIFOTYPE))


REFUSED: list[tuple[Callable[[Lab], object], str]] = [
    (forged_blob, "has other content"),
    (forged_blob_of_same_size, "has other content"),
    (forged_tree, ""),
    (forged_commit, ""),
    (forged_in_bare, "has other content"),
    (forged_in_sdist, "has other content"),
    (cut_loose, ""),
    (garbage_loose, ""),
    (empty_commit_object, ""),
    (forged_packed, "did not receive expected object"),
    (cut_pack, "damaged or cut short"),
    (flipped_pack, "damaged or cut short"),
    (flipped_pack_with_right_checksum, ""),
    (empty_pack, "damaged or cut short"),
    (tar_climbs, "climbs out of the archive"),
    (tar_absolute, "climbs out of the archive"),
    (tar_symlink, "is a link or a special file"),
    (tar_hardlink, "is a link or a special file"),
    (tar_device, "is a link or a special file"),
    (tar_pipe, "is a link or a special file"),
]


@pytest.mark.parametrize(("make", "part"), REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_lying_origin_ends_the_run_and_is_named(
    make: Callable[[Lab], object], part: str, lab: Lab, pristine: Lab
) -> None:
    origin = make(lab)
    with pytest.raises(OriginError) as caught:
        fetch(lab, origin, pristine.clone)
    assert caught.value.where == str(origin)
    assert "this origin is refused" in caught.value.what
    assert part in caught.value.what
    assert caught.value.exit_code == 5
    assert list((lab.root / "store").iterdir()) == []


@pytest.mark.parametrize("make", [forged_blob_of_same_size, forged_packed])
def test_a_plain_clone_believes_the_forgery(make: Callable[[Lab], object], lab: Lab) -> None:
    """Why origins are put into quarantine: `git clone PATH` copies objects unread."""
    make(lab)
    git("clone", "-q", "--no-hardlinks", str(lab.clone), "believer", cwd=lab.root)
    assert git("rev-parse", "HEAD^{tree}", cwd=lab.root / "believer") == lab.pin.tree
    assert (lab.root / "believer/src/main.c").read_bytes() != FILES["src/main.c"]


def missing(lab: Lab) -> object:
    return lab.root / "nothing here"


def a_text_file(lab: Lab) -> object:
    return lab.clone / "tool.sh"


def an_empty_file(lab: Lab) -> object:
    (lab.root / "e.tar.gz").write_bytes(b"")
    return lab.root / "e.tar.gz"


def an_empty_folder(lab: Lab) -> object:
    (lab.root / "empty").mkdir()
    return lab.root / "empty"


def a_git_folder_of_nothing(lab: Lab) -> object:
    (lab.root / "e" / ".git").mkdir(parents=True)
    return lab.root / "e"


def an_empty_repository(lab: Lab) -> object:
    git("init", "-q", "fresh", cwd=lab.root)
    return lab.root / "fresh"


def a_pointer_to_nowhere(lab: Lab) -> object:
    (lab.root / "p").mkdir()
    (lab.root / "p" / ".git").write_text("gitdir: ../gone\n")
    return lab.root / "p"


def another_repository(lab: Lab) -> object:
    other = lab.root / "other"
    other.mkdir()
    git("init", "-q", ".", cwd=other)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=other)
    return other


def a_repository_before_the_commit(lab: Lab) -> object:
    git("clone", "-q", "--bare", "--no-hardlinks", str(lab.clone), "b.git", cwd=lab.root)
    bare = lab.root / "b.git"
    git("update-ref", "HEAD", "HEAD~1", cwd=bare)
    git("tag", "-d", "v1", cwd=bare)
    git("-c", "gc.pruneExpire=now", "repack", "-q", "-a", "-d", cwd=bare)
    git("prune", "--expire=now", cwd=bare)
    return bare


def a_partial_clone(lab: Lab) -> object:
    remove(loose(lab, "HEAD:src/main.c"))
    return lab.clone


def a_clone_without_a_tree(lab: Lab) -> object:
    remove(loose(lab, "HEAD:src"))
    return lab.clone


def a_borrower(lab: Lab) -> object:
    git("clone", "-q", "--shared", str(lab.clone), "borrow", cwd=lab.root)
    return lab.root / "borrow"


def linked_objects(lab: Lab) -> object:
    path = loose(lab, "HEAD:src/main.c")
    if WINDOWS:
        pytest.skip("Windows makes no symbolic links without privilege")
    moved = path.rename(lab.root / "blob")
    path.symlink_to(moved)
    return lab.clone


def a_pipe_for_an_object(lab: Lab) -> object:
    path = loose(lab, "HEAD:src/main.c")
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no pipes that are files")
    path.unlink()
    os.mkfifo(path)
    return lab.clone


def damaged_shallow(lab: Lab) -> object:
    (lab.clone / ".git" / "shallow").write_text("../../etc/passwd\n")
    return lab.clone


def a_pack_without_index(lab: Lab) -> object:
    the_pack(lab).with_suffix(".idx").unlink()
    return lab.clone


def sdist_without_repository(lab: Lab) -> object:
    return make_sdist(lab.root / "n.tar.gz", lab.clone / ".git", "elsewhere")


def sdist_cut_short(lab: Lab) -> object:
    path = lab.root / "cut.tar.gz"
    path.write_bytes(lab.sdist.read_bytes()[:-2000])
    return path


def tarball_of_garbage(lab: Lab) -> object:
    path = lab.root / "g.tar.gz"
    path.write_bytes(os.urandom(4000))
    return path


SKIPPED: list[tuple[Callable[[Lab], object], str]] = [
    (missing, "no such file or folder"),
    (a_text_file, "no tar archive"),
    (an_empty_file, "no tar archive"),
    (an_empty_folder, "neither a git repository nor an sdist"),
    (a_git_folder_of_nothing, "neither a git repository nor an sdist"),
    (an_empty_repository, "does not hold commit"),
    (a_pointer_to_nowhere, "neither a git repository nor an sdist"),
    (another_repository, "does not hold commit"),
    (a_repository_before_the_commit, "does not hold commit"),
    (a_partial_clone, "1 objects of commit"),
    (a_clone_without_a_tree, "objects of commit"),
    (a_borrower, "borrows objects from"),
    (linked_objects, "is a link or a special file"),
    (a_pipe_for_an_object, "is a link or a special file"),
    (damaged_shallow, "list of shallow commits is damaged"),
    (a_pack_without_index, "does not hold commit"),
    (sdist_without_repository, "carries no git repository"),
    (sdist_cut_short, "cut short"),
    (tarball_of_garbage, "no tar archive"),
    (lambda _: "https://127.0.0.1:9/x.git", "127.0.0.1 cannot be reached"),
    (lambda _: "https://host.invalid/x.git", "host.invalid"),
    (lambda _: "https://127.0.0.1:9/x.tar.gz", "it is a file, not a repository"),
    (lambda _: "https:///x.git", "names no host"),
    (lambda _: "https://127.0.0.1:99999/x.git", "port is wrong"),
    (lambda _: "https://user:secret@127.0.0.1:9/x.git", "cannot be reached"),
    (lambda _: "ext::sh -c 'touch ran'", "no such file or folder"),
    (lambda _: "--upload-pack=touch ran", "no such file or folder"),
    (lambda _: "gopher://127.0.0.1/x.git", ""),
]


@pytest.mark.parametrize(("make", "part"), SKIPPED)
def test_useless_origin_is_skipped_with_its_reason(
    make: Callable[[Lab], object], part: str, lab: Lab, pristine: Lab
) -> None:
    origin = make(lab)
    ears = Ears()
    assert fetch(lab, origin, pristine.clone, reporter=ears) == str(pristine.clone)
    assert len(ears.warned) == 1
    assert part in ears.warned[0]
    assert "secret" not in ears.warned[0]


def test_when_nothing_delivers_every_reason_is_told(lab: Lab) -> None:
    pin = dataclasses.replace(lab.pin, sdist=None)
    with pytest.raises(OriginError) as caught:
        fetch_source(
            pin, lab.root / "s" / "r", origins=[str(lab.root / "x")], offline=False,
            reporter=Silent(),
        )  # fmt: skip
    assert "no origin delivered llama.cpp" in caught.value.what
    assert "no such file" in str(caught.value.where)
    assert "127.0.0.1 cannot be reached" in str(caught.value.where)
    assert not (lab.root / "s" / "r").exists()


def test_wrong_tree_in_the_lockfile_is_the_lockfiles_fault(lab: Lab) -> None:
    wrong = dataclasses.replace(lab, pin=dataclasses.replace(lab.pin, tree="0" * 40))
    with pytest.raises(LockError, match="does not belong to commit"):
        fetch(wrong, lab.clone)


def test_pinned_sdist_that_lies_is_refused(lab: Lab) -> None:
    forged_blob(lab)
    make_sdist(lab.sdist, lab.clone / ".git")
    with pytest.raises(OriginError, match="this origin is refused") as caught:
        fetch(lab)
    assert caught.value.where == "sdist llama_cpp_python-1.0.tar.gz"


def test_store_that_cannot_be_written(lab: Lab) -> None:
    (lab.root / "store").write_text("a file")
    with pytest.raises((StoreError, OriginError)):
        fetch(lab, lab.clone)


def test_no_git(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(lab.root))
    with pytest.raises(gitenv.ToolchainError, match="git was not found"):
        fetch(lab, lab.clone)


# -- over the network ---------------------------------------------------------------------------


@contextlib.contextmanager
def daemon(base: Path) -> Iterator[str]:
    """Serve repositories below ``base`` over git's own protocol on loopback."""
    import subprocess

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["git", "daemon", "--export-all", f"--base-path={base}", "--listen=127.0.0.1",
         f"--port={port}", "--reuseaddr", "--enable=upload-pack"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, **gitenv.git_env(base)}, start_new_session=True,
    )  # fmt: skip
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
    finally:
        end_with_children(process)


def serve(lab: Lab) -> None:
    for key in ("allowAnySHA1InWant", "allowFilter"):
        git("config", f"uploadpack.{key}", "true", cwd=lab.clone)


def test_url(lab: Lab) -> None:
    serve(lab)
    with daemon(lab.root) as url:
        assert fetch(lab, f"{url}/clone") == f"{url}/clone"


def test_url_without_the_commit(lab: Lab, pristine: Lab) -> None:
    another_repository(lab)
    ears = Ears()
    with daemon(lab.root) as url:
        fetch(lab, f"{url}/other", pristine.clone, reporter=ears)
    assert "does not hold commit" in ears.warned[0]


def test_url_without_the_repository(
    lab: Lab, pristine: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbuild.source.remote._pause", lambda _: None)
    ears = Ears()
    with daemon(lab.root) as url:
        fetch(lab, f"{url}/none", pristine.clone, reporter=ears)
    assert "cannot deliver" in ears.warned[-1]


@pytest.mark.parametrize("make", [forged_blob, forged_tree, forged_packed])
def test_url_that_lies(
    make: Callable[[Lab], object], lab: Lab, pristine: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qbuild.source.remote._pause", lambda _: None)
    make(lab)
    serve(lab)
    with daemon(lab.root) as url, pytest.raises(OriginError, match="refused") as caught:
        fetch(lab, f"{url}/clone", pristine.clone)
    assert caught.value.where == f"{url}/clone"


def test_silent_server_is_left_in_time(
    lab: Lab, pristine: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*args: object, **kwargs: object) -> None:
        time.sleep(20)
        raise OSError

    monkeypatch.setattr("qbuild.source.remote.REACH_TIMEOUT_S", 0.5)
    monkeypatch.setattr(socket, "create_connection", hang)
    ears = Ears()
    started = time.monotonic()
    fetch(lab, "https://127.0.0.1/x.git", pristine.clone, reporter=ears)
    assert time.monotonic() - started < 15
    assert "did not answer within" in ears.warned[0]


# -- refs, trees, the verb ----------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["v1", "main", "HEAD", "refs/heads/main", "{commit}", "{short}"])
@pytest.mark.parametrize("packed", [False, True])
def test_fetch_commit_by_ref(ref: str, packed: bool, lab: Lab) -> None:
    if packed:
        git("pack-refs", "--all", cwd=lab.clone)
    ref = ref.format(commit=lab.pin.commit, short=lab.pin.commit[:10])
    got = fetch_commit(
        [str(lab.clone)], ref, lab.root / "s" / "r", git_dir=GIT_DIR, reporter=Silent()
    )
    assert (got.commit, got.tree) == (lab.pin.commit, lab.pin.tree)


def test_fetch_commit_by_ref_from_a_url(lab: Lab) -> None:
    serve(lab)
    with daemon(lab.root) as url:
        for number, ref in enumerate(("v1", "main")):
            dest = lab.root / "s" / str(number)
            got = fetch_commit([f"{url}/clone"], ref, dest, git_dir=GIT_DIR, reporter=Silent())
            assert got.commit == lab.pin.commit


def test_fetch_commit_with_history(lab: Lab) -> None:
    first = git("rev-parse", "HEAD~1", cwd=lab.clone)
    dest = lab.root / "s" / "r"
    fetch_commit(
        [str(lab.clone)], "v1", dest, git_dir=GIT_DIR, reporter=Silent(), history=True,
        also=[first, "0" * 40],
    )  # fmt: skip
    assert git("rev-list", "refs/heads/pin", cwd=dest).split() == [lab.pin.commit, first]
    assert git("rev-parse", "refs/also/0", cwd=dest) == first


@pytest.mark.parametrize("ref", ["nope", "../../etc/passwd", "-x", "a..b", "", "f" * 40])
def test_fetch_commit_of_a_bad_ref(ref: str, lab: Lab) -> None:
    with pytest.raises(OriginError, match="no origin delivered"):
        fetch_commit([str(lab.clone)], ref, lab.root / "r", git_dir=GIT_DIR, reporter=Silent())


def test_checkout_gives_the_blobs_bytes(lab: Lab) -> None:
    fetch(lab, lab.clone)
    repo, tree = lab.root / "store" / "repo.git", lab.root / "out" / "tree ü"
    before = sorted((p, p.stat().st_mtime_ns) for p in repo.rglob("*"))
    checkout_tree(repo, lab.pin.commit, tree)
    found = {p.relative_to(tree).as_posix(): p for p in tree.rglob("*") if p.is_file()}
    link = found.pop("link")
    assert {name: p.read_bytes() for name, p in found.items()} == FILES
    # On Windows, a file that names its target.
    assert (link.read_text() if WINDOWS else os.readlink(link)) == "src/main.c"
    assert WINDOWS or (tree / "tool.sh").stat().st_mode & 0o100
    assert not (tree / "crlf.txt").stat().st_mode & 0o100
    assert [p.name for p in tree.parent.iterdir()] == ["tree ü"]
    assert sorted((p, p.stat().st_mtime_ns) for p in repo.rglob("*")) == before


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x", "src/../../x", "..", "C:/x"])
def test_checkout_refuses_links_out_of_the_tree(target: str, lab: Lab) -> None:
    add_link(lab.clone, "evil", target)
    git("commit", "-qm", "evil", cwd=lab.clone)
    commit = git("rev-parse", "HEAD", cwd=lab.clone)
    with pytest.raises(OriginError, match="leads out of the source tree"):
        checkout_tree(lab.clone / ".git", commit, lab.root / "tree")


def test_checkout_of_nothing(lab: Lab) -> None:
    with pytest.raises(OriginError, match="cannot be read"):
        checkout_tree(lab.clone / ".git", "0" * 40, lab.root / "tree")


def test_checkout_into_a_full_folder(lab: Lab) -> None:
    with pytest.raises(StoreError, match="only written into an empty folder"):
        checkout_tree(lab.clone / ".git", "HEAD", lab.clone)


def lockfile(lab: Lab) -> Path:
    path = lab.root / "qbuild.lock"
    path.write_text(
        "# kept\nschema = 1\n\n[[source]]\n"
        f'name = "llama.cpp"\nurl = "{NOWHERE}"\ncommit = "{"1" * 40}"\ntree = "{"2" * 40}"\n'
        'date = "2020-01-01"\nversion = "0"\n'
    )
    return path


def test_lock_pin_moves_the_pin(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lockfile(lab)
    (lab.root / "no patches").mkdir()
    words = ["lock", "--lockfile", str(path), "--patches", str(lab.root / "no patches"), "-q"]
    moved = [*words, "--pin", "v1", "--origin", str(lab.sdist)]
    assert main.run([*moved, "--origin", str(lab.clone), "--dry-run"]) == 0
    assert "not written" in capsys.readouterr().out
    assert load_lock(path).sources[0].commit == "1" * 40
    assert main.run([*words, "--pin", "v1", "--origin", str(lab.clone)]) == 0
    out = capsys.readouterr().out
    assert f"llama.cpp commit: {'1' * 40} -> {lab.pin.commit}" in out
    pin = load_lock(path).sources[0]
    assert (pin.commit, pin.tree, pin.date) == (lab.pin.commit, lab.pin.tree, "2026-09-21")
    assert path.read_text().startswith("# kept\n")
    assert main.run([*words, "--pin", "v1", "--origin", str(lab.clone)]) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_lock_pin_from_an_sdist_pins_the_sdist(lab: Lab) -> None:
    path = lockfile(lab)
    (lab.root / "none").mkdir()
    words = ["lock", "--lockfile", str(path), "--patches", str(lab.root / "none"), "-q"]
    assert main.run([*words, "--pin", lab.pin.commit, "--origin", str(lab.sdist)]) == 0
    assert load_lock(path).sources[0].sdist == lab.pin.sdist


def test_lock_pin_of_nothing(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    path = lockfile(lab)
    before = path.read_bytes()
    words = ["lock", "--lockfile", str(path), "--pin", "nope", "--origin", str(lab.clone), "-q"]
    assert main.run(words) == 5
    assert "no branch or tag `nope`" in capsys.readouterr().err
    assert path.read_bytes() == before
