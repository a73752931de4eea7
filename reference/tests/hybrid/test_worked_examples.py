"""The worked examples of the handout and figures of the RFC; after each line a new engine goes on from the state."""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil

import pytest

from reference.hybrid import Hybrid
from reference.hybrid.grouping import get_kv_cache_config, get_kv_cache_groups, uniform_waste
from reference.operation import Argument, Operation

_MANAGER = """
manager 10 [["full",2,0],["sliding",2,3]] true -> null            # 1,2,3,4,5,6,7,8,9 |
new "a" "abba" 0 -> null                                          # 1,2,3,4,5,6,7,8,9 |
match "a" -> [[[],[]],0]                                          # 1,2,3,4,5,6,7,8,9 |
admit "a" 4 -> [[1,2],[3,4]]                                      # 5,6,7,8,9 | [1,2] [3,4]
append "a" "ab" -> null                                           # 5,6,7,8,9 | [1,2] [3,4]
step "a" 2 -> [[5],[6]]                                           # 7,8,9,3 | [1,2,5] [0,4,6]
append "a" "b" -> null                                            # 7,8,9,3 | [1,2,5] [0,4,6]
step "a" 1 -> [[7],[8]]                                           # 9,3,4 | [1,2,5,7] [0,0,6,8]
free "a" -> null                                                  # 9,3,4,7,5,2,1,8,6 |
new "b" "abbaabb" 0 -> null                                       # 9,3,4,7,5,2,1,8,6 |
match "b" -> [[[1,2,5],[0,0,6]],6]                                # 9,3,4,7,5,2,1,8,6 |
admit "b" 1 -> [[9],[3]]                                          # 4,7,8 | [1,2,5,9] [0,0,6,3]
new "c" "abbab" 0 -> null                                         # 4,7,8 | [1,2,5,9] [0,0,6,3]
match "c" -> [[[1,2],[0,4]],4]                                    # 4,7,8 | [1,2,5,9] [0,0,6,3]
"""
_PAGES = """
lcm [["image",256],["text",384]] 2400 -> null      # 0,1,2 | {}
alloc "r1" "image" -> 0                            # 1,2 | {"0":"r1"}
alloc "r1" "text" -> 2                             # 2 | {"0":"r1","1":"r1"}
alloc "r2" "text" -> 4                             # | {"0":"r1","1":"r1","2":"r2"}
alloc "r2" "image" -> 1                            # | {"0":"r1","1":"r1","2":"r2"}
alloc "r1" "image" -> 2                            # | {"0":"r1","1":"r1","2":"r2"}
alloc "r3" "text" -> 3                             # | {"0":"r1","1":"r1","2":"r2"}
release "text" 2 5 16 -> null                      # | {"0":"r1","1":"r1","2":"r2"}
alloc "r3" "image" -> null                         # | {"0":"r1","1":"r1","2":"r2"}
remove "r1" -> null                                # | {"0":null,"1":null,"2":"r2"}
free_page "image" 2 -> null                        # | {"0":null,"1":null,"2":"r2"}
free_page "image" 1 -> null                        # | {"0":null,"1":null,"2":"r2"}
free_page "image" 0 -> null                        # 0 | {"1":null,"2":"r2"}
offset "text" 5 -> 1920                            # 0 | {"1":null,"2":"r2"}
offset "text" 6 -> ValueError                      # 0 | {"1":null,"2":"r2"}
"""
_WINDOW = """
lcm [["window",1]] 5 -> null
alloc "r" "window" -> 0
alloc "r" "window" -> 1
alloc "r" "window" -> 2
alloc "r" "window" -> 3
alloc "r" "window" -> 4
release "window" 0 1 1 -> null
release "window" 1 2 2 -> null
release "window" 2 3 3 -> null
release "window" 3 4 4 -> null
release "window" 4 5 5 -> null
reuse "window" 1 -> null
release "window" 1 6 2 -> null
alloc "s" "window" -> 0
alloc "s" "window" -> 2
alloc "s" "window" -> 3
alloc "s" "window" -> 4
alloc "s" "window" -> 1
alloc "s" "window" -> null
"""
_SIZES = '[["image",256],["text",384]]'
_TRACE = '[[["image",12],["text",2]],[["image",12],["text",2]],[["text",4]]]'
_ONE_OF_EACH = '[[["image",1],["text",1]]]'
_EQUAL = '[["image",1],["text",1]]'
_FUNCTIONS = f"""
fit "lcm" 9216 {_SIZES} {_TRACE} null -> [3,9216,32]
fit "max" 9216 {_SIZES} {_TRACE} null -> [1,3840,14]
fit "static" 9216 {_SIZES} {_TRACE} {_EQUAL} -> [1,3840,14]
fit "gcd" 9216 {_SIZES} {_TRACE} null -> [3,9216,72]
fit "lcm" 768 {_SIZES} {_ONE_OF_EACH} null -> [0,0,0]
fit "max" 768 {_SIZES} {_ONE_OF_EACH} null -> [1,640,2]
fit "gcd" 768 {_SIZES} {_ONE_OF_EACH} null -> [1,640,5]
fit "best" 768 {_SIZES} [] null -> ValueError
waste [["full",32,0],["cross",8,0]] 43 6193 -> "4963/6236"
waste [["full",21,0],["sliding",21,4096]] 8192 0 -> "1/4"
waste [["full",9,0],["sliding",27,32768]] 131072 0 -> "9/16"
waste [["mamba",9,0]] 5 0 -> ValueError
unify [["a",["full",2,0,4]],["b",["mamba",1,0,24]]] -> [["a",["full",6,0,4]],["b",["mamba",1,0,24]]]
unify [["a",["full",2,0,4]],["b",["mamba",1,0,20]]] -> NotImplementedError
"""


