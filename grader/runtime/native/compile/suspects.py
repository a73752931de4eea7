"""The scan of objects and programs: find what could make the grader report wrong results, and describe it.

Only means to forge results are looked for: code that runs outside the demanded calls (constructors, destructors,
ifuncs, sections that steer linker and loader), what makes client requests to Valgrind (its instruction sequence, its
names for replaced functions), and what could make such a request while it runs (code that can be written to). Such a
finding scores 0 until a person has checked it.

The names, types, flags and links of sections decide what linker and loader do with them. So the scan does not search
for what is known to be harmful. It accepts the sections (`_ORDINARY`) and symbols that gcc makes with the handout's
flags, and reports all others. It also accepts what other versions of gcc and other defaults make: debug sections may be
compressed, and macros have groups (-ggdb3).

A linked program is compared with a known-good one of the same lane (harness_objects.py) by what both start
(`elf.start`). Whatever a submission's program starts in addition comes from its object.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from grader.core.errors import OptionalStage, OptionalStages
from grader.core.sanitize import plain
from grader.core.verdict import Advice, Finding, SourceLine, Tool, Verdict
from grader.runtime.native.compile import libc_names
from grader.runtime.native.compile.elf import (
    ABSOLUTE,
    CODE,
    COMMON,
    DATA,
    Bind,
    Elf,
    ElfSection,
    Flag,
    SectionType,
    Symbol,
    SymbolType,
    is_safe,
    start,
)
from grader.runtime.native.compile.harness_objects import harness_objects
from grader.runtime.native.compile.toolchain import Linked, known_good_start
from grader.runtime.native.project import CProject
from grader.runtime.native.symbolize import lines_at, run_tool
from grader.runtime.protocol import build_finding
from grader.system.sandbox import Workspace

_OURS = {
    "student_data": (SectionType.PROGBITS, (Flag.ALLOC | Flag.WRITE,)),
    "student_bss": (SectionType.NOBITS, (Flag.ALLOC | Flag.WRITE,)),
    "student_text": (SectionType.PROGBITS, (CODE, Flag.ALLOC)),
}
"""The section names that `section_renames` gives, with their types and flags."""
_RENAMED = re.compile(r"s[0-9a-f]{16}")
_COMPARED_FLAGS = Flag.ALLOC | Flag.WRITE | Flag.EXECUTE | Flag.TLS

_CONSTRUCTORS = re.compile(r"\.(preinit_array|init_array|ctors)(\..*)?")
_DESTRUCTORS = re.compile(r"\.(fini_array|dtors)(\..*)?")
_ARRAYS: dict[int, str] = {
    SectionType.INIT_ARRAY: "constructor",
    SectionType.PREINIT_ARRAY: "constructor",
    SectionType.FINI_ARRAY: "destructor",
}
_STARTING = {".init": "constructor", ".fini": "destructor"}
_STEERING = re.compile(r"\.interp|\.dynamic|\.gnu\.lto_.*|__libc_.*")
"""Sections for the loader and the link-time optimiser, and of function pointers that libc calls at its end."""
_STACK = ".note.GNU-stack"
"""The section whose flag says whether the stack must be executable. In the grader's programs it never must be."""
_REDIRECTION = re.compile(r"_vg[rwn]\d*[A-Z]")
"""Names that make Valgrind call one function instead of another (pub_tool_redir.h)."""
_WRITABLE_CODE = Flag.WRITE | Flag.EXECUTE
_RUN, _WRITE = 1, 2  # PF_*
_LOAD = 1  # PT_LOAD
_POINTER = 8
_MOST_LISTED, _MOST_SUSPECTS = 10_000, 1000
"""Limits: relocations read of an array of functions (an array with more is reported itself); suspects in total."""

# What VEX takes for a client request, byte by byte (guest_amd64_toIR.c, guest_arm64_toIR.c; also valgrind.h): rotations
# that leave a register as it was, then an instruction that does nothing. The last register says which request it is.
_REQUESTS = {
    62: (1, "48c1c703 48c1c70d 48c1c73d 48c1c733", ("4887db", "4887c9", "4887d2", "4887ff")),
    183: (4, "8c0dcc93 8c35cc93 8ccdcc93 8cf5cc93", ("4a010aaa", "6b010baa", "8c010caa", "290109aa")),
}
"""By machine (EM_*): the alignment of instructions in bytes, a request's rotations, and the instructions after them."""

