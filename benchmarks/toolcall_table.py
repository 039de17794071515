"""What becomes of each handed tool-call case, unpatched and patched, as a Markdown table.

    python benchmarks/toolcall_table.py --test BUILD/bin/test-chat-salvage --source LLAMA_CPP \\
        --server PATCHED/llama-server --unpatched UNPATCHED/llama-server

The first columns drive the parsers directly (``test-chat-salvage --table``), the last ones a real
llama-server with a scripted model. JSON cases run there with the XML template, as a server whose
grammar is awake for JSON cannot be made to say them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from integration import test_toolcalls_server as server_tests

COLUMNS = ("parser", "parser, stream", "server", "server, stream")


def verdict(case: dict[str, Any], answer: server_tests.Answer) -> str:
    """Name what became of a case."""
    try:
        parsed = answer.parsed()
    except ValueError:
        return "invalid JSON"
    if any(not isinstance(call["arguments"], dict) for call in parsed):
        return "invalid JSON"
    if case["calls"] is not None and parsed != case["calls"]:
        return "lost call" if len(parsed) < len(case["calls"]) else "wrong call"
    if case["content"] is not None and answer.content != case["content"]:
        return "lost text"
    return "right"


class Loose(server_tests.Server):
    """A server whose answers may be malformed: nothing is checked while they come."""

    strict = False

    def verdict(self, case: dict[str, Any], *, stream: bool, **more: Any) -> str:
        """Ask, and name what came."""
        try:
            return verdict(case, self.ask(stream=stream, **more))
        except server_tests.openai.InternalServerError:
            return "HTTP 500"
        except server_tests.openai.APIError:
            return "cut stream" if stream else "error"
        except ValueError:
            return "invalid JSON"


def through_server(binary: Path, case: dict[str, Any], templates: Path, patched: bool) -> list[str]:
    """Return the verdicts without and with streaming."""
    script = case["text"]
    thinks = script.startswith("<think>\n")
    flags = ["--tool-call-format", "mtp"] if patched and case["format"] == "mtp" else []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "scripted.gguf"
        server_tests.scripted_gguf.write(
            model,
            script.removeprefix("<think>\n"),
            (templates / server_tests.XML).read_text(encoding="utf-8"),
            specials=server_tests.TAGS,
        )
        server = Loose(binary, model, Path(folder) / "log", *flags)
        try:
            more = server_tests.limit(case, model)
            more["extra_body"] = {"chat_template_kwargs": {"enable_thinking": thinks}}
            return [server.verdict(case, stream=stream, **more) for stream in (False, True)]
        finally:
            server.stop()


def history(binary: Path, case: dict[str, Any], templates: Path) -> list[str]:
    """Return the verdicts for a conversation with these arguments."""
    call = {"name": "read", "arguments": case["arguments"]}
    messages = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "go on"},
    ]
    wanted = {"calls": [], "content": "Fine, thank you.", "finish": "stop"}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "scripted.gguf"
        server_tests.scripted_gguf.write(
            model,
            "Fine, thank you.",
            (templates / server_tests.XML).read_text(encoding="utf-8"),
            specials=server_tests.TAGS,
        )
        server = Loose(binary, model, Path(folder) / "log")
        try:
            return [
                server.verdict(wanted, stream=stream, messages=messages) for stream in (False, True)
            ]
        finally:
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name in ("--test", "--source", "--server", "--unpatched"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--own", action="store_true", help="our own cases, too")
    options = parser.parse_args()
    templates = options.source / "models" / "templates"
    cases = options.source / "tests" / "tool-call-cases.json"
    done = subprocess.run(
        [str(options.test.absolute()), str(cases.absolute()), "--table"],
        cwd=options.source,
        capture_output=True,
        text=True,
        check=True,
    )
    direct = {row["id"]: row for row in map(json.loads, done.stdout.splitlines())}
    heads = [f"{who}: {column}" for who in ("unpatched", "patched") for column in COLUMNS]
    print("| case | " + " | ".join(heads) + " |")
    print("|" + "---|" * (len(heads) + 1))
    wrong = 0
    for case in server_tests.DATA["cases"]:
        if case["id"].startswith("own-") and not options.own:
            continue
        row = direct[case["id"]]
        cells = [row["upstream"], row["upstream_stream"]]
        cells += through_server(options.unpatched, case, templates, patched=False)
        cells += [row["patched"], row["patched_stream"]]
        cells += through_server(options.server, case, templates, patched=True)
        wrong += any(cell != "right" for cell in cells[4:])
        print(f"| {case['id']} | " + " | ".join(cells) + " |", flush=True)
    for case in server_tests.DATA["history"]:
        cells = ["-", "-", *history(options.unpatched, case, templates)]
        cells += ["-", "-", *history(options.server, case, templates)]
        wrong += any(cell not in ("right", "-") for cell in cells[4:])
        print(f"| {case['id']} (`{case['arguments']}`) | " + " | ".join(cells) + " |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
