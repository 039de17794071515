"""What llama.cpp's loader says to a file, worked out from its own functions.

``toolchain/data/gguf-loader`` holds the functions by which the pinned llama.cpp reads a model's
hyperparameters and asks for its tensors; here they are worked through for one header, so that a
missing tensor or key, a wrong length, and a tensor that nobody asks for are found before the
program is started. Where the table goes beyond what is understood here, the answer is None.
Each class of llama.cpp has a file of its own there: a model needs one or two of the 150.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from qbuild import resources
from qbuild.modelfile.functions import Functions
from qbuild.modelfile.header import Header, List, Tensor
from qbuild.modelfile.program import Node, Record, Ref, RefusedError, Scope, UnsureError

_SCALAR: Final = {"uint16_t": 2, "uint32_t": 4, "int32_t": 5, "float": 6, "bool": 7,
                  "std::string": 8}  # fmt: skip
"""C++ type → GGUF's number of the type a key must have (``GGUFMeta::GKV``)."""
_KIND_NAMES: Final = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "arr", "u64",
                      "i64", "f64")  # fmt: skip
_ARRAYS: Final = {"uint32_t": (4, 5), "int32_t": (4, 5), "int": (4, 5), "uint64_t": (10,),
                  "float": (6,), "std::string": (8,), "llama_token": (4, 5)}  # fmt: skip
_PLAIN: Final = ("ADD", "MUL", "DIV", "SSM_CONV", "SSM_SCAN", "ROPE", "RWKV_WKV6")
"""Operations that read a weight as it is: the CPU's abort on anything but F32."""
_ROWS: Final = ("TOKEN_TYPES",)
"""Rows that are added, where the table says that they are picked out."""
_MAX_ITEMS: Final = 1 << 16


