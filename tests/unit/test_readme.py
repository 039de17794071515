"""README.txt: what a person needs to know, in the words and line ends of their system."""

from __future__ import annotations

import dataclasses

import pytest

from qbuild.bundle.facts import CudaFacts
from qbuild.bundle.readme import make_readme
from qbuild.recipe.load import load_recipe
from qbuild.recipe.model import Build, Target
from support.bundles import FACTS, facts


def text(given: object = FACTS) -> str:
    """Return the README with its line breaks undone, so that phrases can be looked for."""
    return " ".join(make_readme(given).decode().split())  # type: ignore[arg-type]


def test_line_ends_fit_the_system() -> None:
    windows, linux = make_readme(FACTS), make_readme(facts("linux"))
    assert windows.count(b"\n") == windows.count(b"\r\n") > 50
    assert b"\r" not in linux
    assert windows.endswith(b"\r\n")
    assert linux.endswith(b"\n")
    assert not linux.endswith(b"\n\n")


def test_lines_are_short_except_commands() -> None:
    for os in ("windows", "linux"):
        for line in make_readme(facts(os)).decode().splitlines():  # type: ignore[arg-type]
            assert len(line) <= 78 or line.startswith("    "), line


@pytest.mark.parametrize(
    "phrase",
    [
        FACTS.name,
        "commit 0c1e57098 of 2026-10-01",
        "Haswell, 2013",
        "x86-64-v3",
        "Windows 10 or newer",
        ".\\llama-cli.exe -m models\\model.gguf",
        ".\\llama-server.exe -m models\\model.gguf --port 8080",
        "not signed",
        "SmartScreen",
        "This build has no HTTPS: -hf",
        "curl.exe -L -o",
        "web UI is NOT inside",
        "ggml: export the API on MinGW. Why: lld would export everything",
        f"certutil -hashfile {FACTS.name}.zip SHA256",
        "qbuild reproduce --recipe avx2 --os windows",
        "NOT run on a real Windows",
        "move them together",
        "licenses",
    ],
)
def test_windows_readers_find(phrase: str) -> None:
    assert phrase in text()


def test_linux_readers_find() -> None:
    readme = text(facts("linux"))
    assert "glibc 2.28 or newer" in readme
    assert "./llama-cli -m models/model.gguf" in readme
    assert f"sha256sum -c {facts('linux').name}.zip.sha256" in readme
    for phrase in ("SmartScreen", ".exe", "NOT run on a real Windows", "certutil"):
        assert phrase not in readme


def test_features_are_told_as_they_are() -> None:
    readme = text(facts(https=True, build=Build(ui=True, linkage="static")))
    assert "HTTPS is inside" in readme
    assert "-hf <user>/<model> downloads" in readme
    assert "no HTTPS" not in readme
    assert "web UI is inside" in readme
    assert "can be copied alone" in readme


def test_only_shipped_tools_are_explained() -> None:
    readme = text(facts(build=Build(targets=("llama-bench", "llama-quantize"))))
    assert "llama-bench.exe" in readme
    assert "Also here: llama-quantize" in readme
    assert "llama-server" not in readme
    assert "web UI" not in readme


@pytest.mark.parametrize(
    ("validated", "phrase"),
    [(None, "holds no GPU code"), (False, "NOT run on a real GPU")],
)
def test_gpu_label(validated: bool | None, phrase: str) -> None:
    assert phrase in text(facts(gpu_validated=validated))


def test_what_was_emulated_is_said_beside_what_was_not_validated() -> None:
    gpu = CudaFacts(
        toolkit="12.9", architectures=("61-real",), cublas="", driver="525.60", proofs=(), gpus=(),
        emulated="emulated: 44 of 3,956 kernels computed right on a software GTX 1060",
    )  # fmt: skip
    readme = " ".join(text(facts(gpu_validated=False, cuda=gpu)).split())
    assert "NOT run on a real GPU by those who built it (gpu_validated: false)." in readme
    assert (
        "Emulated: 44 of 3,956 kernels computed right on a software GTX 1060. That says" in readme
    )


@pytest.mark.parametrize(
    ("words", "price"),
    [
        ([], "and such prompts faster: by how much nobody measured yet. To"),
        (["cuda.architectures=['75-real']"], "nobody measured yet (it uses tensor cores for F16, "
         "the kernels inside not below capability 8.0). To"),
        (["cuda.architectures=['86-real']"], "nobody measured yet (it uses tensor cores for F32 as "
         "well, the kernels inside for F16 and BF16). To"),
    ],
)  # fmt: skip
def test_the_price_of_no_cublas_is_said_for_this_gpu(words: list[str], price: str) -> None:
    gpu = CudaFacts(
        toolkit="12.9", architectures=("61-real",), cublas="", driver="525.60", proofs=(), gpus=(),
    )  # fmt: skip
    recipe = load_recipe("gtx1060", overrides=words)
    assert price in " ".join(text(facts(recipe=recipe, cuda=gpu)).split())


def test_a_validated_gpu_needs_no_label() -> None:
    assert "GPU" not in text(facts(gpu_validated=True))


def test_extra_instructions_and_no_patches() -> None:
    recipe = dataclasses.replace(
        FACTS.recipe, target=Target(os="linux", cpu="x86-64-v2", isa=("f16c", "avx"))
    )
    readme = text(dataclasses.replace(FACTS, recipe=recipe, series=()))
    assert "x86-64-v2 with avx, f16c: a processor with SSE4.2" in readme
    assert "None in the source" in readme


def test_start_scripts_are_explained_with_what_windows_asks() -> None:
    from qbuild.recipe.load import load_recipe

    windows = text(facts("windows", recipe=load_recipe("avx2", os="windows")))
    assert "run-server.bat: Chat and API" in windows and "config-NAME.txt" in windows
    assert "powershell -ExecutionPolicy Bypass -File .\\run-server.ps1" in windows
    linux = text(facts("linux", recipe=load_recipe("avx2", os="linux")))
    assert "run-server.sh: Chat" in linux and "ExecutionPolicy" not in linux
    assert "run-server" not in text()


def test_what_was_changed_for_one_build_is_in_the_command_that_makes_it_again() -> None:
    from qbuild.recipe.load import load_recipe

    made = dataclasses.replace(FACTS, recipe=load_recipe("avx2", overrides=["build.ui=false"]))
    assert "qbuild reproduce --recipe avx2 --os linux --set build.ui=false" in text(made)
