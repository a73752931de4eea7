"""Submissions of a class that are alike: a page that lists the pairs, and one for each pair, side by side.

The pages have the names of several students, and are for the instructor only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.report.class_page import file_stems
from grader.report.document import Document, web_page

INDEX = "index.html"
_MOST_LINES = 5_000
_MOST_COLUMNS = 500
"""What is shown of a program; the longest that is compared has lines and columns by the hundred thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeProgram:
    """One program of a pair."""

    name: str
    students: tuple[str, ...]
    lines: tuple[str, ...]
    share: float
    """The share of it that is in the other one, 0 to 1."""
    equal: Mapping[int, int]
    """Its lines that are in the other program, from 1, each with its line there."""


AlikePair = tuple[AlikeProgram, AlikeProgram]
"""The programs of a pair, each with what of it is in the other one."""


def percent(share: float) -> str:
    """Return a share as whole percent, rounded down: only what is in the other program as a whole has 100 %."""
    return f"{int(100 * share + 1e-9)} %"


def similar_pages(
    pairs: Sequence[AlikePair], *, title: str, summary: str, skipped: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, Document]]:
    """Yield the file name and the page of the list, then those of each pair.

    `summary` says how many there are; `skipped` are the names of those that were not compared, each with the reason.
    """
    names = (f"{first.name}--{second.name}" for first, second in pairs)
    pages = [f"{stem}.html" for stem in file_stems(names, taken={"index"})]
    rows = list(zip(pairs, pages, strict=True))
    yield INDEX, web_page("similar", title=title, summary=summary, rows=rows, skipped=skipped, percent=percent)
    for (first, second), page in rows:
        yield (
            page,
            web_page(
                "pair",
                title=f"{first.name} and {second.name}",
                sides=[("L", "R", first), ("R", "L", second)],
                index=INDEX,
                percent=percent,
                shown=_shown,
                most=_MOST_LINES,
            ),
        )


def _shown(program: AlikeProgram) -> Iterator[tuple[int, str, int | None]]:
    """Yield number, text and line in the other program of each line that is shown; None: it is not there."""
    for number, line in enumerate(program.lines[:_MOST_LINES], start=1):
        text = line if len(line) <= _MOST_COLUMNS else f"{line[:_MOST_COLUMNS]} ... (cut here)"
        yield number, text, program.equal.get(number)
