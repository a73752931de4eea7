"""`grade runs`, `show`, `export` and `diff`: what a store holds. Nothing is graded."""

from __future__ import annotations

import json
import shlex
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from grader.assignment.input_file import suggestion
from grader.classroom.database import run_locks
from grader.classroom.store import Change, Run, Store, changes, open_store, prunable, prune, runs_to_remove
from grader.classroom.stored_result import Result
from grader.cli.options import Detail, check_format, check_output
from grader.cli.parser import argument, flag, number, option, path_option, repeated, shared
from grader.cli.terminal import console, counted, notify
from grader.core.case import Number
from grader.core.errors import ExitCode, StoreError, UsageError
from grader.core.record import Record, write
from grader.core.verdict import Verdict
from grader.report import FORMATS, GRADEBOOKS, LINE_BY_LINE
from grader.report.class_page import CLASS, SIMILAR, STUDENTS, ClassNote, class_page, page_names
from grader.report.document import Document, View
from grader.report.escape import escape
from grader.report.phrases import kept_from

_MOST_NAMED = 10
_MOST_CASES = 8
_ENDINGS = {
    "text": "txt",
    "annotations": "txt",
    "gnu": "txt",
    "summary": "md",
    "junit": "xml",
    "gradescope": "json",
    "classroom50": "json",
}

_PRUNE = "Remove what no run refers to, and the runs that --remove and --keep select; asks first."
_KEEP = "With --prune: remove all runs of a class but its last N; the run that counts always stays."
_JPLAG = "jplag"
_HTML = "html"
_FORMAT = (
    f"One file for the class: {', '.join(GRADEBOOKS)}; or one for each submission: {', '.join(FORMATS)}; "
    f"or {_JPLAG}, what was handed in, as JPlag compares it."
)
_OUTPUT = "The file to write instead of printing it; the folder, for reports of each submission."

RUN = number(Number("run", 1))
"""Reads the number of a run."""


def store_option() -> Any:
    """Return a field for --store."""
    return path_option("--store", "FILE", "The file in which runs are stored.", default=Path("grades.sqlite"))


