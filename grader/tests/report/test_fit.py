"""Sections that share few lines."""

from __future__ import annotations

from functools import partial

from grader.report.page import Page, Section, fit


def _lines(page: Page, name: str, count: int) -> None:
    for number in range(count):
        page.write(f"{name}{number}")


def _section(name: str, rank: int, *counts: int) -> Section:
    return Section(rank=rank, versions=tuple(partial(_lines, name=name, count=count) for count in counts))


def _fitted(*sections: Section, screen: int, most: int = 80) -> str:
    page = Page(80, colour=False)
    fit(page, sections, screen=screen, most=most)
    return page.text()


def test_what_no_version_makes_short_enough_is_cut() -> None:
    """The least important ones, and three lines of each stay."""
    shown = _fitted(_section("a", 0, 9), _section("b", 9, 9), screen=5, most=13)

    assert shown == "\n".join([*(f"a{n}" for n in range(9)), "", "b0", "b1", "  ... and more"]) + "\n"
