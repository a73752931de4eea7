"""Whatever happened before: a state can be taken over, and a refused call leaves it as it was."""

from __future__ import annotations

from random import Random

import pytest

from grader.labs.scheduler.oracle import SchedulerOracle
from grader.labs.scheduler.traces import generate
from reference.operation import Argument, Operation
from reference.oracle import CannotGoOn
from reference.tests.states import assert_goes_on_from_every_state, assert_refusals_change_nothing

_SEEDS = range(150)
_LENGTH = 60


@pytest.mark.parametrize("part", range(6))
def test_an_engine_goes_on_from_a_state_as_if_it_had_been_there(part: int) -> None:
    """Whatever the state, between `schedule` and `update` too."""
    for seed in _SEEDS[part::6]:
        assert_goes_on_from_every_state(SchedulerOracle, generate(Random(seed), _LENGTH))


def test_a_refused_call_changes_nothing() -> None:
    """Only the calls on the manager, which are those of the last operation, are gone."""
    calls = frozenset({"calls"})
    traces = (generate(Random(seed), _LENGTH) for seed in _SEEDS)
    refusals = [assert_refusals_change_nothing(SchedulerOracle, trace, calls) for trace in traces]

    assert sum(refusals) > 100


def test_every_kind_of_call_is_accepted_and_refused() -> None:
    """The random traces have them all, but the functions of Task 5 and constructors that refuse."""
    answers = set()
    for seed in _SEEDS:
        engine = SchedulerOracle()
        for operation in generate(Random(seed), _LENGTH):
            answers.add((operation.name, engine.apply(operation).refused))

    assert {name for name, refused in answers if not refused} == {
        "scheduler", "add", "schedule", "update", "abort", "reset", "simulate"
    }  # fmt: skip
    assert {name for name, refused in answers if refused} >= {"add", "abort"}


@pytest.mark.parametrize("call", [("schedule", ()), ("reset", (True,))])
def test_an_update_comes_after_each_schedule(call: tuple[str, tuple[Argument, ...]]) -> None:
    """The handout says nothing of other orders; from a state of a program it goes on all the same."""
    engine = SchedulerOracle()
    for name, arguments in (
        ("scheduler", (8, 1, True, 2, 8, 2, "fcfs", False)),
        ("add", ("a", (1, 2), 1, 1, 0)),
        ("schedule", ()),
    ):
        engine.apply(Operation(name=name, arguments=arguments))
    other = SchedulerOracle()
    other.restore(engine.state())
    other.apply(Operation(name=call[0], arguments=call[1]))

    with pytest.raises(CannotGoOn, match=r"update|reset"):
        engine.apply(Operation(name=call[0], arguments=call[1]))
    engine.apply(Operation(name="update"))
    engine.apply(Operation(name=call[0], arguments=call[1]))