def frozen(value: object) -> Argument:
    """A value of JSON as an argument."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value  # type: ignore[return-value]


def operation(line: str) -> tuple[Operation, str]:
    """An operation and its reply."""
    call, _, reply = line.partition(" -> ")
    name, *words = call.split(" ")
    return Operation(name=name, arguments=tuple(frozen(json.loads(word)) for word in words)), reply.strip()


def taken_over(engine: Hybrid) -> Hybrid:
    """A new engine in the state of this one."""
    other = Hybrid()
    other.restore(json.loads(json.dumps(engine.state())))
    return other


def test_the_manager() -> None:
    """Replies, the free queue and the tables of the request that has some."""
    engine = Hybrid()
    for line in _MANAGER.strip().splitlines():
        text, _, state = line.partition("#")
        call, reply = operation(text.strip())
        engine = taken_over(engine)
        assert engine.apply(call).text == reply, line
        free, tables = (part.strip() for part in state.split("|"))
        held = [table for of in engine.tables.values() for table in of]
        assert ",".join(map(str, engine.pool.free_queue)) == free, line
        assert " ".join(json.dumps(table, separators=(",", ":")) for table in held) == tables, line
    assert "ab/1" not in engine.pool.index, "block 3 was taken"


def test_the_large_pages() -> None:
    """Replies, free large pages and owners; 768 bytes and the ratios 3 and 2."""
    engine = Hybrid()
    for line in _PAGES.strip().splitlines():
        text, _, state = line.partition("#")
        call, reply = operation(text.strip())
        engine = taken_over(engine)
        assert engine.apply(call).text == reply, line
        free, owner = (part.strip() for part in state.split("|"))
        assert ",".join(map(str, engine.free_large_pages)) == free, line
        assert engine.state()["owner"] == json.loads(owner), line
    assert engine.state()["geometry"] == [768, 3, {"image": 3, "text": 2}]
    assert engine.slots == {"image": {}, "text": {2: (5, 16), 3: "used", 4: "used", 5: "empty"}}


def test_the_ends_of_prompts_outlive_their_beginnings() -> None:
    """The eviction that the RFC calls customized."""
    engine = Hybrid()
    for line in _WINDOW.strip().splitlines():
        call, reply = operation(line)
        engine = taken_over(engine)
        assert engine.apply(call).text == reply, line


@pytest.mark.parametrize("line", _FUNCTIONS.strip().splitlines())
def test_the_functions(line: str) -> None:
    """What they return and refuse."""
    call, reply = operation(line)

    assert Hybrid().apply(call).text == reply


def test_eleven_blocks_instead_of_twenty_one() -> None:
    """10 full and 20 sliding layers, 112 tokens: what the next call leaves of the prompt's blocks."""
    engine = Hybrid()
    engine.manager(40, (("full", 16, 0), ("sliding", 16, 32), ("sliding", 16, 32)), caching=True)
    engine.new("a", "a" * 113, 0)
    engine.step("a", 112)
    before = set(engine.pool.ref)
    engine.step("a", 1)

    assert len(before) == 21
    assert [sum(block in before for block in table) for table in engine.tables["a"]] == [7, 2, 2]


def test_what_uniform_allocation_wastes() -> None:
    """79.6 %, 25 % and 56.25 %, the first one rounded."""
    mllama = uniform_waste((("full", 32, 0), ("cross", 8, 0)), 43, 6193)
    gemma = uniform_waste((("full", 21, 0), ("sliding", 21, 4096)), 8192, 0)
    ministral = uniform_waste((("full", 9, 0), ("sliding", 27, 32768)), 131072, 0)

    assert round(float(mllama) * 100, 1) == 79.6
    assert (gemma, ministral) == (Fraction(25, 100), Fraction(5625, 10000))


def test_padding_layers() -> None:
    """18 layers of one spec and 19 of another: 1 padding layer, where groups of the smaller size would have 17."""
    few, many = ("full", 16, 0, 2), ("sliding", 16, 32, 2)
    layers = tuple((f"layer{number}", few if number < 18 else many) for number in range(37))
    config = get_kv_cache_config(layers, 10**6, None)
    smaller = ceil(18 / 18) + ceil(19 / 18)

    assert (len(config["groups"]), config["padding_layers"]) == (2, 1)
    assert (round(100 * config["padding_layers"] / 18, 2), round(100 * (smaller * 18 - 37) / 19, 2)) == (5.56, 89.47)


def test_groups_of_known_models() -> None:
    """mllama's 40 layers are 5 groups of 8; 10 full and 20 sliding layers are 3 groups of 10."""
    mllama = tuple((f"layer{n}", ("cross" if n % 5 == 3 else "full", 16, 0, 2)) for n in range(40))
    mixed = tuple((f"layer{n}", ("sliding" if n % 3 else "full", 16, 32, 2)) for n in range(30))

    assert [len(names) for names in get_kv_cache_groups(mllama)] == [8] * 5
    assert [len(names) for names in get_kv_cache_groups(mixed)] == [10] * 3
