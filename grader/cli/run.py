"""`grade run` and `grade watch`: grade submissions and report on each; grade one submission whenever it is saved.

Random traces take half of the time from a save to the complete result. So `grade watch` first plays the public cases
whose files list their operations, and shows what they find (`pipeline.first_look`) while the other cases run. If the
file is saved again during a grading, this grading is abandoned and the new content is graded.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path

from grader import pipeline
from grader.assignment.case_files import CaseSelection
from grader.assignment.lab import Lab
from grader.assignment.source import ARCHIVES, NOT_OPENED, Source, collect
from grader.cli.app import argument, flag, number_option, option, path_option, repeated, shared
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
    seed_option,
)
from grader.cli.terminal import is_live, notify, status
from grader.core.errors import Abandoned, ExitCode, GraderError, ToolMissing, UsageError
from grader.core.picture import Drawing
from grader.core.record import Record, Submission, ungraded, write
from grader.core.sanitize import one_line
from grader.core.verdict import Judged, Verdict, Visibility
from grader.report import DRAWN, FORMATS, GRADEBOOKS
from grader.report.document import Document, Gradebook
from grader.runtime.protocol import GradingOptions
from grader.system.budget import Budget
from grader.system.sandbox import LEVELS, require

_PATH = "The file to grade, or a folder or a zip that contains it at any depth."
_FORMAT = f"The report: {', '.join(FORMATS)}; or one table of all submissions: {', '.join(GRADEBOOKS)}."
_ALSO = "Write another report of the same grading to a file. Repeatable."
_SEARCH = (
    "Also search beyond the cases. If all pass: in all states of a small engine. If one fails: for the smallest trace "
    "that fails in the same way. This costs no points. It is always done for a text report in a terminal."
)
_HAND_IN = "The number of this hand-in of the student. What students see may depend on it, by the rubric."
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
    hand_in: int | None = number_option("--hand-in", "N", _HAND_IN, 1)
    search: bool = flag("--search", _SEARCH)
    require_sandbox: str | None = sandbox_option()
    detail: Detail = shared(Detail)


def run(options: RunOptions) -> ExitCode:
    """Grade one or more submissions.

    The reports are printed one after the other (with --format json, one object each). Progress is printed to stderr.

    Exit code: 0 if all have full points (with --public-only: of the public cases), 1 if not, 2 for a wrong option or
    path (then nothing is graded), 3 if the grader fails, 130 if interrupted.

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
    """Return the files of --also, by format. Raises `UsageError` for a wrong file, or for several submissions."""
    others: dict[str, Path] = {}
    if options.also and options.format in GRADEBOOKS:
        raise UsageError(f"--also goes with a report; {options.format} is a table of many submissions")
    for written in options.also:
        name, _, path = written.partition("=")
        check_format(name, FORMATS)
        if not path or name in others:
            raise UsageError(f"--also {written}: write FORMAT=FILE, each format once")
        if Path(path) in (options.output, *others.values()):
            raise UsageError(f"--also {written}: another report is written to this file; write the name of another one")
        check_output(Path(path), f"--also {name}:", graded=options.paths)
        others[name] = Path(path)
    to_file = options.output is not None and options.format in FORMATS
    if len(options.paths) > 1 and (to_file or others):
        option = "--output" if to_file else "--also"
        raise UsageError(f"{option} takes the report of one submission; grade several one by one")
    return others


def _check_paths(paths: Iterable[Path], source_name: str) -> None:
    """Raise `UsageError` if a path is wrong: a user could take reports of some submissions for reports of all."""
    problems = []
    for path in paths:
        try:
            _collected(path, source_name, rule="")
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n".join(problems))


