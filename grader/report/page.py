"""A page of text that escapes, wraps and, when requested, colours its text. Nothing on it is wider than the page.

Every word of a text report passes through this module, so that no renderer can forget to escape what a student wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, groupby

from grader.report.document import Document
from grader.report.escape import cells, escape

_LEAST_WIDTH = 40
_LEAST_ROOM = 18
"""The fewest columns for the words of a paragraph in lines after the first, however large `hang` is."""
_LEAST = 3
"""No section is cut to fewer lines than this."""
_GLUE = "\u00a0"
"""A space at which no line is broken."""


class Style(StrEnum):
    """How a piece of text looks in a terminal; its value is the ANSI code. Style alone conveys no information."""

    PLAIN = ""
    STRONG = "1"
    DIM = "2"
    BAD = "31"
    GOOD = "32"
    HEADING = "1;36"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text in one style."""

    text: str
    style: Style = Style.PLAIN


class Page:
    """Lines written one below the other."""

    def __init__(self, width: int, *, colour: bool) -> None:
        self.width = max(width, _LEAST_WIDTH)
        self.colour = colour
        self._lines: list[str] = []

    def write(self, *parts: str | Span, indent: int = 0, hang: int | None = None) -> None:
        """Write one paragraph, broken at spaces; further lines start at column `hang` (default: `indent`)."""
        text, styles = _joined(parts)
        while cells(text) > self.width - indent:
            most = max(1, _fitting(text, self.width - indent))
            end = text.rfind(" ", 0, most + 1)
            if not text[: max(0, end)].strip():  # one word, longer than a line
                end = most
            self._add(text[:end], styles, indent)
            rest = text[end:].lstrip(" ")
            styles = styles[len(text) - len(rest) :]
            text, indent = rest, min(indent if hang is None else hang, self.width - _LEAST_ROOM)
        self._add(text, styles, indent)

    def labelled(self, label: str, *parts: str | Span, column: int = 10) -> None:
        """Write a paragraph with a label before it."""
        self.write(Span(pad(label, column), Style.DIM), *parts, indent=2, hang=2 + column)

    def heading(self, text: str) -> None:
        """Write the line that begins a section."""
        self.blank()
        rule = "─" * (self.width - cells(text) - 1)
        self.write(Span(text, Style.HEADING), Span(f" {rule}", Style.DIM))

    def command(self, *words: str, indent: int) -> None:
        """Write a shell command. A long one continues on the next line after a backslash, so that it can be copied."""
        room = self.width - 2
        line, begun = " " * indent, False
        for word in map(escape, words):
            if begun and cells(line) + 1 + cells(word) > room:
                self._lines.append(f"{line} \\")
                line, begun = " " * (indent + 4), False
            line += f" {word}" if begun else word
            begun = True
            while cells(line) > room and "'" not in line:
                end = _fitting(line, room)
                self._lines.append(f"{line[:end]}\\")
                line = line[end:]
        self.crop(line)

    def crop(self, *parts: str | Span, indent: int = 0) -> None:
        """Write one line, and cut it off at the width of the page."""
        text, styles = _joined(parts)
        if cells(text) > self.width - indent:
            end = _fitting(text, self.width - indent - 1)
            text, styles = f"{text[:end]}…", [*styles[:end], Style.PLAIN]
        self._add(text, styles, indent)

    def blank(self) -> None:
        """Write an empty line, but never two in a row."""
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._lines)

    def add(self, other: Page) -> None:
        """Append the lines of another page of the same width, after an empty line."""
        if len(other):
            self.blank()
            self._lines += other._lines

    def cut(self, most: int, last: str | Span) -> None:
        """Keep at most `most` lines; if there were more, `last` becomes the last line and says so."""
        if len(self._lines) > most:
            del self._lines[most - 1 :]
            self.crop(last, indent=2)

    def text(self) -> Document:
        """Return the whole text, with a line end."""
        return Document("\n".join(self._lines).strip("\n").replace(_GLUE, " ") + "\n")

    def _add(self, text: str, styles: Sequence[Style], indent: int) -> None:
        text = text.rstrip()
        if self.colour:
            runs = groupby(zip(text, styles, strict=False), key=lambda pair: pair[1])
            text = "".join(_painted("".join(letter for letter, _ in run), style) for style, run in runs)
        self._lines.append(" " * indent + text if text else "")


def _painted(text: str, style: Style) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style else text


def strong(text: str) -> Span:
    """Return a text in the style for what the reader should notice first."""
    return Span(text, Style.STRONG)


