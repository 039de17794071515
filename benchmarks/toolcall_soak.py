"""Mixed requests at a finished server for a long time: memory, threads and files must stay flat.

    python benchmarks/toolcall_soak.py --source PATCHED_SOURCE --server BUNDLE/llama-server \\
        --state soak.json --minutes 20 [--seed 1] [--pause 0.3]
    python benchmarks/toolcall_soak.py --sum soak-1.json soak-2.json

A scripted model says prose and a tool call, or one whose arguments have 1 MB. Requests, drawn by
the seed: whole and streamed ones of the three APIs, malformed bodies and schemas, 1 MB of arguments
in the answer and in the history, streams that the client leaves in the middle, 30 at once. A round
is the same 36 of them (65 requests) again and again; after it the server is left alone until it
does nothing, and is looked at then: what a request needs while it runs is no growth. ``--state``
remembers what was done, so that the next run goes on; the server starts anew with each piece.

Two figures of memory: what the server holds, that is malloc's bytes in use (``toolcall_held.c``,
which needs a C compiler and adds a thread), and what the system gave it, which is more by what
glibc keeps of freed memory in a heap for each thread; ``--heaps 1`` gives all threads one.

Every answer is checked. Flat is what the rounds after the warm-up say: the straight line through
what is held after each has a slope whose 95 % interval contains 0, or the line rises by less than
2 % in the piece; the highest of the later half is at most 5 % above the highest of the earlier
half; threads and open files of the last round are not more than the most of the first half. With
one heap the same holds for what the system gave, by 5 and 10 %. Exit status 1: an answer was wrong,
or something grew.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.scripted_server import NO_THINKING, TOOLS, XML, Server, post, serving

SAYS = (
    "Let me look.\n\n<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n"
    "</function>\n</tool_call>"
)
READ = ("read", {"path": "a.txt"})
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HI = [{"role": "user", "content": "hi"}]
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
ANTHROPIC = [
    {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS
]
WORDS = [b"words " * n for n in range(1, 592)]
HUGE = {"path": "a", "content": b"".join(WORDS).decode().strip()}
"""1 MB of arguments; a script's pieces must all be different, so each has a word more."""
HUGE_CALL = [
    b"<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n",
    *WORDS[:-1],
    WORDS[-1].strip() + b"\n</parameter>\n</function>\n</tool_call>",
]
WANTS_HUGE = "{%- if messages[-1].content == 'huge' %}{{- ' ' }}{%- endif %}"
"""Appended to the template: another last byte of the prompt starts the model's other script."""
AT_ONCE = 30
SLOTS = 4
"""A piece begins with 1 MB for each: what is held rises by 2 MiB for each slot that had one."""
WARM_ROUNDS, FEWEST_ROUNDS = 3, 8


def chat(**more: Any) -> dict[str, Any]:
    """Return a chat request that is answered with the call."""
    return {"messages": HI, "tools": TOOLS, "max_tokens": 200, **NO_THINKING, **more}


Sample = tuple[float, int, int, float]
"""MiB that the system gave, threads, open files, MiB that are held."""


class WrongAnswerError(Exception):
    """An answer that is not as it should be."""


def events(text: str) -> list[Any]:
    """Return the JSON events of a stream."""
    lines = (line[6:] for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]


def want(got: Any, wanted: Any) -> None:
    """Raise when an answer is another one."""
    if got != wanted:
        raise WrongAnswerError(f"{str(got)[:300]} instead of {str(wanted)[:100]}")


