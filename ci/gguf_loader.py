"""Write ``toolchain/data/gguf-loader/``: what the pinned llama.cpp demands of a model file.

    python ci/gguf_loader.py SOURCE          # the patched tree; --check only compares

The functions by which llama.cpp reads its hyperparameters and asks for its tensors are read from
its source (``src/models/*.cpp`` and what they call) and written down as nested lists, which
``qbuild.modelfile.loader`` works through for a given file. Nothing about an architecture is typed
by hand, so a new pin needs this script and a look at the difference. Each class has a file of its
own, because reading all of them takes longer than the rest of `qbuild model`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cpp_reader import Node, Reader, parameters
from from_source import write_or_compare

ROOT: Final = Path(__file__).resolve().parent.parent
OUT: Final = ROOT / "toolchain" / "data" / "gguf-loader"
_FUNCTION: Final = r"^{head}\((?P<args>[^)]*)\)(?: const)? \{{\n(?P<body>.*?)^\}}"
_FLAGS: Final = "TENSOR_(?:DUPLICATED|NOT_REQUIRED|SKIP|SKIP_IF_VIRTUAL|ALLOW_RESHAPE|READ_LAZY)"


def read(source: Path, name: str) -> str:
    """Return a file of the source tree."""
    return (source / name).read_text(encoding="utf-8")


# Names


def names(text: str, prefix: str, variable: str) -> dict[str, str]:
    """Return the rows of one of llama-arch.cpp's name tables."""
    begin = text.index(f"{variable} = {{")
    rows = re.findall(rf'\{{\s*{prefix}(\w+),\s*"([^"]*)"', text[begin : text.index("};", begin)])
    return dict(rows)


def tensor_operations(text: str) -> dict[str, list[str]]:
    """Return tensor → where it belongs and the operation it is used in."""
    begin = text.index("LLM_TENSOR_INFOS = {")
    rows = re.findall(
        r"\{\s*LLM_TENSOR_(\w+),\s*\{\s*LLM_TENSOR_LAYER_(\w+),\s*GGML_OP_(\w+)",
        text[begin : text.index("};", begin)],
    )
    return {name: [layer, operation] for name, layer, operation in rows}


def constants(source: Path) -> dict[str, int]:
    """Return the numbers behind the names that the functions use."""
    found: dict[str, int] = {"INT32_MAX": (1 << 31) - 1, "UINT32_MAX": (1 << 32) - 1}
    texts = [read(source, f"src/{n}") for n in ("llama-hparams.h", "llama-model-loader.h")]
    texts.append(read(source, "include/llama.h"))
    for text in texts:
        for name, value in re.findall(r"^#define +(LLAMA_\w+) +(\d+)", text, re.M):
            found[name] = int(value)
        for name, value in re.findall(r"^\s+(LLAMA_[A-Z_0-9]+) *= *(-?\d+),", text, re.M):
            found[name] = int(value)
        for name, value in re.findall(rf"\b({_FLAGS}) *= *1 << (\d+)", text):
            found[name] = 1 << int(value)
    return found


def fields(source: Path) -> dict[str, list[Any]]:
    """Return llama_hparams' fields: name → type, value it begins with."""
    text = read(source, "src/llama-hparams.h")
    body = text[text.index("struct llama_hparams {") :]
    found: dict[str, list[Any]] = {}
    for line in re.findall(r"^    ([^\n(]*(?:<[^\n]*>)?[^\n(]*;)", body, re.M):
        match = re.match(
            r"(?:enum |struct )?([\w:]+(?:<[\w:]+(?:, *\w+)?>)?) +(\w+)(?: *= *(.+?))?;", line
        )
        if match is None or match[1] in ("return", "case"):
            continue
        kind, name, value = match.groups()
        begin = Reader(value, name).expression() if value else None
        found[name] = [kind.replace(" ", ""), begin]
    for group in ("posnet", "convnext"):
        del found[group]
        found |= {f"{group}.{each}": ["uint32_t", None] for each in ("n_embd", "n_layer")}
    return found


