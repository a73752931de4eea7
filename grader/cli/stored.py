"""`grade runs`, `show` and `export`: what a store contains. Nothing is graded."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from grader.assignment.input_file import suggestion
from grader.classroom.database import run_locks
from grader.classroom.store import Run, Store, open_store, prunable, prune, runs_to_remove
from grader.classroom.stored_result import Result
from grader.cli.app import argument, flag, number, number_option, option, path_option, repeated, shared
from grader.cli.options import Detail, check_format, check_output
from grader.cli.terminal import console, counted, notify, table
from grader.core.case import Number
from grader.core.errors import ExitCode, StoreError, UsageError
from grader.core.record import Record, write
from grader.core.verdict import Verdict
from grader.report import FORMATS, GRADEBOOKS, LINE_BY_LINE
from grader.report.class_page import CLASS, INDEX, SIMILAR, STUDENTS, ClassNote, class_page, page_names
from grader.report.document import Document, View
from grader.report.escape import escape
from grader.report.gradebook import own
from grader.report.phrases import kept_from

_MOST_NAMED = 10
_ENDINGS = {
    "text": "txt",
    "annotations": "txt",
    "gnu": "txt",
    "summary": "md",
    "junit": "xml",
    "gradescope": "json",
    "classroom50": "json",
}

_PRUNE = "Remove what no run refers to, and the runs that --remove and --keep select. Asks first."
_KEEP = "With --prune: remove all runs of a class except its last N. The run that counts always stays."
_JPLAG = "jplag"
_HTML = "html"
_FORMAT = (
    f"One file for the class: {', '.join(GRADEBOOKS)}; or one for each submission: {', '.join(FORMATS)}; "
    f"or {_JPLAG}, the submissions as files that JPlag compares."
)
_SECONDS = "With --mend: how long to look for a change of each submission."
_OUTPUT = "The file to write instead of printing. For reports of each submission: the folder."

RUN = number(Number("run", 1))
"""Reads the number of a run."""


def store_option() -> Any:
    """Return a field for --store."""
    return path_option("--store", "FILE", "The file in which runs are stored.", default=Path("grades.sqlite"))


def run_named(store: Store, number: int | None) -> Run:
    """Return the run with this number; for None the run that counts, if there is one class. Else raise `UsageError`."""
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
    keep: int | None = number_option("--keep", "N", _KEEP, 1)
    yes: bool = flag("--yes", "With --prune: do not ask.")


def runs(options: RunsOptions) -> ExitCode:
    """List the runs of a store: when they started, their folders, how they ended, and which run counts (*).

    With --prune, remove what no run needs, after showing how much that is. A store that a batch uses is not pruned.

    Examples:
        grade runs
        grade runs --store hw3.sqlite
        grade runs --prune --keep 3
    """
    from rich.text import Text

    if options.prune:
        _prune(options)
    elif options.remove or options.keep is not None or options.yes:
        raise UsageError("--remove, --keep and --yes work with --prune only; write --prune too")
    headings = ("run", "started", "of", "submissions", "accepted", "failing", "need a person", "no score yet", "mean")
    listed = table(escape(str(options.store)), *headings)
    with open_store(options.store, read_only=True) as store:
        for run in store.runs():
            listed.add_row(*map(Text, _row(store, run)))
    console().print(listed)
    return ExitCode.ACCEPTED


def _prune(options: RunsOptions) -> None:
    """Show what would be removed, ask the user, and remove it. Raises `UsageError` if stdin is not a terminal."""
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
            print("Remove it? This cannot be undone. [y/N] ", end="", flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
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
    mend: bool = flag("--mend", "Look for the smallest change that makes it right (`grade mend`), once, and show it.")
    seconds: int = number_option("--seconds", "N", _SECONDS, 1, 24 * 3600, default=60)
    format: str = option("--format", "FORMAT", f"The report: {', '.join(FORMATS)}.", default="text", offer=FORMATS.keys)
    detail: Detail = shared(Detail)


def show(options: ShowOptions) -> ExitCode:
    """Show the report of one submission as it was graded then; nothing is run.

    Examples:
        grade show jane
        grade show jane@example.edu --run 2 --instructor
    """
    check_format(options.format, FORMATS)
    if options.mend and options.format != "text":
        raise UsageError("--mend works with --format text only; `grade mend PATH --format json` is for programs")
    with open_store(options.store, read_only=not options.mend) as store:
        run = run_named(store, options.run)
        result = result_of(store, run, options.submission)
        mended = ""
        if options.mend:
            from grader.cli.hunt import mending_text, mendings_of

            mended = "".join(map(mending_text, mendings_of(store, run, [result], options.seconds).values()))
    if result.entry.failure and not result.is_graded:
        notify(f"{result.name}: {'needs a person: ' * result.needs_person}{result.entry.failure}")
    if remark := kept_from(result.record):
        notify(f"{result.name}: {remark}")
    sys.stdout.write(FORMATS[options.format](result.record, options.detail.view()) + mended)
    return ExitCode.ACCEPTED if result.is_graded else ExitCode.JUDGE_ERROR


def result_of(store: Store, run: Run, wanted: str) -> Result:
    """Return the result of a submission or a student. Raises `UsageError` unless exactly one matches."""
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
        "--similar", "With html: search for similar submissions, and show them on the page of the class."
    )
    mend: bool = flag("--mend", "With csv or html: look for changes that make submissions right, and say how many.")
    seconds: int = number_option("--seconds", "N", _SECONDS, 1, 24 * 3600, default=60)
    detail: Detail = shared(Detail)


def export(options: ExportOptions) -> ExitCode:
    """Export a run: as a table (csv), as records, one per line (jsonl), or as a report for each submission.

    With jplag, export the students' programs without their grades, and print the command that compares them.

    If some submissions have no score yet, nothing is exported, because a gap in a gradebook looks like a zero.
    --partial exports the other submissions. A submission that needs a person has a row with the reason and no score.

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
    if options.mend and options.format not in ("csv", _HTML):
        raise UsageError("--mend works with --format csv and html only; `grade show NAME --mend` shows one change")
    with open_store(options.store, read_only=not options.mend) as store:
        run = run_named(store, options.run)
        if options.format == _JPLAG:
            return _export_sources(store, run, options.output)
        _check_complete(store, run, partial=options.partial)
        if options.format in GRADEBOOKS:
            _export_class(store, run, options)
        else:
            _export_each(store, run, options)
    return ExitCode.ACCEPTED


