"""What people decide is checked as a whole, counts in every number, and stands in every report."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from grader import overrides
from grader.errors import ClassFileError
from grader.labs.paged_kv import lab
from grader.record import Override, from_json
from grader.report import FORMATS, GRADEBOOKS, View
from grader.tests.made import outcome, record_of
from grader.verdict import Verdict

_RIGHT = """[[override]]
submission = "alice"
rule = "address"
points = 5
reason = "the slot is right"
by = "the head TA"
"""
DECIDED = Override(submission="alice", rule="address", points=6, reason="=it is right", by="the head TA")


def loaded(folder: Path, text: str) -> tuple[Override, ...]:
    """The overrides of that text, in a class of two."""
    path = folder / "decided.toml"
    path.write_text(text, encoding="utf-8")
    return overrides.load(path, lab().rubric, ["alice", "bob"])


def test_a_file_of_overrides_is_read(tmp_path: Path) -> None:
    """Each field where it belongs; an empty file decides nothing."""
    assert loaded(tmp_path, _RIGHT) == (
        Override(submission="alice", rule="address", points=5, reason="the slot is right", by="the head TA"),
    )
    assert loaded(tmp_path, "") == ()


def test_all_mistakes_are_said_with_their_lines(tmp_path: Path) -> None:
    """Of every table, in the order of the file."""
    wrong = _RIGHT.replace('"alice"', '"alise"').replace("points = 5", "points = 7").replace("reason =", "raison =")
    again = _RIGHT.replace('"the head TA"', '" "')
    with pytest.raises(ClassFileError) as caught:
        loaded(tmp_path, f"{_RIGHT}{wrong}{again}")

    lines = [line.removeprefix(f"{tmp_path}/decided.toml:") for line in str(caught.value).splitlines()]
    assert lines == [
        '7: override.reason is missing: write reason = "...", which the student will read',
        "8: there is no submission 'alise' (did you mean alice?)",
        "10: override.points must be a whole number from 0 to 6, not 7",
        "11: unknown key 'override.raison' (did you mean reason?)",
        "15: address of alice was decided above already",
        '18: override.by is empty: write by = "...", who decided it',
    ]
    with pytest.raises(ClassFileError, match=r"decided.toml:1: override may hold tables only"):
        loaded(tmp_path, "override = 3")


def test_an_override_counts_in_every_number() -> None:
    """Rule, score and verdict are those after it; accepted is exactly who has all points."""
    record = record_of(outcome("append/one"))
    up = overrides.applied(record, [DECIDED])
    down = overrides.applied(up, [Override(submission="alice", rule="address", points=0, reason="r", by="b")])

    assert (up.score, up.verdict, up.rules[0].points, up.overrides[0].was) == (6, Verdict.ACCEPTED, 6, 1)
    assert (down.score, down.verdict) == (0, Verdict.WRONG_ANSWER)
    other = Override(submission="bob", rule="address", points=6, reason="r", by="b")
    assert overrides.applied(record, [other]) is record


def test_every_report_shows_an_override() -> None:
    """Points, reason and who decided it: for people as text, for programs as it is."""
    record = overrides.applied(record_of(outcome("append/one")), [DECIDED])
    text = FORMATS["text"](record, View())

    assert "6 of 6 points" in text
    assert "address: 6 points instead of 1, decided by the head TA: =it is right" in text
    assert "all 1 rules have full marks" not in text
    assert "decided by the head TA: =it is right" in FORMATS["html"](record, View())
    assert from_json(FORMATS["json"](record, View())).overrides == record.overrides
    (row,) = csv.DictReader(io.StringIO("".join(GRADEBOOKS["csv"]([record], []))))
    assert (row["score"], row["address"]) == ("6", "6")
    assert "the head TA: =it is right" in row["overrides"]
