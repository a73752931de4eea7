"""`grade export`: a whole run for a spreadsheet, a program, or each student."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from grader.classroom.store import Run, Store, open_store
from grader.cli.classes import chosen_run, notify, store_option
from grader.cli.output import all_option, check_format, check_output
from grader.cli.parser import Parser, number
from grader.core.case import Number
from grader.core.errors import ExitCode, UsageError
from grader.core.record import Record, write
from grader.report import FORMATS, GRADEBOOKS, LINE_BY_LINE
from grader.report.class_page import class_page, page_names
from grader.report.document import Document
from grader.report.view import View

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


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    parser.argument("run", metavar="RUN", nargs="?", type=number(Number("run", 1)), help="Not the one that counts.")
    store_option(parser)
    text = f"One file of all: {', '.join(GRADEBOOKS)}; one of each submission: {', '.join(FORMATS)}."
    parser.option("--format", metavar="FORMAT", offer=lambda: [*GRADEBOOKS, *FORMATS], default="csv", help=text)
    text = "The file to write, instead of printing it; of reports for each submission the folder."
    parser.option("--output", metavar="PATH", type=Path, help=text)
    parser.option("--partial", action="store_true", help="Also when some have no score yet.")
    text = "In reports for each submission, show hidden cases too."
    parser.option("--instructor", action="store_true", help=text)
    all_option(parser)


def export(
    run: int | None,
    *,
    store: Path,
    format: str,  # noqa: A002 - the option's name
    output: Path | None,
    partial: bool,
    instructor: bool,
    everything: bool,
) -> ExitCode:
    """Export a run: as a table (csv), as records, one per line (jsonl), or as a report for each submission.

    It refuses when some submissions have no score yet, because a gap in a gradebook looks like a zero; --partial
    exports the others. A submission that needs a person has a row with the reason and without a score.

    Examples:
        grade export > grades.csv
        grade export 2 --format jsonl --output run2.jsonl
        grade export --format html --output reports/ --instructor
    """
    check_format(format, [*GRADEBOOKS, *FORMATS])
    if format in GRADEBOOKS:
        check_output(output)
    elif output is None:
        raise UsageError(f"--format {format} makes a file for each submission: write --output FOLDER")
    with open_store(store, read_only=True) as run_store:
        selected_run = chosen_run(run_store, run)
        _check_complete(run_store, selected_run, partial=partial)
        if format in GRADEBOOKS:
            _export_class(run_store, selected_run, format, output)
        else:
            assert output is not None
            _export_each(
                run_store, selected_run, format, output, view=View(instructor=instructor, everything=everything)
            )
    return ExitCode.ACCEPTED


def _check_complete(store: Store, run: Run, *, partial: bool) -> None:
    people: list[str] = []
    without: list[str] = []
    for result in store.results(run):
        if not result.is_graded:
            (people if result.needs_person else without).append(result.name)
    if people:
        notify(f"run {run.id}: without a score, because they need a person: {_counted(people)}")
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


def _export_each(store: Store, run: Run, format_name: str, folder: Path, *, view: View) -> None:
    """Write one file per submission, named after it; for html also a page of the class, index.html."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder}: {error.strerror}; write the name of a folder") from None
    pages = page_names(result.name for result in store.results(run) if result.is_final)
    ending = _ENDINGS.get(format_name, format_name)

    def written() -> Iterator[Record]:
        final = (result.record for result in store.results(run) if result.is_final)
        for record, page in zip(final, pages, strict=True):
            write((folder / page).with_suffix(f".{ending}"), FORMATS[format_name](record, view))
            yield record

    if format_name == "html":
        write(folder / "index.html", class_page(written(), view, run=f"run {run.id}"))
    else:
        deque(written(), maxlen=0)
    notify(f"{len(pages)} reports written to {folder}")
