"""Which blocks a program took, where the reference took the first free ones (Global Constraint 3)."""

from __future__ import annotations

from reference.model import Difference
from reference.paged_kv.engine import Effect
from reference.paged_kv.record import EngineState, SequenceState
from reference.paged_kv.sequence import UNMAPPED, Place
from reference.paged_kv.words import KV_PER_BLOCK

__all__ = ["choice_difference", "own_choice"]


def own_choice(effect: Effect, before: EngineState, after: EngineState) -> list[int] | None:
    """The blocks that a program took in a call, if they were free and are not the ones of this effect."""
    sequences = {sequence.seq_id: sequence for sequence in after.sequences}
    chosen = [_mapped(sequences.get(seq_id), logical) for seq_id, logical, _ in effect.taken]
    if not all(_was_taken(block, before, after) for block in chosen) or len(set(chosen)) < len(chosen):
        return None
    return chosen if chosen != [block for _, _, block in effect.taken] else None


def choice_difference(effect: Effect, wanted: list[int], taken: list[int]) -> Difference:
    """The program took free blocks, but not the first free ones."""
    at = next(i for i, (want, took) in enumerate(zip(wanted, taken, strict=True)) if want != took)
    seq_id, logical, _ = effect.taken[at]
    tags = {"copy-on-write"} if effect.copied else set()
    return Difference(
        facet="choice",
        field=f"the block taken for logical block {logical} of sequence {seq_id}",
        expected=f"block {wanted[at]}, the first with ref_count 0",
        actual=f"block {taken[at]}",
        tags=frozenset(tags),
    )


def _was_taken(block: int, before: EngineState, after: EngineState) -> bool:
    """Was this block free before the call, and is it in use after it?"""
    known = 0 <= block < min(len(before.ref_count), len(after.ref_count))
    return known and before.ref_count[block] == 0 != after.ref_count[block]


def _mapped(sequence: SequenceState | None, logical: int) -> int:
    place = Place.of(logical * KV_PER_BLOCK)
    table = sequence.tables[place.l1] if sequence is not None and sequence.tables else None
    return UNMAPPED if table is None else table[place.l2]
