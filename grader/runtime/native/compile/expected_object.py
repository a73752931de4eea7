"""The sections and symbols that gcc makes of C with the handout's flags, and how much of each.

All others are made by hand. The names, types, flags and links of sections decide what linker and loader do with them,
so the list holds what is known to be harmless, not what is known to be harmful. It also covers other versions of gcc
and other defaults: debug sections may be compressed, and macros have groups (-ggdb3).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator

from grader.runtime.native.compile.elf import ABSOLUTE, COMMON, MOST_SECTIONS, Bind, Elf, Flag, Kind, Section, Shape

_MOST_SYMBOLS = 20_000
_MOST_BESIDE = 16 << 20
"""Bytes of an object that are not part of the program: debug lines, relocations, symbols. Real files have 100 kB."""
_MOST_DATA = 16 << 20
"""Bytes of variables that do not begin as 0. Under Valgrind each case restores them: 0.3 s for each MB in all."""
_MOST_ALIGN = 2 << 20

_SAFE = re.compile(r"[\w.$-]{1,200}", re.ASCII)

_READ, _DATA, CODE = Flag.ALLOC, Flag.ALLOC | Flag.WRITE, Flag.ALLOC | Flag.EXECUTE
_STRINGS = Flag.MERGE | Flag.STRINGS
_ORDINARY: tuple[tuple[str, frozenset[int], tuple[int, ...]], ...] = (
    (r"\.text(\..+)?", frozenset({Shape.PROGBITS}), (CODE,)),
    (r"\.rodata(\..+)?", frozenset({Shape.PROGBITS}), (_READ, _READ | Flag.MERGE, _READ | _STRINGS)),
    (r"\.data(\..+)?", frozenset({Shape.PROGBITS}), (_DATA,)),
    (r"\.bss(\..+)?", frozenset({Shape.NOBITS}), (_DATA,)),
    (r"\.tdata(\..+)?", frozenset({Shape.PROGBITS}), (_DATA | Flag.TLS,)),
    (r"\.tbss(\..+)?", frozenset({Shape.NOBITS}), (_DATA | Flag.TLS,)),
    (r"\.eh_frame", frozenset({Shape.PROGBITS, Shape.UNWIND}), (_READ,)),
    (r"\.debug_\w+", frozenset({Shape.PROGBITS}), (0, _STRINGS)),
    (r"\.comment", frozenset({Shape.PROGBITS}), (_STRINGS,)),
    (r"\.note\.GNU-stack", frozenset({Shape.PROGBITS}), (0, Flag.EXECUTE)),
    (r"\.note\.gnu\.property", frozenset({Shape.NOTE}), (_READ,)),
    (r"\.group", frozenset({Shape.GROUP}), (0,)),
)
"""Patterns of section names, with the types and the flags that such sections may have."""
_MORE = {True: Flag.COMPRESSED | Flag.GROUP, False: Flag.RETAIN}
"""Further flags that sections may have: True: of debug information; False: others (`__attribute__((retain))`)."""
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Entry sizes, in bytes, that a section of mergeable data may have."""
_VARIANT_PCS = 0x80
"""Flag of functions that are called with vectors, on aarch64 (STO_AARCH64_VARIANT_PCS)."""
_AARCH64 = 183
_COMPRESSED = struct.Struct("<8xQ")
"""The start of a compressed section: its size in bytes after decompression."""
_BINDS, _KINDS = frozenset(Bind), frozenset(Kind)


