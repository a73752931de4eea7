"""Texts of Homework 3: abbreviations in a trace, and what a poke does."""

from __future__ import annotations

from reference.operation import Operation
from reference.paged_kv.constants import KV_PER_BLOCK, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

NOTATION = {
    "seq": "a pointer to the sequence that the call made",
    "@2": "the call gets the engine of that number, others get the first one",
    "@NULL": "the call gets NULL as its engine",
}
"""The meaning of the short words in a trace; `@2` stands for every number."""


def describe_poke(operation: Operation) -> str:
    """Return one sentence for students: what the grader itself does to the structures here, and why."""
    seq_id, *places = operation.numbers
    sequence = f"sequence {seq_id}" + ("" if operation.target == 1 else f" of engine {operation.target}")
    if operation.name == "move_l2":
        source, target = places
        return (
            f"Here the grader moves an L2 table of {sequence} from block_table[{source}] to "
            f"block_table[{target}] and leaves NULL behind, because the handout says that a sequence may "
            "have empty slots in between (Task 2)."
        )
    if operation.name == "unmap":
        logical = places[0]
        entry = f"block_table[{logical // L2_PT_SIZE}][{logical % L2_PT_SIZE}]"
        return (
            f"Here the grader takes logical block {logical} away from {sequence}: {entry} becomes -1 and its "
            "block loses one reference, because the handout says that blocks may be scattered (Task 2)."
        )
    logical, offset = divmod(places[0], KV_PER_BLOCK)
    where = f"goes to logical block {logical}, offset {offset}"
    if logical >= MAX_LOGICAL_BLOCKS:
        where = f"needs logical block {logical}, which does not exist"
    return (
        f"Here the grader sets kv_count of {sequence} to {places[0]}, so that the next append {where}, "
        "without all the appends before it, as in the handout's example with record 613 (Part 2.2)."
    )
