"""The circumstances that known mistakes name: words of the labs, sentences, and ways to refuse."""

from __future__ import annotations

import pytest

from grader.assignment.case_files import load_cases
from grader.core.model import play
from grader.labs import open_lab
from reference.operation import Operation, Reply, Trace

_LABS = ("block_pool", "scheduler", "hybrid", "offload")


def _said(reply: Reply) -> set[str]:
    """All that a known mistake may name of a reply."""
    return {*reply.circumstances, reply.clause, *([reply.text] if reply.refused else ())}


@pytest.mark.parametrize("name", _LABS)
def test_every_circumstance_that_a_known_mistake_names_occurs(name: str) -> None:
    """In a call of that mistake, in a case."""
    lab = open_lab(name)
    seen = dict[str, set[str]]()
    for case in load_cases(lab.cases, lab.grammar, seed=lab.rubric.seed):
        for operation, reply in zip(case.trace.operations, case.expected.replies, strict=True):
            seen.setdefault(operation.name, set()).update(_said(reply))
    never = [
        (one.calls, one.circumstances)
        for one in lab.mistakes
        if not any(one.circumstances <= seen.get(call, set()) for call in one.calls or seen)
    ]

    assert never == []


@pytest.mark.parametrize("name", _LABS)
def test_a_call_has_its_circumstances_when_it_is_judged(name: str) -> None:
    """The same as when the reference plays: a state that is taken over has all that they need."""
    lab = open_lab(name)
    generate = lab.generator()
    assert generate is not None
    for seed in range(4):
        trace = Trace(operations=tuple(generate(seed, 40)))
        before = None
        for step in play(lab.model(trace), trace):
            judged = lab.model(trace).judge(before, step.operation, step.record).expected

            assert judged.circumstances == step.reply.circumstances, step.operation

            before = step.record


def test_words_are_of_the_state_before_and_of_what_was_done() -> None:
    """A pool of two: of a block that one user has, a write takes the hash, which no other block has."""
    calls = (
        ("pool", (3, True, 1)),
        ("get_new_blocks", (1,)),
        ("cache_full_blocks", ((1,), ("A",))),
        ("fork_block", (1,)),
    )
    trace = Trace(operations=tuple(Operation(name=name, arguments=arguments) for name, arguments in calls))
    *_, last = play(open_lab("block_pool").model(trace), trace)

    assert last.reply.circumstances == {"alone", "hashed"}
