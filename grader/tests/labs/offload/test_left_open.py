"""What the storage does not have, and what the handout leaves open: nothing is right or wrong there."""

from __future__ import annotations

from random import Random

import pytest

from grader.labs.offload.oracle import Offload
from grader.labs.offload.traces import explore
from reference.operation import Argument, Operation
from reference.oracle import CannotGoOn

_ENGINE = Operation(name="engine", arguments=(2, 3, 4, 2, 8))


def _apply(name: str, *arguments: Argument) -> bool:
    """Return whether a new engine of two layers, three blocks and two buffers refuses the call."""
    offload = Offload()
    offload.apply(_ENGINE)
    return offload.apply(Operation(name=name, arguments=arguments)).refused


@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        ("offload", (2, 1, (0,)), "no layer 2: the layers are 0 to 1"),
        ("offload", (0, 1, (3,)), "no block 3: the blocks are 0 to 2"),
        ("load", (2, 0, (0,), 1), "no buffer 2: the buffers are 0 to 1"),
        ("load", (0, -1, (0,), 1), "no layer -1"),
        ("use", (2, 1), "no buffer 2"),
        ("store", (2, 0), "no layer 2"),
        ("decode_rows", (2, 0, 1), "no layer 2"),
        ("flush", (3, 0), "no block 3"),
    ],
)
def test_an_accepted_call_with_what_is_not_there_cannot_be_judged(
    name: str, arguments: tuple[Argument, ...], missing: str
) -> None:
    """No layer, buffer or block beyond those of the engine, with a sentence that says which there are."""
    with pytest.raises(CannotGoOn, match=missing):
        _apply(name, *arguments)


def test_a_call_that_is_refused_may_name_it() -> None:
    """It is right to refuse it for what the handout names."""
    assert _apply("load", 0, 0, tuple(range(9)), 9)
    assert _apply("store", 2, -1)


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ([("load", (0, 0, (1,), 1)), ("load", (0, 0, (1,), 1))], "two loads of buffer 0 without a use between them"),
        ([("load", (0, 0, (1,), 1)), ("offload", (0, 1, (1,)))], "blocks that the load of buffer 0 reads"),
        ([("load", (1, 1, (0, 2), 5)), ("flush", (2, 3))], "blocks that the load of buffer 1 reads"),
        ([("load", (0, 0, (1,), 2)), ("use", (0, 3))], "more tokens of buffer 0 than the 2 loaded"),
    ],
)
def test_what_the_handout_leaves_open_cannot_be_judged(calls: list[tuple[str, tuple[Argument, ...]]], why: str) -> None:
    """A right program may do anything then."""
    *before, (name, arguments) = calls
    offload = Offload()
    offload.apply(_ENGINE)
    for earlier, its_arguments in before:
        offload.apply(Operation(name=earlier, arguments=its_arguments))
    with pytest.raises(CannotGoOn, match=why):
        offload.apply(Operation(name=name, arguments=arguments))


def test_another_layer_or_a_used_buffer_may_be_written() -> None:
    """A load is waited for by a use; it reads the blocks that its tokens take, in its own layer."""
    offload = Offload()
    offload.apply(_ENGINE)
    for name, arguments in (
        ("load", (0, 0, (1, 2), 4)),
        ("offload", (1, 1, (1,))),
        ("offload", (0, 1, (2,))),
        ("use", (0, 4)),
        ("offload", (0, 1, (1,))),
        ("load", (0, 0, (1,), 1)),
    ):
        assert not offload.apply(Operation(name=name, arguments=arguments)).refused


def test_a_new_engine_has_loaded_nothing() -> None:
    """What was open in the engine before it is none of its business."""
    offload = Offload()
    for name, arguments in (("load", (0, 0, (1,), 1)), ("load", (0, 0, (1,), 1)), ("use", (0, 1)), ("use", (0, 3))):
        offload.apply(_ENGINE)
        assert not offload.apply(Operation(name=name, arguments=arguments)).refused


def test_no_random_trace_does_what_is_left_open() -> None:
    """Neither those of cases nor those of searches, which are made of them."""
    for seed in range(400):
        offload = Offload()
        for operation in explore(Random(seed), 80):
            offload.apply(operation)
