"""`grade show`: the report of one submission, from the store."""

from __future__ import annotations

import sys
from pathlib import Path

from grader.assignment.input_file import suggestion
from grader.classroom.store import Run, Store, open_store
from grader.classroom.stored_result import Result
from grader.cli.classes import chosen_run, notify, store_option
from grader.cli.output import all_option, check_format, view_of
from grader.cli.parser import Parser, number
from grader.core.case import Number
from grader.core.errors import ExitCode, UsageError
from grader.report import FORMATS


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    text = "Its name, or its student's name, sid or email."
    parser.argument("submission", metavar="SUBMISSION", help=text)
    parser.option("--run", metavar="RUN", type=number(Number("run", 1)), help="Not the run that counts, but this one.")
    store_option(parser)
    parser.option(
        "--format", metavar="FORMAT", offer=FORMATS.keys, default="text", help=f"The report: {', '.join(FORMATS)}."
    )
    text = "Show hidden cases too, and what a program that cannot be built had got."
    parser.option("--instructor", action="store_true", help=text)
    all_option(parser)


def show(
    submission: str,
    *,
    run: int | None,
    store: Path,
    format: str,  # noqa: A002 - the option's name
    instructor: bool,
    everything: bool,
) -> ExitCode:
    """Show the report of one submission as it was graded then; nothing is run.

    Examples:
        grade show jane
        grade show jane@example.edu --run 2 --instructor
    """
    check_format(format, FORMATS)
    with open_store(store, read_only=True) as run_store:
        result = _result_of(run_store, chosen_run(run_store, run), submission)
    if result.entry.failure and not result.is_graded:
        notify(f"{result.name}: {'needs a person: ' * result.needs_person}{result.entry.failure}")
    sys.stdout.write(FORMATS[format](result.record, view_of(instructor=instructor, everything=everything)))
    return ExitCode.ACCEPTED if result.is_graded else ExitCode.JUDGE_ERROR


def _result_of(store: Store, run: Run, wanted: str) -> Result:
    named = next(store.results(run, wanted), None)
    if named is not None:
        return named
    known, fitting = [], []
    for result in store.results(run):
        known += [result.name, *(word for student in result.entry.students for word in (student.name, student.email))]
        fitting += [result] * any(
            wanted in (student.name, student.sid, student.email) for student in result.entry.students
        )
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(f"which one? {', '.join(result.name for result in fitting)}")
    raise UsageError(f"there is no submission '{wanted}' in run {run.id}{suggestion(wanted, filter(None, known))}")
