"""`grade batch`: grade a class, with progress and a summary at the end."""

from __future__ import annotations

import argparse
import fnmatch
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median

from grader.assignment.input_file import suggestion
from grader.assignment.lab import Settings
from grader.classroom import batch as batches, roster as rosters
from grader.classroom.database import RunLocks, run_locks
from grader.classroom.discover import HIDDEN, Discovered, find_submissions
from grader.classroom.fingerprint import grading_plan
from grader.classroom.roster import Roster
from grader.classroom.store import Run, Store, open_store
from grader.classroom.stored_result import Entry, Result, load_overrides
from grader.classroom.workers import Graded, ProcessPool, Workers
from grader.cli.options import HowGraded, Selection, check_options, jobs_option, lab_named, lab_of_class, sandbox_option
from grader.cli.parser import argument, option, path_option, repeated, shared
from grader.cli.stored import store_option
from grader.cli.terminal import console, notify, progress
from grader.core.errors import ExitCode, ToolMissing, UsageError
from grader.core.record import Override
from grader.core.verdict import Judged, Verdict
from grader.report.escape import escape
from grader.report.phrases import NOT_RUN
from grader.system.sandbox import LEVELS, require

_MOST_HIDDEN = 5
"""The most hidden entries that are named; the others are only counted."""
_MOST_LISTED = 20
_CLASS = """A folder for each submission, or a file or a zip for each; or a Gradescope export. All of it may be one \
zip, as learning platforms deliver it."""
_ROSTER = """Who is who: a CSV file with the columns folder (or github_username) and name, optionally sid, email and \
section [default: the roster of the previous run]."""
_OVERRIDES = "Points that people decided: a TOML file with tables [[override]] [default: those of the previous run]."
_AGAIN = "Grade this submission again although it has a record: a name, or a pattern such as 'team_*'. Repeatable."
_EXECUTOR = "Grade on the workers of a Dask scheduler, not on this machine: dask://HOST:PORT."


