"""The web page of one submission, as text: what it says, to whom, and that nothing from outside works in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.picture import Panel, PanelShape, Picture, Scene, StateRow
from grader.core.record import Environment, Record, Student, Submission
from grader.core.verdict import Advice, Finding, SourceLine, Tool, Verdict
from grader.report import FORMATS
from grader.report.class_page import class_page
from grader.report.document import Document, View
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.graded import drawn
from grader.tests.support.handmade import TOOLS, outcome, record_of, secret_record
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


def test_the_page_says_what_the_other_reports_say() -> None:
    """Verdict, points, the likely cause, every rule."""
    record = drawn("no_copy_on_write")
    text = said(html(record))

    assert f"{record.score} of {record.max_score} points" in text
    assert "wrong answer" in text
    assert record.first_cause is not None
    for words in (record.first_cause.summary, record.first_cause.hint, *(score.title for score in record.rules)):
        assert re.sub(r"\s+", " ", words) in text


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


def test_points_that_hidden_cases_cost_are_not_mistaken_for_their_number() -> None:
    """How many failed is said, and what that costs in all."""
    text = said(html(secret_record(outcome("append/public"))))

    assert "Hidden cases cost 2 points in all" in text
    assert "ruletitles addressa hidden title" in text


def test_lines_that_were_only_advised_have_no_cross() -> None:
    """A right program has nothing wrong; lines are listed one by one."""
    advice = tuple(Advice(kind="a", message=f"advice {n}", source=(SourceLine(file="x.c", line=n),)) for n in (1, 2))
    found = Finding(
        rule="address", verdict=Verdict.WRONG_ANSWER, message="m", source=(SourceLine(file="x.c", line=3),), case="c"
    )
    made = replace(
        record_of(outcome("c"), findings=(found,), advice=advice),
        submission=Submission(name="x", source_file="x.c", source=("one", "two", "three")),
    )
    page = html(made)

    assert "Lines with something to say: 1, 2, 3" in said(page)
    assert [re.findall(rf'id="L{line}" class="(\w+)"', page) for line in (1, 2, 3)] == [
        ["advised"],
        ["advised"],
        ["marked"],
    ]
    assert "x.c:1: advice 1" in said(page)


def test_a_page_says_whose_it_is() -> None:
    """Where a roster says so, for each member of a group."""
    made = record_of(outcome("c"))
    students = (Student(name="Ada Lovelace"), Student(name="Hopper, Grace"))
    record = replace(made, submission=replace(made.submission, students=students))

    assert all("Ada Lovelace and Hopper, Grace" in said(page) for page in (html(record), class_page([record], View())))


def test_a_wrong_cell_is_marked_without_colour() -> None:
    """By signs, and by words for who does not see them."""
    page = html(with_picture(record_of(outcome("append/x")), "append/x"))
    cell = re.search(r"<td class=\"wrong\".*?</td>", page)
    assert cell is not None

    assert said(cell[0]).strip() == "yours ✗ secret_wrongshould be ✓ secret_right"


def test_sentences_on_what_is_wrong_are_no_cells() -> None:
    """They are told as they are, the first with the number of the others, and not as a row too many."""
    rows = tuple(StateRow(label=str(number), expected=(), actual=(f"line {number} races",)) for number in range(3))
    panel = Panel(title="race on the ring", shape=PanelShape.SENTENCES, rows=(0, 1, 2))
    record = secret_record(outcome("append/public"))
    scene = Scene(operation=3, panels=(panel,))
    picture = Picture(case="append/public", operation=3, rows=rows, scenes=(scene,))
    page = html(replace(record, pictures=(picture,)))

    assert "race on the ring: line 0 races (and 2 more)" in said(page)
    assert "too much" not in page
    assert 'class="cells sentences"' not in page


def test_findings_stand_at_their_lines() -> None:
    """Each once with the number of its cases, the compiler's with what they mean, advice apart, others not at all."""
    here = (SourceLine(file="a.c", line=2, function="f"),)
    messages = [
        Finding(
            rule="address",
            verdict=Verdict.MEMORY_ERROR,
            message="read",
            tool=Tool.MEMORY_CHECKER,
            case=case,
            source=here,
        )
        for case in ("a", "b")
    ]
    record = record_of(
        outcome("a", findings=(0,)),
        outcome("b", findings=(1,)),
        findings=(
            *messages,
            Finding(
                rule="compile", verdict=Verdict.COMPILE_ERROR, message="unused", tool=Tool.BUILD, kind="compiler",
                field="nobody reads it", source=(SourceLine(file="a.c", line=1),),
            ),
            Finding(rule="x", verdict=Verdict.MEMORY_ERROR, message="far", source=(SourceLine(file="b.h", line=1),)),
        ),
        advice=(Advice(kind="x", message="look", source=here),),
        submission=Submission(name="x", source_file="a.c", source=("one", "two", "three")),
        environment=Environment(tools=TOOLS),
    )  # fmt: skip
    rows = re.findall(r"<tr id=\"L(\d)\".*?</tr>\n(?:<tr class=\"said\">(.*?)</tr>)?", html(record), flags=re.DOTALL)
    text = {number: said(row).strip() for number, row in rows}

    assert text == {
        "1": "gcc: unusednobody reads it",
        "2": "Valgrind: read (in 2 cases) advice: look",
        "3": "",
    }


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


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    """With its pictures, and in one piece; JSON has them too."""
    sample = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
    arguments = ("run", sample, *FEW, "--without-memory-checker", "--format")
    page = tmp_path / "report.html"

    assert grade(*arguments, "html", "--output", page).code == 1
    assert '<td class="wrong"' in page.read_text(encoding="utf-8")
    assert json.loads(grade(*arguments, "json").out)["pictures"][0]["program"]


def test_a_record_without_pictures_still_has_its_operations() -> None:
    """As one from a run that wanted none."""
    assert "append_kv 1 3" in said(html(record_of(outcome("append/x"))))
