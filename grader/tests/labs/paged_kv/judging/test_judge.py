"""PagedKV.judge: each facet can be provoked alone, and nothing comes of a record that is right."""
# ruff: noqa: SIM300

from __future__ import annotations

import sys
from array import array

import pytest

from grader.core.judgement import COPIED_MEMORY, SHARED_MEMORY
from grader.labs.paged_kv.judging.record import Pointer, RecordState, ReplyKind
from grader.tests.labs.paged_kv.judging import wrong
from grader.tests.labs.paged_kv.judging.edits import (
    NOTED,
    Edit,
    facets,
    judged,
    nothing,
    sequence_of,
    set_word,
    tags,
)
from grader.tests.labs.paged_kv.judging.layout import pack, pack_words
from grader.tests.labs.paged_kv.judging.played import Played
from reference.oracle import CannotGoOn
from reference.paged_kv.pool import GUARD_WORDS, magic_words
from reference.tests.paged_kv.played import SEED, operation

CALLS = [
    "create_sequence 4 30",
    "free_sequence 1",
    "fork_sequence 2 4",
    "append_kv 2 7",
    "append_kv 3 7",
    "llm_destroy",
    "create_sequence 4 0",
    "append_kv 9 7",
    "@NULL llm_destroy",
    "@2 append_kv 1 7",
    "move_l2 1 0 5",
    "unmap 1 1",
    "set_kv_count 2 16",
]


EDITS: dict[str, tuple[str, Edit, str, set[str]]] = {
    "reply": ("append_kv 2 7", wrong.reply, "reply", set()),
    "free": ("fork_sequence 1 4", wrong.free, "counters", {"too-high"}),
    "total": ("fork_sequence 1 4", wrong.total, "counters", {"too-low"}),
    "pool_base_ptr": ("fork_sequence 1 4", wrong.pool_pointer, "counters", set()),
    "lives on": ("llm_destroy", wrong.lives_on, "counters", set()),
    "gone": ("fork_sequence 1 4", wrong.gone, "counters", set()),
    "ref_count": ("free_sequence 1", wrong.ref_count, "ref_count", {"too-low"}),
    "no ref_count": ("free_sequence 1", wrong.no_ref_count, "ref_count", {"null"}),
    "more L2": ("fork_sequence 1 4", wrong.more_l2, "tables", {"shape", "ok"}),
    "less L2": ("fork_sequence 1 4", wrong.less_l2, "tables", {"shape", "null"}),
    "shared L2": ("fork_sequence 1 4", wrong.shared_l2, "tables", {"shape", "shared"}),
    "fill": ("fork_sequence 1 4", wrong.fill, "tables", {"fill"}),
    "mapping": ("fork_sequence 1 4", wrong.mapping, "tables", {"mapping"}),
    "other block": ("fork_sequence 1 4", wrong.other_block, "tables", {"mapping", "remapped"}),
    "freed L1": ("fork_sequence 1 4", wrong.freed_l1, "tables", {"shape", "freed"}),
    "shared L1": ("fork_sequence 1 4", wrong.shared_l1, "tables", {"shape", "shared"}),
    "kv_count": ("append_kv 3 7", wrong.kv_count, "fields", {"too-high"}),
    "order": ("fork_sequence 1 4", wrong.order, "list", {"order"}),
    "missing": ("fork_sequence 1 4", wrong.missing, "list", {"missing"}),
    "extra": ("free_sequence 2", wrong.extra, "list", {"extra"}),
    "one way": ("free_sequence 2", wrong.one_way, "list", {"prev"}),
    "endless": ("free_sequence 2", wrong.endless, "list", {"broken", "shared"}),
    "astray": ("free_sequence 2", wrong.astray, "list", {"broken", "stray"}),
}
"""Name -> call, edit, the only facet that may come out, its tags."""


@pytest.mark.parametrize("line", CALLS)
def test_equal_records_give_no_difference(line: str) -> None:
    """A program that did everything right is told nothing."""
    judgement = judged(line, nothing)

    assert () == judgement.differences
    assert judgement.expected.text == judgement.actual.text


