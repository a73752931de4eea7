"""`grade batch` and `grade regrade`: grade a class, and grade it again after cases, rubric or grader were changed."""

from __future__ import annotations

import argparse
import fnmatch
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median

from grader.assignment.input_file import suggestion
from grader.assignment.lab import Lab, Settings
from grader.classroom import batch as batches, roster as rosters
from grader.classroom.database import RunLocks, run_locks
from grader.classroom.discover import HIDDEN, Discovered, find_submissions
from grader.classroom.roster import Roster
from grader.classroom.store import Run, Store, change_between, changes, open_store
from grader.classroom.stored_result import Entry, Result, load_overrides
from grader.classroom.workers import Graded, GradingPlan, ProcessPool, Workers, grading_plan
from grader.cli.app import argument, flag, option, path_option, repeated, shared
from grader.cli.compare import show_regrade
from grader.cli.options import HowGraded, Selection, check_options, jobs_option, lab_named, lab_of_class, sandbox_option
from grader.cli.stored import RUN, run_named, store_option
from grader.cli.terminal import console, notify, progress
from grader.core.errors import ExitCode, ToolMissing, UsageError
from grader.core.record import Override
from grader.core.rubric import Rubric
from grader.core.verdict import Judged, Verdict
from grader.judge.score import most_points
from grader.report.escape import escape
from grader.report.phrases import NOT_RUN, counted
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
    """HOST:PORT of the scheduler whose workers grade; None: grade on this machine."""
    require_sandbox: str | None = sandbox_option()

    @property
    def level(self) -> str:
        """The lowest accepted level of protection from student code.

        Any program that can connect to a scheduler controls all its workers. So with a scheduler the default is the
        weakest level in which student code has no network. --require-sandbox overrides it.
        """
        return self.require_sandbox or ("confine" if self.executor is not None else LEVELS[0])

    def require(self) -> None:
        """Raise `Unprotected` when this machine grades and lacks the required level; workers check it for each task."""
        if self.executor is None and self.require_sandbox is not None:
            require(self.require_sandbox)

    def workers(self, count: int) -> tuple[Workers, int]:
        """Return the workers for `count` submissions, and the most tasks that the workers have at once."""
        if self.executor is None:  # per process one task in progress and one waiting: this limits memory
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
    """The options for an instructor's files: the roster, and the points that people decided."""

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

    Each result is stored at once. After Ctrl-C, a kill or a crash the same command continues. Results that did not
    change since an earlier run come from the store. A student whose submission is no longer in the folder keeps the
    submission of the earlier run.

    A submission without a score stops no other: it is listed separately, and the same command tries it again. It needs
    a person if it cannot be read, or if grading it failed twice.

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
        last = run_store.known(lab.name, batches.place_of(folder))
        if decided is None:
            decided = _decided_before(run_store, last)
        run = batches.plan(
            run_store, plan, folder, discovered.submissions, overrides=decided, roster=roster, earlier=earlier
        )
        if last is not None and options.people.overrides is None:
            _report_decided(run_store, last, run)
        if last is not None and batches.rescore(run_store, plan, last, run):
            notify(f"since run {last.id} only points or what students see changed: its records are rescored")
        failed = grade_all(run_store, run, where=options.where, locks=locks, again=again)
        before = run_store.current(run.lab, run.folder)
        run_store.make_current(run)
        if before is not None and before.id != run.id:
            notify(f"run {run.id} counts now, instead of run {before.id}: grade diff {before.id} {run.id}")
        return summary(run_store, run, failed=failed)


