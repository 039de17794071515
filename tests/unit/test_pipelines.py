"""Pipelines: what the recipes become, what the files promise, what stays away from strangers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from qbuild.errors import UsageError
from qbuild.extras.ci import github, gitlab
from qbuild.extras.ci.jobs import table, workflows
from qbuild.extras.ci.matrix import NATIVE_NOTE, entries, known_entries
from qbuild.extras.ci.run import describe, find, instances, uncommitted
from qbuild.recipe.load import known_recipes, load_recipe
from qbuild.recipe.model import Recipe, Target, Toolchain

ROOT = Path(__file__).resolve().parents[2]


def recipe(name: str, toolchain: str, *systems: str) -> Recipe:
    return Recipe(
        name=name,
        summary=name,
        target=Target(os=systems[0], cpu="x86-64-v3"),  # type: ignore[arg-type]
        toolchain=Toolchain(name=toolchain),  # type: ignore[arg-type]
        supports=systems,  # type: ignore[arg-type]
    )


MIXED = entries(
    [
        recipe("zoo", "zig", "linux", "windows"),
        recipe("studio", "msvc", "linux", "windows"),
        recipe("old", "gcc", "linux", "windows"),
        recipe("card", "nvcc", "linux", "windows"),
        recipe("cross", "clang-cuda", "windows"),
    ]
)


def parsed() -> dict[str, dict[str, Any]]:
    texts = {name: text.replace("\non:\n", "\n'on':\n") for name, text in github.files().items()}
    return {Path(name).stem: yaml.safe_load(text) for name, text in texts.items()}


def all_jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(f, job) for f, data in parsed().items() for job in data["jobs"].values()]


# -- the matrix -----------------------------------------------------------------------------------


def test_only_toolchains_that_leave_no_choice_get_a_windows_machine() -> None:
    found = {(e["recipe"], e["os"]): (e["runner"].split("-")[0], e["native"]) for e in MIXED}
    assert found == {
        ("zoo", "linux"): ("ubuntu", False),
        ("zoo", "windows"): ("ubuntu", False),
        ("cross", "windows"): ("ubuntu", False),
        ("old", "linux"): ("ubuntu", False),
        ("card", "linux"): ("ubuntu", False),
        ("card", "windows"): ("windows", True),
        ("studio", "windows"): ("windows", True),
    }


def test_every_recipe_of_ours_is_in_the_matrix_once_per_system() -> None:
    wanted = {(name, system) for name in known_recipes() for system in load_recipe(name).supports}
    rows = known_entries()
    assert {(row["recipe"], row["os"]) for row in rows} <= wanted
    assert {row["recipe"] for row in rows} == set(known_recipes())
    assert len({row["job"] for row in rows}) == len(rows)


def test_native_jobs_say_that_nobody_here_ran_them() -> None:
    by_id = {w.id: w for w in workflows(MIXED)}
    for name in ("build", "release"):
        text = github.workflow_text(by_id[name])
        data = yaml.safe_load(text.replace("\non:\n", "\n'on':\n"))
        native = data["jobs"]["native"]
        assert NATIVE_NOTE in native["name"]
        assert f"# Needs a real Windows with Visual Studio: {NATIVE_NOTE}." in text
        assert {row["runner"] for row in native["strategy"]["matrix"]["include"]} == {
            "windows-2022"
        }
    assert all(row["note"] == NATIVE_NOTE for row in MIXED if row["native"])


def test_without_native_recipes_there_is_no_windows_machine() -> None:
    cross = [each for each in known_entries() if not each["native"]]
    for workflow in workflows(cross):
        if workflow.id == "windows":  # it compares hosts, whatever the recipes need
            continue
        assert "windows-2022" not in github.workflow_text(workflow)


# -- pins -----------------------------------------------------------------------------------------


def test_every_action_is_pinned_to_a_commit_of_the_table() -> None:
    known = {github.uses(action) for action in table()["actions"]}
    used = {step["uses"] for _, job in all_jobs() for step in job["steps"] if "uses" in step}
    assert used <= known
    assert all(re.fullmatch(r"[a-z/-]+@[0-9a-f]{40}", each) for each in used)
    assert used == known, "an action in the table is used nowhere"


def test_the_version_of_each_commit_stands_beside_it() -> None:
    for text in github.files().values():
        for line in text.splitlines():
            if "uses:" in line:
                assert re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line


def test_each_pin_names_the_public_workflow_it_was_read_in() -> None:
    for action in table()["actions"].values():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+: \.github/workflows/[\w.-]+\.yml", action["seen"])


# -- rights ---------------------------------------------------------------------------------------


def test_no_job_has_more_rights_than_its_steps_need() -> None:
    for file, data in parsed().items():
        assert data["permissions"] == {}, "rights are given job by job"
        for name, job in data["jobs"].items():
            writes = {key for key, value in job["permissions"].items() if value == "write"}
            text = str(job["steps"])
            expected = set()
            if "attest-build-provenance" in text:
                expected |= {"id-token", "attestations"}
            if "gh release" in text:
                expected |= {"contents"}
            if "gh issue" in text:
                expected |= {"issues"}
            assert writes == expected, (file, name)


def test_jobs_with_rights_run_none_of_the_repository_and_keep_no_token() -> None:
    for workflow in workflows(known_entries()):
        for job in workflow.jobs:
            if "write" in job.said["permissions"].values():
                assert not job.uses("actions/checkout"), job.id
            else:
                assert job.said["permissions"] == {"contents": "read"}, job.id
    for _, written in all_jobs():
        for step in written["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"] == {"persist-credentials": False}


def test_pull_requests_get_no_secret_no_cache_to_write_and_no_right_to_write() -> None:
    for file, data in parsed().items():
        text = (ROOT / github.FOLDER / f"{file}.yml").read_text(encoding="utf-8")
        assert "secrets." not in text
        assert "pull_request_target" not in data["on"]
        if "pull_request" not in data["on"]:
            continue
        for name, job in data["jobs"].items():
            writes = "write" in job["permissions"].values()
            assert not writes or job["if"] == "github.event_name == 'push'", name
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/cache/save@"):
                    assert step["if"] == "github.event_name == 'push'"
            if "QBUILD_REMOTE_CACHE" in job.get("env", {}):
                mode = job["env"]["QBUILD_REMOTE_CACHE_MODE"]
                assert "pull_request' && 'read'" in mode


def test_no_value_is_pasted_into_a_script() -> None:
    for _, job in all_jobs():
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")


def test_releases_and_reproducibility_use_no_cache() -> None:
    data = parsed()
    for file, name in (("release", "release-build"), ("reproduce", "half")):
        job = data[file]["jobs"][name]
        assert "actions/cache" not in str(job)
        assert "QBUILD_REMOTE_CACHE" not in str(job)
        assert any("--release" in step.get("run", "") for step in job["steps"])


def test_what_is_handed_over_carries_its_hash() -> None:
    for workflow in workflows(known_entries()):
        for job in workflow.jobs:
            uploads = [
                step
                for step in job.steps
                if step.get("uses") == "actions/upload-artifact" and step["with"]["path"] == "dist/"
            ]
            checks = [step for step in job.steps if "sha256sum --check" in step.get("run", "")]
            assert len(uploads) == 0 or checks, job.id


def test_the_canary_reports_apart_from_the_job_that_runs_code() -> None:
    jobs = parsed()["canary"]["jobs"]
    assert jobs["canary"]["permissions"] == {"contents": "read"}
    assert jobs["report"]["needs"] == ["canary"]
    assert jobs["report"]["if"] == "failure()"
    assert parsed()["canary"]["on"]["schedule"]


def test_the_two_halves_run_on_two_kinds_of_machine() -> None:
    rows = parsed()["reproduce"]["jobs"]["half"]["strategy"]["matrix"]["include"]
    machines: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        machines.setdefault((row["recipe"], row["os"]), set()).add(row["runner"])
    assert machines
    assert all(len(each) == 2 for each in machines.values())


# -- other systems --------------------------------------------------------------------------------


def test_gitlab_does_the_same_scripts() -> None:
    data = yaml.safe_load(gitlab.text())
    local = {job.id: job for w in workflows(known_entries()) for job in w.jobs if not job.local}
    written = {name for name in data if isinstance(data[name], dict) and "script" in data[name]}
    assert written == set(local)
    for name, job in local.items():
        for step in job.steps:
            if "run" in step and "x-left-out" not in step:
                assert step["run"].rstrip("\n") in data[name]["script"]
        for need in data[name].get("needs", []):
            assert need["job"] in written


def test_gitlab_merge_requests_only_read_a_shared_cache() -> None:
    rules = yaml.safe_load(gitlab.text())["build"]["rules"]
    (merge,) = [rule for rule in rules if "merge_request" in rule["if"]]
    assert merge["variables"] == {"QBUILD_REMOTE_CACHE_MODE": "read"}


# -- the same jobs here ---------------------------------------------------------------------------


def test_jobs_have_one_name_each_and_a_wrong_one_is_suggested() -> None:
    known = instances(workflows(MIXED))
    assert len(known) == sum(len(job.rows) for w in workflows(MIXED) for job in w.jobs)
    assert all(each.name == name for name, each in known.items())
    native = {"native-studio-windows", "release-native-studio-windows"}
    assert {"build-zoo-linux", "half-first-zoo-linux", *native} <= set(known)
    with pytest.raises(UsageError, match="build-zoo-linux"):
        find("build-zoo-linx", known)


def test_a_machine_without_git_is_not_asked_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended in a traceback there; cloning says what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not uncommitted(tmp_path)


def test_what_is_left_out_here_says_why() -> None:
    for each in instances(workflows(MIXED)).values():
        for step in each.job.steps:
            title, why_not = describe(step, each)
            assert title
            touches = "sudo" in step.get("run", "") or "gh " in step.get("run", "")
            assert why_not or each.job.local or not touches, (each.name, title)


def test_a_job_fills_its_row_in() -> None:
    each = find("build-zoo-windows", instances(workflows(MIXED)))
    # what only GitHub knows (its variables) is not set here
    assert each.variables(each.job.said) == {"RECIPE": "zoo", "TARGET_OS": "windows"}
    (upload,) = [step for step in each.job.steps if "upload" in step.get("uses", "")]
    assert each.given(upload)["name"] == "llama-zoo-windows"


def test_every_job_says_what_code_does_not_fill_in() -> None:
    """Nothing has a default that a reader of the table would have to know."""
    for workflow in workflows(MIXED):
        for job in workflow.jobs:
            assert {"name", "runs-on", "timeout-minutes", "permissions", "steps"} <= set(job.said)
            assert job.said["defaults"] == {"run": {"shell": "bash"}}, job.id
            assert ("strategy" in job.said) == ("x-rows" in job.said), job.id
            assert job.uses("actions/cache/restore") == (
                "QBUILD_REMOTE_CACHE" in job.said.get("env", {})
            )
            assert any("gh " in step.get("run", "") for step in job.steps) == (
                "GH_TOKEN" in job.said.get("env", {})
            )
            if "x-rows" in job.said:
                assert {"RECIPE", "TARGET_OS"} <= set(job.said["env"]), job.id


def test_nobody_needs_a_job_that_is_not_there() -> None:
    for found in (MIXED, known_entries()):
        for workflow in workflows(found):
            ids = [job.id for job in workflow.jobs]
            for job in workflow.jobs:
                needs = job.said.get("needs", [])
                assert set(needs) <= set(ids[: ids.index(job.id)]), job.id
    attest = {job.id: job for job in workflows(MIXED)[0].jobs}["attest"]
    assert attest.said["needs"] == ["build", "native"]
