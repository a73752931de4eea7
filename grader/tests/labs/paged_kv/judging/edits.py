"""A program that went wrong in one place: the engine's own record, edited, and what `judge` says of it."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from grader.core.judgement import Judgement
from grader.labs.paged_kv.judging.record import EngineState, RecordState, SequenceState
from grader.tests.labs.paged_kv.judging.layout import pack
from grader.tests.labs.paged_kv.judging.played import Played
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK
from reference.paged_kv.pool import GUARD_WORDS
from reference.tests.paged_kv.played import operation

Edit = Callable[[RecordState], None]

SETTING = [f"create_sequence 1 {KV_PER_BLOCK + 4}", "create_sequence 2 5", "fork_sequence 1 3"]
"""Sequence 1 has blocks 0 and 1, sequence 2 has block 2, sequence 3 shares 0 and 1."""


def judged(line: str, edit: Edit, *, setting: list[str] | None = None, blocks: int = 6) -> Judgement:
    """Judge `line` after `setting`, with an edited record of the engine's as what the program did."""
    played = Played(blocks, engines=2)
    played.do(f"@2 llm_init {3 * BLOCK_SIZE}", f"@2 {SETTING[0]}", "@2 fork_sequence 1 2")
    played.do(*(SETTING if setting is None else setting))
    before = played.record()
    played.do(line)
    state = played.state
    edit(state)
    return Played(None, engines=2).model.judge(before, operation(line), pack(state))


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


def engine_of(state: RecordState, number: int = 1) -> EngineState:
    """A living engine of a record."""
    engine = state.slots[number - 1].engine
    assert engine is not None
    return engine


def sequence_of(state: RecordState, seq_id: int, number: int = 1) -> SequenceState:
    """A sequence of a record."""
    return next(sequence for sequence in engine_of(state, number).sequences if sequence.seq_id == seq_id)


def l2_table(state: RecordState, seq_id: int, number: int = 1) -> array[int]:
    """The first L2 table of a sequence."""
    table = sequence_of(state, seq_id, number).tables[0]
    assert table is not None
    return table


def set_word(state: RecordState, place: int, value: int, *, number: int = 1) -> None:
    """Overwrite a word of the pool, counted from its start (guards: negative, or behind it)."""
    words = array("i", state.slots[number - 1].region)
    words[GUARD_WORDS + place] = value
    state.slots[number - 1].region = words.tobytes()
