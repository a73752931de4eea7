"""Homework 3 in words and pictures: pokes as sentences, states as drawings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text

from grader.core.model import play
from grader.labs.paged_kv.drawing import describe_poke, draw
from grader.labs.paged_kv.judging.model import PagedKVModel
from grader.labs.paged_kv.lab import lab
from reference.operation import Operation, Trace


def operations(*lines: str) -> Iterator[Operation]:
    """Operations as a case file writes them, `@2` before those of the second engine."""
    for line in lines:
        *target, name = (words := line.split())[: 2 if line.startswith("@") else 1]
        arguments = tuple(int(word) for word in words[len(target) + 1 :])
        yield Operation(name=name, arguments=arguments, target=int(target[0][1:]) if target else 1)


def states(*lines: str) -> list[dict[str, Any]]:
    """What the reference describes after each of the operations."""
    trace = Trace(operations=tuple(operations(*lines)), settings={"seed": 1})
    model = PagedKVModel(trace)
    return [dict(model.describe(step.record)) for step in play(model, trace)]


def drawn(*lines: str) -> list[str]:
    """The drawing after the last operation, without its colours."""
    return shown(states(*lines)[-1])


def shown(described: dict[str, Any]) -> list[str]:
    """A drawing without its colours."""
    return [Text.from_markup(line).plain for line in draw(described)]


@pytest.mark.parametrize(
    ("poke", "words"),
    [
        ("move_l2 1 0 15", "moves an L2 table of sequence 1 from block_table[0] to block_table[15]"),
        ("unmap 7 18", "takes logical block 18 away from sequence 7: block_table[1][2] becomes -1"),
        (
            "set_kv_count 1 613",
            "sets kv_count of sequence 1 to 613, so that the next append goes to logical block 38",
        ),
        ("set_kv_count 1 4096", "needs logical block 256, which does not exist"),
        ("@2 unmap 1 0", "sequence 1 of engine 2"),
    ],
)
def test_a_poke_is_one_sentence_for_students(poke: str, words: str) -> None:
    """It says who does what, and which part of the handout allows it."""
    sentence = describe_poke(next(operations(poke)))

    assert words in sentence
    assert sentence.startswith("Here the grader ")
    assert sentence.endswith("2).")
    assert sentence.count(". ") == 0


def test_every_poke_of_the_grammar_is_described() -> None:
    """A new poke must not fall to the words of another."""
    pokes = {name for name, signature in lab().grammar.operations.items() if signature.is_poke}

    assert pokes == {"move_l2", "unmap", "set_kv_count"}


def test_an_empty_engine() -> None:
    """A ring of the head alone, all blocks in one row."""
    assert drawn("llm_init 256") == [
        "engine 1   free_local_blocks 4 of total_local_blocks 4",
        "  active_seqs   head <-> head   (empty: prev and next point to the head itself)",
        "         block  ref_count   0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15",
        "        0 to 3          0   .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .",
        "  . not written yet",
    ]


def test_a_copy_on_write() -> None:
    """Two sequences, two blocks; what was copied without being written names its origin."""
    lines = drawn("llm_init 128", "create_sequence 1 1", "append_kv 1 11", "fork_sequence 1 2", "append_kv 2 99")

    assert lines[1:] == [
        "  active_seqs   head <-> 1 <-> 2 <-> head",
        "  sequence 1   kv_count 2   next record: block_table[0][0], offset 2",
        "    ├─ block_table[0]    0 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1",
        "    └─ the other 15 slots  NULL",
        "  sequence 2   kv_count 3   next record: block_table[0][0], offset 3",
        "    ├─ block_table[0]    1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1",
        "    └─ the other 15 slots  NULL",
        "         block  ref_count   0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15",
        "             0          1   . 11  .  .  .  .  .  .  .  .  .  .  .  .  .  .",
        "             1          1  =0 11 99 =0 =0 =0 =0 =0 =0 =0 =0 =0 =0 =0 =0 =0",
        "  . not written yet; =0 not written, but copied from block 0",
    ]


def test_a_table_that_was_moved() -> None:
    """The tree shows where the tables hang now."""
    lines = drawn("llm_init 1152", "create_sequence 1 272", "move_l2 1 1 15")

    assert "    ├─ block_table[15]  16 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1" in lines


def test_a_full_sequence_is_folded() -> None:
    """Tables in order are one line, so are blocks of one kind."""
    lines = drawn("llm_init 16384", "create_sequence 1 4096")

    assert "  sequence 1   kv_count 4096   next record: nowhere, it is full" in lines
    assert "    └─ block_table[0] to [15]  blocks 0 to 255, in order" in lines
    assert any(line.startswith("      0 to 255          1   .") for line in lines)


def test_several_engines_stand_one_below_the_other() -> None:
    """Each with its own pool; the legend comes once."""
    lines = drawn("llm_init 64", "@2 llm_init 128", "@2 create_sequence 5 1")

    assert [line for line in lines if line.startswith("engine")] == [
        "engine 1   free_local_blocks 1 of total_local_blocks 1",
        "engine 2   free_local_blocks 1 of total_local_blocks 2",
    ]
    assert sum("not written yet" in line for line in lines) == 1


def test_a_destroyed_engine_leaves_its_pool() -> None:
    """The pool belongs to the caller, and what was written is still there."""
    lines = drawn("llm_init 64", "create_sequence 1 1", "append_kv 1 7", "llm_destroy")

    assert lines[0] == "engine 1   does not exist; its pool of 64 bytes is there"
    assert "             0              .  7  ." in lines[2]


def test_no_engine_at_all() -> None:
    """Before the first llm_init there is nothing to draw."""
    assert shown({"engines": {}}) == ["no engine yet"]


def test_long_numbers_take_more_lines() -> None:
    """A block of words of eleven letters is drawn in several rows, none too wide."""
    lines = drawn("llm_init 64", "create_sequence 1 1", "append_kv 1 -2147483648", "append_kv 1 5")

    assert any("-2147483648" in line for line in lines)
    assert max(map(cell_len, lines)) <= 100


def test_many_sequences_are_folded() -> None:
    """The first ones and the last one are drawn."""
    forks = [f"fork_sequence 1 {number}" for number in range(2, 301)]

    lines = drawn("llm_init 64", "create_sequence 1 5", *forks)

    assert lines[1].endswith("<-> 8 <-> ... <-> 299 <-> 300 <-> head")
    assert "  ... 291 more sequences ..." in lines
    assert len(lines) < 40


def test_a_crowded_pool_is_cut() -> None:
    """Two dozen rows are enough for a screen."""
    blocks = 60
    creates = [f"create_sequence {number} 1" for number in range(1, blocks + 1)]
    appends = [f"append_kv {number} {number}" for number in range(1, blocks + 1)]

    lines = drawn(f"llm_init {blocks * 64}", *creates, *appends)

    assert "           ...  and 36 blocks more" in lines


def test_a_broken_state_is_drawn_too() -> None:
    """A program's own state may have stray pointers, a broken list, and words beside the pool."""
    state = states("llm_init 128", "create_sequence 1 1")[-1]
    engine = state["engines"][1]
    engine |= {"list": "a pointer to freed memory", "outside": ["4 bytes behind the pool"]}
    engine["active_seqs"][0]["block_table"] = {0: "a pointer to freed memory", 3: [9] * 16}
    engine["pool"][0][0] = "the untouched word of the 4 bytes before the pool"
    lines = shown(state)

    assert "  active_seqs   head <-> 1 -> a pointer to freed memory" in lines
    assert "    ├─ block_table[0]   a pointer to freed memory" in lines
    assert "  written outside the blocks: 4 bytes behind the pool" in lines
    assert lines[-1] == "  . not written yet; =? not written here, but moved from another place"


def test_a_list_that_does_not_mirror_says_so() -> None:
    """prev must be next backwards."""
    state = states("llm_init 128", "create_sequence 1 1")[-1]
    state["engines"][1]["mirrored"] = False

    assert "  active_seqs   head <-> 1 <-> head   (but prev leads elsewhere)" in shown(state)


def test_long_block_ids_take_their_own_form() -> None:
    """Ids of five digits do not fit sixteen to a line; equal entries are counted."""
    state = states("llm_init 64", "create_sequence 1 1")[-1]
    state["engines"][1]["active_seqs"][0]["block_table"] = {0: [16000, 16001] + [-1] * 14}

    assert "    ├─ block_table[0]   16000, 16001, -1 x14" in shown(state)