def _scheduler(word: str) -> str:
    match = re.fullmatch(r"dask://((?:[\w.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5}))", word)
    if match is None or int(match[2]) not in range(1, 1 << 16):
        raise argparse.ArgumentTypeError(f"write dask://HOST:PORT, such as dask://127.0.0.1:8786, not '{word}'")
    return match[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The options for where submissions are graded: in processes here, or by the workers of a Dask scheduler."""

    jobs: int = jobs_option()
    executor: str | None = option("--executor", "WHERE", _EXECUTOR, type=_scheduler)
    """HOST:PORT of a scheduler; None: this machine."""
    require_sandbox: str | None = sandbox_option()

    @property
    def level(self) -> str:
        """The lowest level of protection from student code that is accepted.

        Any program that can connect to a scheduler controls all its workers. So with a scheduler the default is the
        weakest level that takes the network from student code; --require-sandbox overrides it.
        """
        return self.require_sandbox or ("confine" if self.executor is not None else LEVELS[0])

    def require(self) -> None:
        """Raise `Unprotected` when this machine grades and lacks the required level; workers check it for each task."""
        if self.executor is None and self.require_sandbox is not None:
            require(self.require_sandbox)

    def workers(self, count: int) -> tuple[Workers, int]:
        """Return the workers for `count` submissions, and how many tasks they have at once."""
        if self.executor is None:  # per process one task under way and one waiting: this limits memory
            return partial(ProcessPool, min(self.jobs, max(1, count))), 2 * self.jobs
        try:
            from grader.classroom.dask_cluster import WINDOW, cluster
        except ModuleNotFoundError as error:
            if error.name not in ("distributed", "dask"):
                raise
            raise ToolMissing("distributed (for --executor)", "scripts/setup --dask") from error
        return partial(cluster, self.executor, notify), WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """The options for files in which an instructor says who is who and what people decided."""

    roster: Path | None = path_option("--roster", "FILE", _ROSTER)
    overrides: Path | None = path_option("--overrides", "FILE", _OVERRIDES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options of `grade batch`."""

    folder: Path = argument("FOLDER", _CLASS, type=Path)
    where: Where = shared(Where)
    store: Path = store_option()
    people: People = shared(People)
    selection: Selection = shared(Selection)
    how: HowGraded = shared(HowGraded)
    again: tuple[str, ...] = repeated("--again", "NAME", _AGAIN)


def batch(options: BatchOptions) -> ExitCode:
    """Grade a class: every submission in a folder or a zip, as a run in a store.

    Each result is stored as soon as it is there. After Ctrl-C, a kill or a crash the same command continues; results
    that did not change since an earlier run come from the store, and whoever is not in the folder any more keeps what
    was handed in for that run. A submission without a score stops no other: it is listed separately, and the same
    command tries it again. It needs a person when it cannot be read, or when grading it failed twice.

    Exit code: 0 if all have all points, 1 if some do not, 2 for a wrong option, folder or file, 3 if some have no
    score, 130 after Ctrl-C.

    Examples:
        grade batch submissions/ --roster class.csv
        grade batch assignment_123_export.zip --store hw3.sqlite --jobs 4 --again jane
        grade show jane && grade export > grades.csv
    """
    folder, store = options.folder, options.store
    lab = lab_named(options.selection.lab or lab_of_class(folder))
    how = check_options(lab, options.how.options())
    settings = Settings(
        lab=lab.name, case=options.selection.case, public_only=options.selection.public_only, **asdict(how)
    )
    plan = grading_plan(settings)
    plan.require_tools()
    options.where.require()
    roster = _roster(options, lab.name)
    discovered = find_submissions(folder, lab.source_name, lab.rubric.judged(Judged.BUILD), roster)
    _report_entries(folder, discovered, roster)
    earlier = _earlier(options, lab.name, discovered, roster)
    names = [*(submission.name for submission in discovered.submissions), *(entry.submission for entry in earlier)]
    decided = None
    if options.people.overrides is not None:
        decided = load_overrides(options.people.overrides, lab.rubric, names)
    again = _named(options.again, names)
    with open_store(store, create=True) as run_store, run_locks(store) as locks:
        if decided is None:
            decided = _decided_before(run_store, lab.name, folder)
        last = run_store.known(lab.name, batches.place_of(folder))
        run = batches.plan(
            run_store, plan, folder, discovered.submissions, overrides=decided, roster=roster, earlier=earlier
        )
        if last is not None and batches.rescore(run_store, plan, last, run):
            notify(f"since run {last.id} only points or what students see changed: its records are rescored")
        failed = grade_all(run_store, run, where=options.where, locks=locks, again=again)
        before = run_store.current(run.lab, run.folder)
        run_store.make_current(run)
        if before is not None and before.id != run.id:
            notify(f"run {run.id} counts now, instead of run {before.id}: grade diff {before.id} {run.id}")
        return summary(run_store, run, failed=failed)


def _named(patterns: Iterable[str], names: list[str]) -> set[str]:
    """Return the submissions that --again names. Raises `UsageError` with all patterns that fit none."""
    matches = {pattern: [pattern] if pattern in names else fnmatch.filter(names, pattern) for pattern in patterns}
    wrong = [
        f"--again {pattern}: there is no such submission{suggestion(pattern, names)}"
        for pattern, fitting in matches.items()
        if not fitting
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    return {name for fitting in matches.values() for name in fitting}


def _decided_before(store: Store, lab: str, folder: Path) -> tuple[Override, ...]:
    """Return the points that people decided for the run before, and report that they stay."""
    run = store.known(lab, batches.place_of(folder))
    decided = store.overrides(run) if run is not None else ()
    if run is not None and decided:
        notify(f"{len(decided)} decided by people for run {run.id} stay; --overrides FILE replaces them")
    return decided


def _roster(options: BatchOptions, lab: str) -> Roster | None:
    """Return the roster of --roster, else that of the run before, and report that it stays; None without one."""
    if options.people.roster is not None:
        return rosters.load(options.people.roster)
    if not options.store.is_file():
        return None
    with open_store(options.store) as store:
        run = store.known(lab, batches.place_of(options.folder))
        roster = rosters.from_json(run.roster) if run is not None else None
        if run is not None and roster is not None:
            notify(f"the roster of run {run.id} stays; --roster FILE replaces it")
        return roster


def _earlier(options: BatchOptions, lab: str, discovered: Discovered, roster: Roster | None) -> tuple[Entry, ...]:
    """Return what an earlier run of the class took in, and nothing newer is there for."""
    if not options.store.is_file():
        return ()
    with open_store(options.store) as store:
        run = store.known(lab, batches.place_of(options.folder))
        return batches.earlier_entries(store, run, discovered.submissions, roster)


def _report_entries(folder: Path, discovered: Discovered, roster: Roster | None) -> None:
    """Report how many entries the class has, why some are no submissions, and which ones the roster does not know."""
    graded = sum(submission.source is not None for submission in discovered.submissions)
    failing = len(discovered.submissions) - graded
    entries = len(discovered.submissions) + len(discovered.skipped)
    parts = [f"{graded} to be graded"]
    if failing:
        parts.append(f"{failing} that need a person")
    if discovered.skipped:
        parts.append(f"{len(discovered.skipped)} that are not submissions")
    notify(f"{folder}: {entries} {'entry' if entries == 1 else 'entries'}: {', '.join(parts)}")
    reasons: dict[str, list[str]] = {}
    for entry in discovered.skipped:
        reasons.setdefault(entry.reason, []).append(entry.name)
    for reason, names in reasons.items():
        shown = names[:_MOST_HIDDEN] if reason == HIDDEN else names
        more = f", and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        notify(f"  {reason}: {', '.join(shown)}{more}")
    strangers = [submission.name for submission in discovered.submissions if not submission.students]
    if roster is not None and strangers:
        notify(f"not in the roster: {', '.join(strangers)}")


def grade_all(store: Store, run: Run, *, where: Where, locks: RunLocks, again: Collection[str] = ()) -> int:
    """Grade the submissions without a record, and show progress. Finished results stay stored, however it ends.

    Submissions named in `again` are graded again. Returns how many of these could not be: they keep their old record.
    """
    waiting: Counter[str] = Counter()
    before: dict[str, Result] = {}
    total = failing = graded = failed = 0
    for result in store.results(run):
        total += 1
        failing += result.is_graded and result.verdict is not Verdict.ACCEPTED
        graded += result.is_graded and result.name not in again
        if result.name in again:
            before[result.entry.key] = result
        if result.entry.source is not None:
            waiting[result.entry.key] += not result.is_graded or result.name in again
    notify(f"run {run.id}: {_count(total, 'submission')}, {graded} of them graded already")
    workers, window = where.workers(waiting.total())

    def show(graded: Graded) -> None:
        nonlocal failed
        tell(graded, waiting[graded.key])
        if graded.key in before:
            failed += graded.stored is None
            notify(_compared(before[graded.key], graded))

    with progress(total, done=total - waiting.total(), failing=failing) as tell:
        try:
            batches.grade_run(store, run, workers, locks, window=window, tell=show, level=where.level, again=before)
        except KeyboardInterrupt:
            notify(f"finished results are kept in {store.database.path}; the same command continues from there")
            raise
    return failed


def _compared(before: Result, now: Graded) -> str:
    """Return the result of grading a submission again, beside the result before."""
    had = f"{before.stored.score} points" if before.stored is not None else "no score"
    if now.stored is None:
        return f"{before.name}: it could not be graded again and keeps {had}: {now.failure}"
    score = f"{now.stored.score} points"
    return f"{before.name}: {score}, {'as before' if score == had else f'{had} before'}"


def summary(store: Store, run: Run, *, failed: int = 0, table_of_all: bool = True) -> ExitCode:
    """Print how a run ended: a table, a summary line, and a list of those without a score. Return the exit code.

    `failed` is the number of submissions that could not be graded again and keep the score of before.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table("submission", "student", "verdict", "points", "first look at", title_justify="left")
    scores: list[int] = []
    accepted = 0
    without: list[str] = []
    people: list[str] = []
    earlier: list[str] = []
    for result in store.results(run):  # one by one: all records together may be large
        table.add_row(*map(Text, _row(result)))
        accepted += result.verdict is Verdict.ACCEPTED
        if result.entry.since is not None:
            earlier.append(f"{result.name}: from run {result.entry.since}")
        if result.score is None:
            (people if result.needs_person else without).append(_why(result))
        else:
            scores.append(result.score)
    if table_of_all:
        console(160).print(table)
    parts = [_count(table.row_count, "submission"), f"{accepted} accepted", f"{len(scores) - accepted} not"]
    if scores:
        parts.append(f"points: mean {mean(scores):.1f}, median {median(scores):g} of {run.max_score}")
    if batches.settings_of(run).public_only:
        parts.append(f"public part: {NOT_RUN}")
    print(f"run {run.id}: {', '.join(parts)}")
    _list("no score until a person has looked at it", people, most=len(people))
    _list("no score yet; the same command tries again", without)
    _list("kept, because nothing newer was handed in", earlier)
    _list("in the roster, but submitted nothing", [student.name for student in store.missing(run)])
    if people or without or failed:
        return ExitCode.JUDGE_ERROR
    return ExitCode.ACCEPTED if accepted == table.row_count else ExitCode.NOT_ACCEPTED


def _why(result: Result) -> str:
    """Return why a submission has no score, in one line."""
    why = f"{result.name}: {(result.entry.failure or 'not graded yet').partition(chr(10))[0]}"
    again = result.needs_person and result.entry.source is not None
    return f"{why} (the same command tries it once more)" if again else why


def _row(result: Result) -> list[str]:
    names = ", ".join(student.name for student in result.entry.students)
    decided = " (decided by people)" if result.overrides else ""
    points = "" if result.score is None else f"{result.score}{decided}"
    points += f" (run {result.entry.since})" if result.entry.since is not None else ""
    rule = result.stored.rule if result.stored is not None else None
    return [escape(result.name), escape(names), result.verdict or "", points, rule or ""]


def _list(what: str, lines: list[str], *, most: int = _MOST_LISTED) -> None:
    if lines:
        print(f"{what}: {len(lines)}")
    for line in lines[:most]:
        print(f"  {escape(line)}")
    if len(lines) > most:
        print(f"  and {len(lines) - most} more")


def _count(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
