"""Whatever stands in facts or in a log: an answer or a clear refusal, never a traceback."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qbuild.doctor.detect import recommend
from qbuild.doctor.diagnosis import Diagnosis
from qbuild.doctor.encodings import decode
from qbuild.doctor.examine import examine, explain
from qbuild.doctor.machine_facts import parse_facts
from qbuild.doctor.privacy import mask_path
from qbuild.doctor.schema import facts_schema_text

WORDS = ["12.4", "13.0.88", "14", "19.40", "1940", "6.1", "9.0", "61-real", "native", ".", ".."]
WORDS += ["1.", "²", "zig", "nvcc", "msvc", "linux", "x86-64", "560.94", "1e9", "٣.٤"]
PHRASES = ["", "Visual Studio 17 2022", "C:\\a b", "/mnt/c/x", "\\\\wsl$\\U", "GeForce GTX 1060"]
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from([*WORDS, *PHRASES]))


def _values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in schema:
        return st.one_of([_values(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema["type"]
    if kind == "object":
        if "properties" not in schema:
            return st.dictionaries(TEXTS, _values(schema["additionalProperties"]), max_size=3)
        fields = {name: _values(each) for name, each in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional=fields)
    if kind == "array":
        return st.lists(_values(schema["items"]), max_size=3)
    if kind == "integer":
        return st.integers(0, 1 << 20)
    if kind == "number":
        return st.floats(0, 1e6, allow_nan=False)
    return {"string": TEXTS, "boolean": st.booleans(), "null": st.none()}[kind]


FACTS = _values(json.loads(facts_schema_text()))
ANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@ANY
@given(FACTS)
def test_every_set_of_facts_has_an_answer(data: dict[str, Any]) -> None:
    data["schema"] = 1
    facts = parse_facts(data)
    assert parse_facts(json.loads(json.dumps(facts.as_json()))) == facts
    for each in examine(facts, "No space left on device"):
        assert isinstance(each, Diagnosis)
        assert each.found
        assert each.why
        assert each.mend
        each.render()
    found = recommend(facts, ("avx2", "baseline", "gtx1060", "laptop"))
    assert found.reasons


@ANY
@given(st.binary(max_size=300), st.sampled_from(["cp1252", "gb18030", "cp932", "nonsense"]))
def test_every_log_can_be_read(data: bytes, page: str) -> None:
    explain(decode(data, page))
    explain(decode(b"\xff\xfe" + data, page))


@ANY
@given(st.text(max_size=60))
def test_every_folder_can_be_masked(path: str) -> None:
    masked = mask_path(path)
    assert len(masked) == len(path)
    assert masked.isascii() == path.isascii()
    assert (" " in masked) == (" " in path)