class Requests:
    """What clients send, each kind one method; it raises when the answer is wrong."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def answer(self, path: str, body: Any) -> str:
        """Post a good request and return the answer's text."""
        status, text = post(self.server, path, body, timeout=300)
        if status != 200:
            raise WrongAnswerError(f"HTTP {status}: {text[:200]}")
        return text

    def chat_whole(self, _: random.Random) -> None:
        """A chat completion."""
        message = json.loads(self.answer(CHAT, chat()))["choices"][0]["message"]
        calls = [c["function"] for c in message["tool_calls"]]
        want([(c["name"], json.loads(c["arguments"])) for c in calls], [READ])

    def chat_streamed(self, _: random.Random) -> None:
        """A chat completion as a stream."""
        deltas = [
            call["function"]
            for event in events(self.answer(CHAT, chat(stream=True)))
            for choice in event["choices"]
            for call in choice["delta"].get("tool_calls", [])
        ]
        arguments = "".join(delta.get("arguments", "") for delta in deltas)
        want((deltas[0]["name"], json.loads(arguments)), READ)

    def responses(self, dice: random.Random) -> None:
        """A response, whole or streamed."""
        body = {"model": "m", "input": "hi", "tools": FLAT, **NO_THINKING}
        text = self.answer(RESPONSES, {**body, "stream": dice.random() < 0.5})
        response = json.loads(text) if text.startswith("{") else events(text)[-1]["response"]
        calls = [i for i in response["output"] if i["type"] == "function_call"]
        want([(c["name"], json.loads(c["arguments"])) for c in calls], [READ])

    def messages(self, dice: random.Random) -> None:
        """A message of the Anthropic API, whole or streamed."""
        body = {"model": "m", "max_tokens": 200, "messages": HI, "tools": ANTHROPIC, **NO_THINKING}
        text = self.answer(MESSAGES, {**body, "stream": dice.random() < 0.5})
        if text.startswith("{"):
            uses = [b for b in json.loads(text)["content"] if b["type"] == "tool_use"]
            want([(u["name"], u["input"]) for u in uses], [READ])
        else:
            deltas = [e["delta"] for e in events(text) if e["type"] == "content_block_delta"]
            want(json.loads("".join(d.get("partial_json", "") for d in deltas)), READ[1])

    def second_turn(self, dice: random.Random) -> None:
        """A conversation with a call whose arguments may be broken."""
        arguments = dice.choice(["{}", "{", "", '{"path": "a', "null", "{'path': 'a'}", "5"])
        self.history(arguments)

    def huge_history(self, _: random.Random) -> None:
        """A conversation with a call whose arguments are 1 MB: too long for the context, so 400."""
        status, text = post(self.server, CHAT, self.conversation(json.dumps(HUGE)), timeout=300)
        want((status, "exceed" in text), (400, True))

    def huge_answer(self, dice: random.Random) -> None:
        """A call whose arguments are 1 MB, whole or streamed."""
        messages = [{"role": "user", "content": "huge"}]
        body = chat(messages=messages, max_tokens=2000, stream=dice.random() < 0.5)
        text = self.answer(CHAT, body)
        if text.startswith("{"):
            calls = json.loads(text)["choices"][0]["message"]["tool_calls"]
        else:
            choices = [c for event in events(text) for c in event["choices"]]
            calls = [call for c in choices for call in c["delta"].get("tool_calls", [])]
        want(json.loads("".join(c["function"]["arguments"] for c in calls)) == HUGE, True)

    def conversation(self, arguments: str) -> dict[str, Any]:
        """Return a request that tells of an earlier call."""
        function = {"name": "write_file", "arguments": arguments}
        call = {"id": "c", "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": "c", "content": "x"}
        said = {"role": "assistant", "content": "", "tool_calls": [call]}
        return chat(messages=[*HI, said, result, *HI])

    def history(self, arguments: str) -> None:
        """Ask with an earlier call."""
        self.answer(CHAT, self.conversation(arguments))

    def malformed(self, dice: random.Random) -> None:
        """What is no request, or a bad one: 400."""
        deep = json.dumps(chat())[:-1] + ', "x": ' + "[" * 50_000 + "]" * 50_000 + "}"
        schema = {"type": "object", "properties": {"q": {"type": "text"}}}
        bad = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        bodies: list[Any] = [
            b"{", b"", b"[]", b'{"messages": [{"role": "user", "content": "\xff"}]}', deep.encode(),
            chat(messages="hi"), chat(tools=bad), chat(tool_choice="sometimes"),
            chat(messages=[{"role": 3, "content": "x"}]),
        ]  # fmt: skip
        status, text = post(self.server, CHAT, dice.choice(bodies), timeout=300)
        want((status, "error" in json.loads(text)), (400, True))

    def cycle(self, dice: random.Random) -> None:
        """A schema whose types refer to each other."""
        refs = [{"$ref": f"#/$defs/a{k}"} for k in range(dice.randrange(2, 9))]
        schema = {"type": "object", "properties": {"x": refs[0]}}
        schema["$defs"] = {f"a{k}": {"anyOf": refs} for k in range(len(refs))}
        function = {"name": "f", "parameters": schema}
        tools = [*TOOLS, {"type": "function", "function": function}]
        status, text = post(self.server, CHAT, chat(tools=tools), timeout=300)
        if status != 200:  # no value has such a type, and no grammar is left recursive
            want((status, "grammar" in text), (400, True))

    def left(self, dice: random.Random) -> None:
        """A stream that the client leaves after some bytes, or a body that it does not finish."""
        data = json.dumps(chat(stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        sent = head + (data[: dice.randrange(len(data))] if dice.random() < 0.3 else data)
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.server.port))) as sock:
            sock.sendall(sent)
            if len(sent) == len(head) + len(data):
                sock.recv(dice.randrange(1, 2000))

    def many(self, dice: random.Random) -> None:
        """30 at once, of the other kinds."""
        kinds = [dice.choice(ONE_AT_A_TIME) for _ in range(AT_ONCE)]
        seeds = [dice.random() for _ in kinds]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [
                pool.submit(getattr(self, kind), random.Random(seed))
                for kind, seed in zip(kinds, seeds, strict=True)
            ]
            for job in jobs:
                job.result()


