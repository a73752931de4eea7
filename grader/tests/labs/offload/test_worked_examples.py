"""The worked examples of the handout, line by line; after each line a new engine goes on from the state."""

from __future__ import annotations

import json
from random import Random

import pytest

from grader.labs.offload.oracle import Offload
from grader.labs.offload.traces import generate
from reference.operation import Argument, Operation

_MANAGER = """
manager 5 4 -> null                   # 0,1,2,3,4
allocate "a" 6 -> [0,1]               # 2,3,4
allocate "b" 4 -> [2]                 # 3,4
mark "a" 6 -> null                    # 3,4
prefilled "a" -> [0,1]                # 3,4
decode_start "a" -> 2                 # 3,4
may_append "a" -> -1                  # 3,4
may_append "b" -> 3                   # 4
allocate "c" 9 -> RuntimeError        # 4
allocate "c" 4 -> [4]                 #
may_append "a" -> -1                  #
can_append "a" -> false               #
may_append "a" -> RuntimeError        #
deallocate "a" -> null                # 1,0
allocate "d" 5 -> [1,0]               #
"""
_RUNNER = """
runner 3 3 4 2 12 -> null                                       # 0,1,2
prefill "a" [5,1,2,7,3,3] -> null                               # 2 | 0,1 | 6 2
decode "a" 4 -> null                                            # 2 | 0,1 | 6 2
decode "a" 9 -> null                                            # 2 | 0,1 | 8 0
decode "a" 2 -> null                                            #   | 0,1,2 | 8 0
prefill "b" [1] -> RuntimeError                                 #   | 0,1,2 | 8 0
decode "b" 1 -> KeyError                                        #   | 0,1,2 | 8 0
finish "a" -> null                                              # 2,1,0
prefill "b" [1,2,3,4,5,6,7,8,9,10,11,12] -> null                #   | 2,1,0 | 12 0
decode "b" 0 -> ValueError                                      #   | 2,1,0 | 12 0
"""


def _arguments(words: list[str]) -> tuple[Argument, ...]:
    values = [json.loads(word) for word in words]
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


@pytest.mark.parametrize("text", [_MANAGER, _RUNNER], ids=["manager", "runner"])
def test_worked_example(text: str) -> None:
    """Replies, free blocks, tables, P and start are the handout's."""
    engine = Offload()
    for line in text.strip().splitlines():
        call, _, after = line.partition("#")
        words, _, reply = call.strip().partition(" -> ")
        name, *arguments = words.split()
        came = engine.apply(Operation(name=name, arguments=_arguments(arguments)))
        state = engine.state()
        free, *of_sequence = [part.strip() for part in after.split("|")]

        assert reply.strip() == came.text, line
        assert [int(block) for block in free.split(",") if block] == state["free"], line

        if of_sequence:
            ((seq, table),) = state["tables"].items()  # type: ignore[union-attr]
            tracked = state["tracking"][seq]  # type: ignore[index]

            assert of_sequence[0] == ",".join(map(str, table)), line  # type: ignore[arg-type]
            assert [int(number) for number in of_sequence[1].split()] == tracked[1:], line  # type: ignore[index]

        engine = Offload()
        engine.restore(state)


def test_a_step_loads_every_layer_once() -> None:
    """In order, into buffer l % num_kv_buffers, the offloaded rows of keys and of values."""
    engine = Offload()
    for name, arguments in (("runner", (3, 3, 4, 2, 12)), ("prefill", ("a", (5, 1, 2, 7, 3, 3))), ("decode", ("a", 4))):
        engine.apply(Operation(name=name, arguments=arguments))
    state = engine.state()

    assert state["loads"] == [[0, 0], [1, 1], [2, 0]]
    assert {f"{layer} {kind}": 6 for layer in range(3) for kind in "kv"} == state["load_rows"]


@pytest.mark.parametrize("first", range(0, 200, 40))
def test_a_random_trace_goes_on_from_every_state(first: int) -> None:
    """What an engine needs is in its state: a new one, after `restore`, does the rest as the old one does."""
    for seed in range(first, first + 40):
        whole, anew = Offload(), Offload()
        for operation in generate(Random(seed), 25):
            right, came = whole.apply(operation), anew.apply(operation)

            assert (right, whole.state()) == (came, anew.state()), f"seed {seed}, {operation}"

            state = anew.state()
            anew = Offload()
            anew.restore(state)
