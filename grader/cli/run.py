"""`grade run`: grade one or more submissions and make a report of each."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grader import pipeline
from grader.assignment.source import ARCHIVES, NOT_OPENED, Source, collect
from grader.cli.options import (
    Detail,
    HowGraded,
    Selection,
    check_format,
    check_options,
    check_output,
    lab_named,
    lab_of_submissions,
    sandbox_option,
)
from grader.cli.parser import argument, flag, number, option, path_option, repeated, shared
from grader.cli.terminal import is_live, status
from grader.core.case import Number
from grader.core.errors import ExitCode, UsageError
from grader.core.picture import Drawing
from grader.core.record import Record, Submission, ungraded, write
from grader.core.sanitize import one_line
from grader.core.verdict import Judged, Verdict
from grader.report import DRAWN, FORMATS, GRADEBOOKS
from grader.report.document import Document, Gradebook
from grader.system.sandbox import LEVELS, require

_PATH = "The file to grade, or a folder or a zip that contains it at any depth."
_FORMAT = f"The report: {', '.join(FORMATS)}; or one table of all submissions: {', '.join(GRADEBOOKS)}."
_ALSO = "Write another report of the same grading to a file. Repeatable."
_SEARCH = (
    "Also go beyond the cases: where all pass, to all that a small engine can do; where one fails, to the smallest "
    "trace that fails alike. It costs no point. In a terminal this is done without the option, for the text report."
)
_HAND_IN = "Which hand-in of its student it is; a rubric may say what students see by that."
_NO_END = "the grading did not finish: it was interrupted, or the grader failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `grade run`."""

    paths: tuple[Path, ...] = argument("PATH...", _PATH, nargs="+", type=Path)
    selection: Selection = shared(Selection)
    format: str = option("--format", "FORMAT", _FORMAT, default="text", offer=lambda: [*FORMATS, *GRADEBOOKS])
    output: Path | None = path_option("--output", "FILE", "Write the report to this file instead of printing it.")
    also: tuple[str, ...] = repeated("--also", "FORMAT=FILE", _ALSO)
    how: HowGraded = shared(HowGraded)
    hand_in: int | None = option("--hand-in", "N", _HAND_IN, type=number(Number("hand-in", 1)))
    search: bool = flag("--search", _SEARCH)
    require_sandbox: str | None = sandbox_option()
    detail: Detail = shared(Detail)


def run(options: RunOptions) -> ExitCode:
    """Grade one or more submissions.

    The reports are printed one after the other (with --format json: one object each), progress goes to stderr. Exit
    code: 0 if all have every point (that --public-only leaves), 1 if some do not, 2 for a wrong option or path (nothing
    is graded), 3 if the grader fails, 130 if interrupted.

    Examples:
        grade run my-homework/ --case 'append/*'
        grade run llm_memory.c --format html --output report.html
        grade run llm_memory.c --format gradescope --output results.json
        grade run class/*/ --format csv --output points.csv
        grade run . --format annotations --also summary=summary.md --also junit=report.xml
    """
    check_format(options.format, [*FORMATS, *GRADEBOOKS])
    check_output(options.output, graded=options.paths)
    others = _others(options)
    lab = lab_named(options.selection.lab or lab_of_submissions(options.paths))
    selected = options.selection.cases(lab, options.how.seed)
    _check_paths(options.paths, lab.source_name)
    require(options.require_sandbox or LEVELS[0])
    gc.freeze()  # cases and code stay to the end
    grade = partial(
        pipeline.grade,
        lab=lab,
        cases=selected.cases,
        hidden=selected.hidden,
        options=check_options(lab, options.how.options()),
        hand_in=options.hand_in,
        searches=options.search or (options.format == "text" and is_live(sys.stderr)),
        draw=max(DRAWN.get(name, Drawing.NOTHING) for name in (options.format, *others)),
    )
    if options.format in FORMATS:
        view, to_file = options.detail.view(), options.detail.view(to_file=True)
        files = {path: partial(FORMATS[name], view=to_file) for name, path in others.items()}
        if options.output is not None:
            files[options.output] = partial(FORMATS[options.format], view=to_file)
        verdicts = []
        for path in options.paths:
            record = _graded(path, grade, files)
            if options.output is None:
                sys.stdout.write(FORMATS[options.format](record, view))
                sys.stdout.flush()
            verdicts.append(record.verdict)
    else:
        verdicts = _table(options.paths, grade, GRADEBOOKS[options.format], options.output)
    return ExitCode.ACCEPTED if all(verdict.passed for verdict in verdicts) else ExitCode.NOT_ACCEPTED


