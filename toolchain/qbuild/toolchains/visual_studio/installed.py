"""What a Windows machine has of Visual Studio, SDKs and CUDA, as one file that can be sent.

The file keeps vswhere's own rows as they are, so that whatever it prints tomorrow can be read
again; the rest are folder listings and registry keys. ``qbuild plan --facts FILE`` plans for that
machine from anywhere. :func:`capture` asks a :class:`~qbuild.doctor.probe.Probe`; it was never run
on a real Windows.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from qbuild import bounds
from qbuild.errors import UsageError

if TYPE_CHECKING:
    from qbuild.doctor.probe import Probe

VSWHERE: Final = "C:\\Program Files (x86)\\Microsoft Visual Studio\\Installer\\vswhere.exe"
_SDK_KEY: Final = "SOFTWARE\\Microsoft\\Windows Kits\\Installed Roots"
_CUDA_ROOT: Final = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA"

YEARS: Final[Mapping[int, str]] = {16: "2019", 17: "2022", 18: "2026"}
"""Major version of Visual Studio → the year in its name (CMake's generators are named by both)."""

Version = tuple[int, ...]


def numbers(text: str) -> Version:
    """Return a dotted version as numbers; what is not a number ends it."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


@dataclass(frozen=True, kw_only=True)
class Studio:
    """One Visual Studio or Build Tools."""

    path: str  # where it is installed
    version: str  # ``17.14.36401.2``
    product: str  # ``Community``, ``BuildTools`` …
    toolsets: tuple[str, ...]  # MSVC toolsets in it, newest first: ``14.44.35207``
    prerelease: bool = False  # whether it is a preview

    @property
    def major(self) -> int:
        """16, 17 or 18."""
        return numbers(self.version)[0]

    @property
    def name(self) -> str:
        """What people call it."""
        product = "Build Tools" if self.product == "BuildTools" else self.product
        return f"Visual Studio {YEARS.get(self.major, self.major)} {product}"

    @property
    def generator(self) -> str:
        """CMake's generator for it."""
        return f"Visual Studio {self.major} {YEARS.get(self.major, '')}".strip()

    @property
    def vcvarsall(self) -> str:
        """The batch file that sets up its environment."""
        return f"{self.path}\\VC\\Auxiliary\\Build\\vcvarsall.bat"


@dataclass(frozen=True, kw_only=True)
class MsvcFacts:
    """What a Windows machine has."""

    studios: tuple[Studio, ...]  # complete installations of 2019 or newer, the newest first
    # names of installations that are broken or lack the C++ compiler
    incomplete: tuple[str, ...] = ()
    sdks: tuple[str, ...] = ()  # Windows SDKs, newest first
    cuda: Mapping[str, str] = field(default_factory=dict)  # CUDA toolkit (``12.9``) → its folder


def load_facts(path: Path) -> MsvcFacts:
    """Read a file of facts.

    Raises:
        UsageError: It cannot be read or is not such a file.
    """
    try:
        raw = bounds.read_bytes(path, 2 * bounds.JSON)
        # PowerShell 5 writes UTF-16 for `>`.
        utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        data = bounds.load_json(raw.decode("utf-16" if utf16 else "utf-8-sig"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read {path.name}: {error}",
            where=str(path),
            fix="make one on the Windows machine with `qbuild plan --capture > facts.json`",
        ) from error
    return parse_facts(data, where=str(path))


def parse_facts(data: object, *, where: str) -> MsvcFacts:
    """Return the facts in JSON data.

    Args:
        data: ``vswhere`` (its rows), ``toolsets`` (folder of each → its toolset folders),
            ``sdks`` and ``cuda``.
        where: For messages.

    Raises:
        UsageError: It holds something else.
    """
    try:
        assert isinstance(data, Mapping)
        assert data.get("schema") == 1
        listings = {str(k).lower(): [str(v) for v in vs] for k, vs in data["toolsets"].items()}
        rows = [_studio(row, listings) for row in data["vswhere"]]
        sdks = [str(each) for each in data["sdks"]]
        cuda = {str(key): str(value) for key, value in data["cuda"].items()}
    except (AssertionError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"this is no file of facts about Visual Studio ({type(error).__name__}: {error})",
            where=where,
            fix="make one on the Windows machine with `qbuild plan --capture > facts.json`",
        ) from error
    known = [studio for studio, _ in rows if numbers(studio.version)[:1] >= (min(YEARS),)]
    good = [s for s, complete in rows if s in known and complete and s.toolsets]
    return MsvcFacts(
        studios=tuple(sorted(good, key=lambda s: (not s.prerelease, numbers(s.version)))[::-1]),
        incomplete=tuple(s.name for s in known if s not in good),
        sdks=_sorted(each for each in sdks if numbers(each)[:1] == (10,)),
        cuda=dict(sorted(cuda.items(), key=lambda item: numbers(item[0]), reverse=True)),
    )


def _sorted(versions: Any) -> tuple[str, ...]:
    return tuple(sorted(set(versions), key=numbers, reverse=True))


def _studio(row: Mapping[str, Any], listings: Mapping[str, Sequence[str]]) -> tuple[Studio, bool]:
    path = str(row["installationPath"])
    studio = Studio(
        path=path,
        version=str(row["installationVersion"]),
        product=str(row.get("productId", "")).rpartition(".")[2] or "unknown",
        toolsets=_sorted(v for v in listings.get(path.lower(), ()) if numbers(v)[:1] == (14,)),
        prerelease=bool(row.get("isPrerelease", False)),
    )
    return studio, bool(row.get("isComplete", True)) and bool(row.get("isLaunchable", True))


def capture(probe: Probe) -> dict[str, Any]:
    """Return the facts of a machine as the file holds them; names of users are not among them."""
    text = probe.output((VSWHERE, "-all", "-prerelease", "-products", "*", "-format", "json",
                         "-utf8"))  # fmt: skip
    kept = ("installationPath", "installationVersion", "productId", "isComplete", "isLaunchable",
            "isPrerelease")  # fmt: skip
    try:
        rows = [{key: row[key] for key in kept if key in row} for row in json.loads(text or "[]")]
    except (ValueError, TypeError):
        rows = []
    cuda = {}
    for name in probe.listing(_CUDA_ROOT):
        if match := re.fullmatch(r"v(\d+\.\d+)", name):
            cuda[match[1]] = f"{_CUDA_ROOT}\\{name}"
    return {
        "schema": 1,
        "vswhere": rows,
        "toolsets": {
            row["installationPath"]: list(
                probe.listing(f"{row['installationPath']}\\VC\\Tools\\MSVC")
            )
            for row in rows
        },
        "sdks": list(probe.registry_keys(_SDK_KEY)),
        "cuda": cuda,
    }