def _check_complete(store: Store, run: Run, *, partial: bool) -> None:
    """Report the submissions without a score. Raises `UsageError` if there are some and `partial` is False."""
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
    """Return text with the number of names, and with the first `_MOST_NAMED` of them."""
    return f"{len(names)}: {', '.join(names[:_MOST_NAMED])}{', ...' * (len(names) > _MOST_NAMED)}"


def _export_class(store: Store, run: Run, options: ExportOptions) -> None:
    """Write one file of all records, one by one if the format allows this: all records together may be large."""
    book, output = GRADEBOOKS[options.format], options.output
    if options.mend:
        from grader.cli.hunt import mendings_of

        mendings = mendings_of(store, run, [*store.results(run)], options.seconds)
        book = partial(own, distances={name: mending.in_words for name, mending in mendings.items()})
    final = (result for result in store.results(run) if result.is_final)
    parts: Iterable[Document]
    if options.format in LINE_BY_LINE:
        parts = (book([result.record]) for result in final)
    else:
        parts = [book((result.brief for result in final), store.missing(run))]
    if output is not None:
        write(output, parts)
    else:
        sys.stdout.writelines(parts)


def _export_each(store: Store, run: Run, options: ExportOptions) -> None:
    """Write one file for each submission, with the submission's name. For html, also write the page of the class."""
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
    names = [result.name for result in store.results(run) if result.is_final]
    pages = dict(zip(names, page_names(names), strict=True))
    ending = _ENDINGS.get(options.format, options.format)

    def written() -> Iterator[Record]:
        for result in store.results(run):
            if result.name not in pages:  # a batch has finished it meanwhile
                continue
            record, page = result.record, pages[result.name]
            write((reports / page).with_suffix(f".{ending}"), FORMATS[options.format](record, view))
            yield record

    if pages_of_class:
        similar = _export_similar(store, run, folder / CLASS) if options.similar else None
        distance = ""
        if options.mend:
            from grader.cli.hunt import mendings_of, summary_of

            mendings = mendings_of(store, run, [*store.results(run)], options.seconds)
            distance = summary_of(mendings.values(), options.seconds)
        page = class_page(written(), view, run=f"run {run.id}", similar=similar, distance=distance)
        write(folder / CLASS / INDEX, page)
    else:
        deque(written(), maxlen=0)
    notify(f"{len(pages)} reports written to {reports}")
    if pages_of_class and view.instructor:
        notify("they show hidden cases (--instructor): students must not get them")
    if pages_of_class:
        notify(f"the page of the class, with all names: {folder / CLASS / INDEX}")
    left = [str(path.relative_to(folder)) for path, state in _files(folder).items() if earlier.get(path) == state]
    if left:
        notify(f"not of this export, so look at them before you hand the folder on: {_counted(left)}")


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the files below a folder, each with attributes that change when the file is written."""
    states = ((path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file())
    return {path: (state.st_mtime_ns, state.st_ino) for path, state in states}


def _export_similar(store: Store, run: Run, folder: Path) -> ClassNote:
    """Write the pages of similar pairs below the folder of the class page. Return a note for the class page."""
    from grader.classroom.similarity import Alike, handed_in_run
    from grader.labs import open_lab

    alike = Alike.among(handed_in_run(store, run), open_lab(run.lab), counted)
    for name, page in alike.pages():
        write(folder / SIMILAR / name, page)
    return ClassNote(text=alike.summary, page=f"{SIMILAR}/{INDEX}")


def _export_sources(store: Store, run: Run, folder: Path | None) -> ExitCode:
    """Write the folder that JPlag reads, and print the command that compares the submissions in it."""
    from grader.bundles import File, check_folder, put
    from grader.classroom.similarity import handed_in_run, jplag_command, jplag_files
    from grader.labs import open_lab

    assert folder is not None
    check_folder(folder)
    if "," in str(folder):
        raise UsageError(f"--output {folder}: JPlag takes a comma for the end of a name; write a name without one")
    lab, submissions = open_lab(run.lab), handed_in_run(store, run)
    readable = [submission for submission in submissions if submission.content]
    files = jplag_files(readable, lab)
    if not readable:
        raise UsageError(f"run {run.id}: no submission has a file to compare")
    put((File(name=name, content=content) for name, content in files.items()), folder)
    if without := [submission.name for submission in submissions if not submission.content]:
        notify(f"run {run.id}: without a file, so not there: {_counted(without)}")
    notify(f"{len(readable)} submissions written to {folder}; with JPlag 6 or newer (github.com/jplag/JPlag), type:")
    print(shlex.join(jplag_command(lab, folder)))
    return ExitCode.ACCEPTED
