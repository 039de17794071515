"""Print what the doctor says to each reported situation: was, wanted, is (Markdown).

The reports and the further cases are those of ``tests/unit/doctor``; the tests say whether each
answer is right, this shows it to a person: ``python ci/doctor_table.py > table.md``.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from qbuild.doctor.encodings import decode
from qbuild.doctor.examine import examine
from qbuild.doctor.findings import findings, kinds
from qbuild.doctor.machine_facts import Facts, parse_facts

CASES = Path(__file__).resolve().parent.parent / "tests" / "unit" / "doctor"


def _cases(name: str, key: str) -> list[dict[str, Any]]:
    table = tomllib.loads((CASES / name).read_text(encoding="utf-8"))
    cases: list[dict[str, Any]] = table[key]
    return cases


def _says(case: dict[str, Any]) -> tuple[str, str, str]:
    """Return the id of the first diagnosis, what was found and what is to do."""
    log = case.get("log", "").lstrip("\n")
    if "encoding" in case:
        log = decode(log.encode(case["encoding"]))
    found = examine(parse_facts(case["facts"]) if "facts" in case else Facts(), log)
    return (found[0].id, found[0].found, found[0].mend) if found else ("-", "nothing", "")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def main() -> int:
    """Print both tables; fail where an answer is not the wanted one."""
    wrong = 0
    print(_row("report", "said before", "wanted", "says now", "right"))
    print(_row(*["---"] * 5))
    for each in _cases("reports.toml", "report"):
        name, found, mend = _says(each)
        right = name == each["expect"]
        wrong += not right
        says = f"`{name}`: {found}; to do: {mend}"
        print(_row(each["id"], each["got"], each["want"], says, "yes" if right else "NO"))
    print()
    counts = {kind: [0, 0] for kind in kinds()}
    handed = Counter(findings()[each["expect"]].kind for each in _cases("reports.toml", "report"))
    for each in _cases("further.toml", "case"):
        right = _says(each)[0] == each["expect"]
        counts[findings()[each["expect"]].kind][0] += right
        counts[findings()[each["expect"]].kind][1] += 1
        wrong += not right
    print(_row("kind", "reported", "further cases right", "of"))
    print(_row(*["---"] * 4))
    for kind, (good, total) in counts.items():
        print(_row(kind, str(handed[kind]), str(good), str(total)))
    total = sum(count for _, count in counts.values())
    all_right = sum(good for good, _ in counts.values())
    print(_row("all", str(handed.total()), str(all_right), str(total)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