@pytest.mark.parametrize("name", EDITS)
def test_each_facet_comes_alone(name: str) -> None:
    """One wrong place gives differences of its own facet, and of no other."""
    line, edit, facet, tagged = EDITS[name]
    judgement = judged(line, edit)

    assert [facet] == facets(judgement)
    assert tagged == tags(judgement) - (NOTED - tagged)


@pytest.mark.parametrize(
    ("line", "place", "value", "facet", "tagged"),
    [
        pytest.param("append_kv 2 7", 37, 8, "written", {"target"}, id="another value"),
        pytest.param("append_kv 2 7", 38, 7, "written", {"data"}, id="another slot"),
        pytest.param("append_kv 2 7", 36, 0, "written", {"zeroed"}, id="zeroed"),
        pytest.param("append_kv 2 7", -1, 7, "written", {"data", "outside"}, id="before the pool"),
        pytest.param("append_kv 3 7", 16 * 3 + 4, 9, "written", {"target", "new-block"}, id="copy: another value"),
        pytest.param("append_kv 3 7", 16 * 3 + 5, 9, "copied", {"new-block", COPIED_MEMORY}, id="copy: new block"),
        pytest.param("append_kv 3 7", 16 + 4, 7, "copied", {"shared-block", "data"}, id="copy: old block"),
        pytest.param("append_kv 3 0", 16 * 4, 0, "written", {"zeroed", "data"}, id="copy: elsewhere"),
        pytest.param("create_sequence 4 5", 48, 0, "untouched", {"zeroed"}, id="create"),
        pytest.param("free_sequence 2", 32, 1, "untouched", set(), id="free"),
        pytest.param("fork_sequence 2 4", 80, 1, "untouched", set(), id="fork"),
        pytest.param("llm_destroy", 32, 0, "untouched", {"zeroed"}, id="destroy"),
        pytest.param("set_kv_count 1 5", 16 * 6, 1, "untouched", {"outside"}, id="behind the pool"),
    ],
)
def test_pool_words_are_written_copied_or_untouched(
    *, line: str, place: int, value: int, facet: str, tagged: set[str]
) -> None:
    """Whose business a wrong word is depends on the call and, in an append, on its path."""
    judgement = judged(line, lambda state: set_word(state, place, value))

    assert [facet] == facets(judgement)
    assert {*tagged, SHARED_MEMORY} == tags(judgement) - (NOTED - {*tagged})


def test_a_wrong_seq_id_is_a_wrong_field_and_a_wrong_list() -> None:
    """The list is known by its ids."""

    def other_id(state: RecordState) -> None:
        sequence_of(state, 3).seq_id = 8

    judgement = judged("append_kv 2 7", other_id)

    assert ["list", "fields"] == facets(judgement)
    assert {"extra", "too-high"} == tags(judgement)


def test_a_zeroed_pool_gives_a_few_differences_and_the_target_first() -> None:
    """Nobody reads hundreds of them."""

    def zero(state: RecordState) -> None:
        state.slots[0].region = bytes(len(state.slots[0].region))

    judgement = judged("append_kv 2 7", zero)

    assert ["written"] * 24 == facets(judgement)
    assert "block 2, slot 5" == judgement.differences[0].field


def test_a_region_of_another_length_is_no_record_of_the_trace() -> None:
    """Only who forges a record can tell of another pool than was made; its size would be the forger's choice."""

    def longer(state: RecordState) -> None:
        set_word(state, 40, 9)
        state.slots[0].pool_bytes += 4
        state.slots[0].region += bytes(4)

    with pytest.raises(CannotGoOn, match="another pool"):
        judged("append_kv 2 7", longer)


def test_the_target_of_a_copy_is_judged_behind_any_number_of_stray_writes() -> None:
    """A program that clears the whole pool did not write its record either."""

    def zero(state: RecordState) -> None:
        state.slots[0].region = bytes(len(state.slots[0].region))

    setting = ["create_sequence 9 160", "create_sequence 1 5", "fork_sequence 1 2"]
    judgement = judged("append_kv 2 7", zero, setting=setting, blocks=20)

    assert {"copied"} == set(facets(judgement))
    assert "target" in tags(judgement)


