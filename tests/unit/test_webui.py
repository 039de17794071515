"""The web UI: which steps it adds, whose licences it carries, and what npm's failures say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbuild import resources
from qbuild.console import Silent
from qbuild.errors import OriginError, RecipeError, ToolchainError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps import npm, web_ui
from qbuild.steps.plan import Plan, make_plan

PERMISSION = "Permission is hereby granted, free of charge, to any person"


def plan(recipe: str, *overrides: str) -> Plan:
    return make_plan(
        load_recipe(recipe, overrides=list(overrides)),
        load_lock(resources.lockfile()),
        host="linux-x86_64",
    )


def test_the_ui_is_two_steps_a_wheel_and_a_series() -> None:
    on, off = plan("avx2"), plan("avx2", "build.ui=false")
    kinds = [step.kind for step in on.steps]
    assert kinds.index("patch") < kinds.index("npm") < kinds.index("web-ui")
    assert kinds.index("web-ui") < kinds.index("configure")
    assert [series.name for series in on.series][-1] == "web-ui"
    assert web_ui.PROJECT in [wheel.project for wheel in on.wheels]
    assert off.find("npm") is off.find("web-ui") is None
    assert web_ui.PROJECT not in [wheel.project for wheel in off.wheels]
    assert "web-ui" not in [series.name for series in off.series]
    assert on["compile"].key != off["compile"].key


def test_recipes_and_systems_share_one_ui() -> None:
    """What the UI is made from is neither the target nor the patches to the C++ sources."""
    keys = {
        plan(name, *more)["web-ui"].key
        for name, *more in (("avx2",), ("avx2", "target.os=windows"), ("gtx1060",), ("laptop",))
    }
    assert len(keys) == 1


def test_without_a_server_there_is_no_ui() -> None:
    bench = plan("avx2", 'build.targets=["llama-bench"]')
    assert bench.find("web-ui") is None
    assert not bench.recipe.web_ui


def test_a_change_of_the_series_makes_a_new_ui(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(resources.patches_dir(), tmp_path / "p")
    lock = load_lock(resources.lockfile())
    before = make_plan(load_recipe("avx2"), lock, host="linux-x86_64", patches_root=tmp_path / "p")
    (mail,) = (tmp_path / "p/web-ui").glob("*.patch")
    mail.write_bytes(mail.read_bytes().replace(b"Set, it replaces", b"Set, it supersedes"))
    after = make_plan(load_recipe("avx2"), lock, host="linux-x86_64", patches_root=tmp_path / "p")
    assert before["web-ui"].key != after["web-ui"].key


def test_the_series_alone_is_refused() -> None:
    with pytest.raises(RecipeError, match="names `web-ui`, but no web UI is built"):
        load_recipe("avx2", overrides=["build.ui=false", 'patches.series=["web-ui"]'])


def test_offline_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(OriginError, match="lacks the npm packages") as caught:
        npm.fetch_packages(
            tmp_path, node=tmp_path, source=tmp_path, offline=True, reporter=Silent()
        )
    assert "--set build.ui=false" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("said", "text", "licence"),
    [
        ("MIT", "", "MIT"),
        ("(MPL-2.0 OR Apache-2.0)", "", "Apache-2.0"),
        ("(MIT OR GPL-3.0)", "", "MIT"),
        ("", f"Copyright\n{PERMISSION}", "MIT"),
        ("", "Permission is hereby\ngranted, free of charge", "MIT"),
        ("GPL-3.0-only", PERMISSION, None),
        ("(MIT AND GPL-3.0-only)", "", None),
        ("SEE LICENSE IN x", "", None),
        ("", "all rights reserved", None),
    ],
)
def test_licences(said: str, text: str, licence: str | None) -> None:
    assert web_ui.licence_of(said, text) == licence


def package(project: Path, name: str, licence: str, *texts: str) -> dict[str, str]:
    folder = project / "node_modules" / name
    folder.mkdir(parents=True)
    for number, text in enumerate(texts):
        (folder / ("LICENSE", "NOTICE.md")[number]).write_text(text)
    return {"name": name, "version": "1.0", "license": licence, "path": f"node_modules/{name}"}


def test_every_package_s_text_is_there(tmp_path: Path) -> None:
    parts = [
        package(tmp_path, "zwei", "ISC", "two's text", "two's notice"),
        package(tmp_path, "@a/eins", "", PERMISSION),
        package(tmp_path, "none", "MIT"),
    ]
    text = web_ui.licence_texts(tmp_path, parts)
    assert text.index("@a/eins 1.0 (MIT)") < text.index("none 1.0 (MIT)") < text.index("zwei 1.0")
    assert "two's text\n\ntwo's notice" in text
    assert "(The package has no licence text; it says: MIT.)" in text


def test_a_licence_nobody_looked_at_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"evil 1\.0, whose licence `AGPL-3.0` nobody"):
        web_ui.licence_texts(tmp_path, [package(tmp_path, "evil", "AGPL-3.0", "text")])


def test_every_licence_is_in_the_table_too() -> None:
    (row,) = (
        row
        for row in resources.read_table("third-party.toml")["component"]
        if row["name"] == "web-ui"
    )
    assert set(row["spdx"].split(" AND ")) == set(web_ui._KNOWN)


def test_npm_s_own_words() -> None:
    lines = [
        "npm warn deprecated x",
        "npm error code ECONNREFUSED",
        "npm error request to http://r/x failed, reason: connect ECONNREFUSED",
        "npm error A complete log of this run can be found in: /x",
    ]
    assert npm.reason(lines) == "request to http://r/x failed, reason: connect ECONNREFUSED"
    assert npm.reason(["plain"]) == "plain"
    # seen from node.exe on a system that is too old for it
    node = ["Node.js is only supported on Windows 10 or higher.", "Setting … skips this check.",
            "Any issues on unsupported platforms will not be fixed."]  # fmt: skip
    assert npm.reason(node) == " ".join(node)


def test_the_system_s_npm_settings_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry or a certificate may be set up for the whole machine."""
    monkeypatch.setattr(npm, "_ETC_NPMRC", str(tmp_path / "npmrc"))
    assert npm._system_settings() == {}
    (tmp_path / "npmrc").write_text("registry=http://r/\n")
    assert npm._system_settings() == {"npm_config_globalconfig": str(tmp_path / "npmrc")}


def test_the_series_lists_what_the_licences_are_read_from() -> None:
    """The patch writes the file's name, and the build looks for it."""
    (mail,) = (resources.patches_dir() / "web-ui").glob("*.patch")
    assert f"'{web_ui.PARTS}'" in mail.read_text(encoding="utf-8")


def test_sbom_names_each_package() -> None:
    from qbuild.bundle.sbom import make_sbom
    from qbuild.bundle.third_party import Found, load_table
    from support.bundles import FACTS

    (row,) = (row for row in load_table() if row.name == "web-ui")
    parts = (("@scope/x", "1.2"), ("svelte", "5.0"))
    document = make_sbom(FACTS, [], [Found(component=row, version="", texts=(), parts=parts)])
    (component,) = (each for each in document["components"] if each["name"] == "web-ui")
    purls = [each["purl"] for each in component["components"]]
    assert purls == ["pkg:npm/%40scope/x@1.2", "pkg:npm/svelte@5.0"]
    assert json.dumps(document) == json.dumps(
        make_sbom(FACTS, [], [Found(component=row, version="", texts=(), parts=parts[::-1])])
    )
