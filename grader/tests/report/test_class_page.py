"""The web page of a class, as text: who is in it, what fails most, what is suspect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.core.record import Record, Submission
from grader.core.verdict import Feedback, Verdict, Visibility
from grader.report.class_page import class_page, page_names
from grader.report.document import View
from grader.tests.report.test_html import said
from grader.tests.support.handmade import outcome, record_of
from grader.tests.support.injected import INJECTIONS, filled
from grader.tests.support.web_reader import reads_page


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


def test_students_do_not_learn_the_names_of_hidden_cases() -> None:
    """Their titles, as everywhere."""
    student_page, instructor_page = (class_page(CLASS, View(instructor=who)) for who in (False, True))

    assert "append/h" in instructor_page
    assert "append/h" not in student_page
    assert "a hidden case" in said(student_page)


def test_no_report_comes_to_a_place_where_another_students_was() -> None:
    """Whoever was there before or is there no more: an old link never leads to the report of somebody else."""
    before = dict(zip(names := ["李雷", "韩梅梅", "Zoë", "Zoé", "Index", "ann"], page_names(names), strict=True))
    after = dict(zip(left := ["韩梅梅", "Zoé", "index", "bob"], page_names(left), strict=True))

    assert all(before.get(name, page) == page for name, page in after.items())
    assert not {before[name] for name in before if name not in after} & set(after.values())


def test_a_class_of_attackers_has_a_whole_page() -> None:
    """Every text of every record is an attack."""
    page = class_page([filled(text) for text in INJECTIONS.values()], View(instructor=True))

    reads_page(page, View())
    assert len(page) < 3_000_000


@pytest.mark.parametrize("feedback", [Feedback.RULES, Feedback.SCORE])
def test_a_page_that_may_show_no_cause_does_not_say_that_nothing_was_run(feedback: Feedback) -> None:
    """What students may see is less than what happened."""
    page = class_page([replace(record, feedback=feedback) for record in CLASS], View())
    text = said(page)

    assert page.count('data-sort="0">–</td>') == len(CLASS)  # the number of failing cases is withheld, not 0
    assert "could not be run 0 " in text
    assert "Nobody fails" not in text
