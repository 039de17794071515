#!/usr/bin/env python3
"""Kill, fill, rot, twist and race real builds of the tests' small project, with a seed.

    python ci/soak.py --minutes 10                 a share of everything
    python ci/soak.py --kills 500 --paths 200 --disks 100 --clocks 20 --races 20
    python ci/soak.py --only paths --paths 200 --seed 3
    python ci/soak.py --state build/soak.json --minutes 15      goes on where the last call ended

Every end must be the right bytes, or a refusal that names its reason: an exit code of qbuild's own,
`where` or `to do` beside it, no traceback, nothing left that the next run stumbles over. What is
done: kills by every signal at random moments of a build or of ``qbuild verify`` (the verdict must
never come out of a signal), store paths with odd characters, disks that fill up at random sizes,
clocks that jump, bytes that rot in the store with size and time kept, two to eight runs at once.
The exit status is 1 when anything ended otherwise; the lines say with which seed and number: each
step draws its own dice from both, so that it can be done again alone (``--only kills --first 17
--kills 18``), as far as a signal's moment can.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from qbuild import host, resources  # noqa: E402
from qbuild.console import Plain  # noqa: E402
from qbuild.held import remove_tree  # noqa: E402
from qbuild.recipe.lock import load_lock  # noqa: E402
from qbuild.steps.pinned import fetch_wheel  # noqa: E402
from qbuild.store import Store  # noqa: E402
from support import small_project  # noqa: E402 - the tests' folder is no package

SIGNALS = [
    signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
    signal.SIGALRM, signal.SIGPIPE, signal.SIGABRT, signal.SIGSEGV,
]  # fmt: skip
STOPPED = 130
"""Exit code of a run that a signal asked to stop."""

STEPS: dict[str, tuple[int, str]] = {
    "kills": (500, "kill"), "paths": (200, "path"), "disks": (100, "disk"),
    "clocks": (60, "clock"), "races": (20, "race"),
}  # fmt: skip
"""What is done: how often, and the method that does it."""

RESULTS = ("source", "patch", "compile", "stage", "bundle", "work")


class Soak:
    """A folder with the project, a store that is lent the tools, and the right answer."""

    def __init__(self, folder: Path, toolchain: str) -> None:
        self.folder, self.dice = folder, random.Random()
        user = Store(host.user_folder("cache") or folder / "cache")
        lock = load_lock(resources.lockfile())
        self.wheels = [
            fetch_wheel(lock.wheel(project, host.platform_key()), user, Plain(), offline=False).path
            for project in ("cmake", "ninja", "ziglang")
        ]
        os.environ.setdefault("QBUILD_TEST_ZIG_CACHE", str(user.root / "cache" / "zig"))
        self.project = small_project.make(
            folder / "project", resources.lockfile(), toolchain=toolchain
        )
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.store = self.lend(folder / "store")
        started = time.monotonic()
        done = self.run(self.store, folder / "right")
        if done.returncode:
            raise SystemExit(f"the undisturbed build fails: {done.stderr}")
        self.seconds = time.monotonic() - started
        self.right = folder / "right" / self.project.zip_name
        self.wanted = digest(self.right)
        print(f"undisturbed: {self.seconds:.1f} s, {self.wanted[:12]}", flush=True)

    def lend(self, root: Path) -> Path:
        """Return a new store that has the wheels."""
        return small_project.lend_tools(root, self.wheels)

    def command(self, store: Path, dist: Path) -> list[str]:
        """Return the command line of a build."""
        return self.project.command(store, dist)

    def run(self, store: Path, dist: Path) -> subprocess.CompletedProcess[str]:
        """Build and return how it went."""
        return subprocess.run(
            self.command(store, dist), capture_output=True, text=True, errors="replace",
            timeout=600, check=False,
        )  # fmt: skip

    def judge(self, what: str, status: int, said: str, zip_path: Path) -> None:
        """Count an end; a wrong one is a fault."""
        right = zip_path.exists() and digest(zip_path) == self.wanted
        refused = 2 <= status <= 18 and ("where:" in said or "to do:" in said)
        stopped = status == STOPPED or status < 0
        name = "right bytes" if status == 0 and right else f"exit {status}"
        self.counts[f"{what.split()[0]}: {name}"] += 1
        wrong = zip_path.exists() and not right
        if wrong or traceback(status, said) or "unexpected" in said or not (
            (status == 0 and right) or refused or stopped
        ):  # fmt: skip
            self.faults.append(f"{what}: exit {status}, {said.strip()[:300]}")
            print(f"  FAULT {self.faults[-1]}", flush=True)

    def must_end_right(self, what: str, store: Path) -> None:
        """Build once more, undisturbed: it must give the right bytes."""
        dist = self.folder / "after"
        remove_tree(dist)
        done = self.run(store, dist)
        path = dist / self.project.zip_name
        if done.returncode or not path.exists() or digest(path) != self.wanted:
            self.faults.append(f"{what}: the next run: {done.returncode} {done.stderr[:300]}")
            print(f"  FAULT {self.faults[-1]}", flush=True)
        self.counts["next run: right bytes"] += not done.returncode

    # -- what is done to it -----------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Send a signal at a random moment of a build, or (every third time) of a verify."""
        verify = number % 3 == 2
        dist = self.folder / "killed"
        remove_tree(dist)
        for kind in self.dice.sample(RESULTS, self.dice.randrange(len(RESULTS))):
            remove_tree(self.store / kind)
        command = self.command(self.store, dist)
        if verify:
            command = [sys.executable, "-m", "qbuild", "verify", str(self.right)]
        sent = self.dice.choice(SIGNALS)
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
            # What runs in the background inherits an ignored SIGINT; a terminal's child does not.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )  # fmt: skip
        time.sleep(self.dice.uniform(0.0, 0.6 * self.seconds if verify else 1.1 * self.seconds))
        with contextlib.suppress(ProcessLookupError):
            # At a terminal the whole group hears it, from `kill` only the program.
            (os.killpg if self.dice.random() < 0.4 else os.kill)(child.pid, sent)
        said, _ = child.communicate(timeout=600)
        what = f"kill{'-verify' if verify else ''} {number} {sent.name}"
        if not verify:
            self.judge(what, child.returncode, said, dist / self.project.zip_name)
        else:
            status = child.returncode
            self.counts[f"kill-verify: exit {status}"] += 1
            accepted = status == 0 and "accepted" in said
            if not (accepted or status == STOPPED or status < 0) or traceback(status, said):
                self.faults.append(f"{what}: exit {status}, {said.strip()[-300:]}")
                print(f"  FAULT {self.faults[-1]}", flush=True)
        if number % 10 == 9:
            self.must_end_right(what, self.store)

    def path(self, number: int) -> None:
        """Build in a store whose path has odd characters."""
        name = odd_name(self.dice, number)
        root = Path(os.fsdecode(os.fsencode(self.folder / "odd") + b"/" + name))
        dist = self.folder / "odd-dist"
        remove_tree(dist)
        try:
            store = self.lend(root / "store")
        except OSError:
            self.counts["path: the file system refuses it"] += 1
            return
        done = self.run(store, dist)
        self.judge(f"path {number} {name!r:.80}", done.returncode, done.stderr,
                   dist / self.project.zip_name)  # fmt: skip
        fetched = [kind for kind in ("source", "patch", "compile") if (store / kind).exists()]
        if done.returncode and fetched:
            self.faults.append(f"path {number} {name!r:.80}: refused after {fetched}")
            print(f"  FAULT {self.faults[-1]}", flush=True)
        remove_tree(self.folder / "odd")

    def disk(self, number: int) -> None:
        """Build on a disk of random size."""
        if self.dice.random() < 0.5:
            self._limited(number)
            return
        mount, dist = self.folder / "tiny", self.folder / "tiny-dist"
        mount.mkdir(exist_ok=True)
        remove_tree(dist)
        size = self.dice.randrange(4, 3000)
        where = self.dice.choice(("store", "dist"))
        store = mount / "store" if where == "store" else self.store
        out = dist if where == "store" else mount / "dist"
        if where == "dist":
            size //= 100
        lend = f"mkdir -p {mount}/store && cp -a {self.folder}/lent/. {mount}/store/; "
        if not (self.folder / "lent").exists():
            self.lend(self.folder / "lent")
        script = (
            f"mount -t tmpfs -o size={size}k none {mount} && "
            + (lend if where == "store" else "")
            + shlex.join(self.command(store, out))
            + f"; code=$?; cp {out}/*.zip {self.folder}/tiny.zip 2>/dev/null; exit $code"
        )
        (self.folder / "tiny.zip").unlink(missing_ok=True)
        done = subprocess.run(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
            capture_output=True, text=True, errors="replace", timeout=600, check=False,
        )  # fmt: skip
        found = self.folder / "tiny.zip"
        self.judge(f"disk {number} {where} {size}k", done.returncode, done.stderr, found)

    def _limited(self, number: int) -> None:
        """A file that may not grow beyond a size fails as on a full disk, wherever it lies."""
        dist, size = self.folder / "limited", self.dice.randrange(0, 40_000)
        remove_tree(dist)
        for kind in self.dice.sample(RESULTS, self.dice.randrange(len(RESULTS))):
            remove_tree(self.store / kind)
        script = f"ulimit -f {max(1, size // 512)}; trap '' XFSZ; exec " + shlex.join(
            self.command(self.store, dist)
        )
        done = subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, errors="replace", timeout=600,
            check=False,
        )  # fmt: skip
        self.judge(f"disk {number} files of {size} bytes", done.returncode, done.stderr,
                   dist / self.project.zip_name)  # fmt: skip
        self.must_end_right(f"disk {number}", self.store)

    def clock(self, number: int) -> None:
        """Set the times of everything in the store to another day, then rot a byte or not."""
        jump = self.dice.choice((-20, -1, 1, 30)) * 365 * 86400 * 10**9
        rot = self.dice.random() < 0.5
        files = [
            path
            for kind in RESULTS
            for path in (self.store / kind).rglob("*")
            if path.is_file() and not path.is_symlink() and path.name != "entry.json"
        ]
        victim = self.dice.choice(files) if files and rot else None
        for path in files:
            info = path.stat()
            if path == victim and info.st_size:
                path.chmod(0o644)
                data = bytearray(path.read_bytes())
                data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)
                path.write_bytes(data)
                path.chmod(info.st_mode)
                os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
            elif not rot:
                moved = max(0, info.st_mtime_ns + jump)
                os.utime(path, ns=(moved, moved))
        for kind in ("bundle", "stage")[: self.dice.randrange(3)]:
            remove_tree(self.store / kind)
        dist = self.folder / "clock"
        remove_tree(dist)
        done = self.run(self.store, dist)
        kind = "rot" if rot else "clock"
        self.judge(f"{kind} {number} {victim and victim.name}", done.returncode, done.stderr,
                   dist / self.project.zip_name)  # fmt: skip

    def race(self, number: int) -> None:
        """Run two to eight builds at once, one of them killed now and then."""
        for kind in RESULTS:
            remove_tree(self.store / kind)
        count = self.dice.randrange(2, 9)
        one_dist = self.dice.random() < 0.3
        dists = [self.folder / f"race-{0 if one_dist else i}" for i in range(count)]
        for dist in dists:
            remove_tree(dist)
        children = [
            subprocess.Popen(
                self.command(self.store, dist), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, errors="replace",
            )
            for dist in dists
        ]  # fmt: skip
        if self.dice.random() < 0.5:
            time.sleep(self.dice.uniform(0, self.seconds))
            children[0].send_signal(self.dice.choice(SIGNALS))
        for child, dist in zip(children, dists, strict=True):
            _, said = child.communicate(timeout=900)
            self.judge(f"race {number} of {count}", child.returncode, said,
                       dist / self.project.zip_name)  # fmt: skip
        self.must_end_right(f"race {number}", self.store)


