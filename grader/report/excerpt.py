"""A few lines of a submission around one line, with the column where it is known and syntax colours for web pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grader.core.record import Record
from grader.core.verdict import SourceLine

_AROUND = 2
"""The number of lines shown before and after the line."""
_HARD_SPACES = {ord(space): ascii(space)[1:-1] for space in "\u00a0\u2007\u202f"}
"""Characters that look like a space and are none for a compiler, such as \\xa0, which web pages and keyboards make."""
_WIDEST = 120
"""The number of characters shown of a line: the colouring is slow for long lines that are not C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcerptLine:
    """One line; `here` is true for the line of the place."""

    number: int
    text: str
    here: bool
    column: int = 0
    """The column in the shown line, from 1; 0 when it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The lines around a place of a submission."""

    place: SourceLine
    lines: tuple[ExcerptLine, ...]
    in_comment: bool
    """Whether the lines begin within a comment."""

    @property
    def marked(self) -> ExcerptLine:
        """The line of the place."""
        return next(line for line in self.lines if line.here)


def excerpt(record: Record, place: SourceLine | None) -> Excerpt | None:
    """Return the five lines around a place, None when it is not a line of the submission's source file."""
    submission = record.submission
    if place is None or place.file != submission.source_file or not 0 < place.line <= len(submission.source):
        return None
    first = max(1, place.line - _AROUND)
    shown = submission.source[first - 1 : place.line + _AROUND]
    lines = tuple(
        ExcerptLine(
            number=number, text=_drawn(text), here=number == place.line, column=_column(place, text, number=number)
        )
        for number, text in enumerate(shown, first)
    )
    before = "\n".join(submission.source[: first - 1])
    return Excerpt(place=place, lines=lines, in_comment=before.rfind("/*") > before.rfind("*/"))


def _column(place: SourceLine, text: str, *, number: int) -> int:
    """Return the column in the line as it is drawn, where tab stops are four columns apart; 0 when there is none."""
    if number != place.line or not 0 < place.column <= min(len(text) + 1, _WIDEST):
        return 0
    return len(_drawn(text[: place.column - 1])) + 1


def _drawn(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ").expandtabs(4).translate(_HARD_SPACES)[:_WIDEST]


Piece = tuple[str, str]
"""The kind of the text (key, com, str, num, pre, or empty), and the text."""


def coloured(excerpt: Excerpt) -> list[tuple[ExcerptLine, list[Piece]]]:
    """Return the lines of an excerpt, each with its pieces."""
    return list(zip(excerpt.lines, _lines(excerpt), strict=True))


def _lines(excerpt: Excerpt) -> Iterator[list[Piece]]:
    from pygments.lexers.c_cpp import CLexer  # noqa: PLC0415 - slow to import, and only web pages need it
    from pygments.token import Comment, Keyword, Number, String  # noqa: PLC0415

    kinds = ((Comment.Preproc, "pre"), (Comment, "com"), (Keyword, "key"), (String, "str"), (Number, "num"))
    lexer = CLexer(stripnl=False, ensurenl=False)  # type: ignore[no-untyped-call]
    opening = "/*" if excerpt.in_comment else ""
    left = len(opening)
    pieces: list[Piece] = []
    for token, value in lexer.get_tokens(opening + "\n".join(line.text for line in excerpt.lines)):
        name = next((name for known, name in kinds if known in token.split()), "")
        text, left = value[left:], max(0, left - len(value))
        for place, part in enumerate(text.split("\n")):
            if place:
                yield pieces
                pieces = []
            if part:
                pieces.append((name, part))
    yield pieces
