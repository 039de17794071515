"""What the loader of projectors (mmproj files) says, worked out from its own functions.

As :mod:`qbuild.modelfile.loader` does for models: the functions of ``tools/mtmd/clip.cpp`` stand in
the same table. That loader asks for keys and tensors by name and looks at few shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from qbuild.modelfile.header import Header, List
from qbuild.modelfile.loader import Weight, program
from qbuild.modelfile.program import Machine, Node, Record, Ref, RefusedError, Scope, UnsureError

_KINDS: Final = {"get_u32": 4, "get_i32": 5, "get_f32": 6, "get_bool": 7, "get_string": 8}
_LIST_KINDS: Final = {"get_arr_f32": 6, "get_arr_int": 5}
_SEES: Final = (
    ("clip.has_vision_encoder", "CLIP_MODALITY_VISION"),
    ("clip.has_audio_encoder", "CLIP_MODALITY_AUDIO"),
)


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What the loader says to a projector."""

    refused: str  # why it stops; "": it does not
    width: int | None  # numbers per picture token that it hands to the model; ``None``: not known
    deepstack: int = 0  # layers whose features are handed over as well


def look(head: Header) -> Sight | None:
    """Return what the loader says; ``None``: it cannot be worked out here."""
    found: Sight | None = None
    asked = [modality for key, modality in _SEES if head.keys.get(key) is True]
    if not asked:
        return Sight(refused="the file has neither a vision nor an audio encoder", width=None)
    for modality in asked:
        loader = _Projector(head, modality)
        try:
            loader.load()
            width = loader.width()
        except RefusedError as error:
            return Sight(refused=" ".join(str(error).split()), width=None)
        except (UnsureError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError):
            return found
        found = Sight(
            refused="", width=width, deepstack=int(loader.model["n_deepstack_layers"] or 0)
        )
    return found


class _Projector(Machine):
    def __init__(self, head: Header, modality: str) -> None:
        super().__init__()
        self.head = head
        self.table: Mapping[str, Any] = program("projector")
        self.weights = {
            each.name: Weight(
                name=each.name, sides=each.shape, type=f"GGML_TYPE_{each.type.name.upper()}"
            )
            for each in head.tensors
        }
        self.loaded: set[str] = set()
        self.hparams = Record()
        self.model = Record(
            modality=modality, hparams=self.hparams, layers=[], n_deepstack_layers=0
        )
        for name, (kind, begin) in self.table["fields"].items():
            self.hparams[name] = self.begin(kind) if begin is None else self.value(begin, {})
        self.prefix = {"CLIP_MODALITY_AUDIO": "a"}.get(modality, "v")
        self.scope: Scope = {"\0kinds": {"log_ffn_op": "std::string"}, "log_ffn_op": ""}
        self.scope |= {"tensors_to_load": [], "modality": modality, "prefix": self.prefix}
        self.scope |= {"model": self.model, "hparams": self.hparams}

    def begin(self, kind: str) -> Any:
        if kind.startswith("std::array"):
            return [0] * 3
        return super().begin(kind)

    def load(self) -> None:
        """Run load_hparams and load_tensors."""
        self.run(self.table["hparams"], self.scope)
        self.run(self.table["tensors"], self.scope)

    def width(self) -> int | None:
        """Run clip_n_mmproj_embd."""
        try:
            found = self.invoke([], self.table["width"], [], {"ctx": Record(model=self.model),
                                                              "\0kinds": {}})  # fmt: skip
        except (UnsureError, AttributeError, TypeError):
            return None
        return found if isinstance(found, int) else None

    def name(self, name: str) -> Any:
        if name in self.table["names"]:
            return self.table["names"][name]
        if name == "__func__" or re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
            return name.strip("_")
        raise UnsureError(name)

    def kind(self, name: str) -> str:
        raise UnsureError(name)

    def ref(self, node: Node, scope: Scope) -> Ref:
        """Also make the records within a model as they are set (`model.mm_glm_tok_boi`)."""
        return super().ref(node, scope)

    def call(self, name: str, arguments: list[Node], scope: Scope) -> Any:
        if name == "get_tensor":
            required = self.value(arguments[1], scope) if len(arguments) > 1 else True
            return self._tensor(str(self.value(arguments[0], scope)), required=bool(required))
        if name in _KINDS or name in _LIST_KINDS:
            return self._key(name, arguments, scope)
        if name in ("string_format", "format"):
            return self._format([self.value(each, scope) for each in arguments])
        if name == "clip_projector_type_from_string":
            said = self.value(arguments[0], scope)
            found = (word for word, text in self.table["types"].items() if text == said)
            return f"PROJECTOR_TYPE_{next(found, 'UNKNOWN')}"
        if name == "GGML_ASSERT":
            if not self.value(arguments[0], scope):
                raise RefusedError("GGML_ASSERT failed")
            return None
        if name == "GGML_ABORT":
            raise RefusedError(str(self.value(arguments[0], scope)))
        if name == "std::runtime_error":
            return self.value(arguments[0], scope)
        if name.startswith("LOG_"):
            return None
        if name in ("std::max", "std::min"):
            return (max if name == "std::max" else min)(self.value(a, scope) for a in arguments)
        if name in ("std::sqrt", "sqrtf", "sqrt"):
            return math.sqrt(self.value(arguments[0], scope))
        if name == "std::to_string":
            return str(self.value(arguments[0], scope))
        head, _, rest = name.rpartition(".")
        if rest == "set_limit_image_tokens" or rest.startswith("set_"):
            return None
        if rest == "has_deepstack":
            return self.value(f"{head}.deepstack_fc1_w", scope) is not None
        if head:
            value = self.value(head, scope)
            if rest == "resize" and value is None:
                self.ref(head, scope).put(value := [])
            if rest == "resize":
                count = self.value(arguments[0], scope)
                value[:] = [Record() for _ in range(count)]
                return None
            return self.method(value, rest, arguments, scope)
        raise UnsureError(f"{name}()")

    def _format(self, given: list[Any]) -> str:
        text = re.sub(r"%(?:z|ll|l)?[ud]", "%s", str(given[0]))
        return text % tuple(given[1 : 1 + text.count("%s")])

    def _tensor(self, name: str, *, required: bool) -> Weight | None:
        if name in self.loaded:
            raise RefusedError(f"tensor already loaded: {name}")
        found = self.weights.get(name)
        if found is None and required:
            raise RefusedError(f"unable to find tensor {name}")
        if found is not None:
            self.loaded.add(name)
        return found

    def _key(self, how: str, arguments: list[Node], scope: Scope) -> None:
        key = str(self.value(arguments[0], scope))
        target = self.ref(arguments[1], scope)
        required = self.value(arguments[2], scope) if len(arguments) > 2 else True
        if key not in self.head.keys:
            if required:
                raise RefusedError(f"Key not found: {key}")
            return
        value = self.head.keys[key]
        if how in _KINDS:
            if self.head.kinds.get(key, _KINDS[how]) != _KINDS[how]:
                raise RefusedError(f"key {key} has a type that the loader does not take")
            target.put(value)
            return
        if not isinstance(value, List) or value.kind != _LIST_KINDS[how]:
            raise RefusedError(f"key '{key}' is not an array of the right type")
        target.put(self.head.items(key, most=1 << 16))
