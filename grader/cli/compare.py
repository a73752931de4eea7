"""Commands that compare: `grade diff` two runs, `grade compare` two hand-ins, `grade similar` two submissions.

A diff is about verdicts and points. A comparison of hand-ins is about causes: fixed, new, or still there.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, quantiles
from typing import TYPE_CHECKING

from grader.assignment.lab import Lab
from grader.classroom.store import Change, Run, Store, changes, open_store
from grader.cli.app import argument, flag, option, path_option, shared
from grader.cli.options import Detail, lab_named, lab_of_class, lab_option
from grader.cli.stored import RUN, result_of, run_named, store_option
from grader.cli.terminal import console, counted, notify
from grader.core.errors import ExitCode, UsageError
from grader.core.record import Record, from_json
from grader.core.verdict import Audience, Cause
from grader.report.escape import escape
from grader.report.phrases import points_lost
from grader.report.progress import Progressed, progressed

if TYPE_CHECKING:
    from grader.classroom.similarity import Alike, HandedIn
    from grader.report.class_page import AlikeProgram


_KINDS = {"fixed": "fixed", "new": "new", "still": "still there"}
_MOST_CAUSES = 12
_MOST_MOVES = 10
_OLD = "The earlier run or record [default: the previous hand-in of each submission]."
_NEW = "The later run or record [default: the run that counts]."
_STUDENT = "Only this submission, with its causes: its name, or its student's name, sid or email."


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """The options of `grade compare`."""

    old: str | None = argument("OLD", _OLD, nargs="?")
    new: str | None = argument("NEW", _NEW, nargs="?")
    student: str | None = option("--student", "NAME", _STUDENT)
    store: Path = store_option()
    format: str = option("--format", "FORMAT", "text, json.", default="text", choices=("text", "json"))
    detail: Detail = shared(Detail)


def compare(options: CompareOptions) -> ExitCode:
    """Show how each submission has changed since its last hand-in: causes that are fixed, new, or still there.

    OLD and NEW are numbers of runs (see grade runs), or files that --format json wrote. Two causes are the same if
    rule, call and broken sentence of the handout are the same. For a class, a table of causes and a table of
    submissions are shown. --all or --student shows the causes of each submission. grade diff shows how points and
    verdicts change from run to run, for example after a regrade.

    Exit code: 0 if nothing is better or worse, 1 if something is, 2 for a wrong option or file.

    Examples:
        grade compare
        grade compare --student jane
        grade compare 1 2 --instructor
        grade compare before.json now.json
    """
    audience = Audience.INSTRUCTOR if options.detail.instructor else Audience.STUDENT
    if options.old is not None and options.new is not None and not (_is_number(options.old) or _is_number(options.new)):
        if options.student is not None:
            raise UsageError("--student is for runs of a store; two records are of one submission")
        pairs = [(_record(options.old), _record(options.new))]
        if pairs[0][0].lab != pairs[0][1].lab:
            raise UsageError(f"{options.old} is of {pairs[0][0].lab}, {options.new} of {pairs[0][1].lab}")
        return _show(pairs, audience, options, single=True)
    with open_store(options.store, read_only=True) as store:
        new = run_named(store, _number(options.new) if options.new is not None else None)
        old = store.run(_number(options.old)) if options.old is not None else None
        if old is not None and old.lab != new.lab:
            raise UsageError(f"run {old.id} is of {old.lab}, run {new.id} of {new.lab}")
        only = result_of(store, new, options.student).name if options.student is not None else None
        runs = (
            [old]
            if old is not None
            else [
                run
                for run in reversed(store.runs())
                if (run.lab, run.folder) == (new.lab, new.folder) and run.id < new.id
            ]
        )
        pairs_of_run = _pairs(store, runs, new, only, other_source=old is None)
        return _show(pairs_of_run, audience, options, single=only is not None)


def _is_number(word: str) -> bool:
    return re.fullmatch("[0-9]{1,10}", word) is not None


def _number(word: str) -> int:
    """Return `word` as the number of a run. Raises `UsageError` if it is no number."""
    if not _is_number(word):
        raise UsageError(f"'{word}' is no number of a run; write two numbers, or two files that --format json wrote")
    return int(word)


def _record(path: str) -> Record:
    """Read a record from the file at `path`. Raises `UsageError` if the file contains no record."""
    try:
        return from_json(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; write the numbers of two runs, or two records") from None
    except ValueError:
        raise UsageError(f"{path}: it is no record of this grader; grade run --format json writes one") from None


def _pairs(
    store: Store, runs: Sequence[Run], new: Run, only: str | None, *, other_source: bool
) -> Iterator[tuple[Record, Record]]:
    """Yield the earlier and the later record of each submission, and report how many have no earlier record.

    The earlier record is from the first of `runs` that has one. With `other_source` its source must differ.
    """
    sources = {result.name: result.entry.source for result in store.results(new, only) if result.is_graded}
    before: dict[str, Run] = {}
    for run in runs:
        for result in store.results(run, only):
            is_other = result.is_graded and (not other_source or result.entry.source != sources.get(result.name))
            if result.name in sources and is_other:
                before.setdefault(result.name, run)
    without = len(sources) - len(before)
    if without:
        notify(f"{without} of {len(sources)} have only one hand-in here, so nothing to compare it with")
    for name in sorted(before):
        earlier, now = (next(store.results(run, name)) for run in (before[name], new))
        yield earlier.record, now.record


def _show(
    pairs: Iterable[tuple[Record, Record]], audience: Audience, options: CompareOptions, *, single: bool
) -> ExitCode:
    all_progressed = [progressed(before, now, audience) for before, now in pairs]
    if options.format == "json":
        print(json.dumps([asdict(each) for each in all_progressed], indent=1))
    elif single or not all_progressed:
        _show_each(all_progressed)
    else:
        _show_class(all_progressed)
        if options.detail.everything:
            _show_each(all_progressed)
    return ExitCode.NOT_ACCEPTED if any(each.differs for each in all_progressed) else ExitCode.ACCEPTED


def _show_each(all_progressed: Sequence[Progressed]) -> None:
    """Print each submission with its causes. A cause of both hand-ins is shown as in the later one."""
    if not all_progressed:
        print("nothing to compare: no submission has two hand-ins")
    for each in all_progressed:
        print(f"{escape(each.submission)}: {_points(each)} points, {_verdicts(each)}")
        for kind, word in _KINDS.items():
            for cause in getattr(each, kind):
                print(f"  {word + ':':<12} {escape(_words(cause))} ({points_lost(cause.points)})")


def _show_class(all_progressed: Sequence[Progressed]) -> None:
    """Print how many submissions are better, then the most frequent causes, then the submissions."""
    from rich.table import Table
    from rich.text import Text

    gains = [each.gain for each in all_progressed]
    scores = [[each.score[place] for each in all_progressed] for place in (0, 1)]
    means = [mean([score for score in part if score is not None] or [0]) for part in scores]
    print(
        f"{len(gains)} compared: {sum(gain > 0 for gain in gains)} with more points, "
        f"{sum(gain < 0 for gain in gains)} with fewer; mean {means[0]:.1f} -> {means[1]:.1f}"
    )
    counts = {
        kind: Counter(_words(cause) for each in all_progressed for cause in getattr(each, kind)) for kind in _KINDS
    }
    causes = Table(*_KINDS.values(), "cause", title_justify="left")
    ranked = sorted(sum(counts.values(), Counter[str]()).items(), key=lambda item: (-item[1], item[0]))
    for cause, _ in ranked[:_MOST_CAUSES]:
        causes.add_row(*(str(counts[kind][cause]) for kind in _KINDS), Text(escape(cause)))
    console().print(causes)
    if len(ranked) > _MOST_CAUSES:
        print(f"and {len(ranked) - _MOST_CAUSES} more causes")
    table = Table("submission", "points", *_KINDS.values(), title_justify="left")
    for each in all_progressed:
        numbers = (str(len(getattr(each, kind))) for kind in _KINDS)
        table.add_row(Text(escape(each.submission)), _points(each), *numbers)
    console().print(table)


def _words(cause: Cause) -> str:
    """Return in words what identifies a cause (`Cause.identity`)."""
    rule, call, broken = cause.identity
    return f"{', '.join(filter(None, (rule, call)))}: {broken or cause.sentence}"


def _points(each: Progressed) -> str:
    return " -> ".join("no" if score is None else str(score) for score in each.score)


def _verdicts(each: Progressed) -> str:
    return " -> ".join(dict.fromkeys(each.verdict))


def _share(word: str) -> float:
    """Return `word` as a share from 0 to 1. Raises `ArgumentTypeError` for any other word."""
    try:
        share = float(word)
    except ValueError:
        share = -1.0
    if not 0.01 <= share <= 1:
        raise argparse.ArgumentTypeError(f"write a share from 0.01 to 1, such as 0.8, not '{word}'")
    return share


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarOptions:
    """The options of `grade similar`."""

    folder: Path | None = argument(
        "FOLDER", "The submissions of a class: a folder or a zip, as for grade batch.", nargs="?", type=Path
    )
    store: Path | None = path_option("--store", "FILE", "Compare the submissions of a run of this store.")
    run: int | None = option("--run", "RUN", "The run of the store [default: the run that counts].", type=RUN)
    lab: str | None = lab_option()
    threshold: float = option(
        "--threshold",
        "SHARE",
        "List a pair if this share of one program is in the other [default: 0.8].",
        default=0.8,
        type=_share,
    )
    output: Path | None = path_option(
        "--output", "FOLDER", "A new folder for web pages: the list, and each pair side by side."
    )


def similar(options: SimilarOptions) -> ExitCode:
    """List pairs of similar submissions, even if names, comments and layout differ.

    Code that the course gives does not count: the skeleton, the header, given modules. A pair is no proof and costs no
    points: independent programs for one assignment may be similar. So read both programs, side by side on the pages of
    --output. The pages contain the names of students.

    Exit code: 0 if the submissions could be compared, even if some are similar.

    Examples:
        grade similar submissions/
        grade similar --store grades.sqlite --output similar/
        grade similar submissions.zip --lab scheduler --threshold 0.6
    """
    from grader.bundles import File, check_folder, put
    from grader.classroom.similarity import Alike
    from grader.report.class_page import INDEX

    if options.output is not None:
        check_folder(options.output)
    lab, submissions = _submissions(options)
    alike = Alike.among(submissions, lab, counted, options.threshold)
    for name, reason in alike.skipped:
        notify(f"not compared: {name}: {reason}")
    if len(alike.skipped) == len(submissions):
        raise UsageError("nothing can be compared here; is --lab right?")
    _print(alike)
    if options.output is not None:
        put((File(name=name, content=page.encode()) for name, page in alike.pages()), options.output)
        notify(f"the pairs side by side, with names: {options.output / INDEX}")
    return ExitCode.ACCEPTED


def _submissions(options: SimilarOptions) -> tuple[Lab, list[HandedIn]]:
    """Return the lab and the submissions. Raises `UsageError` unless there is either a folder or a store."""
    from grader.classroom.similarity import handed_in_folder, handed_in_run

    if (options.folder is None) == (options.store is None):
        raise UsageError("write either the FOLDER of the submissions or --store FILE")
    if options.folder is not None:
        if options.run is not None:
            raise UsageError("--run works with --store only")
        lab = lab_named(options.lab or lab_of_class(options.folder))
        return lab, handed_in_folder(options.folder, lab)
    assert options.store is not None
    with open_store(options.store, read_only=True) as store:
        run = run_named(store, options.run)
        if options.lab not in (None, run.lab):
            raise UsageError(f"run {run.id} is of {run.lab}, not of {options.lab}; omit --lab, or write another --run")
        return lab_named(run.lab), handed_in_run(store, run)


def _print(alike: Alike) -> None:
    from rich.table import Table
    from rich.text import Text

    from grader.report.class_page import percent

    print(alike.summary)
    if not alike.pairs:
        return
    table = Table("one", "of it in the other", "the other", "of it in the one")
    for pair in alike.pairs:
        for_each = ((Text(_program_name(program)), percent(program.share)) for program in pair)
        table.add_row(*(cell for cells in for_each for cell in cells))
    console().print(table)


def _program_name(program: AlikeProgram) -> str:
    return escape(f"{program.name} ({' and '.join(program.students)})" if program.students else program.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of `grade diff`."""

    old: int = argument("OLD", "The number of a run.", type=RUN)
    new: int = argument("NEW", "The number of another run.", type=RUN)
    store: Path = store_option()
    format: str = option("--format", "FORMAT", "text, json.", default="text", choices=("text", "json"))
    apply: bool = flag("--apply", "Make NEW the run that counts.")


