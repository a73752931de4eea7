"""Read ELF files with arbitrary content: objects and programs of students, their size, and what a program starts.

Only the format that gcc, ld and gold write here is read: 64 bits, little-endian. Whatever a file contains, reading it
takes at most time and memory in proportion to its size. An incomplete file does not count as an ELF file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

MOST_SECTIONS = 1000
"""If a file has more sections, they are not read. Real files have fewer than 60."""
ABSOLUTE, COMMON = 0xFFF1, 0xFFF2
"""Values that symbols have instead of a section's number (SHN_*)."""
_MOST_NAME = 1024

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


class SectionType(IntEnum):
    """Types of sections (SHT_*)."""

    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    DYNAMIC = 6
    NOTE = 7
    NOBITS = 8
    INIT_ARRAY = 14
    FINI_ARRAY = 15
    PREINIT_ARRAY = 16
    GROUP = 17
    UNWIND = 0x70000001


class Flag(IntFlag):
    """Flags of sections (SHF_*)."""

    WRITE = 0x1
    ALLOC = 0x2
    EXECUTE = 0x4
    MERGE = 0x10
    STRINGS = 0x20
    INFO_LINK = 0x40
    GROUP = 0x200
    TLS = 0x400
    COMPRESSED = 0x800
    RETAIN = 0x200000


DATA, CODE = Flag.ALLOC | Flag.WRITE, Flag.ALLOC | Flag.EXECUTE
"""The flags of sections with variables, and of sections with code."""


class Bind(IntEnum):
    """Bindings of symbols (STB_*)."""

    LOCAL = 0
    GLOBAL = 1
    WEAK = 2


class SymbolType(IntEnum):
    """Types of symbols (STT_*)."""

    NOTYPE = 0
    OBJECT = 1
    FUNCTION = 2
    SECTION = 3
    FILE = 4
    COMMON = 5
    TLS = 6
    IFUNC = 10


class ElfSection(NamedTuple):
    """A section, as the file has it."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class Segment(NamedTuple):
    """A segment, as the file has it."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int


class Symbol(NamedTuple):
    """A symbol, as the file has it; a very long name is cut."""

    name: str
    bind: int
    kind: int
    other: int
    section: int
    value: int
    size: int


class _BrokenError(Exception):
    """The file is not a complete and consistent ELF file."""


class Elf:
    """The content of an ELF file. If it has more than `MOST_SECTIONS` sections, none of them is read."""

    @classmethod
    def read(cls, data: bytes) -> Elf | None:
        """Return the parsed file; None if `data` is not a complete ELF file, as when a tool failed in the middle."""
        try:
            return cls(data)
        except _BrokenError:
            return None

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
            raise _BrokenError("no ELF file of 64 bits")
        self.data = data
        fields: tuple[int, ...] = _HEADER.unpack_from(data)
        _, self.machine, _, _, segments, at, _, _, segment_size, segment_count, size, count, names = fields
        if at == 0 or size != _SECTION.size or at + size > len(data):
            raise _BrokenError("no sections")
        if count == 0:  # too many for the header: the first section holds the number
            count = _SECTION.unpack_from(data, at)[5]
        self.section_count = count
        self.sections: tuple[ElfSection, ...] = ()
        self.texts: tuple[ElfSection, ...] = ()
        """The sections that contain the names of sections and the names of symbols."""
        self.segments: tuple[Segment, ...] = ()
        if count > MOST_SECTIONS:
            return
        if names >= count or (segment_count and segment_size != _SEGMENT.size):
            raise _BrokenError("no names of sections")
        raw = list(_entries(self._part(at, size * count), _SECTION))
        texts = bytes(self._part(raw[names][4], raw[names][5]))
        self.sections = tuple(ElfSection(_name(texts, entry[0]), *entry[1:]) for entry in raw)
        known = (names, self.table.link) if self.table else (names,)
        self.texts = tuple(self.sections[number] for number in known if number < count)
        for section in self.sections:
            if section.type != SectionType.NOBITS:
                self.content(section)
        segment_headers = self._part(segments, _SEGMENT.size * segment_count)
        self.segments = tuple(
            Segment(kind, flags, offset, address, file_size)
            for kind, flags, offset, address, _, file_size, _, _ in _entries(segment_headers, _SEGMENT)
        )

    def content(self, part: ElfSection | Segment) -> memoryview:
        """Return the bytes of the section or segment that are in the file."""
        if isinstance(part, Segment):
            return self._part(part.offset, part.file_size)
        return self._part(part.offset, 0 if part.type == SectionType.NOBITS else part.size)

    @property
    def table(self) -> ElfSection | None:
        """The last symbol table, or None. A table written by hand comes before the assembler's."""
        return next((section for section in reversed(self.sections) if section.type == SectionType.SYMTAB), None)

    @property
    def symbol_count(self) -> int:
        """The number of symbols."""
        return self.table.size // _SYMBOL.size if self.table else 0

    def symbols(self, *starts: str) -> Iterator[Symbol]:
        r"""Yield all symbols, or those whose names begin with one of `starts` (a name ends with \0)."""
        if self.table is None:
            return
        texts = bytes(self.content(self.texts[-1]))
        wanted = tuple(start.encode() for start in starts or ("",))
        for name, info, other, section, value, size in _entries(self.content(self.table), _SYMBOL):
            if texts.startswith(wanted, name):
                yield Symbol(_name(texts, name), info >> 4, info & 0xF, other, section, value, size)

    def functions(self) -> Iterator[Symbol]:
        """Yield the symbols of all functions that the file defines, including hidden ones."""
        return (symbol for symbol in self.symbols() if symbol.kind == SymbolType.FUNCTION and symbol.section)

    def choosers(self) -> frozenset[int]:
        """Return the values of all defined ifunc symbols (functions that choose a function), without reading a name."""
        table = _entries(self.content(self.table), _SYMBOL) if self.table else ()
        return frozenset(value for _, info, _, section, value, _ in table if info & 0xF == SymbolType.IFUNC and section)

    def relocation_tables(self, index: int) -> Iterator[ElfSection]:
        """Return the relocation sections of the section with that number."""
        return (section for section in self.sections if section.type == SectionType.RELA and section.info == index)

    def relocations(self, table: ElfSection) -> Iterator[tuple[int, int, int, int]]:
        """Return the place, the type, the symbol's number and the addend of each relocation in the table."""
        return _entries(self.content(table), _RELOCATION)

    def _part(self, start: int, size: int) -> memoryview:
        if start + size > len(self.data):
            raise _BrokenError("a part is after the end")
        return memoryview(self.data)[start : start + size]


