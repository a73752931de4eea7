"""Where a report goes, and its width and colours there."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from grader.assignment.input_file import suggestion
from grader.cli.log import in_workflow
from grader.cli.parser import Parser
from grader.cli.terminal import columns, is_colourful
from grader.core.errors import UsageError
from grader.report.view import View


def all_option(parser: Parser) -> None:
    """Declare --all."""
    text = "Every cause in full and how it was graded, in the text report, which has 80 lines at most without it."
    parser.option("--all", action="store_true", dest="everything", help=text)


def check_format(name: str, known: Collection[str]) -> None:
    """Raise `UsageError` when `name` is not a known format."""
    if name not in known:
        raise UsageError(f"there is no format '{name}'{suggestion(name, known)}; there are {', '.join(known)}")


def check_output(output: Path | None, option: str = "--output") -> None:
    """Raise `UsageError` when that file cannot be written, before any work is done in vain."""
    if output is None:
        return
    if not output.parent.is_dir():
        raise UsageError(f"{option} {output}: there is no folder {output.parent}")
    if output.exists() and not output.is_file():
        raise UsageError(f"{option} {output}: that is no file; write the name of one")
    if not os.access(output.parent, os.W_OK):
        raise UsageError(f"{option} {output}: we may not write into {output.parent}")


def view_of(*, instructor: bool, everything: bool = False, to_file: bool = False) -> View:
    """Return how a report is shown: reader, width, colours, and whether in a workflow log; a file gets the defaults."""
    time = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    view = View(instructor=instructor, everything=everything, variables=os.environ, time=time)
    if to_file:
        return view
    return replace(view, workflow=in_workflow(), width=columns(view.width), colour=is_colourful())
