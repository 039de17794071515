"""The bundle's key: whatever changes a zip's bytes changes the key. Changes are generated."""

from __future__ import annotations

import ast
import dataclasses
import functools
import gc
import shutil
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import tomlkit

import qbuild
from qbuild import resources
from qbuild.bundle.launch.profile import offered, profiles_of, settings
from qbuild.bundle.third_party import SOURCE, Component, load_table
from qbuild.errors import QbuildError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import Lock, load_lock
from qbuild.recipe.model import Recipe
from qbuild.steps import written_by
from qbuild.steps.plan import Plan, make_plan
from qbuild.steps.write_bundle import write_bundle
from qbuild.store import Entry
from support.bundles import source_tree, write_tree, zig_wheel
from support.report_zips import fat_elf, linux_files

RECIPES = {
    "avx2": ["build.ui=false"],
    "gtx1060": ["build.ui=false", "target.os=linux", "bundle.cuda_runtime=separate"],
}
PACKAGE = Path(qbuild.__file__).parent


def entry(path: Path, facts: dict[str, str]) -> Entry:
    return Entry(kind="x", key="x", path=path, inputs={}, files={}, facts=facts)


class Workshop:
    """Makes small bundles of a recipe from binaries that are not real."""

    def __init__(self, root: Path, recipe: Recipe) -> None:
        self.root = root
        self.count = 0
        files = linux_files()
        flags = {s.name for p in profiles_of(recipe).values() for s in [*settings(p), *offered(p)]}
        options = b"\0" + b"".join(f"--{flag}\0".encode() for flag in sorted(flags))
        files |= {name: files[name] + options for name in files if name.startswith("bin/")}
        if recipe.cuda.architectures:
            files["bin/libggml-cuda.so"] = fat_elf(("libc.so.6",), (61,))
        for name, data in files.items():
            (root / "stage" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "stage" / name).write_bytes(data)
        self.source = root / "source"
        source_tree(self.source / "tree")
        self.zig = zig_wheel(root / "zig")
        self.wheels = {"ziglang": self.zig}
        for row in load_table():
            if row.origin not in (SOURCE, "ziglang") and row.licences:
                self.wheels[row.origin] = self._wheel(root / row.origin, row)

    def _wheel(self, root: Path, row: Component) -> Path:
        """Write what the table of licences looks for in an unpacked wheel."""
        texts = {text.file: f"{text.start}Licence{text.end}\n" for text in row.licences}
        if row.version_file:
            texts.setdefault(row.version_file, "Version: 1.0\n")
        if row.parts:
            texts.setdefault(row.parts, "[]")
        if row.path and row.path not in texts:
            (root / row.path).mkdir(parents=True, exist_ok=True)
        return write_tree(root, {name.replace("*", "x"): text for name, text in texts.items()})

    def bundle(self, plan: Plan) -> str:
        """Return the sha256 of the plan's zip."""
        self.count += 1
        dest = self.root / f"{self.count}"
        made = {
            "stage": entry(self.root / "stage", {}),
            "patch": entry(self.source, {"commit": "1" * 40, "tree": "2" * 40}),
            "compile": entry(self.source, {"compiler": "1"}),
        }
        unpacked = {w.project: self.source for w in plan.wheels} | self.wheels
        facts = write_bundle(
            plan, plan["configure"], plan["bundle"],
            made=made, unpacked=unpacked, dest=dest,
        )  # fmt: skip
        shutil.rmtree(dest)
        return str(facts["sha256"])


def lockfile() -> Lock:
    return load_lock(resources.lockfile())


def plan_of(recipe: Recipe, lock: Lock | None = None, patches: Path | None = None) -> Plan:
    return make_plan(recipe, lock or lockfile(), host="linux-x86_64", patches_root=patches)


def outcome(shop: Workshop, plan: Plan) -> str:
    """Return the zip's sha256, or why there is none: that is another result as well."""
    try:
        return shop.bundle(plan)
    except (QbuildError, KeyError, ValueError) as error:
        return f"refused: {error}"


@pytest.fixture(params=sorted(RECIPES))
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return load_recipe(request.param, overrides=RECIPES[request.param])


@pytest.fixture
def shop(tmp_path: Path, recipe: Recipe) -> Workshop:
    return Workshop(tmp_path / "shop", recipe)


# -- generated changes -------------------------------------------------------------------------