def traceback(status: int, said: str) -> bool:
    """Tell whether a run showed its inside.

    The interpreter shows its own when a signal ends it before it has begun with qbuild.
    """
    return "Traceback" in said and (status >= 0 or "toolchain/qbuild" in said)


def digest(path: Path) -> str:
    """Return a file's sha256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def odd_name(dice: random.Random, number: int) -> bytes:
    """Return a folder's name that a person, a script or an attacker could choose."""
    odd = "!\"#$%&'()*+,-:;<=>?@[]\\^_`{|}~ \t\n\u00e9\u4e2d\U0001f600\u202e"
    fixed = ["a$HOME", "${x}", "$(x)", "[a]", "a;b", "-x", "~", "%d", "@x@", "a" * 255, "*b",
             "/".join(["b" * 200] * 3), "/".join(["c" * 200] * 15)]  # fmt: skip
    if number < len(odd):
        return f"a{odd[number]}b".encode()
    if number - len(odd) < len(fixed):
        return fixed[number - len(odd)].encode()
    if dice.random() < 0.05:
        return b"bad\xff\xfe" + bytes([dice.randrange(128, 256)])
    return "".join(
        dice.choice(odd) if dice.random() < 0.3 else dice.choice("abcXYZ019")
        for _ in range(dice.randrange(1, 40))
    ).encode()


