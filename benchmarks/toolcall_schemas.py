"""What hard schemas of a client's tools cost the parser and the server, as a Markdown table.

    python benchmarks/toolcall_schemas.py --source PATCHED_SOURCE --server BUNDLE/llama-server \\
        [--random 40] [--seed 1]

Schemas come from a generator: ``$ref`` cycles and chains, depth 10,000, 1 MB of properties or
values, just below each bound, and random ones of every keyword. ``toolcall_parser.c`` reads each
with the library beside the server; then a server with the template of Qwen3.5 (XML) and one of
Qwen3 (JSON) are asked with it. Their context is so small that no long prompt is computed, which is
the model's time: schema, prompt, grammar and tokens are made before that is found. CPU time, the
least of three, and the memory above what was there before. As the schema is part of the prompt, the
first server is asked with the same text as a message without tools, too: that is what reading,
rendering and cutting up so much text takes. Exit status 1: for one schema the parser needs more
than 100 ms or 64 MiB, a server needs more than that above the text alone, or one ended a server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from toolcall_slopes import compiled, cost

from support.scripted_server import HERMES, NO_THINKING, XML, Server, post, serving

ROUNDS = 3
SECONDS, MEBIBYTES = 0.1, 64.0
CHAT = "/v1/chat/completions"


def object_of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an object's schema."""
    return {"type": "object", "properties": properties, **more}


def cycles(count: int) -> dict[str, Any]:
    """Return types that are each any of all."""
    refs = [{"$ref": f"#/$defs/a{k}"} for k in range(count)]
    return object_of(
        {"x": refs[0], "y": {"allOf": refs}},
        **{"$defs": {f"a{k}": {"anyOf": refs} for k in range(count)}},
    )


def nested(depth: int, keyword: str) -> dict[str, Any]:
    """Return a schema that is nested that deep in one keyword; JSON text is made elsewhere."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        if keyword == "properties":
            schema = object_of({"a": schema}, required=["a"])
        elif keyword == "items":
            schema = {"type": "array", "items": schema}
        elif keyword == "type":
            schema = {"type": ["object", "array", "null"], "properties": {"a": schema}}
        else:
            schema = {keyword: [schema, {"type": "null"}]}
    return schema


def wide(count: int, required: bool = False) -> dict[str, Any]:
    """Return an object of that many properties."""
    properties = {f"parameter_{k}": {"type": "string"} for k in range(count)}
    return object_of(properties, **({"required": list(properties)} if required else {}))


def referring(count: int) -> dict[str, Any]:
    """Return properties that all refer to a chain of types."""
    types = chain(count, count + 1)["$defs"]
    first = {"$ref": "#/$defs/d0/t0"}
    return object_of({f"p{k}": first for k in range(count)}, **{"$defs": types})


def chain(length: int, per_object: int) -> dict[str, Any]:
    """Return a property whose type leads through that many references to an integer."""
    groups: dict[str, dict[str, Any]] = {}
    for n in range(length + 1):
        following = {"$ref": f"#/$defs/d{(n + 1) // per_object}/t{n + 1}"}
        group = groups.setdefault(f"d{n // per_object}", {})
        group[f"t{n}"] = following if n < length else {"type": "integer"}
    return object_of({"n": {"$ref": "#/$defs/d0/t0"}}, **{"$defs": groups})


def each(count: int, schema: dict[str, Any]) -> dict[str, Any]:
    """Return an object of that many properties of one schema."""
    return object_of({f"p{k}": schema for k in range(count)})


def parts(count: int) -> dict[str, Any]:
    """Return types that are all of the next one and a property more."""
    types: dict[str, Any] = {f"a{count}": each(1, {"type": "integer"})}
    for k in range(count):
        more = object_of({f"q{k}": {"type": "integer"}})
        types[f"a{k}"] = {"allOf": [{"$ref": f"#/$defs/a{k + 1}"}, more]}
    return object_of({"x": {"$ref": "#/$defs/a0"}}, **{"$defs": types})


def near_the_bounds() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and schema of those that are just accepted."""
    yield "4,000 properties of anything, nested", each(4, each(999, {}))
    typed = {"type": ["string", "integer", "null"]}
    yield "1,000 properties of three types", each(1000, typed)
    pattern = {"type": "string", "pattern": "^[a-z]{3,20}(foo|bar)+$"}
    yield "1,000 patterns", each(1000, pattern)
    yield "500 types that are all of the next", parts(500)
    items = {"type": "array", "prefixItems": [{"type": "integer"}] * 4000}
    yield "a list of 4,000 types", each(1, items)
    one_of = {"anyOf": [each(1, {"type": "integer"}) for _ in range(1000)]}
    yield "any of 1,000 objects", each(1, one_of)
    yield "8,000 short values in `enum`", each(1, {"enum": [f"value {n}" for n in range(8000)]})
    long_values = {"enum": [f"value {n} " + "of many words " * 8 for n in range(8000)]}
    yield "8,000 long values in `enum`", each(1, long_values)