# Functions


def functions(text: str, head: str, where: str) -> Iterator[tuple[re.Match[str], list[Any]]]:
    """Yield a match and [parameters, body] for each function whose head fits a pattern."""
    for match in re.finditer(_FUNCTION.format(head=head), text, re.M | re.S):
        body = Reader(match["body"], f"{where}: {match[0].splitlines()[0]}").body()
        yield match, [parameters(match["args"]), simple(body)]


def between(text: str, begin: str, end: str, where: str) -> list[Any]:
    """Return the statements between two texts as a function without parameters."""
    start = text.index(begin)
    return [[], simple(Reader(text[start : text.index(end, start)], where).body())]


def simple(node: Node) -> Any:
    """Return a tree with the names that matter alone, and without what only names a size."""
    if not isinstance(node, list):
        return plain(node) if isinstance(node, str) else node
    if not node:
        return []
    if node[0] == "s":
        return node
    if node[0] == "." and not isinstance(node[1], bool):
        left = simple(node[1])
        if isinstance(left, str):
            return f"{left}.{node[2]}"
        return [".", left[1], f"{left[2]}.{node[2]}"] if left[0] == "." else [".", left, node[2]]
    if node[0] == "call" and node[1] == "create_tensor":
        return tensor(node)
    found = [simple(each) for each in node]
    if all(isinstance(each, list) or each is None for each in node) or isinstance(node[0], list):
        return [each for each in found if not names_a_size(each)]
    return found


def plain(name: str) -> str:
    """Return a name without the prefixes that every one of its kind has."""
    return re.sub(r"^(?:LLM_KV_|LLM_TENSOR_|this\.)", "", name)


def tensor(node: Node) -> Any:
    """Return ["tensor", kind, suffix, block, second number, sides, flags] for create_tensor."""
    _, _, name, sides, flags = node
    if not isinstance(name, list):  # a variable that holds the name
        return ["tensor", simple(name), None, None, None, simple(sides[1:]), simple(flags)]
    kind, *rest = name[2:]
    suffix = rest.pop(0)[1] if rest and isinstance(rest[0], list) and rest[0][0] == "s" else None
    block, second = (*(simple(each) for each in rest), None, None)[:2]
    return ["tensor", simple(kind), suffix, block, second, simple(sides[1:]), simple(flags)]


def names_a_size(node: Any) -> bool:
    """Tell whether a statement does nothing but name the model's size (`type = LLM_TYPE_7B`)."""
    if not isinstance(node, list) or not node:
        return False
    if node[0] == "=":
        return node[1] == "type"
    if node[0] == "if":
        return not node[2] and not node[3] and "key" not in json.dumps(node[1])
    if node[0] == "switch":
        return all(all(each == ["break"] for each in body) for _, body in node[2])
    return bool(node[0] == "do" and not node[1])


def classes(source: Path) -> dict[str, Any]:
    """Return class → its base, and its functions by name."""
    header = read(source, "src/models/models.h")
    found: dict[str, Any] = {
        name: {"base": base}
        for name, base in re.findall(
            r"^struct llama_model_(\w+) : public llama_model_(\w+)", header, re.M
        )
    }
    helpers: dict[str, Any] = {}
    for path in sorted((source / "src" / "models").glob("*.cpp")):
        text = path.read_text(encoding="utf-8")
        head = r"void llama_model_(?P<cls>\w+)::load_arch_(?P<what>hparams|tensors)"
        for match, made in functions(text, head, path.name):
            found[match["cls"]][match["what"]] = made[1]
        head = r"llama_model_(\w+)::graph(?:<\w+>)?::graph"
        for match in re.finditer(rf"^{head}\([^)]*\)\s*:[^{{]*?\{{\n(.*?)^\}}", text, re.M | re.S):
            found[match[1]].setdefault("graph", assertions(match[2], path.name))
        begin = text.find("::load_arch_hparams")
        for match, made in functions(
            text[: max(begin, 0)], r"static void (?P<name>\w+)", path.name
        ):
            helpers[match["name"]] = made
    return {"classes": found, "helpers": helpers}


