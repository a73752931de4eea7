"""The object scan: what in a student's object or program could make the grader report wrong results.

Only what can forge is looked for: code that runs outside the demanded calls (constructors, destructors, ifuncs,
sections that steer linker and loader), and what gives orders to Valgrind (its instruction sequence, its names for
replaced functions), or could make such an order while it runs (code that can be written to).
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

__all__ = [
    "ORDER_BYTES",
    "Suspect",
    "calls",
    "function_before",
    "functions",
    "is_whole",
    "named",
    "program_requests",
    "suspects",
    "writable_code",
]

_CONSTRUCTORS = re.compile(r"\.(preinit_array|init_array|ctors)(\..*)?")
_DESTRUCTORS = re.compile(r"\.(fini_array|dtors)(\..*)?")
_ARRAYS = {"SHT_INIT_ARRAY": "constructor", "SHT_PREINIT_ARRAY": "constructor", "SHT_FINI_ARRAY": "destructor"}
_STARTING = {".init": "constructor", ".fini": "destructor"}
_STEERING = re.compile(r"\.interp|\.dynamic|\.gnu\.lto_.*|__libc_.*")
"""Loader, link-time optimiser, and sections of function pointers that libc calls at its end."""
_REDIRECTION = re.compile(r"_vg[rwn]\d*[A-Z]")
"""Names by which Valgrind is told to call one function in the place of another (pub_tool_redir.h)."""
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4  # SHF_*
_RUN, _WRITE = 1, 2  # PF_*
_FUNCTION, _IFUNC, _GLOBAL = 2, 10, 1  # STT_FUNC, STT_GNU_IFUNC, STB_GLOBAL
_NO_SECTION = 0xFF00  # SHN_LORESERVE

# What VEX takes for an order, byte by byte (guest_amd64_toIR.c, guest_arm64_toIR.c; also valgrind.h): rotations of a
# register by a whole turn, then an instruction that does nothing. Its last register tells which order it is.
_REQUESTS = {
    "EM_X86_64": (1, "48c1c703 48c1c70d 48c1c73d 48c1c733", ("4887db", "4887c9", "4887d2", "4887ff")),
    "EM_AARCH64": (4, "8c0dcc93 8c35cc93 8ccdcc93 8cf5cc93", ("4a010aaa", "6b010baa", "8c010caa", "290109aa")),
}
"""By machine: at what multiple an instruction begins, the rotations, and what may follow them."""

ORDER_BYTES = 20
"""No order is longer; no instruction is as long as the shortest, of 19."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Something that somebody has to look at. `symbol` is what lifts it; the place is where its code begins."""

    kind: str
    symbol: str
    section: str = ""
    """"" when there is no place in the object."""
    offset: int = 0


def suspects(data: bytes) -> tuple[Suspect, ...]:
    """What the sections and symbols of an object file tell, each once."""
    elf = _elf(data)
    found = [*_of_sections(elf), *_of_symbols(elf)]
    return tuple(dict.fromkeys(found))


def calls(data: bytes, names: Collection[str]) -> dict[str, dict[int, str]]:
    """By section of code: the places in it that refer to one of the names, with the name."""
    elf = _elf(data)
    found: dict[str, dict[int, str]] = {}
    for index, section in enumerate(elf.iter_sections()):
        for table in _relocations(elf, index) if section["sh_flags"] & _EXECUTABLE else ():
            symbols: Any = elf.get_section(table["sh_link"])
            for relocation in table.iter_relocations():
                name = symbols.get_symbol(relocation["r_info_sym"]).name
                if name in names:
                    found.setdefault(section.name, {})[relocation["r_offset"]] = name
    return found


def functions(data: bytes) -> list[str]:
    """The names of all functions that an object of ours defines, hidden ones too."""
    return sorted({symbol.name for symbol in _functions(_elf(data))})


def is_whole(data: bytes) -> bool:
    """Is it an ELF file with all that its header says it has? A tool that fails may leave anything."""
    header = struct.Struct("<16x2HIQQQI6H")
    if len(data) < header.size or not data.startswith(b"\x7fELF"):
        return False
    fields: tuple[int, ...] = header.unpack_from(data)
    sections, size, count = fields[5], fields[10], fields[11]
    return 0 < sections <= len(data) - size * count


def program_requests(data: bytes, prefix: str) -> tuple[int, ...]:
    """The addresses of all orders to Valgrind in what a linked program can run, but for our own.

    Ours are in functions whose names begin with `prefix`, which nothing of a student's does, and in main: a student's
    main is hidden. Here no relocation is open and no section apart any more. No instruction and no constant within one
    is as long as an order: only code that was written for it has these bytes where code is.
    """
    elf = _elf(data)
    found: list[int] = []
    for segment in elf.iter_segments("PT_LOAD"):
        if segment["p_flags"] & _RUN:
            found += (segment["p_vaddr"] + offset for offset in _matches(elf, segment.data()))
    ours = [
        range(symbol.value, symbol.value + symbol.size)
        for symbol in (_symbols(elf, prefix, "main\0") if found else ())
        if symbol.info & 0xF == _FUNCTION and (symbol.name != "main" or symbol.info >> 4 == _GLOBAL)
    ]
    return tuple(address for address in found if not any(address in function for function in ours))


