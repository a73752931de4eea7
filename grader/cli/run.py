"""`grade run`: grade one or more submissions and make a report of each."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from grader import pipeline
from grader.assignment.source import collect
from grader.cli.options import (
    case_option,
    chosen_lab,
    chosen_options,
    chosen_selection,
    grading_options,
    lab_option,
    public_option,
    sandbox_option,
    seed_option,
)
from grader.cli.output import all_option, check_format, check_output, view_of
from grader.cli.parser import Parser
from grader.cli.recognise import lab_of_submissions
from grader.cli.status import status
from grader.core.errors import ExitCode, UsageError
from grader.core.picture import Drawing
from grader.core.record import Record, Submission, ungraded, write
from grader.core.sanitize import one_line
from grader.core.verdict import Verdict
from grader.report import DRAWN, FORMATS, GRADEBOOKS
from grader.report.document import Document
from grader.report.view import Gradebook, View
from grader.runtime.protocol import GradingOptions
from grader.system.sandbox import LEVELS, require

_NO_END = "the grading did not come to its end: it was interrupted, or the grader failed"

_STAGES = {
    "collect": "looking for the file",
    "build": "building",
    "play": "running the cases",
    "compare": "comparing with the reference",
    "inspect": "looking at the use of memory",
    "diagnose": "looking for the cause",
    "pinpoint": "looking for lines",
    "score": "counting points",
    "advise": "looking for advice",
}


def options(parser: Parser) -> None:
    """Add the options of this command."""
    text = "The file to grade, or a folder that holds it at any depth."
    parser.argument("paths", metavar="PATH...", nargs="+", type=Path, help=text)
    lab_option(parser)
    case_option(parser)
    public_option(parser)
    text = f"The report: {', '.join(FORMATS)}; or one table of all submissions: {', '.join(GRADEBOOKS)}."
    parser.option("--format", metavar="FORMAT", offer=lambda: [*FORMATS, *GRADEBOOKS], default="text", help=text)
    parser.option("--output", metavar="FILE", type=Path, help="Write the report there instead of printing it.")
    text = "Another report of the same grading, into a file; several if you like."
    parser.option("--also", metavar="FORMAT=FILE", action="append", default=[], help=text)
    seed_option(parser)
    grading_options(parser)
    sandbox_option(parser)
    text = "Show hidden cases too, and what a program that cannot be built had got."
    parser.option("--instructor", action="store_true", help=text)
    all_option(parser)


def run(
    paths: list[Path],
    *,
    lab: str | None,
    case: str,
    public_only: bool,
    format: str,  # noqa: A002 - the option's name
    output: Path | None,
    also: list[str],
    seed: int | None,
    without_memory_checker: bool,
    advice: bool,
    allow: list[str],
    require_sandbox: str | None,
    instructor: bool,
    everything: bool,
) -> ExitCode:
    """Grade one or more submissions.

    The reports are printed one after the other (with --format json: one object each), progress goes to stderr. Exit
    code: 0 all have every point (that --public-only leaves), 1 some do not, 2 a wrong option or path, and nothing is
    graded, 3 the grader's own fault, 130 interrupted.

    Examples:
        grade run my-homework/ --case 'append/*'
        grade run llm_memory.c --format html --output report.html
        grade run llm_memory.c --format gradescope --output results.json
        grade run class/*/ --format csv --output points.csv
        grade run . --format annotations --also summary=summary.md --also junit=report.xml
    """
    check_format(format, [*FORMATS, *GRADEBOOKS])
    check_output(output)
    others = _others(also, format)
    _check_several(paths, output if format in FORMATS else None, others)
    selected_lab = chosen_lab(lab or lab_of_submissions(paths))
    selected = chosen_selection(selected_lab, case, seed, public_only=public_only)
    _check_paths(paths, selected_lab.source_name)
    require(require_sandbox or LEVELS[0])
    view = view_of(instructor=instructor, everything=everything, to_file=output is not None)
    grade = partial(
        pipeline.grade,
        lab=selected_lab,
        cases=selected.cases,
        hidden=selected.hidden,
        options=chosen_options(
            selected_lab,
            GradingOptions(seed=seed, memory_checker=not without_memory_checker, advise=advice, allowed=tuple(allow)),
        ),
        draw=max(DRAWN.get(name, Drawing.NOTHING) for name in (format, *others)),
    )
    if format in FORMATS:
        filed = _renders(others, view_of(instructor=instructor, everything=everything, to_file=True))
        verdicts = [_report(path, grade, partial(FORMATS[format], view=view), output, others=filed) for path in paths]
    else:
        verdicts = _table(paths, grade, GRADEBOOKS[format], output)
    return ExitCode.ACCEPTED if all(verdict.passed for verdict in verdicts) else ExitCode.NOT_ACCEPTED


def _check_several(paths: list[Path], output: Path | None, others: Mapping[str, Path]) -> None:
    if len(paths) > 1 and (output is not None or others):
        option = "--output" if output is not None else "--also"
        raise UsageError(f"{option} takes the report of one submission; grade several one by one")


def _others(also: Iterable[str], main: str) -> dict[str, Path]:
    """Return the files of --also, by format. Raises `UsageError` when an argument is wrong."""
    others: dict[str, Path] = {}
    if also and main in GRADEBOOKS:
        raise UsageError(f"--also goes with a report; {main} is a table of many submissions")
    for argument in also:
        name, _, path = argument.partition("=")
        check_format(name, FORMATS)
        if not path or name in others:
            raise UsageError(f"--also {argument}: write FORMAT=FILE, each format once")
        check_output(Path(path), f"--also {name}:")
        others[name] = Path(path)
    return others


def _renders(others: Mapping[str, Path], view: View) -> dict[Path, Callable[[Record], Document]]:
    return {path: partial(FORMATS[name], view=view) for name, path in others.items()}


def _report(
    path: Path,
    grade: partial[Record],
    render: Callable[[Record], Document],
    output: Path | None,
    *,
    others: Mapping[Path, Callable[[Record], Document]],
) -> Verdict:
    """Grade one submission and print its report, or write its reports to files.

    The files exist from the start and are never incomplete. Until the grading is finished they contain no points,
    whatever interrupts it.
    """
    files = {**others, **({output: render} if output is not None else {})}

    def keep(record: Record) -> None:
        for place, renderer in files.items():
            write(place, renderer(record))

    lab = grade.keywords["lab"]
    nothing = ungraded(lab.name, Submission(name=one_line(str(path))), lab.rubric.max_score, _NO_END)
    keep(nothing)
    with status(str(path)) as tell:
        record = grade(path, progress=lambda step: tell(_STAGES[step]))
    try:
        keep(record)
    except BaseException:
        with contextlib.suppress(OSError, UsageError):
            keep(nothing)
        raise
    if output is None:
        sys.stdout.write(render(record))
        sys.stdout.flush()
    return record.verdict


def _table(paths: Iterable[Path], grade: Callable[..., Record], book: Gradebook, output: Path | None) -> list[Verdict]:
    """Grade all submissions and print one table of them. Only the row of each is kept in memory."""
    verdicts: list[Verdict] = []

    def records() -> Iterator[Record]:
        for path in paths:
            with status(str(path)) as tell:
                record = grade(path, progress=lambda step, tell=tell: tell(_STAGES[step]))
            verdicts.append(record.verdict)
            yield record

    if output is not None:
        write(output, book(()))
    table = book(records())
    if output is not None:
        write(output, table)
    else:
        sys.stdout.write(table)
    return verdicts


def _check_paths(paths: Iterable[Path], source_name: str) -> None:
    """Raise `UsageError` that lists all wrong paths: reports of some submissions could be taken for all."""
    slips = []
    for path in paths:
        try:
            collect(path, source_name, rule="")
        except UsageError as error:
            slips.append(str(error))
    if slips:
        raise UsageError("\n".join(slips))
