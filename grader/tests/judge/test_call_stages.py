"""A file that grows as students write it: what works, what is in work, what comes next."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from grader.assignment import case_files
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Stage
from grader.labs.paged_kv.lab import lab
from grader.report import FORMATS
from grader.report.document import View
from grader.tests.support.programs import graded_text, right, unwritten

CALLS = ("llm_init", "create_sequence", "free_sequence", "fork_sequence", "append_kv", "llm_destroy")
REFUSAL = {call: "-1" if call in ("free_sequence", "append_kv", "llm_destroy") else "NULL" for call in CALLS}
STARTER = lab().starter["llm_memory.c"].read_text(encoding="utf-8")


@cache
def all_cases() -> tuple[Case, ...]:
    """All of the lab."""
    return tuple(case_files.load_folder(lab().cases, lab().grammar, seed=lab().rubric.seed))


@cache
def cases() -> tuple[Case, ...]:
    """The first of each task and rule."""
    return tuple({(case.name.partition("/")[0], case.rule): case for case in reversed(all_cases())}.values())


def without(*calls: str, text: str = "") -> str:
    """The right program, or this one, in which these calls are not written yet."""
    for call in calls:
        text = unwritten(call, refusal=REFUSAL[call], text=text)
    return text or right()


def stage_words(record: Record) -> dict[str, Stage]:
    """How far each call is."""
    return {one.call: one.stage for one in record.stages}


def start(record: Record) -> str:
    """The call with which the report begins."""
    assert record.first_cause is not None
    return record.first_cause.call


def test_a_call_that_says_that_it_did_its_work_is_not_written_yet() -> None:
    """Its body does nothing but return, whatever it returns."""
    source = unwritten("llm_destroy", refusal="0", text=unwritten("append_kv", refusal="0"))
    stages = stage_words(graded_text(source, *cases()))

    assert {call for call, stage in stages.items() if stage is Stage.NOT_YET} == {"append_kv", "llm_destroy"}


@pytest.mark.parametrize("count", range(len(CALLS)))
def test_the_first_call_that_is_not_written_comes_next(count: int) -> None:
    """What is written works, and nothing is asked of what comes behind the next call."""
    record = graded_text(STARTER, *all_cases()) if count == 0 else graded_text(without(*CALLS[count:]), *cases())
    report = FORMATS["text"](record, View())

    assert start(record) == CALLS[count]
    assert record.first_cause is not None
    assert "Start here: what comes next" in report
    assert f"{CALLS[count]} is not written yet: its body does nothing but return." in " ".join(report.split())
    assert ": unfinished, " in report
    assert "Other failures" not in report
    for name in ("gnu", "annotations"):
        assert len(re.findall(": error: |::error", FORMATS[name](record, View()))) == 1
    runs = json.loads(FORMATS["sarif"](record, View()))["runs"]
    assert [one["level"] for run in runs for one in run["results"]] == ["error"]
    assert ("Every file begins like this. Write llm_init first" in " ".join(report.split())) == (count == 0)
    assert ("Every file begins like this" in FORMATS["html"](record, View())) == (count == 0)
    for place, (call, stage) in enumerate(stage_words(record).items()):
        assert call == CALLS[place]
        assert stage is (Stage.WORKS if place < count else Stage.NOT_YET)
        assert any(call in line and stage.value in line for line in report.splitlines())