def run_named(store: Store, number: int | None) -> Run:
    """Return the run with that number, else the one that counts. Raises `UsageError` when it is not clear which."""
    if number is not None:
        return store.run(number)
    runs = store.all_current()
    if not runs:
        raise UsageError("there is no run in this store yet; `grade batch FOLDER` makes one")
    if len(runs) > 1:
        listed = "".join(f"\n  run {run.id}: {run.folder}" for run in runs)
        raise UsageError(f"the store holds several classes, so say which run you mean:{listed}")
    return runs[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions:
    """The options of `grade runs`."""

    store: Path = store_option()
    prune: bool = flag("--prune", _PRUNE)
    remove: tuple[int, ...] = repeated("--remove", "RUN", "With --prune: remove this run too. Repeatable.", type=RUN)
    keep: int | None = option("--keep", "N", _KEEP, type=number(Number("runs", 1)))
    yes: bool = flag("--yes", "With --prune: do not ask.")


def runs(options: RunsOptions) -> ExitCode:
    """List the runs of a store: when, of which folder, how they ended, and which one counts (*).

    With --prune, remove what is not needed, after showing how much that is. It refuses while a batch uses the store.

    Examples:
        grade runs
        grade runs --store hw3.sqlite
        grade runs --prune --keep 3
    """
    from rich.table import Table
    from rich.text import Text

    if options.prune:
        _prune(options)
    elif options.remove or options.keep is not None or options.yes:
        raise UsageError("--remove, --keep and --yes work with --prune only; write --prune too")
    headings = ("run", "started", "of", "submissions", "accepted", "failing", "need a person", "no score yet", "mean")
    table = Table(title=escape(str(options.store)), title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    with open_store(options.store, read_only=True) as store:
        for run in store.runs():
            table.add_row(*map(Text, _row(store, run)))
    console(160).print(table)
    return ExitCode.ACCEPTED


def _prune(options: RunsOptions) -> None:
    """Show what would be removed, ask, and remove it. Raises `UsageError` when stdin is no terminal to ask at."""
    path = options.store
    if not path.is_file():
        raise StoreError(f"{path}: there is no such store; write --store with the name of one")
    with run_locks(path, alone=True), open_store(path) as store:
        old = runs_to_remove(store, options.remove, options.keep)
        unused = prunable(store, old)
        numbers = "".join(f" {run.id}" for run in old)
        what = f"{len(old)} runs{numbers}, {unused.records} records, {unused.sources} sources"
        notify(f"{path}: to be removed: {what}; {unused.size / 1e6:.1f} MB")
        if not (old or unused.records or unused.sources):
            return
        if not options.yes:
            if not sys.stdin.isatty():
                raise UsageError("nothing was removed: there is no terminal to ask at; write --yes")
            if input("Remove it? This cannot be undone. [y/N] ").strip().lower() not in ("y", "yes"):
                notify("nothing was removed")
                return
        before = path.stat().st_size
        prune(store, old)
        notify(f"removed; the file had {before / 1e6:.1f} MB and has {path.stat().st_size / 1e6:.1f}")


def _row(store: Store, run: Run) -> list[str]:
    results = [(result.verdict, result.score, result.needs_person) for result in store.results(run)]
    scores = [score for _, score, _ in results if score is not None]
    accepted = sum(verdict is Verdict.ACCEPTED for verdict, *_ in results)
    people = sum(needs_person for *_, needs_person in results)
    counts = store.current(run.lab, run.folder) == run
    of = f"{run.lab}: {escape(run.folder)}" + (f" (run {run.beside} again)" if run.beside is not None else "")
    figures = (len(results), accepted, len(scores) - accepted, people, len(results) - len(scores) - people)
    mean_score = f"{mean(scores):.1f}" if scores else ""
    return [f"{run.id}{'*' if counts else ''}", run.started, of, *map(str, figures), mean_score]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """The options of `grade show`."""

    submission: str = argument("SUBMISSION", "Its name, or its student's name, sid or email.")
    run: int | None = option("--run", "RUN", "The run to look in [default: the run that counts].", type=RUN)
    store: Path = store_option()
    format: str = option("--format", "FORMAT", f"The report: {', '.join(FORMATS)}.", default="text", offer=FORMATS.keys)
    detail: Detail = shared(Detail)


def show(options: ShowOptions) -> ExitCode:
    """Show the report of one submission as it was graded then; nothing is run.

    Examples:
        grade show jane
        grade show jane@example.edu --run 2 --instructor
    """
    check_format(options.format, FORMATS)
    with open_store(options.store, read_only=True) as store:
        result = result_of(store, run_named(store, options.run), options.submission)
    if result.entry.failure and not result.is_graded:
        notify(f"{result.name}: {'needs a person: ' * result.needs_person}{result.entry.failure}")
    if remark := kept_from(result.record):
        notify(f"{result.name}: {remark}")
    sys.stdout.write(FORMATS[options.format](result.record, options.detail.view()))
    return ExitCode.ACCEPTED if result.is_graded else ExitCode.JUDGE_ERROR


def result_of(store: Store, run: Run, wanted: str) -> Result:
    """Return the result of a submission, or of a student. Raises `UsageError` when it is not clear whose is wanted."""
    for result in store.results(run, wanted):
        return result
    known: list[str] = []
    fitting: list[Result] = []
    for result in store.results(run):
        students = result.entry.students
        known += [result.name, *(word for student in students for word in (student.name, student.email))]
        fitting += [result] * any(wanted in (student.name, student.sid, student.email) for student in students)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"which one? {', '.join(result.name for result in fitting)}")
    raise UsageError(f"there is no submission '{wanted}' in run {run.id}{suggestion(wanted, filter(None, known))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of `grade export`."""

    run: int | None = argument("RUN", "The run to export [default: the run that counts].", nargs="?", type=RUN)
    store: Path = store_option()
    format: str = option("--format", "FORMAT", _FORMAT, default="csv", offer=lambda: [*GRADEBOOKS, *FORMATS, _JPLAG])
    output: Path | None = path_option("--output", "PATH", _OUTPUT)
    partial: bool = flag("--partial", "Export even if some submissions have no score yet.")
    similar: bool = flag(
        "--similar", "With html: look for submissions that are alike, and note them in the class page."
    )
    detail: Detail = shared(Detail)


def export(options: ExportOptions) -> ExitCode:
    """Export a run: as a table (csv), as records, one per line (jsonl), or as a report for each submission.

    With jplag, it exports what was handed in, without any grade, and prints the command that compares it.

    It refuses when some submissions have no score yet, because a gap in a gradebook looks like a zero; --partial
    exports the others. A submission that needs a person has a row with the reason and without a score.

    Examples:
        grade export > grades.csv
        grade export 2 --format jsonl --output run2.jsonl
        grade export --format html --output reports/ --instructor --similar
        grade export --format jplag --output jplag/
    """
    check_format(options.format, [*GRADEBOOKS, *FORMATS, _JPLAG])
    if options.format in GRADEBOOKS:
        check_output(options.output)
    elif options.output is None:
        raise UsageError(f"--format {options.format} makes a file for each submission: write --output FOLDER")
    if options.similar and options.format != _HTML:
        raise UsageError("--similar works with --format html only; `grade similar --store FILE` lists pairs anywhere")
    with open_store(options.store, read_only=True) as store:
        run = run_named(store, options.run)
        if options.format == _JPLAG:
            return _export_sources(store, run, options.output)
        _check_complete(store, run, partial=options.partial)
        if options.format in GRADEBOOKS:
            _export_class(store, run, options.format, options.output)
        else:
            _export_each(store, run, options)
    return ExitCode.ACCEPTED


def _check_complete(store: Store, run: Run, *, partial: bool) -> None:
    """Report who has no score. Raises `UsageError` unless an export may be `partial`."""
    ungraded = [result for result in store.results(run) if not result.is_graded]
    people = [result.name for result in ungraded if result.needs_person]
    if people:
        notify(f"run {run.id}: without a score, because they need a person: {_counted(people)}")
    without = [result.name for result in ungraded if not result.needs_person]
    if not without:
        return
    count = f"run {run.id}: without a score yet: {_counted(without)}"
    if not partial:
        raise UsageError(f"{count}\n`grade batch` or `grade regrade` tries them again; --partial exports the others")
    notify(count)


def _counted(names: Sequence[str]) -> str:
    """Return how many names there are, and the first of them."""
    return f"{len(names)}: {', '.join(names[:_MOST_NAMED])}{', ...' * (len(names) > _MOST_NAMED)}"


def _export_class(store: Store, run: Run, format_name: str, output: Path | None) -> None:
    """Write one file, record by record where the format allows it: all records together may be large."""
    book = GRADEBOOKS[format_name]
    final = (result for result in store.results(run) if result.is_final)
    parts: Iterable[Document]
    if format_name in LINE_BY_LINE:
        parts = (book([result.record]) for result in final)
    else:
        parts = [book((result.brief for result in final), store.missing(run))]
    if output is not None:
        write(output, parts)
    else:
        sys.stdout.writelines(parts)


def _export_each(store: Store, run: Run, options: ExportOptions) -> None:
    """Write one file per submission, named after it; for html also the page of the class, in a folder of its own."""
    folder, view = options.output, View(instructor=options.detail.instructor, everything=options.detail.everything)
    assert folder is not None
    pages_of_class = options.format == _HTML
    reports = folder / STUDENTS if pages_of_class else folder
    try:
        for path in (
            folder,
            *[reports, folder / CLASS] * pages_of_class,
            *[folder / CLASS / SIMILAR] * options.similar,
        ):
            path.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: {error.strerror}; write the name of a folder") from None
    earlier = _files(folder)
    pages = page_names(result.name for result in store.results(run) if result.is_final)
    ending = _ENDINGS.get(options.format, options.format)

    def written() -> Iterator[Record]:
        final = (result.record for result in store.results(run) if result.is_final)
        for record, page in zip(final, pages, strict=True):
            write((reports / page).with_suffix(f".{ending}"), FORMATS[options.format](record, view))
            yield record

    if pages_of_class:
        similar = _export_similar(store, run, folder / CLASS) if options.similar else None
        write(folder / CLASS / "index.html", class_page(written(), view, run=f"run {run.id}", similar=similar))
    else:
        deque(written(), maxlen=0)
    notify(f"{len(pages)} reports written to {reports}")
    if pages_of_class:
        notify(f"the page of the class, with all names: {folder / CLASS / 'index.html'}")
    left = [str(path.relative_to(folder)) for path, state in _files(folder).items() if earlier.get(path) == state]
    if left:
        notify(f"not of this export, so look at them before you hand the folder on: {_counted(left)}")


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the files below a folder, each with what changes when it is written."""
    states = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return {path: (state.st_mtime_ns, state.st_ino) for path, state in states}


def _export_similar(store: Store, run: Run, folder: Path) -> ClassNote:
    """Write the pages of pairs that are alike to a folder within that of the class's page, and return its note."""
    from grader.classroom.similarity import Alike, handed_in_run
    from grader.labs import open_lab
    from grader.report.similar_page import INDEX

    alike = Alike.among(handed_in_run(store, run), open_lab(run.lab), counted)
    for name, page in alike.pages():
        write(folder / SIMILAR / name, page)
    return ClassNote(text=alike.summary, page=f"{SIMILAR}/{INDEX}")


def _export_sources(store: Store, run: Run, folder: Path | None) -> ExitCode:
    """Write the folder that JPlag reads, and print the command that compares what is in it."""
    from grader.bundles.bundle import check_folder, put
    from grader.bundles.jplag import jplag_folder
    from grader.labs import open_lab

    assert folder is not None
    check_folder(folder)
    if "," in str(folder):
        raise UsageError(f"--output {folder}: JPlag takes a comma for the end of a name; write a name without one")
    sources = jplag_folder(store, run, open_lab(run.lab))
    put(sources.files, folder)
    if sources.without:
        notify(f"run {run.id}: without a file, so not there: {_counted(sources.without)}")
    notify(f"{sources.count} submissions written to {folder}; with JPlag 6 or newer (github.com/jplag/JPlag), type:")
    print(shlex.join(sources.command(folder)))
    return ExitCode.ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of `grade diff`."""

    old: int = argument("OLD", "The number of a run.", type=RUN)
    new: int = argument("NEW", "The number of another run.", type=RUN)
    store: Path = store_option()
    format: str = option("--format", "FORMAT", "text, json.", default="text", choices=("text", "json"))
    apply: bool = flag("--apply", "Make NEW the run that counts.")


def diff(options: DiffOptions) -> ExitCode:
    """List whose verdict or points change from one run to another, and by which rules and cases.

    It is about numbers, as after a regrade; grade compare says what became of the causes since the last hand-in.

    Exit code: 0 nothing changes, 1 something does, 2 a wrong option.

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
    """Print the changes: submissions, and below each the rules and cases that make the difference."""
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
