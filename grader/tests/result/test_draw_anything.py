"""Whatever bytes a program reports: they are compared and drawn, or left out; nothing raises, and work is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from grader.assignment import case_files
from grader.core.model import play
from grader.core.picture import Scene
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.result import draw_states
from grader.runtime.native.native_played import NativePlayed
from grader.runtime.protocol import Comparison
from grader.tests.support.programs import told


@cache
def right() -> tuple[NativePlayed, tuple[bytes, ...]]:
    """A case with a fork and a copy, and the records of a right program."""
    cases = case_files.load_folder(lab().cases, lab().grammar, seed=1, pattern="append/first_append_after_fork_copies")
    records = tuple(step.record for step in play(lab().model(cases[0].trace), cases[0].trace))
    return NativePlayed(cases[0]), records


def compared(records: Sequence[bytes]) -> Comparison:
    """What is found where a program reports these."""
    return compare(NativePlayed(right()[0].case, steps=told(records)), lab().model)


def drawn(comparison: Comparison) -> list[Scene]:
    """The operations up to one that cannot be drawn."""
    window = range(len(comparison.case.trace.operations))
    return list(draw_states._scenes(comparison, lab(), window, draw_states.Rows()))


def test_rows_of_one_side_stand_behind_those_they_follow() -> None:
    """Of both sides none is lost and none comes twice."""
    keys = [(0, name) for name in "abcdefg"]
    a, b, c, d, e, f, g = keys
    merged = list(draw_states._in_order(dict.fromkeys([b, d, f]), dict.fromkeys([a, b, c, e, f, g])))

    assert merged == [a, b, c, e, d, f, g]


def test_a_state_of_megabytes_is_not_even_decoded() -> None:
    """Neither what the call met nor what it left."""
    records = [*right()[1][:-2], bytes(1 << 20), bytes(1 << 20)]
    scenes = drawn(compared(records))

    assert len(scenes) == len(records) - 2
