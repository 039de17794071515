"""``README.txt``: what a person reads who unpacked the zip and has neither Python nor git.

Plain text, at most 78 columns, CRLF line ends for Windows so that any editor shows it right.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from qbuild.bundle.facts import BundleFacts, SeriesFacts
from qbuild.bundle.launch.profile import profiles_of
from qbuild.bundle.third_party import Found
from qbuild.cuda.arch import parse_archs
from qbuild.recipe.levels import LEVELS
from qbuild.recipe.load import as_dict
from qbuild.recipe.rebuild import recipe_words

FILE_NAME: Final = "README.txt"
_WIDTH: Final = 78
_TENSOR_CORES: Final = 70  # the first architecture with tensor cores (Volta)
_OWN_TENSOR_CORES: Final = 80
"""The first one whose tensor cores series ``own-blas`` has kernels for (Ampere)."""


def make_readme(facts: BundleFacts, found: Sequence[Found] = ()) -> bytes:
    """Return the README of a bundle as UTF-8, with the line ends of its target system."""
    parts = [
        _title(facts),
        _needs(facts),
        _start(facts),
        _models(facts),
        _features(facts),
        _differences(facts),
        _checks(facts),
        _licences(found),
    ]
    lines = "\n\n".join(parts).rstrip().split("\n")
    newline = "\r\n" if facts.windows else "\n"
    return (newline.join(lines) + newline).encode()


def _wrap(text: str, indent: str = "", first: str | None = None) -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _section(title: str, paragraphs: Iterable[str]) -> str:
    return "\n\n".join([f"{title}\n{'-' * len(title)}", *paragraphs])


def _title(facts: BundleFacts) -> str:
    source = facts.source
    patched = "with the changes listed below" if facts.series else "unchanged"
    head = f"{facts.name}\n{'=' * len(facts.name)}"
    what = (
        f"llama.cpp {source.version} (commit {source.commit[:9]} of {source.date}), {patched}, "
        f"built by qbuild {facts.qbuild_version} from the recipe `{facts.recipe.name}`: "
        f"{facts.recipe.summary.rstrip('.')}."
    )
    plain = (
        "llama.cpp runs large language models on your own computer, without an account. Nothing "
        "is installed: delete the folder and it is gone."
    )
    return "\n\n".join([head, _wrap(what), _wrap(plain)])


def _needs(facts: BundleFacts) -> str:
    target = facts.recipe.target
    if facts.windows:
        system = f"Windows 10 or newer, 64 bit. {_redistributable(facts)}"
    else:
        system = f"Linux, 64 bit, with glibc {target.glibc} or newer."
    cpu = LEVELS[target.cpu].needs
    extra = f" with {', '.join(sorted(target.isa))}" if target.isa else ""
    blas = []
    if facts.recipe.openblas.origin == "system":
        blas = [_wrap("The system's OpenBLAS (Debian, Ubuntu: libopenblas0).", "  ", "- ")]
    return _section(
        "What it needs",
        [
            _wrap(system, "  ", "- "),
            _wrap(
                f"Processor level {target.cpu}{extra}: {cpu}. On an older processor the programs "
                f"stop at once, with `illegal instruction` or silently.{_variants(facts)}",
                "  ",
                "- ",
            ),
            *_gpu_needs(facts),
            *blas,
            _wrap("Memory for the model: about the size of its file plus 1 to 2 GB.", "  ", "- "),
        ],
    )


def _variants(facts: BundleFacts) -> str:
    if not facts.recipe.target.variants:
        return ""
    return (
        " The arithmetic is there once for each family of processors, up to Sapphire Rapids and "
        "Zen 4: the programs load the best one when they start."
    )


def _redistributable(facts: BundleFacts) -> str:
    need = facts.redistributable
    if need is None:
        return "No Visual C++ redistributable is needed."
    if facts.recipe.bundle.vc_runtime == "app-local":
        return f"Microsoft's Visual C++ runtime lies beside the programs: {', '.join(need.dlls)}."
    return (
        f"Microsoft's Visual C++ redistributable (x64), version {need.version} or newer, must be "
        f"installed: the programs load {', '.join(need.dlls)}."
    )


def _gpu_needs(facts: BundleFacts) -> list[str]:
    cuda = facts.cuda
    if cuda is None:
        return []
    gpus = "; ".join(f"{family} {how}" for family, how in cuda.gpus)
    lines = [
        f"An NVIDIA GPU, for speed: {gpus} (generation and compute capability). Any other GPU is "
        "not used; the processor then does all the work.",
        f"NVIDIA's driver {cuda.driver} or newer{_cuda_libraries(facts)}",
        "`nvidia-smi` prints the driver's version; `llama-cli --list-devices` the GPUs that are "
        "used.",
    ]
    return [_wrap(line, "  ", "- ") for line in lines]


def _cuda_libraries(facts: BundleFacts) -> str:
    """Return how the sentence about the driver ends: what else of CUDA must be there."""
    assert facts.cuda is not None
    bundle = facts.recipe.bundle
    wanted = ["cudart"] if bundle.cuda_runtime == "separate" else []
    wanted += ["cublas", "cublasLt"] if bundle.cublas == "separate" else []
    if not wanted:
        return ". Nothing else of CUDA has to be installed."
    *first, last = wanted
    names = f"{', '.join(first)} and {last}" if first else last
    release = facts.cuda.toolkit.partition(".")[0]
    out = "them" if first else "it"
    return f", and {names} of CUDA {release} on the library path: this bundle leaves {out} out."


def _own_blas(facts: BundleFacts) -> str:
    """Return what a bundle without cuBLAS gives up, and how its user gets it back."""
    numbers = [arch.number for arch in parse_archs(facts.recipe.cuda.architectures)]
    price = "by how much nobody measured yet"
    if any(_TENSOR_CORES <= number < _OWN_TENSOR_CORES for number in numbers):
        price += " (it uses tensor cores for F16, the kernels inside not below capability 8.0)"
    elif any(number >= _OWN_TENSOR_CORES for number in numbers):
        price += " (it uses tensor cores for F32 as well, the kernels inside for F16 and BF16)"
    files = ("cublas64_12.dll", "cublasLt64_12.dll")
    if not facts.windows:
        files = ("libcublas.so.12", "libcublasLt.so.12")
    return (
        "NVIDIA's cuBLAS is NOT inside: kernels of qbuild's multiply what is not quantised (F32, "
        "F16 and BF16 weights in prompts, attention with flash attention off). Quantised weights "
        f"never use it. It would make the zip 400 MB larger, and such prompts faster: {price}. To "
        f"have it, put {' and '.join(files)} of CUDA 12 beside the programs: they are then used, "
        "and the log says so. GGML_CUDA_BLAS=own in the environment keeps to the kernels inside."
    )


def _command(facts: BundleFacts, program: str, arguments: str) -> str:
    name = f".\\{program}.exe" if facts.windows else f"./{program}"
    return f"    {name} {arguments}"


def _start(facts: BundleFacts) -> str:
    targets = facts.recipe.build.targets
    if facts.windows:
        unpack = (
            "Unpack the whole zip into a folder of its own (right click, Extract All) and keep "
            "the files together. For a terminal in that folder: click into the address bar of its "
            "window, type cmd, press Enter."
        )
    else:
        unpack = (
            "Unpack the whole zip into a folder of its own, keep the files together, and open a "
            "terminal there. If your unpacker dropped the permissions: chmod +x llama-* *.sh"
        )
    model = "models\\model.gguf" if facts.windows else "models/model.gguf"
    paragraphs = [_wrap(unpack), *_scripts(facts)]
    if "llama-cli" in targets:
        paragraphs += ["Chat in the terminal:", _command(facts, "llama-cli", f"-m {model}")]
    if "llama-server" in targets:
        serve = (
            "Serve a model to programs that speak the OpenAI API"
            + (" and to the browser" if facts.ui else "")
            + ", on this computer only:"
        )
        paragraphs += [
            _wrap(serve),
            _command(facts, "llama-server", f"-m {model} --port 8080"),
            _wrap("Its address is then http://127.0.0.1:8080; Ctrl-C ends it."),
        ]
    if "llama-bench" in targets:
        paragraphs += ["Measure the speed:", _command(facts, "llama-bench", f"-m {model}")]
    others = sorted(set(targets) - {"llama-cli", "llama-server", "llama-bench"})
    if others:
        paragraphs.append(_wrap(f"Also here: {', '.join(others)}; each explains itself: --help"))
    if facts.windows:
        paragraphs.append(
            _wrap(
                "The programs are not signed. Windows SmartScreen may say it protected your PC: "
                "More info, Run anyway, once you compared the zip's sha256 (below). If files "
                "are blocked: right click the zip before unpacking, Properties, Unblock."
            )
        )
        if facts.recipe.launch:
            paragraphs += _script_policy(next(iter(profiles_of(facts.recipe)), "NAME"))
    return _section("How to start", paragraphs)


def _scripts(facts: BundleFacts) -> list[str]:
    """Return what the start scripts are for, when there are any."""
    profiles = profiles_of(facts.recipe)
    if not profiles:
        return []
    kind = "bat" if facts.windows else "sh"
    how = "Double click" if facts.windows else "Start"
    lines = [
        _wrap(f"{profile.summary.rstrip('.')}.", "  ", f"- run-{name}.{kind}: ")
        for name, profile in profiles.items()
    ]
    return [
        _wrap(
            f"{how} one of these; it looks at the model, the port, the processor"
            + (" and the driver" if facts.recipe.cuda.architectures else "")
            + " before it starts anything, and says what is missing:"
        ),
        "\n".join(lines),
        _wrap(
            "Their settings, the model's name first, are in config-NAME.txt: edit that, not the "
            "script. Another model can be "
            + ("dropped on the script." if facts.windows else "named behind the script.")
        ),
        "Or start the programs themselves:",
    ]


def _script_policy(name: str) -> list[str]:
    """Return what Windows asks about scripts, and what the .bat files do about it."""
    return [
        _wrap(
            "Each .bat has a .ps1 that does the same. Windows runs no .ps1 unless its script "
            "policy allows it; for one start, without changing the policy:"
        ),
        f"    powershell -ExecutionPolicy Bypass -File .\\run-{name}.ps1",
        _wrap(
            "The .bat files need no permission and no admin rights. They ask their .ps1 in this "
            "way which processor this is; where that is forbidden, they start without knowing."
        ),
    ]


def _models(facts: BundleFacts) -> str:
    if facts.https:
        return _section(
            "Where models come from",
            [
                _wrap(
                    "Any .gguf model works that this llama.cpp knows; -hf <user>/<model> downloads "
                    "one by HTTPS."
                )
            ],
        )
    curl = "curl.exe" if facts.windows else "curl"
    folder = "models\\model.gguf" if facts.windows else "models/model.gguf"
    return _section(
        "Where models come from",
        [
            _wrap(
                "This build has no HTTPS: -hf, --model-url with https and other downloads by the "
                "tools themselves are NOT available in it and end with a message that says so. "
                "Fetch the model once with a browser (most are on Hugging Face: search there for a "
                "model's name and GGUF; on its page Files, then the download arrow of a .gguf "
                "file), or from the terminal:"
            ),
            f'    mkdir models\n    {curl} -L -o {folder} "<address of the .gguf file>"',
            _wrap("Then pass the file with -m: any .gguf model that this llama.cpp knows."),
        ],
    )


def _features(facts: BundleFacts) -> str:
    build = facts.recipe.build
    points = []
    if "llama-server" in build.targets:
        points.append(
            "llama-server's web UI is inside: open its address in a browser. Pictures that "
            "an answer links to are fetched by the browser, from wherever they are."
            if facts.ui
            else "llama-server's web UI is NOT inside; the API is. Use any chat program that "
            "speaks the OpenAI API."
        )
    if facts.cuda is not None and facts.recipe.bundle.cublas == "none":
        points.append(_own_blas(facts))
    points.append("HTTPS is inside." if facts.https else "HTTPS is not inside (see above).")
    points.append(
        "Each tool is one file that can be copied alone."
        if build.linkage == "static"
        else "The tools share the libraries beside them: move them together."
    )
    return _section("What is inside", [_wrap(point, "  ", "- ") for point in points])


def _differences(facts: BundleFacts) -> str:
    if not facts.series:
        return _section(
            "Differences from upstream",
            [_wrap("None in the source; only build options were chosen.")],
        )
    paragraphs = []
    # What is only for another system comes last, in a line.
    for series in sorted(facts.series, key=lambda each: _for_another_system(each, facts)):
        summary = f": {series.summary}" if series.summary else ""
        if _for_another_system(series, facts):
            count = len(series.patches)
            paragraphs.append(
                _wrap(
                    f"Series {series.name}{summary}. Its {count} patches are for another system "
                    "and change nothing here; manifest.json lists them."
                )
            )
            continue
        paragraphs.append(_wrap(f"Series {series.name}{summary}"))
        paragraphs += [
            _wrap(f"{patch.subject.rstrip('.')}. Why: {patch.why}", "  ", "- ")
            for patch in series.patches
        ]
    return _section("Differences from upstream", paragraphs)


def _for_another_system(series: SeriesFacts, facts: BundleFacts) -> bool:
    """Tell whether every patch of a series says that it can be seen on another system only."""
    here = "windows" if facts.windows else "linux"
    systems = [(patch.probe or {}).get("os") for patch in series.patches]
    return bool(systems) and all(system not in (None, "", here) for system in systems)


def _checks(facts: BundleFacts) -> str:
    compare = (
        f"certutil -hashfile {facts.zip_name} SHA256"
        if facts.windows
        else f"sha256sum -c {facts.zip_name}.sha256"
    )
    labels = []
    if facts.windows:
        labels.append(
            "This bundle was NOT run on a real Windows by those who built it; where a check ran "
            "it, that was under Wine on Linux."
        )
    if facts.gpu_validated is False:
        labels.append(
            "Its GPU code was NOT run on a real GPU by those who built it (gpu_validated: false)."
        )
        if facts.cuda is not None and facts.cuda.emulated:
            labels.append(
                f"{facts.cuda.emulated[0].upper()}{facts.cuda.emulated[1:]}. That says nothing of "
                "ptxas' machine code, the driver or speed."
            )
    elif facts.gpu_validated is None:
        labels.append("It holds no GPU code: everything runs on the processor.")
    again = shlex.join(recipe_words(as_dict(facts.recipe)))
    return _section(
        "How to check it, and how to build it again",
        [
            "Compare the zip with the .sha256 file that came with it:",
            f"    {compare}",
            _wrap(
                "manifest.json lists every file with its sha256, provenance.json says from what "
                "it was made, sbom.cdx.json lists the parts. Whoever has qbuild checks all of it "
                "and builds the same bytes again on the same kind of machine:"
            ),
            f"    qbuild verify {facts.zip_name}\n    qbuild reproduce {again}",
            *[_wrap(label) for label in labels],
        ],
    )


def _licences(found: Sequence[Found]) -> str:
    width = max((len(item.component.name) for item in found), default=0)
    lines = [f"    {item.component.name.ljust(width)}  {item.component.spdx}" for item in found]
    return _section(
        "Licences",
        [
            _wrap(
                "llama.cpp is under the MIT licence. The parts inside and the licences they are "
                "passed on under (texts in the folder licenses):"
            ),
            "\n".join(lines),
        ]
        if lines
        else [_wrap("The texts are in the folder licenses.")],
    )
