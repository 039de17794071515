"""The wide table of tiny models: which rows ``ci/emulated_models.py`` asks for."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

from qbuild.verify import emulate
from support import emulated_models

SCRIPT = Path(__file__).resolve().parents[3] / "ci" / "emulated_models.py"


def _script():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("emulated_models_table", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_type_and_every_kind_meets_every_setting() -> None:
    names = {each.name for each in emulate.SETTINGS}
    rows = list(_script().pairs(False))
    for kind, type_ in itertools.product(emulated_models.KINDS, emulated_models.TYPES):
        assert {each.name for k, _, each, _ in rows if k == kind} >= names
        assert {each.name for _, t, each, _ in rows if t == type_} >= names
        assert any((k, t) == (kind, type_) for k, t, _, _ in rows)
    assert len({(kind, type_, each.name) for kind, type_, each, _ in rows}) == len(rows)


def test_all_rows_hold_each_setting_of_each_model() -> None:
    rows = list(_script().pairs(True))
    for kind, type_ in itertools.product(emulated_models.KINDS, emulated_models.TYPES):
        mine = {each.name for k, t, each, _ in rows if (k, t) == (kind, type_)}
        assert mine >= {each.name for each in emulate.SETTINGS}
