"""Remove what a store need not keep: named or old runs, and what no run refers to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from grader.classroom.store import Run, Store
from grader.core.errors import UsageError

_UNUSED = "WHERE key NOT IN (SELECT key FROM results WHERE run NOT IN (SELECT value FROM json_each(?)))"
_RECORDS, _GIVEN_UP = f"FROM records {_UNUSED}", f"FROM given_up {_UNUSED}"
_SOURCES = (
    "FROM sources WHERE id NOT IN (SELECT source FROM results "
    "WHERE source IS NOT NULL AND run NOT IN (SELECT value FROM json_each(?)))"
)
_RECORD_BYTES = "coalesce(sum(length(packed) + length(points)), 0)"
_SOURCE_BYTES = "coalesce(sum(length(content) + length(headers)), 0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """What would be removed."""

    runs: tuple[Run, ...]
    records: int
    sources: int
    size: int
    """In bytes."""


def chosen(store: Store, named: Collection[int], keep: int | None) -> tuple[Run, ...]:
    """Return the runs with these numbers, and of each class those older than its last `keep`.

    A run that counts always stays. Raises `UsageError` for a number without a run, or of a run that counts.
    """
    counting = {run.id for run in store.all_current()}
    for number in named:
        run = store.run(number)
        if number in counting:
            raise UsageError(
                f"run {number} is the one that counts for {run.folder}, so it stays; to let another one count: "
                f"grade diff {number} OTHER --apply"
            )
    classes: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in store.runs():
        classes[run.lab, run.folder].append(run)
    old = {run.id for runs in classes.values() if keep is not None for run in runs[: max(0, len(runs) - keep)]}
    return tuple(run for run in store.runs() if run.id in old - counting or run.id in named)


def prunable(store: Store, runs: Collection[Run]) -> Prunable:
    """Return what would be removed with these runs."""
    numbers = _numbers(runs)
    records, of_records = store.database.row(f"SELECT count(*), {_RECORD_BYTES} {_RECORDS}", numbers) or (0, 0)
    sources, of_sources = store.database.row(f"SELECT count(*), {_SOURCE_BYTES} {_SOURCES}", numbers) or (0, 0)
    return Prunable(runs=tuple(runs), records=records, sources=sources, size=of_records + of_sources)


def prune(store: Store, runs: Collection[Run]) -> None:
    """Remove these runs, all or none, and free their disk space. No other process may be using the store."""
    numbers = _numbers(runs)
    with store.database.transaction():
        for statement in (
            "UPDATE runs SET beside = NULL WHERE beside IN (SELECT value FROM json_each(?))",
            f"DELETE {_RECORDS}",
            f"DELETE {_GIVEN_UP}",
            "DELETE FROM results WHERE run IN (SELECT value FROM json_each(?))",
        ):
            store.database.change(statement, numbers)
        store.database.change(f"DELETE {_SOURCES}", numbers)
        store.database.change("DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))", numbers)
    store.database.change("VACUUM")
    for _ in store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)"):
        pass


def _numbers(runs: Collection[Run]) -> str:
    return f"[{', '.join(str(run.id) for run in runs)}]"
