"""A program that went wrong in one place: the engine's own record, edited, and what `judge` says of it."""

from __future__ import annotations

import struct
from collections.abc import Callable

from grader.core.judgement import Judgement
from grader.labs.paged_kv.states import State
from grader.runtime.native import values
from grader.tests.labs.paged_kv.played import Played
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK
from reference.paged_kv.pool import GUARD_WORDS
from reference.tests.paged_kv.played import operation

Edit = Callable[[State], None]
"""What is edited is a whole record."""

STRAY, SMALL, FREED, SHARED = (values.decode(struct.pack("<2i", 8, pointer)) for pointer in range(2, 6))
"""What the driver says of pointers that lead to nothing that can be read."""

SETTING = [f"create_sequence 1 {KV_PER_BLOCK + 4}", "create_sequence 2 5", "fork_sequence 1 3"]
"""Sequence 1 has blocks 0 and 1, sequence 2 has block 2, sequence 3 shares 0 and 1."""


def judged(line: str, edit: Edit, *, setting: list[str] | None = None, blocks: int = 6) -> Judgement:
    """Judge `line` after `setting`, with an edited record of the engine's as what the program did."""
    played = Played(blocks, engines=2)
    played.do(f"@2 llm_init {3 * BLOCK_SIZE}", f"@2 {SETTING[0]}", "@2 fork_sequence 1 2")
    played.do(*(SETTING if setting is None else setting))
    before = played.record()
    played.do(line)
    record = played.edited(edit)
    return Played(None, engines=2).model.judge(before, operation(line), record)


def facets(judgement: Judgement) -> list[str]:
    """The facets of all differences, in their order."""
    return [difference.facet for difference in judgement.differences]


def tags(judgement: Judgement) -> set[str]:
    """The tags of all differences together."""
    return {tag for difference in judgement.differences for tag in difference.tags}


NOTED = frozenset(
    {"other-sequence", "changed-too", "misplaced", "none-stored", "nowhere", "old-block", "new-block", "other-block"}
)
"""Tags that say what was changed instead (wrong_target.py): they come beside those that say what is wrong."""


def engine_of(record: State, number: int = 1) -> State:
    """A living engine of a record."""
    engine: State = record["state"][str(number)]["engine"]
    return engine


def sequence_of(record: State, seq_id: int) -> State:
    """A sequence of the first engine."""
    sequence: State = engine_of(record)["sequences"][str(seq_id)]
    return sequence


def region_of(record: State) -> list[int]:
    """The words of the first pool between its guards."""
    region: list[int] = record["state"]["1"]["region"]
    return region


def set_word(record: State, place: int, value: int) -> None:
    """Overwrite a word of the first pool, counted from its start (guards: negative, or behind it)."""
    region_of(record)[GUARD_WORDS + place] = value
