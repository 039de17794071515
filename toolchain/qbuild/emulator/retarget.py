"""Rewrites the device IR of one unit, so that the host's compiler can make it code for the CPU.

The text that clang writes for NVPTX differs from the host's in few things: target lines, address
spaces, intrinsics, inline PTX, and shared memory, of which each block needs its own. Everything is
looked up in a table; what is not in it is an error that names unit, kernel and text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from qbuild.emulator import tensor
from qbuild.emulator.checked import DECLARED, instrument
from qbuild.emulator.layout import size_of, split_top
from qbuild.emulator.table import Meaning, Table, plain
from qbuild.errors import ToolchainError

FORMAT: Final = 1
"""Raise when the rewritten text changes for the same IR."""

STATIC_SHARED: Final = 256 * 1024
"""Where static shared arrays begin (``QE_DYNAMIC_SHARED`` of ``kernel.h``)."""

_GAP: Final = 64
"""Unused bytes between two shared arrays."""

_NAME = r'@(?:"[^"]+"|[\w.$-]+)'
_GLOBAL = re.compile(
    rf"^({_NAME}) = ([^\n]*?)addrspace\((\d+)\) ((?:externally_initialized )?(?:global|constant)) "
    r"([^\n]*)$",
    re.MULTILINE,
)
_TYPE_NAME = r'%(?:"[^"]+"|[\w.$-]+)'
_STRUCT = re.compile(rf"^({_TYPE_NAME}) = type (.+)$", re.MULTILINE)
_DEFINE = re.compile(rf"^define ([^\n]*?)({_NAME})\(", re.MULTILINE)
_ATTRIBUTES = re.compile(r"^attributes (#\d+) = \{ (.*) \}$", re.MULTILINE)
_ASM = re.compile(
    r"call ([^\n@\"]*?)asm (?:sideeffect )?(?:alignstack )?\"((?:[^\"\\]|\\.)*)\", "
    r"\"([^\"]*)\"\(([^\n]*?)\)( #\d+)?(?=,|$|\n)"
)
_NVVM_CALL = re.compile(r"@llvm\.nvvm\.([\w.]+)\(")
_GROUP = re.compile(r" #\d+")
_SPACES = re.compile(r" ?addrspace\([1345]\)")
_CAST = re.compile(rf"addrspacecast \(ptr ({_NAME}) to ptr\)")
_CONSTANT = re.compile(
    r"(getelementptr|ptrtoint|inttoptr|bitcast|addrspacecast|add|sub|trunc)"
    r"((?: (?:inbounds|nuw|nsw|nusw))*) "
    r"\(((?:\"[^\"]*\"|[^()\"])*%q\.[sc]\d+(?:\"[^\"]*\"|[^()\"])*)\)"
)
_LINKAGE = re.compile(
    r"\b(?:weak_odr|linkonce_odr|weak|linkonce|internal|private|dso_local|hidden|protected"
    r"|available_externally|local_unnamed_addr|unnamed_addr|external|externally_initialized)\b ?"
)
_PARAM_TYPE = re.compile(rf"[\[<{{]|{_TYPE_NAME}|ptr|i\d+|half|bfloat|float|double")
_BYVAL = re.compile(rf"byval\((?:{_TYPE_NAME}|[^()]*)\)(?: align \d+)?")


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A static array in shared memory: where the emulator puts it."""

    offset: int
    size: int
    align: int


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What is known of a kernel before it runs."""

    name: str  # mangled, as the fat binary and the host code know it
    shared: tuple[Shared, ...]  # its static shared arrays
    max_threads: int  # of a block (``__launch_bounds__``); 0: not said
    parameters: int  # their number

    @property
    def shared_size(self) -> int:
        """Bytes of static shared memory, laid out one after another as on the GPU."""
        at = 0
        for each in self.shared:
            at = -(-at // each.align) * each.align + each.size
        return at


@dataclass(kw_only=True)
class Retargeted:
    """A unit as text for the host's compiler."""

    text: str
    kernels: tuple[Kernel, ...]
    shared_end: int
    used: frozenset[str]


@dataclass(kw_only=True)
class _Unit:
    name: str
    table: Table
    structs: Mapping[str, str]
    shared: dict[str, Shared] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)
    shared_end: int = STATIC_SHARED
    declared: dict[str, str] = field(default_factory=dict)
    matrices: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    kernel: str = ""
    checks: bool = False
    accesses: int = 0


