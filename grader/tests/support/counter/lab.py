"""The lab of the counter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from grader.assignment import rubric
from grader.assignment.lab import Clue, Lab
from grader.core.case import Grammar, JsonValue, Number, Signature
from grader.core.picture import Part
from grader.core.verdict import Judged
from grader.tests.support.counter.model import Counter
from grader.tests.support.counter.runtime import ShellRuntime
from reference.operation import Argument, Operation, Trace

__all__ = ["lab"]

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
    "take": Signature(arguments=(_NUMBER,), replies=("0",), refusal="-1", task="Part 2"),
    "stop": Signature(arguments=(), replies=("0",), closes=True),
}


@cache
def lab() -> Lab:
    """Return the lab."""
    rules = rubric.load(_CASES / "rubric.toml", frozenset({"reply", "total"}), _OPERATIONS)
    return Lab(
        name="counter",
        title="A counter in shell",
        handout="the tests",
        cases=_CASES,
        grammar=Grammar(
            operations=_OPERATIONS,
            settings={},
            example="add 5 -> 0",
            most_targets=1,
            clauses=rubric.load_clauses(_CASES / "handout.toml"),
            rules=tuple(rule.id for rule in rules.rules if rule.judged is Judged.CASES),
            complete=_complete,
            model=Counter,
        ),
        rubric=rules,
        model=Counter,
        runtime=ShellRuntime(),
        clues=(Clue(rule="below", hint="take must refuse what is more than the total.", calls=("take",)),),
        situations=lambda trace: (frozenset(),) * len(trace.operations),
        situation_words={},
        is_odd=_is_never_odd,
        notation={},
        describe_poke=str,
        draw=lambda state: [f"total = {state['total']}"],
        picture=lambda _: list[Part](),
        reproduce=_reproduce,
        reproduce_command="sh repro.sh",
        labels_hold=lambda: True,
        starter={"counter.sh": _HERE / "starter.sh"},
    )


def _complete(_: dict[str, int], operations: list[Operation]) -> Iterator[tuple[str, str]]:
    operations.insert(0, Operation(name="start", implicit=True))
    operations.append(Operation(name="stop", implicit=True))
    yield from ()


def _is_never_odd(_: Trace) -> bool:
    return False


def _reproduce(case: object, operation: int) -> str:
    return f". ./counter.sh  # {case}, operation {operation}\n"