_MOST_ORDERS = 1000
"""The most client requests read in one segment; the harness has fewer than 100."""

ORDER_BYTES = 20
"""The length of the longest client request in bytes. The shortest has 19; no instruction is that long."""

_READ = Flag.ALLOC
_STRINGS = Flag.MERGE | Flag.STRINGS
_ORDINARY: tuple[tuple[str, frozenset[int], tuple[int, ...]], ...] = (
    (r"\.text(\..+)?", frozenset({SectionType.PROGBITS}), (CODE,)),
    (r"\.rodata(\..+)?", frozenset({SectionType.PROGBITS}), (_READ, _READ | Flag.MERGE, _READ | _STRINGS)),
    (r"\.data(\..+)?", frozenset({SectionType.PROGBITS}), (DATA,)),
    (r"\.bss(\..+)?", frozenset({SectionType.NOBITS}), (DATA,)),
    (r"\.tdata(\..+)?", frozenset({SectionType.PROGBITS}), (DATA | Flag.TLS,)),
    (r"\.tbss(\..+)?", frozenset({SectionType.NOBITS}), (DATA | Flag.TLS,)),
    (r"\.eh_frame", frozenset({SectionType.PROGBITS, SectionType.UNWIND}), (_READ,)),
    (r"\.debug_\w+", frozenset({SectionType.PROGBITS}), (0, _STRINGS)),
    (r"\.comment", frozenset({SectionType.PROGBITS}), (_STRINGS,)),
    (r"\.note\.GNU-stack", frozenset({SectionType.PROGBITS}), (0, Flag.EXECUTE)),
    (r"\.note\.gnu\.property", frozenset({SectionType.NOTE}), (_READ,)),
    (r"\.group", frozenset({SectionType.GROUP}), (0,)),
)
"""Patterns of section names, with the types and the flags that such sections may have."""
_MORE = {True: Flag.COMPRESSED | Flag.GROUP, False: Flag.RETAIN}
"""Further flags that sections may have. True: sections of debug information; False: other sections, which may have
`__attribute__((retain))`."""
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Entry sizes, in bytes, that a section of mergeable data may have."""
_VARIANT_PCS = 0x80
"""The flag of functions that are called with vectors, on aarch64 (STO_AARCH64_VARIANT_PCS)."""
_AARCH64 = 183
_BINDS, _KINDS = frozenset(Bind), frozenset(SymbolType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Something in an object or program that a person has to check.

    `symbol` is the name by which `--allow` allows it. `section` and `offset` are the place where its code begins.
    """

    kind: str
    symbol: str
    section: str = ""
    """The name of the section; "" if the suspect has no place in the object."""
    offset: int = 0


def suspects(elf: Elf) -> tuple[Suspect, ...]:
    """Return the suspects in sections and symbols of an object, each once. If they are too many, the last says so."""
    first_suspects = list(islice(chain(_of_sections(elf), _of_symbols(elf)), _MOST_SUSPECTS + 1))
    if len(first_suspects) > _MOST_SUSPECTS:
        first_suspects[-1] = Suspect(kind="odd-section", symbol=f"among more than {_MOST_SUSPECTS} odd ones")
    return tuple(dict.fromkeys(first_suspects))


def called_names(elf: Elf, names: Collection[str]) -> dict[str, dict[int, str]]:
    """Return the places in code that refer to one of the names, by section; each place with the name."""
    wanted = {number: symbol.name for number, symbol in enumerate(elf.symbols()) if symbol.name in names}
    places: dict[str, dict[int, str]] = {}
    for index, section in enumerate(elf.sections):
        for table in elf.relocation_tables(index) if section.flags & Flag.EXECUTE else ():
            for place, _, symbol, _ in elf.relocations(table):
                if symbol in wanted:
                    places.setdefault(section.name, {})[place] = wanted[symbol]
    return places


