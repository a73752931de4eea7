"""What changes between two runs, as `grade diff` and `grade regrade` show it."""

from __future__ import annotations

from collections.abc import Sequence

from grader.classroom.run_diff import Change
from grader.report.escape import escape

_MOST_CASES = 8


def show_changes(changes: Sequence[Change], old: int, new: int) -> None:
    """Print the changes: submissions, and below each the rules and cases that make the difference."""
    if not changes:
        print(f"no verdict and no points change from run {old} to run {new}")
        return
    print(f"from run {old} to run {new}, {len(changes)} {'submission changes' if len(changes) == 1 else 'change'}:")
    for change in changes:
        verdict = _pair(*change.verdict) if change.verdict[0] != change.verdict[1] else change.verdict[1]
        print(f"{escape(change.submission)}: {_pair(*change.score)} points, {verdict}")
        for rule, points in change.rules.items():
            print(f"    rule  {rule}: {_pair(*points)}")
        cases = list(change.cases.items())
        for case, ends in cases[:_MOST_CASES]:
            print(f"    case  {case}: {_pair(*ends)}")
        if len(cases) > _MOST_CASES:
            print(f"    and {len(cases) - _MOST_CASES} cases more")


def _pair(old: object, new: object) -> str:
    """Return the values before and after, as text."""
    return " -> ".join("none" if value is None else str(value) for value in (old, new))
