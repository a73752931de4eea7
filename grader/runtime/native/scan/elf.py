"""Read ELF files with arbitrary content: objects and programs of students.

Only the format that gcc, ld and gold write here is read: 64 bits, little-endian. Whatever a file holds, reading it
takes at most time and memory in proportion to its size. An incomplete file counts as no ELF file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

MOST_SECTIONS = 1000
"""The sections of a file with more are not read. Real files have fewer than 60."""
ABSOLUTE, COMMON = 0xFFF1, 0xFFF2
"""Values that symbols have in the place of a section's number (SHN_*)."""
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
    size: int


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
    """The file is no complete and consistent ELF file."""


class Elf:
    """The content of an ELF file; with more than `MOST_SECTIONS` sections, none of them is read."""

    @classmethod
    def read(cls, data: bytes) -> Elf | None:
        """Return the parsed file, or None when it is no complete ELF file: a tool that fails may leave anything."""
        try:
            return cls(data)
        except _BrokenError:
            return None

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
            raise _BrokenError("no ELF file of 64 bits")
        self.data = data
        fields: tuple[int, ...] = _HEADER.unpack_from(data)
        _, self.machine, _, self.entry, segments, at, _, _, segment_size, segment_count, size, count, names = fields
        if at == 0 or size != _SECTION.size or at + size > len(data):
            raise _BrokenError("no sections")
        if count == 0:  # too many for the header: the first section holds the number
            count = _SECTION.unpack_from(data, at)[5]
        self.section_count = count
        self.sections: tuple[ElfSection, ...] = ()
        self.texts: tuple[ElfSection, ...] = ()
        """The sections that hold the names of sections, and those of symbols."""
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
            Segment(kind, flags, offset, address, file_size, full)
            for kind, flags, offset, address, _, file_size, full, _ in _entries(segment_headers, _SEGMENT)
        )

    def content(self, part: ElfSection | Segment) -> memoryview:
        """Return the bytes that the file has of the section or segment."""
        if isinstance(part, Segment):
            return self._part(part.offset, part.file_size)
        return self._part(part.offset, 0 if part.type == SectionType.NOBITS else part.size)

    def section(self, name: str) -> ElfSection | None:
        """Return the first section of that name, or None."""
        return next((section for section in self.sections if section.name == name), None)

    @property
    def table(self) -> ElfSection | None:
        """The last symbol table, or None; a table written by hand stands before the assembler's."""
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

    def choosers(self) -> frozenset[int]:
        """Return the values of all defined ifunc symbols (functions that choose a function), without reading a name."""
        symbols = _entries(self.content(self.table), _SYMBOL) if self.table else ()
        return frozenset(
            value for _, info, _, section, value, _ in symbols if info & 0xF == SymbolType.IFUNC and section
        )

    def relocation_tables(self, index: int) -> Iterator[ElfSection]:
        """Return the relocation sections of the section with that number."""
        return (section for section in self.sections if section.type == SectionType.RELA and section.info == index)

    def relocations(self, table: ElfSection) -> Iterator[tuple[int, int, int, int]]:
        """Return the place, the type, the symbol's number and the addend of each relocation in the table."""
        return _entries(self.content(table), _RELOCATION)

    def _part(self, start: int, size: int) -> memoryview:
        if start + size > len(self.data):
            raise _BrokenError("a part lies behind the end")
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
    """The defined names that objcopy cannot hide: common and unique ones. They could take the place of libc's."""
    common: frozenset[str] = frozenset()
    """The variables that have no section yet: gcc before 10 leaves it to the linker where those without a value lie."""

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