def assertions(body: str, where: str) -> list[Any]:
    """Return the assertions about hyperparameters with which a graph's builder begins."""
    kept: list[Any] = []
    for line in body.splitlines():
        plain_line = re.sub(r"//.*", "", line).strip()
        if not plain_line:
            continue
        is_number = re.match(r"const (?:int64_t|int|uint32_t|bool) +\w+ *= *[^;]*;$", plain_line)
        if not is_number and not re.match(r"GGML_ASSERT\(.*\);$", plain_line):
            break
        if "ubatch" in plain_line or "layers[" in plain_line or "->" in plain_line:
            break
        kept += simple(Reader(plain_line, where).body())
    return kept if any(each[0] == "call" for each in kept) else []


def table(source: Path) -> dict[str, Any]:
    """Return the whole table."""
    arch = read(source, "src/llama-arch.cpp")
    model = read(source, "src/llama-model.cpp")
    archs = names(arch, "LLM_ARCH_", "LLM_ARCH_NAMES")
    made = re.findall(r"case LLM_ARCH_(\w+):\s+return new llama_model_(\w+)\(", model)
    found = classes(source)
    for row in found["classes"].values():
        if not row.get("graph"):
            row.pop("graph", None)
    hparams = read(source, "src/llama-hparams.cpp")
    methods = {
        match["name"]: made_
        for match, made_ in functions(hparams, r"\w+ llama_hparams::(?P<name>\w+)", "hparams")
    }
    head = r"void llama_model_base::(?P<name>create_tensor_\w+|load_swa_pattern)"
    helpers = {match["name"]: made_ for match, made_ in functions(model, head, "llama-model.cpp")}
    loaders = {
        "hparams": between(
            model, "ml.get_key(LLM_KV_CONTEXT_LENGTH", "load_arch_hparams(ml);", "load_hparams"
        ),
        "locals": locals_(read(source, "src/llama-model.h")),
        "scales": between(
            model, "for (int i = 0; i < n_layer_all; ++i) {\n            auto & layer = layers[i];",
            "    }\n\n    ml.done_getting_tensors();", "scales",
        ),
    }  # fmt: skip
    recurrent = model_list(arch, "llm_arch_is_recurrent")
    return {
        "source": "llama.cpp, src/models/*.cpp and what they call; made by ci/gguf_loader.py",
        "architectures": {
            archs[enum]: {"enum": enum, "class": name, "recurrent": enum in recurrent}
            for enum, name in made
        },
        "keys": names(arch, "LLM_KV_", "LLM_KV_NAMES"),
        "tensors": names(arch, "LLM_TENSOR_", "LLM_TENSOR_NAMES"),
        "operations": tensor_operations(arch),
        "constants": constants(source),
        "fields": fields(source),
        "methods": methods,
        "helpers": helpers | found["helpers"],
        "loaders": loaders,
        "classes": found["classes"],
        "projector": projector(source),
        "templates": templates(source),
    }


def templates(source: Path) -> dict[str, list[str]]:
    """Return the filters and tests that llama.cpp's templates know."""
    values = re.findall(r'^\s+\{"(\w+)", ', read(source, "common/jinja/value.cpp"), re.M)
    others = re.findall(r'filter_id == "(\w+)"', read(source, "common/jinja/runtime.cpp"))
    tests = {each[8:] for each in values if each.startswith("test_is_")}
    filters = {each for each in (*values, *others) if not each.startswith("test_is_")}
    return {"filters": sorted(filters), "tests": sorted(tests)}


