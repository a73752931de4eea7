"""The lab of the counter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from grader.assignment.lab import Lab
from grader.core.case import JsonValue, Number, Signature
from grader.core.picture import PanelShape, StatePart
from grader.core.rubric import Facet
from grader.labs.lab_files import load_lab
from grader.tests.support.counter.model import Counter
from grader.tests.support.counter.runtime import ShellRuntime
from reference.operation import Argument, Operation

_HERE = Path(__file__).parent
_CASES = _HERE / "cases"
_NUMBER = Number("number", 0, 1000)


def _are_numbers(value: Argument) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, int) and one in _NUMBER for one in value)


_OPERATIONS = {
    "start": Signature(arguments=(), replies=("0",), opens=True),
    "add": Signature(arguments=(_NUMBER,), replies=("0",), task="Part 1"),
    "add_all": Signature(
        arguments=(JsonValue("numbers", "a list of numbers", _are_numbers),),
        returns=Number("total", 0, 10_000),
        task="Part 1",
    ),
    "take": Signature(arguments=(_NUMBER,), replies=("0",), refusals=("-1",), task="Part 2"),
    "stop": Signature(arguments=(), replies=("0",), closes=True),
}


@cache
def lab() -> Lab:
    """Return the lab."""
    return load_lab(
        name="counter",
        title="A counter in shell",
        cases=_CASES,
        calls=_OPERATIONS,
        facets=(Facet("total"),),
        oracle=f"{Counter.__module__}:Counter",
        model=Counter,
        runtime=ShellRuntime(),
        example="add 5 -> 0",
        complete=_complete,
        code=(Path(__file__),),
        picture=_picture,
        reproduce=_reproduce,
        reproduce_command="sh repro.sh",
        starter={"counter.sh": _HERE / "starter.sh"},
    )


def _picture(state: dict[str, int]) -> Iterator[StatePart]:
    yield StatePart(title="counter", shape=PanelShape.VALUES, lines={(0, "total"): (str(state["total"]),)})


def _complete(_: dict[str, int], operations: list[Operation]) -> Iterator[tuple[str, str]]:
    operations.insert(0, Operation(name="start", implicit=True))
    operations.append(Operation(name="stop", implicit=True))
    yield from ()


def _reproduce(case: object, operation: int) -> str:
    return f". ./counter.sh  # {case}, operation {operation}\n"
