"""The line of a fault in Python: what a report says of it, and what is reported if lines do not tell."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Stage
from grader.labs.scheduler.lab import lab
from grader.tests.support.command import ROOT

RIGHT = (ROOT / "submissions/scheduler/accepted/plain/scheduler.py").read_text(encoding="utf-8")


@cache
def cases() -> tuple[Case, ...]:
    """All of the lab but random traces."""
    everything = select_cases(lab(), seed=lab().rubric.seed).cases
    return tuple(case for case in everything if case.generated is None)


def graded(folder: Path, *changes: tuple[str, str]) -> Record:
    """The record of the right program with these pieces replaced."""
    text = RIGHT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "scheduler.py").write_text(text, encoding="utf-8")
    return pipeline.grade(folder, lab(), cases())


def line_of(record: Record, piece: str) -> int:
    """The number of the line of the submission that has this piece."""
    (number,) = (number for number, line in enumerate(record.submission.source, 1) if piece in line)
    return number


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("return self.running[-1]", "return self.running[0]", "return self.running[0]"),
        ("v.num_computed_tokens = 0", "v.num_computed_tokens = 1", "v.num_computed_tokens = 1"),
        ("if need > self.kv", "if need >= self.kv", "if need >= self.kv"),
    ],
    ids=["the helper that chooses wrongly", "the store of the wrong value", "the condition before a break"],
)
def test_the_line_that_calls_that_go_wrong_have_in_common_is_reported(
    tmp_path: Path, old: str, new: str, where: str
) -> None:
    """With the calls that were counted; its line is the first of the cause, and shown in the excerpt."""
    record = graded(tmp_path, (old, new))

    assert record.first_cause is not None
    assert abs(record.first_cause.lines[0].line - line_of(record, where)) <= 2
    assert re.search(r"In .* calls? that went wrong, and in .* that were right", record.first_cause.hint)


def test_the_line_that_raised_is_reported_however_deep_the_calls_are(tmp_path: Path) -> None:
    """Of a long stack the outer calls are left out."""
    deep = "def deep(left):\n    if not left:\n        raise KeyError(left)\n    return deep(left - 1)\n\n\n"
    stub = f"{deep}def page_size_bytes(*_):\n    return deep(60)\n\n\ndef another("
    record = graded(tmp_path, ("def page_size_bytes(", stub))
    (cause,) = (cause for cause in record.causes if "KeyError" in cause.sentence + cause.hint)

    assert cause.lines[0].line == line_of(record, "raise KeyError(left)")


def test_of_several_mistakes_no_line_is_said_to_be_common(tmp_path: Path) -> None:
    """The line of the call itself is reported."""
    values = ("page_size_bytes", "available_kv_memory", "get_num_blocks", "max_concurrency", "estimate_max_model_len")
    stubs = [(f"def {name}(", f"def {name}(*_):\n    return -7\n\n\ndef another_{name}(") for name in values]
    record = graded(tmp_path, *stubs)

    assert len(record.causes) >= len(values)
    assert "calls that went wrong" not in "".join(cause.hint for cause in record.causes)
    assert [record.submission.source[cause.lines[0].line - 1].strip() for cause in record.causes[:1]] == ["return -7"]


def test_a_call_that_is_not_written_yet_costs_the_same_however_it_says_so(tmp_path: Path) -> None:
    """The cases go on after it: what other calls do still earns points."""
    stub = "    def update(self, samples):\n        {}\n\n    def old_update(self, samples):\n"
    raises, returns = (
        graded(tmp_path, ("    def update(self, samples):\n", stub.format(body)))
        for body in ("raise NotImplementedError", "return None")
    )

    assert raises.score == returns.score
    assert 55 <= (raises.score or 0) <= 70
    assert {stage.call for stage in raises.stages if stage.stage is Stage.NOT_YET} == {"update"}
    assert "raised NotImplementedError" in " ".join(finding.message for finding in raises.findings)