def program_requests(elf: Elf, prefix: str) -> tuple[int, ...]:
    """Return the addresses of client requests to Valgrind in a program's executable segments, except the harness's.

    The harness's requests are in main (a student's main is hidden) and in functions whose names begin with `prefix`; no
    student's name does. In a linked program no relocation is open and the sections are joined. No instruction, and no
    constant in one, is as long as a request: code has a request's bytes only if somebody wrote a request.
    """
    addresses: list[int] = []
    for segment in elf.segments:
        if segment.type == _LOAD and segment.flags & _RUN:
            matches = islice(_matches(elf.machine, bytes(elf.content(segment))), _MOST_ORDERS)
            addresses += (segment.address + offset for offset in matches)
    ours = [
        range(symbol.value, symbol.value + symbol.size)
        for symbol in (elf.symbols(prefix, "main\0") if addresses else ())
        if symbol.kind == SymbolType.FUNCTION and (symbol.name != "main" or symbol.bind == Bind.GLOBAL)
    ]
    return tuple(address for address in addresses if not any(address in function for function in ours))


def names_with_prefix(data: bytes, prefix: str) -> tuple[Suspect, ...]:
    """Return the names in a student's object with the harness's prefix, which cannot be guessed, only spied out."""
    names = dict.fromkeys(re.findall(re.escape(prefix.encode()) + rb"\w*", data))
    return tuple(Suspect(kind="our-name", symbol=name.decode()) for name in names)


def writable_code(program: Elf, student: Elf) -> tuple[Suspect, ...]:
    """Return the sections that make a part of a linked program both writable and executable.

    No scan can predict what such a part does. The sections are those of the student's object that are writable and
    executable or, if it has none, those of the program.
    """
    both = _WRITE | _RUN
    if not any(segment.type == _LOAD and segment.flags & both == both for segment in program.segments):
        return ()
    names = [[section.name for section in elf.sections if _is_writable_code(section)] for elf in (student, program)]
    return tuple(Suspect(kind="changeable-code", symbol=name) for name in names[0] or names[1])


def _is_writable_code(section: ElfSection) -> bool:
    return section.flags & _WRITABLE_CODE == _WRITABLE_CODE


def functions_before(elf: Elf, addresses: Collection[int]) -> dict[int, int]:
    """Return for each address the address where its function begins; the address itself if that is unknown."""
    starts = sorted(symbol.value for symbol in elf.functions()) if addresses else []
    return {address: starts[at - 1] if (at := bisect_right(starts, address)) else address for address in addresses}


def _of_sections(elf: Elf) -> Iterator[Suspect]:
    numbers = {id(section): number for number, section in enumerate(elf.sections)}
    symbols = tuple(elf.symbols())
    functions = {(symbol.section, symbol.value): symbol.name for symbol in elf.functions()}
    if any(section.name == _STACK and section.flags & Flag.EXECUTE for section in elf.sections):
        yield Suspect(kind="stack-code", symbol=_STACK)
    for section in unexpected_sections(elf):
        name = section.name
        loaded = section.size > 0 and (section.flags & Flag.ALLOC or name.startswith(".gnu.lto_"))
        kind = _ARRAYS.get(section.type, "")
        kind = kind or ("constructor" if _CONSTRUCTORS.fullmatch(name) else "")
        kind = kind or ("destructor" if _DESTRUCTORS.fullmatch(name) else "")
        if loaded and kind:
            tables = elf.relocation_tables(numbers[id(section)])
            entries = list(islice(chain.from_iterable(map(elf.relocations, tables)), _MOST_LISTED))
            for _, _, number, addend in entries:
                symbol = symbols[number if number < len(symbols) else 0]
                yield _listed(elf, symbol, addend, functions=functions, kind=kind, array=name)
            if len(entries) * _POINTER < section.size:
                yield Suspect(kind=kind, symbol=name)
        elif loaded and name in _STARTING:
            yield Suspect(kind=_STARTING[name], symbol=name, section=name)
        elif loaded and _STEERING.fullmatch(name):
            yield Suspect(kind="steering-section", symbol=name)
        elif _is_writable_code(section):
            yield Suspect(kind="changeable-code", symbol=name)
        else:
            yield Suspect(kind="odd-section", symbol=name or "without a name")


def _listed(
    elf: Elf, symbol: Symbol, addend: int, *, functions: Mapping[tuple[int, int], str], kind: str, array: str
) -> Suspect:
    """Return the function to which an entry of an array of pointers refers, or the array if it has no name."""
    if not 0 < symbol.section < len(elf.sections):  # not defined in this object
        return Suspect(kind=kind, symbol=symbol.name or array)
    offset = symbol.value + addend
    name = functions.get((symbol.section, offset)) or symbol.name or array
    return Suspect(kind=kind, symbol=name, section=elf.sections[symbol.section].name, offset=offset)


