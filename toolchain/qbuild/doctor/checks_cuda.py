"""Checks of CUDA: architectures, toolkits, folders, cards and drivers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qbuild.cuda import table
from qbuild.cuda.arch import architectures, coverage, find_gpu, parse_arch
from qbuild.cuda.table import minor
from qbuild.doctor.detect.cards import (
    capability_of,
    gpu_recipes,
    number_of,
    own_build,
    without_recipe,
)
from qbuild.doctor.findings import Hit
from qbuild.doctor.machine_facts import Facts
from qbuild.errors import QbuildError


def _pieces(text: str) -> list[str]:
    """Return the elements of one list entry that holds several ("61;80")."""
    return [each for each in re.split(r"[;,\s]+", text) if each]


def architecture_spelling(facts: Facts) -> Iterator[Hit]:
    """Every architecture must be spelled as CMake spells it."""
    wrong = []
    for text in facts.architectures:
        if text == "native":
            if facts.gpus == ():
                yield Hit(
                    id="native-without-gpu",
                    found="architecture `native` is asked for, and this machine has no GPU",
                )
            continue
        pieces = _pieces(text)
        fixes = []
        for piece in pieces:
            try:
                parse_arch(piece)
            except QbuildError as error:
                fixes.append(error.fix or error.what)
            else:
                fixes.append(f"write {piece}")
        if len(pieces) != 1:
            inside = ", ".join(fix.removeprefix("write ") for fix in fixes)
            wrong.append(
                (text, f"write a list of single elements: {inside}" if pieces else "drop it")
            )
        elif not fixes[0].startswith("write ") or fixes[0] != f"write {text}":
            wrong.append((text, fixes[0]))
    if wrong:
        yield Hit(
            id="arch-spelling",
            found="not spelled as CMake spells architectures: "
            + ", ".join(repr(text) for text, _ in wrong),
            mend="; ".join(f"{text!r}: {fix}" for text, fix in wrong),
        )


def architectures_of_toolkit(facts: Facts) -> Iterator[Hit]:
    """The toolkit must compile for every architecture that is asked for."""
    cuda = facts.cuda_version
    if not cuda or facts.toolchain in ("zig", "gcc", "clang", "msvc", "clang-cuda"):
        return  # clang-cuda brings a toolkit of its own
    for text in facts.architectures:
        try:
            arch = parse_arch(text)
            table.find_toolkit(cuda)
        except QbuildError:
            continue  # its spelling is another check's; a toolkit we do not know is nobody's fault
        try:
            table.check_archs([arch], cuda)
        except QbuildError as error:
            wanted = table.parse_version(cuda)[:2]
            oldest = min(
                number
                for number, row in architectures().items()
                if row.last is None or wanted <= table.parse_version(row.last)
            )
            yield Hit(
                id="arch-not-in-toolkit",
                found=f"{error.what}; CUDA {cuda} starts at sm_{oldest}",
                mend=error.fix or "",
            )
            return


def mixed_toolkits(facts: Facts) -> Iterator[Hit]:
    """nvcc, headers and runtime of one version; CUDA_PATH where nvcc is."""
    parts = {"nvcc": facts.nvcc, "the headers": facts.cuda_headers, "cudart": facts.cudart_lib}
    known = {name: minor(version) for name, version in parts.items() if version}
    if len(set(known.values())) > 1:
        yield Hit(
            id="two-toolkits",
            found="parts of different CUDA toolkits: "
            + ", ".join(f"{name} is of {version}" for name, version in known.items()),
        )
        return
    if facts.nvcc and facts.cuda_path_version:
        on_path, named = minor(facts.nvcc), minor(facts.cuda_path_version)
        if on_path != named:
            several = sorted({minor(each) for each in facts.cuda_toolkits})
            installed = f" (installed: {', '.join(several)})" if len(several) > 1 else ""
            yield Hit(
                id="cuda-path-elsewhere",
                found=f"PATH finds nvcc {on_path}, CUDA_PATH names {named}{installed}",
            )


def cuda_folder(facts: Facts) -> Iterator[Hit]:
    """CUDA's folder: blanks and letters outside ASCII.

    NVIDIA's own default folder on Windows has blanks and is what everybody uses; others are not.
    """
    folder = facts.cuda_path
    if not folder or facts.toolchain in ("zig", "clang-cuda", "gcc", "clang", "msvc"):
        return
    default = folder.lower().replace("/", "\\").startswith("c:\\program files\\nvidia gpu")
    if not folder.isascii():
        yield Hit(
            id="cuda-path-spelling", found=f"CUDA lies in {folder}, with letters outside ASCII"
        )
    elif " " in folder and not default:
        yield Hit(id="cuda-path-spelling", found=f"CUDA lies in {folder}, with a blank in its name")


def kernels_for_card(facts: Facts) -> Iterator[Hit]:
    """A bundle must have machine code or PTX for the card."""
    held = [f"{each}-real" for each in facts.bundle_cubins]
    held += [f"{each}-virtual" for each in facts.bundle_ptx]
    if not held:
        return
    try:
        archs = [parse_arch(each) for each in held]
    except QbuildError:
        return
    for card in facts.cards():
        capability = capability_of(card)
        if capability is None:
            continue
        try:
            card_has = find_gpu(capability).capability
        except QbuildError:
            continue  # not written like 6.1
        if coverage(archs, card_has)[0] == "none":
            name = card.name or "the GPU"
            recipe = 'recipe "gtx1060" has it' if capability == "6.1" else ""
            number = capability.replace(".", "")
            yield Hit(
                id="no-kernel-image",
                found=f"{name} is of compute capability {capability}; the bundle has code for "
                + ", ".join(held),
                mend=f"build with architecture {number}-real, or take a bundle that has it: "
                "`qbuild detect` says which",
                recipe=recipe or f'add "{number}-real" to the recipe\'s CUDA architectures',
            )
            return


def gpu_without_recipe(facts: Facts) -> Iterator[Hit]:
    """A card that is older than every recipe's code: no driver helps."""
    found = without_recipe(facts.cards())
    if found is None or facts.bundle_cubins or facts.bundle_ptx or facts.architectures:
        return  # another check speaks about that bundle, or somebody builds for the card
    card, capability = found
    command = own_build(capability, facts.os)
    lowest = min(gpu_recipes().values(), key=number_of)
    yield Hit(
        id="gpu-without-recipe",
        found=f"{card.name or 'the GPU'} is of compute capability {capability}, and no recipe has "
        f"code for it: they start at {lowest}; a newer driver does not help",
        mend=f"build for it: `{command}` (it wants a driver for CUDA 12), or use the CPU: recipe "
        "avx2"
        if command
        else "use the CPU: recipe avx2 or baseline (CUDA 12 has no code for such a GPU at all)",
    )


