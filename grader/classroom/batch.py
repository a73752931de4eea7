"""Grade a class: list its submissions as a run, grade them on workers, and store each result at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from json import dumps, loads
from pathlib import Path

from grader.assignment.lab import Lab, Settings
from grader.assignment.source import Source
from grader.classroom.database import RunLocks
from grader.classroom.discover import Submitted
from grader.classroom.roster import Roster
from grader.classroom.store import Run, Store
from grader.classroom.stored_result import Entry
from grader.classroom.workers import (
    Graded,
    GradingPlan,
    Task,
    Workers,
    grade,
    grading_plan,
    meant_headers,
    outcome,
    source_id,
)
from grader.core.errors import StoreFailure
from grader.core.record import Override, Student
from grader.core.sanitize import one_line
from grader.core.verdict import Finding, Judged, Tool, Verdict
from grader.system.sandbox import LEVELS

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 1.0

Tell = Callable[[Graded], None]
"""Called with each stored record and each failed grading."""


def plan(
    store: Store,
    grading: GradingPlan,
    folder: Path,
    submitted: Iterable[Submitted],
    *,
    overrides: Collection[Override] = (),
    roster: Roster | None = None,
    earlier: Collection[Entry] = (),
) -> Run:
    """Store the submissions to grade as a run, and return the run. If an identical run exists, it is continued."""
    entries, sources = [_planned(entry, grading) for entry in earlier], {}
    names = {entry.submission for entry in earlier}
    for submission in submitted:
        if submission.name in names:  # the export lists it, but does not contain it
            continue
        source, known = submission.source, None
        if source is not None:
            source = replace(source, own_headers=meant_headers(source))
            known = source_id(source)
            sources[known] = source
        entry = Entry(
            submission=submission.name,
            students=submission.students,
            notes=source.notes if source is not None else (),
            source=known,
            key=grading.key(known) if known is not None else sha256(submission.failure.encode()).hexdigest(),
            failure=submission.failure,
        )
        entries.append(entry)
    entries.sort(key=lambda entry: entry.submission)
    store.add_sources(sources.items())
    run = _run(grading, place_of(folder), roster)
    return store.add_run(run, entries, overrides, _missing(roster, entries))


def earlier_entries(
    store: Store, run: Run | None, submitted: Collection[Submitted], roster: Roster | None
) -> tuple[Entry, ...]:
    """Return the entries of an earlier run that have no newer submission.

    A submission in `submitted` replaces the entry of the same name, and all entries of the same students. Students are
    the same if their sid or email is the same.
    """
    if run is None:
        return ()
    entries = [result.entry for result in store.results(run)]
    there = [submission for submission in submitted if not submission.is_absent]
    names = {submission.name for submission in there}
    people = _identities(student for submission in there for student in submission.students)
    who = roster.students(entry.submission for entry in entries) if roster is not None else {}
    earlier = []
    for entry in entries:
        students = who.get(entry.submission) or entry.students
        left = _without(students, people)
        is_replaced = entry.submission in names or (bool(students) and not left)
        # drops a file that could not be read and belongs to no student
        if not is_replaced and (entry.source is not None or students):
            earlier.append(replace(entry, students=left, since=entry.since or run.id))
    return tuple(earlier)


def _identities(students: Iterable[Student]) -> set[tuple[str, str]]:
    """Return the sids and emails, each of which identifies a student in another run."""
    pairs = (pair for student in students for pair in (("sid", student.sid), ("email", student.email)))
    return {pair for pair in pairs if pair[1]}


def _without(students: Iterable[Student], known: Collection[tuple[str, str]]) -> tuple[Student, ...]:
    """Return the students who have none of these `_identities`."""
    return tuple(student for student in students if _identities([student]).isdisjoint(known))


def _planned(entry: Entry, grading: GradingPlan) -> Entry:
    """Return an entry of another run as an entry of a run with this grading plan."""
    return replace(entry, key=grading.key(entry.source), failure="") if entry.source is not None else entry


def place_of(folder: Path) -> str:
    """Return the resolved path of a class's folder. It identifies the class in any working directory."""
    return one_line(str(folder.resolve()))


