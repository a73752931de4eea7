"""`grade batch`: a class of submissions."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from grader.assignment.input_file import suggestion
from grader.assignment.lab import Settings
from grader.classroom import batch as batches, fingerprint, overrides as decisions, roster as rosters
from grader.classroom.discover import HIDDEN, Discovered, find_submissions
from grader.classroom.locks import run_locks
from grader.classroom.roster import Roster
from grader.classroom.store import Run, Store, open_store
from grader.cli.classes import notify, roster_option, store_option
from grader.cli.grading import Where, grade_all, summary, where_options
from grader.cli.options import (
    case_option,
    chosen_lab,
    chosen_options,
    grading_options,
    lab_option,
    public_option,
    seed_option,
)
from grader.cli.parser import Parser
from grader.cli.recognise import lab_of_class
from grader.core.errors import ExitCode, UsageError
from grader.core.record import Override
from grader.core.verdict import Judged

_MOST_HIDDEN = 5
"""The most hidden entries that are named; the others are only counted."""


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    text = (
        "A folder for each submission, or a file or a zip for each; or a Gradescope export. "
        "All of it may be one zip, as learning platforms deliver it."
    )
    parser.argument("folder", metavar="FOLDER", type=Path, help=text)
    where_options(parser)
    store_option(parser)
    roster_option(parser)
    text = "Points that people decided: TOML with tables [[override]]; left out: those of the run before."
    parser.option("--overrides", metavar="FILE", type=Path, help=text)
    lab_option(parser)
    case_option(parser)
    public_option(parser)
    seed_option(parser)
    grading_options(parser)
    text = "Grade this one anew, though its record is kept: its name, or a pattern such as 'team_*'."
    parser.option("--again", metavar="NAME", action="append", default=[], help=text)


def batch(
    folder: Path,
    *,
    jobs: int,
    executor: str | None,
    store: Path,
    roster: Path | None,
    overrides: Path | None,
    lab: str | None,
    case: str,
    public_only: bool,
    seed: int | None,
    without_memory_checker: bool,
    advice: bool,
    allow: list[str],
    again: list[str],
    require_sandbox: str | None,
) -> ExitCode:
    """Grade a class: every submission in a folder or a zip, as a run in a store.

    Each result is stored as soon as it is there. After Ctrl-C, a kill or a crash the same command goes on; results that
    did not change since an earlier run come from the store. A submission without a score stops no other: it is listed
    separately, and the same command tries it again. It needs a person when it cannot be read or has broken twice.

    Exit code: 0 all have all points, 1 some not, 2 a wrong option, folder or file, 3 some have no score, 130 Ctrl-C.

    Examples:
        grade batch submissions/ --roster class.csv
        grade batch assignment_123_export.zip --store hw3.sqlite --jobs 4 --again jane
        grade show jane && grade export > grades.csv
    """
    selected = chosen_lab(lab or lab_of_class(folder))
    plan = fingerprint.grading_plan(
        Settings(
            lab=selected.name,
            case=case,
            seed=seed,
            memory_checker=not without_memory_checker,
            advise=advice,
            allowed=tuple(sorted(set(allow))),
            public_only=public_only,
        )
    )
    chosen_options(selected, plan.settings)
    plan.require_tools()
    where = Where(jobs=jobs, executor=executor, sandbox=require_sandbox)
    where.require()
    people = rosters.load(roster) if roster is not None else _roster_before(store, plan.lab.name, folder)
    discovered = find_submissions(folder, plan.lab.source_name, plan.lab.rubric.judged(Judged.BUILD), people)
    _tell_entries(folder, discovered, people)
    names = [submission.name for submission in discovered.submissions]
    decided = decisions.load(overrides, plan.lab.rubric, names) if overrides is not None else None
    anew = _named(again, names)
    with open_store(store, create=True) as run_store, run_locks(store) as claimed:
        if decided is None:
            decided = _decided_before(run_store, plan.lab.name, folder)
        run = batches.plan(run_store, plan, folder, discovered.submissions, overrides=decided, roster=people)
        failed = grade_all(run_store, store, run, where=where, claimed=claimed, again=anew)
        _make_current(run_store, run)
        return summary(run_store, run, failed=failed)


def _named(patterns: list[str], names: list[str]) -> set[str]:
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


def _make_current(store: Store, run: Run) -> None:
    """Make this run the one that counts, and report which run it replaces."""
    before = store.current(run.lab, run.folder)
    store.make_current(run)
    if before is not None and before.id != run.id:
        notify(f"run {run.id} counts now, in the place of run {before.id}: grade diff {before.id} {run.id}")


def _decided_before(store: Store, lab: str, folder: Path) -> tuple[Override, ...]:
    """Return the points that people decided for the run before, and report that they stay."""
    run = store.known(lab, batches.place_of(folder))
    decided = store.overrides(run) if run is not None else ()
    if run is not None and decided:
        notify(f"{len(decided)} decided by people for run {run.id} stay; --overrides FILE would replace them")
    return decided


def _roster_before(store: Path, lab: str, folder: Path) -> Roster | None:
    """Return the roster of the run before, and report that it stays; None when there is none."""
    if not store.is_file():
        return None
    with open_store(store) as run_store:
        run = run_store.known(lab, batches.place_of(folder))
        people = rosters.from_json(run.roster) if run is not None else None
        if run is not None and people is not None:
            notify(f"the roster of run {run.id} stays; --roster FILE would replace it")
        return people


def _tell_entries(folder: Path, discovered: Discovered, people: Roster | None) -> None:
    """Report how many entries the class has, why some are no submissions, and which ones the roster does not know."""
    graded = sum(submission.source is not None for submission in discovered.submissions)
    failing = len(discovered.submissions) - graded
    entries = len(discovered.submissions) + len(discovered.skipped)
    parts = [f"{graded} to be graded"]
    if failing:
        parts.append(f"{failing} that a person has to look at")
    if discovered.skipped:
        parts.append(f"{len(discovered.skipped)} that are no submissions")
    notify(f"{folder}: {entries} {'entry' if entries == 1 else 'entries'}: {', '.join(parts)}")
    reasons: dict[str, list[str]] = {}
    for entry in discovered.skipped:
        reasons.setdefault(entry.reason, []).append(entry.name)
    for reason, names in reasons.items():
        shown = names[:_MOST_HIDDEN] if reason == HIDDEN else names
        more = f", and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        notify(f"  {reason}: {', '.join(shown)}{more}")
    strangers = [submission.name for submission in discovered.submissions if not submission.students]
    if people is not None and strangers:
        notify(f"not in the roster: {', '.join(strangers)}")