def gpu_in_wsl(facts: Facts) -> Iterator[Hit]:
    """WSL that shows no GPU to somebody who wants CUDA."""
    wanted = (
        facts.cuda_version
        or facts.toolchain in ("nvcc", "clang-cuda")
        or facts.recipe in gpu_recipes()
    )
    if facts.is_wsl and facts.gpus == () and wanted:
        yield Hit(id="cuda-no-device-wsl", found="CUDA is wanted, and WSL shows no GPU")


def gpu_driver(facts: Facts) -> Iterator[Hit]:
    """The driver: there at all, and new enough for the toolkit's runtime."""
    for card in facts.cards():
        if card.vendor == "nvidia" and card.driver is None and facts.gpus is not None:
            yield Hit(
                id="no-gpu-driver",
                found=f"{card.name or 'an NVIDIA card'} is there, and no NVIDIA driver is loaded",
                severity=None if facts.toolchain in ("nvcc", "clang-cuda") else "hint",
            )
            return
    drivers = {each.driver for each in facts.cards() if each.driver} | {facts.driver or ""}
    drivers.discard("")
    cuda = facts.cuda_version
    target = facts.os if facts.os in ("linux", "windows") else None
    if (
        not drivers
        or not cuda
        or target is None
        or facts.toolchain in ("zig", "gcc", "clang", "msvc")
    ):
        return
    if facts.is_wsl:
        target = "windows"  # the driver in WSL is Windows' own, with Windows' version numbers
    for driver in sorted(drivers):
        try:
            table.parse_version(driver)
            floor = table.driver_floor(cuda, target)
        except QbuildError:
            continue
        if table.parse_version(driver) < table.parse_version(floor):
            yield Hit(
                id="driver-too-old",
                found=f"driver {driver} is older than CUDA {cuda} needs: {floor}",
                mend=f"install GPU driver {floor} or newer",
            )
            return
