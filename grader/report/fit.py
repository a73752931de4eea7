"""Fitting sections into a limited number of lines: the least important section is shortened first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grader.report.page import Page, dim

_LEAST = 3
"""The fewest lines to which a section is cut."""

Draw = Callable[[Page], None]
"""Writes one version of a section onto an empty page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page. The one with the highest `rank` is the first to be shortened."""

    rank: int
    versions: tuple[Draw, ...]
    """Versions of the same content, each in fewer lines than the one before."""


def fit(page: Page, sections: Sequence[Section], *, screen: int, most: int) -> None:
    """Write the sections one below the other, in `screen` lines if shorter versions can achieve that.

    The sections take their next version in turn, until all fit. There are never more than `most` lines: if even the
    shortest versions have more, they are cut.
    """
    current = [0] * len(sections)
    drawn = [_drawn(page, section.versions[0]) for section in sections]
    in_turn = sorted(range(len(sections)), key=lambda place: -sections[place].rank)
    while _height(drawn) > screen:
        longer = [place for place in in_turn if current[place] + 1 < len(sections[place].versions)]
        if not longer:
            break
        for place in longer:
            current[place] += 1
            drawn[place] = _drawn(page, sections[place].versions[current[place]])
            if _height(drawn) <= screen:
                break
    for place in in_turn:
        over = _height(drawn) - most
        if over > 0 and len(drawn[place]) > _LEAST:
            drawn[place].cut(max(_LEAST, len(drawn[place]) - over), dim("... and more"))
    for part in drawn:
        page.add(part)


def _drawn(page: Page, draw: Draw) -> Page:
    part = Page(page.width, colour=page.colour)
    draw(part)
    return part


def _height(parts: Sequence[Page]) -> int:
    """Return the number of lines, with an empty line between two parts."""
    lines = [len(part) for part in parts if len(part)]
    return sum(lines) + max(0, len(lines) - 1)