def main() -> int:
    """Run what was asked for and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="stop after so long, whatever is left")
    parser.add_argument("--only", help="kills, paths, disks, clocks or races")
    for name, (count, _) in STEPS.items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="leave out those before")
    parser.add_argument("--toolchain", choices=("zig", "gcc"), default="zig", help="what compiles")
    parser.add_argument("--state", type=Path, metavar="FILE", help="what was done, counts, faults")
    args = parser.parse_args()
    state: dict[str, Any] = {"seed": args.seed, "done": [], "counts": {}, "faults": []}
    if args.state and args.state.exists():
        state = json.loads(args.state.read_text())
    todo = [
        (name, number)
        for name in STEPS
        if args.only in (None, name)
        for number in range(args.first, getattr(args, name))
        if [name, number] not in state["done"]
    ]
    # A short run is a share of everything, in an order that the seed gives.
    random.Random(state["seed"]).shuffle(todo)
    end = time.monotonic() + 60 * (args.minutes or 1e6)
    folder = Path(tempfile.mkdtemp(prefix="qbuild-soak-"))
    # What killed builds leave in the folder for temporary files goes away with this one.
    (folder / "tmp").mkdir()
    os.environ["TMPDIR"] = str(folder / "tmp")
    try:
        soak = Soak(folder, args.toolchain)
        soak.counts.update(state["counts"])
        soak.faults += state["faults"]
        for left, (name, number) in zip(range(len(todo), 0, -1), todo, strict=True):
            if time.monotonic() > end:
                print(f"{left} of {len(todo)} left out: the time is over")
                break
            soak.dice = random.Random(f"{state['seed']} {name} {number}")
            getattr(soak, STEPS[name][1])(number)
            state |= {"done": [*state["done"], [name, number]], "faults": soak.faults}
            state["counts"] = dict(sorted(soak.counts.items()))
            if args.state:
                args.state.parent.mkdir(parents=True, exist_ok=True)
                args.state.write_text(json.dumps(state, indent=1) + "\n")
        for what, count in state["counts"].items():
            print(f"{count:>6}  {what}")
        steps = Counter(name for name, _ in state["done"])
        print(", ".join(f"{count} {name}" for name, count in sorted(steps.items())))
        print(f"{len(soak.faults)} faults (seed {state['seed']})")
        return 1 if soak.faults else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
