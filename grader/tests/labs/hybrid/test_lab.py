"""What can never be so in a manager or an allocator: a right run never shows it, and each of it has its sentence."""

from __future__ import annotations

from typing import Any

import pytest

from grader.labs.hybrid.lab import broken
from grader.labs.hybrid.oracle import HybridOracle
from reference.operation import Argument, Operation

Calls = list[tuple[str, tuple[Argument, ...]]]


def after(calls: Calls) -> dict[str, Any]:
    """The state behind accepted calls."""
    engine = HybridOracle()
    for name, arguments in calls:
        assert not engine.apply(Operation(name=name, arguments=arguments)).refused
    return engine.state()


def manager() -> dict[str, Any]:
    """`a` and `b` share a text; a block of `a` has left the window, and `c` was looked up last."""
    return after([
        ("manager", (14, (("full", 2, 0), ("sliding", 2, 3), ("mamba", 2, 0)), True)),
        ("new", ("a", "abbaab", 0)),
        ("step", ("a", 4)),
        ("step", ("a", 2)),
        ("new", ("b", "abbb", 0)),
        ("match", ("b",)),
        ("admit", ("b", 1)),
        ("new", ("c", "abbab", 0)),
        ("match", ("c",)),
    ])  # fmt: skip


def allocator() -> dict[str, Any]:
    """A large page of each type, and a free one."""
    return after([
        ("lcm", ((("x", 2), ("y", 3)), 18)),
        ("alloc", ("p", "x")),
        ("alloc", ("p", "x")),
        ("alloc", ("q", "y")),
        ("release", ("x", 1, 5, 2)),
    ])  # fmt: skip


def _tables(**changed: list[list[int]]) -> dict[str, Any]:
    return {"tables": {**manager()["tables"], **changed}}


_MANAGER: dict[str, tuple[dict[str, Any], list[str]]] = {
    "used too often": (
        {"ref": {**manager()["ref"], "7": 3}},
        ["block 7 is in 1 tables but its ref_cnt is 3"],
    ),
    "used by nobody": (
        {"ref": {**manager()["ref"], "13": 1}},
        ["block 13 is in 0 tables but its ref_cnt is 1"],
    ),
    "free but in a table": (
        {"ref": {block: count for block, count in manager()["ref"].items() if block != "7"}},
        ["block 7 is in 1 tables but its ref_cnt is 0"],
    ),
    "in two groups": (
        {**_tables(b=[[1, 10], [3, 11], [5, 10]]), "ref": {**manager()["ref"], "10": 2, "12": 0}},
        ["block 10 is in tables of groups 0 and 2"],
    ),
    "no multiple": ({"looked": ["c", [[1], [3], [5]], 3]}, ["a hit of 3 tokens is no multiple of 2"]),
    "nothing to compute": (
        {"looked": ["c", [], 6]},
        ["a hit of 6 tokens leaves no token of request c to compute"],
    ),
    "exactly nothing to compute": (
        {"looked": ["b", [], 4]},
        ["a hit of 4 tokens leaves no token of request b to compute"],
    ),
    "freed with blocks": (
        {"requests": {name: known for name, known in manager()["requests"].items() if name != "b"}},
        ["request b is freed but its tables still have blocks"],
    ),
    "a null in a full table": (
        {**_tables(a=[[1, 0, 7], [0, 4, 8], [0, 6, 9]]), "ref": {**manager()["ref"], "2": 0}},
        ["request a, group 0: a null in a full table"],
    ),
    "a null behind": (
        {**_tables(a=[[1, 2, 7], [3, 0, 8], [0, 6, 9]]), "ref": {**manager()["ref"], "3": 2, "4": 0}},
        ["request a, group 1: a null stands after a block"],
    ),
    "too short": (
        {**_tables(a=[[1, 2], [0, 4, 8], [0, 6, 9]]), "ref": {**manager()["ref"], "7": 0}},
        ["request a, group 0: the table covers 4 tokens, the request has computed 6"],
    ),
    "too long": (
        {**_tables(a=[[1, 2, 7, 13], [0, 4, 8], [0, 6, 9]]), "ref": {**manager()["ref"], "13": 1}},
        ["request a, group 0: the table covers 8 tokens, the request has computed 6"],
    ),
    "nothing held": (
        {"requests": {**manager()["requests"], "c": ["abbab", 0, 2]}},
        [
            f"request c, group {group}: the table covers 0 tokens, the request has computed 2" for group in range(3)
        ],
    ),
    "window left too early": (
        {**_tables(a=[[1, 2, 7], [0, 0, 0], [0, 6, 9]]), "ref": {**manager()["ref"], "4": 0, "8": 0}},
        ["request a, group 1: position 2 is released although token 4 is still needed"],
    ),
    "state left too early": (
        {**_tables(a=[[1, 2, 7], [0, 4, 8], [0, 0, 0]]), "ref": {**manager()["ref"], "6": 0, "9": 0}},
        ["request a, group 2: position 2 is released although token 5 is still needed"],
    ),
    "text of another": (
        {"index": {**manager()["index"], "abbaab/0": [], "abbabb/0": [7]}},
        ["request a, group 0: block 7 stands at position 2 but is indexed as abbabb/0"],
    ),
    "group of another": (
        {"index": {**manager()["index"], "abbaab/0": [], "abbaab/1": [7, 8]}},
        ["request a, group 0: block 7 stands at position 2 but is indexed as abbaab/1"],
    ),
}  # fmt: skip


