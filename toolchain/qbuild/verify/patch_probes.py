"""Is each patch of the manifest really in the binaries? Every patch says how to see that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from qbuild import resources
from qbuild.bundle.manifest import Manifest
from qbuild.errors import QbuildError
from qbuild.patches import Probe, load_series
from qbuild.patches.series import ProbeKind
from qbuild.verify.binaries import Images, mapped
from qbuild.verify.structure import Unpacked

if TYPE_CHECKING:
    from qbuild.patches import Probe

READ_KINDS: Final = ("export", "string", "help")
"""Kinds that reading can settle; ``help`` by the option's text in the binary."""


@dataclass(frozen=True, kw_only=True)
class PatchProbe:
    """A probe and whose it is."""

    patch: str
    probe: Probe


def probes_of(manifest: Manifest) -> tuple[tuple[PatchProbe, ...], tuple[str, ...]]:
    """Return the probes of a bundle's patches that apply to it, and the patches without one.

    A series that this qbuild knows under the same digest is asked first: its probes cannot have
    been left out of the bundle. Else the manifest's own are used.
    """
    found: list[PatchProbe] = []
    without: list[str] = []
    for series in manifest.series:
        known = _known_probes(series)
        patches = series.get("patches")
        if not isinstance(patches, (list, tuple)) or not patches:
            without.append(f"{series.get('name')}: lists no patches")
            continue
        for patch in patches:
            if not isinstance(patch, Mapping):
                without.append(f"{series.get('name')}: {patch!r}")
                continue
            label = f"{series.get('name')}/{patch.get('file')}"
            probe = known.get(str(patch.get("file"))) or _from_manifest(patch.get("probe"))
            if probe is None:
                without.append(label)
            elif _applies(probe, manifest):
                found.append(PatchProbe(patch=label, probe=probe))
    return tuple(found), tuple(without)


def _known_probes(series: Mapping[str, Any]) -> Mapping[str, Probe]:
    try:
        ours = load_series(resources.patches_dir(), str(series.get("name")))
    except QbuildError:
        return {}
    if ours.digest != series.get("digest"):
        return {}
    return {patch.file: patch.entry.probe for patch in ours.patches}


def _from_manifest(data: object) -> Probe | None:
    if not isinstance(data, Mapping):
        return None
    kind, value, place = (data.get(key) for key in ("kind", "value", "place"))
    if kind not in get_args(ProbeKind) or not (isinstance(value, str) and isinstance(place, str)):
        return None
    if not value or not place:
        return None
    system, linkage = data.get("os", ""), data.get("linkage", "")
    if system not in ("", "linux", "windows") or linkage not in ("", "shared", "static"):
        return None
    return Probe(
        kind=cast("ProbeKind", kind),
        value=value,
        place=place,
        absent=data.get("absent") is True,
        os=cast("Any", system),
        linkage=cast("Any", linkage),
    )


def _applies(probe: Probe, manifest: Manifest) -> bool:
    linkage = manifest.features.get("linkage")
    return probe.os in ("", manifest.target["os"]) and probe.linkage in ("", linkage)


def probe_problem(item: PatchProbe, images: Images, unpacked: Unpacked) -> str:
    """Return why the binaries do not show the patch, or "".

    Only for the kinds of :data:`READ_KINDS`.
    """
    probe = item.probe
    places = _places(probe.place, images)
    if not places:
        if probe.absent:
            return ""
        return f"{item.patch}: there is no {probe.place} in the bundle to look for it in"
    what = "any export" if probe.value == "*" else f"{probe.kind} {probe.value!r}"
    if probe.kind == "export":
        having = [name for name in places if _exports(probe.value, name, images)]
    else:
        # A program's text may stand in a library that it is linked with (libllama-common.so).
        libraries = [name for name in images.names if _is_library(name, images)]
        where = places if probe.absent else dict.fromkeys([*places, *libraries])
        having = [name for name in where if _holds(probe.value, name, unpacked)]
    if probe.absent and having:
        return f"{having[0]}: has {what}, which patch {item.patch} removes"
    if not probe.absent and not having:
        return f"{places[0]}: lacks {what} of patch {item.patch}"
    return ""


def files_with(text: str, images: Images, unpacked: Unpacked) -> list[str]:
    """Return the binaries that hold a text."""
    return [name for name in images.names if _holds(text, name, unpacked)]


def _places(place: str, images: Images) -> list[str]:
    """Return the files a probe means: the one of that name, else (static) every executable."""
    wanted = {place, f"lib{place}"}
    named = [name for name in images.names if _stem(name) in wanted]
    if named:
        return named
    return [] if any(_is_library(name, images) for name in images.names) else list(images.names)


def _stem(name: str) -> str:
    base = PurePosixPath(name).name
    return base.partition(".so")[0].removesuffix(".exe").removesuffix(".dll")


def _is_library(name: str, images: Images) -> bool:
    if name in images.pe:
        return images.pe[name].is_dll
    return ".so" in PurePosixPath(name).name


def _exports(symbol: str, name: str, images: Images) -> bool:
    exports = images.pe[name].exports if name in images.pe else images.elf[name].exports
    return bool(exports) if symbol == "*" else symbol in exports


def _holds(text: str, name: str, unpacked: Unpacked) -> bool:
    with mapped(unpacked, name) as data:
        return data.find(text.encode()) >= 0


def split_by_kind(probes: tuple[PatchProbe, ...]) -> tuple[list[PatchProbe], Iterator[str]]:
    """Return the probes that reading can settle, and lines about the others."""
    readable = [item for item in probes if item.probe.kind in READ_KINDS]
    rest = (
        f"{item.patch}: `{item.probe.value}` is seen by running the tool only"
        for item in probes
        if item.probe.kind not in READ_KINDS
    )
    return readable, rest
