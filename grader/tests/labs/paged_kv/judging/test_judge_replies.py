"""PagedKV.judge: replies, refused calls, and other engines than the called one."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array

import pytest

from grader.labs.paged_kv.judging.record import Pointer, RecordState, ReplyKind
from grader.tests.labs.paged_kv.judging.edits import (
    Edit,
    engine_of,
    facets,
    judged,
    nothing,
    sequence_of,
    set_word,
    tags,
)

REFUSED = [
    "create_sequence 1 5",
    "append_kv 9 7",
    "fork_sequence 1 2",
    "free_sequence 9",
    "@NULL append_kv 1 7",
]
TAGS = {"pool": {"written", "copied", "untouched"}}
"""The facets of a pool word, by the call that changed it."""


def returns(kind: ReplyKind, value: int) -> Edit:
    """A program that returns something else."""

    def edit(state: RecordState) -> None:
        state.reply_kind, state.reply_value = kind, value

    return edit


def foreign_edits() -> dict[str, Edit]:
    """Facet -> an edit that, in engine @2, would be of that facet."""

    def counters(state: RecordState) -> None:
        engine_of(state, 2).free_local_blocks -= 1

    def ref_count(state: RecordState) -> None:
        engine_of(state, 2).ref_count[0] += 1

    def tables(state: RecordState) -> None:
        sequence_of(state, 1, 2).l1[0], sequence_of(state, 1, 2).tables[0] = Pointer.NULL, None

    def fields(state: RecordState) -> None:
        sequence_of(state, 1, 2).kv_count += 1

    def in_list(state: RecordState) -> None:
        engine_of(state, 2).sequences.pop()

    def pool_word(state: RecordState) -> None:
        set_word(state, 3, 5, number=2)

    return {
        "counters": counters,
        "ref_count": ref_count,
        "tables": tables,
        "fields": fields,
        "list": in_list,
        "pool": pool_word,
    }


@pytest.mark.parametrize(
    ("line", "kind", "value", "text"),
    [
        ("append_kv 2 7", ReplyKind.INT, 5, "5"),
        ("append_kv 2 7", ReplyKind.NOTHING, 0, ""),
        ("fork_sequence 1 4", ReplyKind.SEQUENCE, 1, "a pointer to sequence 1"),
        ("create_sequence 4 5", ReplyKind.SEQUENCE, 2, "a pointer to sequence 2"),
        ("create_sequence 4 5", ReplyKind.NULL, 0, "NULL"),
        ("create_sequence 4 5", ReplyKind.STRAY, 0, "a pointer to something else"),
        ("@2 llm_init 64", ReplyKind.SEQUENCE, 4, "a pointer to sequence 4"),
        ("llm_destroy", ReplyKind.ENGINE, 0, "engine"),
        ("llm_destroy", ReplyKind.SEQUENCE, 1, "a pointer to sequence 1"),
    ],
)
def test_a_wrong_reply_is_told_in_words(line: str, kind: ReplyKind, value: int, text: str) -> None:
    """The reply is a facet of its own, and the judgement knows what was returned instead."""
    setting = ["@2 llm_destroy", "create_sequence 1 20", "create_sequence 2 5"]
    judgement = judged(line, returns(kind, value), setting=setting)

    assert ["reply"] == facets(judgement)
    assert text == judgement.actual.text
    assert f"what {line.removeprefix('@2 ').split()[0]} returns" == judgement.differences[0].field


@pytest.mark.parametrize("line", ["create_sequence 4 5", "fork_sequence 1 4"])
def test_the_right_sequence_is_called_seq(line: str) -> None:
    """As in a case file."""
    assert "seq" == judged(line, nothing).actual.text


@pytest.mark.parametrize("line", REFUSED)
def test_a_refused_call_that_changed_something_is_failing(line: str) -> None:
    """Whatever it changed, in whichever engine; the tags remember the facet."""
    for facet, edit in foreign_edits().items():
        judgement = judged(line, edit)

        assert {"failing"} == set(facets(judgement))
        assert tags(judgement) & TAGS.get(facet, {facet})


def test_a_refused_call_that_changed_its_own_engine_is_failing() -> None:
    """Also when the reply is right."""

    def takes_a_block(state: RecordState) -> None:
        engine_of(state).free_local_blocks -= 1

    judgement = judged("create_sequence 1 5", takes_a_block)

    assert ["failing"] == facets(judgement)
    assert {"counters", "too-low"} == tags(judgement)


@pytest.mark.parametrize("line", REFUSED)
def test_a_call_accepted_instead_of_refused_is_failing_besides_its_reply(line: str) -> None:
    """Though it left everything as it was."""
    judgement = judged(line, returns(ReplyKind.INT, 0))

    assert ["reply", "failing"] == facets(judgement)
    assert ("refused", "accepted") == (judgement.differences[1].expected, judgement.differences[1].actual)


@pytest.mark.parametrize(
    ("line", "kind", "value"),
    [("create_sequence 1 5", ReplyKind.INT, -1), ("append_kv 9 7", ReplyKind.NULL, 0)],
)
def test_a_call_refused_in_the_wrong_words_is_not_failing(line: str, kind: ReplyKind, value: int) -> None:
    """-1 and NULL both refuse."""
    assert ["reply"] == facets(judged(line, returns(kind, value)))


@pytest.mark.parametrize("line", ["append_kv 2 7", "append_kv 3 7", "free_sequence 1", "llm_destroy"])
@pytest.mark.parametrize("facet", foreign_edits())
def test_what_happens_to_another_engine_is_isolation(line: str, facet: str) -> None:
    """Whatever it is; the tags remember the facet."""
    judgement = judged(line, foreign_edits()[facet])

    assert {"isolation"} == set(facets(judgement))
    assert all(difference.field.startswith("engine @2: ") for difference in judgement.differences)
    assert tags(judgement) & TAGS.get(facet, {facet})


def test_the_called_engine_is_not_isolated_from_its_own_call() -> None:
    """In a call to @2, engine @1 is the other one."""

    def both(state: RecordState) -> None:
        for number in (1, 2):
            engine_of(state, number).free_local_blocks += 1

    assert ["isolation", "counters"] == facets(judged("@2 append_kv 1 7", both))


def test_another_engines_disappearance_is_isolation() -> None:
    """One llm_destroy ends one engine."""

    def both_gone(state: RecordState) -> None:
        state.slots[1].engine = None

    assert ["isolation"] == facets(judged("llm_destroy", both_gone))


def test_a_program_that_forgot_to_do_anything_differs_in_all_it_should_have_done() -> None:
    """A refusal instead of a new sequence: reply, counts, list."""

    def refuses(state: RecordState) -> None:
        state.reply_kind, state.reply_value = ReplyKind.NULL, 0
        engine = engine_of(state)
        engine.sequences.pop()
        engine.free_local_blocks += 1
        engine.ref_count = array("i", [2, 2, 1, 0, 0, 0])

    judgement = judged("create_sequence 4 5", refuses)

    assert ["reply", "counters", "ref_count", "list"] == facets(judgement)