def any_schema(dice: random.Random, depth: int) -> dict[str, Any]:
    """Return a random schema, with references into itself."""
    kind = dice.randrange(12)
    if depth <= 0 or kind < 4:
        plain: list[dict[str, Any]] = [
            {"type": dice.choice(["string", "integer", "number", "boolean", "null"])},
            {"enum": [dice.choice(["a", 1, None, True, 2.5]) for _ in range(dice.randrange(1, 9))]},
            {"const": dice.choice(["x", 3, None])},
            {"type": "string", "minLength": dice.randrange(9), "maxLength": dice.randrange(9, 99)},
            {
                "type": "integer",
                "minimum": dice.randrange(-99, 1),
                "maximum": dice.randrange(1, 9999),
            },
            {"$ref": f"#/$defs/d{dice.randrange(4)}"},
            {},
        ]
        return dice.choice(plain)
    several = [any_schema(dice, depth - 1) for _ in range(dice.randrange(1, 6))]
    if kind < 8:
        properties = {f"k{n}": schema for n, schema in enumerate(several)}
        return object_of(properties, required=dice.sample(list(properties), len(properties) // 2))
    if kind < 10:
        most = dice.randrange(1, 50)
        return {"type": "array", "items": several[0], "maxItems": most}
    return {dice.choice(["anyOf", "oneOf", "allOf"]): several}


def hard() -> Iterator[tuple[str, str]]:
    """Yield name and JSON text of the made ones."""
    for count in (2, 6, 12, 40):
        yield f"{count} types that are each any of all", json.dumps(cycles(count))
    yield "a type that is itself", json.dumps(object_of({"x": {"$ref": "#"}}))
    for keyword in ("properties", "items", "anyOf", "allOf", "type"):
        yield f"`{keyword}` 60 deep", json.dumps(nested(60, keyword))
    deep = '{"anyOf":[' * 10_000 + "{}" + "]}" * 10_000
    yield "`anyOf` 10,000 deep", '{"type":"object","properties":{"x":' + deep + "}}"
    for count in (100, 1000, 2000):
        yield f"{count} properties", json.dumps(wide(count))
        yield f"{count} properties, all required", json.dumps(wide(count, required=True))
    yield "1,000 properties through a chain of 1,000", json.dumps(referring(1000))
    yield "20,000 references in a chain", json.dumps(chain(20_000, 1000))
    for name, schema in near_the_bounds():
        yield name, json.dumps(schema)
    yield "1 MB of properties", json.dumps(wide(24_000))
    values = {"x": {"enum": [f"value {n}" for n in range(60_000)]}}
    yield "1 MB of `enum`", json.dumps(object_of(values))
    yield "1 MB of numbers in `enum`", json.dumps(object_of({"x": {"enum": [1] * 340_000}}))
    yield "1 MB of description", json.dumps(object_of({"x": {"description": "x " * 500_000}}))


def generated(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield name and JSON text of random ones."""
    for number in range(count):
        dice = random.Random(f"{seed} {number}")
        properties = {f"p{n}": any_schema(dice, 5) for n in range(dice.randrange(1, 12))}
        definitions = {f"d{n}": any_schema(dice, 4) for n in range(4)}
        yield f"random {number}", json.dumps(object_of(properties, **{"$defs": definitions}))


def reset_peak(process: psutil.Process) -> None:
    """Let the process's largest memory count from now on."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")


def peak_mib(process: psutil.Process) -> float:
    """Return the process's largest memory since then, in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def running_seconds(process: psutil.Process) -> float:
    """Return the CPU time of all threads of a process so far, which the system counts in ns."""
    spent = 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        spent += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    return spent / 1e9


Outcome = tuple[str, float, float]
"""What became of a request, CPU seconds, MiB."""
HEAD = {"max_tokens": 1, **NO_THINKING}


def through(server: Server, data: bytes) -> Outcome:
    """Return what became of a request."""
    process = psutil.Process(server.process.pid)
    status, text, seconds, memory = 0, "", 1e9, 0.0
    for _ in range(ROUNDS):
        reset_peak(process)
        start, resident = running_seconds(process), peak_mib(process)
        try:
            status, text = post(server, CHAT, data)
        except OSError:
            return "gone", 0.0, 0.0
        seconds = min(seconds, running_seconds(process) - start)
        memory = max(memory, peak_mib(process) - resident)
    taken = status == 200 or "exceed" in text
    return "taken" if taken else f"HTTP {status}", seconds, memory


def with_tool(schema: str) -> bytes:
    """Return a request with a tool of that schema."""
    head = json.dumps({"messages": [{"role": "user", "content": "hi"}], **HEAD})
    tool = '{"type":"function","function":{"name":"t","parameters":' + schema + "}}"
    return (head[:-1] + f', "tools": [{tool}]}}').encode()


def as_message(schema: str) -> bytes:
    """Return a request with that text and no tool."""
    return json.dumps({"messages": [{"role": "user", "content": schema}], **HEAD}).encode()


class Restarted:
    """A server for each template, started anew when a schema ended one."""

    def __init__(self, binary: Path, templates: list[str], folder: Path) -> None:
        self.binary = binary
        self.templates = templates
        self.folder = folder
        self.stack = contextlib.ExitStack()
        self.servers: list[Server] = []

    def __enter__(self) -> Restarted:
        for number, template in enumerate(self.templates):
            place = self.folder / str(number)
            place.mkdir(exist_ok=True)
            server = serving(self.binary, place, "Fine.", template, "-c", "512", context=512)
            self.servers.append(self.stack.enter_context(server))
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.clear()
        with contextlib.suppress(AssertionError):  # one is gone
            self.stack.close()

    def ask(self, schema: str) -> list[Outcome]:
        """Ask each server with a tool of that schema, and the first one with its text."""
        data = with_tool(schema)
        came = [through(server, data) for server in self.servers]
        if came[0][0] == "taken":
            came.append(through(self.servers[0], as_message(schema)))
        else:
            came.append(("", 0.0, 0.0))
        if any(what == "gone" for what, _, _ in came):
            self.__exit__()
            self.__enter__()
        return came


def beyond(outcome: Outcome, text: Outcome) -> bool:
    """Is it more than the bounds, and more than the bounds above the text alone?"""
    return outcome[1] - text[1] > SECONDS or outcome[2] - text[2] > MEBIBYTES


def row(name: str, size: int, parser: tuple[float, float], came: list[Outcome]) -> str:
    """Return a row of the table."""
    cells = [name, f"{size / 1000:.1f}", f"{1e3 * parser[0]:.1f}", f"{parser[1]:.0f}"]
    for what, seconds, memory in came[:2]:
        cells += [what, f"{1e3 * seconds:.0f}", f"{memory:.0f}"]
    cells += [f"{1e3 * came[2][1]:.0f}", f"{came[2][2]:.0f}"] if came[2][0] else ["", ""]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--source", type=Path, required=True, help="the patched source")
    parser.add_argument("--server", type=Path, required=True, help="of an unpacked bundle")
    parser.add_argument("--random", type=int, default=40, help="so many random schemas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    library = options.server.absolute().with_name("libllama.so.0")
    templates = [options.source / "models" / "templates" / name for name in (XML, HERMES)]
    worst, bad, gone = [0.0] * 6, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = compiled(options.source, library, folder)
        texts = [template.read_text(encoding="utf-8") for template in templates]
        print(
            "| schema | KB | parser, ms | MiB | XML | ms | MiB | JSON | ms | MiB "
            "| text alone, ms | MiB |"
        )
        print("|---" * 12 + "|")
        with Restarted(options.server, texts, folder) as servers:
            for what, schema in (*hard(), *generated(options.seed, options.random)):
                file = folder / "tools.json"
                file.write_text(f'[{{"name":"t","parameters":{schema}}}]', encoding="utf-8")
                parser_cost = cost(driver, "schema", str(file), str(ROUNDS))
                first, second, text = servers.ask(schema)
                figures = [*parser_cost, first[1], first[2], second[1], second[2]]
                worst = [max(pair) for pair in zip(worst, figures, strict=True)]
                is_gone = "gone" in (first[0], second[0])
                is_bad = beyond(first, text) or beyond(second, text)
                gone, bad = gone + is_gone, bad + is_bad
                if not what.startswith("random") or is_gone or is_bad:
                    print(row(what, len(schema), parser_cost, [first, second, text]), flush=True)
    times = [
        f"{1e3 * t:.1f} ms and {m:.0f} MiB" for t, m in zip(worst[::2], worst[1::2], strict=True)
    ]
    print(
        f"\nworst, with {options.random} random ones (seed {options.seed}): parser {times[0]}, "
        f"XML server {times[1]}, JSON server {times[2]}; {bad} beyond the bounds above their text "
        f"alone; {gone} ended a server"
    )
    return 0 if worst[0] <= SECONDS and worst[1] <= MEBIBYTES and not bad and not gone else 1


if __name__ == "__main__":
    sys.exit(main())
