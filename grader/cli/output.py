"""What a report shows, where it goes, and its width and colours there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from grader.assignment.input_file import suggestion
from grader.cli.parser import flag
from grader.cli.terminal import columns, in_workflow, is_colourful, rows
from grader.core.errors import UsageError
from grader.report.document import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The options for how much a report shows."""

    instructor: bool = flag(
        "--instructor", "Show hidden cases too, and the points that a program would have if it could be built."
    )
    everything: bool = flag(
        "--all", "Show every cause in full and how it was graded; without it a text report fits the terminal."
    )

    def view(self, *, to_file: bool = False) -> View:
        """Return how a report is shown: reader, width, colours, and whether in a workflow log; a file gets defaults."""
        time = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        view = View(instructor=self.instructor, everything=self.everything, variables=os.environ, time=time)
        if to_file:
            return view
        shown = replace(view, workflow=in_workflow(), width=columns(view.width), colour=is_colourful())
        return replace(shown, height=rows())


def check_format(name: str, known: Collection[str]) -> None:
    """Raise `UsageError` when `name` is not a known format."""
    if name not in known:
        raise UsageError(f"there is no format '{name}'{suggestion(name, known)}; there are {', '.join(known)}")


def _is_submission(file: Path, graded: Iterable[Path]) -> bool:
    from grader.labs import LABS, present

    sources = {LABS[lab].source_name for lab in present()}
    return file.name in sources or any(path.exists() and file.samefile(path) for path in graded)


def check_output(output: Path | None, option: str = "--output", *, graded: Iterable[Path] = ()) -> None:
    """Raise `UsageError` when that file cannot be written, before any work is done in vain.

    What is `graded` is never overwritten, nor any other file that has the name of a submission.
    """
    if output is None:
        return
    if output.is_file() and _is_submission(output, graded):
        raise UsageError(f"{option} {output}: it would overwrite a submission; write the name of another file")
    if not output.parent.is_dir():
        raise UsageError(f"{option} {output}: there is no folder {output.parent}")
    if output.exists() and not output.is_file():
        raise UsageError(f"{option} {output}: it is not a file; write the name of a file")
    if not os.access(output.parent, os.W_OK):
        raise UsageError(f"{option} {output}: no permission to write to {output.parent}")
