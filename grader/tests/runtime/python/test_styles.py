"""Right programs in styles that the handouts allow: none of them costs a point."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.labs import open_lab
from grader.tests.support.command import ROOT

_STATUS = "from enum import StrEnum\n\n\nclass Status(StrEnum):\n" + "".join(
    f'    {name} = "{name}"\n' for name in ("WAITING", "RUNNING", "PREEMPTED", "FINISHED")
)
_COUNTED = """
def _count(self):
    return len(self.waiting) + len(self.running)


Scheduler.__len__ = _count
"""
_NAMED = "from typing import NamedTuple\n\n\nclass {}(NamedTuple):\n    {}: object\n    {}: object\n\n\n"
STYLES = {
    "an enumeration, an empty scheduler that counts as False, more in a result": (
        "scheduler/accepted/plain",
        [
            ('v.status = "PREEMPTED"', "v.status = Status.PREEMPTED"),
            ('request.status = "WAITING"', "request.status = Status.WAITING"),
            ('r.status = "RUNNING"', "r.status = Status.RUNNING"),
            ('"total": sum(scheduled.values())}', '"requests": list(self.running), "total": sum(scheduled.values())}'),
        ],
        _STATUS + _COUNTED,
    ),
    "tuples, with and without names": (
        "hybrid/accepted/plain",
        [
            ("            return [[] for _ in self.groups], 0\n", "            return ((),) * len(self.groups), 0\n"),
            (
                "[self.pool.null_block] * start + found[g][start:n]",
                "(self.pool.null_block,) * start + tuple(found[g][start:n])",
            ),
            ("return hits, length", "return tuple(hits), length"),
            ("            hits = [[] for _ in self.groups]\n", "            hits = ((),) * len(self.groups)\n"),
            ("hits = [list(h) for h in new_computed_blocks]", "hits = new_computed_blocks"),
            ("table[:0] = hit", "table[:] = hit + tuple(table)"),
            ("(last_access, prefix_length)\n", "Cached(last_access, prefix_length)\n"),
        ],
        _NAMED.format("Cached", "last_access", "prefix_length"),
    ),
    "two ranges with names": (
        "offload/accepted/while_loops",
        [("return k, v\n", "return KV(k, v)\n")],
        _NAMED.format("KV", "k", "v"),
    ),
    "an error of two kinds, a variable of the environment": (
        "block_pool/accepted/plain_text",
        [('raise ValueError(f"cannot get', 'raise OutOfBlocks(f"cannot get')],
        'import os\n\n\nclass OutOfBlocks(MemoryError, ValueError):\n    """Too few."""\n\n\nos.environ["X"] = "0"\n',
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_style_costs_nothing(style: str, tmp_path: Path) -> None:
    """In no case that a person wrote."""
    sample, changes, more = STYLES[style]
    lab = open_lab(sample.partition("/")[0])
    text = (ROOT / "submissions" / sample / lab.source_name).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (tmp_path / lab.source_name).write_text(f"{text}\n\n{more}", encoding="utf-8")
    cases = [case for case in select_cases(lab, seed=lab.rubric.seed).cases if case.generated is None]
    record = pipeline.grade(tmp_path, lab, tuple(cases))

    assert record.score == record.max_score, record.first_cause


def test_a_choice_of_cases_may_need_nothing_that_is_missing(tmp_path: Path) -> None:
    """A student writes one task after the other, and plays its cases."""
    lab = open_lab("scheduler")
    text = (ROOT / "submissions/scheduler/accepted/plain/scheduler.py").read_text(encoding="utf-8")
    (tmp_path / "scheduler.py").write_text(text.replace("def simulate(", "def simulated("), encoding="utf-8")
    record = pipeline.grade(tmp_path, lab, select_cases(lab, seed=1, pattern="memory/*").cases)

    assert (record.verdict, record.score) == ("accepted", record.max_score)
