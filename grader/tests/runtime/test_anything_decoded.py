"""Whatever a program puts into a report, its decoder ignores that report at most: nothing raises.

The bodies are random words that some decoder might stumble over, from fixed seeds.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from grader.core.picture import Drawing
from grader.core.verdict import SourceLine
from grader.judge.case_findings import case_findings, unplaced
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.result.draw_states import pictures
from grader.runtime.native import lines
from grader.runtime.native.native_played import NativePlayed, NativeReplayed
from grader.runtime.native.project import NativeProgram
from grader.runtime.native.symbolize import Lines
from grader.runtime.protocol import Built, Comparison, Origin, Place
from grader.system import sandbox
from grader.tests.support.handmade import outcome, record_of
from grader.tests.support.programs import (
    by_hand,
    expected_records,
    first_case,
    native,
    observed,
    told,
)
from grader.tests.support.raising import Raising

_SEEDS = range(40)
_PROGRAM = NativeProgram(content=b"", source_name="llm_memory.c")
_LENGTHS = (0, 1, 4, 8, 12, 16, 20, 24, 40, 72, 80, 272, 400)
_ODD = (0, 1, 2, 3, 5, 7, 11, 64, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 2, 2**64 - 1)
_RECORD_WORDS = len(expected_records(first_case())[1]) // 4


def any_body(chance: random.Random) -> bytes:
    """A body of random length and words, which may be 32 bits wide."""
    size, pattern = chance.choice(((8, "<Q"), (4, "<I")))
    words = [chance.choice((*_ODD, chance.randrange(300))) % (1 << 8 * size) for _ in range(100)]
    return b"".join(struct.pack(pattern, word) for word in words)[: chance.choice(_LENGTHS)]


def any_lines(stacks: Iterable[tuple[int, ...]]) -> Lines:
    """Lines on most of these stacks, also such as only `#line` makes."""
    return {stack: tuple(_line(address) for address in stack if address % 5) for stack in stacks}


def _line(address: int) -> SourceLine:
    return SourceLine(file="llm_memory.c", line=(0, 1, 40, 9_999_999)[address % 4], function=f"f{address % 3}")


_ENTRY = "state.1.engine.sequences.1.block_table.0.0"


@cache
def wrong() -> tuple[Comparison, ...]:
    """A block is missing from a table, a reply is wrong, a call crashes."""
    steps = told(expected_records(first_case())[:2])
    crash = NativePlayed(first_case(), steps=steps, ended=True, status=11)
    cases = (by_hand(first_case(), (1, _ENTRY, -1)), by_hand(first_case(), (2, "reply.returned", 2)), crash)
    return tuple(compare(one, lab().model) for one in cases)


def found_lines(monkeypatch: pytest.MonkeyPatch, *bodies: bytes) -> dict[Place, Origin]:
    """What is found where the build for lines reports these bodies, one for each case of `wrong`."""
    suspected = unplaced(case_findings(observed(*wrong()), lab(), optional=Raising())[0], range(3))
    natively = [one.played for one in wrong() if isinstance(one.played, NativePlayed)]
    played = [replace(one, lines=body) for one, body in zip(natively, bodies, strict=True)]
    assert len(suspected) == len(played)
    replayed = NativeReplayed(played=tuple(played), output=b"", cpu_seconds=0.0)
    monkeypatch.setattr(lines, "_can_be_played", lambda _: True)
    monkeypatch.setattr(lines, "replay", lambda *_, **__: replayed)
    monkeypatch.setattr(lines, "source_lines", lambda _work, _program, stacks: any_lines(stacks))
    with sandbox.workspace() as work:
        found, _ = lines.find_lines(
            work,
            wrong(),
            suspected,
            driver=native().driver,
            build=lambda _: Built(program=_PROGRAM),
            source=b"return 0;\n" * 50,
        )
    return found


def report_of_lines(*pairs: tuple[int, int], path: Sequence[int] = (), length: int | None = None) -> bytes:
    """The body of a LINES frame: a path, then numbers of words with the stores to them."""
    words = [len(path) if length is None else length, *path, *(number for pair in pairs for number in pair)]
    return struct.pack(f"<{len(words)}Q", *words)


def test_paths_and_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bodies, and reports of a path and stores with odd addresses."""
    for seed in _SEEDS:
        chance = random.Random(seed)
        pairs = [(chance.randrange(_RECORD_WORDS), chance.choice(_ODD)) for _ in range(chance.randrange(4))]
        path = [chance.choice(_ODD) for _ in range(chance.randrange(9))]
        bodies = [any_body(chance), report_of_lines(*pairs, path=path), report_of_lines(path=path)]
        chance.shuffle(bodies)

        assert len(found_lines(monkeypatch, *bodies)) <= len(wrong())


def test_states_in_pictures() -> None:
    """Records with odd words: drawn, or left out."""
    honest = expected_records(first_case())
    for seed in _SEEDS:
        chance = random.Random(seed)
        edits = [
            (chance.randrange(len(honest)), chance.randrange(80), chance.choice((-1, 0, 1, 5, 2**31 - 1, -(2**31))))
            for _ in range(chance.randrange(1, 4))
        ]
        comparison = compare(by_hand(first_case(), *edits), lab().model)
        record = record_of(outcome(first_case().name))

        assert len(pictures(record, [comparison], lab(), Drawing.ALL)) == 1
