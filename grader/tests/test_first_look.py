"""What is soon known of a submission: the cause that the whole grading names first, and nothing of points."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.assignment.case_selection import select_cases
from grader.assignment.lab import Lab
from grader.assignment.source import collect
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Feedback, Visibility
from grader.labs.paged_kv.lab import lab as paged_kv
from grader.report.document import View
from grader.report.first_look import first_look as page_of
from grader.runtime.protocol import DEFAULTS
from grader.system.budget import Budget
from grader.tests.support.programs import right
from grader.tests.support.toy_lab import RIGHT, WRONG, edited, graded, lab


def cases() -> tuple[Case, ...]:
    """All cases of the shelf."""
    return select_cases(lab(), seed=1).cases


def first_look(
    folder: Path, source: str, *, of: Lab | None = None, played: Sequence[Case] | None = None
) -> Record | None:
    """The first look at this source; of the shelf and all of its cases where nothing else is said."""
    looked_at = of or lab()
    (folder / looked_at.source_name).write_text(source, encoding="utf-8")
    read = collect(folder, looked_at.source_name, rule="")
    selected = cases() if played is None else played
    return pipeline.first_look(folder, looked_at, selected, DEFAULTS, source=read, budget=Budget())


@pytest.mark.parametrize(
    "source",
    [
        WRONG,
        edited(("return self.names.get(word)", "return self.names[word]")),
        edited(("return self.names.get(word)", "import os; os._exit(3)")),
        edited(("return self.names.get(word)", "while True: pass")),
        edited(("box.users = 1", "box.users = 1 if box.users else 2")),
        edited(("class Shelf:", "class Shelf:\n    def __new__(cls, *_): raise MemoryError")),
    ],
    ids=["state", "exception", "exit", "hang", "count", "all"],
)
def test_the_first_cause_is_that_of_the_whole_grading(tmp_path: Path, source: str) -> None:
    """With its line, and a case that it explains."""
    soon, whole = first_look(tmp_path, source), graded(tmp_path, source)
    assert soon is not None
    assert soon.first_cause is not None
    assert whole.first_cause is not None

    assert (soon.complete, soon.score) == (False, None)
    for name in ("rule", "sentence", "hint", "clause", "operation"):
        assert getattr(soon.first_cause, name) == getattr(whole.first_cause, name)
    assert soon.first_cause.lines == whole.first_cause.lines
    assert soon.first_cause.cases[0] in whole.first_cause.cases  # which may begin with a random trace that is shorter


def test_nothing_goes_wrong_in_a_right_program(tmp_path: Path) -> None:
    """Only public cases with given operations were played, and the page says so."""
    record = first_look(tmp_path, RIGHT)
    public = [case for case in cases() if case.visibility is Visibility.PUBLIC and case.generated is None]
    assert record is not None

    assert (record.causes, record.findings) == ((), ())
    assert [outcome.case for outcome in record.outcomes] == [case.name for case in public]
    assert f"nothing went wrong in {len(public)} public cases. No score yet: hidden ones still run." in page(record)


def page(record: Record, view: View | None = None) -> str:
    """The page as one line."""
    return " ".join(str(page_of(record, view or View(), ["hidden ones"])).split())


def test_its_page_names_the_case_and_no_points(tmp_path: Path) -> None:
    """Neither of the whole nor of a cause."""
    record = first_look(tmp_path, WRONG)
    assert record is not None
    text = page(record)

    assert "share/given_back_in_order" in text
    assert "boxes go to the end of the queue" in text
    assert re.findall(r"\bpoints?\b|\d+/\d+|Costs", text) == []


def test_its_page_shows_no_more_than_the_policy_allows(tmp_path: Path) -> None:
    """Where a student sees only the score, no cause comes before it."""
    record = first_look(tmp_path, WRONG)
    assert record is not None
    object.__setattr__(record, "feedback", Feedback.SCORE)

    assert "giv" not in page(record).replace(record.submission.name, "")
    assert "share/given_back_in_order" in page(record, View(instructor=True))


def test_it_is_left_out_where_it_would_show_all_or_nothing(tmp_path: Path) -> None:
    """Without random traces and hidden cases, of a file that cannot be built, and in a language of slow starts."""
    soon = [case for case in cases() if case.visibility is Visibility.PUBLIC and case.generated is None]
    of_c = case_files.load_folder(paged_kv().cases, paged_kv().grammar, seed=1, pattern="append/*")

    assert first_look(tmp_path, WRONG, played=soon) is None
    assert first_look(tmp_path, "x = (") is None
    assert first_look(tmp_path, right(), of=paged_kv(), played=of_c) is None