def diff(options: DiffOptions) -> ExitCode:
    """List the submissions whose verdict or points change from one run to another, with the rules and cases.

    Use it after a regrade. grade compare shows which causes are fixed since the last hand-in.

    Exit code: 0 if nothing changes, 1 if something does, 2 for a wrong option.

    Examples:
        grade diff 1 2
        grade diff 1 2 --apply
    """
    with open_store(options.store, read_only=not options.apply) as store:
        old, new = store.run(options.old), store.run(options.new)
        if old.lab != new.lab:
            raise UsageError(f"run {old.id} is of {old.lab}, run {new.id} of {new.lab}")
        differing = list(changes(store, old, new))
        if options.format == "json":
            print(json.dumps([asdict(change) for change in differing], indent=1))
        else:
            show_changes(differing, f"run {old.id}", f"run {new.id}")
        if options.apply:
            store.make_current(new)
            notify(f"run {new.id} counts now")
    return ExitCode.NOT_ACCEPTED if differing else ExitCode.ACCEPTED


def show_changes(changes: Sequence[Change], old: str, new: str) -> None:
    """Print the changed submissions, and below each the rules and cases that differ."""
    if not changes:
        print(f"no verdict and no points change from {old} to {new}")
        return
    count = "submission changes" if len(changes) == 1 else "change"
    print(f"from {old} to {new}, {len(changes)} {count}:")
    for change in changes:
        verdict = _pair(*change.verdict) if change.verdict[0] != change.verdict[1] else change.verdict[1]
        print(f"{escape(change.submission)}: {_pair(*change.score)} points, {verdict}")
        for rule, points in change.rules.items():
            print(f"    rule  {rule}: {_pair(*points)}")
        cases = list(change.cases.items())
        for case, ends in cases[:_MOST_CASES]:
            print(f"    case  {case}: {_pair(*ends)}")
        if len(cases) > _MOST_CASES:
            print(f"    and {len(cases) - _MOST_CASES} more cases")


