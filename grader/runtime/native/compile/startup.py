"""What a linked program runs besides its functions, and what it makes the loader do, as words that can be compared.

Known-good programs of one lane (lanes.py) all have the same words. Further words of a submission's program came from
its object, however linker and loader handled it.
"""

from __future__ import annotations

from collections.abc import Iterator

from grader.runtime.native.compile.elf import Elf, Flag, Shape

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
_ARRAYS = frozenset({Shape.INIT_ARRAY, Shape.FINI_ARRAY, Shape.PREINIT_ARRAY})
_CALLED = frozenset({".init", ".fini", ".ctors", ".dtors", "__libc_atexit"})


def start(elf: Elf) -> frozenset[str]:
    """Return all such words of one program."""
    return frozenset([*_loader(elf), *_sections(elf), *_ifunc_values(elf)])


def _loader(elf: Elf) -> Iterator[str]:
    for segment in elf.segments:
        if segment.type == _INTERPRETER:
            yield f"interpreter {bytes(elf.content(segment)).decode(errors='replace')}"
    table = next((section for section in elf.sections if section.type == Shape.DYNAMIC), None)
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
        if table.type == Shape.RELA and table.flags & Flag.ALLOC:
            values = [added for _, kind, _, added in elf.relocations(table) if kind == _IRELATIVE.get(elf.machine)]
            strange = sum(added not in known for added in values)
            if strange:
                yield f"{strange} values in {table.name} that functions choose"
