"""A measurement as text: two small tables and what has to be said about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from qbuild.extras.bench.run import Result


def render(result: Result) -> str:
    """Return the tables for people."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    wish = result.wish
    yield f"model {result.model}, {result.threads} threads, {wish.rounds} rounds"
    if result.busy:
        yield (
            f"MARKED: the machine was busy, others took up to {result.others:.0%} of its "
            "processors; compare nothing with these figures"
        )
    rows = [("llama-bench, tokens/s", f"prompt {wish.prompt}", f"answer {wish.answer}", "memory")]
    for each in result.zips:
        data = each.as_json()["alone"]
        rows.append(
            (each.zip_name, _spread(data["prompt"]), _spread(data["answer"]), _mb(data["memory"]))
        )
    yield ""
    yield from _table(rows)
    for name, value in result.ratios.items():
        if value is not None:
            yield (
                f"{name}: the first is {value.median:.3f} times as fast as the second "
                f"(95 % interval {value.low:.3f} to {value.high:.3f}, {value.rounds} pairs)"
            )
    for each in result.zips:
        if not each.loaded:
            continue
        yield ""
        head = (
            f"server: {each.zip_name}", "tokens/s", "first token p50", "p95", "answer p50", "p95",
            "requests", "errors", "memory",
        )  # fmt: skip
        yield from _table([head, *(_load_row(one.as_json()) for one in each.loaded)])
        for one in each.loaded:
            for error in one.as_json()["first_errors"]:
                yield f"  {one.users} users: {error}"


def _load_row(data: dict[str, Any]) -> tuple[str, ...]:
    users = "1 user" if data["users"] == 1 else f"{data['users']} users"
    return (
        f"{users}, tools" if data["tools"] else users,
        f"{data['tokens_per_second']:.1f}",
        _seconds(data["first_token_p50"]),
        _seconds(data["first_token_p95"]),
        _seconds(data["whole_p50"]),
        _seconds(data["whole_p95"]),
        str(data["requests"]),
        str(data["errors"]),
        _mb(data["memory"]),
    )


def _spread(data: dict[str, Any]) -> str:
    return f"{data['median']:.1f} ({data['low']:.1f}-{data['high']:.1f})"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first, *rest = row
        cells = [
            first.ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True)),
        ]
        yield "  ".join(cells).rstrip()
