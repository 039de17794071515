"""Patches are seen in the binaries, or the bundle is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qbuild import resources
from qbuild.patches import load_series
from support.tiny_pe import make_pe
from support.verify_zips import COMMIT, Made, check

MARK = COMMIT[:9].encode() + b"\0"


def series(probe: dict[str, Any] | None) -> dict[str, Any]:
    patch: dict[str, Any] = {"file": "0001-x.patch", "subject": "x", "why": "y", "sha256": "0"}
    if probe is not None:
        patch["probe"] = probe
    return {"name": "unknown-series", "summary": "s", "digest": "d", "patches": [patch]}


def bundle(probe: dict[str, Any] | None, **changes: Any) -> Made:
    return Made(
        files={
            "llama.dll": make_pe(exports=["llama_go"], dll="llama.dll", extra=b"--new-flag\0"),
            "llama-cli.exe": make_pe(["KERNEL32.dll"], extra=MARK),
        },
        series=[series(probe)],
        **changes,
    )


@pytest.mark.parametrize(
    ("probe", "says"),
    [
        ({"kind": "export", "value": "llama_go", "place": "llama"}, ""),
        ({"kind": "export", "value": "llama_no", "place": "llama"},
         "llama.dll: lacks export 'llama_no' of patch unknown-series/0001-x.patch"),
        ({"kind": "string", "value": "--new-flag", "place": "llama"}, ""),
        ({"kind": "string", "value": "--old-flag", "place": "llama"},
         "llama.dll: lacks string '--old-flag'"),
        ({"kind": "help", "value": "--new-flag", "place": "llama"}, ""),
        ({"kind": "export", "value": "atexit", "place": "llama", "absent": True}, ""),
        ({"kind": "export", "value": "*", "place": "llama", "absent": True},
         "llama.dll: has any export, which patch unknown-series/0001-x.patch removes"),
        ({"kind": "export", "value": "*", "place": "llama-common", "absent": True}, ""),
        ({"kind": "export", "value": "x", "place": "mtmd"}, "there is no mtmd in the bundle"),
        ({"kind": "export", "value": "x", "place": "llama", "os": "linux"}, ""),
        ({"kind": "export", "value": "x", "place": "llama", "linkage": "static"}, ""),
    ],
)  # fmt: skip
def test_probes_of_the_manifest(tmp_path: Path, probe: dict[str, Any], says: str) -> None:
    found = check(bundle(probe).verify(tmp_path), "patches")
    assert found.status == ("failed" if says else "passed")
    assert says in "\n".join(found.details)


def test_what_reading_cannot_see_is_not_run(tmp_path: Path) -> None:
    probe = {"kind": "behaviour", "value": "repairs-calls", "place": "llama-server"}
    found = check(bundle(probe).verify(tmp_path), "patches.unseen")
    assert found.status == "not-run"
    assert "repairs-calls" in found.details[0]


@pytest.mark.parametrize("probe", [None, {"nonsense": 1}])
def test_a_patch_without_a_probe_is_not_passed_over(
    tmp_path: Path, probe: dict[str, Any] | None
) -> None:
    found = check(bundle(probe).verify(tmp_path), "patches.unseen")
    assert found.status == "not-run"
    assert "unknown-series/0001-x.patch: nothing says how to see it" in found.details


def test_a_static_bundle_is_searched_in_its_executables(tmp_path: Path) -> None:
    made = Made(
        files={"llama-cli.exe": make_pe(["KERNEL32.dll"], extra=MARK + b"patched text\0")},
        series=[series({"kind": "string", "value": "patched text", "place": "llama"})],
        features={"linkage": "static"},
    )
    assert check(made.verify(tmp_path), "patches").status == "passed"


def test_probes_of_a_known_series_cannot_be_left_out(tmp_path: Path) -> None:
    """The manifest hides its probes; this qbuild knows the series under the same digest."""
    known = load_series(resources.patches_dir(), "windows-gnu")
    made = Made(
        files={
            "ggml-base.dll": make_pe(exports=["atexit", "ggml_x"], dll="ggml-base.dll"),
            "llama-cli.exe": make_pe(["KERNEL32.dll"], extra=MARK),
        },
        series=[{
            "name": known.name, "digest": known.digest,
            "patches": [{"file": patch.file} for patch in known.patches],
        }],
    )  # fmt: skip
    found = check(made.verify(tmp_path), "patches")
    assert found.status == "failed"
    assert found.details[0].startswith("ggml-base.dll: has export 'atexit', which patch")


def test_how_many_were_seen_of_how_many(tmp_path: Path) -> None:
    """A patch for the other system is no patch that was overlooked."""
    made = bundle({"kind": "export", "value": "llama_go", "place": "llama"})
    made.series.append(series({"kind": "export", "value": "x", "place": "llama", "os": "linux"}))
    found = check(made.verify(tmp_path), "patches")
    assert found.details == ("seen: 1 of 2; 1 for another system or linkage",)
