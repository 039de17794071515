"""What a warm object cache on Redis saves a second machine: one ratio, measured in one run.

    python benchmarks/remote_cache.py [RECIPE]

Two new folders get the pinned inputs, zig's C runtime and npm's web UI (no object cache holds
these; not part of either side), no object and no other result. The first build fills the cache,
the second one uses it; a third one loses its Redis in the middle. Needs redis-server (ci/apt.txt)
and the inputs in the user's store.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import platformdirs

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from qbuild.held import remove_tree
from qbuild.store import link_tree
from support import services

USER = Path(platformdirs.user_cache_dir("qbuild", appauthor=False))


def build(recipe: str, root: Path, url: str) -> tuple[float, str]:
    """Return seconds and the zip's sha256 of a build in a new folder."""
    for kind in ("wheel", "source", "npm", "web-ui"):
        for entry in (USER / kind).iterdir():
            link_tree(entry, root / kind / entry.name)
    shutil.copytree(USER / "cache" / "zig", root / "cache" / "zig", symlinks=True)
    command = [sys.executable, "-m", "qbuild", "build", recipe, "--no-run", "--offline"]
    command += ["--store", str(root), "--dist", str(root / "dist"), "--remote-cache", url]
    started = time.monotonic()
    subprocess.run(command, check=True)
    seconds = time.monotonic() - started
    (zip_path,) = (root / "dist").glob("*.zip")
    return seconds, hashlib.sha256(zip_path.read_bytes()).hexdigest()


def kill_at(server: services.Redis, objects: int) -> None:
    """Kill Redis as soon as it holds so many objects."""
    while server.process.poll() is None:
        if server.keys() >= objects:
            server.stop()
            print(f"Redis killed at {objects} objects", file=sys.stderr)
            return
        time.sleep(0.2)


def main() -> int:
    """Measure, print a table, fail when a zip differs."""
    recipe = sys.argv[1] if len(sys.argv) > 1 else "avx2"
    rows = []
    with tempfile.TemporaryDirectory(dir=USER.parent, prefix="remote-") as name:
        root = Path(name)
        with services.redis(root) as server:
            for label in ("cold", "warm"):
                rows.append((label, *build(recipe, root / label, server.url)))
                remove_tree(root / label)
        with services.redis(root) as server:
            threading.Thread(target=kill_at, args=(server, 60), daemon=True).start()
            rows.append(("Redis killed", *build(recipe, root / "killed", server.url)))
    print(f"| {recipe} | seconds | of cold | sha256 |\n| --- | ---: | ---: | --- |")
    for label, seconds, digest in rows:
        print(f"| {label} | {seconds:.0f} | {seconds / rows[0][1]:.0%} | {digest[:16]} |")
    return 0 if len({digest for _, _, digest in rows}) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
