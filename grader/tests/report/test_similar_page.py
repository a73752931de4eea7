"""The pages of submissions that are alike: nothing in them is markup, and long programs are cut."""

from __future__ import annotations

import re

import pytest

from grader.core.sanitize import plain
from grader.report.document import View
from grader.report.similar_page import AlikeProgram, percent, similar_pages
from grader.tests.support.injected import INJECTIONS
from grader.tests.support.web_reader import reads_page


def program(name: str, lines: tuple[str, ...], **equal: int) -> AlikeProgram:
    """A program of which half is in the other one; `equal` by line, such as `L1=2`."""
    return AlikeProgram(
        name=name,
        students=(name,),
        lines=lines,
        share=0.5,
        equal={int(line.removeprefix("L")): there for line, there in equal.items()},
    )


@pytest.mark.parametrize("attack", INJECTIONS)
def test_nothing_of_a_program_is_markup(attack: str) -> None:
    """Neither its name, its students' nor its lines, nor why another one is not compared."""
    text = plain(INJECTIONS[attack])
    pair = program(text, (text, text), L1=2), program(text, (text, text), L2=1)

    pages = dict(similar_pages([pair], title=text, summary=text, skipped=[(text, text)]))

    assert len(pages) == 2
    for name, page in pages.items():
        assert re.fullmatch(r"[\w-]+\.html", name)
        reads_page(page, View())


def test_a_line_leads_to_its_line_in_the_other_program() -> None:
    """Only where there is one."""
    pair = program("ann", ("a", "b"), L2=7), program("bob", ("c",) * 7, L7=2)

    page = dict(similar_pages([pair], title="", summary="", skipped=[]))["ann--bob.html"]

    assert (
        '<tr id="L2" class="equal"><td class="at">2</td><td class="at"><a href="#R7">→ 7</a></td><td>b</td></tr>'
        in page
    )
    assert '<tr id="L1"><td class="at">1</td><td class="at"></td><td>a</td></tr>' in page
    assert page.count("<a href=") == 3


def test_a_long_program_is_cut() -> None:
    """In lines and in columns, and it says so."""
    pair = program("ann", ("x" * 600,) * 6_000), program("bob", ("y",))

    page = dict(similar_pages([pair], title="", summary="", skipped=[]))["ann--bob.html"]

    assert "and 1000 lines more" in page
    assert f"{'x' * 500} ... (cut here)" in page
    assert 'id="L5001"' not in page


def test_pages_of_pairs_with_one_name_are_apart() -> None:
    """And none takes the place of the list."""
    pairs = [(program("a", ()), program(other, ())) for other in ("b", "B", "b!")]

    names = [name for name, _ in similar_pages(pairs, title="", summary="", skipped=[])]

    assert names[0] == "index.html"
    assert all(re.fullmatch(r"a--[bB]-[0-9a-f]{8}\.html", name) for name in names[1:])
    assert len(set(map(str.casefold, names))) == 4


def test_a_share_is_rounded_down() -> None:
    """Only what is equal has 100 %."""
    assert [percent(share) for share in (1, 0.999, 0.29, 0)] == ["100 %", "99 %", "29 %", "0 %"]