def projector(source: Path) -> dict[str, Any]:
    """Return what the loader of projectors (tools/mtmd/clip.cpp) asks for."""
    text = read(source, "tools/mtmd/clip.cpp")
    header = read(source, "tools/mtmd/clip-impl.h")
    begin = text.index("        // projector type\n")
    hparams = text[begin : text.index('            LOG_INF("%s: projector:          %s')] + "}"
    begin = text.index("        model.class_embedding = get_tensor(")
    tensors = text[begin : text.index("        // load data\n", begin)]
    width = re.search(r"^int clip_n_mmproj_embd\(.*?\) \{\n(.*?)^\}", text, re.M | re.S)
    assert width
    names_ = header[header.index("PROJECTOR_TYPE_NAMES = {") :]
    return {
        "types": dict(
            re.findall(r"\{ *PROJECTOR_TYPE_(\w+), *\"([^\"]+)\"", names_[: names_.index("};")])
        ),
        "names": dict(re.findall(r'^#define ((?:KEY|TN)_\w+)\s+"([^"]*)"', header, re.M)),
        "hparams": simple(Reader(hparams, "clip: load_hparams").body()),
        "tensors": simple(Reader(tensors, "clip: load_tensors").body()),
        "width": simple(Reader(width[1], "clip: clip_n_mmproj_embd").body()),
        "fields": clip_fields(read(source, "tools/mtmd/clip-model.h")),
    }


def clip_fields(text: str) -> dict[str, list[Any]]:
    """Return clip_hparams' fields: name → type, value it begins with."""
    body = text[text.index("struct clip_hparams {") :]
    body = body[: body.index("\n};")]
    found: dict[str, list[Any]] = {}
    for kind, name, value in re.findall(
        r"^    ([\w:]+(?:<[^;=]*>)?) +(\w+)(?: *= *([^;]+))?;", body, re.M
    ):
        begin = Reader(value, name).expression() if value else None
        found[name] = [kind.replace(" ", ""), begin]
    for kind, name, size in re.findall(r"^    (\w+) +(\w+)\[(\d+)\];", body, re.M):
        found[name] = [f"std::array<{kind},{size}>", None]
    return found


def model_list(text: str, function: str) -> set[str]:
    """Return the architectures for which one of llama-arch.cpp's questions says yes."""
    match = re.search(rf"^bool {function}\(.*?\) \{{\n(.*?)^\}}", text, re.M | re.S)
    assert match
    return set(re.findall(r"case LLM_ARCH_(\w+):", match[1]))


def locals_(header: str) -> list[Any]:
    """Return the statements of LLAMA_LOAD_LOCALS."""
    begin = header.index("#define LLAMA_LOAD_LOCALS")
    lines = re.findall(r"const (?:int|int64_t) +(\w+) += (.+?); +GGML", header[begin:])
    text = "\n".join(f"const int64_t {name} = {value};" for name, value in lines)
    return [[], simple(Reader(text, "LLAMA_LOAD_LOCALS").body())]


def files(source: Path) -> dict[Path, str]:
    """Return file → text: what all classes share, the projectors' part, and each class."""
    common = table(source)
    parts = {f"class-{name}": row for name, row in common.pop("classes").items()}
    parts |= {"projector": common.pop("projector"), "common": common}
    return {OUT / f"{name}.json": written(part) for name, part in parts.items()}


def written(found: dict[str, Any]) -> str:
    """Return a part of the table as JSON, a statement a line, so that a difference can be read."""

    def line(node: Any) -> str:
        return json.dumps(node, separators=(",", ":"), ensure_ascii=False)

    def lines(node: Any, depth: int) -> str:
        pad = " " * depth
        if isinstance(node, dict) and node:
            rows = [f"{pad} {line(key)}:{lines(node[key], depth + 1)}" for key in node]
            return "{\n" + ",\n".join(rows) + f"\n{pad}}}"
        if isinstance(node, list) and len(line(node)) > 110:
            rows = [f"{pad} {lines(each, depth + 1)}" for each in node]
            return "[\n" + ",\n".join(rows) + f"\n{pad}]"
        return line(node)

    return lines(found, 0) + "\n"


if __name__ == "__main__":
    raise SystemExit(write_or_compare(files))
