"""The names in an object file: those that it defines for others, and those that it needs from others."""

from __future__ import annotations

from dataclasses import dataclass

from grader.runtime.native.compile.elf import COMMON, Bind, Elf


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names that an object defines for others, and those that it needs from others."""

    defined: frozenset[str]
    undefined: frozenset[str]
    weak: frozenset[str] = frozenset()
    """The undefined names that may stay undefined; then they are NULL."""
    unhideable: frozenset[str] = frozenset()
    """The defined names that objcopy cannot hide: common and unique ones. They could take the place of libc's."""

    @classmethod
    def of(cls, elf: Elf) -> Symbols:
        """Return the names of an object file."""
        visible = [symbol for symbol in elf.symbols() if symbol.bind != Bind.LOCAL]
        undefined = {symbol.name for symbol in visible if symbol.section == 0}
        weak = {symbol.name for symbol in visible if symbol.section == 0 and symbol.bind == Bind.WEAK}
        unhideable = {
            symbol.name for symbol in visible if symbol.section == COMMON or symbol.bind not in (Bind.GLOBAL, Bind.WEAK)
        }
        defined = {symbol.name for symbol in visible} - undefined
        return cls(frozenset(defined), frozenset(undefined), frozenset(weak), frozenset(unhideable - undefined))