def _of_symbols(elf: Elf) -> Iterator[Suspect]:
    for symbol in elf.symbols():
        if symbol.kind == SymbolType.IFUNC and symbol.section:
            section = elf.sections[symbol.section].name if symbol.section < len(elf.sections) else ""
            yield Suspect(kind="ifunc", symbol=symbol.name, section=section, offset=symbol.value)
        elif _REDIRECTION.match(symbol.name):
            yield Suspect(kind="redirection", symbol=symbol.name)
    for name in unexpected_symbols(elf):
        yield Suspect(kind="odd-symbol", symbol=name or "without a name")


def _matches(machine: int, code: bytes) -> Iterator[int]:
    if machine not in _REQUESTS:
        return
    step, rotations, last = _REQUESTS[machine]
    begin, ends = bytes.fromhex(rotations), tuple(map(bytes.fromhex, last))
    place = code.find(begin)
    while place >= 0:
        if place % step == 0 and code.startswith(ends, place + len(begin)):
            yield place
        place = code.find(begin, place + 1)


def changes(student: Elf, gated: Elf | None, functions: Collection[str]) -> Iterator[Suspect]:
    """Yield what the object after objcopy has and should not have.

    These are sections that neither the student's object had nor `section_renames` made, unexpected symbols that the
    student's object did not have, and symbols that other objects see, except `functions` and what `link` renamed.
    """
    if gated is None or not gated.sections:
        yield Suspect(kind="odd-section", symbol="sections")
        return
    known = {(section.name, section.type, section.flags & _COMPARED_FLAGS) for section in student.sections}
    for section in gated.sections:
        shape, flags = _OURS.get(section.name, (SectionType.PROGBITS, ()))
        ours = section.type == shape and section.flags & _COMPARED_FLAGS in flags
        same = (section.name, section.type, section.flags & _COMPARED_FLAGS) in known
        if section.flags & Flag.ALLOC and not ours and not same:
            yield Suspect(kind="odd-section", symbol=section.name)
    before = set(unexpected_symbols(student))
    for name in unexpected_symbols(gated):
        if name not in before:
            yield Suspect(kind="odd-symbol", symbol=name)
    for symbol in gated.symbols():
        seen = symbol.bind != Bind.LOCAL and symbol.section and symbol.name not in functions
        if seen and not _RENAMED.fullmatch(symbol.name) and symbol.name not in before:
            yield Suspect(kind="odd-symbol", symbol=symbol.name)


def unexpected_sections(elf: Elf) -> Iterator[ElfSection]:
    """Yield the sections that gcc does not make of C, without the relocations of such sections."""
    tables = [number for number, section in enumerate(elf.sections) if section.type == SectionType.SYMTAB]
    odd = {number for number, section in enumerate(elf.sections) if number and not _is_ordinary(elf, section)}
    odd |= {
        number
        for number, section in enumerate(elf.sections)
        if section.type == SectionType.RELA and [section.link] != tables[-1:]
    }
    odd |= set(tables[:-1])
    for number in sorted(odd):
        if elf.sections[number].type != SectionType.RELA or elf.sections[number].info not in odd:
            yield elf.sections[number]


def _is_ordinary(elf: Elf, section: ElfSection) -> bool:
    name, flags = section.name, section.flags
    if not is_safe(name) or section.align & (section.align - 1):
        return False
    if section.type == SectionType.SYMTAB:
        return name == ".symtab" and not flags
    if section.type == SectionType.STRTAB:
        return name in (".strtab", ".shstrtab") and not flags and section in elf.texts
    if section.type == SectionType.RELA:
        about = elf.sections[section.info].name if 0 < section.info < len(elf.sections) else ""
        return name == f".rela{about}" and flags & ~Flag.GROUP == Flag.INFO_LINK
    if section.type != SectionType.GROUP and (section.link or section.info):
        return False
    if flags & Flag.MERGE and section.entry not in _WIDTHS:
        return False
    more = _MORE[name.startswith(".debug_")]
    return any(
        re.fullmatch(pattern, name) and section.type in types and flags & ~more in allowed
        for pattern, types, allowed in _ORDINARY
    )


