"""Sections that share few lines."""

from __future__ import annotations

from dataclasses import replace
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


def test_what_fits_is_shown_in_full() -> None:
    """One section below the other, an empty line between them, and none for a section without a word."""
    shown = _fitted(_section("a", 0, 2, 1), _section("none", 1, 0), _section("b", 2, 1), screen=4)

    assert shown == "a0\na1\n\nb0\n"


def test_what_matters_least_is_shortened_first() -> None:
    """No more of it than is needed."""
    shown = _fitted(_section("a", 0, 4, 1), _section("b", 9, 4, 2, 1), screen=7)

    assert shown == "a0\na1\na2\na3\n\nb0\nb1\n"


def test_sections_are_shortened_in_turns() -> None:
    """Not one of them to nothing while others stay as they are."""
    shown = _fitted(_section("a", 0, 9, 3), _section("b", 9, 9, 4, 0), screen=8)

    assert shown == "a0\na1\na2\n\nb0\nb1\nb2\nb3\n"


def test_what_no_version_makes_short_enough_is_cut() -> None:
    """The least important ones, and three lines of each stay."""
    shown = _fitted(_section("a", 0, 9), _section("b", 9, 9), screen=5, most=13)

    assert shown == "\n".join([*(f"a{n}" for n in range(9)), "", "b0", "b1", "  ... and more"]) + "\n"


def test_more_than_a_screen_is_kept_where_it_is_not_too_much() -> None:
    """Only `most` cuts into a section."""
    assert _fitted(_section("a", 0, 9), screen=5, most=9).count("\n") == 9


def test_on_a_small_screen_optional_sections_go_before_anything_is_cut() -> None:
    """The highest rank first, and the others take their least version only then."""
    sections = (
        replace(_section("a", 0, 4), least=partial(_lines, name="least", count=1)),
        replace(_section("b", 5, 3), optional=True),
        replace(_section("c", 9, 3), optional=True),
    )

    assert _fitted(*sections, screen=8, most=8).split() == ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]
    assert _fitted(*sections, screen=4, most=4).split() == ["a0", "a1", "a2", "a3"]
    assert _fitted(*sections, screen=3, most=3).split() == ["least0"]
