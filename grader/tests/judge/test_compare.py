"""Comparing: each operation is judged from the state the program itself was in, and no wrong program raises."""

from __future__ import annotations

from grader.runtime.protocol import Comparison, End
from grader.tests.support.mistakes import MISTAKES
from grader.tests.support.programs import changed, comparisons, made

_STORY = made(
    "story",
    """
    create_sequence 1 20 -> seq
    append_kv 1 11       -> 0
    fork_sequence 1 2    -> seq
    append_kv 2 12       -> 0
    append_kv 1 13       -> 0
    create_sequence 3 1  -> seq
    free_sequence 1      -> 0
    create_sequence 4 16 -> seq
    append_kv 4 14       -> 0
    fork_sequence 2 5    -> seq
    free_sequence 9      -> -1
    """,
    header="pool_blocks = 8",
)

_INIT, _CREATE, _FORK, _COPY, _FREE = 0, 1, 3, 4, 7
"""Operations of the story."""


def facets(comparison: Comparison) -> dict[int, set[str]]:
    """What differed, operation by operation."""
    return {
        operation: {difference.facet for difference in judgement.differences}
        for operation, judgement in comparison.wrong.items()
    }


def story(*replacements: tuple[str, str]) -> Comparison:
    """The story, played by the right program with these changes."""
    (comparison,) = comparisons(changed(*replacements), _STORY)
    assert comparison.end is End.REACHED
    return comparison


def test_a_right_program_does_not_deviate() -> None:
    """Not in one operation, not in one facet."""
    comparison = story()

    assert comparison.wrong == {}
    assert comparison.actual == comparison.expected
    assert (comparison.refused, comparison.ended_at) == (None, len(_STORY.trace.operations))


def test_a_forgotten_ref_count_is_the_forks_fault_only() -> None:
    """The appends and frees that follow do right by the counts that they find."""
    comparison = story(MISTAKES["ref-count"])

    assert facets(comparison) == {_FORK: {"ref_count"}, 10: {"ref_count"}}
