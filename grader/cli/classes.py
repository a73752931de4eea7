"""Shared by the commands for a whole class: the options --store and --roster, and the choice of a run."""

from __future__ import annotations

import sys
from pathlib import Path

from grader.classroom.store import Run, Store
from grader.cli.parser import Parser
from grader.core.errors import UsageError
from grader.report.escape import escape

STORE = Path("grades.sqlite")


def store_option(parser: Parser) -> None:
    """Declare --store."""
    text = f"Where all runs are kept [default: {STORE}]."
    parser.option("--store", metavar="FILE", type=Path, default=STORE, help=text)


def roster_option(parser: Parser) -> None:
    """Declare --roster."""
    columns = "columns folder (or github_username), name, and sid, email, section if you like"
    text = f"Who is who: CSV with the {columns}; left out: that of the run before."
    parser.option("--roster", metavar="FILE", type=Path, help=text)


def chosen_run(store: Store, wanted: int | None) -> Run:
    """Return the run with that number, else the one that counts. Raises `UsageError` when it is not clear which."""
    if wanted is not None:
        return store.run(wanted)
    runs = store.all_current()
    if not runs:
        raise UsageError("there is no run in this store yet; `grade batch FOLDER` makes one")
    if len(runs) > 1:
        listed = "".join(f"\n  run {run.id}: {run.folder}" for run in runs)
        raise UsageError(f"the store holds several classes, so say which run you mean:{listed}")
    return runs[0]


def notify(text: str) -> None:
    """Write a message to stderr. It is escaped: names in it may come from a student."""
    sys.stderr.write(f"{escape(text)}\n")
