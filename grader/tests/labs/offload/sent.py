"""What a program sends in the cases of the lab: the logs of its device, before anything is worked out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from grader import pipeline
from grader.assignment.case_files import load_cases
from grader.core.case import Case
from grader.core.record import Record
from grader.labs import open_lab
from grader.labs.offload.derive import derive
from grader.labs.offload.device import ModelSizes
from grader.labs.offload.replay import Replay
from grader.runtime.python.play import Derived
from grader.runtime.python.runtime import PythonRuntime
from grader.tests.support.command import ROOT
from reference.operation import Operation

SAMPLES = ROOT / "submissions" / "offload"

Sent = tuple[Sequence[Operation], Sequence[Mapping[str, Any]]]
"""The operations of a case, and the records that a program sent."""


@cache
def cases() -> tuple[Case, ...]:
    """All cases of the lab."""
    lab = open_lab("offload")
    return tuple(load_cases(lab.cases, lab.grammar, seed=lab.rubric.seed))


def graded(path: Path, chosen: Sequence[Case] = ()) -> tuple[Record, list[Sent]]:
    """Grade a program on some cases, or on all. Return the record, and what it sent in each case and random trace."""
    lab, sent = open_lab("offload"), list[Sent]()

    def spy(operations: Sequence[Operation], records: Sequence[Mapping[str, Any]]) -> Derived:
        sent.append((operations, records))
        return derive(operations, records)

    assert isinstance(lab.runtime, PythonRuntime)
    spied = replace(lab, runtime=replace(lab.runtime, derive=spy))
    return pipeline.grade(path, spied, chosen or cases()), sent


def replay_of(operation: Operation) -> Replay:
    """The grader's device for a case of an engine or a runner, which this operation begins."""
    return Replay(ModelSizes(*operation.numbers))
