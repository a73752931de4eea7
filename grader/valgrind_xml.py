"""Valgrind's XML: its errors, each with the case and operation that the harness's client messages tell.

The document may end anywhere (a crash, a hostile program), therefore it is read piece by piece. Names of functions
stand in it as the student's object has them, with bytes that no XML can carry: they are decoded as plain text first,
for an error that cannot be read is an error that is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from xml.etree import ElementTree as ET

from grader.breaches import LEAK, MemoryFault, Place
from grader.errors import DriverError
from grader.plain import decoded
from grader.verdict import SourceLine

__all__ = ["LookUp", "asked", "attributed"]

_PIECE = re.compile(rb"<(error|clientmsg)>.*?</\1>", re.DOTALL)
_ANSWER = re.compile(rb"<clientmsg>(?:(?!</clientmsg>).)*pkv hang.*?(<stack>.*?</stack>)", re.DOTALL)
_MARKER = re.compile(r"pkv (errors|leaks) (\d+) (\d+) (\d+)")
_FORBIDDEN = re.compile(r"pkv forbidden ([0-9a-f]+) ([0-9a-f]+)")
_ADDRESS = re.compile(r"Address 0x([0-9A-Fa-f]+)")
_FRAME = re.compile(rb"<ip>0x([0-9A-Fa-f]{1,16})</ip>")
_MOST_FRAMES = 2000


def asked(document: bytes, source_name: str) -> tuple[SourceLine, ...]:
    """The student's lines on the stack of a program that was asked where it is."""
    found = _ANSWER.search(document)
    try:
        return tuple(_lines(ET.fromstring(decoded(found.group(1))), source_name)) if found else ()
    except ET.ParseError:
        return ()


LookUp = Callable[[tuple[int, ...]], tuple[SourceLine, ...]]
"""The student's lines on a stack of addresses."""


def attributed(document: bytes, last: Place, source_name: str, look_up: LookUp) -> Iterator[MemoryFault]:
    """Errors wait for the next marker, which says where they belong; after the last one, where the process died.

    Of a call that gcc put a function of a system header into Valgrind names the header's line, and of an inlined
    function the one around it; `look_up` knows both.
    """
    names = _names(document, look_up)
    waiting: list[ET.Element] = []
    forbidden: list[tuple[int, int]] = []
    for piece in _PIECE.finditer(document):
        try:
            element = ET.fromstring(decoded(piece.group(0)))
        except ET.ParseError:
            continue
        if element.tag == "error":
            waiting.append(element)
            continue
        text = element.findtext("text") or ""
        if range_ := _FORBIDDEN.search(text):
            forbidden.append((int(range_.group(1), 16), int(range_.group(2), 16)))
        marker = _MARKER.search(text)
        if marker:
            case, operation = int(marker.group(2)), int(marker.group(3))
            yield from _errors(waiting, (case, operation), source_name, look_up, names=names, forbidden=forbidden)
            waiting, forbidden = [], []
    # what was cut off could not free any more: its leaks, which Valgrind tells of at the end, are none
    cut_off = [element for element in waiting if not (element.findtext("kind") or "").startswith(LEAK)]
    yield from _errors(cut_off, last, source_name, look_up, names=names)


def _names(document: bytes, look_up: LookUp) -> dict[int, str]:
    """The function of each line in which there was an error; Valgrind's word is taken where that cannot be told."""
    if b"<error>" not in document:
        return {}
    frames = islice(_FRAME.finditer(document), _MOST_FRAMES)
    try:
        return {line.line: line.function for line in look_up(tuple({int(one.group(1), 16) for one in frames}))}
    except DriverError:
        return {}


def _errors(
    elements: list[ET.Element],
    place: Place,
    source_name: str,
    look_up: LookUp,
    *,
    names: Mapping[int, str],
    forbidden: Sequence[tuple[int, int]] = (),
) -> Iterator[MemoryFault]:
    for element in elements:
        stacks = [
            tuple(replace(line, function=names.get(line.line, line.function)) for line in _lines(stack, source_name))
            for stack in element.iter("stack")
        ]
        if not any(stacks):
            stacks = [look_up(tuple(_addresses(stack))) for stack in element.iter("stack")]
        if any(stacks):  # without a line of the student's it is none of theirs
            yield MemoryFault(
                case=place[0],
                operation=place[1],
                kind=element.findtext("kind") or "",
                message=element.findtext("what") or element.findtext("xwhat/text") or "",
                lines=stacks[0],
                auxiliary=stacks[1] if len(stacks) > 1 else (),
                breach=_is_breach(element, forbidden),
                freed=(element.findtext("auxwhat") or "").endswith("free'd"),
            )


def _is_breach(element: ET.Element, forbidden: Sequence[tuple[int, int]]) -> bool:
    address = _ADDRESS.match(element.findtext("auxwhat") or "")
    return address is not None and any(start <= int(address.group(1), 16) < end for start, end in forbidden)


def _addresses(stack: ET.Element) -> Iterator[int]:
    for frame in stack.iter("frame"):
        yield _number(frame.findtext("ip"), 16)


def _number(text: str | None, base: int) -> int:
    """0 for what is none: a program may have written into the channel."""
    try:
        number = int(text or "0", base)
    except ValueError:
        return 0
    return number if 0 <= number < 1 << 64 else 0


def _lines(stack: ET.Element, source_name: str) -> Iterator[SourceLine]:
    for frame in stack.iter("frame"):
        if frame.findtext("file") == source_name:
            yield SourceLine(
                file=source_name, line=_number(frame.findtext("line"), 10), function=frame.findtext("fn") or ""
            )
