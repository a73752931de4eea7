"""Grades a run from the command line: workers, progress, and a summary at the end."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, median

from grader.classroom import batch
from grader.classroom.locks import RunLocks
from grader.classroom.store import Run, Store
from grader.classroom.stored_result import Result
from grader.classroom.workers import Graded, Workers, processes
from grader.cli.classes import notify
from grader.cli.options import sandbox_option
from grader.cli.parser import Parser, number
from grader.cli.progress import progress
from grader.cli.terminal import console
from grader.core.case import Number
from grader.core.errors import ExitCode, ToolMissing
from grader.core.verdict import Verdict
from grader.report.escape import escape
from grader.report.phrases import NOT_RUN
from grader.system.sandbox import LEVELS, require

_MOST_JOBS = 64  # the number of unused user ids for graders
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where submissions are graded: in `jobs` processes of this machine, or by the workers of a Dask scheduler."""

    jobs: int
    executor: str | None
    """HOST:PORT of a scheduler; None: this machine."""
    sandbox: str | None

    @property
    def level(self) -> str:
        """The lowest level of protection from student code that is accepted.

        Any program that can connect to a scheduler controls all its workers. So with a scheduler the default is the
        weakest level that takes the network from student code; --require-sandbox overrides it.
        """
        return self.sandbox or ("confine" if self.executor is not None else LEVELS[0])

    def require(self) -> None:
        """Raise `Unprotected` when this machine grades and lacks the required level; workers check it for each task."""
        if self.executor is None and self.sandbox is not None:
            require(self.sandbox)

    def workers(self, count: int) -> tuple[Workers, int]:
        """Return the workers for `count` submissions, and how many tasks they have at once."""
        if self.executor is None:  # per process one task under way and one waiting: this limits memory
            return partial(processes, min(self.jobs, max(1, count))), 2 * self.jobs
        try:
            from grader.classroom.dask_cluster import WINDOW, cluster
        except ModuleNotFoundError as error:
            if error.name not in ("distributed", "dask"):
                raise
            raise ToolMissing("distributed (for --executor)", "scripts/setup --dask") from error
        return partial(cluster, self.executor, notify), WINDOW


def where_options(parser: Parser) -> None:
    """Declare --jobs, --executor and --require-sandbox."""
    text = "So many submissions are graded at once on this machine [default: one for each processor]."
    default = min(_MOST_JOBS, len(os.sched_getaffinity(0)))
    parser.option("--jobs", metavar="N", type=number(Number("jobs", 1, _MOST_JOBS)), default=default, help=text)
    text = "Not on this machine, but on the workers of the Dask scheduler there: dask://HOST:PORT."
    parser.option("--executor", metavar="WHERE", type=_scheduler, help=text)
    sandbox_option(parser)


def _scheduler(word: str) -> str:
    match = re.fullmatch(r"dask://((?:[\w.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5}))", word)
    if match is None or int(match[2]) not in range(1, 1 << 16):
        raise argparse.ArgumentTypeError(f"write dask://HOST:PORT, such as dask://127.0.0.1:8786, not '{word}'")
    return match[1]


def grade_all(
    store: Store, path: Path, run: Run, *, where: Where, claimed: RunLocks, again: Collection[str] = ()
) -> int:
    """Grade the submissions without a record, and show progress. Finished results stay stored, however it ends.

    Submissions named in `again` are graded again. Returns how many of these could not be: they keep their old record.
    """
    waiting: Counter[str] = Counter()
    anew: dict[str, Result] = {}
    total = failing = graded = 0
    for result in store.results(run):
        total += 1
        failing += result.is_graded and result.verdict is not Verdict.ACCEPTED
        graded += result.is_graded and result.name not in again
        if result.name in again:
            anew[result.entry.key] = result
        if result.entry.source is not None:
            waiting[result.entry.key] += not result.is_graded or result.name in again
    notify(f"run {run.id}: {_count(total, 'submission')}, {graded} of them graded already")
    workers, window = where.workers(waiting.total())
    failed: list[Graded] = []

    def show(task_result: Graded) -> None:
        tell(task_result, waiting[task_result.key])
        if task_result.key in anew:
            failed.extend([task_result] if task_result.kept is None else [])
            _tell_anew(anew[task_result.key], task_result)

    with progress(total, done=total - waiting.total(), failing=failing) as tell:
        try:
            batch.grade_run(
                store,
                run,
                workers,
                claimed,
                window=window,
                tell=show,
                level=where.level,
                again=anew,
            )
        except KeyboardInterrupt:
            notify(f"what is finished is kept in {path}; the same command goes on from there")
            raise
    return len(failed)


def _tell_anew(before: Result, now: Graded) -> None:
    """Report the result of grading a submission again, beside the result before."""
    had = f"{before.kept.score} points" if before.kept is not None else "no score"
    if now.kept is None:
        notify(f"{before.name}: it could not be graded again, and has {had} as before: {now.failure}")
    else:
        same = "as before" if f"{now.kept.score} points" == had else f"{had} before"
        notify(f"{before.name}: {now.kept.score} points, {same}")


def summary(store: Store, run: Run, *, failed: int = 0) -> ExitCode:
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
    for result in store.results(run):  # one by one: all records together may be large
        table.add_row(*map(Text, _row(result)))
        accepted += result.verdict is Verdict.ACCEPTED
        if result.score is None:
            (people if result.needs_person else without).append(_why(result))
        else:
            scores.append(result.score)
    console(160).print(table)
    parts = [_count(table.row_count, "submission"), f"{accepted} accepted", f"{len(scores) - accepted} not"]
    if scores:
        parts.append(f"points: mean {mean(scores):.1f}, median {median(scores):g} of {run.max_score}")
    if batch.settings_of(run).public_only:
        parts.append(f"public part: {NOT_RUN}")
    print(f"run {run.id}: {', '.join(parts)}")
    _list("no score until a person has looked at it", people, most=len(people))
    _list("no score yet, and tried again by the same command", without)
    _list("in the roster, but handed in nothing", [student.name for student in store.missing(run)])
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
    rule = result.kept.rule if result.kept is not None else None
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
