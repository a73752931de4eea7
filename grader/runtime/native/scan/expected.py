"""What objects and programs made of C hold: everything else is made by hand.

In an object: the sections and symbols that gcc makes with the handout's flags, and how much of each. The names, types,
flags and links of sections decide what linker and loader do with them, so the list holds what is known to be harmless,
not what is known to be harmful. It also covers other versions of gcc and other defaults: debug sections may be
compressed, and macros have groups (-ggdb3).

In a linked program: what it runs besides its functions and what it makes the loader do, as words that can be compared.
Known-good programs of one lane (harness_objects.py) all have the same words. Further words of a submission's program
came from its object, however linker and loader handled it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator

from grader.runtime.native.scan.elf import (
    ABSOLUTE,
    COMMON,
    MOST_SECTIONS,
    Bind,
    Elf,
    ElfSection,
    Flag,
    SectionType,
    SymbolType,
)

_INTERPRETER = 3  # PT_INTERP
_NEEDED, _FLAGS = 1, (30, 0x6FFFFFFB)  # DT_*
_TAGS = {
    12: "INIT",
    13: "FINI",
    14: "SONAME",
    15: "RPATH",
    16: "SYMBOLIC",
    17: "REL",
    22: "TEXTREL",
    29: "RUNPATH",
    25: "INIT_ARRAY",
    26: "FINI_ARRAY",
    32: "PREINIT_ARRAY",
    0x6FFFFEFA: "CONFIG",
    0x6FFFFEFB: "DEPAUDIT",
    0x6FFFFEFC: "AUDIT",
    0x7FFFFFFD: "AUXILIARY",
    0x7FFFFFFF: "FILTER",
}
"""The tags for the loader that run code, load files, or change what loading means."""
_IRELATIVE = {62: 37, 183: 1032}
"""By machine: the type of relocations whose value a function chooses during loading (R_*_IRELATIVE)."""
_ARRAYS = frozenset({SectionType.INIT_ARRAY, SectionType.FINI_ARRAY, SectionType.PREINIT_ARRAY})
_CALLED = frozenset({".init", ".fini", ".ctors", ".dtors", "__libc_atexit"})

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
    (r"\.text(\..+)?", frozenset({SectionType.PROGBITS}), (CODE,)),
    (r"\.rodata(\..+)?", frozenset({SectionType.PROGBITS}), (_READ, _READ | Flag.MERGE, _READ | _STRINGS)),
    (r"\.data(\..+)?", frozenset({SectionType.PROGBITS}), (_DATA,)),
    (r"\.bss(\..+)?", frozenset({SectionType.NOBITS}), (_DATA,)),
    (r"\.tdata(\..+)?", frozenset({SectionType.PROGBITS}), (_DATA | Flag.TLS,)),
    (r"\.tbss(\..+)?", frozenset({SectionType.NOBITS}), (_DATA | Flag.TLS,)),
    (r"\.eh_frame", frozenset({SectionType.PROGBITS, SectionType.UNWIND}), (_READ,)),
    (r"\.debug_\w+", frozenset({SectionType.PROGBITS}), (0, _STRINGS)),
    (r"\.comment", frozenset({SectionType.PROGBITS}), (_STRINGS,)),
    (r"\.note\.GNU-stack", frozenset({SectionType.PROGBITS}), (0, Flag.EXECUTE)),
    (r"\.note\.gnu\.property", frozenset({SectionType.NOTE}), (_READ,)),
    (r"\.group", frozenset({SectionType.GROUP}), (0,)),
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
_BINDS, _KINDS = frozenset(Bind), frozenset(SymbolType)


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
        section for section in elf.sections if section.flags & _DATA == _DATA and section.type == SectionType.PROGBITS
    ]
    data = sum(section.size + section.align for section in variables)  # there may be a gap before each in the program
    if data > _MOST_DATA:
        return f"{data >> 20} MB of variables that do not begin as 0; {_MOST_DATA >> 20} MB are the bound"
    aligns = [section.align for section in elf.sections]
    aligns += [symbol.value for symbol in elf.symbols() if symbol.section == COMMON]
    if max(aligns, default=0) > _MOST_ALIGN:
        return f"an alignment of {max(aligns)} bytes; {_MOST_ALIGN} are the bound"
    return ""


def too_many_sections(programs: Iterable[Elf]) -> str:
    """Return how many sections the largest of these programs has, with the bound; "" when it is within the bound."""
    most = max(elf.section_count for elf in programs)
    return f"{most} sections; {MOST_SECTIONS} are the bound" if most > MOST_SECTIONS else ""


def is_safe(name: str) -> bool:
    """Whether a tool takes the name literally when it is on its command line."""
    return _SAFE.fullmatch(name) is not None and not name.startswith("-")


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

    Functions that choose functions (ifunc) are reported by suspects.py. Names may hold any characters: no tool gets
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


def _full_size(elf: Elf, section: ElfSection) -> int:
    """Return the size of the section in bytes, after decompression."""
    if section.flags & Flag.COMPRESSED and section.size >= _COMPRESSED.size:
        (full,) = _COMPRESSED.unpack_from(elf.content(section))
        return int(full)
    return section.size


def start(elf: Elf) -> frozenset[str]:
    """Return what a linked program runs besides its functions and what it makes the loader do, in words."""
    return frozenset([*_loader(elf), *_sections(elf), *_ifunc_values(elf)])


def _loader(elf: Elf) -> Iterator[str]:
    for segment in elf.segments:
        if segment.type == _INTERPRETER:
            yield f"interpreter {bytes(elf.content(segment)).decode(errors='replace')}"
    table = next((section for section in elf.sections if section.type == SectionType.DYNAMIC), None)
    if table is None:
        return
    content, texts = elf.content(table), b""
    if table.link < len(elf.sections):
        texts = bytes(elf.content(elf.sections[table.link]))
    numbers = [int.from_bytes(content[at : at + 8], "little") for at in range(0, len(content) // 16 * 16, 8)]
    for tag, value in zip(numbers[::2], numbers[1::2], strict=True):
        if tag == _NEEDED:
            yield f"library {texts[value:].partition(bytes(1))[0].decode(errors='replace')}"
        elif tag in _FLAGS:
            yield f"flags {tag:x} {value:x}"
        elif tag in _TAGS:
            yield f"DT_{_TAGS[tag]}"


def _sections(elf: Elf) -> Iterator[str]:
    for section in elf.sections:
        if section.flags & Flag.ALLOC and (section.type in _ARRAYS or section.name in _CALLED):
            yield f"{section.name} of {section.size} bytes"


def _ifunc_values(elf: Elf) -> Iterator[str]:
    """Yield the values that functions choose, without libc's: which of those there are depends on what is called."""
    known = elf.choosers()
    for table in elf.sections:
        if table.type == SectionType.RELA and table.flags & Flag.ALLOC:
            values = [added for _, kind, _, added in elf.relocations(table) if kind == _IRELATIVE.get(elf.machine)]
            strange = sum(added not in known for added in values)
            if strange:
                yield f"{strange} values in {table.name} that functions choose"
