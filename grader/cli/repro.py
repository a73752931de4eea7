"""`grade repro`: a failing case as one standalone C program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from grader import pipeline
from grader.cli.options import LabName, Seed, check_output, chosen_case, chosen_cases, chosen_lab
from grader.errors import ExitCode, UsageError
from grader.labs import DEFAULT
from grader.record import Record, write
from grader.verdict import Outcome, Verdict

__all__ = ["repro"]


def repro(  # noqa: PLR0917 - a command's options, which typer passes by name
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The submission: the file, or a folder that holds it.")],
    case: Annotated[
        str | None, typer.Argument(metavar="CASE", help="A case; left out: the one of the diagnosis.")
    ] = None,
    lab: LabName = DEFAULT,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write it there.")] = None,
    seed: Seed = None,
    without_valgrind: Annotated[bool, typer.Option("--without-valgrind", help="Go on without Valgrind.")] = False,
) -> None:
    """Write a failing case as one C program that needs nothing but the handout's header.

    It makes the calls up to the one that went wrong and checks what the handout demands.

    \b
    grade repro llm_memory.c > repro.c
    gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb llm_memory.c repro.c -o repro && ./repro
    """
    check_output(output)
    chosen = chosen_lab(lab)
    cases = [chosen_case(chosen, case, seed)] if case is not None else chosen_cases(chosen, "*", seed)
    used = chosen.rubric.seed if seed is None else seed
    record = pipeline.grade(path, chosen, cases, seed=used, valgrind=not without_valgrind)
    outcome, operation = _failing(record)
    text = chosen.reproduce(next(one for one in cases if one.name == outcome.case), operation - 1)
    if output is not None:
        write(output, text)
    else:
        sys.stdout.write(text)
    sys.stderr.write(
        f"grade: {outcome.case} up to operation {operation}; build it with\n  {chosen.reproduce_command}\n"
    )


def _failing(record: Record) -> tuple[Outcome, int]:
    """The case to write and its first bad operation, counted from 1."""
    if not record.outcomes:
        why = "it is rejected" if record.verdict is Verdict.REJECTED else "it does not compile"
        raise UsageError(f"{why}, so no case can be played; `grade run` shows why")
    wanted = record.diagnosis.case if record.diagnosis is not None else None
    failing = [outcome for outcome in record.outcomes if not outcome.clean]
    if not failing:
        sys.stderr.write("grade: nothing fails here, so there is nothing to reproduce\n")
        raise typer.Exit(ExitCode.ACCEPTED)
    outcome = next((one for one in failing if one.case == wanted), failing[0])
    found = [record.findings[place].operation for place in outcome.findings]
    return outcome, min((operation for operation in found if operation is not None), default=len(outcome.steps))
