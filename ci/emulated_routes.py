"""Take every way through llama.cpp that ends in a matrix product of own-blas, on the emulated GPU.

    python ci/emulated_routes.py ZIP --results FILE.jsonl [--only WORD]

Prompts of some hundred tokens (shorter ones go through other kernels) with weights that are not
quantised, a router of experts, an adapter, a picture, embeddings, no flash attention, two devices.
Each row compares the zip's CUDA backend with its CPU backend, and must have launched kernels of
own-blas; the operators that call BLAS themselves are cases of `qbuild test RECIPE --emulate`. What
has a result in FILE is not run again. Ends with 1 when a row is wrong.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import platformdirs
from emulated_models import NO_HALVES, read

from qbuild.console import Silent
from qbuild.emulator import gpus, report
from qbuild.errors import VerifyError
from qbuild.hashing import sha256_file
from qbuild.store import Store
from qbuild.verify import emulate
from qbuild.verify.emulate import Session, Setting
from support import emulated_models as models
from support import gguf_files as g

PROMPT = (
    "Every matrix of this model is multiplied with the numbers of more than a hundred tokens at "
    "once, which is more than the kernels for few columns take."
)
"""The tokenizer of the test models knows letters only: one token for each."""


@dataclass(frozen=True)
class Row:
    """One way: a model, and how the server is started.

    Args:
        name: The row's name.
        model: Writes the model into a folder, with what belongs to it.
        flags: Options of the server; ``{folder}`` is where the model lies.
        devices: Number of GPUs.
        cpu_flags: Options of the run on the CPU.
        request: Further keys of the request.
        embeds: Compare embeddings, not tokens.
    """

    name: str
    model: Callable[[Path], Path]
    flags: tuple[str, ...] = ("-fa", "on")
    devices: int = 1
    cpu_flags: tuple[str, ...] = ()
    request: dict[str, Any] | None = None
    embeds: bool = False


def written(kind: str, type_: str) -> Callable[[Path], Path]:
    """Return what writes a model of a kind and a tensor type."""
    return lambda folder: models.write(folder / f"{kind}-{type_}.gguf", kind, type_)


def with_adapter(folder: Path) -> Path:
    """Write a quantised model and an adapter that is not."""
    models.lora(folder / "lora.gguf", "f16")
    return written("dense", "q4_0")(folder)


def with_projector(folder: Path) -> Path:
    """Write a model that takes pictures, and its projector."""
    models.fill(folder / "mmproj.gguf", "projector", *g.projector(deepstack=1))
    return models.fill(folder / "vision.gguf", "vision", *g.qwen3vl("q4_0"))


def picture(width: int = 128, height: int = 128) -> str:
    """Return a PNG with random colours, as base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        raw = kind + data
        return len(data).to_bytes(4, "big") + raw + zlib.crc32(raw).to_bytes(4, "big")

    noise = hashlib.shake_256(b"qbuild picture").digest(width * height * 3)
    rows = (b"\0" + noise[at : at + width * 3] for at in range(0, len(noise), width * 3))
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    data = zlib.compress(b"".join(rows))
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    ).decode()


MARKER = "<__media__>"
NO_FLASH = ("-fa", "off")
ROWS = (
    *(Row(f"weights-{type_}", written("dense", type_)) for type_ in ("f32", "f16", "bf16")),
    Row("no-flash-attention", written("dense", "q4_0"), NO_FLASH),
    Row("no-flash-attention-f16", written("dense", "f16"), NO_FLASH),
    Row("router", written("experts", "q4_K")),
    Row("experts-f16", written("experts", "f16")),
    Row("delta-net-f16", written("delta-net", "f16")),
    Row("adapter", with_adapter, ("-fa", "on", "--lora", "{folder}/lora.gguf")),
    Row("embeddings", written("dense", "f16"),
        ("-fa", "on", "--embeddings", "--pooling", "mean"), embeds=True),
    Row("picture", with_projector, ("-fa", "on", "--mmproj", "{folder}/mmproj.gguf"),
        cpu_flags=("--no-mmproj-offload",),
        request={"prompt": {"prompt_string": f"A {MARKER} of", "multimodal_data": [picture()]}}),
    *(Row(f"two-devices-{mode}", written("dense", "f16"), ("-fa", "on", "-sm", mode), devices=2)
      for mode in ("layer", "tensor")),
)  # fmt: skip


