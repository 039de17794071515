"""The actions the workflows use, each pinned to a commit.

A tag can be moved, a commit cannot. Every id below was read in the public workflow that stands
beside it; none was made up. What has no such id is not used: issues and releases go through the
``gh`` program that the runners carry.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Action:
    """One pinned action.

    Args:
        name: Repository (and folder) of the action.
        commit: The commit, 40 hex digits.
        version: The tag that names this commit, for people.
        seen: Public workflow file that pins the same commit.
    """

    name: str
    commit: str
    version: str
    seen: str

    @property
    def uses(self) -> str:
        """Return what stands behind ``uses:``."""
        return f"{self.name}@{self.commit}"


_CACHE = {
    "commit": "5a3ec84eff668545956fd18022155c47e93e2684",
    "version": "v4.2.3",
    "seen": "scipy/scipy: .github/workflows/linux.yml",
}

CHECKOUT = Action(
    name="actions/checkout",
    commit="de0fac2e4500dabe0009e67214ff5f5447ce83dd",
    version="v6.0.2",
    seen="astral-sh/uv: .github/workflows/build-release-binaries.yml",
)
PYTHON = Action(
    name="actions/setup-python",
    commit="a309ff8b426b58ec0e2a45f0f869d46889d02405",
    version="v6.2.0",
    seen="astral-sh/uv: .github/workflows/build-release-binaries.yml",
)
UPLOAD = Action(
    name="actions/upload-artifact",
    commit="ea165f8d65b6e75b540449e92b4886f43607fa02",
    version="v4.6.2",
    seen="astral-sh/uv: .github/workflows/build-release-binaries.yml",
)
DOWNLOAD = Action(
    name="actions/download-artifact",
    commit="d3f86a106a0bac45b974a628896c90dbdf5c8093",
    version="v4.3.0",
    seen="astral-sh/uv: .github/workflows/publish-pypi.yml",
)
RESTORE = Action(name="actions/cache/restore", **_CACHE)
SAVE = Action(name="actions/cache/save", **_CACHE)
ATTEST = Action(
    name="actions/attest-build-provenance",
    commit="00014ed6ed5efc5b1ab7f7f34a39eb55d41aa4f8",
    version="v3.1.0",
    seen="astral-sh/uv: .github/workflows/build-docker.yml",
)

ALL = (CHECKOUT, PYTHON, UPLOAD, DOWNLOAD, RESTORE, SAVE, ATTEST)
