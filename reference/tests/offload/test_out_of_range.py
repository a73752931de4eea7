"""What the storage does not have: the handout says nothing about it, so no trace may use it."""

from __future__ import annotations

import pytest

from reference.offload.oracle import Offload
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