def _others(options: RunOptions) -> dict[str, Path]:
    """Return the files of --also, by format. Raises `UsageError` when one is wrong, or they are of several reports."""
    others: dict[str, Path] = {}
    if options.also and options.format in GRADEBOOKS:
        raise UsageError(f"--also goes with a report; {options.format} is a table of many submissions")
    for written in options.also:
        name, _, path = written.partition("=")
        check_format(name, FORMATS)
        if not path or name in others:
            raise UsageError(f"--also {written}: write FORMAT=FILE, each format once")
        check_output(Path(path), f"--also {name}:", graded=options.paths)
        others[name] = Path(path)
    to_file = options.output is not None and options.format in FORMATS
    if len(options.paths) > 1 and (to_file or others):
        option = "--output" if to_file else "--also"
        raise UsageError(f"{option} takes the report of one submission; grade several one by one")
    return others


def _check_paths(paths: Iterable[Path], source_name: str) -> None:
    """Raise `UsageError` that lists all wrong paths: reports of some submissions could be taken for all."""
    problems = []
    for path in paths:
        try:
            if _unpacked(path, source_name, rule="") is None:
                collect(path, source_name, rule="")
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n".join(problems))


def _unpacked(path: Path, source_name: str, rule: str) -> Source | None:
    """Return the submission in a zip; None for another path.

    Raises `UsageError` for a zip that cannot be unpacked, and for archives of other kinds.
    """
    if path.suffix.lower() in ARCHIVES and path.is_file():
        raise UsageError(f"{path}: {NOT_OPENED}, and give the folder")
    if path.suffix.lower() != ".zip" or not path.is_file():
        return None
    from grader.classroom.zip_archive import collect_zipped

    return collect_zipped(path, source_name, rule, name=one_line(str(path)))


def _graded(path: Path, grade: partial[Record], files: Mapping[Path, Callable[[Record], Document]]) -> Record:
    """Grade one submission, write its reports to files, and return the record.

    The files exist from the start and are never incomplete. Until the grading is finished they contain no points,
    whatever interrupts it.
    """

    def write_all(record: Record) -> None:
        for place, render in files.items():
            write(place, render(record))

    lab = grade.keywords["lab"]
    nothing = ungraded(lab.name, Submission(name=one_line(str(path))), lab.rubric.max_score, _NO_END)
    write_all(nothing)
    record = _with_status(path, grade)
    try:
        write_all(record)
    except BaseException:
        with contextlib.suppress(OSError, UsageError):
            write_all(nothing)
        raise
    return record


def _with_status(path: Path, grade: partial[Record]) -> Record:
    """Grade one submission; stderr shows what is being done."""
    lab = grade.keywords["lab"]
    with status(str(path)) as tell:
        source = _unpacked(path, lab.source_name, lab.rubric.judged(Judged.BUILD))
        return grade(path, source=source, progress=tell)


def _table(paths: Iterable[Path], grade: partial[Record], book: Gradebook, output: Path | None) -> list[Verdict]:
    """Grade all submissions and print one table of them. Only the row of each is in memory at once."""
    verdicts: list[Verdict] = []

    def records() -> Iterator[Record]:
        for path in paths:
            record = _with_status(path, grade)
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