def dim(text: str) -> Span:
    """Return a text in the style for what the reader may skip."""
    return Span(text, Style.DIM)


def good(text: str) -> Span:
    """Return a text in the style for what is right."""
    return Span(text, Style.GOOD)


def bad(text: str) -> Span:
    """Return a text in the style for what is wrong."""
    return Span(text, Style.BAD)


def glued(text: str) -> str:
    """Return the text with spaces at which no line is broken."""
    return text.replace(" ", _GLUE)


def pad(text: str, width: int) -> str:
    """Return the text, filled with spaces up to `width` columns of a terminal."""
    return text + " " * (width - width_of(text))


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return cells(escape(text))


def wrapped(text: str, width: int) -> list[str]:
    """Return the text as lines of at most `width` columns, each of which ends at a space or a comma if possible."""
    lines, rest = [], escape(text)
    while cells(rest) > width:
        most = _fitting(rest, width)
        end = max(rest.rfind(mark, width // 2, most) for mark in " ,") + 1 or max(most, 1)
        lines.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*lines, rest]


def _joined(parts: Iterable[str | Span]) -> tuple[str, list[Style]]:
    """Return the escaped text of all parts, and the style of each of its characters."""
    spans = [
        (escape(part), Style.PLAIN) if isinstance(part, str) else (escape(part.text), part.style) for part in parts
    ]
    return "".join(text for text, _ in spans).rstrip(), [style for text, style in spans for _ in text]


def _fitting(text: str, room: int) -> int:
    """Return how many characters at the start of the text fit into `room` columns."""
    if text.isascii():
        return min(room, len(text))
    columns = accumulate(map(cells, text))
    return next((end for end, used in enumerate(columns) if used > room), len(text))


Draw = Callable[[Page], None]
"""Writes one version of a section onto an empty page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page. The section with the highest `rank` is shortened first."""

    rank: int
    versions: tuple[Draw, ...]
    """Versions of the same content, each in fewer lines than the version before."""
    whole: Draw | None = None
    """The version without any limit, if this is not the first version."""
    optional: bool = False
    """Whether the section is left out if even the shortest versions of all sections take too many lines."""
    least: Draw | None = None
    """The version to use if the page has too many lines even without its optional sections."""


def fit(page: Page, sections: Sequence[Section], *, screen: int, most: int) -> None:
    """Write the sections one below the other, in `screen` lines if shorter versions can achieve that.

    The sections take their next version in turn, until all fit. There are never more than `most` lines: longer sections
    are cut. If `screen` equals `most`, the page must fit the screen: before anything is cut, optional sections are left
    out, the section with the highest rank first, and after this the other sections take their `least` version.
    """
    drawn = [_drawn(page, section.versions[0]) for section in sections]
    in_turn = sorted(range(len(sections)), key=lambda place: -sections[place].rank)
    for place, draw in _shorter(sections, in_turn, is_all=screen == most):
        if _height(drawn) <= screen:
            break
        drawn[place] = _drawn(page, draw)
    for place in in_turn:
        over = _height(drawn) - most
        if over > 0 and len(drawn[place]) > _LEAST:
            drawn[place].cut(max(_LEAST, len(drawn[place]) - over), dim("... and more"))
    for part in drawn:
        page.add(part)


def _shorter(sections: Sequence[Section], in_turn: Sequence[int], *, is_all: bool) -> Iterator[tuple[int, Draw]]:
    """Yield (place of a section, its next version), round by round; if `is_all`, then empty and `least` versions."""
    for version in range(1, max((len(section.versions) for section in sections), default=0)):
        for place in in_turn:
            if version < len(sections[place].versions):
                yield place, sections[place].versions[version]
    if is_all:
        yield from ((place, lambda _: None) for place in in_turn if sections[place].optional)
        yield from ((place, least) for place in in_turn if (least := sections[place].least) is not None)


def write_whole(page: Page, sections: Sequence[Section]) -> None:
    """Write the sections one below the other, each without a limit."""
    for section in sections:
        page.add(_drawn(page, section.whole or section.versions[0]))


def _drawn(page: Page, draw: Draw) -> Page:
    part = Page(page.width, colour=page.colour)
    draw(part)
    return part


def _height(parts: Sequence[Page]) -> int:
    """Return the number of lines, with an empty line between two parts."""
    lines = [len(part) for part in parts if len(part)]
    return sum(lines) + max(0, len(lines) - 1)
