"""Read ELF files that may hold anything: objects and programs of students.

Only what gcc, ld and gold write here is read: 64 bits, little-endian. Whatever a file holds, reading it takes time and
memory in proportion to its size at most, and what is not whole is no file at all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import NamedTuple

__all__ = [
    "ABSOLUTE",
    "COMMON",
    "MOST_SECTIONS",
    "Bind",
    "Elf",
    "Flag",
    "Kind",
    "Section",
    "Segment",
    "Shape",
    "Symbol",
]

MOST_SECTIONS = 1000
"""A file with more is not read. Real ones have less than 60."""
ABSOLUTE, COMMON = 0xFFF1, 0xFFF2
"""What symbols have in the place of a section's number (SHN_*)."""
_MOST_NAME = 1024

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")


class Shape(IntEnum):
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


class Kind(IntEnum):
    """Types of symbols (STT_*)."""

    NOTYPE = 0
    OBJECT = 1
    FUNCTION = 2
    SECTION = 3
    FILE = 4
    COMMON = 5
    TLS = 6
    IFUNC = 10


class Section(NamedTuple):
    """As the file has it."""

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
    """As the file has it."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    size: int


class Symbol(NamedTuple):
    """As the file has it; a very long name is cut."""

    name: str
    bind: int
    kind: int
    other: int
    section: int
    value: int
    size: int


class _BrokenError(Exception):
    """The file is not what its parts say of each other."""


class Elf:
    """What stands in a file. With too many sections none of them is read."""

    @classmethod
    def read(cls, data: bytes) -> Elf | None:
        """None when it is no ELF file, or not a whole one: a tool that fails may leave anything."""
        try:
            return cls(data)
        except _BrokenError:
            return None

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
            raise _BrokenError("no ELF file of 64 bits")
        self._data = memoryview(data)
        fields: tuple[int, ...] = _HEADER.unpack_from(data)
        _, self.machine, _, self.entry, segments, at, _, _, segment_size, segment_count, size, count, names = fields
        if at == 0 or size != _SECTION.size or at + size > len(data):
            raise _BrokenError("no sections")
        if count == 0:  # too many for the header
            count = _SECTION.unpack_from(data, at)[5]
        self.section_count = count
        self.sections: tuple[Section, ...] = ()
        self.texts: tuple[Section, ...] = ()
        """The names of sections, and those of symbols."""
        self.segments: tuple[Segment, ...] = ()
        if count > MOST_SECTIONS:
            return
        if names >= count or (segment_count and segment_size != _SEGMENT.size):
            raise _BrokenError("no names of sections")
        raw = [_SECTION.unpack(part) for part in _pieces(self._part(at, size * count), size)]
        texts = bytes(self._part(raw[names][4], raw[names][5]))
        self.sections = tuple(Section(_name(texts, one[0]), *one[1:]) for one in raw)
        known = (names, self.table.link) if self.table else (names,)
        self.texts = tuple(self.sections[number] for number in known if number < count)
        for one in self.sections:
            if one.type != Shape.NOBITS:
                self.content(one)
        found = _pieces(self._part(segments, _SEGMENT.size * segment_count), _SEGMENT.size)
        self.segments = tuple(
            Segment(kind, flags, offset, address, file_size, full)
            for kind, flags, offset, address, _, file_size, full, _ in map(_SEGMENT.unpack, found)
        )

    def content(self, part: Section | Segment) -> memoryview:
        """The bytes that the file has of it."""
        if isinstance(part, Segment):
            return self._part(part.offset, part.file_size)
        return self._part(part.offset, 0 if part.type == Shape.NOBITS else part.size)

    def section(self, name: str) -> Section | None:
        """The first of that name."""
        return next((one for one in self.sections if one.name == name), None)

    @property
    def table(self) -> Section | None:
        """The symbol table. What is written by hand stands before the assembler's own."""
        return next((one for one in reversed(self.sections) if one.type == Shape.SYMTAB), None)

    @property
    def symbol_count(self) -> int:
        """How many symbols there are."""
        return self.table.size // _SYMBOL.size if self.table else 0

    def symbols(self, *starts: str) -> Iterator[Symbol]:
        r"""All, or those whose names begin so (a name ends with \0)."""
        if self.table is None:
            return
        texts = bytes(self.content(self.texts[-1]))
        wanted = tuple(start.encode() for start in starts or ("",))
        content = self.content(self.table)
        whole = content[: len(content) // _SYMBOL.size * _SYMBOL.size]
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(whole):
            if texts.startswith(wanted, name):
                yield Symbol(_name(texts, name), info >> 4, info & 0xF, other, section, value, size)

    def choosers(self) -> frozenset[int]:
        """The values of all symbols that are functions which choose another one, without reading a name."""
        content = self.content(self.table) if self.table else b""
        whole = content[: len(content) // _SYMBOL.size * _SYMBOL.size]
        return frozenset(
            value
            for _, info, _, section, value, _ in _SYMBOL.iter_unpack(whole)
            if info & 0xF == Kind.IFUNC and section
        )

    def relocation_tables(self, index: int) -> Iterator[Section]:
        """The sections that say what has to be put into the section of that number."""
        return (one for one in self.sections if one.type == Shape.RELA and one.info == index)

    def relocations(self, table: Section) -> Iterator[tuple[int, int, int, int]]:
        """Of each its place, its type, the number of its symbol, and what is added."""
        content = self.content(table)
        whole = content[: len(content) // _RELOCATION.size * _RELOCATION.size]
        return _RELOCATION.iter_unpack(whole)

    def _part(self, start: int, size: int) -> memoryview:
        if start + size > len(self._data):
            raise _BrokenError("a part lies behind the end")
        return self._data[start : start + size]


def _pieces(content: memoryview, size: int) -> Iterator[memoryview]:
    return (content[at : at + size] for at in range(0, len(content), size))


def _name(texts: bytes, start: int) -> str:
    return texts[start : start + _MOST_NAME].partition(b"\0")[0].decode(errors="replace")