def test_a_record_stored_elsewhere_after_a_copy_is_written_at_the_wrong_place() -> None:
    """Where in the block the record goes is the business of every append, also of one that copies."""

    def one_late(state: RecordState) -> None:
        set_word(state, 16 * 3 + 5, 7)
        _copy_word(state, 4)

    def two_bytes_late(state: RecordState) -> None:
        region = bytearray(state.slots[0].region)
        first = 4 * (GUARD_WORDS + 16 * 3 + 4)
        _copy_word(state, 4)
        region[first : first + 4] = state.slots[0].region[first : first + 4]
        region[first + 2 : first + 6] = (7).to_bytes(4, sys.byteorder)
        state.slots[0].region = bytes(region)

    def too_wide(state: RecordState) -> None:
        set_word(state, 16 * 3 + 5, 0)

    for edit in (one_late, two_bytes_late, too_wide):
        assert {"written"} == set(facets(judged("append_kv 3 7", edit)))


def test_a_record_that_a_copying_append_does_not_store_is_the_copys() -> None:
    """Neither is a word of the shared block where a record belongs, and what is in it stays whose business it is."""
    not_stored = judged("append_kv 3 7", lambda state: _copy_word(state, 4))

    assert ["copied"] == facets(not_stored)
    assert ["copied"] == facets(judged("append_kv 3 0", lambda state: set_word(state, 16 + 4, 0)))


def _copy_word(state: RecordState, slot: int) -> None:
    """Put what block 1 holds in `slot` into block 3, which is its copy."""
    words = array("i", state.slots[0].region)
    set_word(state, 16 * 3 + slot, words[GUARD_WORDS + 16 + slot])


def test_the_start_of_a_trace_has_no_record_before_it() -> None:
    """`before` is None for the first operation, whatever the model did until then."""
    played = Played(3)
    right = played.record()
    played.do("create_sequence 1 5")

    assert () == played.model.judge(None, operation("llm_init 192"), right).differences
    assert ["counters"] * 2 == facets(
        played.model.judge(None, operation("llm_init 192"), Played(2).record()[:8] + _smaller(right))
    )


def test_the_start_of_a_trace_has_no_other_engines_either() -> None:
    """What the model played before does not show up in slot @2."""
    played = Played(3, engines=2)
    right = played.record()
    played.do("@2 llm_init 64", "create_sequence 1 5")

    assert () == played.model.judge(None, operation("llm_init 192"), right).differences


def test_judging_again_gives_the_same_judgement() -> None:
    """One model judges many operations of many programs; what it keeps of earlier records stays right."""
    program = Played(6, engines=2)
    model = Played(None, engines=2).model
    steps = []
    for line in ["@2 llm_init 64", *CALLS[:5], *CALLS[7:9], "append_kv 3 9", "fork_sequence 3 5"]:
        before = program.record()
        program.do(line)
        state = program.state
        state.slots[0].region = bytes(len(state.slots[0].region))
        steps += [(before, operation(line), actual) for actual in (program.record(), pack(state))]
    once, twice = ([model.judge(*step) for step in steps] for _ in range(2))

    assert once == twice
    assert [()] * (len(steps) // 2) == [judgement.differences for judgement in once[::2]]
    assert () not in [judgement.differences for judgement in once[1::2]]


def _smaller(record: bytes) -> bytes:
    """A new engine over three blocks that believes in two."""
    words = array("i", record)[2:]
    words[3] = words[4] = 2
    return words.tobytes()


def _over_too_small_a_pool(pool_bytes: int) -> bytes:
    """What a program leaves that accepts a pool without a block."""
    engine = [pool_bytes, 1, 1, 0, 0, Pointer.OK, Pointer.OK, 1, 0]
    return pack_words([ReplyKind.ENGINE, 0, *engine]) + magic_words(SEED, 1, pool_bytes)


@pytest.mark.parametrize(("first", "second"), [(1, 32), (32, 1), (63, 61)])
def test_a_program_that_accepts_small_pools_keeps_its_engine(first: int, second: int) -> None:
    """Each of its llm_init is judged, also the next one, which meets an engine that should not be."""
    judge = Played(None).model
    before, after = _over_too_small_a_pool(first), _over_too_small_a_pool(second)

    found = [
        judge.judge(state, operation(f"llm_init {size}"), made).differences
        for state, made, size in ((None, before, first), (before, after, second))
    ]

    assert [["reply", "failing", "failing"], ["reply", "failing"]] == [
        [difference.facet for difference in differences] for differences in found
    ]
