"""Whole small models of every architecture that the pin knows, made by the pin's own rules.

The keys come from upstream's test of all architectures (``tests/test-llama-archs.cpp``, read from
the source tree), the tensors from the loader's own functions: each is made as it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbuild.modelfile.header import List
from qbuild.modelfile.loader import _PLAIN, _ROWS, Loader, Weight, program
from qbuild.modelfile.program import Machine, Node, RefusedError, Scope, UnsureError
from support import gguf_files as g

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ci"))

from cpp_reader import Reader
from gguf_loader import simple


class Keys(Machine):
    """Runs get_gguf_ctx of upstream's test and gathers what it writes."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        self.arch = arch
        self.row = program()["architectures"][arch]
        self.keys: dict[str, Any] = {}

    def name(self, name: str) -> Any:
        return f"LLM_ARCH_{self.row['enum']}" if name == "arch" else name

    def call(self, name: str, arguments: list[Node], scope: Scope) -> Any:
        given = [
            self.value(each, scope)
            for each in arguments
            if not (isinstance(each, str) and each in program()["keys"])
        ]
        if name == "ms.add_kv":
            key = program()["keys"][arguments[0]].replace("%s", self.arch)
            self.keys[key] = given[0]
            return None
        if name == "llm_arch_name":
            return self.arch
        if name.startswith("std::vector"):
            items = given[0] if isinstance(given[0], list) else [0] * given[0]
            if isinstance(given[0], int) and len(given) > 1:
                items = [given[1]] * given[0]
            if "float" in name:
                items = [float(each) for each in items]
            return g.Unsigned64(items) if "uint64" in name else items
        if name in ("uint32_t", "uint64_t", "float"):
            return float(given[0]) if name == "float" else given[0]
        if name == "std::to_string":
            return str(given[0])
        if name == "GGML_ASSERT":
            assert given[0]
            return None
        if "." in name:
            head, _, rest = name.rpartition(".")
            return self.method(self.value(head, scope), rest, arguments, scope)
        raise UnsureError(name)

    def _s_let(self, node: Node, scope: Scope) -> None:
        super()._s_let(node, scope)
        name = node[2]
        if isinstance(scope[name], list) and "uint64" in node[1]:
            scope[name] = g.Unsigned64(scope[name])


def keys_of(source: Path, arch: str, *, experts: bool) -> dict[str, Any]:
    """Return the keys of upstream's fixture for an architecture."""
    text = (source / "tests" / "test-llama-archs.cpp").read_text(encoding="utf-8")
    begin = text.index("llama_model_saver ms(arch, ret.get());") + 38
    end = text.index("for (uint32_t il = 0; il < n_layer; il++) {\n        ggml_tensor t;")
    body = simple(Reader(text[begin:end], "get_gguf_ctx").body())
    machine = Keys(arch)
    machine.invoke(["moe"], body, [experts], {})
    return machine.keys


class Maker(Loader):
    """A loader whose file holds every tensor that is asked for."""

    def created_tensor(self, name: str, kind: str, sides: list[int], flag: int) -> Weight | None:
        bits = self.table["constants"]
        if flag & bits["TENSOR_SKIP_IF_VIRTUAL"]:
            return None
        if name not in self.weights:
            if flag & bits["TENSOR_NOT_REQUIRED"] and min(sides) <= 0:
                return None
            if min(sides) < 1:
                raise RefusedError(f"{name}: {sides}")
            operation = self.table["operations"][kind][1]
            f32 = len(sides) == 1 or name.endswith("bias") or operation in _PLAIN or kind in _ROWS
            self.weights[name] = Weight(
                name=name, sides=tuple(sides), type="GGML_TYPE_F32" if f32 else "GGML_TYPE_F16"
            )
        return super().created_tensor(name, kind, sides, flag)


def model(keys: Mapping[str, Any], folder: Path) -> g.Tensors:
    """Return the tensors that the loader asks for with these keys."""
    from qbuild.modelfile.header import read_header

    head = read_header(g.write(folder / "keys.gguf", keys, []))
    tokens = head.keys.get("tokenizer.ggml.tokens")
    vocabulary = tokens.count if isinstance(tokens, List) else 0
    maker = Maker(head, (), str(keys["general.architecture"]), vocabulary)
    maker.hyperparameters()
    maker.tensors()
    kinds = {"GGML_TYPE_F32": "f32", "GGML_TYPE_F16": "f16"}
    return [(each.name, each.sides, kinds[each.type]) for each in maker.weights.values()]
