"""Licence texts come from the pinned inputs, and nothing upstream vendors goes unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from license_expression import get_spdx_licensing

from qbuild.binary.names import check_name
from qbuild.bundle import third_party
from qbuild.bundle.facts import BundleFacts
from qbuild.bundle.third_party import Component, Found, LicenceText, find, load_table
from qbuild.errors import BundleError
from qbuild.recipe.model import Build
from support.bundles import FACTS, facts, source_tree, write_tree, zig_wheel


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return source_tree(tmp_path / "src")


@pytest.fixture
def zig(tmp_path: Path) -> Path:
    return zig_wheel(tmp_path / "zig")


def names(found: tuple[Found, ...]) -> list[str]:
    return [item.component.name for item in found]


def row(**changes: object) -> Component:
    values: dict[str, object] = {
        "name": "part",
        "title": "Part",
        "spdx": "MIT",
        "origin": "source",
        "path": "",
        "licences": (LicenceText(file="LICENSE"),),
    }
    return Component(**(values | changes))  # type: ignore[arg-type]


def find_one(
    component: Component, tree: Path, given: BundleFacts = FACTS, files: tuple[str, ...] = ()
) -> tuple[Found, ...]:
    (tree / "vendor").rename(tree / "elsewhere")
    return find(given, source_tree=tree, inputs={}, files=files, table=[component])


def test_a_version_in_a_file_name_is_found(tmp_path: Path) -> None:
    """Wheels keep their licence in a folder that is named after their version."""
    for name in ("x-1.0.dist-info/License.txt", "y-1.0.dist-info/L", "y-2.0.dist-info/L"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    assert third_party._file(tmp_path, "x-*.dist-info/License.txt").is_file()
    assert not third_party._file(tmp_path, "y-*.dist-info/L").exists(), "which of the two?"


def test_the_committed_table_is_sound() -> None:
    table = load_table()
    spdx = get_spdx_licensing()
    for component in table:
        check_name(f"{component.name}.txt", archive="table")
        assert component.title
        # LicenseRef- is SPDX's own way to name what is not on its list.
        if not component.spdx.startswith("LicenseRef-"):
            assert spdx.validate(component.spdx).errors == [], component.name
        for text in component.licences:
            check_name(text.file.replace("*", "1"), archive="table")
            assert text.start or not text.end, component.name
    assert [component.name for component in table if component.own] == ["llama.cpp"]


def test_a_windows_bundle_by_zig(tree: Path, zig: Path) -> None:
    found = find(FACTS, source_tree=tree, inputs={"ziglang": zig}, files=[])
    assert names(found) == [
        "cpp-httplib", "gdtoa", "libcxx", "libcxxabi", "libunwind", "llama.cpp", "mingw-w64",
        "musl", "nlohmann-json", "winpthreads", "xxhash", "zig-compiler-rt",
    ]  # fmt: skip
    versions = {item.component.name: item.version for item in found}
    assert versions["nlohmann-json"] == "3.12.0"
    assert versions["cpp-httplib"] == "0.58.0"
    assert versions["llama.cpp"] == "0.5.0-dev"
    texts = dict(text for item in found for text in item.texts)
    assert texts["llama.cpp.txt"] == b"MIT License: llama.cpp\n"
    assert texts["nlohmann-json.txt"] == b"MIT License: json\nsecond line\n"
    assert texts["gdtoa.txt"] == (
        b"The author of this software is David M. Gay.\ntext\nTHIS SOFTWARE.\n"
    )


def test_a_linux_bundle_has_glibc_start_files_and_no_mingw(tree: Path, zig: Path) -> None:
    found = find(facts("linux"), source_tree=tree, inputs={"ziglang": zig}, files=[])
    assert "glibc-start-files" in names(found)
    assert "mingw-w64" not in names(found)
    (glibc,) = [item for item in found if item.component.name == "glibc-start-files"]
    assert [name for name, _ in glibc.texts] == [
        "glibc-start-files.txt",
        "glibc-start-files-2.txt",
    ]


def test_only_the_tools_with_pictures_hold_the_hash_functions(tree: Path, zig: Path) -> None:
    bench = facts(build=Build(targets=("llama-bench",)))
    assert "xxhash" not in names(find(bench, source_tree=tree, inputs={"ziglang": zig}, files=[]))


@pytest.mark.parametrize(
    ("component", "files", "inside"),
    [
        (row(), (), True),
        (row(path="gone"), (), False),
        (row(os="linux"), (), False),
        (row(toolchains=("gcc",)), (), False),
        (row(targets=("llama-tts",)), (), False),
        (row(unless_off="GGML_NATIVE"), (), False),
        (row(unless_off="GGML_AVX2"), (), True),
        (row(unless_off="GGML_UNKNOWN"), (), True),
        (row(bundled=("cublas64_*.dll",)), ("cuBLAS64_12.dll",), True),
        (row(bundled=("cublas64_*.dll",)), ("ggml.dll",), False),
    ],
)
def test_conditions(component: Component, files: tuple[str, ...], inside: bool, tree: Path) -> None:
    assert bool(find_one(component, tree, files=files)) is inside


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (row(licences=(LicenceText(file="gone"),)), "gone cannot be read"),
        (row(licences=(LicenceText(file="LICENSE", start="BSD"),)), "does not hold 'BSD'"),
        (
            row(licences=(LicenceText(file="LICENSE", start="MIT", end="GPL"),)),
            "does not hold 'GPL' after its start",
        ),
        (row(licences=(LicenceText(file="vendorless"),)), "vendorless is empty"),
        (row(version_file="LICENSE", version_pattern=r"v(\d)"), "does not say its version"),
        (row(origin="ziglang"), "comes from `ziglang`, which was not given"),
    ],
)
def test_a_missing_text_stops_the_bundle(component: Component, message: str, tree: Path) -> None:
    write_tree(tree, {"vendorless": " \n"})
    with pytest.raises(BundleError) as caught:
        find_one(component, tree)
    assert caught.value.exit_code == 10
    assert message in caught.value.what
    assert "third-party.toml: part" in (caught.value.where or "")


@pytest.mark.parametrize("name", ["vendor/newlib/x.h", "vendor/hash/md5/md5.c"])
def test_new_vendored_code_stops_the_bundle(name: str, tree: Path, zig: Path) -> None:
    write_tree(tree, {name: ""})
    with pytest.raises(BundleError, match=f"upstream vendors {Path(name).parent.as_posix()}"):
        find(FACTS, source_tree=tree, inputs={"ziglang": zig}, files=[])


def test_a_wheel_without_the_expected_folder(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleError, match=r"`ziglang` holds no ziglang/lib"):
        find(FACTS, source_tree=tree, inputs={"ziglang": tmp_path / "empty"}, files=[])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[component]\n", "cannot be read"),
        ('[[component]]\nname = "x"\n', "cannot be read"),
        (
            '[[component]]\nname = "x"\ntitle = "x"\nspdx = "MIT"\nfrom = "source"\npath = ""\n'
            "licences = []\ntypo = 1\n",
            "cannot be read",
        ),
        (
            '[[component]]\nname = "x"\ntitle = "x"\nspdx = "MIT"\nfrom = "source"\npath = ""\n'
            "licences = []\n" * 2,
            "lists x twice",
        ),
    ],
)
def test_a_malformed_table_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = write_tree(tmp_path, {"table.toml": text}) / "table.toml"
    with pytest.raises(BundleError, match=rf"table\.toml {message}"):
        load_table(path)
