"""Tests of the figures of `scripts/bench`: the arithmetic, the rounds, and how both are shown."""

from __future__ import annotations

import json

import pytest

from grader.bench.__main__ import as_table, report
from grader.bench.targets import Figure, FigureGroup, Target


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
