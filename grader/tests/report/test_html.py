"""The web page of one submission, as text: what it says, to whom, and that nothing from outside works in it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest

from grader.core.picture import Panel, PanelShape, Picture, Scene, StateRow
from grader.core.record import Record, Submission
from grader.core.verdict import SourceLine
from grader.report import FORMATS
from grader.report.document import Document, View
from grader.tests.support.graded import drawn
from grader.tests.support.handmade import outcome, record_of, secret_record
from grader.tests.support.injected import Page
from grader.tests.support.web_reader import reads_page

_ROW = StateRow(label="secret_row", expected=("secret_right",), actual=("secret_wrong",))


def html(record: Record, *, instructor: bool = False) -> Document:
    """The page."""
    return FORMATS["html"](record, View(instructor=instructor))


def with_picture(record: Record, case: str, row: StateRow = _ROW) -> Record:
    """The record with a scene of its third operation."""
    panel = Panel(title="secret_panel", shape=PanelShape.VALUES, rows=(0,))
    scene = Scene(operation=3, panels=(panel,))
    picture = Picture(case=case, operation=3, rows=(row,), scenes=(scene,), program=("secret_program",))
    return replace(record, pictures=(picture,))


def said(page: str) -> str:
    """The text of the page, blanks as one."""
    return re.sub(r"\s+", " ", Page(re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)).text)


def test_hidden_cases_are_not_drawn_for_students() -> None:
    """Neither states nor calls nor the program nor lines of the source; an instructor sees all of it."""
    record = with_picture(secret_record(outcome("append/public")), "append/secret_name")
    found = replace(record.findings[0], source=(SourceLine(file="x.c", line=2),))
    record = replace(
        record,
        findings=(found, *record.findings[1:]),
        submission=Submission(name="x", source_file="x.c", source=("one", "two")),
    )
    pages = html(record), html(record, instructor=True)
    student, instructor = map(said, pages)

    assert not re.search(r"secret|31337|777", student)
    assert [' id="L2" class="marked"' in page for page in pages] == [False, True]
    assert "a hidden title" in student
    for words in ("secret_row", "secret_wrong", "secret_program", "secret_field", "secret_call 31337"):
        assert words in instructor


@pytest.mark.parametrize("name", ["sign_compare", "yoda_crlf", "constructor_attribute", "fork_parent_unchecked"])
def test_pages_of_all_kinds_are_whole(name: str) -> None:
    """A failing build, all points, rejected, a crash: for students and instructors."""
    for instructor in (False, True):
        page = html(drawn(name), instructor=instructor)
        reads_page(page, View())

        assert 'id="L1"' in page


def test_only_our_own_script_and_style_may_work() -> None:
    """Named by their hashes; nothing is loaded, nothing is sent."""
    page = html(record_of())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none';")
    assert not re.search(r"unsafe|https?:|\ssrc=|\sstyle=|\son\w+=|@import|url\(", page)


def test_an_operation_that_is_drawn_is_not_the_mistake_if_a_later_one_is() -> None:
    """A state may be too large to be drawn; the pictures before it are right."""
    shown = with_picture(secret_record(outcome("append/public")), "append/secret_name")
    first, *others = shown.causes
    later = replace(shown, causes=(replace(first, operation=4), *others))
    pages = html(shown, instructor=True), html(later, instructor=True)

    assert ['data-scene="0" class="mistake"' in page for page in pages] == [True, False]
    assert ['data-go="mistake" hidden' in page for page in pages] == [False, True]