@cache
def program(name: str = "common") -> Mapping[str, Any]:
    """Return one file of the table: what all classes share, ``projector``, or a class's own.

    Raises:
        LookupError: There is no such class.
    """
    path = resources.data_dir() / "gguf-loader" / f"{name}.json"
    try:
        found: Mapping[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise LookupError(name) from None
    return found


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A tensor as the loader's functions see it."""

    name: str
    sides: tuple[int, ...]
    type: str

    @property
    def ne(self) -> tuple[int, ...]:
        """Its four sides."""
        return (*self.sides, 1, 1, 1, 1)[:4]

    @property
    def tensor(self) -> Weight:
        """llama.cpp has the tensor behind one more pointer."""
        return self


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the loader says."""

    refused: str  # why it stops, in its own words; "": it does not
    unread: tuple[str, ...]  # tensors of the file that it never asked for
    missing: str  # the tensor that is not there, if that is why
    hparams: Mapping[str, Any]  # the hyperparameters as far as it came
    layers: Sequence[Mapping[str, Any]]  # what each layer was given
    model: Mapping[str, Any]  # the model's own tensors


def load(head: Header, tensors: Sequence[Tensor], *, vocabulary: int) -> Answer | None:
    """Return what llama.cpp's loader says; ``None``: it cannot be worked out here.

    Args:
        head: The header of the first part.
        tensors: The tensors of all parts.
        vocabulary: Number of tokens the tokenizer has.
    """
    arch = head.keys.get("general.architecture")
    if not isinstance(arch, str) or arch not in program()["architectures"]:
        return None
    loader = Loader(head, tensors, arch, vocabulary)
    refused = ""
    try:
        loader.hyperparameters()
        loader.tensors()
        loader.graph()
        if loader.unusable:
            raise RefusedError(loader.unusable[0])
    except RefusedError as error:
        refused = str(error)
    except (UnsureError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError):
        return None
    return Answer(
        refused=refused,
        unread=tuple(sorted(set(loader.weights) - loader.asked)),
        missing=loader.missing,
        hparams=loader.hparams,
        layers=loader.members["layers"],
        model=loader.members,
    )


class Loader(Functions):
    """llama_model_loader, llama_hparams and llama_model in one."""

    def __init__(self, head: Header, tensors: Sequence[Tensor], arch: str, vocabulary: int) -> None:
        super().__init__()
        self.head = head
        self.arch = arch
        self.table = program()
        self.row = self.table["architectures"][arch]
        self.weights = {
            each.name: Weight(
                name=each.name, sides=each.shape, type=f"GGML_TYPE_{each.type.name.upper()}"
            )
            for each in tensors
        }
        self.created = 0
        self.unusable: list[str] = []
        self.asked: set[str] = set()
        self.missing = ""
        self.vocabulary = vocabulary
        self.hparams: dict[str, Any] = {}
        self.members = Record(layers=[], classifier_labels=[], target_layer_ids=[])
        self.members["adapter_token_to_slot"] = {}
        self.members["adapter_token_to_substitute"] = {}
        for name, (kind, begin) in self.table["fields"].items():
            self.hparams[name] = self._begin(kind, begin)

    def begin(self, kind: str) -> Any:
        """Return what a local variable holds before it is set."""
        return self._begin(kind, None) if kind.startswith("std::array") else super().begin(kind)

    def _begin(self, kind: str, begin: Node) -> Any:
        if kind.startswith("std::array"):
            size = kind.rpartition(",")[2].rstrip(">")
            return [0] * (int(size) if size.isdigit() else self.table["constants"][size])
        if kind.startswith("std::bitset"):
            return [0] * self.table["constants"]["LLAMA_MAX_LAYERS"]
        if begin is None:
            return 0
        if begin == ["u-", "INFINITY"]:
            return -math.inf
        return self.value(begin, {})

    # The two steps

    def hyperparameters(self) -> None:
        """Run load_hparams and the architecture's load_arch_hparams."""
        _, body = self.table["loaders"]["hparams"]
        self.invoke([], body, [], {})
        self.invoke([], self._of_class("hparams"), [], {})

    def tensors(self) -> None:
        """Run load_arch_tensors, the generic pass for scales, and done_getting_tensors."""
        hparams = self.hparams
        if hparams["n_expert"] > 0 and not self._method("n_expert_used_max", []):
            raise RefusedError("model has expert layers but no expert layers are used")
        self.members["layers"] = [Record() for _ in range(hparams["n_layer_all"])]
        self.invoke([], self._of_class("tensors"), [], {})
        _, scales = self.table["loaders"]["scales"]
        names = {"n_layer_all": hparams["n_layer_all"], "n_expert": hparams["n_expert"]}
        self.invoke(list(names), scales, list(names.values()), {})
        wanted, found = len(self.weights), self.created
        if found != wanted:
            kind = "too many tensors created" if found > wanted else "wrong number of tensors"
            raise RefusedError(f"done_getting_tensors: {kind}; expected {wanted}, got {found}")

    def graph(self) -> None:
        """Check what the builder of the graph asserts before it builds anything."""
        asserted = self._of_class("graph", optional=True)
        if asserted:
            self.invoke([], ["LLAMA_LOAD_LOCALS", *asserted], [], {})

    def _of_class(self, what: str, *, optional: bool = False) -> list[Node]:
        name = self.row["class"]
        while name != "base":
            row = program(f"class-{name}")
            if what in row:
                body: list[Node] = row[what]
                return body
            name = row["base"]
        if optional:
            return []
        raise UnsureError(f"{self.row['class']}: {what}")

    # Names

    def name(self, name: str) -> Any:
        """Return a hyperparameter, a member of the model, or a constant."""
        if name.startswith("hparams."):
            return self._hparam(name[8:])
        if name in self.members:
            return self.members[name]
        if name in self.table["constants"]:
            return self.table["constants"][name]
        if name == "arch":
            return f"LLM_ARCH_{self.row['enum']}"
        if name == "__func__":
            return "load"
        if name == "ml.load_mtp":
            return False  # the server loads it only with --spec-type draft-mtp
        known = name in self.table["keys"] or name in self.table["tensors"]
        if known or re.fullmatch(r"(?:LLM|GGML|LLAMA)_[A-Z0-9_]+", name):
            return name
        if name in self.hparams:
            return self.hparams[name]
        head, dot, rest = name.partition(".")
        if dot and head in self.members:
            return self.member(self.members[head], rest)
        if not dot and name != "INFINITY":
            return self.members[name]
        raise UnsureError(name)

    def _hparam(self, name: str) -> Any:
        if name not in self.hparams:
            raise UnsureError(f"hparams.{name}")
        return self.hparams[name]

    def store(self, name: str, value: Any) -> None:
        """Set a hyperparameter or a member of the model."""
        if name.startswith("hparams."):
            name = name[8:]
        elif name not in self.hparams:
            self.members[name] = value
            return
        if name not in self.hparams:
            raise UnsureError(f"hparams.{name}")
        if isinstance(value, float) and self.kind(name).startswith(("int", "uint")):
            value = int(value)
        self.hparams[name] = value

    def kind(self, name: str) -> str:
        """Return the C++ type of a hyperparameter."""
        plain = name.removeprefix("hparams.")
        row = self.table["fields"].get(plain)
        if row:
            return str(row[0])
        return {"classifier_labels": "std::vector<std::string>",
                "target_layer_ids": "std::vector<int32_t>"}.get(plain, "")  # fmt: skip

    def macro(self, name: str, scope: Scope) -> None:
        """Run LLAMA_LOAD_LOCALS, the names that every load_arch_tensors begins with."""
        if name != "LLAMA_LOAD_LOCALS":
            raise UnsureError(name)
        self.run(self.table["loaders"]["locals"][1], scope)

    # Functions

    def call(self, name: str, arguments: list[Node], scope: Scope) -> Any:
        """Call one of llama.cpp's functions."""
        head, _, rest = name.rpartition(".")
        if head in ("ml", "loader"):
            return self._loader(rest, arguments, scope)
        if head in ("hparams", "this") and rest in self.table["methods"]:
            return self._method(rest, [self.value(each, scope) for each in arguments])
        builtin = getattr(self, "_f_" + re.sub(r"::|\.", "_", name), None)
        if builtin is not None:
            return builtin(arguments, scope)
        if name in self.table["helpers"]:
            parameters, body = self.table["helpers"][name]
            given = [
                self._given(parameter, node, scope)
                for parameter, node in zip(parameters, arguments, strict=False)
            ]
            return self.invoke(parameters, body, given, {})
        if head and rest:
            return self.method(self.value(head, scope), rest, arguments, scope)
        if name in self.table["methods"]:
            return self._method(name, [self.value(each, scope) for each in arguments])
        if name in ("float", "double", "int", "uint32_t", "int64_t", "int32_t", "size_t"):
            value = self.value(arguments[0], scope)
            return float(value) if name in ("float", "double") else int(value)
        if name.startswith(("std::vector", "std::array", "std::string", "array")):
            return self._made(name, arguments, scope)
        raise UnsureError(f"{name}()")

    def _given(self, parameter: str, node: Node, scope: Scope) -> Any:
        """Return what a function gets for a parameter: a place where it is one by reference."""
        if parameter == "&ml":
            return None
        by_reference = parameter.startswith("&") and parameter != "&layer"
        return self.ref(node, scope) if by_reference else self.value(node, scope)

    def _made(self, name: str, arguments: list[Node], scope: Scope) -> Any:
        given = [self.value(each, scope) for each in arguments]
        if name.startswith("std::string"):
            return given[0] if given else ""
        if given and isinstance(given[0], list):
            return list(given[0])
        if name.startswith("std::array"):
            return self._begin(name, None)
        return [given[1] if len(given) > 1 else 0] * given[0] if given else []

    def _method(self, name: str, given: list[Any]) -> Any:
        parameters, body = self.table["methods"][name]
        return self.invoke(parameters, body, given, {})

    def _f_tn(self, arguments: list[Node], scope: Scope) -> str:
        kind, *rest = arguments
        given = [self.value(each, scope) for each in rest]
        suffix = given.pop(0) if given and isinstance(given[0], str) else None
        return self.tensor_name(kind, suffix, given)

    def _f_arch_name(self, arguments: list[Node], scope: Scope) -> str:  # noqa: ARG002
        return self.arch

    def _f_llm_arch_is_recurrent(self, arguments: list[Node], scope: Scope) -> bool:  # noqa: ARG002
        return bool(self.row["recurrent"])

    def _f_vocab_n_tokens(self, arguments: list[Node], scope: Scope) -> int:  # noqa: ARG002
        return self.vocabulary

    def _f_vocab_n_token_types(self, arguments: list[Node], scope: Scope) -> int:  # noqa: ARG002
        return self.head.integer("tokenizer.ggml.token_type_count") or 0

    # The file's keys

    def _loader(self, name: str, arguments: list[Node], scope: Scope) -> Any:
        if name == "get_arch":
            return f"LLM_ARCH_{self.row['enum']}"
        if name in ("get_weight", "get_tensor_meta"):
            return self.weights.get(self.value(arguments[0], scope))
        if name == "llm_kv":
            return self.key(arguments[0])
        if name in ("get_key", "get_key_or_arr", "get_arr", "get_arr_n"):
            return self._get(name, arguments, scope)
        raise UnsureError(f"ml.{name}()")

    def key(self, word: str) -> str:
        """Return a key's name in the file."""
        return str(self.table["keys"][word]).replace("%s", self.arch)

    def _get(self, how: str, arguments: list[Node], scope: Scope) -> bool:
        word, place, *rest = arguments
        if isinstance(word, str) and word not in self.table["keys"]:
            word = self.value(word, scope)
        key = self.key(word) if word in self.table["keys"] else str(word)
        target = self.ref(place, scope)
        given = [self.value(each, scope) for each in rest]
        # get_key_or_arr(key, array, n, required) and get_key_or_arr(key, number, required)
        count = given.pop(0) if how == "get_key_or_arr" and "array" in target.kind else None
        required = bool(given[0]) if given else True
        if key not in self.head.keys:
            if required:
                raise RefusedError(f"key not found in model: {key}")
            return False
        is_list = isinstance(self.head.keys[key], List)
        if how == "get_arr_n":
            self._check_kind(key, 9)
            target.put(self.head.keys[key].count)
            return True
        if how == "get_arr" or (count is not None and is_list):
            return self._get_list(key, target, count, required)
        if how == "get_key_or_arr" and is_list:
            if required:
                raise RefusedError(f"expected scalar, found array for key: {key}")
            return False
        kind = _item_kind(target.kind) if count is not None else target.kind
        value = self._scalar(key, kind)
        if count is None:
            target.put(value)
        else:
            items = target.get()
            items[:count] = [value] * count
        return True

    def _scalar(self, key: str, kind: str) -> Any:
        wanted = _SCALAR.get(
            kind.rstrip("&"), 4 if kind.startswith("enum") or "_type" in kind else 0
        )
        if kind in ("int", "llama_token"):
            wanted = 5
        if wanted:
            self._check_kind(key, wanted)
        return self.head.keys[key]

    def _check_kind(self, key: str, wanted: int) -> None:
        found = self.head.kinds.get(key, wanted)
        if found != wanted:
            raise RefusedError(
                f"key {key} has wrong type {_KIND_NAMES[found]} but expected type "
                f"{_KIND_NAMES[wanted]}"
            )

    def _get_list(self, key: str, target: Ref, count: int | None, required: bool) -> bool:
        value = self.head.keys[key]
        if not isinstance(value, List):
            if required:
                raise RefusedError(f"array key not found in model: {key}")
            return False
        if count is not None and value.count != count:
            raise RefusedError(
                f"key {key} has wrong array length; expected {count}, got {value.count}"
            )
        allowed = _ARRAYS.get(_item_kind(target.kind), (value.kind,))
        if value.kind not in allowed and not (value.kind == 7 and "array" in target.kind):
            raise RefusedError(f"{key} has wrong array element type {_KIND_NAMES[value.kind]}")
        items = self.head.items(key, most=_MAX_ITEMS)
        old = target.get()
        if "array" in target.kind:
            if len(items) > len(old):
                raise RefusedError(
                    f"array length {len(items)} for key {key} exceeds max {len(old)}"
                )
            old[: len(items)] = [int(x) if isinstance(x, bool) else x for x in items]
        else:
            target.put(items)
        return True

    # The file's tensors

    def tensor(self, node: Node, scope: Scope) -> Weight | None:
        """Run create_tensor: check a tensor's presence and sides, and count it."""
        _, kind, suffix, block, second, sides, flags = node
        if kind not in self.table["tensors"]:  # a parameter
            kind = self.value(kind, scope)
        if kind in self.table["tensors"]:
            numbers = [self.value(each, scope) for each in (block, second) if each is not None]
            name = self.tensor_name(kind, suffix, numbers)
        else:  # the whole name, made by tn() before
            name, kind = str(kind), "OUTPUT"
        flag = self.value(flags, scope)
        return self.created_tensor(name, kind, [self.value(each, scope) for each in sides], flag)

    def tensor_name(self, kind: str, suffix: str | None, numbers: list[int]) -> str:
        """Return a tensor's name in the file."""
        text = str(self.table["tensors"][kind])
        name = text % tuple(numbers[: text.count("%d")])
        return f"{name}.{suffix}" if suffix else name

    def created_tensor(self, name: str, kind: str, sides: list[int], flag: int) -> Weight | None:
        """Do what llama_model_loader::create_tensor does with a name."""
        bits = self.table["constants"]
        found = self.weights.get(name)
        if found is None:
            if flag & bits["TENSOR_NOT_REQUIRED"]:
                return None
            self.missing = name
            raise RefusedError(f"check_tensor_dims: tensor '{name}' not found")
        if flag & bits["TENSOR_ALLOW_RESHAPE"]:
            fits = math.prod(found.sides) == math.prod(sides)
        else:
            fits = found.ne == (*sides, 1, 1, 1, 1)[:4]
        if not fits:
            raise RefusedError(
                f"check_tensor_dims: tensor '{name}' has wrong shape; expected "
                f"{_sides(sides)}, got {_sides(found.ne)}"
            )
        self.asked.add(name)
        operation = "ADD" if name.endswith(".bias") else self.table["operations"][kind][1]
        if found.type != "GGML_TYPE_F32" and (operation in _PLAIN or kind in _ROWS):
            stored = found.type.removeprefix("GGML_TYPE_")
            self.unusable.append(f"tensor '{name}' is {stored}, which {operation} cannot read")
        if self.table["operations"][kind][1] == "NONE" or flag & bits["TENSOR_SKIP"]:
            self.created += 1
            return None
        if not flag & bits["TENSOR_DUPLICATED"]:
            self.created += 1
        return found


def _item_kind(kind: str) -> str:
    match = re.search(r"<([\w:]+)", kind)
    return match[1] if match else kind


def _sides(sides: Sequence[int]) -> str:
    return "[" + ", ".join(f"{each:5d}" for each in sides) + "]"