_ALLOCATOR: dict[str, tuple[dict[str, Any], list[str]]] = {
    "free with slots": (
        {"free_large_pages": [2, 0], "owner": {"1": "q"}},
        ["large page 0 is free and has slots"],
    ),
    "free with an owner": (
        {"owner": {"0": "p", "1": "q", "2": None}},
        ["large page 2 is free and has an owner", "large page 2 holds nothing but is not free"],
    ),
    "free twice": ({"free_large_pages": [2, 2]}, ["large page 2 is free twice"]),
    "lost": ({"free_large_pages": []}, ["large page 2 is lost: neither free nor in use"]),
    "empty": (
        {"slots": {**allocator()["slots"], "y": {"2": "empty", "3": "empty"}}},
        ["large page 1 holds nothing but is not free"],
    ),
    "two types": (
        {"slots": {**allocator()["slots"], "y": {"0": "empty", "1": "empty", "2": "used", "3": "empty"}}},
        ["large page 0 belongs to two types"],
    ),
    "overlapping": (
        {"slots": {**allocator()["slots"], "y": {"0": "empty", "1": [5, 2], "2": "used", "3": "empty"}}},
        ["large page 0 belongs to two types", "page 1 of type x overlaps page 1 of type y"],
    ),
    "side by side": (
        {
            "slots": {
                "x": {"0": "empty", "1": "empty", "2": "used"},
                "y": {"0": "used", "1": "empty", "2": "used", "3": "empty"},
            }
        },
        ["large page 0 belongs to two types"],
    ),
    "in the same bytes": (
        {"slots": {**allocator()["slots"], "y": {"0": "used", "1": "empty", "2": "used", "3": "empty"}}},
        [
            "large page 0 belongs to two types",
            "page 0 of type x overlaps page 0 of type y",
            "page 1 of type x overlaps page 0 of type y",
        ],
    ),
}


@pytest.mark.parametrize("name", _MANAGER)
def test_each_of_a_manager_has_its_sentence(name: str) -> None:
    """A state that differs from a right one in what is broken."""
    changed, sentences = _MANAGER[name]

    assert list(broken({**manager(), **changed})) == sentences


@pytest.mark.parametrize("name", _ALLOCATOR)
def test_each_of_an_allocator_has_its_sentence(name: str) -> None:
    """Slots of `x` begin at the bytes 0, 2 and 4, those of `y` at 0 and 3."""
    changed, sentences = _ALLOCATOR[name]

    assert list(broken({**allocator(), **changed})) == sentences
