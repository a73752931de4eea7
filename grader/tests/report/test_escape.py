"""What a student wrote cannot move the cursor, hide, or turn around in a terminal."""

from __future__ import annotations

import pytest

from grader.report.escape import cells, escape
from grader.report.page import Page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, [brackets] and \\n", "plain text, [brackets] and \\n"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\rb\x08\x00\x7f", r"a\x0db\x08\x00\x7f"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202edef\u2066", r"abc\u202edef\u2066"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("soft\u00adhyphen", r"soft\xadhyphen"),
        ("line\u2028separator", r"line\u2028separator"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("\u3164", r"\u3164"),
        ("作业 résumé ‘found’", "作业 résumé ‘found’"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    """Controls, format marks and blanks in disguise become visible; letters of any language stay."""
    assert shown == escape(text)


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("作业", 4), ("e\u0301", 1), ("…", 1), ("", 0)])
def test_columns_are_those_of_a_terminal(text: str, columns: int) -> None:
    """Wide letters take two columns, marks none."""
    assert columns == cells(text)


def test_words_wrap_with_a_hanging_indent() -> None:
    """Further lines start where the caller says."""
    page = Page(40, colour=False)
    page.write("label     ", "word " * 8, hang=10)

    assert page.text() == "label     word word word word word word\n          word word\n"


def test_blanks_behind_the_width_are_not_told_as_a_cut() -> None:
    """A cut line ends with an ellipsis; one that only has blanks too many lacks nothing."""
    page = Page(40, colour=False)
    page.crop("x" * 30 + " " * 30)
    page.crop("x" * 50)

    assert page.text() == "x" * 30 + "\n" + "x" * 39 + "…\n"
