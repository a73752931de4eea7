# ruff: noqa: E501 - a replacement in C is checked more easily in one piece
"""Programs that copy a block or store a record in another way, and cases in which they do both."""

from __future__ import annotations

from grader.core.case import Case
from grader.tests.support.programs import changed, made

_COPY = "        memcpy(getBlockAddress(engine, newBlock), getBlockAddress(engine, oldBlock), BLOCK_SIZE);\n"
STORE = "    getBlockAddress(engine, sequence->block_table[l1][l2])[offset] = kv_data;"


def copying(lines: str) -> str:
    """The right program with another copy in its copy-on-write."""
    return changed((_COPY, f"        int *to = getBlockAddress(engine, newBlock), *from = getBlockAddress(engine, oldBlock);\n        {lines}\n"))  # fmt: skip


def storing(lines: str, *, text: str = "") -> str:
    """The right program that stores its KV record in another way; `slot` is where it belongs."""
    return changed((STORE, f"    int *block = getBlockAddress(engine, sequence->block_table[l1][l2]), *slot = block + offset;\n    (void)slot;\n    {lines}"), text=text)  # fmt: skip


def story(blocks: int = 4) -> tuple[Case, ...]:
    """Everything that a pool goes through; the second case has the shared block behind the new one."""
    header, name = f"pool_blocks = {blocks}", "" if blocks == 4 else str(blocks)
    first = "create_sequence 1 21 -> seq; append_kv 1 11 -> 0; fork_sequence 1 2 -> seq; append_kv 2 12 -> 0;"
    second = "create_sequence 9 1 -> seq; create_sequence 1 5 -> seq; free_sequence 9 -> 0; fork_sequence 1 2 -> seq;"
    return (
        made(
            f"first{name}",
            first + "append_kv 1 13 -> 0; free_sequence 1 -> 0; free_sequence 2 -> 0",
            header=header,
            rule="cow",
        ),
        made(f"second{name}", second + "append_kv 2 12 -> 0; free_sequence 2 -> 0", header=header, rule="cow"),
    )
