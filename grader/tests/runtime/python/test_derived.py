"""What a lab derives of the records that a program sent is what is judged, in cases and in random traces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.core.case import Case, Expected, Generated
from grader.core.verdict import Verdict, Visibility
from grader.runtime.python.play import _MOST_DERIVING, Derived, DerivedStep, _Deriving
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


def test_a_random_trace_has_the_digest_of_what_is_derived() -> None:
    """Every state counts; a trace that cannot be judged has no digest, and neither has what is no trace."""
    generated = Generated(seeds=range(1, 2), length=2, traces=(_OPERATIONS,))
    derived = [text_of(_record({"total": total})).encode() for total in (4, 9)]
    deriving, case = _Deriving(_sums, "sums.py", Budget()), _case(generated)

    assert deriving.trace(case, 0, json.dumps([_record(4), _record(5)]).encode()) == Generated.digest(derived, 1)
    assert deriving.trace(case, 0, json.dumps([_record(4), _record("x")]).encode()) == b""
    assert deriving.trace(case, 0, b"[1, {") == b""
    assert deriving.trace(case, 3, b"[]") == b""


def test_deriving_ends_when_its_time_is_used_up() -> None:
    """Other cases then say nothing about themselves."""
    _, ending = _Deriving(_sums, "sums.py", Budget(), spent=2 * _MOST_DERIVING).case(_case(), [b"{}"])

    assert ending is not None
    assert ending.verdict is Verdict.TIME_LIMIT_EXCEEDED
