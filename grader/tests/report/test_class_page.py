"""The web page of a class, as text: who is in it, what fails most, what is suspect."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from grader.core.record import Record, Student, Submission
from grader.core.verdict import Cause, Finding, Verdict, Visibility
from grader.report.class_page import class_page, page_names
from grader.report.document import View
from grader.tests.report.test_html import said
from grader.tests.support.handmade import outcome, record_of
from grader.tests.support.injected import INJECTIONS, filled
from grader.tests.support.web_reader import reads_page

_MARK = "above 30 %"


def student(name: str, *, score: int, failing: tuple[str, ...] = (), leaks: bool = False) -> Record:
    """Five public cases and a hidden one; the verdict says that memory was lost, if it was."""
    outcomes = [
        outcome(
            f"append/{letter}",
            title=f"about {letter}",
            passed=letter not in failing,
            verdict=Verdict.MEMORY_LEAK if leaks else Verdict.ACCEPTED,
            visibility=Visibility.HIDDEN if letter == "h" else Visibility.PUBLIC,
        )
        for letter in "abcdeh"
    ]
    made = record_of(*outcomes, score=score)
    return replace(made, submission=Submission(name=name), rules=(replace(made.rules[0], points=score),))


CLASS = [
    student("ann", score=6),
    student("bob", score=4, failing=("a", "b"), leaks=True),
    student("cem", score=3, failing=("a", "b", "h"), leaks=True),
    student("dora", score=6),
    student("eve", score=2, failing=("a", "c", "h"), leaks=True),
    student("fay", score=6),
    student("gil", score=6),
    student("hal", score=6),
    student("ida", score=6),
]


def rows(page: str, heading: str) -> list[str]:
    """The rows of the table below a heading, as text."""
    part = page[page.index(f'id="{heading}"') :]
    return [
        said(row).strip() for row in re.findall(r"<tr[ >].*?</tr>", part[: part.index("</table>")], flags=re.DOTALL)
    ]


def test_cases_stand_by_how_many_fail() -> None:
    """More than 30 % of those who were judged is suspect; a leak that shows everywhere makes no case suspect."""
    listed = rows(class_page(CLASS, View(instructor=True)), "cases")[1:]

    assert [re.search(r"append/(\w)", row)[1] for row in listed] == ["a", "b", "h", "c"]  # type: ignore[index]
    assert [_MARK in row for row in listed] == [True, False, False, False]
    assert listed[0].startswith("3 of 9, 33 %")


def test_a_class_page_says_of_what_it_is() -> None:
    """The assignment and the run; whose each row is, and the section."""
    one = student("ann", score=6)
    people = (Student(name="Ada Lovelace", section="B"), Student(name="Alan Turing", section="B"))
    page = said(class_page([replace(one, submission=replace(one.submission, students=people))], View(), run="run 3"))

    assert "paged_kv · run 3 · 1 submission" in page
    assert "Ada Lovelace and Alan Turing section B" in page


def test_thirty_percent_itself_is_not_suspect() -> None:
    """More than that is."""
    ten = [*CLASS, student("jo", score=6)]

    assert _MARK not in class_page(ten, View(instructor=True))


def test_who_could_not_be_run_or_has_no_score_is_no_failing_case() -> None:
    """They are counted by themselves, and stand in the table."""
    broken = record_of(verdict=Verdict.COMPILE_ERROR, score=0)
    ours = replace(student("x", score=0, failing=tuple("abcde")), verdict=Verdict.JUDGE_ERROR, score=None)
    page = class_page([*CLASS, broken, ours], View(instructor=True))

    assert rows(page, "cases")[1].startswith("3 of 9, 33 %")
    assert rows(page, "rules")[1].startswith("3 of 9, 33 %")
    assert "no score" in " ".join(rows(page, "students"))
    assert re.search(r"could not be run 1 without a score 1", said(page))


def test_the_chart_counts_everybody() -> None:
    """In words for who does not see it, and as bars as high as they are many."""
    page = class_page(CLASS, View(instructor=True))
    label = re.search(r'aria-label="How many have how many points. ([^"]*)"', page)
    assert label is not None
    heights = [
        int(height) for height in re.findall(r'<rect class="bar" x="\d+" y="\d+" width="30" height="(\d+)"', page)
    ]

    assert sum(map(int, re.findall(r": (\d+)", label[1]))) == len(CLASS)
    assert heights == [70, 140]
    assert "median 6" in said(page)


@pytest.mark.parametrize(
    ("score", "most", "bars", "own"),
    [(100, 100, 20, "95–100"), (94, 100, 20, "90–94"), (0, 100, 20, "0–4"), (57, 57, 12, "55–57"), (4, 4, 1, "0–4")],
)
def test_a_bar_of_the_chart_is_five_points_wide(score: int, most: int, bars: int, own: str) -> None:
    """All points are in the last one, also where hidden cases are left out."""
    ann = student("ann", score=6)
    page = class_page([replace(ann, score=score, max_score=most)], View())

    assert page.count('width="30"') == bars
    assert re.findall(r"<title>(\S+) points: 1</title>", page) == [own]


def shared(page: str) -> list[str]:
    """The causes on a page of a class, as text."""
    parts = page[page.index('id="causes"') : page.index('id="points"')].split('<div class="cause">')[1:]
    return [" ".join(said(part).split()) for part in parts]


def test_causes_stand_first_by_how_many_have_them() -> None:
    """The same rule, call and sentence of the handout is one cause, whatever values the hints hold."""
    cow = Cause(
        rule="cow", verdict=Verdict.WRONG_ANSWER, sentence="block 1 is 0", clause="Task 4: it is copied",
        hint="copy block 1", call="append_kv", operation=3, cases=("append/a",),
    )  # fmt: skip
    late = replace(cow, rule="list", clause="Task 2: at the tail", hint="append it", cases=("append/b",))
    failing = [student(name, score=4, failing=("a", "b")) for name in ("ann", "bob", "cem")]
    causes = [(late, cow), (replace(cow, hint="copy block 7"),), (late, cow)]
    records = [replace(record, causes=own) for record, own in zip(failing, causes, strict=True)]
    page = class_page([*records, student("dora", score=6)], View())
    first, second = shared(page)

    places = [page.index(f'id="{heading}"') for heading in ("causes", "points", "rules", "cases", "students")]
    assert places == sorted(places)
    assert first.startswith("3 of 4 about 2 points each, 1.8 in the class mean cow append_kv Task 4: it is copied")
    assert "hint: copy block 7" in first
    assert "an example: bob" in first  # his first cause, and the only one
    assert second.startswith("2 of 4 about 3 points each, 1.5 in the class mean list append_kv")
    keys = re.findall(r'data-fails="([^"]*)"', page)
    assert [key.split()[:2] for key in keys[:3]] == [["1", "0"], ["0", "2"], ["1", "0"]]


def test_a_build_that_fails_is_a_cause_that_costs_all_points() -> None:
    """With the hint of the compiler's message, because nothing was called."""
    broken = Cause(rule="compile", verdict=Verdict.COMPILE_ERROR, sentence="expected ;", hint="A ; is missing.")
    missing = Finding(rule="compile", verdict=Verdict.COMPILE_ERROR, message="expected ;", kind="compiler")
    record = replace(record_of(verdict=Verdict.COMPILE_ERROR, score=0), causes=(broken,), findings=(missing,))
    (only,) = shared(class_page([record], View()))

    assert only.startswith("1 of 1 about 6 points each, 6.0 in the class mean compile")


