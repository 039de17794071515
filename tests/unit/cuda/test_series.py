"""The cuda-clang and nvcuda series: small call sites, code in added files."""

from __future__ import annotations

import tomllib

import pytest

from qbuild import resources


@pytest.mark.parametrize("name", ["cuda-clang", "nvcuda"])
def test_everything_upstream_is_behind_an_option(name: str) -> None:
    folder = resources.patches_dir() / name
    table = tomllib.loads((folder / "series.toml").read_text(encoding="utf-8"))
    for entry in table["patch"]:
        text = (folder / entry["file"]).read_text(encoding="utf-8")
        diff = text[text.index("diff --git") :]
        removed = [line for line in diff.splitlines() if line.startswith("-") and line[1:2] != "-"]
        assert len(removed) <= 1, removed  # `if` that becomes `elseif`
        for path in entry["touches"]:
            assert f"+++ b/{path}\n" in text


def test_driver_functions_are_never_linked() -> None:
    (patch,) = (resources.patches_dir() / "nvcuda").glob("*.patch")
    text = patch.read_text(encoding="utf-8")
    assert 'LoadLibraryExA("nvcuda.dll", nullptr, LOAD_LIBRARY_SEARCH_SYSTEM32)' in text
    assert 'dlopen("libcuda.so.1"' in text
    names = {
        line.split()[1]
        for line in text.splitlines()
        if line.startswith("+#define cu") and "ggml_cu" in line
    }
    assert len(names) == 11


def test_flash_attention_stores_quants_of_its_own_lanes_only() -> None:
    """Lanes 16 to 31 must not write where lanes 0 and 8 put the scales (head size 64)."""
    (patch,) = (resources.patches_dir() / "cuda-fixes").glob("*.patch")
    text = patch.read_text(encoding="utf-8")
    assert "-    yq32[threadIdx.x] = q32;\n" in text
    added = [line[1:] for line in text.splitlines() if line.startswith("+ ")]
    assert added[0] == "    if (ni == WARP_SIZE || threadIdx.x < ni) {"
