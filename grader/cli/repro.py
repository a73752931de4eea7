"""`grade repro`: a failing case as one standalone program."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from grader import pipeline
from grader.assignment.lab import Lab
from grader.cli.options import (
    Selection,
    case_named,
    case_names,
    check_options,
    check_output,
    lab_named,
    lab_of_submissions,
    lab_option,
    memory_checker_option,
    public_option,
    seed_option,
)
from grader.cli.parser import argument, path_option
from grader.core.case import Case
from grader.core.errors import ExitCode, UsageError
from grader.core.picture import Drawing
from grader.core.record import Record, write
from grader.core.verdict import Finding, Outcome, Tool
from grader.report.phrases import result_of
from grader.runtime.protocol import GradingOptions

_WIDEST = 100
"""Of a comment in a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproOptions:
    """The options of `grade repro`."""

    path: Path = argument("PATH", "The submission: the file, or a folder that contains it.", type=Path)
    case: str | None = argument("CASE", "A case [default: the first one in the report].", nargs="?", offer=case_names)
    lab: str | None = lab_option()
    public_only: bool = public_option()
    output: Path | None = path_option("--output", "FILE", "Write the program to this file instead of printing it.")
    seed: int | None = seed_option()
    without_memory_checker: bool = memory_checker_option()


def repro(options: ReproOptions) -> ExitCode:
    """Write a failing case as one program that needs nothing of the grader, in the language of the submission.

    It makes the calls up to the one that went wrong and says what the handout demands and what came instead. How to run
    it is printed to stderr. A program in C has a malloc of its own that stops it at the line that uses memory wrongly.
    What only the grader can see, such as calls of a device that have no order, is a comment at the end.

    Examples:
        grade repro llm_memory.c > repro.c
        grade repro my-homework/ append/three_sharers --output repro.c
    """
    check_output(options.output, graded=[options.path])
    lab = lab_named(options.lab or lab_of_submissions([options.path]))
    if options.case is None:
        cases = Selection(public_only=options.public_only).cases(lab, options.seed).cases
    else:
        cases = (case_named([lab], options.case, options.seed)[1],)
    how = GradingOptions(seed=options.seed, memory_checker=not options.without_memory_checker)
    random = any(case.generated is not None for case in cases)  # a failing trace is in no file: its picture has it
    drawing = Drawing.ALL if random else Drawing.NOTHING
    record = pipeline.grade(options.path, lab, cases, check_options(lab, how), draw=drawing)
    failing = _failing(record)
    if failing is None:
        sys.stderr.write("grade: nothing fails here, so there is nothing to reproduce\n")
        return ExitCode.ACCEPTED
    outcome, operation = failing
    case = next(case for case in cases if case.name == outcome.case)
    text = program_of(lab, case, record, outcome)
    if options.output is not None:
        write(options.output, text)
    else:
        sys.stdout.write(text)
    sys.stderr.write(
        f"grade: {outcome.case} up to operation {operation}; {how_to_run(lab, record, outcome, options.output)}"
    )
    return ExitCode.ACCEPTED


def program_of(lab: Lab, case: Case, record: Record, outcome: Outcome) -> str:
    """Return a failing case as a program, with a comment on what only the grader can see.

    It is the one that was made for a report, if there is one: that knows the trace of a case of random traces.
    """
    lines = next((picture.program for picture in record.pictures if picture.case == outcome.case), ())
    text = "".join(f"{line}\n" for line in lines) or lab.reproduce(case, max(record.bad_operation(outcome), 1) - 1)
    unseen = _unseen(lab, record.first_finding(outcome))
    comment = f"The grader saw this, but these calls alone do not show it: {unseen}" if unseen else ""
    return text + "".join(f"    # {line}\n" for line in wrap(comment, _WIDEST))


def how_to_run(lab: Lab, record: Record, outcome: Outcome, file: Path | None) -> str:
    """Return the lines that tell how to run the program of a failing case, and why it may report nothing."""
    command = lab.reproduce_command
    if file is not None:
        command = re.sub(r"\brepro\.\w+", lambda _: shlex.quote(str(file)), command)
    text = f"run it with\n  {command}\n"
    if _unseen(lab, record.first_finding(outcome)):
        text += "The program passes: only the grader sees what went wrong; a comment at its end says what.\n"
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    if checker is not None and all(finding.tool is checker.tool for finding in record.findings_of(outcome)):
        text += f"Only {checker.name} saw it; if the program reports nothing, run it as\n"
        text += f"  {checker.name.lower()} ./repro\n"
    return text


def _unseen(lab: Lab, first: Finding | None) -> str:
    """What went wrong, where only the grader can see it; "" elsewhere."""
    return first.message if first is not None and first.kind in lab.derived else ""


def _failing(record: Record) -> tuple[Outcome, int] | None:
    """Return the case to write and its first bad operation, counted from 1; None when no case fails.

    It is the plainest case of the first cause. Raises `UsageError` when no case was played.
    """
    if not record.outcomes:
        raise UsageError(
            f"{record.submission.name}: {result_of(record)}, so no case can be played; `grade run` shows why"
        )
    outcomes = [record.outcome(case) for cause in record.causes for case in cause.cases[:1]]
    return (outcomes[0], max(record.bad_operation(outcomes[0]), 1)) if outcomes else None
