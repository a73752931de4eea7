"""`grade run`: one or more submissions, a report for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.text import Text

from grader import pipeline
from grader.cli.options import Allowed, CaseGlob, LabName, Seed, check_output, chosen_cases, chosen_lab
from grader.collect import collect
from grader.errors import ExitCode, UsageError
from grader.labs import DEFAULT
from grader.record import Record, write
from grader.report import FORMATS, View
from grader.report.escape import escape
from grader.verdict import Verdict

__all__ = ["run"]

_STEPS = {
    "_collect": "looking for the file",
    "_build": "compiling",
    "_replay": "running the cases",
    "_compare": "comparing with the reference",
    "_memcheck": "running them again under Valgrind",
    "_count": "counting instructions",
    "_find_lost": "looking for lost memory",
    "_diagnose": "looking for the cause",
    "_pinpoint": "looking for lines",
    "_score": "counting points",
    "_advise": "looking for advice",
}

_Instructions = Annotated[
    bool,
    typer.Option("--instructions", help="Also count the instructions of the demanded functions, for a leaderboard."),
]
_Instructor = Annotated[
    bool,
    typer.Option("--instructor", help="Show hidden cases too, and what a program that does not compile had got."),
]


def run(  # noqa: PLR0917 - a command's options, which typer passes by name
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="The file to grade, or a folder that holds it at any depth."),
    ],
    lab: LabName = DEFAULT,
    case: CaseGlob = "*",
    format: Annotated[  # noqa: A002 - the option's name
        str, typer.Option("--format", metavar="FORMAT", help=f"The report: {', '.join(FORMATS)}.")
    ] = "text",
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the report there instead of printing it."),
    ] = None,
    seed: Seed = None,
    without_valgrind: Annotated[
        bool, typer.Option("--without-valgrind", help="Go on without Valgrind; record and report say so.")
    ] = False,
    advice: Annotated[
        bool, typer.Option("--advice", help="Look also for what costs no point, but twice the time.")
    ] = False,
    instructions: _Instructions = False,
    allow: Allowed = None,
    instructor: _Instructor = False,
) -> None:
    """Grade one or more submissions.

    The reports are printed one after the other (with --format json: one object each), progress goes to stderr. Exit
    code: 0 all have every point, 1 some have not, 2 a wrong option or path, and nothing is graded, 3 the grader's own
    fault, 130 interrupted.

    \b
    grade run llm_memory.c
    grade run my-homework/ --case 'append/*'
    grade run llm_memory.c --format json --output result.json
    """
    if format not in FORMATS:
        raise UsageError(f"there is no format '{format}'; write --format {' or --format '.join(FORMATS)}")
    check_output(output)
    if output is not None and len(paths) > 1:
        raise UsageError("--output takes the report of one submission; grade several one by one")
    chosen = chosen_lab(lab)
    cases = chosen_cases(chosen, case, seed)
    _check_paths(paths, chosen.source_name)

    view = _terminal(instructor) if output is None else View(instructor=instructor)
    grade = partial(
        pipeline.grade,
        lab=chosen,
        cases=cases,
        seed=chosen.rubric.seed if seed is None else seed,
        valgrind=not without_valgrind,
        advise=advice,
        instructions=instructions,
        allowed=allow or (),
    )
    verdicts = [_report(path, grade, partial(FORMATS[format], view=view), output) for path in paths]
    accepted = all(verdict.passed for verdict in verdicts)
    raise typer.Exit(ExitCode.ACCEPTED if accepted else ExitCode.NOT_ACCEPTED)


def _report(path: Path, grade: Callable[..., Record], render: Callable[[Record], str], output: Path | None) -> Verdict:
    """Grade one submission and print its report, or keep it in a file that is there early and never half."""

    def keep(record: Record) -> None:
        if output is not None:
            write(output, render(record))

    with Console(stderr=True).status(_told(path, "starting")) as status:
        record = grade(path, progress=partial(_tell, status, path), early=keep if output is not None else None)
    keep(record)
    if output is None:
        sys.stdout.write(render(record))
        sys.stdout.flush()
    return record.verdict


def _check_paths(paths: Iterable[Path], source_name: str) -> None:
    """Raises `UsageError` with all that is wrong: half of the reports would look like all of them."""
    slips = []
    for path in paths:
        try:
            collect(path, source_name, rule="")
        except UsageError as error:
            slips.append(str(error))
    if slips:
        raise UsageError("\n".join(slips))


def _tell(status: Status, path: Path, step: str) -> None:
    status.update(_told(path, _STEPS[step]))


def _told(path: Path, doing: str) -> Text:
    """What the status line says: as it stands, for a path may look like markup or steer the terminal."""
    return Text(f"{escape(str(path))}: {doing}")


def _terminal(instructor: bool) -> View:
    """Width and whether colours are wanted: only on a terminal, and not where NO_COLOR says no."""
    console = Console()
    if not console.is_terminal:
        return View(instructor=instructor)
    return View(instructor=instructor, width=console.width, colour=not os.environ.get("NO_COLOR"))
