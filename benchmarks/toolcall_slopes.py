"""How the tool-call parser's time grows with an answer, shape by shape, as a Markdown table.

    python benchmarks/toolcall_slopes.py --source PATCHED_SOURCE --library BUNDLE/libllama.so.0 \\
        [--rounds 7] [--only parameters]

``toolcall_parser.c`` is compiled against the library and reads answers of 64 KiB and 1 MiB, four
bytes at a time as a server does for each token. CPU time of that process, the least of the rounds;
the slope is log(time ratio) over log(size ratio): 1 is linear, 2 quadratic. Exit status 1: one is
above 1.1.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = (65536, 1048576)
STEEPEST = 1.1
XML_VALUE = "<tool_call><function=a><parameter=b>\n"
JSON_VALUE = '<tool_call>{"name":"a","arguments":{"b":"'
JSON_CALL = '<tool_call>{"name":"a","arguments":{}}</tool_call> '
XML_CALL = "<tool_call>\n<function=a>\n<parameter=b>\nc\n</parameter>\n</function>\n</tool_call>\n"
SHAPES: dict[str, tuple[str, str]] = {
    "prose": ("", "some <words> and more "),
    "reasoning": ("<think>", "some <words> and more "),
    "open JSON string": (JSON_VALUE, "some <words> "),
    "open JSON array": ('<tool_call>{"name":"a","arguments":{"b":[', '[1,{"a":'),
    "open XML value": (XML_VALUE, "some <words> </parameter> and </function> "),
    "quotes": (JSON_VALUE, '" " '),
    "backslashes": (JSON_VALUE, "\\"),
    "end tags": (XML_VALUE, "</parameter>"),
    "end tags, lines": (XML_VALUE, "\n</parameter>"),
    "end tags, blanks": (XML_VALUE, "</parameter>         "),
    "half end tags": (XML_VALUE, "</parameter"),
    "end tags of calls": ("<tool_call>{", "</tool_call>"),
    "start tags": ("", "<tool_call>"),
    "parameters": ("<tool_call><function=a>", "<parameter=b>\nc\n</parameter>\n"),
    "JSON calls": ("", JSON_CALL),
    "XML calls": ("", XML_CALL),
    "broken calls": ("", '<tool_call>{"a": </tool_call> '),
    "open calls": ("", '<tool_call>{"a": " '),
    "calls in a think block": ("<think>", JSON_CALL),
    "calls in a fence": ("```\n", JSON_CALL),
    "backticks": ("", "`"),
    "white space": (JSON_CALL, " "),
}


def compiled(source: Path, library: Path, folder: Path) -> Path:
    """Compile the driver against the library and return it."""
    driver = folder / "toolcall_parser"
    code = Path(__file__).with_name("toolcall_parser.c")
    includes = [f"-I{source / name}" for name in ("include", "ggml/include")]
    command = ["cc", "-O1", "-std=gnu11", *includes, str(code), "-o", str(driver), str(library)]
    command += [f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(command, check=True)
    return driver


def cost(driver: Path, *arguments: str) -> tuple[float, float]:
    """Return CPU seconds and MiB that the driver prints."""
    done = subprocess.run(
        [str(driver), *arguments], capture_output=True, text=True, check=True, timeout=600
    )
    seconds, kib = done.stdout.split()
    return float(seconds), int(kib) / 1024


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--source", type=Path, required=True, help="the patched source")
    parser.add_argument("--library", type=Path, required=True, help="a patched libllama.so.0")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs=2, default=SIZES, help="in bytes")
    parser.add_argument("--only", nargs="*", choices=SHAPES, help="shapes, all by default")
    options = parser.parse_args()
    steepest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        driver = compiled(options.source, options.library.absolute(), Path(folder))
        first, last = (f"{size // 1024} KiB, ms" for size in options.sizes)
        print(f"| shape | {first} | {last} | ns a byte | slope | MiB |")
        print("|---|---|---|---|---|---|")
        for name, (start, again) in SHAPES.items():
            if options.only and name not in options.only:
                continue
            costs = [
                cost(driver, "answer", start, again, str(size), str(options.rounds))
                for size in options.sizes
            ]
            (small, _), (large, memory) = costs
            slope = math.log(large / small) / math.log(options.sizes[1] / options.sizes[0])
            steepest = max(steepest, slope)
            print(
                f"| {name} | {1e3 * small:.2f} | {1e3 * large:.2f} "
                f"| {1e9 * large / options.sizes[1]:.0f} | {slope:.2f} | {memory:.0f} |",
                flush=True,
            )
    print(f"\nsteepest: {steepest:.2f}")
    return 0 if steepest <= STEEPEST else 1


if __name__ == "__main__":
    sys.exit(main())