def _named(patterns: Iterable[str], names: list[str]) -> set[str]:
    """Return the submissions that --again names. Raises `UsageError` with all patterns that match no submission."""
    matches = {pattern: [pattern] if pattern in names else fnmatch.filter(names, pattern) for pattern in patterns}
    wrong = [
        f"--again {pattern}: there is no such submission{suggestion(pattern, names)}"
        for pattern, fitting in matches.items()
        if not fitting
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    return {name for fitting in matches.values() for name in fitting}


def _decided_before(store: Store, run: Run | None) -> tuple[Override, ...]:
    """Return the points that people decided for the previous run, and report that these decisions stay."""
    decided = store.overrides(run) if run is not None else ()
    if run is not None and decided:
        notify(f"{len(decided)} decided by people for run {run.id} stay; --overrides FILE replaces them")
    return decided


def _report_decided(store: Store, last: Run, run: Run) -> None:
    """Report the submissions with decisions of people that were made for another file than the present one."""
    before = {result.name: result.entry.source for result in store.results(last)}
    others = [
        result.name
        for result in store.results(run)
        if result.overrides and before.get(result.name, result.entry.source) != result.entry.source
    ]
    if others:
        notify(f"decided by people for an earlier file, and may be wrong for the new one: {', '.join(others)}")


def _roster(options: BatchOptions, lab: str) -> Roster | None:
    """Return the roster of --roster, or report and return that of the previous run; None if there is neither."""
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
    """Return the entries of the previous run of the class that have no newer submission."""
    if not options.store.is_file():
        return ()
    with open_store(options.store) as store:
        run = store.known(lab, batches.place_of(options.folder))
        return batches.earlier_entries(store, run, discovered.submissions, roster)


def _report_entries(folder: Path, discovered: Discovered, roster: Roster | None) -> None:
    """Report the number of entries, why some are not submissions, and the submissions that are not in the roster."""
    submissions, skipped = discovered.submissions, discovered.skipped
    unread = sum(submission.source is None for submission in submissions)
    entries = len(submissions) + len(skipped)
    parts = [f"{len(submissions) - unread} to be graded"]
    parts += [f"{unread} that need a person"] * bool(unread)
    parts += [f"{len(skipped)} that are not submissions"] * bool(skipped)
    notify(f"{folder}: {entries} {'entry' if entries == 1 else 'entries'}: {', '.join(parts)}")
    reasons: dict[str, list[str]] = {}
    for entry in skipped:
        reasons.setdefault(entry.reason, []).append(entry.name)
    for reason, names in reasons.items():
        shown = names[:_MOST_HIDDEN] if reason == HIDDEN else names
        more = f", and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        notify(f"  {reason}: {', '.join(shown)}{more}")
    handed_in = Counter(student for submission in submissions for student in submission.students)
    if several := [student.name for student, count in handed_in.items() if count > 1]:
        notify(f"more than one submission, so several rows in every table: {', '.join(several)}")
    strangers = [submission.name for submission in submissions if not submission.students]
    if roster is not None and strangers:
        notify(f"not in the roster: {', '.join(strangers)}")


def grade_all(store: Store, run: Run, *, where: Where, locks: RunLocks, again: Collection[str] = ()) -> int:
    """Grade the submissions that have no record, and show progress. However this ends, finished results stay stored.

    Submissions named in `again` are graded again. Returns how many of these failed: they keep their old record.
    """
    waiting: Counter[str] = Counter()
    before: dict[str, list[Result]] = {}
    total = failing = graded = failed = 0
    for result in store.results(run):
        total += 1
        if result.name in again:
            before.setdefault(result.entry.key, []).append(result)
        elif result.is_graded:
            graded += 1
            failing += result.verdict is not Verdict.ACCEPTED
        if result.entry.source is not None:
            waiting[result.entry.key] += not result.is_graded or result.name in again
    notify(f"run {run.id}: {counted(total, 'submission')}, {graded} of them graded already")
    workers, window = where.workers(waiting.total())

    def show(graded: Graded) -> None:
        nonlocal failed
        tell(graded, waiting[graded.key])
        for result in before.get(graded.key, ()):
            failed += graded.stored is None
            notify(_compared(result, graded))

    with progress(total, done=total - waiting.total(), failing=failing) as tell:
        try:
            batches.grade_run(store, run, workers, locks, window=window, tell=show, level=where.level, again=before)
        except KeyboardInterrupt:
            notify(f"finished results are kept in {store.database.path}; the same command continues from there")
            raise
    return failed


def _compared(before: Result, now: Graded) -> str:
    """Return in words the new result of a submission that was graded again, and its previous result."""
    had = f"{before.stored.score} points" if before.stored is not None else "no score"
    if now.stored is None:
        return f"{before.name}: it could not be graded again and keeps {had}: {now.failure}"
    score = f"{now.stored.score} points"
    return f"{before.name}: {score}, {'as before' if score == had else f'{had} before'}"


def summary(store: Store, run: Run, *, failed: int = 0, table_of_all: bool = True) -> ExitCode:
    """Print how a run ended: a table, a summary line, and lists such as the submissions without a score.

    `failed` is the number of submissions that could not be graded again and keep their old score. Returns the exit
    code.
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
        console().print(table)
    parts = [counted(table.row_count, "submission"), f"{accepted} accepted", f"{len(scores) - accepted} not"]
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
    """Return in one line why a submission has no score."""
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
    """Print a heading with the number of lines, and the first lines; nothing if there are no lines."""
    if lines:
        print(f"{what}: {len(lines)}")
    for line in lines[:most]:
        print(f"  {escape(line)}")
    if len(lines) > most:
        print(f"  and {len(lines) - most} more")


_RUBRIC = """Show what the points of this rubric would change, and store nothing. Only points, titles and places of \
rules may differ from the lab's rubric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegradeOptions:
    """The options of `grade regrade`."""

    run: int | None = argument("RUN", "The run to grade again [default: the run that counts].", nargs="?", type=RUN)
    where: Where = shared(Where)
    store: Path = store_option()
    people: People = shared(People)
    rubric: Path | None = path_option("--rubric", "FILE", _RUBRIC)
    apply: bool = flag("--apply", "Make the new run the one that counts.")


def regrade(options: RegradeOptions) -> ExitCode:
    """Grade a run again, after a case, the rubric or the grader was changed, and show what would change.

    First come the number and size of the changes, and the distribution before and after; then each change with its
    rules and cases. The submissions come from the store, and the options are those of the old run. If only points,
    titles or places of rules have changed, the records are rescored and no program is run.

    The new run is stored next to the old run, which still counts. With --apply, now or later, the new run counts. With
    --rubric nothing is stored.

    Exit code: as for grade batch; with --rubric 0 if nothing would change, else 1.

    Examples:
        grade regrade
        grade regrade --rubric other_points.toml
        grade regrade --apply
        grade regrade 3 --overrides decided.toml
    """
    if options.rubric is not None:
        return _preview(options, options.rubric)
    people = options.people
    roster = rosters.load(people.roster) if people.roster is not None else None
    with open_store(options.store) as store, run_locks(options.store) as locks:
        old = run_named(store, options.run)
        counts = store.known(old.lab, old.folder) or old
        plan = grading_plan(batches.settings_of(old))
        plan.require_tools()
        options.where.require()
        decided = store.overrides(old)
        if people.overrides is not None:
            submissions = [result.name for result in store.results(old)]
            decided = load_overrides(people.overrides, plan.lab.rubric, submissions)
        new = batches.replan(store, plan, old, overrides=decided, roster=roster)
        if batches.rescore(store, plan, old, new):
            notify(f"since run {old.id} only points or what students see changed: its records are rescored")
        grade_all(store, new, where=options.where, locks=locks)
        if new.id == old.id:
            code = summary(store, new)
            notify(f"nothing that the results depend on has changed since run {old.id}")
        else:
            differing = list(changes(store, old, new))
            before, after = (_scores(store.results(run)) for run in (old, new))
            names = f"run {old.id}", f"run {new.id}"
            show_regrade(differing, before, after, names)
            code = summary(store, new, table_of_all=False)
        if options.apply:
            store.make_current(new)
            notify(f"run {new.id} counts now" + f", instead of run {counts.id}" * (counts.id != new.id))
        elif counts.id != new.id:
            notify(f"run {counts.id} still counts; to change that: grade diff {counts.id} {new.id} --apply")
        return code


def _preview(options: RegradeOptions, path: Path) -> ExitCode:
    """Show what the points of another rubric would change. Raises `UsageError` if that rubric judges in another way."""
    people = options.people
    if options.apply or people.overrides is not None or people.roster is not None:
        raise UsageError(
            "--rubric only shows what would change, so it goes with none of --apply, --overrides and --roster; to take "
            f"these points: copy {path} over the lab's rubric.toml, then grade regrade --apply"
        )
    with open_store(options.store, read_only=True) as store:
        run = run_named(store, options.run)
        plan = grading_plan(batches.settings_of(run))
        rubric = plan.lab.read_rubric(path)
        _check_same_judging(path, rubric, plan.lab)
        if run.judged != plan.judged:
            raise UsageError(
                f"cases, grader or tools have changed since run {run.id}: grade regrade, then preview with the new run"
            )
        pairs = [(result, _with_points(result, plan, rubric)) for result in store.results(run)]
        differing = [
            change for old, new in pairs for change in [change_between(old.name, old, new)] if change is not None
        ]
        before, after = (_scores(pair[place] for pair in pairs) for place in (0, 1))
        names = f"run {run.id}", path.name
        show_regrade(differing, before, after, names)
    notify(f"nothing was stored; to take these points: copy {path} over the lab's rubric.toml, then grade regrade")
    return ExitCode.NOT_ACCEPTED if differing else ExitCode.ACCEPTED


def _with_points(result: Result, plan: GradingPlan, rubric: Rubric) -> Result:
    stored = result.stored.rescored(result.stored.key, rubric) if result.stored is not None else None
    return replace(result, stored=stored, full=most_points(rubric, plan.cases, plan.hidden))


def _check_same_judging(path: Path, rubric: Rubric, lab: Lab) -> None:
    """Raise `UsageError` unless the rubric differs from the lab's in points, titles and places of rules only."""
    other, own = set(rubric.judging), set(lab.rubric.judging)
    if other != own:
        rules = ", ".join(sorted({row[0] for row in other ^ own}))
        raise UsageError(
            f"{path}: it judges in another way than the lab's rubric: {rules}; only points, titles and places of rules "
            "can be tried without grading. To grade with it: copy it over the lab's rubric.toml, then grade regrade"
        )


def _scores(results: Iterable[Result]) -> list[int]:
    return [result.score for result in results if result.score is not None]
