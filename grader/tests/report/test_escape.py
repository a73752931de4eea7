"""What a student wrote cannot move the cursor, hide, or turn around in a terminal."""

from __future__ import annotations

import pytest

from grader.report.escape import cells, escape, escape_lines
from grader.report.page import Page, glued, strong


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


def test_marks_cannot_be_piled_up() -> None:
    """Two accents on a letter are writing, a hundred are a tower over other lines."""
    shown = escape("e" + "\u0301" * 100)

    assert shown.startswith("e\u0301\u0301\\u0301")


def test_lines_of_output_stay_lines() -> None:
    """Line ends split, tabs become blanks, the rest of the controls is written out."""
    assert escape_lines("a\tb\r\nc\rd\n\ne\n") == ["a   b", r"c\x0dd", "", "e"]


def test_no_output_is_no_line() -> None:
    """Nothing printed, nothing shown."""
    assert escape_lines("") == []


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("作业", 4), ("e\u0301", 1), ("…", 1), ("", 0)])
def test_columns_are_those_of_a_terminal(text: str, columns: int) -> None:
    """Wide letters take two columns, marks none."""
    assert columns == cells(text)


def test_words_wrap_with_a_hanging_indent() -> None:
    """Further lines start where the caller says."""
    page = Page(40, colour=False)
    page.write("label     ", "word " * 8, hang=10)

    assert page.text() == "label     word word word word word word\n          word word\n"


def test_a_word_longer_than_a_line_is_cut() -> None:
    """A path without blanks does not run over the edge."""
    page = Page(40, colour=False)
    page.write("x" * 100, indent=4)

    assert [len(line) for line in page.text().splitlines()] == [40, 40, 32]


def test_wide_letters_are_cut_at_the_edge() -> None:
    """A letter of two columns is never halved."""
    page = Page(41, colour=False)
    page.write("作" * 30)

    assert [cells(line) for line in page.text().splitlines()] == [40, 20]


def test_glued_words_stay_together() -> None:
    """They go to the next line as one."""
    page = Page(40, colour=False)
    page.write("a" * 30, " ", glued("stay with me"))

    assert page.text().splitlines()[1] == "stay with me"


def test_a_coloured_word_keeps_its_place() -> None:
    """Styles take no columns and end where the word ends."""
    page = Page(40, colour=True)
    page.write(strong("bold"), ", plain")

    assert page.text() == "\x1b[1mbold\x1b[0m, plain\n"


def test_a_heading_that_is_too_long_is_no_wider_than_the_page() -> None:
    """The line behind it gives way first."""
    page = Page(40, colour=False)
    page.heading("a heading with many words, more than forty columns")

    assert max(map(len, page.text().splitlines())) <= 40


def test_a_path_longer_than_the_page_is_broken_as_a_shell_would_join_it() -> None:
    """Behind the backslash the word goes on in the first column."""
    page = Page(40, colour=False)
    page.command("cat", "x" * 60, indent=4)

    assert page.text().replace("\\\n", "").split() == ["cat", "x" * 60]
