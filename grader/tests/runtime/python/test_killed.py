"""A process that something outside the program ends costs no point: the program has a second try."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.labs import open_lab
from grader.runtime.python import play, process, runtime
from grader.system.process import Completed
from grader.tests.support.command import ROOT

_SAMPLE = ROOT / "submissions" / "scheduler" / "accepted" / "plain"


@pytest.mark.parametrize("number", [0, 1], ids=["the check", "the cases"])
def test_a_harness_that_is_killed_is_no_mistake(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the kernel, or by an administrator."""
    runs = count()

    def killed(*arguments: object, **options: object) -> Completed:
        done = process.run(*arguments, **options)  # type: ignore[arg-type]  # those of the grader
        if next(runs) != number:
            return done
        (sent,) = done.channels
        return replace(done, exit_code=None, signal=9, channels=(sent[: len(sent) // 2 if number else 0],))

    for module in (play, runtime):
        monkeypatch.setattr(module, "run", killed)
    lab = open_lab("scheduler")
    cases = select_cases(lab, seed=1, pattern="add/*").cases
    record = pipeline.grade(_SAMPLE, lab, cases)

    assert (record.verdict, record.score) == ("accepted", record.max_score)
    assert next(runs) >= 4
