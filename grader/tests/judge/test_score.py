"""From cases to points: one defect costs what it is worth, nothing is free, and nothing is taken twice."""

from __future__ import annotations

from functools import cache

import pytest

from grader.assignment import case_files
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import (
    FREE_COUNT,
    POSIX,
    around,
    by_hand,
    first_case,
    graded_text,
    judged,
    made,
)

_IMPLICIT_END = {"destroy", "leak", "memory-error"}
"""What a bad end of the llm_destroy that the grader added may cost."""


@cache
def every_case() -> tuple[Case, ...]:
    """All cases of the lab."""
    chosen = lab()
    return tuple(case_files.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed))


def counting(name: str, weight: int) -> Case:
    """A case about free_local_blocks of this weight."""
    return made(name, "create_sequence 1 5 -> seq", header=f"pool_blocks = 4; weight = {weight}", rule="free-count")


def lost(record: Record) -> set[str]:
    """The rules that lost points."""
    return {rule.rule for rule in record.rules if rule.points < rule.max_points}


@pytest.mark.parametrize(
    ("right_weights", "wrong_weights", "points"),
    [
        ((1, 1), (), 6),
        ((1,), (1,), 3),
        ((1, 1), (1,), 4),
        ((5,), (1,), 5),
        ((1,), (5,), 1),
        ((1,), (6,), 0),
        ((), (1,), 0),
        ((10,), (1,), 5),
    ],
)
def test_a_rule_earns_its_share_rounded_down(
    right_weights: tuple[int, ...], wrong_weights: tuple[int, ...], points: int
) -> None:
    """floor(points x weight passed / weight of its cases), here with six points."""
    good = [by_hand(counting(f"right{number}", weight)) for number, weight in enumerate(right_weights)]
    bad = [
        by_hand(counting(f"wrong{number}", weight), (1, FREE_COUNT, 2)) for number, weight in enumerate(wrong_weights)
    ]
    _, scores = judged(*good, *bad)
    rule = scores["free-count"]

    assert (rule.max_points, rule.points) == (6, points)
    assert (rule.cases, rule.passed) == (len(good) + len(bad), len(good))


def test_pretending_earns_nothing() -> None:
    """Who answers every call as if it were done, with a pointer to anywhere or a number, has done nothing either."""
    source = (SAMPLES / "wrong_answer" / "all_null" / "llm_memory.c").read_text(encoding="utf-8")
    source = source.replace("return NULL", "return (void *)(size_t)4").replace("return -1", "return 0")
    record = graded_text(source, *every_case())

    assert (record.verdict, record.score) == (Verdict.WRONG_ANSWER, 0)


_BAD_ENDS = {
    "crash": "volatile int *volatile nowhere = NULL; *nowhere = 1;",
    "hang": "for (volatile int on = 1; on;) { }",
    "exit": "exit(0);",
    "refusal": "return -1;",
    "free of the pool": "free(*(void *volatile *)engine);",
}


@pytest.mark.parametrize("end", _BAD_ENDS)
def test_a_bad_end_of_the_clean_up_costs_only_what_is_about_it(end: str) -> None:
    """Every case ends with the llm_destroy that the grader adds; a defect there is one defect."""
    chosen = [case for case in every_case() if case.trace.operations[-1].implicit and case.rule not in _IMPLICIT_END]
    source = around(
        "llm_destroy", f"    if (engine != NULL) {{ {_BAD_ENDS[end]} }}", top=POSIX + "#include <stdlib.h>\n"
    )
    record = graded_text(source, *chosen[:60], made("end", "create_sequence 1 5 -> seq", rule="destroy"))

    assert lost(record) <= _IMPLICIT_END
    assert "destroy" in lost(record)
    assert record.verdict is not Verdict.ACCEPTED


@pytest.mark.parametrize(
    "edit",
    [
        *((1, FREE_COUNT, 2), (2, "reply.returned", 9), (1, "state.1.engine.ref_count.0", 3)),
        *((5, "reply.returned", -7), (1, "state.1.pool_bytes", 9), (6, "reply.returned", 3)),
        *((1, "state.1.engine.sequences.1.kv_count", 7), (0, "state.1.engine.total_local_blocks", 0)),
    ],
)
def test_a_defect_that_was_seen_never_leaves_full_marks(edit: tuple[int, str, int]) -> None:
    """Also where no case of its rule caught it; then the rule of the diagnosis loses one."""
    causes, scores = judged(by_hand(first_case(), edit))
    points, most = (sum(getattr(score, name) for score in scores.values()) for name in ("points", "max_points"))

    assert causes
    assert points < most
    assert all(0 <= score.points <= score.max_points for score in scores.values())
