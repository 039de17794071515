"""What to do about a library that a zip does not hold: which package has it, under which name.

For zips that others made: qbuild's own hold what they need, or do not get built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_CUDA: Final = re.compile(r"(?:lib)?(cudart|cublaslt|cublas)(?:64_|\.so\.)(\d+)", re.I)
_VC: Final = re.compile(r"(vcruntime|msvcp|concrt|vccorlib)\d+(_\d+)?\.dll", re.I)
_DEBUG: Final = re.compile(r"(vcruntime|msvcp|concrt)\d+d(_\d+d?)?\.dll|ucrtbased\.dll", re.I)
_OPENMP: Final = re.compile(r"(libomp|libiomp|vcomp)", re.I)
_MINGW: Final = re.compile(r"(libgcc_s|libstdc\+\+|libwinpthread|libgomp)[\w-]*\.dll", re.I)
_LINUX: Final = {
    "libgomp.so.1": "libgomp1", "libstdc++.so.6": "libstdc++6", "libgcc_s.so.1": "libgcc-s1",
    "libcurl.so.4": "libcurl4", "libssl.so.3": "libssl3", "libcrypto.so.3": "libssl3",
    "libvulkan.so.1": "libvulkan1", "libopenblas.so.0": "libopenblas0",
}  # fmt: skip
"""Library → Debian's and Ubuntu's package that has it."""


def remedies(missing: Iterable[str], inside: Iterable[str]) -> Iterator[str]:
    """Yield what to do, a line each, beginning with "to do:".

    Args:
        missing: Libraries that are neither in the zip nor part of the system.
        inside: Names of the zip's files, without folders.
    """
    names = sorted({each.rpartition("/")[2] for each in missing}, key=str.lower)
    there = [each.rpartition("/")[2] for each in inside]
    yield from _cuda(names, there)
    if any(_DEBUG.fullmatch(each) for each in names):
        yield "to do: this is a debug build, whose C runtime is not given away: get the release one"
    elif any(_VC.fullmatch(each) for each in names):
        yield (
            "to do: install Microsoft's Visual C++ redistributable for x64 (vc_redist.x64.exe; "
            "`winget install Microsoft.VCRedist.2015+.x64`)"
        )
    if found := [each for each in names if _OPENMP.match(each) and each.lower().endswith(".dll")]:
        yield (
            f"to do: {', '.join(found)} is the compiler's OpenMP runtime: it belongs beside the "
            "programs, from the release's own zip or the compiler's redist folder"
        )
    if found := [each for each in names if _MINGW.fullmatch(each)]:
        shown = ", ".join(found)
        yield f"to do: {shown} is MinGW's runtime: copy it from the compiler's bin folder"
    packages = sorted({_LINUX[each] for each in names if each in _LINUX})
    if packages:
        yield f"to do: sudo apt install {' '.join(packages)}"
    if "vulkan-1.dll" in (each.lower() for each in names):
        yield "to do: vulkan-1.dll comes with the GPU's driver: install a current one"


def _cuda(names: list[str], there: list[str]) -> Iterator[str]:
    majors: dict[str, set[str]] = {}
    windows = False
    for each in names:
        if match := _CUDA.match(each):
            windows = windows or each.lower().endswith(".dll")
            majors.setdefault(match[2], set()).add(match[1].lower())
    for major, kinds in sorted(majors.items()):
        if "cublas" in kinds:
            kinds.add("cublaslt")  # which cublas loads: it is asked for as soon as that is there
        spelled = [
            {"cudart": "cudart", "cublas": "cublas", "cublaslt": "cublasLt"}[kind]
            for kind in ("cudart", "cublas", "cublaslt")
            if kind in kinds
        ]
        if windows:
            files = ", ".join(f"{each}64_{major}.dll" for each in spelled)
            yield (
                f"to do: put {files} beside it, from the cudart zip of the same release "
                f"(cudart-….zip) or from a CUDA {major} toolkit's bin folder"
            )
        else:
            files = ", ".join(f"lib{each}.so.{major}" for each in spelled)
            yield (
                f"to do: {files} from CUDA {major}: `pip install nvidia-cuda-runtime-cu{major} "
                f"nvidia-cublas-cu{major}` or the toolkit, and their folder in LD_LIBRARY_PATH"
            )
        others = sorted(
            name for name in there if (match := _CUDA.match(name)) and match[2] != major
        )
        if others:
            yield f"{', '.join(others)} lies beside it: of another major version, it does not help"
