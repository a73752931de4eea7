"""`grade runs`: what a store holds."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

from rich.table import Table
from rich.text import Text

from grader.classroom import prune as pruning
from grader.classroom.locks import run_locks
from grader.classroom.store import Run, Store, open_store
from grader.cli.classes import notify, store_option
from grader.cli.parser import Parser, number
from grader.cli.terminal import console
from grader.core.case import Number
from grader.core.errors import ExitCode, StoreError, UsageError
from grader.core.verdict import Verdict
from grader.report.escape import escape


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    store_option(parser)
    text = "Remove what no run refers to any longer, and the runs that --remove and --keep choose; asks first."
    parser.option("--prune", action="store_true", help=text)
    text = "With --prune: this run too; as often as you like."
    parser.option("--remove", metavar="RUN", type=number(Number("run", 1)), action="append", default=[], help=text)
    text = "With --prune: of each class all but its last N runs and the one that counts."
    parser.option("--keep", metavar="N", type=number(Number("runs", 1)), help=text)
    parser.option("--yes", action="store_true", help="With --prune: do not ask.")


def runs(
    store: Path,
    *,
    prune: bool,
    remove: list[int],
    keep: int | None,
    yes: bool,
) -> ExitCode:
    """List the runs of a store: when, of which folder, how they ended, and which one counts (*).

    With --prune the store becomes smaller; it shows before by how much. It refuses while a batch uses the store.

    Examples:
        grade runs
        grade runs --store hw3.sqlite
        grade runs --prune --keep 3
    """
    if not prune and (remove or keep is not None or yes):
        raise UsageError("--remove, --keep and --yes say what --prune does; write --prune too")
    if prune:
        _prune(store, remove, keep, yes=yes)
    table = Table(title=escape(str(store)), title_justify="left")
    for heading in (
        "run",
        "started",
        "of",
        "submissions",
        "accepted",
        "failing",
        "need a person",
        "no score yet",
        "mean",
    ):
        table.add_column(heading, overflow="fold")
    with open_store(store, read_only=True) as run_store:
        for run in run_store.runs():
            table.add_row(*map(Text, _row(run_store, run)))
    console(160).print(table)
    return ExitCode.ACCEPTED


def _prune(path: Path, remove: list[int], keep: int | None, *, yes: bool) -> None:
    """Show what would be removed, ask, and remove it. Raises `UsageError` when stdin is no terminal to ask at."""
    if not path.is_file():
        raise StoreError(f"{path}: there is no such store; write --store with the name of one")
    with run_locks(path, alone=True), open_store(path) as run_store:
        old = pruning.chosen(run_store, remove, keep)
        unused = pruning.prunable(run_store, old)
        what = (
            f"{len(old)} runs{''.join(f' {run.id}' for run in old)}, {unused.records} records, {unused.sources} sources"
        )
        notify(f"{path}: this goes: {what}; {unused.size / 1e6:.1f} MB")
        if not (old or unused.records or unused.sources):
            return
        if not yes and not sys.stdin.isatty():
            raise UsageError("nothing was removed, for there is nobody to ask: write --yes")
        if not yes and input("Remove it? It cannot be brought back. [y/N] ").strip().lower() not in ("y", "yes"):
            notify("nothing was removed")
            return
        before = path.stat().st_size
        pruning.prune(run_store, old)
        notify(f"removed; the file had {before / 1e6:.1f} MB and has {path.stat().st_size / 1e6:.1f}")


def _row(store: Store, run: Run) -> list[str]:
    results = [(result.verdict, result.score, result.needs_person) for result in store.results(run)]
    scores = [score for _, score, _ in results if score is not None]
    accepted = sum(verdict is Verdict.ACCEPTED for verdict, *_ in results)
    people = sum(needs_person for *_, needs_person in results)
    counts = store.current(run.lab, run.folder) == run
    of = f"{run.lab}: {escape(run.folder)}" + (f" (run {run.beside} again)" if run.beside is not None else "")
    figures = (len(results), accepted, len(scores) - accepted, people, len(results) - len(scores) - people)
    mean_score = f"{mean(scores):.1f}" if scores else ""
    return [f"{run.id}{'*' if counts else ''}", run.started, of, *map(str, figures), mean_score]
