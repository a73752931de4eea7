"""PagedKV.judge: each facet can be provoked alone, and nothing comes of a record that is right."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array

import pytest

from reference.paged_kv.record import Pointer, RecordState, ReplyKind
from reference.paged_kv.sequence import new_l2_table
from reference.tests.paged_kv.edits import (
    Edit,
    engine_of,
    facets,
    judged,
    nothing,
    sequence_of,
    set_word,
    tags,
)
from reference.tests.paged_kv.played import Played, operation

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


def edits() -> dict[str, tuple[str, Edit, str, set[str]]]:
    """Name -> call, edit, the only facet that may come out, its tags."""

    def reply(state: RecordState) -> None:
        state.reply_kind, state.reply_value = ReplyKind.INT, 1

    def free(state: RecordState) -> None:
        engine_of(state).free_local_blocks += 1

    def total(state: RecordState) -> None:
        engine_of(state).total_local_blocks -= 1

    def pool_pointer(state: RecordState) -> None:
        engine_of(state).pool_ok = 0

    def lives_on(state: RecordState) -> None:
        state.slots[0].engine = Played(6).engine()

    def gone(state: RecordState) -> None:
        state.slots[0].engine = None

    def ref_count(state: RecordState) -> None:
        engine_of(state).ref_count[2] -= 1

    def no_ref_count(state: RecordState) -> None:
        engine_of(state).ref_pointer, engine_of(state).ref_count = Pointer.NULL, array("i")

    def more_l2(state: RecordState) -> None:
        sequence_of(state, 1).l1[3], sequence_of(state, 1).tables[3] = Pointer.OK, new_l2_table()

    def less_l2(state: RecordState) -> None:
        sequence_of(state, 3).l1[0], sequence_of(state, 3).tables[0] = Pointer.NULL, None

    def shared_l2(state: RecordState) -> None:
        sequence_of(state, 3).l1[0] = Pointer.SHARED

    def entry(state: RecordState, *, at: int, block: int) -> None:
        table = sequence_of(state, 1).tables[0]
        assert table is not None
        table[at] = block

    def freed_l1(state: RecordState) -> None:
        sequence_of(state, 1).table = Pointer.FREED
        sequence_of(state, 1).l1, sequence_of(state, 1).tables = [], []

    def shared_l1(state: RecordState) -> None:
        sequence_of(state, 1).table = Pointer.SHARED

    def kv_count(state: RecordState) -> None:
        sequence_of(state, 3).kv_count += 1

    def order(state: RecordState) -> None:
        engine_of(state).sequences.reverse()

    def missing(state: RecordState) -> None:
        engine_of(state).sequences.pop()

    def extra(state: RecordState) -> None:
        engine_of(state).sequences.append(sequence_of(state, 1))

    def one_way(state: RecordState) -> None:
        engine_of(state).mirrored = 0

    def endless(state: RecordState) -> None:
        engine_of(state).list_pointer = Pointer.SHARED

    def astray(state: RecordState) -> None:
        engine_of(state).list_pointer = Pointer.STRAY

    return {
        "reply": ("append_kv 2 7", reply, "reply", set()),
        "free": ("fork_sequence 1 4", free, "counters", {"too-high"}),
        "total": ("fork_sequence 1 4", total, "counters", {"too-low"}),
        "pool_base_ptr": ("fork_sequence 1 4", pool_pointer, "counters", set()),
        "lives on": ("llm_destroy", lives_on, "counters", set()),
        "gone": ("fork_sequence 1 4", gone, "counters", set()),
        "ref_count": ("free_sequence 1", ref_count, "ref_count", {"too-low"}),
        "no ref_count": ("free_sequence 1", no_ref_count, "ref_count", {"null"}),
        "more L2": ("fork_sequence 1 4", more_l2, "tables", {"shape", "ok"}),
        "less L2": ("fork_sequence 1 4", less_l2, "tables", {"shape", "null"}),
        "shared L2": ("fork_sequence 1 4", shared_l2, "tables", {"shape", "shared"}),
        "fill": ("fork_sequence 1 4", lambda state: entry(state, at=5, block=0), "tables", {"fill"}),
        "mapping": ("fork_sequence 1 4", lambda state: entry(state, at=1, block=-1), "tables", {"mapping"}),
        "freed L1": ("fork_sequence 1 4", freed_l1, "tables", {"shape", "freed"}),
        "shared L1": ("fork_sequence 1 4", shared_l1, "tables", {"shape", "shared"}),
        "kv_count": ("append_kv 3 7", kv_count, "fields", {"too-high"}),
        "order": ("fork_sequence 1 4", order, "list", {"order"}),
        "missing": ("fork_sequence 1 4", missing, "list", {"missing"}),
        "extra": ("free_sequence 2", extra, "list", {"extra"}),
        "one way": ("free_sequence 2", one_way, "list", {"prev"}),
        "endless": ("free_sequence 2", endless, "list", {"broken", "shared"}),
        "astray": ("free_sequence 2", astray, "list", {"broken", "stray"}),
    }


@pytest.mark.parametrize("line", CALLS)
def test_equal_records_give_no_difference(line: str) -> None:
    """A program that did everything right is told nothing."""
    judgement = judged(line, nothing)

    assert () == judgement.differences
    assert judgement.expected.text == judgement.actual.text


@pytest.mark.parametrize("name", edits())
def test_each_facet_comes_alone(name: str) -> None:
    """One wrong place gives differences of its own facet, and of no other."""
    line, edit, facet, tagged = edits()[name]
    judgement = judged(line, edit)

    assert [facet] == facets(judgement)
    assert tagged == tags(judgement)


@pytest.mark.parametrize(
    ("line", "place", "value", "facet", "tagged"),
    [
        pytest.param("append_kv 2 7", 37, 8, "written", {"target"}, id="another value"),
        pytest.param("append_kv 2 7", 38, 7, "written", {"data"}, id="another slot"),
        pytest.param("append_kv 2 7", 36, 0, "written", {"zeroed"}, id="zeroed"),
        pytest.param("append_kv 2 7", -1, 7, "written", {"data", "outside"}, id="before the pool"),
        pytest.param("append_kv 3 7", 16 * 3 + 4, 9, "written", {"target", "new-block"}, id="copy: target"),
        pytest.param("append_kv 3 7", 16 * 3 + 5, 9, "copied", {"new-block"}, id="copy: new block"),
        pytest.param("append_kv 3 7", 16 + 4, 7, "copied", {"shared-block", "data"}, id="copy: old block"),
        pytest.param("append_kv 3 0", 16 * 4, 0, "copied", {"zeroed", "data"}, id="copy: elsewhere"),
        pytest.param("create_sequence 4 5", 48, 0, "untouched", {"zeroed"}, id="create"),
        pytest.param("free_sequence 2", 32, 1, "untouched", set(), id="free"),
        pytest.param("fork_sequence 2 4", 80, 1, "untouched", set(), id="fork"),
        pytest.param("llm_destroy", 32, 0, "untouched", {"zeroed"}, id="destroy"),
        pytest.param("set_kv_count 1 5", 16 * 6, 1, "untouched", {"outside"}, id="behind the pool"),
    ],
)
def test_pool_words_are_written_copied_or_untouched(
    line: str, place: int, value: int, facet: str, tagged: set[str]
) -> None:
    """Whose business a wrong word is depends on the call and, in an append, on its path."""
    judgement = judged(line, lambda state: set_word(state, place, value))

    assert [facet] == facets(judgement)
    assert tagged == tags(judgement)


def test_a_wrong_seq_id_is_a_wrong_field_and_a_wrong_list() -> None:
    """The list is known by its ids."""

    def other_id(state: RecordState) -> None:
        sequence_of(state, 3).seq_id = 8

    judgement = judged("append_kv 2 7", other_id)

    assert ["list", "fields"] == facets(judgement)
    assert {"extra", "too-high"} == tags(judgement)


def test_differences_name_their_place_and_both_values() -> None:
    """What a student reads: the handout's name, expected and actual."""
    difference = judged(*edits()["ref_count"][:2]).differences[0]

    assert ("ref_count[2]", "1", "0") == (difference.field, difference.expected, difference.actual)