def replan(
    store: Store, grading: GradingPlan, run: Run, *, overrides: Collection[Override], roster: Roster | None = None
) -> Run:
    """Store a run of the same submissions as in `run`, with the current plan, and with a new roster if one is given."""
    entries = [_planned(result.entry, grading) for result in store.results(run)]
    again = replace(_run(grading, run.folder, roster), beside=run.id)
    if roster is None:
        return store.add_run(replace(again, roster=run.roster), entries, overrides, store.missing(run))
    who = roster.students(entry.submission for entry in entries)
    newer = _identities(student for entry in entries if entry.since is None for student in who[entry.submission])
    entries = [
        replace(entry, students=_without(who[entry.submission], newer if entry.since is not None else ()))
        for entry in entries
    ]
    return store.add_run(again, entries, overrides, _missing(roster, entries))


def rescore(store: Store, grading: GradingPlan, old: Run, new: Run) -> bool:
    """Store the rescored records of `old` for `new`, whose plan is `grading`, so that they are not graded again.

    Returns False if no record is rescored: nothing has changed since `old`, or more has changed than points, titles and
    places of rules and what students see. Records in which other rules lose points than before are left out,
    for example if a rule is worth nothing now: their causes differ, and only a grading can find them.
    """
    if old.judged != new.judged or old.fingerprint == new.fingerprint:
        return False
    rescored = (
        (result.stored, result.stored.rescored(grading.key(result.entry.source), grading.lab.rubric))
        for result in store.results(old)
        if result.stored is not None and result.entry.source is not None
    )
    store.add_records(now for before, now in rescored if before.loses_alike(now))
    return True


def _missing(roster: Roster | None, entries: Sequence[Entry]) -> tuple[Student, ...]:
    if roster is None:
        return ()
    known = _identities(student for entry in entries for student in entry.students)
    missing = roster.missing(entry.submission for entry in entries)
    return _without(missing, known)


def settings_of(run: Run) -> Settings:
    """Return the settings of a run. Raises `StoreFailure` if they are damaged."""
    try:
        values = {**loads(run.settings)}
        values.pop("instructions", None)  # earlier versions had this option; it changed no points
        return Settings(**{**values, "allowed": tuple(values["allowed"])})
    except (ValueError, TypeError, KeyError) as error:
        raise StoreFailure(f"how run {run.id} was graded is damaged in its store: {error}") from None