def unexpected_symbols(elf: Elf) -> Iterator[str]:
    """Yield the names of symbols that gcc does not make of C: with a version, unique, absolute, or of a strange type.

    Functions that choose functions (ifunc) are reported by `_of_symbols`. Names may have any characters: no tool gets
    them on its command line.
    """
    others = 0x3 | (_VARIANT_PCS if elf.machine == _AARCH64 else 0)
    for symbol in elf.symbols():
        of_a_section = symbol.section < len(elf.sections) or symbol.section == COMMON
        ordinary = (
            symbol.bind in _BINDS
            and symbol.kind in _KINDS
            and not symbol.other & ~others
            and (of_a_section or (symbol.section == ABSOLUTE and symbol.kind == SymbolType.FILE))
            and ("@" not in symbol.name or symbol.kind in (SymbolType.FILE, SymbolType.SECTION))
            and (symbol.kind != SymbolType.IFUNC or symbol.section)
        )
        if not ordinary:
            yield symbol.name


_WORDS = {
    "constructor": "{0} is called before main, where the grader is not ready. Take the constructor away, and call the "
    "function where it is needed",
    "destructor": "{0} is called after main, where the grader has gone. Take the destructor away, and call the "
    "function where it is needed",
    "ifunc": "{0} is chosen by a function that is called before main (ifunc). Write one plain function instead",
    "our-name": "{0} is a name of the grader's own. Give it another name",
    "redirection": "{0} is a name by which Valgrind replaces functions. Give the function another name",
    "steering-section": "the section {0} steers the linker or the loader. Take it away",
    "odd-section": "gcc makes no section of C that is called {0}, or that is what {0} is. Take the section attribute "
    "or the assembly away",
    "odd-symbol": "gcc makes no symbol of C that is called {0}, or that is what {0} is (of a version, unique, "
    "absolute). Take the assembly away",
    "odd-start": "a known-good file's program differs from this one, before main or after it: {0}. Take away what "
    "was not written in C",
    "changeable-code": "the section {0} can be both written and run, so nobody can tell what it does. Take the section "
    "attribute or the assembly away",
    "stack-code": "it needs a stack that can be run (a nested function whose address is taken), which {0} tells; here "
    "it would crash. Write the function outside of the other",
    "client-request": "{0} gives an order to Valgrind (a client request), and so could hide errors from it. Take the "
    "macro or the assembly away",
    "hidden-request": "{0} hides an order to Valgrind (a client request) within other instructions, where a jump would "
    "find it. Take the assembly away",
}
"""For each kind of suspect: what it means, and what the student has to do."""

_UNKNOWN = "client_request"
"""The symbol by which `--allow` allows a client request to Valgrind whose function has no debug line."""

_MOST_CALLED, _MOST_LINES = 200, 20  # names that are reported, and lines of each
_MOST_PLACES, _MOST_CALLS = 10, 200  # sections, and calls in each, whose lines are looked up
_MOST_DISASSEMBLED = 1 << 13
MOST_FINDINGS = 20
"""The most rejections in a report, and the most other findings of a build."""
_INSTRUCTION = re.compile(rb"^ *([0-9a-f]+):\t", re.MULTILINE)


def object_findings(
    project: CProject, work: Workspace, elf: Elf, allowed: Collection[str], *, optional: OptionalStages
) -> Iterator[Finding]:
    """Yield the findings for sections and symbols of the object.

    `optional` runs the search for lines. Only the first `MOST_FINDINGS` that are not `allowed` get lines.
    """
    odd = suspects(elf)
    to_locate = [suspect for suspect in odd if plain(suspect.symbol[:200]) not in allowed][:MOST_FINDINGS]
    places: dict[str, list[int]] = {}
    for suspect in to_locate:
        if is_safe(suspect.section):
            places.setdefault(suspect.section, []).append(suspect.offset)
    lines: dict[str, dict[int, list[SourceLine]]] = {}
    for section, offsets in places.items():
        look_up = partial(_lines, project, work, section, offsets)
        lines[section] = optional.run(OptionalStage.LINES, look_up, otherwise={})
    text = work.read(project.source_name).split(b"\n") if to_locate else []
    for suspect in odd:
        source: Iterable[SourceLine] = ()
        if suspect in to_locate:
            at = lines.get(suspect.section, {}).get(suspect.offset, [])[-1:]
            source = at or islice(_lines_with(text, suspect.symbol, project.source_name), 1)
        yield _finding(suspect, source)


