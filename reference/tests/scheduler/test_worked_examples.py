"""The worked examples of the handout, line by line; after each line a new engine goes on from the state."""

from __future__ import annotations

import json

import pytest

from reference.operation import Operation
from reference.scheduler import Scheduler
from reference.tests.frozen_traces import argument

_PREEMPTION = """
scheduler 4 2 true 3 8 0 "fcfs" false -> null                  # | | {} 1,2,3
add "a" [1,1,1,1] 2 0 0 -> null                                 # | a | {} 1,2,3
add "b" [1,1,2] 2 0 1 -> null                                   # | a b | {} 1,2,3
schedule -> [[["a",4],["b",1]],["a","b"],[],[],5]               # a b | | {"a":[1,2],"b":[1,3]}
update -> []                                                    # a b | | {"a":[1,2],"b":[1,3]}
schedule -> [[["a",1]],[],[],["b"],1]                           # a | b | {"a":[1,2,3]}
update -> ["a"]                                                 # | b | {} 3,2,1
schedule -> [[["b",2]],[],["b"],[],2]                           # b | | {"b":[1,3]} 2
update -> ["b"]                                                 # | | {} 2,3,1
"""
_REFUND = """
scheduler 6 1 false 3 3 0 "priority" false -> null              # | | {} 1,2,3,4,5
add "z" [1] 4 5 0 -> null                                       # | z | {} 1,2,3,4,5
schedule -> [[["z",1]],["z"],[],[],1]                           # z | | {"z":[1]} 2,3,4,5
update -> []                                                    # z | | {"z":[1]} 2,3,4,5
add "a" [1] 4 0 1 -> null                                       # z | a | {"z":[1]} 2,3,4,5
add "b" [1,1,1,1] 1 0 2 -> null                                 # z | a b | {"z":[1]} 2,3,4,5
schedule -> [[["z",1],["a",1],["b",1]],["a","b"],[],[],3]       # z a b | | {"z":[1,2],"a":[3],"b":[4]} 5
update -> []                                                    # z a b | | {"z":[1,2],"a":[3],"b":[4]} 5
schedule -> [[["a",1],["b",2]],[],[],["z"],3]                   # a b | z | {"a":[3,5],"b":[4,2,1]}
"""
_FUNCTIONS = """
page_size_bytes 16 40 128 2 -> 327680
get_num_blocks [12884901888] 327680 40 null -> 983
get_num_blocks [12884901888,-1] 327680 40 null -> 0
get_num_blocks [12884901888] 327680 40 0 -> 0
get_num_blocks [] 327680 40 7 -> ValueError
max_concurrency 983 2048 16 -> 7.6796875
check_enough_memory 1000000 2048 16 327680 40 -> ValueError
estimate_max_model_len 1000000000 2048 16 327680 40 -> 1216
available_kv_memory 42949672960 90 26000000000 1500000000 0 -> 11154705664
available_kv_memory 100 0 0 0 0 -> ValueError
simulate "max" 20 8 2 [[3,2],[2,4],[1,1]] -> [[5,6,5,4],[7,4,5,4],[5,3,8,4],[5,1,2,12]]
simulate "pow2" 20 8 2 [[3,2],[2,3],[1,1]] -> [[6,6,1,7],[7,3,1,9],[4,1,1,14]]
simulate "oracle" 20 8 2 [[3,2],[2,4],[1,1]] -> [[6,7,0,7],[7,4,0,9],[4,2,0,14],[5,1,0,14]]
simulate "paged" 8 8 2 [[3,4],[2,3],[1,1]] -> [[6,0,2,0],[7,0,1,0],[5,0,1,2],[6,0,0,2],[4,0,2,2],[4,0,0,4]]
simulate "max" 15728 2048 16 [[3,1],[3,1],[3,1],[3,1],[3,1],[3,1],[3,1],[3,1]] -> [[21,7,14308,1392],[3,1,2044,13680]]
simulate "paged" 15728 2048 16 [[3,1],[3,1],[3,1],[3,1],[3,1],[3,1],[3,1],[3,1]] -> [[24,0,104,15600]]
simulate "paged" 8 9 2 [[3,6]] -> ValueError
simulate "pow2" 20 8 2 [[3,5]] -> [[3,5,0,12],[4,4,0,12],[5,3,0,12],[6,2,0,12],[7,1,0,12]]
simulate "max" 20 8 2 [] -> []
"""


def operation(line: str) -> tuple[Operation, str]:
    """An operation and its reply."""
    call, _, reply = line.partition(" -> ")
    name, *words = call.split(" ")
    return Operation(name=name, arguments=tuple(argument(json.loads(word)) for word in words)), reply


@pytest.mark.parametrize("example", [_PREEMPTION, _REFUND], ids=["preemption", "refund"])
def test_the_worked_examples(example: str) -> None:
    """Replies, who runs and waits, tables, and the free blocks in their order."""
    engine = Scheduler()
    for line in example.strip().splitlines():
        told, _, state = line.partition("#")
        made, reply = operation(told.strip())
        other = Scheduler()
        other.restore(json.loads(json.dumps(engine.state())))
        engine = other
        assert engine.apply(made).text == reply, line
        running, waiting, rest = (part.strip() for part in state.split("|"))
        tables, _, free = rest.partition(" ")
        assert (" ".join(engine.running), " ".join(engine.waiting)) == (running, waiting), line
        assert (engine.kv.tables, ",".join(map(str, engine.kv.forward))) == (json.loads(tables), free), line


@pytest.mark.parametrize("line", _FUNCTIONS.strip().splitlines())
def test_the_functions(line: str) -> None:
    """Tasks 5 and 6."""
    made, reply = operation(line)

    assert Scheduler().apply(made).text == reply
