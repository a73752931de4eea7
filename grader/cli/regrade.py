"""`grade regrade`: a run again, after a case, the rubric or the grader was changed; what changes comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, quantiles

from grader.assignment.lab import Lab
from grader.classroom import batch as batches, roster as rosters
from grader.classroom.database import run_locks
from grader.classroom.fingerprint import GradingPlan, grading_plan
from grader.classroom.store import Change, change_between, changes, open_store
from grader.classroom.stored_result import Result, load_overrides
from grader.cli.batch import People, Where, grade_all, summary
from grader.cli.parser import argument, flag, path_option, shared
from grader.cli.stored import RUN, run_named, show_changes, store_option
from grader.cli.terminal import notify
from grader.core.errors import ExitCode, UsageError
from grader.core.rubric import Rubric
from grader.judge.score import most_points
from grader.report.escape import escape

_MOST_LISTED = 10
_BINS = 10
_BAR = 30
"""The length of the longest bar, in characters."""
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

    First come how many change, by how much, and the distribution before and after; then each change with its rules and
    cases. The submissions come from the store, as they were submitted then, and the options are those of the old run.
    Where only points, titles or places of rules have changed, the records are rescored and nothing is run.

    The new run is stored beside the old one, which still counts; with --apply, now or later, the new one counts. With
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
            return code
        differing = list(changes(store, old, new))
        before, after = (_scores(store.results(run)) for run in (old, new))
        names = f"run {old.id}", f"run {new.id}"
        _show(differing, before, after, names)
        code = summary(store, new, table_of_all=False)
        if options.apply:
            store.make_current(new)
            notify(f"run {new.id} counts now, instead of run {old.id}")
        else:
            notify(f"run {old.id} still counts; to change that: grade diff {old.id} {new.id} --apply")
        return code


def _preview(options: RegradeOptions, path: Path) -> ExitCode:
    """Show what the points of another rubric would change. Raises `UsageError` when it judges in another way."""
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
        _show(differing, before, after, names)
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


def _show(changes: Sequence[Change], before: Sequence[int], after: Sequence[int], names: tuple[str, str]) -> None:
    """Print the summary, then the changes; those that only divide the same points among rules in another way, last."""
    visible = [change for change in changes if change.cases or change.score[0] != change.score[1] or _verdicts(change)]
    _show_summary(visible, before, after, names)
    show_changes(visible, *names)
    if len(visible) < len(changes):
        print(f"and {len(changes) - len(visible)} with the same score, in which rules have other points")


def _verdicts(change: Change) -> bool:
    return change.verdict[0] != change.verdict[1]


def _show_summary(
    changes: Sequence[Change], before: Sequence[int], after: Sequence[int], names: tuple[str, str]
) -> None:
    """Print how many submissions change, the distribution of scores before and after, and the largest changes."""
    moves = [
        (new - old, change) for change in changes for old, new in [change.score] if old is not None and new is not None
    ]
    verdicts = sum(map(_verdicts, changes))
    up, down = sum(move > 0 for move, _ in moves), sum(move < 0 for move, _ in moves)
    count = max(len(before), len(after))
    print(
        f"{names[0]} -> {names[1]}: {len(changes)} of {count} {'submission' if count == 1 else 'submissions'} change; "
        f"{up} gain points, {down} lose points, {verdicts} get another verdict"
    )
    for name, scores in zip(names, (before, after), strict=True):
        if scores:
            print(f"  {name + ':':<{max(map(len, names)) + 1}} {_figures(scores)}")
    if not moves:
        return
    _show_distribution(before, after, names)
    largest = sorted((pair for pair in moves if pair[0]), key=lambda pair: (-abs(pair[0]), pair[1].submission))
    if largest:
        print("largest changes:")
    for move, change in largest[:_MOST_LISTED]:
        print(f"  {move:+4d}  {change.score[0]} -> {change.score[1]}  {escape(change.submission)}")
    if len(largest) > _MOST_LISTED:
        print(f"  and {len(largest) - _MOST_LISTED} more")


def _figures(scores: Sequence[int]) -> str:
    low, middle, high = quantiles(scores, n=4, method="inclusive") if len(scores) > 1 else [float(scores[0])] * 3
    return (
        f"mean {mean(scores):.1f}, lowest {min(scores)}, lower quarter {low:g}, median {middle:g}, "
        f"upper quarter {high:g}, highest {max(scores)}"
    )


def _show_distribution(before: Sequence[int], after: Sequence[int], names: tuple[str, str]) -> None:
    """Print a histogram: for each tenth of the points how many were in it before, and how many are in it now."""
    width = max(1, -(-max(*before, *after, 1) // _BINS))
    counts = [Counter(min(score // width, _BINS - 1) for score in scores) for scores in (before, after)]
    most = max(max(count.values(), default=1) for count in counts)
    columns = [max(len(name), 4) for name in names]
    print("  points   " + "  ".join(f"{name:>{column}}" for name, column in zip(names, columns, strict=True)))
    for place in range(_BINS):
        low, high = place * width, (place + 1) * width - (place < _BINS - 1)
        cells = "  ".join(f"{count[place]:>{column}}" for count, column in zip(counts, columns, strict=True))
        bar = "#" * -(-counts[1][place] * _BAR // most)
        print(f"  {low:>3}-{high:<3}  {cells}  {bar}".rstrip())