def embeddings(session: Session, model: Path, setting: Setting) -> tuple[list[str], str]:
    """Compare a text's embedding on both backends; return what is wrong, and what was seen."""

    def ask(flags: tuple[str, ...]) -> list[float]:
        said = json.loads(session.serve(model, flags, "/embedding", {"content": PROMPT}))
        (vector,) = said[0]["embedding"]
        return [float(number) for number in vector]

    cpu = ask(setting.on_cpu)
    gpu = ask((*setting.flags, "-ngl", "99"))
    # Of unit length, by the server: noise of F16 activations on either side is a thousandth.
    apart = sum((a - b) ** 2 for a, b in zip(cpu, gpu, strict=True)) ** 0.5
    problems = [f"embeddings differ by {apart:.3g}"] if not apart < 0.01 else []
    return problems, f"{len(cpu)} numbers, {apart:.2g} apart"


def run(args: argparse.Namespace, todo: list[Row]) -> Iterator[dict[str, Any]]:
    """Run rows; yield what each showed."""
    store = Store(Path(args.store or platformdirs.user_cache_dir("qbuild", appauthor=False)))
    for devices in (1, 2):
        rows = [row for row in todo if row.devices == devices]
        if not rows:
            continue
        gpu = [gpus.find(args.gpu)] * devices
        with (
            tempfile.TemporaryDirectory() as scratch,
            emulate.prepared(args.zip, gpu, home=store, reporter=Silent()) as session,
        ):
            if not isinstance(session, Session):
                sys.exit("\n".join((session.title, *session.details)))
            env = {**session.runner.env, "LLAMA_MEDIA_MARKER": MARKER}  # by chance otherwise
            session.runner = replace(session.runner, env=env)
            for row in rows:
                yield one(session, row, Path(scratch))


def one(session: Session, row: Row, folder: Path) -> dict[str, Any]:
    """Run one row."""
    started = time.monotonic()
    model = row.model(folder)
    flags = tuple(flag.replace("{folder}", str(folder)) for flag in row.flags)
    setting = Setting(name=row.name, flags=flags, cpu_flags=row.cpu_flags)
    before = session.reported()
    if row.embeds:
        try:
            problems, seen = embeddings(session, model, setting)
        except VerifyError as error:
            problems, seen = [error.what], ""
    else:
        more = {"logit_bias": NO_HALVES, **(row.request or {})}
        check = session.compare(model, PROMPT, setting, more)
        problems = [] if check.status == "passed" else list(check.details)
        seen = "; ".join(check.details)
    ran = report.read(session.reported()[len(before) :])
    products = sorted({each.kernel for each in ran if each.unit == "own-blas"})
    if not products:
        problems.append("no kernel of own-blas ran")
    return {
        "row": row.name, "problems": problems, "seen": seen, "products": products,
        "kernels": len({(each.unit, each.kernel) for each in ran}),
        "seconds": round(time.monotonic() - started, 1),
    }  # fmt: skip


def main() -> int:
    """Fill the table, print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("zip", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--gpu", default="GTX 1060")
    parser.add_argument("--only", default="")
    parser.add_argument("--store")
    args = parser.parse_args()
    id = sha256_file(args.zip)
    known = read(args.results)
    rows = [row for row in ROWS if args.only in row.name]
    for result in run(args, [row for row in rows if id + row.name not in known]):
        known[id + result["row"]] = result
        with args.results.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"zip": id, **result}) + "\n")
        verdict = "wrong: " + "; ".join(result["problems"]) if result["problems"] else "right"
        print(f"{result['row']}: {verdict}; {result['seen']}; {len(result['products'])} kernels of "
              f"own-blas, {result['seconds']:.0f} s", flush=True)  # fmt: skip
    wrong = [row.name for row in rows if known[id + row.name]["problems"]]
    print(f"{len(rows)} rows, {len(wrong)} wrong: {', '.join(wrong) or '-'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