WEIGHTS = {
    "chat_whole": 5, "chat_streamed": 5, "responses": 4, "messages": 4, "second_turn": 4,
    "malformed": 5, "cycle": 2, "left": 4, "huge_history": 1, "huge_answer": 1, "many": 1,
}  # fmt: skip
ONE_AT_A_TIME = [kind for kind in WEIGHTS if kind not in ("many", "huge_history")]


class Held:
    """A server's bytes in use: a library that is preloaded writes them into a file."""

    def __init__(self, folder: Path) -> None:
        library = folder / "held.so"
        code = Path(__file__).with_name("toolcall_held.c")
        command = ["cc", "-O1", "-shared", "-fPIC", str(code), "-o", str(library), "-lpthread"]
        subprocess.run(command, check=True)
        self.count = folder / "held"
        self.count.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "TOOLCALL_HELD": str(self.count)}

    def mib(self) -> float:
        """Return what is held."""
        return float(int.from_bytes(self.count.read_bytes(), sys.byteorder) / 2**20)


def sample(process: psutil.Process, held: Held) -> Sample:
    """Return memory, threads and open files of the server, as soon as it does nothing."""
    deadline, before = time.monotonic() + 60, -1.0
    while time.monotonic() < deadline:
        times = process.cpu_times()
        if times.user + times.system - before < 0.02:
            break
        before = times.user + times.system
        time.sleep(0.5)
    time.sleep(0.3)  # until the next count
    with process.oneshot():
        given = process.memory_info().rss / 2**20
        return round(given, 1), process.num_threads(), process.num_fds(), round(held.mib(), 2)


def slope(values: list[float]) -> tuple[float, float]:
    """Return the slope of the straight line through values, and half its 95 % interval."""
    count, places = len(values), range(len(values))
    rise, start = statistics.linear_regression(places, values)
    rest = sum((value - start - rise * x) ** 2 for x, value in zip(places, values, strict=True))
    spread = (count**3 - count) / 12
    student = 1.96 + 2.5 / (count - 2)  # within 1 % of the quantile from 8 values on
    return rise, student * math.sqrt(rest / (count - 2) / spread)


def memory_grown(memory: list[float], share: float) -> str:
    """Return how memory grew, "" when it did not."""
    half = len(memory) // 2
    rise, interval = slope(memory)
    if rise - interval > 0 and rise * len(memory) > share * statistics.mean(memory):
        return f"grew by {rise:.2f} ± {interval:.2f} MiB a round"
    if max(memory[half:]) > (1.03 + share) * max(memory[:half]):
        return f"grew from at most {max(memory[:half]):.0f} to {max(memory[half:]):.0f} MiB"
    return ""


def grown(samples: list[Sample], one_heap: bool) -> str:
    """Return what grew in the rounds after the warm-up, "" when nothing did."""
    after = samples[WARM_ROUNDS:]
    if len(after) < FEWEST_ROUNDS:
        return ""
    half = len(after) // 2
    growth = memory_grown([s[3] for s in after], 0.02)
    if growth:
        return f"what is held {growth}"
    growth = memory_grown([s[0] for s in after], 0.05) if one_heap else ""
    if growth:
        return f"what the system gave {growth}"
    for column, name in ((1, "threads"), (2, "files")):
        most = max(s[column] for s in samples[: WARM_ROUNDS + half])
        if samples[-1][column] > most:
            return f"{name} grew from {most} to {samples[-1][column]}"
    return ""


def warm_up(requests: Requests) -> None:
    """Let everything that is kept get its largest."""
    dice = random.Random(0)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = [pool.submit(requests.huge_history, dice) for _ in range(AT_ONCE)]
        jobs += [pool.submit(requests.huge_answer, dice) for _ in range(SLOTS)]
        for job in jobs:
            job.result()


def one_round(requests: Requests, seed: int, pause: float) -> tuple[Counter[str], list[str]]:
    """Send the seed's requests; return how many of each kind, and what was wrong."""
    kinds = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
    random.Random(seed).shuffle(kinds)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number, kind in enumerate(kinds):
        dice = random.Random(f"{seed} {number}")
        try:
            getattr(requests, kind)(dice)
        except Exception as error:  # whatever a client would stumble over
            wrong.append(f"request {number} ({kind}): {type(error).__name__}: {error}"[:400])
            print(wrong[-1], file=sys.stderr, flush=True)
        counts[kind] += AT_ONCE if kind == "many" else 1
        time.sleep(dice.random() * 2 * pause)
    return counts, wrong


