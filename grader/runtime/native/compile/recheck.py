"""Check the object again after objcopy, which may have read something else in it than the grader did."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from grader.runtime.native.compile.elf import Bind, Elf, Flag, Shape
from grader.runtime.native.compile.expected_object import CODE, unexpected_symbols
from grader.runtime.native.compile.scan import Suspect

_OURS = {
    "student_data": (Shape.PROGBITS, (Flag.ALLOC | Flag.WRITE,)),
    "student_bss": (Shape.NOBITS, (Flag.ALLOC | Flag.WRITE,)),
    "student_text": (Shape.PROGBITS, (CODE, Flag.ALLOC)),
}
"""The section names that link.py gives, with their types and flags."""
_RENAMED = re.compile(r"s[0-9a-f]{16}")
_COMPARED_FLAGS = Flag.ALLOC | Flag.WRITE | Flag.EXECUTE | Flag.TLS


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
        shape, flags = _OURS.get(section.name, (Shape.PROGBITS, ()))
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