def retarget(text: str, unit: str, table: Table, *, checks: bool = False) -> Retargeted:
    """Rewrite a unit's device IR for the host.

    Args:
        text: LLVM assembly of clang for NVPTX.
        unit: Name of the unit, for symbols and messages.
        table: What intrinsics and PTX mean.
        checks: Let every access to memory be checked (slow).

    Raises:
        ToolchainError: It uses something that is not in the table.
    """
    made = _Unit(name=unit, table=table, structs=dict(_STRUCT.findall(text)), checks=checks)
    text = re.sub(r"^(?:target|source_filename) .*\n|^; ModuleID.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(?:\$[^\n]* = comdat .*|!llvm\.ident.*|!nvvm\.\w+.*)\n", "", text, flags=re.M)
    text = re.sub(r",? comdat(?:\([^)]*\))?", "", text)
    text = _GLOBAL.sub(lambda match: _global(match, made), text)
    text = _flat(text)
    limits = {
        group: int(found[1])
        for group, body in _ATTRIBUTES.findall(text)
        if (found := re.search(r'"nvvm\.maxntid"="([\d]+)', body))
    }
    text = _ATTRIBUTES.sub(_attributes, text)
    text = re.sub(r"^declare [^\n]*@llvm\.nvvm\.[^\n]*\n", "", text, flags=re.MULTILINE)
    pieces: list[str] = []
    functions: list[_Function] = []
    end = 0
    for match in _DEFINE.finditer(text):
        closed = _closing(text, match.end())
        opened = text.index(" {\n", closed)
        stop = text.index("\n}\n", opened) + 3
        pieces.append(_globals_text(text[end : match.start()]))
        head = (match[1], match[2], text[match.end() : closed], text[closed + 1 : opened])
        function = _function(head, text[opened + 2 : stop], made)
        functions.append(function)
        pieces.append(function.text)
        end = stop
    pieces.append(_globals_text(text[end:]))
    kernels = tuple(_kernels(functions, made, limits))
    pieces.append("\n")
    pieces += (f"declare {made.declared[name]}\n" for name in sorted(made.declared))
    pieces += (meaning.ir.strip() + "\n" for meaning in _ir_used(made))
    if made.matrices:
        pieces += [tensor.DECLARED, *made.matrices.values()]
    pieces.append(_tables(functions, kernels, made))
    return Retargeted(
        text="".join(pieces),
        kernels=kernels,
        shared_end=made.shared_end,
        used=frozenset(made.used),
    )


def _ir_used(made: _Unit) -> Iterator[Meaning]:
    seen = set()
    for meaning in made.table.asm.values():
        if meaning.ir and meaning.function in made.used and meaning.function not in seen:
            seen.add(meaning.function)
            yield meaning


