"""The page of which program fails which case: rows, columns, sums and what is listed below."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from grader.assignment.case_selection import select_cases
from grader.core.case import Case
from grader.labs import open_lab
from grader.report.document import Document, View
from grader.report.kill_matrix import MatrixProgram, kill_matrix
from grader.tests.report.test_html import said
from grader.tests.support.browser import NO_CHROMIUM, Browser, chromium
from grader.tests.support.injected import INJECTIONS
from grader.tests.support.web_reader import reads_page


@cache
def some_cases() -> tuple[Case, ...]:
    """Two cases of each of two rules, and those of no other."""
    cases = select_cases(open_lab("paged_kv"), seed=1).cases
    return tuple(case for rule in ("cow", "list") for case in [case for case in cases if case.rule == rule][:2])


def programs() -> list[MatrixProgram]:
    """Samples of two rules and of a verdict, and mutants of a program: caught, missed and the same."""
    cow, other_cow, listing, _ = (case.name for case in some_cases())
    return [
        MatrixProgram(name="wrong_answer/lists", group="list", mutant=False, fails=frozenset({listing})),
        MatrixProgram(name="wrong_answer/copies", group="cow", mutant=False, fails=frozenset({cow, other_cow})),
        MatrixProgram(name="time_limit_exceeded/waits", group="time_limit_exceeded", mutant=False, fails=frozenset()),
        MatrixProgram(name="plain:3:4 `<` -> `>`", group="plain", mutant=True, fails=frozenset({cow, listing})),
        MatrixProgram(name="plain:5:6 `1` -> `2`", group="plain", mutant=True, fails=frozenset(), trace=("a", "b 1")),
        MatrixProgram(name="plain:7:8 `0` -> `1`", group="plain", mutant=True, fails=frozenset()),
    ]


def page() -> Document:
    """The matrix of these programs."""
    _, other_cow, listing, _ = (case.name for case in some_cases())
    return kill_matrix("paged_kv", some_cases(), programs(), sole={"list": listing}, redundant=[other_cow])


def test_rows_and_columns() -> None:
    """Samples stand in the order of the rules, before the mutants; each group says how many of it fail a case."""
    names = re.findall(r'<text class="name"[^>]*>([^<]*)</text>', page())
    rows = re.findall(r'<g class="program"><title>(\S+?)[: ]', page())

    assert names == ["cow 2", "cow 1", "list 1", "time_limit_exceeded 0 of 1", "plain 1 of 3"]
    assert '<text class="bad" transform' in page()
    assert rows == ["wrong_answer/copies", "wrong_answer/lists", "time_limit_exceeded/waits", "plain", "plain", "plain"]


def test_a_row_has_a_cell_for_each_case_that_fails() -> None:
    """Neighbours are one line; a line begins where the pen is."""
    paths = [re.sub(r"^M\S+ \S+?m", "m", path) for path in re.findall(r'<path class="cells" d="([^"]*)"', page())]
    width, gap = 9, 22 - 18

    assert paths == [f"m0 0h{2 * width}", f"m{2 * width + gap} 0h{width}", f"m0 0h{width}m{width + gap} 0h{width}"]


def test_what_is_listed_below() -> None:
    """What is missed with its trace, what no program fails, what is not needed, and what counts as right."""
    cow, other_cow, listing, unused = (case.name for case in some_cases())
    text = said(page().replace("<td", " <td"))

    assert "✗ plain:5:6 `1` -> `2` a b 1" in text
    assert f"○ Cases that no program fails: 1 {unused}" in text
    assert f"without them: 1 names {other_cow}" in text
    assert "Samples that fail no case: 1 time_limit_exceeded/waits" in text
    assert "= Mutants that count as right: 1" in text
    assert f"cow 2 2 1 of 1 list 2 2 1 of 1 ! {listing}" in text
    assert cow in text


@pytest.mark.parametrize("text", INJECTIONS.values(), ids=INJECTIONS)
def test_what_comes_from_programs_is_text(text: str) -> None:
    """A mutant's name has code of the program in it."""
    hostile = [
        MatrixProgram(name=text, group=text, mutant=True, fails=frozenset(), trace=(text,)),
        MatrixProgram(name=text + " ", group=text, mutant=False, fails=frozenset({some_cases()[0].name})),
    ]

    reads_page(kill_matrix("paged_kv", some_cases(), hostile, sole={}, redundant=()), View(instructor=True))


def test_pages_without_programs_or_of_all_cases() -> None:
    """No program at all is no error, and a page of a thousand programs is less than 3 MB."""
    cases = select_cases(open_lab("paged_kv"), seed=1).cases
    many = [
        MatrixProgram(
            name=f"origin:{number}:{number} `some code` -> `some other code`",
            group=f"origin {number % 50}",
            mutant=True,
            fails=frozenset(case.name for case in cases[number % 2 :: 2]),
        )
        for number in range(1000)
    ]

    assert "0 wrong programs" in kill_matrix("paged_kv", cases, [], sole={}, redundant=())
    assert len(kill_matrix("paged_kv", cases, many, sole={}, redundant=())) < 3_000_000


@pytest.mark.skipif(chromium() is None, reason=NO_CHROMIUM)
def test_the_page_names_what_is_under_the_pointer(browser: Browser, tmp_path: Path) -> None:
    """Program and case of a cell that is filled and of one that is not; nothing where neither is."""
    file = tmp_path / "kills.html"
    file.write_text(page(), encoding="utf-8")
    browser.open(file)
    point = """((row, column) => { const box = (one) => one.querySelector("rect").getBoundingClientRect();
      const program = box(document.querySelectorAll(".program")[row]);
      const place = box(document.querySelectorAll(".case")[column]);
      document.querySelector(".kills svg").dispatchEvent(new PointerEvent("pointermove",
        { clientX: place.x + place.width / 2, clientY: program.y + program.height / 2 }));
      return document.querySelector(".tip").innerText; })"""
    cow, _, listing, _ = (case.name for case in some_cases())
    fails, passes = browser.ask(f"{point}(0, 0)"), browser.ask(f"{point}(0, 2)")

    assert fails.startswith("✗ fails wrong_answer/copies")
    assert cow in fails
    assert passes.startswith("passes wrong_answer/copies")
    assert listing in passes
    assert browser.complaints == []
