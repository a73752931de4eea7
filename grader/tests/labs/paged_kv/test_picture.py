"""Homework 3 in words: pokes as sentences."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grader.labs.paged_kv.lab import lab
from grader.labs.paged_kv.picture import describe_poke
from reference.operation import Operation


def operations(*lines: str) -> Iterator[Operation]:
    """Operations as a case file writes them, `@2` before those of the second engine."""
    for line in lines:
        *target, name = (words := line.split())[: 2 if line.startswith("@") else 1]
        arguments = tuple(int(word) for word in words[len(target) + 1 :])
        yield Operation(name=name, arguments=arguments, target=int(target[0][1:]) if target else 1)


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
