"""The names in an object file: what it defines for others, and what it wants from them."""

from __future__ import annotations

import io
from dataclasses import dataclass

from grader.build import scan

__all__ = ["Symbols"]


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names that an object defines for others, and those that it wants from others."""

    defined: frozenset[str]
    undefined: frozenset[str]
    stubborn: frozenset[str] = frozenset()
    """Of the defined those that objcopy cannot hide: common and unique ones. They could take the place of libc's."""

    @classmethod
    def read(cls, data: bytes) -> Symbols | None:
        """Those of a file that may be anything; None when it is no object, or not a whole one."""
        from elftools.common.exceptions import ELFError  # noqa: PLC0415 - slow to import

        if not scan.is_whole(data):
            return None
        try:
            return cls.of(data)
        except (ELFError, LookupError, OverflowError, ValueError):
            return None

    @classmethod
    def of(cls, data: bytes) -> Symbols:
        """Read them from the bytes of an object file."""
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - slow to import
        from elftools.elf.sections import SymbolTableSection  # noqa: PLC0415

        table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            return cls(frozenset(), frozenset())
        visible = [symbol for symbol in table.iter_symbols() if symbol["st_info"]["bind"] != "STB_LOCAL"]
        undefined = {symbol.name for symbol in visible if symbol["st_shndx"] == "SHN_UNDEF"}
        plain = ("STB_GLOBAL", "STB_WEAK")
        stubborn = {
            symbol.name
            for symbol in visible
            if symbol["st_shndx"] == "SHN_COMMON" or symbol["st_info"]["bind"] not in plain
        }
        defined = {symbol.name for symbol in visible} - undefined
        return cls(frozenset(defined), frozenset(undefined), frozenset(stubborn - undefined))