def _collected(path: Path, source_name: str, rule: str) -> Source:
    """Return the submission at a path: a file, a zip, or a folder, which may contain the file in a zip.

    Raises `UsageError` if there is no such path, for a zip that cannot be unpacked, and for what may be right but is
    not read: a link, or an archive of another kind.
    """
    if path.suffix.lower() in ARCHIVES and path.is_file():
        raise UsageError(f"{path}: {NOT_OPENED}, and give the folder")
    is_zip = path.suffix.lower() == ".zip" and path.is_file()
    source = None if is_zip else collect(path, source_name, rule)
    if source is None or (source.path is None and source.finding is not None):  # a zip in the folder may hold the file
        from grader.classroom.zip_archive import collect_zipped

        source = collect_zipped(path, source_name, rule, name=one_line(str(path)))
    if source.is_unread and source.finding is not None:  # it may be right, so it never gets a 0
        raise UsageError(f"{one_line(str(path))}: {source.finding.message}")
    return source


def _graded(path: Path, grade: partial[Record], files: Mapping[Path, Callable[[Record], Document]]) -> Record:
    """Grade one submission, write its reports to files, and return the record.

    The files exist from the start and are never incomplete. Until the grading is finished, they contain no points, even
    if it is interrupted.
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
    """Grade one submission. stderr shows what is being done."""
    lab = grade.keywords["lab"]
    with status(str(path)) as tell:
        source = _collected(path, lab.source_name, lab.rubric.judged(Judged.BUILD))
        return grade(path, source=source, progress=tell)


def _table(paths: Iterable[Path], grade: partial[Record], book: Gradebook, output: Path | None) -> list[Verdict]:
    """Grade all submissions and print one table. Of each submission only the row stays in memory."""
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


_OFTEN = {"debounce": 50, "step": 20, "rust_timeout": 500, "yield_on_timeout": True}
"""Milliseconds: changes are collected for `debounce`, because an editor saves in several steps; without changes the
file is read after `rust_timeout`."""
_SECONDS = 10.0
"""The most seconds for making a trace smaller."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of `grade watch`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    selection: Selection = shared(Selection)
    seed: int | None = seed_option()


def watch(options: WatchOptions) -> ExitCode:
    """Grade a submission whenever its file is saved, until Ctrl-C.

    In a Python lab the first cause in public cases is shown first, while random traces still run; then the score and
    the report. In C the score is shown first, without the tool that finds wrong uses of memory. That tool is used when
    everything else is right. Below is the smallest trace on which the program goes wrong in the same way. If the file
    is saved during a grading, the grading ends and the new content is graded.

    Examples:
        grade watch llm_memory.c
        grade watch my-homework/ --case 'append/*'
    """
    changes = changes_of()
    lab = lab_named(options.selection.lab or lab_of_submissions([options.path]))
    selected = options.selection.cases(lab, options.seed)
    try:
        last = Saved.at(options.path, lab)
        complete = _show_saved(options, lab, selected, last)
        for _ in changes(last.file.parent, recursive=False, raise_interrupt=True, **_OFTEN):
            try:
                now = Saved.at(options.path, lab)
            except UsageError as error:  # removed, perhaps only until git or a formatter has written it again
                if complete:
                    _write(f"{error}\n")
                complete = False
                continue
            if now.source != last.source or not complete:  # it may have been saved before the folder was watched
                last = now
                complete = _show_saved(options, lab, selected, last)
    except KeyboardInterrupt:
        notify("no longer watching")
    return ExitCode.ACCEPTED


@dataclass(slots=True, kw_only=True)
class Saved:
    """A submission as it was last read, with a check whether its file has changed since."""

    path: Path
    lab: Lab
    source: Source
    state: tuple[int, int, int] | None = None
    """The `_state` of the file when it last had this content; None if the file was not checked yet."""

    @classmethod
    def at(cls, path: Path, lab: Lab) -> Saved:
        """Read the submission. Raises `UsageError` as `collect` does."""
        return cls(path=path, lab=lab, source=collect(path, lab.source_name, rule=""))

    @property
    def file(self) -> Path:
        """The watched file, which may not exist yet."""
        return (self.source.path or self.path / self.lab.source_name).absolute()

    def is_old(self) -> bool:
        """Whether the content has changed since. A missing file is no change: an editor may be replacing the file."""
        state = _state(self.file)
        if state is None or state == self.state:
            return False
        try:
            changed = collect(self.path, self.lab.source_name, rule="") != self.source
        except UsageError:
            return False
        self.state = self.state if changed else state
        return changed


