"""`grade diff`: whose verdict or points change from one run to another."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from grader.classroom.run_diff import changes
from grader.classroom.store import open_store
from grader.cli.classes import notify, store_option
from grader.cli.differences import show_changes
from grader.cli.parser import Parser, number
from grader.core.case import Number
from grader.core.errors import ExitCode, UsageError


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    parser.argument("old", metavar="OLD", type=number(Number("run", 1)), help="The number of a run.")
    parser.argument("new", metavar="NEW", type=number(Number("run", 1)), help="That of another one.")
    store_option(parser)
    parser.option("--format", metavar="FORMAT", default="text", choices=("text", "json"), help="text, json.")
    parser.option("--apply", action="store_true", help="From now on NEW is the run that counts.")


def diff(old: int, new: int, *, store: Path, format: str, apply: bool) -> ExitCode:  # noqa: A002 - the option's name
    """List whose verdict or points change from one run to another, and by which rules and cases.

    Exit code: 0 nothing changes, 1 something does, 2 a wrong option.

    Examples:
        grade diff 1 2
        grade diff 1 2 --apply
    """
    with open_store(store, read_only=not apply) as run_store:
        before, after = run_store.run(old), run_store.run(new)
        if before.lab != after.lab:
            raise UsageError(f"run {old} is of {before.lab}, run {new} of {after.lab}")
        all_changes = list(changes(run_store, before, after))
        if format == "json":
            print(json.dumps([asdict(change) for change in all_changes], indent=1))
        else:
            show_changes(all_changes, old, new)
        if apply:
            run_store.make_current(after)
            notify(f"run {new} counts now")
    return ExitCode.NOT_ACCEPTED if all_changes else ExitCode.ACCEPTED