def test_a_wrong_word_is_named_by_block_and_slot() -> None:
    """Words that kept their magic are called untouched."""

    def forgets_to_write(state: RecordState) -> None:
        state.slots[0].region = Played(6).slot().region

    difference = judged("append_kv 2 7", forgets_to_write).differences[0]

    assert ("block 2, slot 5", "7", "untouched") == (difference.field, difference.expected, difference.actual)


def test_a_zeroed_pool_gives_a_few_differences_and_the_target_first() -> None:
    """Nobody reads hundreds of them."""

    def zero(state: RecordState) -> None:
        state.slots[0].region = bytes(len(state.slots[0].region))

    judgement = judged("append_kv 2 7", zero)

    assert ["written"] * 24 == facets(judgement)
    assert "block 2, slot 5" == judgement.differences[0].field


def test_the_target_of_a_copy_is_judged_behind_any_number_of_stray_writes() -> None:
    """A program that clears the whole pool did not write its record either."""

    def zero(state: RecordState) -> None:
        state.slots[0].region = bytes(len(state.slots[0].region))

    setting = ["create_sequence 9 160", "create_sequence 1 5", "fork_sequence 1 2"]
    judgement = judged("append_kv 2 7", zero, setting=setting, blocks=20)

    assert {"written", "copied"} == set(facets(judgement))


def test_the_start_of_a_trace_has_no_record_before_it() -> None:
    """`before` is None for the first operation, whatever the model did until then."""
    played = Played(3)
    right = played.record()
    played.do("create_sequence 1 5")

    assert () == played.model.judge(None, operation("llm_init 192"), right).differences
    assert ["counters"] * 2 == facets(
        played.model.judge(None, operation("llm_init 192"), Played(2).record()[:8] + _smaller(right))
    )


def _smaller(record: bytes) -> bytes:
    """A new engine over three blocks that believes in two."""
    words = array("i", record)[2:]
    words[3] = words[4] = 2
    return words.tobytes()
