"""What llama.cpp's loader calls and did not write: functions of C++, and some that look at texts.

A method's name is the function's, with ``_f_`` before it and ``_`` for ``::``; its arguments come
as expressions, because some (an assertion's) are told as they are written.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from qbuild.modelfile.program import Machine, Node, RefusedError, Scope

_ROPE_SCALING: Final = {"none": 0, "linear": 1, "yarn": 2, "longrope": 3}
"""LLAMA_ROPE_SCALING_TYPES; any other text is -1, which the loader refuses."""


class Functions(Machine):
    """A machine that knows them."""

    def _f_GGML_ASSERT(self, arguments: list[Node], scope: Scope) -> None:  # noqa: N802
        if not self.value(arguments[0], scope):
            raise RefusedError(f"GGML_ASSERT({written(arguments[0])}) failed")

    def _f_assert(self, arguments: list[Node], scope: Scope) -> None:
        """Nothing: a release has no assert()."""

    def _f_GGML_ABORT(self, arguments: list[Node], scope: Scope) -> None:  # noqa: N802
        raise RefusedError(str(self._f_format(arguments, scope)))

    def _f_std_runtime_error(self, arguments: list[Node], scope: Scope) -> Any:
        return self.value(arguments[0], scope)

    def _f_format(self, arguments: list[Node], scope: Scope) -> str:
        text, *given = (self.value(each, scope) for each in arguments)
        plain = re.sub(r"%(?:z|ll|l)?[ud]", "%s", text)
        try:
            return str(plain % tuple(given))
        except (TypeError, ValueError):
            return str(text)

    def _f_std_to_string(self, arguments: list[Node], scope: Scope) -> str:
        return str(self.value(arguments[0], scope))

    def _f_std_max(self, arguments: list[Node], scope: Scope) -> Any:
        return max(self.value(each, scope) for each in arguments)

    def _f_std_min(self, arguments: list[Node], scope: Scope) -> Any:
        return min(self.value(each, scope) for each in arguments)

    def _f_std_sqrt(self, arguments: list[Node], scope: Scope) -> float:
        return math.sqrt(max(self.value(arguments[0], scope), 0))

    _f_sqrtf = _f_std_sqrt

    def _f_powf(self, arguments: list[Node], scope: Scope) -> float:
        return math.pow(self.value(arguments[0], scope), self.value(arguments[1], scope))

    def _f_std_fill(self, arguments: list[Node], scope: Scope) -> None:
        items = self.value(arguments[0], scope)
        items[:] = [self.value(arguments[2], scope)] * len(items)

    def _f_llama_rope_scaling_type_from_string(self, arguments: list[Node], scope: Scope) -> int:
        return _ROPE_SCALING.get(str(self.value(arguments[0], scope)), -1)

    def _f_llm_ffn_op_type_from_string(self, arguments: list[Node], scope: Scope) -> str:
        return f"LLM_FFN_{self.value(arguments[0], scope)}".upper()


def written(node: Node) -> str:
    """Return an expression as a person would write it."""
    if not isinstance(node, list):
        return str(node).lower() if isinstance(node, bool) or node is None else str(node)
    word, *rest = node
    if word == "s":
        return f'"{rest[0]}"'
    if word == "call":
        return f"{written(rest[0])}({', '.join(written(each) for each in rest[1:])})"
    if word == "[]":
        return f"{written(rest[0])}[{written(rest[1])}]"
    if word == "cast":
        return written(rest[1])
    if word.startswith("u"):
        return f"{word[1:]}{written(rest[0])}"
    if len(rest) == 2:
        return f"{written(rest[0])} {word} {written(rest[1])}"
    return str(word)