def _entries(content: memoryview, entry: struct.Struct) -> Iterator[tuple[Any, ...]]:
    """Yield the entries of a table; an incomplete last one is left out."""
    return entry.iter_unpack(content[: len(content) // entry.size * entry.size])


def _name(texts: bytes, start: int) -> str:
    return texts[start : start + _MOST_NAME].partition(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names that an object defines for others, and those that it needs from others."""

    defined: frozenset[str]
    undefined: frozenset[str]
    weak: frozenset[str] = frozenset()
    """The undefined names that may stay undefined; then they are NULL."""
    unhideable: frozenset[str] = frozenset()
    """The defined names that objcopy cannot hide: common and unique ones. They could replace names of libc."""
    common: frozenset[str] = frozenset()
    """The variables that have no section yet: gcc before 10 lets the linker place variables without a value."""

    @classmethod
    def of(cls, elf: Elf) -> Symbols:
        """Return the names of an object file."""
        visible = [symbol for symbol in elf.symbols() if symbol.bind != Bind.LOCAL]
        undefined = {symbol.name for symbol in visible if symbol.section == 0}
        weak = {symbol.name for symbol in visible if symbol.section == 0 and symbol.bind == Bind.WEAK}
        common = {symbol.name for symbol in visible if symbol.section == COMMON}
        unique = {symbol.name for symbol in visible if symbol.bind not in (Bind.GLOBAL, Bind.WEAK)}
        defined = {symbol.name for symbol in visible} - undefined
        return cls(
            defined=frozenset(defined),
            undefined=frozenset(undefined),
            weak=frozenset(weak),
            unhideable=frozenset((common | unique) - undefined),
            common=frozenset(common),
        )


_INTERPRETER = 3  # PT_INTERP
_DYNAMIC = struct.Struct("<QQ")
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
"""The loader's tags that run code, load files, or change what loading means."""
_IRELATIVE = {62: 37, 183: 1032}
"""By machine: the type of relocations whose value a function chooses during loading (R_*_IRELATIVE)."""
_POINTERS = frozenset({SectionType.INIT_ARRAY, SectionType.FINI_ARRAY, SectionType.PREINIT_ARRAY})
_CALLED = frozenset({".init", ".fini", ".ctors", ".dtors", "__libc_atexit"})

_MOST_SYMBOLS = 20_000
_MOST_BESIDE = 16 << 20
"""The most bytes of an object outside of the program: debug lines, relocations, symbols. Real files have 100 kB."""
_MOST_DATA = 16 << 20
"""The most bytes of variables that do not begin as 0. Under Valgrind each case restores them: 0.3 s per MB in all."""
_MOST_ALIGN = 2 << 20

_SAFE = re.compile(r"[\w.$-]{1,200}", re.ASCII)
_COMPRESSED = struct.Struct("<8xQ")
"""The start of a compressed section: its size in bytes after decompression."""


def too_much(elf: Elf) -> str:
    """Return in words the bound that the object exceeds, so that it cannot be scanned; "" if it exceeds none."""
    if elf.section_count > MOST_SECTIONS:
        return f"{elf.section_count} sections; {MOST_SECTIONS} are the bound"
    if elf.symbol_count > _MOST_SYMBOLS:
        return f"{elf.symbol_count} symbols; {_MOST_SYMBOLS} are the bound"
    aside = [section for section in elf.sections if not section.flags & Flag.ALLOC or section.name == ".eh_frame"]
    beside = sum(_full_size(elf, section) for section in aside)
    if beside > _MOST_BESIDE:
        return f"{beside >> 20} MB of debug information, symbols and relocations; {_MOST_BESIDE >> 20} MB are the bound"
    variables = [each for each in elf.sections if each.flags & DATA == DATA and each.type == SectionType.PROGBITS]
    data = sum(section.size + section.align for section in variables)  # there may be a gap before each in the program
    if data > _MOST_DATA:
        return f"{data >> 20} MB of variables that do not begin as 0; {_MOST_DATA >> 20} MB are the bound"
    aligns = [section.align for section in elf.sections]
    aligns += [symbol.value for symbol in elf.symbols() if symbol.section == COMMON]
    if max(aligns, default=0) > _MOST_ALIGN:
        return f"an alignment of {max(aligns)} bytes; {_MOST_ALIGN} are the bound"
    return ""


def too_many_sections(programs: Iterable[Elf]) -> str:
    """Return the number of sections of the largest program, and the bound; "" if it is within the bound."""
    most = max(elf.section_count for elf in programs)
    return f"{most} sections; {MOST_SECTIONS} are the bound" if most > MOST_SECTIONS else ""


def is_safe(name: str) -> bool:
    """Return whether a tool takes the name literally on its command line."""
    return _SAFE.fullmatch(name) is not None and not name.startswith("-")


def _full_size(elf: Elf, section: ElfSection) -> int:
    """Return the size of the section in bytes, after decompression."""
    if section.flags & Flag.COMPRESSED and section.type != SectionType.NOBITS and section.size >= _COMPRESSED.size:
        (full,) = _COMPRESSED.unpack_from(elf.content(section))
        return int(full)
    return section.size


def start(elf: Elf) -> frozenset[str]:
    """Return, in words, what a linked program runs in addition to its functions, and what it makes the loader do."""
    return frozenset([*_loader(elf), *_sections(elf), *_ifunc_values(elf)])


def _loader(elf: Elf) -> Iterator[str]:
    for segment in elf.segments:
        if segment.type == _INTERPRETER:
            yield f"interpreter {bytes(elf.content(segment)).decode(errors='replace')}"
    table = next((section for section in elf.sections if section.type == SectionType.DYNAMIC), None)
    if table is None:
        return
    texts = b""
    if table.link < len(elf.sections):
        texts = bytes(elf.content(elf.sections[table.link]))
    for tag, value in _entries(elf.content(table), _DYNAMIC):
        if tag == _NEEDED:
            yield f"library {texts[value:].partition(bytes(1))[0].decode(errors='replace')}"
        elif tag in _FLAGS:
            yield f"flags {tag:x} {value:x}"
        elif tag in _TAGS:
            yield f"DT_{_TAGS[tag]}"


def _sections(elf: Elf) -> Iterator[str]:
    for section in elf.sections:
        if section.flags & Flag.ALLOC and (section.type in _POINTERS or section.name in _CALLED):
            yield f"{section.name} of {section.size} bytes"


def _ifunc_values(elf: Elf) -> Iterator[str]:
    """Yield for each table how many values are chosen by functions without an ifunc symbol; libc's own have one."""
    known = elf.choosers()
    for table in elf.sections:
        if table.type == SectionType.RELA and table.flags & Flag.ALLOC:
            values = [added for _, kind, _, added in elf.relocations(table) if kind == _IRELATIVE.get(elf.machine)]
            strange = sum(added not in known for added in values)
            if strange:
                yield f"{strange} values in {table.name} that functions choose"