def _pair(old: object, new: object) -> str:
    """Return the values before and after, as text."""
    return " -> ".join("none" if value is None else str(value) for value in (old, new))


_MOST_CASES = 8

_BINS = 10

_BAR = 30
"""The length of the longest bar, in characters."""


def show_regrade(
    changes: Sequence[Change], before: Sequence[int], after: Sequence[int], names: tuple[str, str]
) -> None:
    """Print a summary and the changes. A change that only moves points between rules is counted, not shown.

    `before` and `after` are the points of all submissions in the two runs that have these `names`.
    """
    visible = [
        change for change in changes if change.cases or change.score[0] != change.score[1] or _has_other_verdict(change)
    ]
    _show_summary(visible, before, after, names)
    show_changes(visible, *names)
    if len(visible) < len(changes):
        print(f"and {len(changes) - len(visible)} with the same score, in which rules have other points")


def _has_other_verdict(change: Change) -> bool:
    return change.verdict[0] != change.verdict[1]


def _show_summary(
    changes: Sequence[Change], before: Sequence[int], after: Sequence[int], names: tuple[str, str]
) -> None:
    """Print how many submissions change, the distribution of scores before and after, and the largest changes."""
    moves = [
        (new - old, change) for change in changes for old, new in [change.score] if old is not None and new is not None
    ]
    verdicts = sum(map(_has_other_verdict, changes))
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
    for move, change in largest[:_MOST_MOVES]:
        print(f"  {move:+4d}  {change.score[0]} -> {change.score[1]}  {escape(change.submission)}")
    if len(largest) > _MOST_MOVES:
        print(f"  and {len(largest) - _MOST_MOVES} more")


def _figures(scores: Sequence[int]) -> str:
    low, middle, high = quantiles(scores, n=4, method="inclusive") if len(scores) > 1 else [float(scores[0])] * 3
    return (
        f"mean {mean(scores):.1f}, lowest {min(scores)}, lower quarter {low:g}, median {middle:g}, "
        f"upper quarter {high:g}, highest {max(scores)}"
    )


def _show_distribution(before: Sequence[int], after: Sequence[int], names: tuple[str, str]) -> None:
    """Print a histogram: the number of submissions in each tenth of the points, before and after the regrade."""
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
