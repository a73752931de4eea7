"""The words for what is special about a call: each where the handout's numbers make it so, and nowhere beside it."""

from __future__ import annotations

import pytest

from grader.labs.paged_kv.judging.model import PagedKVModel
from reference.operation import Trace
from reference.tests.paged_kv.played import operation

SPECIAL: dict[str, tuple[list[str], list[str]]] = {
    "smallest-pool": (["llm_init 64"], ["llm_init 128"]),
    "ragged-pool": (["llm_init 100"], ["llm_init 128"]),
    "exact-fit": (["llm_init 128", "create_sequence 1 32"], ["llm_init 128", "create_sequence 1 16"]),
    "max-length": (["llm_init 65536", "create_sequence 1 4081"], ["llm_init 65536", "create_sequence 1 4080"]),
    "id-zero": (["llm_init 64", "create_sequence 0 1"], ["llm_init 64", "create_sequence 1 1"]),
    "id-negative": (["llm_init 64", "create_sequence -1 1"], ["llm_init 64", "create_sequence 0 1"]),
    "length-zero": (["llm_init 64", "create_sequence 1 0"], ["llm_init 64", "create_sequence 1 1"]),
    "length-negative": (["llm_init 64", "create_sequence 1 -1"], ["llm_init 64", "create_sequence 1 0"]),
    "several-tables": (["llm_init 2048", "create_sequence 1 257"], ["llm_init 2048", "create_sequence 1 256"]),
    "several-blocks": (["llm_init 128", "create_sequence 1 17"], ["llm_init 128", "create_sequence 1 16"]),
    "one-block": (["llm_init 128", "create_sequence 1 16"], ["llm_init 128", "create_sequence 1 17"]),
    "whole-blocks": (["llm_init 128", "create_sequence 1 16"], ["llm_init 128", "create_sequence 1 15"]),
    "part-block": (["llm_init 128", "create_sequence 1 15"], ["llm_init 128", "create_sequence 1 16"]),
    "no-sequence": (["llm_init 64", "create_sequence 1 1"], ["llm_init 128", "create_sequence 1 1", "free_sequence 1"]),
    "none-free": (
        ["llm_init 64", "create_sequence 1 16", "append_kv 1 7"],
        ["llm_init 128", "create_sequence 1 16", "append_kv 1 7"],
    ),
    "last-free-block": (
        ["llm_init 128", "create_sequence 1 16", "append_kv 1 7"],
        ["llm_init 192", "create_sequence 1 16", "append_kv 1 7"],
    ),
    "last-logical-block": (
        ["llm_init 65536", "create_sequence 1 4080", "append_kv 1 7"],
        ["llm_init 65536", "create_sequence 1 4079", "append_kv 1 7"],
    ),
    "second-table": (
        ["llm_init 2048", "create_sequence 1 256", "append_kv 1 7"],
        ["llm_init 2048", "create_sequence 1 255", "append_kv 1 7"],
    ),
    "offset-zero": (
        ["llm_init 128", "create_sequence 1 16", "append_kv 1 7"],
        ["llm_init 128", "create_sequence 1 15", "append_kv 1 7"],
    ),
    "onto-itself": (
        ["llm_init 64", "create_sequence 1 1", "fork_sequence 1 1"],
        ["llm_init 64", "create_sequence 1 1", "fork_sequence 1 2"],
    ),
    "fewer-free": (
        ["llm_init 128", "create_sequence 1 32", "fork_sequence 1 2"],
        ["llm_init 256", "create_sequence 1 32", "fork_sequence 1 2"],
    ),
    "shared-already": (
        ["llm_init 64", "create_sequence 1 1", "fork_sequence 1 2", "free_sequence 1"],
        ["llm_init 64", "create_sequence 1 1", "free_sequence 1"],
    ),
    "three-users": (
        ["llm_init 128", "create_sequence 1 1", "fork_sequence 1 2", "fork_sequence 1 3", "append_kv 1 7"],
        ["llm_init 128", "create_sequence 1 1", "fork_sequence 1 2", "append_kv 1 7"],
    ),
    "gap-below": (
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "free_sequence 1", "create_sequence 3 1"],
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "free_sequence 2", "create_sequence 3 1"],
    ),
    "taken-first": (
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "create_sequence 1 1"],
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "create_sequence 2 1"],
    ),
    "listed-middle": (
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "create_sequence 3 1", "free_sequence 2"],
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "create_sequence 3 1", "free_sequence 3"],
    ),
    "listed-only": (
        ["llm_init 192", "create_sequence 1 1", "free_sequence 1"],
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "free_sequence 1"],
    ),
    "larger-id": (
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "append_kv 1 7"],
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "append_kv 2 7"],
    ),
    "smaller-id": (
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "append_kv 2 7"],
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "append_kv 1 7"],
    ),
    "block-zero": (
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "free_sequence 1"],
        ["llm_init 192", "create_sequence 1 1", "create_sequence 2 1", "free_sequence 2"],
    ),
    "data-negative": (
        ["llm_init 64", "create_sequence 1 1", "append_kv 1 -1"],
        ["llm_init 64", "create_sequence 1 1", "append_kv 1 0"],
    ),
    "holes": (
        ["llm_init 64", "create_sequence 1 1", "move_l2 1 0 3", "fork_sequence 1 2"],
        ["llm_init 64", "create_sequence 1 1", "fork_sequence 1 2"],
    ),
    "unmapped-entries": (
        ["llm_init 128", "create_sequence 1 32", "unmap 1 0", "free_sequence 1"],
        ["llm_init 128", "create_sequence 1 32", "free_sequence 1"],
    ),
}
"""Each word with a trace whose last call has it, and one whose last call is like it but does not."""


def situations(lines: list[str]) -> list[frozenset[str]]:
    """The words of each call of a trace."""
    trace = Trace(operations=tuple(map(operation, lines)))
    model = PagedKVModel(trace)
    return [model.apply(one).circumstances for one in trace.operations]


@pytest.mark.parametrize("word", SPECIAL)
def test_a_call_has_its_words_and_no_others(word: str) -> None:
    """On both sides of where it begins."""
    special, ordinary = (situations(lines)[-1] for lines in SPECIAL[word])

    assert word in special
    assert word not in ordinary