def grade_run(
    store: Store,
    run: Run,
    workers: Workers,
    run_locks: RunLocks,
    *,
    window: int,
    tell: Tell,
    level: str = LEVELS[0],
    again: Collection[str] = (),
) -> None:
    """Grade the submissions without a record, and store each result at once. At most `window` tasks are in progress.

    If a grading breaks, the submission is graded a second time, alone. If that breaks too, a person has to look at the
    submission. A later call grades it once more, because the reason may be gone.

    Submissions with a key in `again` are graded again. The old record stays until there is a new one.

    Submissions that another batch has locked are left to that batch. If it is killed, this batch grades the rest.

    Raises `OtherGrader`, and `Unprotected` if a machine that grades has less protection than `level`.
    """
    work = _OpenRun(store=store, run=run, run_locks=run_locks, tell=tell, level=level, again=frozenset(again))
    waiting = store.pending(run, again=work.again)
    while waiting:
        elsewhere: list[tuple[str, str]] = []
        for task, first in _all_but_broken(work.tasks(waiting, elsewhere), work, workers, window):
            if store.is_given_up(task.key):
                work.give_up(first)
                continue
            for _, second in _all_but_broken(iter([task]), work, workers, 1):  # run alone, it has all the memory
                work.give_up(second)
        waiting = [(key, known) for key, known in elsewhere if not work.is_done(key)]
        if waiting:
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRun:
    """A run that this process is grading."""

    store: Store
    run: Run
    run_locks: RunLocks
    tell: Tell
    level: str
    again: frozenset[str]

    def tasks(self, waiting: Iterable[tuple[str, str]], elsewhere: list[tuple[str, str]]) -> Iterator[Task]:
        """Lock and yield the tasks, reading sources one by one. Add to `elsewhere` those that other batches locked."""
        settings = settings_of(self.run)
        grading = grading_plan(settings)
        for key, known in waiting:
            if not self.run_locks.take(key):
                elsewhere.append((key, known))
            elif self.is_done(key):
                self.run_locks.give_back(key)
            else:
                try:
                    source = source_in(self.store, grading.lab, known)
                except StoreFailure as failure:
                    self.keep(Graded(key=key, failure=str(failure)))
                    continue
                yield Task(
                    key=key,
                    source=source,
                    settings=settings,
                    fingerprint=self.run.fingerprint,
                    made_of=grading.made_of,
                    level=self.level,
                )

    def is_done(self, key: str) -> bool:
        """Whether another batch has graded the submissions with this key meanwhile. If so, report their record."""
        stored = self.store.record(key) if key not in self.again else None
        if stored is not None:
            self.tell(Graded(key=key, stored=stored))
        return stored is not None

    def note(self, broken: Graded) -> None:
        """Store why a grading broke. The second grading overwrites the reason."""
        self.store.add_failure(self.run, broken.key, broken.failure)

    def give_up(self, broken: Graded) -> None:
        """Store that a grading broke twice: a person has to look at the submission."""
        why = f"its grading broke twice: {broken.failure}"
        self.store.give_up(broken.key, why)
        self.keep(replace(broken, failure=why))

    def keep(self, done: Graded) -> None:
        """Store a result, release its lock and report it."""
        if done.stored is not None:
            self.store.add_record(done.stored, again=done.key in self.again)
        self.store.add_failure(self.run, done.key, done.failure)
        self.run_locks.give_back(done.key)
        self.tell(done)


def _all_but_broken(tasks: Iterator[Task], work: _OpenRun, workers: Workers, window: int) -> list[tuple[Task, Graded]]:
    """Grade the tasks in any order. Return the tasks whose grading broke, with the reason."""
    task = next(tasks, None)
    if task is None:
        return []
    pending: dict[Future[Graded], Task] = {}
    broken: list[tuple[Task, Graded]] = []
    try:
        with workers() as executor:
            while task is not None or pending:
                while task is not None and len(pending) < window:
                    pending[executor.submit(grade, task)] = task
                    task = next(tasks, None)
                for future in wait(pending, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED).done:
                    graded = outcome(future, pending[future])
                    if graded.broke:
                        work.note(graded)
                        broken.append((pending[future], graded))
                    else:
                        work.keep(graded)
                    del pending[future]
                work.store.database.check()
    except BaseException:
        for future in pending:  # store the results that are ready
            if future.done() and not future.cancelled() and future.exception() is None:
                work.keep(future.result())
        raise
    return broken


def source_in(store: Store, lab: Lab, known: str) -> Source:
    """Return the stored source with the id `known`. If the source could not be read, it has a finding that says why."""
    content, headers, failure = store.source(known)
    finding = None
    if failure:
        rule = lab.rubric.judged(Judged.BUILD)
        finding = Finding(rule=rule, verdict=Verdict.COMPILE_ERROR, tool=Tool.BUILD, kind="source", message=failure)
    return Source(name=lab.source_name, content=content, own_headers=headers, finding=finding)


def _run(grading: GradingPlan, folder: str, roster: Roster | None) -> Run:
    return Run(
        lab=grading.lab.name,
        folder=folder,
        settings=dumps(asdict(grading.settings)),
        fingerprint=grading.fingerprint,
        judged=grading.judged,
        max_score=grading.max_score,
        roster=roster.to_json() if roster is not None else "",
    )