def _state(file: Path) -> tuple[int, int, int] | None:
    """Return attributes that change when a file is written or replaced; None if there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def changes_of() -> partial[Iterator[set[tuple[object, str]]]]:
    """Return the function that waits for changes of files. Raises `ToolMissing` if watchfiles is not installed."""
    try:
        return partial(import_module("watchfiles").watch)
    except ImportError as error:
        raise ToolMissing("watchfiles (for grade watch)", "scripts/setup --watch") from error


def _show_saved(options: WatchOptions, lab: Lab, selected: CaseSelection, saved: Saved) -> bool:
    """Grade the submission and show the result. Return False if the file was saved again during the grading.

    A failure of the grader is reported and does not end the watching.
    """
    try:
        _first_look(options, lab, selected, saved)
        record = _graded_now(options, lab, selected, saved)
        _print(record)
        if record.first_failing_cause is not None:
            _print_trace(lab, selected, saved, record)
    except GraderError as error:  # such as a machine that is too busy
        notify(str(error))
    except Abandoned:
        return False
    return True


def _first_look(options: WatchOptions, lab: Lab, selected: CaseSelection, saved: Saved) -> None:
    """Grade the cases that `pipeline.first_look` plays. Show the first cause, and which cases still run."""
    from grader.report.phrases import counted
    from grader.report.start_here import first_look

    how = check_options(lab, GradingOptions(seed=options.seed))
    budget = Budget(unwanted=saved.is_old)
    record = pipeline.first_look(saved.source, lab, selected.cases, how, budget=budget)
    if record is not None:
        traces = sum(len(case.generated.traces) for case in selected.cases if case.generated is not None)
        hidden = any(case.visibility is Visibility.HIDDEN for case in selected.cases)
        parts = (["hidden cases"] if hidden else []) + ([counted(traces, "random trace")] if traces else [])
        _write(f"{first_look(record, Detail().view(), parts)}\n")


def _graded_now(options: WatchOptions, lab: Lab, selected: CaseSelection, saved: Saved) -> Record:
    """Grade without the memory checker. If nothing is wrong, show this and grade again with the memory checker."""

    def grade(how: GradingOptions) -> Record:
        return pipeline.grade(
            options.path,
            lab,
            selected.cases,
            how,
            hidden=selected.hidden,
            source=saved.source,
            budget=Budget(unwanted=saved.is_old),
        )

    how = check_options(lab, GradingOptions(seed=options.seed))
    if "memory_checker" not in lab.runtime.options:
        return grade(how)
    record = grade(replace(how, memory_checker=False))
    if record.first_cause is not None or record.build_findings:
        return record
    _print(record)
    return grade(how)


def _print(record: Record) -> None:
    _write(FORMATS["text"](record, Detail().view()))


def _write(text: str) -> None:
    """Write a page over the previous page."""
    clear = _CLEAR if is_live(sys.stdout) else ""
    sys.stdout.write(f"{clear}{text}")
    sys.stdout.flush()


def _print_trace(lab: Lab, selected: CaseSelection, saved: Saved, record: Record) -> None:
    """Print the smallest trace for the first cause, if there is a reference and students may see the case."""
    from grader.cli.hunt import write_trace
    from grader.report.page import Page
    from grader.search.hunt import fails

    cause, generate, view = record.first_failing_cause, lab.generator(), Detail().view()
    if cause is None or generate is None or record.outcome(cause.cases[0]).hidden_from(view.audience):
        return
    case = next(case for case in selected.cases if case.name == cause.cases[0])
    search, budget = partial(fails, case=case), Budget(unwanted=saved.is_old)
    smallest = pipeline.hunted(saved.source, lab, generate, search, seconds=_SECONDS, budget=budget)
    if smallest is not None:
        page = Page(view.width, colour=view.colour)
        write_trace(page, lab, smallest)
        sys.stdout.write(page.text())
        sys.stdout.flush()
