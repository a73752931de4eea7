"""`grade runs`: what a store holds."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.cli.classes import store_option
from grader.cli.parser import Parser
from grader.errors import ExitCode
from grader.report.escape import escape
from grader.store import Run, Store, open_store
from grader.verdict import Verdict

__all__ = ["options", "runs"]


def options(parser: Parser) -> None:
    """Declare them."""
    store_option(parser)


def runs(store: Path) -> ExitCode:
    """List the runs of a store: when, of which folder, how they ended, and which one counts (*).

    Examples:
        grade runs
        grade runs --store hw3.sqlite
    """
    table = Table(title=escape(str(store)), title_justify="left")
    for heading in ("run", "started", "of", "submissions", "accepted", "failing", "no score", "mean"):
        table.add_column(heading, overflow="fold")
    with open_store(store) as kept:
        for run in kept.runs():
            table.add_row(*map(Text, _row(kept, run)))
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(table)
    return ExitCode.ACCEPTED


def _row(store: Store, run: Run) -> list[str]:
    results = [(result.verdict, result.score) for result in store.results(run)]
    scores = [score for _, score in results if score is not None]
    accepted = sum(verdict is Verdict.ACCEPTED for verdict, _ in results)
    counts = store.current(run.lab, run.folder) == run
    of = f"{run.lab}: {escape(run.folder)}" + (f" (run {run.beside} again)" if run.beside is not None else "")
    figures = (len(results), accepted, len(scores) - accepted, len(results) - len(scores))
    mean_score = f"{mean(scores):.1f}" if scores else ""
    return [f"{run.id}{'*' if counts else ''}", run.started, of, *map(str, figures), mean_score]