def test_students_do_not_see_causes_of_hidden_cases() -> None:
    """Nobody learns from the page of the class what his own report does not show."""
    cause = Cause(rule="cow", verdict=Verdict.WRONG_ANSWER, sentence="block 1 is 0", cases=("append/h",))
    hidden = replace(student("ann", score=4, failing=("h",)), causes=(cause,))

    assert len(shared(class_page([hidden], View(instructor=True)))) == 1
    assert shared(class_page([hidden], View())) == []


def test_students_do_not_learn_the_names_of_hidden_cases() -> None:
    """Their titles, as everywhere."""
    student_page, instructor_page = (class_page(CLASS, View(instructor=who)) for who in (False, True))

    assert "append/h" in instructor_page
    assert "append/h" not in student_page
    assert "a hidden case" in said(student_page)


def test_every_report_has_a_file_of_its_own() -> None:
    """On systems that take A for a, too; no name leads out of the folder or is that of the page itself."""
    names = ["a", "A", "../../a", "x/a", "index", "", "é", "a b.c", "con/../a-2", "a" * 300]
    files = page_names(names)

    assert len({file.casefold() for file in files}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,70}\.html", file) for file in files)
    assert "index.html" not in files
    assert "a_b_c.html" in files


def test_no_report_comes_to_a_place_where_another_students_was() -> None:
    """Whoever was there before or is there no more: an old link never leads to the report of somebody else."""
    before = dict(zip(names := ["李雷", "韩梅梅", "Zoë", "Zoé", "Index", "ann"], page_names(names), strict=True))
    after = dict(zip(left := ["韩梅梅", "Zoé", "index", "bob"], page_names(left), strict=True))

    assert all(before.get(name, page) == page for name, page in after.items())
    assert not {before[name] for name in before if name not in after} & set(after.values())


def test_an_empty_class_has_a_page() -> None:
    """Nothing to divide by."""
    reads_page(class_page([], View()), View())


def test_a_class_of_attackers_has_a_whole_page() -> None:
    """Every text of every record is an attack."""
    page = class_page([filled(text) for text in INJECTIONS.values()], View(instructor=True))

    reads_page(page, View())
    assert len(page) < 3_000_000


def test_no_record_is_held_while_others_are_read() -> None:
    """A class of thousands is read one by one."""

    def held() -> int:
        found = (one for one in gc.get_objects() if type(one) is Record and one.lab == "read one by one")
        return sum(bool(one.outcomes) for one in found)

    def records() -> Iterator[Record]:
        for number in range(20):
            yield replace(student(f"{number}", score=4, failing=("a", "b")), lab="read one by one")
            assert held() <= 2

    assert "20 submissions" in class_page(records(), View())
