"""Streams as lanes, and device memory, of programs that go wrong."""

from __future__ import annotations

from grader import pipeline
from grader.core.picture import Chart, ComparedChart, Drawing
from grader.labs import open_lab
from grader.labs.offload.lab import charts
from grader.tests.support.charted import cases, text_of
from grader.tests.support.command import ROOT

_SAMPLES = ROOT / "submissions" / "offload" / "wrong_answer"


def first_charts(name: str) -> tuple[ComparedChart, ...]:
    """The charts of a sample's diagnosed case."""
    record = pipeline.grade(_SAMPLES / name, open_lab("offload"), cases("offload"), draw=Drawing.FIRST)
    assert record.first_cause is not None
    (picture,) = (drawn for drawn in record.pictures if drawn.case == record.first_cause.cases[0])
    return picture.charts


def test_streams_are_lanes_with_the_pair_marked() -> None:
    """Of a program that frees before the copy is done: there is nothing to expect beside it."""
    (lanes,) = (chart for chart in first_charts("one_kv_buffer_no_wait") if chart.actual.title.startswith("Streams"))

    first, second = lanes.actual.marks
    assert lanes.expected.tracks == ()
    assert first.track != second.track
    for mark in lanes.actual.marks:
        assert lanes.actual.tracks[mark.track].cells[mark.column] in lanes.actual.legend
    assert text_of([lanes]).count(">") == 2


def test_too_much_memory_is_shown_with_its_bound() -> None:
    """In a terminal too; where no call had too much, there is no such chart."""
    case = next(case for case in cases("offload") if case.name == "runner/memory")
    numbers = range(len(case.trace.operations))

    def drawn(most: int) -> list[Chart]:
        records = [{"notes": {"memory": [most if number == 1 else 1024, 4096], "lanes": {}}} for number in numbers]
        return list(charts(case.trace, records, 2))

    assert drawn(4096) == []
    (memory,) = drawn(9000)
    (level,) = memory.levels
    assert (max(value for value in level.values if value is not None), level.most) == (9, 4)
    assert "9/4" in text_of([ComparedChart(actual=memory, expected=Chart(title=memory.title, legend={}))])
