"""Variants of the CPU backend: which ship, which is chosen, what each may hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from qbuild.errors import RecipeError
from qbuild.recipe.isa import EXTENSIONS
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.recipe.variants import QEMU_CPUS, VARIANTS, chosen, extensions_of, useful, variant_of
from qbuild.resources import lockfile
from qbuild.steps.plan import make_plan
from qbuild.verify import tiny_gguf
from qbuild.verify.runners import Runner, _choosing
from qbuild.verify.sandbox import Ran
from qbuild.verify.trials import Programs, steps, variant_problems
from support.tiny_pe import make_pe
from support.verify_zips import COMMIT, Made, check, findings

NEHALEM = "sse4_2 popcnt ssse3"
HASWELL = f"{NEHALEM} avx f16c bmi2 fma avx2"
SKYLAKE_X = f"{HASWELL} avx512f avx512cd avx512vl avx512dq avx512bw"
ZEN4 = f"{SKYLAKE_X} avx512vbmi avx512_vnni avx512_bf16"


@pytest.mark.parametrize(
    ("flags", "level", "variant"),
    [
        ("", "x86-64", "x64"),
        (NEHALEM, "x86-64", "sse42"),
        (f"{NEHALEM} avx", "x86-64", "sandybridge"),
        (f"{NEHALEM} avx f16c fma", "x86-64", "piledriver"),
        (HASWELL, "x86-64", "haswell"),
        (f"{HASWELL} avx_vnni", "x86-64", "alderlake"),
        (SKYLAKE_X, "x86-64", "skylakex"),
        (f"{SKYLAKE_X} avx512_vnni", "x86-64", "cascadelake"),
        (ZEN4, "x86-64", "zen4"),
        (f"{ZEN4} amx_tile amx_int8", "x86-64", "sapphirerapids"),
        # part of AVX-512 is none
        (SKYLAKE_X.replace("avx512dq", ""), "x86-64", "haswell"),
        (HASWELL, "x86-64-v3", "haswell"),
    ],
)
def test_the_variant_that_fits(flags: str, level: str, variant: str) -> None:
    assert chosen(flags.split(), level) == variant


def test_nothing_ships_that_only_a_cpu_below_the_programs_would_load() -> None:
    assert useful("x86-64") == tuple(VARIANTS)
    assert useful("x86-64-v3")[:2] == ("haswell", "alderlake")
    assert len(useful("x86-64-v3")) == 9
    assert "haswell" not in useful("x86-64-v4")


def test_every_extension_of_a_variant_is_one_that_recipes_and_verify_know() -> None:
    assert {name for extensions in VARIANTS.values() for name in extensions} <= set(EXTENSIONS)
    assert set(QEMU_CPUS.values()) <= set(VARIANTS)


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("libggml-cpu-haswell.so", "haswell"),
        ("ggml-cpu-x64.dll", "x64"),
        ("libggml-cpu.so", None),
        ("ggml-cpu-haswell.dll.bak", None),
        ("ggml-cpu-nonsense.dll", None),
        ("libggml-base.so", None),
    ],
)
def test_file_names(name: str, variant: str | None) -> None:
    assert variant_of(name) == variant


def entries(name: str, *overrides: str) -> Mapping[str, Any]:
    recipe = load_recipe(name, overrides=overrides)
    made = make_plan(recipe, load_lock(lockfile()), host="linux-x86_64")
    return made["configure"].inputs["cache"]


def test_the_recipe_builds_all_of_them() -> None:
    found = entries("cpu")
    assert found["GGML_CPU_ALL_VARIANTS"] is True
    assert found["GGML_BACKEND_DL"] is True
    assert "cpu-variants" in load_recipe("cpu").series
    assert "GGML_CPU_ALL_VARIANTS" not in entries("avx2")


@pytest.mark.parametrize(
    ("name", "overrides", "tuned"),
    [
        ("cpu", (), True),
        ("avx2", ("target.cpu=x86-64-v4",), True),
        ("avx2", ('target.isa=["avx512"]',), True),
        ("gtx1060", ("target.variants=true",), True),
        ("avx2", (), False),
        ("avx2", ('target.isa=["avx-vnni"]',), False),
        ("gtx1060", (), False),
        ("baseline", (), False),
    ],
)
def test_avx512_code_is_tuned_and_nothing_else(
    name: str, overrides: tuple[str, ...], tuned: bool
) -> None:
    assert ("fast-variable-perlane" in str(entries(name, *overrides).get("QBUILD_TUNE"))) is tuned
    assert ("cpu-speed" in load_recipe(name, overrides=overrides).series) is tuned


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("build.linkage=static", "build.linkage is static"),
        ('target.isa=["sse4.2"]', "target.isa names some"),
        ("toolchain.name=msvc", "fewer variants"),
        ("build.options.GGML_CPU_ALL_VARIANTS=true", "decided by qbuild"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(override: str, says: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("cpu", overrides=(override, "target.os=windows"))
    assert says in str(caught.value)


PROGRAM = make_pe(["KERNEL32.dll"], extra=COMMIT[:9].encode() + b"\0")
YMM = bytes.fromhex("c5edfec1c3")  # vpaddd ymm0, ymm2, ymm1; ret
ZMM = bytes.fromhex("62f16d48fec1c3")  # vpaddd zmm0, zmm2, zmm1; ret


def bundle(files: dict[str, bytes], claims: dict[str, list[str]] | None = None) -> Made:
    inside = {"llama-cli.exe": PROGRAM, **files}
    return Made(
        cpu="x86-64",
        files=inside,
        variants=extensions_of(files) if claims is None else claims,
    )


def test_each_variant_is_held_to_its_own_extensions(tmp_path: Path) -> None:
    good = bundle(
        {"ggml-cpu-haswell.dll": make_pe([], code=YMM), "ggml-cpu-zen4.dll": make_pe([], code=ZMM)}
    )
    assert check(good.verify(tmp_path), "cpu").status == "passed"
    bad = bundle({"ggml-cpu-sandybridge.dll": make_pe([], code=YMM)})
    assert "ggml-cpu-sandybridge.dll" in findings(bad.verify(tmp_path))
    worse = bundle({"ggml-cpu-haswell.dll": make_pe([], code=ZMM)})
    assert "AVX512F" in findings(worse.verify(tmp_path))


def test_the_programs_stay_at_the_oldest_level(tmp_path: Path) -> None:
    made = bundle({"ggml-cpu-haswell.dll": make_pe([], code=YMM)})
    made.files["llama-cli.exe"] = make_pe(["KERNEL32.dll"], code=YMM)
    assert "llama-cli.exe" in findings(made.verify(tmp_path))


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"ggml-cpu-haswell.dll": ["avx512"]},
        {"ggml-cpu-haswell.dll": sorted(VARIANTS["haswell"]), "ggml-cpu-zen4.dll": []},
    ],
)
def test_a_manifest_cannot_claim_other_variants(
    tmp_path: Path, claims: dict[str, list[str]]
) -> None:
    made = bundle({"ggml-cpu-haswell.dll": make_pe([], code=YMM)}, claims)
    assert check(made.verify(tmp_path), "cpu").status == "failed"


def test_a_zip_that_promises_no_variants_may_hold_none(tmp_path: Path) -> None:
    made = Made(cpu="x86-64", files={"llama-cli.exe": PROGRAM, "ggml-cpu-haswell.dll": make_pe([])})
    assert "ggml-cpu-haswell.dll" in findings(made.verify(tmp_path))


def test_older_cpus_are_played_one_by_one() -> None:
    emulated = Runner(id="qemu", label="qemu-user as qemu64", prefix=("qemu", "-cpu", "qemu64"))
    direct = Runner(id="native", label="this machine")
    found = [r for r in _choosing(direct, emulated, "qemu64", "x86-64") if isinstance(r, Runner)]
    assert [(r.id, r.prefix[-1:], r.variant) for r in found[2:]] == [
        (f"qemu-{cpu.lower()}", (cpu,), variant) for cpu, variant in QEMU_CPUS.items()
    ]
    assert all(r.only == ("generate",) for r in found[2:])


@pytest.mark.parametrize(
    ("output", "variant", "right"),
    [
        ("load_backend: loaded CPU backend from /a b/libggml-cpu-haswell.so\n", "haswell", True),
        ("load_backend: loaded CPU backend from Z:\\a\\ggml-cpu-zen4.dll\n", "zen4", True),
        ("load_backend: loaded CPU backend from /a/libggml-cpu-sse42.so\n", "haswell", False),
        ("hello\n", "haswell", False),
        ("hello\n", "", True),
    ],
)
def test_the_loaded_variant_is_read_from_the_log(output: str, variant: str, right: bool) -> None:
    assert (variant_problems("llama-cli", output, variant) == []) is right


@pytest.mark.parametrize("variant", ["", "haswell"])
def test_llama_cli_is_asked_which_variant_it_loads(variant: str, tmp_path: Path) -> None:
    """Without ``--verbosity 4`` its log is silent about it: a whole zip was refused for that."""
    asked: list[str] = []

    class Silent(Programs):
        def execute(self, runner: Runner, argv: Any) -> Ran:
            asked.extend(argv)
            told = "--verbosity" in argv and argv[argv.index("--verbosity") + 1] == "4"
            return Ran(
                returncode=0,
                stdout=tiny_gguf.SENTENCE,
                stderr="I load_backend: loaded CPU backend from /libggml-cpu-haswell.so" * told,
                seconds=0.0, peak_memory=0, stopped="", network="loopback",
            )  # fmt: skip

    (tmp_path / "llama-cli").touch()
    programs = Silent(root=tmp_path, suffix="", model=tmp_path / "m", scratch=tmp_path)
    generate = next(step for step in steps(COMMIT, None) if step.kind == "generate")
    assert generate.find
    runner = Runner(id="native", label="this machine", variant=variant)
    assert generate.find(programs, runner) == []
    assert ("--verbosity" in asked) is bool(variant)
