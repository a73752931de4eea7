"""The object scan: find what in a student's object or program could make the grader report wrong results.

Only means to forge results are looked for: code that runs outside the demanded calls (constructors, destructors,
ifuncs, sections that steer linker and loader), what makes client requests to Valgrind (its instruction sequence, its
names for replaced functions), and what could make such a request while it runs (code that can be written to).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from grader.runtime.native.scan.elf import Bind, Elf, ElfSection, Flag, SectionType, Symbol, SymbolType
from grader.runtime.native.scan.expected import CODE, unexpected_sections, unexpected_symbols

_OURS = {
    "student_data": (SectionType.PROGBITS, (Flag.ALLOC | Flag.WRITE,)),
    "student_bss": (SectionType.NOBITS, (Flag.ALLOC | Flag.WRITE,)),
    "student_text": (SectionType.PROGBITS, (CODE, Flag.ALLOC)),
}
"""The section names that link.py gives, with their types and flags."""
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
"""Its flag says whether the stack must be executable. It never is in the grader's programs (harness_objects.py)."""
_REDIRECTION = re.compile(r"_vg[rwn]\d*[A-Z]")
"""Names that make Valgrind call one function in the place of another (pub_tool_redir.h)."""
_WRITABLE_CODE = Flag.WRITE | Flag.EXECUTE
_RUN, _WRITE = 1, 2  # PF_*
_LOAD = 1  # PT_LOAD
_POINTER = 8
_MOST_LISTED, _MOST_SUSPECTS = 10_000, 1000
"""Relocations read of an array of functions (an array with more is reported itself), and suspects in total."""

# What VEX takes for a client request, byte by byte (guest_amd64_toIR.c, guest_arm64_toIR.c; also valgrind.h): rotations
# that leave a register as it was, then an instruction that does nothing. The last register says which request it is.
_REQUESTS = {
    62: (1, "48c1c703 48c1c70d 48c1c73d 48c1c733", ("4887db", "4887c9", "4887d2", "4887ff")),
    183: (4, "8c0dcc93 8c35cc93 8ccdcc93 8cf5cc93", ("4a010aaa", "6b010baa", "8c010caa", "290109aa")),
}
"""By machine (EM_*): the alignment of instructions in bytes, the rotations, and what may follow them."""

_MOST_ORDERS = 1000
"""The most client requests read in one segment; the harness has fewer than 100."""

ORDER_BYTES = 20
"""The length of the longest client request in bytes. The shortest has 19; no instruction is that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Something that a person has to check.

    `symbol` is the name that `--allow` takes for it. `section` and `offset` are the place where its code begins.
    """

    kind: str
    symbol: str
    section: str = ""
    """"" when there is no place in the object."""
    offset: int = 0


def suspects(elf: Elf) -> tuple[Suspect, ...]:
    """Return the suspects among the sections and symbols of an object file, each once; of very many the first."""
    first_suspects = list(islice(chain(_of_sections(elf), _of_symbols(elf)), _MOST_SUSPECTS + 1))
    if len(first_suspects) > _MOST_SUSPECTS:
        first_suspects[-1] = Suspect(kind="odd-section", symbol=f"among more than {_MOST_SUSPECTS} odd ones")
    return tuple(dict.fromkeys(first_suspects))


def called_names(elf: Elf, names: Collection[str]) -> dict[str, dict[int, str]]:
    """Return, by section of code, the places in it that refer to one of the names, with the name."""
    wanted = {number: symbol.name for number, symbol in enumerate(elf.symbols()) if symbol.name in names}
    places: dict[str, dict[int, str]] = {}
    for index, section in enumerate(elf.sections):
        for table in elf.relocation_tables(index) if section.flags & Flag.EXECUTE else ():
            for place, _, symbol, _ in elf.relocations(table):
                if symbol in wanted:
                    places.setdefault(section.name, {})[place] = wanted[symbol]
    return places


def function_names(elf: Elf) -> list[str]:
    """Return the sorted names of all functions that an object of the harness defines, including hidden ones."""
    return sorted({symbol.name for symbol in _functions(elf)})


def program_requests(elf: Elf, prefix: str) -> tuple[int, ...]:
    """Return the addresses of all client requests to Valgrind in a program's executable segments, but the harness's.

    The harness's are in functions whose names begin with `prefix`, which no name of a student's does, and in main: a
    student's main is hidden. In a linked program no relocation is open and the sections are joined. No instruction and
    no constant within one is as long as a request: code has these bytes only where they were written for it.
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
    """Return the names in a student's object with the harness's prefix: it cannot be guessed, but can be spied out."""
    names = dict.fromkeys(re.findall(re.escape(prefix.encode()) + rb"\w*", data))
    return tuple(Suspect(kind="our-name", symbol=name.decode()) for name in names)


def writable_code(program: Elf, student: Elf) -> tuple[Suspect, ...]:
    """Return the sections that make a part of a linked program both writable and executable.

    No scan can predict what such a part does. The sections are those of the student's object that are both or, if it
    has none, those of the program.
    """
    both = _WRITE | _RUN
    if not any(segment.type == _LOAD and segment.flags & both == both for segment in program.segments):
        return ()
    names = [[section.name for section in elf.sections if _is_writable_code(section)] for elf in (student, program)]
    return tuple(Suspect(kind="changeable-code", symbol=name) for name in names[0] or names[1])


def _is_writable_code(section: ElfSection) -> bool:
    return section.flags & _WRITABLE_CODE == _WRITABLE_CODE


def functions_before(elf: Elf, addresses: Collection[int]) -> dict[int, int]:
    """Return where the functions that hold these addresses of a program begin; the address itself where unknown."""
    starts = sorted(symbol.value for symbol in _functions(elf)) if addresses else []
    return {address: starts[at - 1] if (at := bisect_right(starts, address)) else address for address in addresses}


def _functions(elf: Elf) -> Iterator[Symbol]:
    return (symbol for symbol in elf.symbols() if symbol.kind == SymbolType.FUNCTION and symbol.section != 0)


def _of_sections(elf: Elf) -> Iterator[Suspect]:
    numbers = {id(section): number for number, section in enumerate(elf.sections)}
    symbols = tuple(elf.symbols())
    functions = {(symbol.section, symbol.value): symbol.name for symbol in _functions(elf)}
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
    """Return the function to which an entry of an array of pointers refers, or the array where that has no name."""
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

    These are sections that neither the student's object had nor link.py made, unexpected symbols that the student's
    object did not have, and symbols visible to other objects except `functions` and those that link.py renamed.
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
