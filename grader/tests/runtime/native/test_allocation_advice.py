# ruff: noqa: E501 - a replacement in C is checked more easily in one piece
"""Advice on allocations: those that fail, and those that a call can do without. One program has all of them."""

from __future__ import annotations

import re
from functools import cache

import pytest

from grader.core.case import Case
from grader.core.verdict import Advice
from grader.runtime.native.advice import ALLOCATION_FAILURE
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import POSIX, around, attempted, changed, line_of, made, second_case

_FAILURES = {
    "create_sequence crashes": "*(volatile int *)s->block_table[i] = -1; /* CRASHES */",
    "create_sequence ends the whole program": "exit(1); /* ENDS */",
    "create_sequence does not come back": "for (volatile int on = 1; on;) ; /* HANGS */",
    "create_sequence returns NULL when the allocation at line {} fails, but leaves its work half done": (
        "engine->free_local_blocks--; goto rollback;"
    ),
    "create_sequence does not notice that the allocation at line {} fails": "need = i * L2_PT_SIZE;",
    "create_sequence returns NULL when the allocation at line {} fails, but loses": "s = NULL; goto out;",
}
"""How the advice begins, and what `create_sequence` does when it gets no memory for its first, second, ... L2 table.

When there is none for the last table it tries again, as `fork_sequence` always does.
"""
_TABLES = len(_FAILURES) + 1


@cache
def failing_case() -> Case:
    """Every call that allocates, the append too."""
    blocks = _TABLES * 16
    return made(
        "allocates",
        f"create_sequence 1 {blocks * 16} -> seq; append_kv 1 5 -> 0; fork_sequence 1 2 -> seq; free_sequence 1 -> 0",
        header=f"pool_blocks = {blocks + 4}",
    )


@cache
def failing_source() -> str:
    """A program that looks at every allocation and undoes what it has done, but for these failures.

    Its `free_sequence` allocates, too, and frees that again.
    """
    careful = (SAMPLES / "accepted" / "goto_cleanup_rollback" / "llm_memory.c").read_text(encoding="utf-8")
    failures = [f"\t\t\tcase {number}: {does}\n\t\t\tbreak;" for number, does in enumerate(_FAILURES.values())]
    switch = "\n".join(["switch (i) {", *failures, "\t\t\tdefault: i--;", "\t\t\t}"])
    text = changed(
        ("#include <string.h>\n", "#include <string.h>\n#include <stdlib.h>\n"),
        ("t = malloc(TABLE_BYTES);", "t = malloc(TABLE_BYTES); /* MADE */"),
        ("if ((s->block_table[i] = table_new()) == NULL)\n\t\t\tgoto rollback;", f"if ((s->block_table[i] = table_new()) == NULL)\n\t\t\t{switch}"),
        ("if ((child->block_table[i] = table_new()) == NULL)\n\t\t\tgoto rollback;", "while ((child->block_table[i] = table_new()) == NULL)\n\t\t\t;"),
        ("rollback:\n\tshell_free(child);\n\tchild = NULL;\n", ""),
        text=careful,
    )  # fmt: skip
    scratch = "    char *volatile copy = malloc(40); /* SCRATCH */\n    if (copy == NULL)\n        return -1;\n    free(copy);"
    return around("free_sequence", scratch, text=text, top=f"{POSIX}#include <stdlib.h>\n")


@cache
def failing_advice() -> tuple[Advice, ...]:
    """The advice on it, of two cases in which memory is freed."""
    return attempted(failing_source(), failing_case(), second_case(), advise=True).advice


@pytest.mark.parametrize("words", _FAILURES)
def test_what_comes_of_a_failing_allocation(words: str) -> None:
    """One advice, at the line of the crash where there is one, with the line of the allocation."""
    allocation = line_of(failing_source(), "/* MADE */")
    (advice,) = [item for item in failing_advice() if item.message.startswith(words.format(allocation))]
    marker = re.search(r"/\* \w+ \*/", _FAILURES[words])

    assert advice.kind == ALLOCATION_FAILURE
    assert f"at line {allocation} fails" in advice.message
    assert advice.source[0].line == (line_of(failing_source(), marker[0]) if marker else allocation)
    assert advice.case == failing_case().name
