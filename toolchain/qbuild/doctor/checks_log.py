"""What a log says beyond its signatures: versions that do not go together, and exact words.

A signature's named groups say which file, flag or code a message is about; tables say where such a
file comes from and what became of such a flag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from qbuild import resources
from qbuild.doctor.checks_cuda import mixed_toolkits
from qbuild.doctor.checks_machine import network, wsl
from qbuild.doctor.findings import Hit, findings
from qbuild.doctor.log import LogHit, LogText
from qbuild.doctor.machine_facts import Facts

_COMPILER: Final = re.compile(r"thecudacompileridentificationisnvidia(?P<nvcc>\d+\.\d+(\.\d+)?)")
_TOOLKIT: Final = re.compile(
    r"foundcudatoolkit:.{0,300}?\(found(suitable)?version'(?P<headers>\d+\.\d+(\.\d+)?)'"
)
_MSBUILD: Final = re.compile(
    r"cuda(?P<headers>\d+\.\d+)\.(targets|props)\(.{0,400}?[\\/]v(?P<nvcc>\d+\.\d+)[\\/]bin[\\/]nvcc"
)

_RUNTIMES: Final = {
    "mt_staticrelease": "/MT",
    "mtd_staticdebug": "/MTd",
    "md_dynamicrelease": "/MD",
    "mdd_dynamicdebug": "/MDd",
}


_PROXY: Final = re.compile(
    r"(?:^|\W)(?P<name>https?_proxy|all_proxy|no_proxy)"
    r"\s*=\s*[\"']?(?P<value>[^\"'\s]+)",
    re.IGNORECASE,
)
_TREE: Final = re.compile(r"Build files have been written to: (?P<folder>.+?)\s*$")

Told = tuple[Hit, tuple[str, ...]]  # a finding and the lines that show it


def in_log(log: LogText) -> Iterator[Told]:
    """Yield what the facts in a log show, with the lines that hold them."""
    yield from _toolkits(log)
    yield from _proxies(log)
    yield from _build_folder(log)


def _toolkits(log: LogText) -> Iterator[Told]:
    """Versions of nvcc and of the toolkit's other parts, as CMake and MSBuild print them."""
    for nvcc, headers in (
        (_COMPILER.search(log.whole), _TOOLKIT.search(log.whole)),
        (found := _MSBUILD.search(log.whole), found),
    ):
        if nvcc is None or headers is None:
            continue
        facts = Facts(nvcc=nvcc["nvcc"], cuda_headers=headers["headers"])
        for hit in mixed_toolkits(facts):
            lines = sorted({log.line_of(nvcc.start("nvcc")), log.line_of(headers.start("headers"))})
            yield hit, tuple(each for line in lines for each in log.evidence(line, line))
            return


def _proxies(log: LogText) -> Iterator[Told]:
    """Both spellings of one variable, as ``env`` or a script shows them."""
    seen: dict[str, dict[str, tuple[str, int]]] = {}
    for number, line in enumerate(log.plain):
        if match := _PROXY.search(line):
            spelled = seen.setdefault(match["name"].lower(), {})
            spelled.setdefault(match["name"], (match["value"].rstrip("/"), number))
    for name, spelled in seen.items():
        if len({value for value, _ in spelled.values()}) > 1:
            for hit in network(Facts(proxy_differs=(name,))):
                lines = sorted(number for _, number in spelled.values())
                yield hit, tuple(each for line in lines for each in log.evidence(line, line))


def _build_folder(log: LogText) -> Iterator[Told]:
    """The folder that CMake says it has written to."""
    for number, line in enumerate(log.plain):
        if match := _TREE.search(line):
            folder = match["folder"]
            inside = re.match(r"/mnt/[a-z]/", folder)
            facts = Facts(wsl=True, os="linux", build_root=folder) if inside else Facts()
            for hit in wsl(facts):
                yield hit, log.evidence(number, number)
            return


def detail(hit: LogHit) -> str:
    """Return what the signature's groups say about this very case; empty: nothing."""
    library, build = (_RUNTIMES.get(hit.groups.get(each, "")) for each in ("library", "build"))
    if library and build:
        return f"the library is {library}, the build is {build}"
    if len(hit.codes) > 1:
        return "; ".join(_meanings(hit.codes))
    for template in hit.finding.detail:
        if all(hit.groups.get(each) for each in _names(template)):
            return template.format(**hit.groups)
    return ""


def remedy(hit: LogHit) -> str:
    """Return a more exact remedy than the table's; empty: the table's will do."""
    if library := hit.groups.get("file"):
        for row in _sources():
            if re.fullmatch(row["name"], library):
                return f"{row['from']}; {hit.finding.mend}" if hit.finding.mend else row["from"]
    if (flag := hit.groups.get("flag")) and (known := _instead(flag.strip("-").partition("=")[0])):
        return f"{known}; {hit.finding.mend}"
    return ""


def runtime_recipe(hit: LogHit) -> str:
    """Return the recipe's change for a library of another C runtime."""
    library = _RUNTIMES.get(hit.groups.get("library", ""))
    if library in ("/MT", "/MD"):
        wanted = "static" if library == "/MT" else "dynamic"
        build = _RUNTIMES[hit.groups["build"]]
        return f'toolchain.runtime = "{wanted}", or a library built as {build}'
    return ""


def _names(template: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", template)


def _meanings(codes: tuple[int, ...]) -> Iterator[str]:
    """Say what each code that a rounded number can stand for would mean."""
    for row in findings().values():
        for code in row.codes:
            if code in codes and not row.also:
                yield f"0x{code:08X} ({row.id})"


@cache
def _sources() -> tuple[dict[str, Any], ...]:
    return tuple(resources.read_table("library-sources.toml")["library"])


@cache
def _replacements() -> dict[str, dict[str, Any]]:
    rows = resources.read_table("launch/instead.toml")["instead"]
    return {flag: row for row in rows for flag in row["flags"]}


def _instead(flag: str) -> str:
    row = _replacements().get(flag)
    if row is None:
        return ""
    now = ", ".join(f"--{each}" for each in row["use"])
    why = f" ({row['why']})" if row["why"] else ""
    return f"write {now} instead of --{flag}{why}"
