"""Compare two runs: which submissions change in verdict or points, by which rules and cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from grader.classroom.store import Run, Store
from grader.core.record import Record
from grader.core.verdict import Outcome

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What differs in the second run; a value that one of the runs lacks is None."""

    submission: str
    verdict: tuple[str | None, str | None]
    score: tuple[int | None, int | None]
    rules: dict[str, tuple[int | None, int | None]]
    """The points of the rules where they differ."""
    cases: dict[str, tuple[str | None, str | None]]
    """The verdicts of the cases where they differ; each case with its rule in brackets."""


def changes(store: Store, old: Run, new: Run) -> Iterator[Change]:
    """Yield the changes of all submissions whose verdict or points differ, in the order of their names."""
    before, after = _by_name(store, old), _by_name(store, new)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            change = _change(name, _record(store, old, name), _record(store, new, name))
            if change.verdict[0] != change.verdict[1] or change.score[0] != change.score[1] or change.rules:
                yield change


def _by_name(store: Store, run: Run) -> dict[str, tuple[object, ...]]:
    """Return, by submission, the values that differ where the records may differ."""
    return {
        result.name: (result.entry.key, result.is_graded, result.entry.failure, result.overrides)
        for result in store.results(run)
    }


def _record(store: Store, run: Run, name: str) -> Record | None:
    result = next(store.results(run, name), None)
    return result.record if result is not None else None


def _change(name: str, old: Record | None, new: Record | None) -> Change:
    return Change(
        submission=name,
        verdict=(old.verdict if old else None, new.verdict if new else None),
        score=(old.score if old else None, new.score if new else None),
        rules=_others(_points(old), _points(new)),
        cases=_others(_ends(old), _ends(new)),
    )


def _points(record: Record | None) -> dict[str, int]:
    return {rule.rule: rule.points for rule in record.rules} if record is not None else {}


def _ends(record: Record | None) -> dict[str, str]:
    """Return how each case ended. A case can pass by its rule and still have lost memory."""
    return (
        {f"{outcome.case} ({outcome.rule})": _end(outcome) for outcome in record.outcomes} if record is not None else {}
    )


def _end(outcome: Outcome) -> str:
    return f"passes, but {outcome.verdict}" if outcome.passed and not outcome.clean else str(outcome.verdict)


def _others(old: Mapping[str, T], new: Mapping[str, T]) -> dict[str, tuple[T | None, T | None]]:
    """Return the entries where the two differ, in the order of the first."""
    return {
        name: (old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)
    }