def piece(
    server: Server, held: Held, state: dict[str, Any], options: argparse.Namespace
) -> list[str]:
    """Send rounds for some minutes; return what was wrong and add the figures to the state."""
    process = psutil.Process(server.process.pid)
    requests = Requests(server)
    wrong: list[str] = []
    samples: list[Sample] = []
    counts: Counter[str] = Counter()
    start = time.monotonic()
    warm_up(requests)
    while time.monotonic() - start < 60 * options.minutes and server.process.poll() is None:
        sent, bad = one_round(requests, state["seed"], options.pause)
        counts += sent
        wrong += bad
        if server.process.poll() is None:
            samples.append(sample(process, held))
            print(f"  {time.monotonic() - start:.0f} s: {samples[-1]}", flush=True)
    if server.process.poll() is not None:
        wrong.append("the server is gone")
    growth = grown(samples, options.heaps == 1)
    if growth:
        wrong.append(growth)
    state["pieces"].append(
        {
            "seconds": round(time.monotonic() - start),
            "requests": sum(counts.values()),
            "kinds": dict(counts),
            "heaps": options.heaps,
            "after each round: MiB, threads, files, MiB held": samples,
            "wrong": wrong,
        }
    )
    return wrong


def described(piece: dict[str, Any]) -> str:
    """Return a piece's figures as a row of a Markdown table."""
    samples = piece["after each round: MiB, threads, files, MiB held"]
    cells = [f"{piece['seconds'] / 60:.0f}", str(piece["requests"]), str(len(samples))]
    cells.append("one" if piece["heaps"] == 1 else "glibc's")
    held = [s[3] for s in samples[WARM_ROUNDS:]]
    if len(held) >= FEWEST_ROUNDS:
        half = len(held) // 2
        rise, interval = slope(held)
        cells += [f"{min(held):.0f} to {max(held):.0f}", f"{rise:+.3f} ± {interval:.3f}"]
        cells += [f"{max(held[:half]):.0f}, {max(held[half:]):.0f}"]
    else:
        cells += ["too few rounds", "", ""]
    for column in (0, 1, 2):
        seen = [s[column] for s in samples[WARM_ROUNDS:]] or [0]
        cells.append(f"{min(seen):.0f} to {max(seen):.0f}")
    return f"| {' | '.join([*cells, '; '.join(piece['wrong']) or 'nothing'])} |"


def tell(pieces: list[dict[str, Any]]) -> None:
    """Print pieces as a Markdown table, and their sum."""
    print(
        "| minutes | requests | rounds | heaps | MiB held after a round | slope, MiB a round "
        "| highest of either half | MiB given | threads | files | wrong |"
    )
    print("|---" * 11 + "|")
    for one in pieces:
        print(described(one))
    print(
        f"\nin all: {sum(p['requests'] for p in pieces)} requests in "
        f"{sum(p['seconds'] for p in pieces) / 60:.0f} minutes, {len(pieces)} pieces, "
        f"{sum(len(p['wrong']) for p in pieces)} wrong"
    )


def main() -> int:
    """Run one piece and tell the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--source", type=Path, help="the patched source")
    parser.add_argument("--server", type=Path, help="of the unpacked bundle")
    parser.add_argument("--state", type=Path, help="what was done so far")
    parser.add_argument("--sum", type=Path, nargs="+", help="only tell what these states have")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heaps", type=int, default=0, help="of glibc; 0: a heap for each thread")
    parser.add_argument("--pause", type=float, default=0.3, help="mean seconds between requests")
    options = parser.parse_args()
    if options.sum:
        states = [json.loads(path.read_text(encoding="utf-8")) for path in options.sum]
        tell([piece for state in states for piece in state["pieces"]])
        return 0
    if not (options.source and options.server and options.state):
        parser.error("--source, --server and --state, or --sum")
    state: dict[str, Any] = {"seed": options.seed, "pieces": []}
    if options.state.exists():
        state = json.loads(options.state.read_text(encoding="utf-8"))
    template = (options.source / "models" / "templates" / XML).read_text(encoding="utf-8")
    template += WANTS_HUGE
    # the cache of prompts may take 8 GiB by default: with a small bound it is soon full, and flat
    settings = ("-np", str(SLOTS), "-c", "32768", "--cache-ram", "32")
    scripts = {"\n": SAYS, " ": HUGE_CALL}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        held = Held(folder)
        if options.heaps:
            held.environment["MALLOC_ARENA_MAX"] = str(options.heaps)
        os.environ.update(held.environment)  # the server's, as its parent's
        with serving(options.server, folder, scripts, template, *settings, longest=14) as server:
            wrong = piece(server, held, state, options)
    options.state.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    tell(state["pieces"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