def named(data: bytes, prefix: str) -> tuple[Suspect, ...]:
    """Names that begin like our own, in an object of a student's: they cannot be guessed, but they can be spied out."""
    found = dict.fromkeys(re.findall(re.escape(prefix.encode()) + rb"\w*", data))
    return tuple(Suspect(kind="our-name", symbol=name.decode()) for name in found)


def writable_code(program: bytes, data: bytes) -> tuple[Suspect, ...]:
    """What makes sections of a linked program that can be both written and run: what they do no scan can tell.

    The sections of the object `data` that are both, else those of the program that became it.
    """
    both = _WRITE | _RUN
    if not any(segment["p_flags"] & both == both for segment in _elf(program).iter_segments("PT_LOAD")):
        return ()
    return _writable_code(data) or _writable_code(program)


def _writable_code(data: bytes) -> tuple[Suspect, ...]:
    both = _WRITABLE | _EXECUTABLE
    return tuple(
        Suspect(kind="changeable-code", symbol=section.name)
        for section in _elf(data).iter_sections()
        if section["sh_flags"] & both == both
    )


def function_before(data: bytes, address: int) -> int:
    """Where the function that holds this address of a program begins; the address itself when nothing tells."""
    starts = [symbol.value for symbol in _functions(_elf(data))]
    return max((start for start in starts if start <= address), default=address)


class _Symbol(NamedTuple):
    """As an ELF file has it; `section` 0 is none of it, and from 0xff00 on the number is none of a section."""

    name: str
    info: int
    section: int
    value: int
    size: int


def _functions(elf: ELFFile) -> Iterator[_Symbol]:
    return (symbol for symbol in _symbols(elf) if symbol.info & 0xF == _FUNCTION and symbol.section != 0)


def _symbols(elf: ELFFile, *starts: str) -> Iterator[_Symbol]:
    r"""All symbols, or those whose names begin so (a name ends with \0). Read in one piece: a program has thousands."""
    table: Any = elf.get_section_by_name(".symtab")
    if table is None:
        return
    names: bytes = elf.get_section(table["sh_link"]).data()
    wanted = tuple(start.encode() for start in starts or ("",))
    for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", table.data()):
        if names.startswith(wanted, name):
            yield _Symbol(names[name : names.index(0, name)].decode(errors="replace"), info, section, value, size)


def _of_sections(elf: ELFFile) -> Iterator[Suspect]:
    for index, section in enumerate(elf.iter_sections()):
        if not section["sh_flags"] & _ALLOCATED and not section.name.startswith(".gnu.lto_"):
            continue
        if not section["sh_size"]:
            continue
        kind = _ARRAYS.get(section["sh_type"], "")
        kind = kind or ("constructor" if _CONSTRUCTORS.fullmatch(section.name) else "")
        kind = kind or ("destructor" if _DESTRUCTORS.fullmatch(section.name) else "")
        if kind:
            yield from _listed(elf, index, partial(Suspect, kind=kind), section.name)
        elif section.name in _STARTING:
            yield Suspect(kind=_STARTING[section.name], symbol=section.name, section=section.name)
        elif _STEERING.fullmatch(section.name):
            yield Suspect(kind="steering-section", symbol=section.name)


def _listed(elf: ELFFile, index: int, suspect: partial[Suspect], name: str) -> Iterator[Suspect]:
    """The functions in an array of pointers, by its relocations; the array itself where those do not tell all."""
    known = 0
    functions_at = {(one.section, one.value): one.name for one in _functions(elf)}
    for table in _relocations(elf, index):
        symbols: Any = elf.get_section(table["sh_link"])
        for relocation in table.iter_relocations():
            symbol = symbols.get_symbol(relocation["r_info_sym"])
            known += 1
            if isinstance(symbol["st_shndx"], str):  # not of this object
                yield suspect(symbol=symbol.name or name)
                continue
            offset = symbol["st_value"] + (relocation["r_addend"] if table.is_RELA() else 0)
            function = functions_at.get((symbol["st_shndx"], offset))
            home = elf.get_section(symbol["st_shndx"]).name
            yield suspect(symbol=function or symbol.name or name, section=home, offset=offset)
    if known * elf.elfclass // 8 < elf.get_section(index)["sh_size"]:
        yield suspect(symbol=name)


def _relocations(elf: ELFFile, index: int) -> Iterator[Any]:
    for section in elf.iter_sections():
        if section["sh_type"] in ("SHT_RELA", "SHT_REL") and section["sh_info"] == index:
            yield section


def _of_symbols(elf: ELFFile) -> Iterator[Suspect]:
    for symbol in _symbols(elf):
        if symbol.info & 0xF == _IFUNC:
            section = elf.get_section(symbol.section).name if 0 < symbol.section < _NO_SECTION else ""
            yield Suspect(kind="ifunc", symbol=symbol.name, section=section, offset=symbol.value)
        elif _REDIRECTION.match(symbol.name):
            yield Suspect(kind="redirection", symbol=symbol.name)


def _matches(elf: ELFFile, code: bytes) -> Iterator[int]:
    if elf["e_machine"] not in _REQUESTS:
        return
    step, rotations, last = _REQUESTS[elf["e_machine"]]
    begin, ends = bytes.fromhex(rotations), tuple(map(bytes.fromhex, last))
    place = code.find(begin)
    while place >= 0:
        if place % step == 0 and code.startswith(ends, place + len(begin)):
            yield place
        place = code.find(begin, place + 1)


def _elf(data: bytes) -> ELFFile:
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - slow to import

    return ELFFile(io.BytesIO(data))