def too_much(elf: Elf) -> str:
    """Return what the object has too much of to be scanned, with the bound; "" when it is within all bounds."""
    if elf.section_count > MOST_SECTIONS:
        return f"{elf.section_count} sections; {MOST_SECTIONS} are the bound"
    if elf.symbol_count > _MOST_SYMBOLS:
        return f"{elf.symbol_count} symbols; {_MOST_SYMBOLS} are the bound"
    aside = [section for section in elf.sections if not section.flags & Flag.ALLOC or section.name == ".eh_frame"]
    beside = sum(_full_size(elf, section) for section in aside)
    if beside > _MOST_BESIDE:
        return f"{beside >> 20} MB of debug information, symbols and relocations; {_MOST_BESIDE >> 20} MB are the bound"
    variables = [
        section for section in elf.sections if section.flags & _DATA == _DATA and section.type == Shape.PROGBITS
    ]
    data = sum(section.size + section.align for section in variables)  # there may be a gap before each in the program
    if data > _MOST_DATA:
        return f"{data >> 20} MB of variables that do not begin as 0; {_MOST_DATA >> 20} MB are the bound"
    aligns = [section.align for section in elf.sections]
    aligns += [symbol.value for symbol in elf.symbols() if symbol.section == COMMON]
    if max(aligns, default=0) > _MOST_ALIGN:
        return f"an alignment of {max(aligns)} bytes; {_MOST_ALIGN} are the bound"
    return ""


def too_many_sections(programs: Iterable[bytes]) -> str:
    """Return the same for the sections of linked programs; with too many, none of a program's sections is read."""
    counts = [elf.section_count for elf in map(Elf.read, programs) if elf]
    most = max(counts, default=0)
    return f"{most} sections; {MOST_SECTIONS} are the bound" if most > MOST_SECTIONS else ""


def is_safe(name: str) -> bool:
    """Whether a tool takes the name literally when it is on its command line."""
    return _SAFE.fullmatch(name) is not None and not name.startswith("-")


def unexpected_sections(elf: Elf) -> Iterator[Section]:
    """Yield the sections that gcc does not make of C, without the relocations of such sections."""
    tables = [number for number, section in enumerate(elf.sections) if section.type == Shape.SYMTAB]
    odd = {number for number, section in enumerate(elf.sections) if number and not _is_ordinary(elf, section)}
    odd |= {
        number
        for number, section in enumerate(elf.sections)
        if section.type == Shape.RELA and [section.link] != tables[-1:]
    }
    odd |= set(tables[:-1])
    for number in sorted(odd):
        if elf.sections[number].type != Shape.RELA or elf.sections[number].info not in odd:
            yield elf.sections[number]


def _is_ordinary(elf: Elf, section: Section) -> bool:
    name, flags = section.name, section.flags
    if not is_safe(name) or section.align & (section.align - 1):
        return False
    if section.type == Shape.SYMTAB:
        return name == ".symtab" and not flags
    if section.type == Shape.STRTAB:
        return name in (".strtab", ".shstrtab") and not flags and section in elf.texts
    if section.type == Shape.RELA:
        about = elf.sections[section.info].name if 0 < section.info < len(elf.sections) else ""
        return name == f".rela{about}" and flags & ~Flag.GROUP == Flag.INFO_LINK
    if section.type != Shape.GROUP and (section.link or section.info):
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

    Functions that choose functions (ifunc) are reported by scan.py. Names may hold any characters: no tool gets them on
    its command line.
    """
    others = 0x3 | (_VARIANT_PCS if elf.machine == _AARCH64 else 0)
    for symbol in elf.symbols():
        of_a_section = symbol.section < len(elf.sections) or symbol.section == COMMON
        ordinary = (
            symbol.bind in _BINDS
            and symbol.kind in _KINDS
            and not symbol.other & ~others
            and (of_a_section or (symbol.section == ABSOLUTE and symbol.kind == Kind.FILE))
            and ("@" not in symbol.name or symbol.kind in (Kind.FILE, Kind.SECTION))
            and (symbol.kind != Kind.IFUNC or symbol.section)
        )
        if not ordinary:
            yield symbol.name


def _full_size(elf: Elf, section: Section) -> int:
    """Return the size of the section in bytes, after decompression."""
    if section.flags & Flag.COMPRESSED and section.size >= _COMPRESSED.size:
        (full,) = _COMPRESSED.unpack_from(elf.content(section))
        return int(full)
    return section.size
