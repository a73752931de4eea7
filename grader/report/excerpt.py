"""A few lines of a submission around one of them; the place in the line is marked where it is known."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.record import Record
from grader.core.verdict import SourceLine

__all__ = ["Excerpt", "ExcerptLine", "excerpt"]

_AROUND = 2
"""Lines before and behind."""
_WIDEST = 120
"""So much of a line is shown: what colours takes long for long lines that are no C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcerptLine:
    """One line; `here` is the one that is meant."""

    number: int
    text: str
    here: bool
    column: int = 0
    """Where in it, from 1; 0 where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """The lines around a place of a submission."""

    place: SourceLine
    lines: tuple[ExcerptLine, ...]
    in_comment: bool
    """Do they begin within a comment?"""


def excerpt(record: Record, place: SourceLine | None) -> Excerpt | None:
    """The five lines around a place, None where that is in no line of the file that is shown."""
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
    """As it is drawn: a tab is as wide as four blanks."""
    if number != place.line or not 0 < place.column <= min(len(text) + 1, _WIDEST):
        return 0
    return len(_drawn(text[: place.column - 1])) + 1


def _drawn(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ").expandtabs(4)[:_WIDEST]