def _lines_with(text: Sequence[bytes], symbol: str, source_name: str) -> Iterator[SourceLine]:
    """Yield the lines with the name of a section or symbol, less any version (`name@VERSION`)."""
    word = re.compile(rb"(?<![\w.$])" + re.escape(symbol.partition("@")[0].encode()) + rb"(?![\w.$])")
    return (SourceLine(file=source_name, line=number) for number, line in enumerate(text, 1) if word.search(line))


def program_findings(project: CProject, work: Workspace, student: Elf, linked: Linked) -> Iterator[Finding]:
    """Yield the findings that only the linked programs show, or the object that objcopy made for them.

    If something in the object was allowed, what runs before or after main is not compared.
    """
    side = harness_objects(project)
    spied = names_with_prefix(student.data, side.prefix)
    for suspect in (*spied, *changes(student, linked.gated, project.functions)):
        yield _finding(suspect, ())
    for name, elf in linked.programs.items():
        for suspect in writable_code(elf, student):
            yield _finding(suspect, ())
        addresses = program_requests(elf, side.prefix)[:MOST_FINDINGS]
        lines = lines_at(work, name, addresses, project.source_name) if addresses else {}
        functions = functions_before(elf, addresses)
        for address in addresses:
            innermost = lines.get(address, [])[:1]
            plainly = _is_instruction(work, name, begin=functions[address], address=address)
            kind = "client-request" if plainly else "hidden-request"
            symbol = next((line.function for line in innermost), "")
            yield _finding(Suspect(kind=kind, symbol=symbol or _UNKNOWN), innermost)
    starts = {f"{name} {linked.lanes[name]}": start(elf) for name, elf in linked.programs.items()}
    if not suspects(student) and any(side.starts.get(lane) != words for lane, words in starts.items()):
        usual = known_good_start(project, work, student, linked.lanes)  # empties the folder
        for lane, words in starts.items():
            for word in sorted(words ^ usual.get(lane, frozenset())):
                yield _finding(Suspect(kind="odd-start", symbol=word), ())


def unneeded_calls_advice(project: CProject, work: Workspace, elf: Elf, undefined: Collection[str]) -> Iterator[Advice]:
    """Yield one advice for each name of libc that is used and not allowed, at most for the first `_MOST_CALLED`."""
    names = libc_names.refused(undefined, lambda: harness_objects(project).libc())
    lines_by_name: dict[str, list[SourceLine]] = {name: [] for name in islice(names, _MOST_CALLED)}
    for section, calls in islice((called_names(elf, lines_by_name) if lines_by_name else {}).items(), _MOST_PLACES):
        first = dict(islice(sorted(calls.items()), _MOST_CALLS))
        lines = _lines(project, work, section, list(first)) if is_safe(section) else {}
        for place, name in first.items():
            lines_by_name[name] += lines.get(place, [])[:1]
    lines_of = {name: tuple(dict.fromkeys(lines))[:_MOST_LINES] for name, lines in lines_by_name.items()}
    return libc_names.advice(lines_of, names)


def _lines(project: CProject, work: Workspace, section: str, places: Sequence[int]) -> dict[int, list[SourceLine]]:
    return lines_at(work, project.object_name, places, project.source_name, section=section)


def _is_instruction(work: Workspace, name: str, *, begin: int, address: int) -> bool:
    """Return whether an instruction begins at the address, if the function is disassembled from its start."""
    if address - begin > _MOST_DISASSEMBLED:
        return False
    # an instruction that spans the start of the request ends within the request's length
    window = [f"--start-address={begin}", f"--stop-address={address + ORDER_BYTES}"]
    done = run_tool(work, ["objdump", "-d", "--no-show-raw-insn", *window, name])
    return done is not None and address in {int(place, 16) for place in _INSTRUCTION.findall(done.stdout)}


def _finding(suspect: Suspect, source: Iterable[SourceLine]) -> Finding:
    name = plain(suspect.symbol[:200])  # in the form in which `--allow` takes it from a report
    message, verdict = _WORDS[suspect.kind].format(name), Verdict.REJECTED
    return build_finding(suspect.kind, message, verdict=verdict, tool=Tool.SCAN, field=name, source=tuple(source))
