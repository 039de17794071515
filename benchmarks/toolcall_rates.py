"""Prompt and generation rate of a patched server beside an unpatched one, in pairs.

    python benchmarks/toolcall_rates.py --server PATCHED/llama-server \\
        --unpatched UNPATCHED/llama-server --model MODEL.gguf [--rounds 15]

Both run at the same time and are asked in turns, first the one and then the other, in changing
order. What counts is the CPU time of the server's process, which other load of the machine disturbs
little. Printed are the ratio of the rates (patched over unpatched, geometric mean of the pairs) and
its interval of 95 % from 2,000 resamples. Exit status 1: an interval lies below 0.99.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from toolcall_schemas import running_seconds

from support.scripted_server import TOOLS, Server, post

WORDS = ("quick", "brown", "fox", "over", "the", "lazy", "dog", "runs", "through", "wide", "fields")
LEAST = 0.99
PROMPT, ANSWER = 150, 48
"""Words of a prompt, tokens of an answer."""


def prompt(number: int) -> dict[str, Any]:
    """Return a request whose cost is its prompt, another one each time."""
    dice = random.Random(number)
    text = " ".join(dice.choice(WORDS) for _ in range(PROMPT))
    return {"prompt": text, "n_predict": 1, "cache_prompt": False, "temperature": 0}


def generation(number: int) -> dict[str, Any]:
    """Return a request whose cost is its answer."""
    text = f"Number {number}: {WORDS[number % len(WORDS)]}"
    return {"prompt": text, "n_predict": ANSWER, "ignore_eos": True, "temperature": 0}


def chat(number: int) -> dict[str, Any]:
    """Return a chat that is streamed, which parses each token."""
    messages = [{"role": "user", "content": f"Tell me about {WORDS[number % len(WORDS)]}."}]
    more = {"max_tokens": ANSWER, "ignore_eos": True, "temperature": 0, "stream": True}
    return {"messages": messages, **more}


def chat_with_tools(number: int) -> dict[str, Any]:
    """Return the same with tools."""
    return {**chat(number), "tools": TOOLS}


KINDS = {
    "prompt": ("/completion", prompt),
    "generation": ("/completion", generation),
    "chat, streamed": ("/v1/chat/completions", chat),
    "chat with tools, streamed": ("/v1/chat/completions", chat_with_tools),
}


def cost(server: Server, path: str, body: dict[str, Any]) -> tuple[float, str]:
    """Return the CPU seconds of a request, and its answer."""
    process = psutil.Process(server.process.pid)
    before = running_seconds(process)
    status, text = post(server, path, body, timeout=600)
    if status != 200:
        raise SystemExit(f"HTTP {status}: {text[:200]}")
    return running_seconds(process) - before, text


def interval(logs: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios and the interval that holds it in 95 of 100 resamples."""
    dice = random.Random(1)
    means = sorted(statistics.fmean(dice.choices(logs, k=len(logs))) for _ in range(2000))
    middle = statistics.fmean(logs)
    return math.exp(middle), math.exp(means[50]), math.exp(means[-51])


def said(text: str) -> str:
    """Return the content of an answer of either form: both servers must have done the same."""
    if text.startswith("{"):
        return str(json.loads(text)["content"])
    lines = (line[6:] for line in text.splitlines() if line.startswith("data: {"))
    choices = (choice for line in lines for choice in json.loads(line)["choices"])
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name in ("--server", "--unpatched", "--model"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of each kind")
    options = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / name for name in ("patched.log", "unpatched.log")]
        servers = [
            Server(binary, options.model, log)
            for binary, log in zip((options.server, options.unpatched), logs, strict=True)
        ]
        try:
            print("| what | pairs | CPU ms, patched | unpatched | ratio of rates | 95 % |")
            print("|---|---|---|---|---|---|")
            for name, (path, make) in KINDS.items():
                ratios, spent = [], ([], [])  # type: ignore[var-annotated]
                for number in range(-1, options.rounds):
                    order = (0, 1) if number % 2 else (1, 0)
                    costs = {who: cost(servers[who], path, make(number)) for who in order}
                    if number < 0:
                        continue  # the first one of each fills caches
                    if said(costs[0][1]) != said(costs[1][1]):
                        print(f"{name} {number}: the answers differ", file=sys.stderr)
                    ratios.append(math.log(costs[1][0] / costs[0][0]))
                    for who in order:
                        spent[who].append(costs[who][0])
                middle, low, high = interval(ratios)
                slow = slow or high < LEAST
                first, second = (f"{1e3 * statistics.median(s):.1f}" for s in spent)
                print(
                    f"| {name} | {len(ratios)} | {first} | {second} | {middle:.3f} "
                    f"| {low:.3f} to {high:.3f} |",
                    flush=True,
                )
        finally:
            for server in servers:
                server.stop()
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