def other_value(value: Any, hint: Any) -> Any:
    """Return another value of the same kind."""
    choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
    if choices:
        return next((each for each in choices if each != value), value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1") if value else "x"
    if isinstance(value, tuple):
        return (*value, "x") if not value or isinstance(value[0], str) else value[:-1]
    if isinstance(value, Mapping):
        return {**value, "x": "x"} if not value else dict(list(value.items())[1:])
    return "x"  # None: something that was not known


def changed_fields(obj: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, copy with one field changed) for every field of a dataclass, nested ones too."""
    hints = typing.get_type_hints(type(obj))
    for field in dataclasses.fields(obj):
        value, name = getattr(obj, field.name), f"{where}.{field.name}"
        if dataclasses.is_dataclass(value):
            for inner, changed in changed_fields(value, name):
                yield inner, dataclasses.replace(obj, **{field.name: changed})
        else:
            if isinstance(value, Mapping):
                for key, entry in value.items():
                    if dataclasses.is_dataclass(entry):
                        for inner, changed in changed_fields(entry, f"{name}.{key}"):
                            mapping = {**value, key: changed}
                            yield inner, dataclasses.replace(obj, **{field.name: mapping})
            new = other_value(value, hints[field.name])
            yield name, dataclasses.replace(obj, **{field.name: new})


def changed_locks(lock: Lock, plan: Plan) -> Iterator[tuple[str, Lock]]:
    """Yield the lockfile with one field of the source or of a used wheel changed."""
    for name, pin in changed_fields(plan.pin, "source"):
        sources = tuple(pin if each == plan.pin else each for each in lock.sources)
        yield name, dataclasses.replace(lock, sources=sources)
    for wheel in plan.wheels:
        for name, changed in changed_fields(wheel, wheel.project):
            wheels = tuple(changed if each == wheel else each for each in lock.wheels)
            yield name, dataclasses.replace(lock, wheels=wheels)


def changed_series(plan: Plan, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield a patches folder in which one text of a used series.toml, or a mail, is changed."""

    def texts(table: Any, where: str) -> Iterator[tuple[str, Any, str]]:
        for key, value in list(table.items()):
            if isinstance(value, str):
                yield f"{where}.{key}", table, key
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if hasattr(item, "items"):
                        yield from texts(item, f"{where}.{key}.{index}")
            elif hasattr(value, "items"):
                yield from texts(value, f"{where}.{key}")

    for series in plan.series:
        file = root / series.name / "series.toml"
        before = file.read_text(encoding="utf-8")
        for name in [found[0] for found in texts(tomlkit.parse(before), series.name)]:
            document = tomlkit.parse(before)
            table, key = next((t, k) for n, t, k in texts(document, series.name) if n == name)
            table[key] = str(table[key]) + "x"
            file.write_text(tomlkit.dumps(document), encoding="utf-8")
            yield name, root
        file.write_text(before, encoding="utf-8")
        for mail in sorted(file.parent.glob("*.patch"))[:1]:
            data = mail.read_bytes()
            mail.write_bytes(data.replace(b"Subject: ", b"Subject: x", 1))
            yield f"{series.name}/{mail.name}", root
            mail.write_bytes(data)


def check(
    shop: Workshop, base: Plan, changes: Iterator[tuple[str, Callable[[], Plan]]]
) -> set[str]:
    """Compare each changed plan's zip with its key; return the changes that reached the zip."""
    key, zip_ = base["bundle"].key, outcome(shop, base)
    assert not zip_.startswith("refused"), zip_
    reached, forgotten = set(), []
    for name, make in changes:
        try:
            plan = make()
        except (QbuildError, KeyError, ValueError, TypeError, AttributeError):
            continue  # nobody gets a zip of it
        if outcome(shop, plan) != zip_:
            reached.add(name)
            if plan["bundle"].key == key:
                forgotten.append(name)
    assert not forgotten, f"the zip changes and the key does not: {forgotten}"
    return reached


def test_every_field_of_the_recipe(shop: Workshop, recipe: Recipe) -> None:
    made = check(
        shop,
        plan_of(recipe),
        (
            (name, functools.partial(plan_of, new))
            for name, new in changed_fields(recipe)
            if not (recipe.cuda.architectures and name.startswith(".launch"))  # done with avx2
        ),
    )
    assert {".summary", ".build.linkage", ".target.glibc"} <= made


@pytest.mark.parametrize("recipe", ["avx2"], indirect=True)
def test_every_field_of_the_pins(shop: Workshop, recipe: Recipe) -> None:
    base = plan_of(recipe)
    changes = changed_locks(lockfile(), base)
    made = check(
        shop, base, ((name, functools.partial(plan_of, recipe, lock)) for name, lock in changes)
    )
    assert {"source.date", "source.version", "ziglang.version"} <= made


@pytest.mark.parametrize("recipe", ["avx2"], indirect=True)
def test_every_text_of_the_series(shop: Workshop, recipe: Recipe, tmp_path: Path) -> None:
    root = shutil.copytree(resources.patches_dir(), tmp_path / "patches")
    base = plan_of(recipe, patches=root)
    made = check(
        shop,
        base,
        (
            (name, functools.partial(plan_of, recipe, patches=folder))
            for name, folder in changed_series(base, root)
        ),
    )
    for series in base.series:
        assert {f"{series.name}.summary", f"{series.name}.patch.0.why"} <= made


def test_qbuilds_own_version(
    shop: Workshop, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newer() -> Plan:
        monkeypatch.setattr(qbuild, "__version__", "99.0")
        return plan_of(recipe)

    assert check(shop, plan_of(recipe), iter([("version", newer)])) == {"version"}


# -- what writes it ----------------------------------------------------------------------------


def test_all_code_that_runs_is_in_the_key(shop: Workshop, recipe: Recipe) -> None:
    """Not what is imported: what really ran while a zip was written."""
    plan = plan_of(recipe)
    ran: set[str] = set()

    def note(frame: types.FrameType, event: str, arg: object) -> None:
        if event == "call":
            ran.add(frame.f_code.co_filename)

    forget_tables()
    sys.setprofile(note)
    try:
        shop.bundle(plan)
    finally:
        sys.setprofile(None)
    plans = {PACKAGE / "steps" / "plan.py"}  # this test's own question for the steps
    own = {path for name in ran if (path := Path(name)).is_relative_to(PACKAGE)} - plans
    assert len(own) > 15
    assert own <= set(written_by.code())


def forget_tables() -> None:
    """Empty every cache of the package: tables are read again."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and (
            getattr(each, "__module__", "") or ""
        ).startswith("qbuild."):
            each.cache_clear()


def test_every_table_that_is_read_is_in_the_key(
    shop: Workshop, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each table in turn is replaced by an empty file: what then changes must change the key."""
    data = shutil.copytree(resources.data_dir(), tmp_path / "data")
    plan = plan_of(recipe)
    before = outcome(shop, plan)
    monkeypatch.setattr(resources, "data_dir", lambda: data)
    forget_tables()
    key = written_by.digest()
    reached = set()
    for path in sorted(data.rglob("*.*")):
        text = path.read_bytes()
        path.write_bytes(b"")
        forget_tables()
        try:
            after = outcome(shop, plan)
        except Exception as error:  # an empty table may make any fault
            after = repr(error)
        if after != before:
            reached.add(path.relative_to(data).as_posix())
            assert written_by.digest() != key, path
        path.write_bytes(text)
    forget_tables()
    assert {"third-party.toml", "linux-libs.toml", "launch/run.sh"} <= reached
    assert ("cuda.toml" in reached) is bool(recipe.cuda.architectures)


def test_a_changed_module_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree(PACKAGE, tmp_path / "qbuild")
    monkeypatch.setattr(written_by, "_package", lambda: copy)
    forget_tables()
    before, files = written_by.digest(), written_by.code()
    assert {"bundle/readme.py", "bundle/cuda_proof.py", "cuda/device_code.py", "toolchains/crt.py",
            "recipe/load.py"} <= {path.relative_to(copy).as_posix() for path in files}  # fmt: skip
    for path in files:
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "\n", encoding="utf-8")
        forget_tables()
        assert written_by.digest() != before, path
        path.write_text(text, encoding="utf-8")
    forget_tables()
    assert written_by.digest() == before


def test_the_quick_reader_of_imports_misses_none() -> None:
    """Against Python's own parser, for every module of the package."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found = set(written_by.imported(text))
        tree = ast.parse(text)
        skipped = {
            id(node)
            for branch in ast.walk(tree)
            if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
            for node in ast.walk(branch)
        }
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                wanted = {each.name for each in node.names if each.name.startswith("qbuild")}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qbuild"):
                wanted = {f"{node.module}.{each.name}" for each in node.names}
            else:
                continue
            assert wanted <= found, (path, wanted - found)


def test_the_libraries_are_named() -> None:
    try:
        metadata.distribution("qbuild")
    except metadata.PackageNotFoundError:
        pytest.skip("qbuild is not installed, only on the path: nothing says what it needs")
    assert any(each.startswith("deflate-0.9.0") for each in written_by.libraries())
    assert any(each.startswith("cyclonedx") for each in written_by.libraries())
