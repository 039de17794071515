"""The C++ tests that ride in the patch series, built and run by ``qbuild test``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from qbuild import host
from qbuild.store import Store

pytestmark = pytest.mark.build


def test_the_series_own_tests_pass(user_store: Store) -> None:
    """Includes the bounded mutation run of the parser's fuzz driver."""
    command = [
        sys.executable, "-m", "qbuild", "test", "avx2", "--os", host.system(), "--json",
        "--store", str(user_store.root),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    results = json.loads(done.stdout)
    for name in ("test-tool-call-parser", "test-chat-salvage", "fuzz-tool-call-parser"):
        assert results.get(name) == "Passed", results
