"""What a lab derives of the records that a program sent is what is judged, in cases and in random traces."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.core.case import Case, Expected, Generated
from grader.core.rubric import Facet
from grader.core.verdict import Verdict, Visibility
from grader.judge.plain_judge import _facet_differences
from grader.runtime.python.play import _MOST_DERIVING, _Deriving
from grader.runtime.python.table import Derived, DerivedStep
from grader.system.budget import Budget
from reference.operation import Operation, Trace
from reference.oracle import Plain, text_of

_OPERATIONS = (Operation(name="add", arguments=(1,)), Operation(name="add", arguments=(2,)))


def _sums(_: Sequence[Operation], records: Sequence[Mapping[str, Any]]) -> Derived:
    """The state is the sum of what was logged so far; a log of texts ends the case."""
    steps, total = list[DerivedStep](), 0
    for record in records:
        if not isinstance(record.get("state"), int):
            return Derived(steps, "its log is no number", (7,))
        total += record["state"]
        steps.append(DerivedStep({"reply": record["reply"], "state": {"total": total}}, {"total": (3, 5)}))
    return Derived(steps)


def _case(generated: Generated | None = None) -> Case:
    return Case(
        name="sums/two",
        path=Path("two.toml"),
        title="two",
        handout=(),
        rule="sums",
        visibility=Visibility.PUBLIC,
        weight=1,
        trace=Trace(operations=_OPERATIONS),
        expected=Expected.of(()),
        generated=generated,
    )


def _record(state: Plain) -> dict[str, Plain]:
    return {"reply": {"returned": None}, "state": state}


def test_the_records_of_a_case_are_derived() -> None:
    """With the lines of each step."""
    steps, ending = _Deriving(_sums, "sums.py", Budget()).case(
        _case(), [text_of(_record(one)).encode() for one in (4, 5)]
    )

    assert ending is None
    assert [json.loads(step.record)["state"] for step in steps] == [{"total": 4}, {"total": 9}]
    assert steps[0].lines == {"total": (3, 5)}


def test_what_cannot_be_derived_ends_the_case() -> None:
    """At its operation, with the reason and the line; no bytes raise anything."""
    steps, ending = _Deriving(_sums, "sums.py", Budget()).case(_case(), [text_of(_record(4)).encode(), b"\xff["])

    assert len(steps) == 1
    assert ending is not None
    assert ending.verdict is Verdict.RUN_TIME_ERROR
    assert ending.sentence == "add cannot be judged: its log is no number"
    assert [str(line) for line in ending.lines] == ["sums.py:7"]


def test_a_random_trace_has_the_digest_of_what_is_derived() -> None:
    """Every state counts; a trace that cannot be judged has no digest, and neither has what is no trace."""
    generated = Generated(seeds=range(1, 2), length=2, traces=(_OPERATIONS,))
    derived = [text_of(_record({"total": total})).encode() for total in (4, 9)]
    deriving, case = _Deriving(_sums, "sums.py", Budget()), _case(generated)

    assert deriving.trace(case, 0, json.dumps([_record(4), _record(5)]).encode()) == Generated.digest(derived, 1)
    assert deriving.trace(case, 0, json.dumps([_record(4), _record("x")]).encode()) == b""
    assert deriving.trace(case, 0, b"[1, {") == b""
    assert deriving.trace(case, 3, b"[]") == b""


def test_the_budget_of_a_submission_does_not_pay() -> None:
    """What is left of it is the same behind a case that takes long to derive."""

    def slowly(operations: Sequence[Operation], records: Sequence[Mapping[str, Any]]) -> Derived:
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass
        return _sums(operations, records)

    budget = Budget()
    before = budget.cpu
    deriving = _Deriving(slowly, "sums.py", budget)
    deriving.case(_case(), [text_of(_record(4)).encode()])

    assert deriving.spent >= 0.2
    assert before - budget.cpu < 0.1


def test_deriving_ends_when_its_time_is_used_up() -> None:
    """Other cases then say nothing about themselves."""
    _, ending = _Deriving(_sums, "sums.py", Budget(), spent=2 * _MOST_DERIVING).case(_case(), [b"{}"])

    assert ending is not None
    assert ending.verdict is Verdict.TIME_LIMIT_EXCEEDED


def test_a_facet_of_sentences_says_itself_what_is_wrong() -> None:
    """Its first sentence, and how many others there are."""
    facet = Facet("races", sentences=True)
    (difference,) = _facet_differences(facet, ("races",), {"races": []}, {"races": ["a before b", "c before d"]})

    assert difference.seen == difference.wanted == "races: a before b (and 1 more)"
