"""Tests of the figures of `scripts/bench`: the arithmetic, the rounds, and how both are shown."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from grader.bench.__main__ import report
from grader.bench.figures import (
    Candidate,
    Figure,
    FigureGroup,
    Target,
    as_table,
    best,
    cpu_of,
    exit_code,
    ratio,
    rounds_of,
    worst,
)


def quiet(_: str) -> None:
    """Tells nobody."""


def test_a_ratio_is_the_median_of_each_rounds_own() -> None:
    """Not the quotient of medians; rounds that only one took part in do not count."""
    figure = ratio("x", [10.0, 1.0, 6.0], [10.0, 4.0, 2.0, 99.0])

    assert (figure.value, figure.low, figure.high) == (1.0, 0.25, 3.0)
    assert worst("x", [1.0, 5.0, 2.0]).value == 5.0


def test_the_best_is_the_quotient_of_the_smallest() -> None:
    """What other work added to single rounds is left out; the rounds' own quotients are shown beside it."""
    figure = best("x", [4.0, 2.0, 9.0], [1.0, 8.0, 3.0], minus=1.0)

    assert (figure.name, figure.value, figure.low, figure.high) == ("x (best of 3)", 1.0, -0.75, 3.0)


@pytest.mark.parametrize(
    ("target", "value", "held"),
    [
        (Target(3), 2.9, True),
        (Target(3), 3.0, True),
        (Target(3), 3.1, False),
        (Target(30, at_least=True), 29.9, False),
        (Target(30, at_least=True), 30.0, True),
        (None, 1.0, None),
    ],
)
def test_a_target_is_held_up_to_its_limit(target: Target | None, value: float, held: object) -> None:
    """From below or from above; without one there is nothing to hold, and only a missed one gives exit code 1."""
    figure = Figure(name="x", value=value, low=value, high=value, target=target)

    assert figure.held is held
    assert exit_code([figure]) == (1 if held is False else 0)


def test_the_reports(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has four keys each; the table fits into 100 columns and shouts where a target is missed."""
    missed = Figure(
        name="slow" * 12, value=258_000.0, low=249_000.0, high=358_000.0, target=Target(300_000, at_least=True)
    )
    fine = Figure(name="fine", value=0.031, low=-0.02, high=0.5, target=Target(0.1))
    bare = Figure(name="bare", value=1.0, low=1.0, high=1.0)
    groups = [FigureGroup("Targets", (missed, fine)), FigureGroup("Parts", (bare,))]

    assert report(groups, as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == [
        {"name": "slow" * 12, "value": 258_000.0, "target": 300_000, "held": False},
        {"name": "fine", "value": 0.031, "target": 0.1, "held": True},
        {"name": "bare", "value": 1.0, "target": None, "held": None},
    ]
    assert report(groups[1:], as_json=False) == 0
    table = as_table(groups).splitlines()
    assert max(map(len, table)) <= 100
    assert [line.split()[-1] for line in table if "=" in line] == ["MISSED", "held"]


def test_rounds_measure_everybody_side_by_side() -> None:
    """Each once a round and in changing order; a dear one only as often as it may."""
    seen: list[str] = []
    candidates = [Candidate(name, lambda name=name: seen.append(name)) for name in "abc"]  # type: ignore[misc]
    taken = rounds_of([*candidates, Candidate("dear", lambda: seen.append("dear"), most=2)], 6, quiet)
    rounds = [seen[:4], seen[4:8], *(seen[i : i + 3] for i in range(8, 20, 3))]

    assert {name: len(seconds) for name, seconds in taken.items()} == {"a": 6, "b": 6, "c": 6, "dear": 2}
    assert all(sorted(one) == sorted(set(one)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1


def test_cpu_time_is_that_of_children_and_not_of_sleep() -> None:
    """What the kernel says with wait4."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"

    assert cpu_of(lambda: subprocess.run([sys.executable, "-c", burn], check=True)) >= 0.3
    assert cpu_of(lambda: time.sleep(0.3)) < 0.2
