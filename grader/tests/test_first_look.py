"""What is soon known of a submission: the cause that the whole grading names first, and nothing of points."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from grader import pipeline
from grader.assignment import case_files
from grader.assignment.case_files import select_cases
from grader.assignment.lab import Lab
from grader.assignment.source import collect
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Feedback, Visibility
from grader.labs.paged_kv.lab import lab as paged_kv
from grader.report.document import View
from grader.report.start_here import first_look as page_of
from grader.runtime.protocol import DEFAULTS
from grader.system.budget import Budget
from grader.tests.support.programs import right
from grader.tests.support.toy_lab import WRONG, lab


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
    return pipeline.first_look(read, looked_at, selected, DEFAULTS, budget=Budget())


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