def _global(match: re.Match[str], made: _Unit) -> str:
    """Rewrite a variable of another address space; shared ones vanish and get a place instead."""
    name, lead, space, kind, rest = match.groups()
    if space != "3":
        return f"{name} = {lead}{kind} {rest}"
    parts = split_top(rest)
    described = parts[0]
    align = next((int(p.split()[1]) for p in parts if p.startswith("align ")), 1)
    if "external" in lead:
        made.dynamic.add(name)
        return ""
    type_text = re.sub(r" (?:undef|zeroinitializer|poison)$", "", described)
    size = size_of(type_text, made.structs).size
    apart = max(align, 64)
    offset = -(-made.shared_end // apart) * apart
    made.shared[name] = Shared(offset=offset, size=size, align=align)
    made.shared_end = offset + size + _GAP
    return ""


def _flat(text: str) -> str:
    """Leave one address space."""
    text = _SPACES.sub("", text)
    text = _CAST.sub(r"\1", text)
    text = re.sub(
        r"= addrspacecast ptr ([^\n]*?) to ptr$", r"= bitcast ptr \1 to ptr", text, flags=re.M
    )
    return re.sub(r"@llvm\.([\w.]*?)(\.p[1345])+\b([\w.]*)", _pointer_suffix, text)


def _pointer_suffix(match: re.Match[str]) -> str:
    return re.sub(r"\.p[1345]\b", ".p0", match[0])


def _attributes(match: re.Match[str]) -> str:
    words = re.sub(r' ?"[^"]*"(?:="[^"]*")?', "", match[2])
    words = re.sub(r"\b(?:noinline|convergent) ?", "", words)
    words = words.replace("target_mem0: none, ", "").replace(", target_mem0: none", "")
    words = words.replace(", target_mem1: none", "").replace("memory()", "memory(none)")
    return f"attributes {match[1]} = {{ {words.strip()} }}"


def _globals_text(text: str) -> str:
    """Make what lies between functions private to the unit."""
    return re.sub(
        rf"^({_NAME}) = ([^\n]*?)(global|constant) ",
        lambda m: f"{m[1]} = {'' if 'external' in m[2].split() else 'internal '}{m[3]} ",
        text,
        flags=re.MULTILINE,
    )


@dataclass(kw_only=True)
class _Function:
    name: str
    kernel: bool
    parameters: list[str]
    group: str
    text: str
    shared: set[str]
    calls: set[str]


def _function(head: tuple[str, str, str, str], body: str, made: _Unit) -> _Function:
    lead, name, parameters, tail = head
    made.kernel = name[1:].strip('"')
    kernel = "ptx_kernel" in lead
    lead = lead.replace("ptx_kernel ", "").replace("ptx_device ", "")
    group = re.search(r"#\d+", tail)
    body = _ASM.sub(lambda found: _asm(found, made), body)
    body = _intrinsics(body, made)
    body, entry, shared = _hoist(body, made)
    lead = _LINKAGE.sub("", lead)
    tail = _LINKAGE.sub("", tail)
    text = f"define internal {lead}{name}({parameters}){tail} {{{entry}{body}"
    return _Function(
        name=name,
        kernel=kernel,
        parameters=split_top(parameters),
        group=group[0] if group else "",
        text=text,
        shared=shared,
        calls=set(re.findall(rf"call [^\n@]*({_NAME})\(", body)),
    )


def _asm(match: re.Match[str], made: _Unit) -> str:
    lead, template, constraints, arguments, attributes = match.groups()
    text = plain(template)
    meaning = made.table.asm.get(text)
    if meaning is None and (call := _matrix(lead, text, constraints, arguments, made)):
        return call
    if meaning is None:
        raise ToolchainError(
            f"kernel {made.kernel} uses PTX that the emulator does not know: {text}",
            where=f"unit {made.name}",
            fix="add it to toolchain/data/emulator.toml and toolchain/emulator/intrinsics.c",
        )
    return _call(lead, meaning, arguments, made) + (attributes or "")


def _matrix(lead: str, text: str, constraints: str, arguments: str, made: _Unit) -> str | None:
    """Return the call of the function that stands for PTX of tensor cores; None: it is none.

    The call has no attributes: lanes meet in it, so it must stay where it is, and clang takes a
    product for something that depends on its operands only.

    Args:
        lead: What stands between ``call`` and the callee.
        text: The text, or an intrinsic's name behind ``llvm.nvvm.``.
        constraints: Of inline assembly; else "".
        arguments: Of the call.
        made: The unit.
    """
    returns = _plain_type(lead)
    results = [] if returns == "void" else split_top(returns.strip("{ }"))
    ptx = tensor.Ptx(
        text=text,
        constraints=constraints,
        returns=returns,
        results=tuple(results),
        arguments=tuple(_plain_type(part) for part in split_top(arguments)),
    )
    found = tensor.function(ptx)
    if found is None:
        return None
    name, made.matrices[name] = found
    made.used.add(name)
    site = made.accesses if made.checks else tensor.UNCHECKED
    made.accesses += 1
    comma = ", " if arguments else ""
    return f"call {returns} @{name}(ptr %q.t, i32 {site}{comma}{arguments})"


def _intrinsics(body: str, made: _Unit) -> str:
    pieces: list[str] = []
    end = 0
    for match in _NVVM_CALL.finditer(body):
        start = body.rindex("call ", end, match.start())
        stop = _closing(body, match.end())
        pieces.append(body[end:start])
        lead, arguments = body[start + 5 : match.start()], body[match.end() : stop]
        end = stop + 1
        meaning = made.table.intrinsics.get(match[1])
        if meaning is not None:
            pieces.append(_call(lead, meaning, arguments, made))
        elif call := _matrix(lead, match[1], "", arguments, made):
            pieces.append(call)
            attribute = _GROUP.match(body, end)
            end = attribute.end() if attribute else end
        else:
            raise ToolchainError(
                f"kernel {made.kernel} uses an intrinsic that the emulator does not know: "
                f"llvm.nvvm.{match[1]}",
                where=f"unit {made.name}",
                fix="add it to toolchain/data/emulator.toml and toolchain/emulator/intrinsics.c",
            )
    pieces.append(body[end:])
    text = "".join(pieces)
    for name, meaning in _REPLACED.items():
        if f"@{name}(" in text:
            made.used.add(meaning.function)
            first = "ptr %q.t, " if name == "vprintf" else "ptr %q.t"
            text = text.replace(f"@{name}(", f"@{meaning.function}({first}")
            made.declared[meaning.function] = _DECLARED[meaning.function]
    return text


_REPLACED: Final = {
    "llvm.trap": Meaning(function="qe_trap", thread=True),
    "vprintf": Meaning(function="qe_vprintf", thread=True),
}
_DECLARED: Final = {
    "qe_trap": "void @qe_trap(ptr)",
    "qe_vprintf": "i32 @qe_vprintf(ptr, ptr, ptr)",
}


def _closing(text: str, at: int) -> int:
    """Return where the parenthesis that was opened before ``at`` is closed."""
    depth, quoted = 1, False
    while depth:
        char = text[at]
        if char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
        at += 1
    return at - 1


def _call(lead: str, meaning: Meaning, arguments: str, made: _Unit) -> str:
    """Return the call of the C function that stands for an intrinsic or a PTX text."""
    made.used.add(meaning.function)
    returns = _plain_type(lead)
    types = [_plain_type(part) for part in split_top(arguments)]
    # Constant arguments may not be marked as such for a function of ours.
    arguments = arguments.replace(" immarg", "")
    if meaning.thread:
        types.insert(0, "ptr")
        arguments = f"ptr %q.t, {arguments}" if arguments else "ptr %q.t"
    if not meaning.ir:
        declared = f"{returns} @{meaning.function}({', '.join(types)})"
        before = made.declared.setdefault(meaning.function, declared)
        if before != declared:
            raise ToolchainError(
                f"kernel {made.kernel} uses {meaning.function} as `{declared}`, "
                f"before it was `{before}`",
                where=f"unit {made.name}",
                fix="give the two forms functions of their own in toolchain/data/emulator.toml",
            )
    return f"call {lead}@{meaning.function}({arguments})"


def _plain_type(text: str) -> str:
    """Return the type in ``contract noundef float`` or ``i32 noundef %4``."""
    text = re.sub(r"\b(?:range|nofpclass|align|dereferenceable)\([^)]*\)", "", text).strip()
    if text.endswith("void") or text == "void":
        return "void"
    match = _PARAM_TYPE.search(text)
    if match is None:
        raise ToolchainError(f"no type in {text[:80]!r}")
    if match[0] in "[<{":
        depth, at = 0, match.start()
        for at in range(match.start(), len(text)):
            depth += (text[at] in "[<{(") - (text[at] in "]>})")
            if depth == 0:
                break
        return text[match.start() : at + 1]
    return match[0]


def _hoist(body: str, made: _Unit) -> tuple[str, str, set[str]]:
    """Give shared memory an address in the entry block, whose values reach everywhere.

    Returns:
        The body, what comes before it, and the names of the static arrays that it uses.
    """
    lines: list[str] = []
    used: set[str] = set()
    names = dict.fromkeys(
        name for name in re.findall(_NAME, body) if name in made.shared or name in made.dynamic
    )
    for number, name in enumerate(names):
        place = made.shared.get(name)
        if place is not None:
            used.add(name)
        offset = place.offset if place else 0
        lines.append(f"  %q.s{number} = getelementptr i8, ptr %q.shared, i64 {offset}")
        body = re.sub(re.escape(name) + r"(?![\w.$-])", f"%q.s{number}", body)
    constants: dict[str, str] = {}

    def hoisted(match: re.Match[str]) -> str:
        word, flags, inside = match.groups()
        if word == "addrspacecast":
            return inside.removeprefix("ptr ").removesuffix(" to ptr")
        if word in ("add", "sub"):  # an instruction names the type once
            inside = re.sub(r", i\d+ ", ", ", inside)
        text = f"{word}{flags} {inside}"
        if text not in constants:
            constants[text] = f"%q.c{len(constants)}"
            lines.append(f"  {constants[text]} = {text}")
        return constants[text]

    while names:
        body, count = _CONSTANT.subn(hoisted, body)
        if not count:
            break
    if made.checks:
        body, made.accesses = instrument(
            body, lambda kind: size_of(kind, made.structs).size, made.accesses
        )
        if "@qe_access(" in body:
            made.declared |= DECLARED
    entry: list[str] = []
    if names:
        entry.append("  %q.shared = call ptr @qe_shared(ptr %q.t)")
        made.declared["qe_shared"] = "ptr @qe_shared(ptr)"
    entry += lines
    if names or "%q.t" in body:
        entry.insert(0, "  %q.t = call ptr @qe_self()")
        made.declared["qe_self"] = "ptr @qe_self()"
    label = re.match(r"\n[\w.$-]+:[^\n]*", body)
    if label:
        return body[label.end() :], label[0] + "".join(f"\n{line}" for line in entry), used
    return body, "".join(f"\n{line}" for line in entry), used


def _kernels(
    functions: list[_Function], made: _Unit, limits: Mapping[str, int]
) -> Iterator[Kernel]:
    by_name = {function.name: function for function in functions}
    for function in functions:
        if not function.kernel:
            continue
        reached, todo, arrays = set(), [function.name], set()
        while todo:
            name = todo.pop()
            if name in reached or name not in by_name:
                continue
            reached.add(name)
            arrays |= by_name[name].shared
            todo += by_name[name].calls
        yield Kernel(
            name=function.name[1:].strip('"'),
            shared=tuple(made.shared[name] for name in made.shared if name in arrays),
            max_threads=limits.get(function.group, 0),
            parameters=len(function.parameters),
        )


def _entry(number: int, function: _Function) -> str:
    """Return the function that takes its arguments as ``cudaLaunchKernel`` does."""
    lines: list[str] = []
    arguments: list[str] = []
    for at, parameter in enumerate(function.parameters):
        lines.append(f"  %p{at} = getelementptr ptr, ptr %args, i64 {at}")
        lines.append(f"  %a{at} = load ptr, ptr %p{at}")
        kind = _plain_type(parameter)
        if byval := _BYVAL.search(parameter):
            arguments.append(f"ptr {byval[0]} %a{at}")
        elif kind == "i1":
            lines.append(f"  %b{at} = load i8, ptr %a{at}")
            lines.append(f"  %v{at} = trunc i8 %b{at} to i1")
            arguments.append(f"i1 zeroext %v{at}")
        else:
            lines.append(f"  %v{at} = load {kind}, ptr %a{at}")
            arguments.append(f"{kind} %v{at}")
    body = "\n".join(lines)
    return (
        f"define internal void @qe.entry.{number}(ptr %args) {{\n{body}\n"
        f"  call void {function.name}({', '.join(arguments)})\n  ret void\n}}\n"
    )


def _string(text: str) -> str:
    return f'c"{text}\\00"'


def _tables(functions: list[_Function], kernels: tuple[Kernel, ...], made: _Unit) -> str:
    """Return entries and the constant ``qe_unit_NAME`` (``struct qe_unit`` of ``kernel.h``)."""
    out: list[str] = []
    rows: list[str] = []
    own = [function for function in functions if function.kernel]
    for number, (function, kernel) in enumerate(zip(own, kernels, strict=True)):
        out.append(_entry(number, function))
        size = len(kernel.name) + 1
        out.append(f"@qe.name.{number} = internal constant [{size} x i8] {_string(kernel.name)}\n")
        regions = ", ".join(
            f"{{ i32, i32 }} {{ i32 {each.offset}, i32 {each.size} }}" for each in kernel.shared
        )
        count = len(kernel.shared)
        out.append(
            f"@qe.regions.{number} = internal constant [{count} x {{ i32, i32 }}] [{regions}]\n"
        )
        rows.append(
            f"%qe.kernel {{ ptr @qe.name.{number}, ptr @qe.entry.{number}, "
            f"ptr @qe.regions.{number}, i32 {count}, i32 {kernel.shared_size}, "
            f"i32 {kernel.max_threads}, i32 {kernel.parameters} }}"
        )
    symbol = re.sub(r"\W", "_", made.name)
    size = len(made.name) + 1
    return (
        "%qe.kernel = type { ptr, ptr, ptr, i32, i32, i32, i32 }\n"
        + "".join(out)
        + f"@qe.kernels = internal constant [{len(rows)} x %qe.kernel] [{', '.join(rows)}]\n"
        + f"@qe.unit.name = internal constant [{size} x i8] {_string(made.name)}\n"
        + f"@qe_unit_{symbol} = constant {{ ptr, ptr, i32, i32 }} {{ ptr @qe.unit.name, "
        f"ptr @qe.kernels, i32 {len(rows)}, i32 {made.shared_end} }}\n"
    )
