"""`grade repro`: a failing case as one standalone program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from grader import pipeline
from grader.assignment.lab import Lab
from grader.cli.options import (
    case_names,
    chosen_case,
    chosen_lab,
    chosen_options,
    chosen_selection,
    lab_option,
    memory_checker_option,
    public_option,
    seed_option,
)
from grader.cli.output import check_output
from grader.cli.parser import Parser
from grader.cli.recognise import lab_of_submissions
from grader.core.case import Case
from grader.core.errors import ExitCode, UsageError
from grader.core.picture import Drawing
from grader.core.record import Record, write
from grader.core.verdict import Finding, Outcome, Tool
from grader.report.phrases import result_of
from grader.runtime.options import GradingOptions

_WIDEST = 100
"""Of a comment in a program."""


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    parser.argument("path", metavar="PATH", type=Path, help="The submission: the file, or a folder that holds it.")
    parser.argument(
        "case",
        metavar="CASE",
        nargs="?",
        offer=case_names,
        help="A case; left out: the one with which the report begins.",
    )
    lab_option(parser)
    public_option(parser)
    parser.option("--output", metavar="FILE", type=Path, help="Write it there.")
    seed_option(parser)
    memory_checker_option(parser)


def repro(
    path: Path,
    case: str | None,
    *,
    lab: str | None,
    public_only: bool,
    output: Path | None,
    seed: int | None,
    without_memory_checker: bool,
) -> ExitCode:
    """Write a failing case as one program that needs nothing of the grader, in the language of the submission.

    It makes the calls up to the one that went wrong and says what the handout demands and what came instead. How to run
    it is printed to stderr. A program in C has a malloc of its own that stops it at the line that uses memory wrongly.
    What only the grader can see, such as calls of a device that have no order, is a comment at the end.

    Examples:
        grade repro llm_memory.c > repro.c
        grade repro my-homework/ append/three_sharers --output repro.c
    """
    check_output(output)
    selected_lab = chosen_lab(lab or lab_of_submissions([path]))
    if case is None:
        cases = chosen_selection(selected_lab, "*", seed, public_only=public_only).cases
    else:
        cases = (chosen_case([selected_lab], case, seed)[1],)
    options = chosen_options(selected_lab, GradingOptions(seed=seed, memory_checker=not without_memory_checker))
    random = any(
        selected_case.generated is not None for selected_case in cases
    )  # a failing trace is in no file: its picture has the program
    record = pipeline.grade(path, selected_lab, cases, options, draw=Drawing.ALL if random else Drawing.NOTHING)
    failing = _failing(record)
    if failing is None:
        sys.stderr.write("grade: nothing fails here, so there is nothing to reproduce\n")
        return ExitCode.ACCEPTED
    outcome, operation = failing
    text = _program(record, outcome) or selected_lab.reproduce(_named(cases, outcome.case), operation - 1)
    unseen = _unseen(selected_lab, record.first_finding(outcome))
    if unseen:
        lines = wrap(f"The grader saw here, and these calls alone do not show it: {unseen}", _WIDEST)
        text += "".join(f"    # {line}\n" for line in lines)
    if output is not None:
        write(output, text)
    else:
        sys.stdout.write(text)
    sys.stderr.write(
        f"grade: {outcome.case} up to operation {operation}; run it with\n  {selected_lab.reproduce_command}\n"
    )
    if unseen:
        sys.stderr.write("It passes: only the grader sees what went wrong, and a comment at its end says what.\n")
    checker = record.environment.used(Tool.MEMORY_CHECKER)
    if checker is not None and all(finding.tool is checker.tool for finding in record.findings_of(outcome)):
        name, command = checker.name, checker.name.lower()
        sys.stderr.write(f"Only {name} saw it; should the program be silent, run it as\n  {command} ./repro\n")
    return ExitCode.ACCEPTED


def _program(record: Record, outcome: Outcome) -> str:
    """Return the program that was made for a report, which knows the trace of a case of random traces; "" without."""
    lines = next((picture.program for picture in record.pictures if picture.case == outcome.case), ())
    return "".join(f"{line}\n" for line in lines)


def _unseen(lab: Lab, first: Finding | None) -> str:
    """What went wrong, where only the grader can see it; "" elsewhere."""
    return first.message if first is not None and first.kind in lab.derived else ""


def _named(cases: Sequence[Case], name: str) -> Case:
    return next(case for case in cases if case.name == name)


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
