"""Which blocks a program took, where the reference took the first free ones (Global Constraint 3)."""

from __future__ import annotations

from reference.model import Difference
from reference.paged_kv.outcome import Outcome
from reference.paged_kv.record import EngineState, SequenceState
from reference.paged_kv.sequence import UNMAPPED
from reference.paged_kv.words import L2_PT_SIZE

__all__ = ["choice_difference", "own_choice"]


def own_choice(outcome: Outcome, before: EngineState, after: EngineState) -> tuple[int, ...] | None:
    """The blocks that a program took in a call, if they were free and are not the ones of this outcome."""
    sequences = {sequence.seq_id: sequence for sequence in after.sequences}
    sequence = sequences.get(outcome.seq_id)
    chosen = tuple(_mapped(sequence, logical) for logical, _ in enumerate(outcome.taken, outcome.logical))
    if not all(_was_taken(block, before, after) for block in chosen) or len(set(chosen)) < len(chosen):
        return None
    return chosen if chosen != outcome.taken else None


def choice_difference(outcome: Outcome, taken: tuple[int, ...]) -> Difference:
    """The program took free blocks, but not the first free ones."""
    at = next(i for i, (want, took) in enumerate(zip(outcome.taken, taken, strict=True)) if want != took)
    tags = {"copy-on-write"} if outcome.copied else set()
    return Difference(
        facet="choice",
        field=f"the block taken for logical block {outcome.logical + at} of sequence {outcome.seq_id}",
        expected=f"block {outcome.taken[at]}, the first with ref_count 0",
        actual=f"block {taken[at]}",
        tags=frozenset(tags),
        place=_place(outcome, at),
    )


def _place(outcome: Outcome, at: int) -> str:
    l1, l2 = divmod(outcome.logical + at, L2_PT_SIZE)
    return f"sequence {outcome.seq_id}: block_table[{l1}][{l2}]"


def _was_taken(block: int, before: EngineState, after: EngineState) -> bool:
    """Was this block free before the call, and is it in use after it?"""
    known = 0 <= block < min(len(before.ref_count), len(after.ref_count))
    return known and before.ref_count[block] == 0 != after.ref_count[block]


def _mapped(sequence: SequenceState | None, logical: int) -> int:
    l1, l2 = divmod(logical, L2_PT_SIZE)
    table = sequence.tables[l1] if sequence is not None and sequence.tables else None
    return UNMAPPED if table is None else table[l2]
