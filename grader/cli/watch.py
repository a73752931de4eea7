"""`grade watch`: grade a submission anew whenever it is saved."""

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
from grader.cli.options import Selection, check_options, lab_named, lab_of_submissions, seed_option
from grader.cli.output import Detail
from grader.cli.parser import argument, shared
from grader.cli.terminal import is_live, notify
from grader.core.errors import ExitCode, GraderError, ToolMissing
from grader.runtime.protocol import GradingOptions

if TYPE_CHECKING:
    from grader.core.record import Record

_OFTEN = {"debounce": 50, "step": 20, "rust_timeout": 500, "yield_on_timeout": True}
"""Milliseconds in which changes are collected, because an editor saves in several steps; and after how many the file is
looked at without any."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of `grade watch`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    selection: Selection = shared(Selection)
    seed: int | None = seed_option()


def watch(options: WatchOptions) -> ExitCode:
    """Grade a submission whenever its file is saved, until Ctrl-C.

    The score and the first cause come first, without the tool that looks for wrong uses of memory; it looks once
    everything else is right. Below is the smallest trace on which the program goes wrong in the same way.

    Examples:
        grade watch llm_memory.c
        grade watch my-homework/ --case 'append/*'
    """
    changes = changes_of()
    lab = lab_named(options.selection.lab or lab_of_submissions([options.path]))
    selected = options.selection.cases(lab, options.seed)
    source = collect(options.path, lab.source_name, rule="")
    folder = (source.path or options.path / lab.source_name).absolute().parent
    try:
        _show(options, lab, selected, source)
        for _ in changes(folder, recursive=False, raise_interrupt=True, **_OFTEN):
            now = collect(options.path, lab.source_name, rule="")
            if now != source:  # also what was saved before the folder was watched
                source = now
                _show(options, lab, selected, source)
    except KeyboardInterrupt:
        notify("no longer watching")
    return ExitCode.ACCEPTED


def changes_of() -> partial[Iterator[set[tuple[object, str]]]]:
    """Return what waits for changes of files. Raises `ToolMissing` without watchfiles."""
    try:
        return partial(import_module("watchfiles").watch)
    except ImportError as error:
        raise ToolMissing("watchfiles (for grade watch)", "scripts/setup --watch") from error


def _show(options: WatchOptions, lab: Lab, selected: CaseSelection, source: Source) -> None:
    """Grade the submission and show what came out; what is wrong with the grader is no reason to stop."""
    try:
        record = _graded(options, lab, selected, source)
    except GraderError as error:  # such as a machine that is too busy
        notify(str(error))
        return
    _print(record)
    if record.first_cause is not None and record.first_cause.cases:
        _print_trace(lab, selected, source, record)


def _graded(options: WatchOptions, lab: Lab, selected: CaseSelection, source: Source) -> Record:
    """Grade without the tool for memory first, and with it where nothing else is wrong."""
    from grader import pipeline

    grade = partial(pipeline.grade, options.path, lab, selected.cases, hidden=selected.hidden, source=source)
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

    clear = _CLEAR if is_live(sys.stdout) else ""
    sys.stdout.write(f"{clear}{FORMATS['text'](record, Detail().view())}")
    sys.stdout.flush()


def _print_trace(lab: Lab, selected: CaseSelection, source: Source, record: Record) -> None:
    """Print the smallest trace for the first cause, where the reference is here to say what it must do."""
    from grader import pipeline
    from grader.report.page import Page
    from grader.search.hunt import fails

    cause, generate, view = record.first_cause, lab.generator(), Detail().view()
    if cause is None or generate is None or record.outcome(cause.cases[0]).hidden_from(view.audience):
        return
    case = next(case for case in selected.cases if case.name == cause.cases[0])
    smallest = pipeline.hunted(source, lab, generate, partial(fails, case=case))
    if smallest is not None:
        page = Page(view.width, colour=view.colour)
        write_trace(page, lab, smallest)
        sys.stdout.write(page.text())
        sys.stdout.flush()
