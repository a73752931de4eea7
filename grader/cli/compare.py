"""`grade compare`: what was fixed since the last hand-in, what is new, and what is still there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from grader.classroom.store import Run, Store, open_store
from grader.classroom.stored_result import Result
from grader.cli.options import Detail
from grader.cli.parser import argument, option, shared
from grader.cli.stored import result_of, run_named, store_option
from grader.cli.terminal import console, notify
from grader.core.errors import ExitCode, UsageError
from grader.core.record import Record, from_json
from grader.core.verdict import Audience, Cause
from grader.report.escape import escape
from grader.report.hand_ins import Progressed, progressed
from grader.report.phrases import points_lost

_KINDS = {"fixed": "fixed", "new": "new", "still": "still there"}
_MOST_CAUSES = 12
_OLD = "The run or record before [default: of each submission the last hand-in before this one]."
_NEW = "The run or record now [default: the run that counts]."
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
    """Show what became of each submission since its last hand-in: causes that are fixed, new, or still there.

    OLD and NEW are numbers of runs (see grade runs), or files that --format json wrote. A cause is the same in both
    when rule, call and broken sentence of the handout are. For a class there is a table of causes and one of
    submissions; --all or --student shows the causes of each. What changed in numbers from run to run, such as after a
    regrade, is the business of grade diff.

    Exit code: 0 nothing is better or worse, 1 something is, 2 a wrong option or file.

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
        return _show(_all_progressed(pairs, audience), options, single=True)
    with open_store(options.store, read_only=True) as store:
        new = run_named(store, _number(options.new))
        old = store.run(_number(options.old) or 0) if options.old is not None else None
        if old is not None and old.lab != new.lab:
            raise UsageError(f"run {old.id} is of {old.lab}, run {new.id} of {new.lab}")
        only = result_of(store, new, options.student).name if options.student is not None else None
        runs = [old] if old is not None else [run for run in reversed(store.runs()) if _is_before(run, new)]
        pairs_of_run = _pairs(store, runs, new, only, other_source=old is None)
        return _show(_all_progressed(pairs_of_run, audience), options, single=only is not None)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def _number(word: str | None) -> int | None:
    """Return the number of a run. Raises `UsageError` for another word."""
    if word is not None and not _is_number(word):
        raise UsageError(f"'{word}' is no number of a run; write two numbers, or two files that --format json wrote")
    return int(word) if word is not None else None


def _record(path: str) -> Record:
    """Read a record. Raises `UsageError` when there is none in the file."""
    try:
        return from_json(Path(path).read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; write the numbers of two runs, or two records") from None
    except ValueError:
        raise UsageError(f"{path}: it is no record of this grader; grade run --format json writes one") from None


def _is_before(run: Run, new: Run) -> bool:
    return (run.lab, run.folder) == (new.lab, new.folder) and run.id < new.id


def _pairs(
    store: Store, runs: Sequence[Run], new: Run, only: str | None, *, other_source: bool
) -> Iterator[tuple[Record, Record]]:
    """Yield the records before and now of each submission, one by one, and report who has none before.

    The one before is that of the first of these runs that has one, with `other_source` only one of another hand-in.
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
        yield _only(store, before[name], name).record, _only(store, new, name).record


def _only(store: Store, run: Run, name: str) -> Result:
    return next(store.results(run, name))


def _all_progressed(pairs: Iterable[tuple[Record, Record]], audience: Audience) -> list[Progressed]:
    return [progressed(before, now, audience) for before, now in pairs]


def _show(all_progressed: Sequence[Progressed], options: CompareOptions, *, single: bool) -> ExitCode:
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
    """Print each submission with its causes; of both hand-ins the words of the later one, where it has the cause."""
    if not all_progressed:
        print("nothing to compare: no submission has two hand-ins")
    for each in all_progressed:
        print(f"{escape(each.submission)}: {_points(each)} points, {_verdicts(each)}")
        for kind, word in _KINDS.items():
            for cause in getattr(each, kind):
                print(f"  {word + ':':<12} {escape(_words(cause))} ({points_lost(cause.points)})")


def _show_class(all_progressed: Sequence[Progressed]) -> None:
    """Print how many are better, then causes by how many fixed them, then the submissions."""
    from rich.table import Table
    from rich.text import Text

    gains = [each.gain for each in all_progressed]
    scores = [[score[place] for score in (each.score for each in all_progressed)] for place in (0, 1)]
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
    console(160).print(causes)
    if len(ranked) > _MOST_CAUSES:
        print(f"and {len(ranked) - _MOST_CAUSES} more causes")
    table = Table("submission", "points", *_KINDS.values(), title_justify="left")
    for each in all_progressed:
        numbers = (str(len(getattr(each, kind))) for kind in _KINDS)
        table.add_row(Text(escape(each.submission)), _points(each), *numbers)
    console(160).print(table)


def _words(cause: Cause) -> str:
    """Return what identifies a cause, in words."""
    rule, call, broken = cause.identity
    return f"{', '.join(filter(None, (rule, call)))}: {broken or cause.sentence}"


def _points(each: Progressed) -> str:
    return " -> ".join("no" if score is None else str(score) for score in each.score)


def _verdicts(each: Progressed) -> str:
    return " -> ".join(dict.fromkeys(each.verdict))
