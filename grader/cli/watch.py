"""`grade watch`: grade a submission anew whenever it is saved.

Half of the time from a save to the whole result goes into random traces. So where a lab has some, the cases with given
operations come first, and what they show is shown while the rest runs (`pipeline.first_look`). A file that is saved
meanwhile ends that: its grading is abandoned, as by Ctrl-C, and the new content is graded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from grader.assignment.case_selection import CaseSelection
from grader.assignment.lab import Lab
from grader.assignment.source import Source, collect
from grader.cli.hunt import write_trace
from grader.cli.options import Detail, Selection, check_options, lab_named, lab_of_submissions, seed_option
from grader.cli.parser import argument, shared
from grader.cli.terminal import is_live, notify
from grader.core.errors import Abandoned, ExitCode, GraderError, ToolMissing, UsageError
from grader.core.verdict import Visibility
from grader.runtime.protocol import GradingOptions
from grader.system.budget import Budget

if TYPE_CHECKING:
    from grader.core.record import Record

_OFTEN = {"debounce": 50, "step": 20, "rust_timeout": 500, "yield_on_timeout": True}
"""Milliseconds in which changes are collected, because an editor saves in several steps; and after how many the file is
looked at without any."""
_SECONDS = 10.0
"""The time in which a trace is made smaller."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of `grade watch`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    selection: Selection = shared(Selection)
    seed: int | None = seed_option()


def watch(options: WatchOptions) -> ExitCode:
    """Grade a submission whenever its file is saved, until Ctrl-C.

    In a Python lab the first cause that public cases show comes first, while random traces still run; then the score
    and the report. In C the score comes first, without the tool that looks for wrong uses of memory; it looks once
    everything else is right. Below is the smallest trace on which the program goes wrong in the same way. A save while
    a grading runs ends it, and the new content is graded.

    Examples:
        grade watch llm_memory.c
        grade watch my-homework/ --case 'append/*'
    """
    changes = changes_of()
    lab = lab_named(options.selection.lab or lab_of_submissions([options.path]))
    selected = options.selection.cases(lab, options.seed)
    try:
        last = Saved.at(options.path, lab)
        complete = _show(options, lab, selected, last)
        for _ in changes(last.file.parent, recursive=False, raise_interrupt=True, **_OFTEN):
            try:
                now = Saved.at(options.path, lab)
            except UsageError as error:  # gone, perhaps only until git or a formatter has written it anew
                if complete:
                    _write(f"{error}\n")
                complete = False
                continue
            if now.source != last.source or not complete:  # also what was saved before the folder was watched
                last = now
                complete = _show(options, lab, selected, last)
    except KeyboardInterrupt:
        notify("no longer watching")
    return ExitCode.ACCEPTED


@dataclass(slots=True, kw_only=True)
class Saved:
    """What was read of a submission, and whether its file has another content by now."""

    path: Path
    lab: Lab
    source: Source
    state: tuple[int, int, int] | None = None
    """Of the file, when it was last seen with this content (see `_state`); None before that."""

    @classmethod
    def at(cls, path: Path, lab: Lab) -> Saved:
        """Read the submission. Raises `UsageError` as `collect` does."""
        return cls(path=path, lab=lab, source=collect(path, lab.source_name, rule=""))

    @property
    def file(self) -> Path:
        """The file that is watched, also where there is none yet."""
        return (self.source.path or self.path / self.lab.source_name).absolute()

    def is_old(self) -> bool:
        """Whether another content is there now. While an editor replaces the file, for a moment there is none."""
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
    """What changes when a file is written or replaced; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def changes_of() -> partial[Iterator[set[tuple[object, str]]]]:
    """Return what waits for changes of files. Raises `ToolMissing` without watchfiles."""
    try:
        return partial(import_module("watchfiles").watch)
    except ImportError as error:
        raise ToolMissing("watchfiles (for grade watch)", "scripts/setup --watch") from error


def _show(options: WatchOptions, lab: Lab, selected: CaseSelection, saved: Saved) -> bool:
    """Grade the submission and show what comes out; False where it was saved anew meanwhile.

    What is wrong with the grader is no reason to stop.
    """
    try:
        _first_look(options, lab, selected, saved)
        record = _graded(options, lab, selected, saved)
        _print(record)
        if record.first_failing_cause is not None:
            _print_trace(lab, selected, saved, record)
    except GraderError as error:  # such as a machine that is too busy
        notify(str(error))
    except Abandoned:
        return False
    return True


def _first_look(options: WatchOptions, lab: Lab, selected: CaseSelection, saved: Saved) -> None:
    """Show the first cause of what is known soon, and what is still being looked at."""
    from grader import pipeline
    from grader.report.first_look import first_look
    from grader.report.phrases import counted

    how = check_options(lab, GradingOptions(seed=options.seed))
    budget = Budget(unwanted=saved.is_old)
    record = pipeline.first_look(saved.source, lab, selected.cases, how, budget=budget)
    if record is not None:
        traces = sum(len(case.generated.traces) for case in selected.cases if case.generated is not None)
        hidden = any(case.visibility is Visibility.HIDDEN for case in selected.cases)
        parts = (["hidden cases"] if hidden else []) + ([counted(traces, "random trace")] if traces else [])
        _write(f"{first_look(record, Detail().view(), parts)}\n")


def _graded(options: WatchOptions, lab: Lab, selected: CaseSelection, saved: Saved) -> Record:
    """Grade without the tool for memory first, and with it where nothing else is wrong."""
    from grader import pipeline

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
    from grader.report import FORMATS

    _write(FORMATS["text"](record, Detail().view()))


def _write(text: str) -> None:
    """Write a page over the one before it."""
    clear = _CLEAR if is_live(sys.stdout) else ""
    sys.stdout.write(f"{clear}{text}")
    sys.stdout.flush()


def _print_trace(lab: Lab, selected: CaseSelection, saved: Saved, record: Record) -> None:
    """Print the smallest trace for the first cause, where the reference is here to say what it must do."""
    from grader import pipeline
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
