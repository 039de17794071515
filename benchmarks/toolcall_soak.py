"""Mixed requests at a finished server for a long time: memory, threads and files must stay flat.

    python benchmarks/toolcall_soak.py --source PATCHED_SOURCE --server BUNDLE/llama-server \\
        --state soak.json --minutes 15 [--seed 1] [--pause 0.3]

A scripted model says prose and a tool call, or one whose arguments have 1 MB. Requests, drawn by
the seed: whole and streamed ones of the three APIs, malformed bodies and schemas, 1 MB of arguments
in the answer and in the history, streams that the client leaves in the middle, 30 at once.
``--state`` remembers what was done, so that the next run goes on; the server starts anew with each
piece. Every answer is checked; memory, threads and open files are sampled. Exit status 1: an answer
was wrong, or the server grew after the first requests: its memory in the last third of a piece is
above the first third's by more than 5 % and 8 MiB, or there are more threads or files.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import random
import socket
import statistics
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
SAMPLE = 5.0
"""Seconds between two samples."""
WARM_UP = {"huge_history": 16, "huge_answer": 16, "many": 4}
"""What a piece begins with: the slots, the cache and the threads' heaps get their largest."""


def chat(**more: Any) -> dict[str, Any]:
    """Return a chat request that is answered with the call."""
    return {"messages": HI, "tools": TOOLS, "max_tokens": 200, **NO_THINKING, **more}


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
    "chat_whole": 10, "chat_streamed": 10, "responses": 8, "messages": 8, "second_turn": 8,
    "malformed": 10, "cycle": 3, "left": 8, "huge_history": 1, "huge_answer": 2, "many": 2,
}  # fmt: skip
ONE_AT_A_TIME = [kind for kind in WEIGHTS if kind not in ("many", "huge_history")]


def sample(process: psutil.Process) -> tuple[float, int, int]:
    """Return memory in MiB, threads and open files of the server."""
    with process.oneshot():
        return process.memory_info().rss / 2**20, process.num_threads(), process.num_fds()


def grown(samples: list[tuple[float, int, int]]) -> str:
    """Return what grew between the first and the last third of a piece, "" when nothing did."""
    third = len(samples) // 3
    if third < 3:
        return ""
    for column, name in enumerate(("memory", "threads", "files")):
        first, last = (
            statistics.median(s[column] for s in part)
            for part in (samples[:third], samples[-third:])
        )
        if last > first * 1.05 + (8 if name == "memory" else 1):
            return f"{name} grew from {first:.0f} to {last:.0f}"
    return ""


def piece(server: Server, state: dict[str, Any], minutes: float, pause: float) -> list[str]:
    """Send requests for some minutes; return what was wrong and add the figures to the state."""
    process = psutil.Process(server.process.pid)
    requests = Requests(server)
    wrong: list[str] = []
    samples: list[tuple[float, int, int]] = []
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for kind, times in WARM_UP.items():
        for number in range(times):
            getattr(requests, kind)(random.Random(f"{kind} {number}"))
    due = time.monotonic()
    while time.monotonic() - start < 60 * minutes and server.process.poll() is None:
        number = state["requests"]
        dice = random.Random(f"{state['seed']} {number}")
        kind = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        try:
            getattr(requests, kind)(dice)
        except Exception as error:  # whatever a client would stumble over
            wrong.append(f"request {number} ({kind}): {type(error).__name__}: {error}"[:400])
            print(wrong[-1], file=sys.stderr, flush=True)
        state["requests"] += 1
        counts[kind] += AT_ONCE if kind == "many" else 1
        if time.monotonic() >= due:
            samples.append(sample(process))
            due = time.monotonic() + SAMPLE
        time.sleep(dice.random() * 2 * pause)
    if server.process.poll() is not None:
        wrong.append("the server is gone")
    growth = grown(samples)
    if growth:
        wrong.append(growth)
    columns = list(zip(*samples, strict=True))
    spread = [
        [round(c[0]), round(statistics.median(c)), round(c[-1]), round(max(c))] for c in columns
    ]
    state["pieces"].append(
        {
            "seconds": round(time.monotonic() - start),
            "requests": sum(counts.values()),
            "kinds": dict(counts),
            "memory, threads, files: first, median, last, most": spread,
            "wrong": wrong,
        }
    )
    return wrong


def main() -> int:
    """Run one piece and tell the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--source", type=Path, required=True, help="the patched source")
    parser.add_argument("--server", type=Path, required=True, help="of the unpacked bundle")
    parser.add_argument("--state", type=Path, required=True, help="what was done so far")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.3, help="mean seconds between requests")
    options = parser.parse_args()
    state: dict[str, Any] = {"seed": options.seed, "requests": 0, "pieces": []}
    if options.state.exists():
        state = json.loads(options.state.read_text(encoding="utf-8"))
    template = (options.source / "models" / "templates" / XML).read_text(encoding="utf-8")
    template += WANTS_HUGE
    # the cache of prompts may take 8 GiB by default: with a small bound it is soon full, and flat
    settings = ("-np", "4", "-c", "32768", "--cache-ram", "32")
    scripts = {"\n": SAYS, " ": HUGE_CALL}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(options.server, Path(folder), scripts, template, *settings, longest=14) as server,
    ):
        wrong = piece(server, state, options.minutes, options.pause)
    options.state.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    pieces = state["pieces"]
    last = pieces[-1]
    figures = last["memory, threads, files: first, median, last, most"]
    print(f"this piece: {last['requests']} requests in {last['seconds']} s, {len(wrong)} wrong")
    for name, (first, median, end, most) in zip(("MiB", "threads", "files"), figures, strict=True):
        print(f"  {name}: first {first}, median {median}, last {end}, most {most}")
    print(
        f"in all: {sum(p['requests'] for p in pieces)} requests in "
        f"{sum(p['seconds'] for p in pieces) / 60:.0f} minutes, {len(pieces)} pieces, "
        f"{sum(len(p['wrong']) for p in pieces)} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
