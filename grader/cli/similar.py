"""`grade similar`: which submissions of a class are alike?"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grader.assignment.lab import Lab
from grader.cli.options import lab_named, lab_of_class, lab_option
from grader.cli.parser import argument, option, path_option
from grader.cli.stored import RUN, run_named
from grader.cli.terminal import console, counted, notify
from grader.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from grader.classroom.similarity import Alike, HandedIn
    from grader.report.similar_page import AlikeProgram


def _share(word: str) -> float:
    """Read a share. Raises `ArgumentTypeError` for another word."""
    try:
        share = float(word)
    except ValueError:
        share = -1.0
    if not 0.01 <= share <= 1:
        raise argparse.ArgumentTypeError(f"write a share from 0.01 to 1, such as 0.8, not '{word}'")
    return share


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarOptions:
    """The options of `grade similar`."""

    folder: Path | None = argument(
        "FOLDER", "The submissions of a class: a folder or a zip, as for grade batch.", nargs="?", type=Path
    )
    store: Path | None = path_option("--store", "FILE", "Compare what was handed in for a run of this store.")
    run: int | None = option("--run", "RUN", "The run of the store [default: the run that counts].", type=RUN)
    lab: str | None = lab_option()
    threshold: float = option(
        "--threshold",
        "SHARE",
        "List pairs in which this share of either is in the other one [default: 0.8].",
        default=0.8,
        type=_share,
    )
    output: Path | None = path_option(
        "--output", "FOLDER", "A new folder for web pages: the list, and each pair side by side."
    )


def similar(options: SimilarOptions) -> ExitCode:
    """List pairs of submissions that are alike, though names, comments and layout differ.

    What the course gives does not count: the skeleton, the header, given modules. A pair is no proof, and none costs
    a point: programs of one assignment may be alike by themselves. So read both, side by side on the pages of --output.
    The pages have the names of students.

    Exit code: 0 if the submissions could be compared, whether any are alike or not.

    Examples:
        grade similar submissions/
        grade similar --store grades.sqlite --output alike/
        grade similar submissions.zip --lab scheduler --threshold 0.6
    """
    from grader.bundles.bundle import File, check_folder, put
    from grader.classroom.similarity import Alike
    from grader.report.similar_page import INDEX

    if options.output is not None:
        check_folder(options.output)
    lab, submissions = _submissions(options)
    alike = Alike.among(submissions, lab, counted, options.threshold)
    for name, reason in alike.skipped:
        notify(f"not compared: {name}: {reason}")
    if len(alike.skipped) == len(submissions):
        raise UsageError("nothing can be compared here; is --lab right?")
    _print(alike)
    if options.output is not None:
        put((File(name=name, content=page.encode()) for name, page in alike.pages()), options.output)
        notify(f"the pairs side by side, with names: {options.output / INDEX}")
    return ExitCode.ACCEPTED


def _submissions(options: SimilarOptions) -> tuple[Lab, list[HandedIn]]:
    """Return the lab and what was handed in. Raises `UsageError` unless there is a folder, or a store with a run."""
    from grader.classroom.similarity import handed_in_folder, handed_in_run
    from grader.classroom.store import open_store

    if (options.folder is None) == (options.store is None):
        raise UsageError("write either the FOLDER of the submissions or --store FILE")
    if options.folder is not None:
        if options.run is not None:
            raise UsageError("--run works with --store only")
        lab = lab_named(options.lab or lab_of_class(options.folder))
        return lab, handed_in_folder(options.folder, lab)
    assert options.store is not None
    with open_store(options.store, read_only=True) as store:
        run = run_named(store, options.run)
        if options.lab not in (None, run.lab):
            raise UsageError(f"run {run.id} is of {run.lab}, not of {options.lab}; omit --lab, or write another --run")
        return lab_named(run.lab), handed_in_run(store, run)


def _print(alike: Alike) -> None:
    from rich.table import Table
    from rich.text import Text

    from grader.report.similar_page import percent

    print(alike.summary)
    if not alike.pairs:
        return
    table = Table("one", "of it in the other", "the other", "of it in the one")
    for pair in alike.pairs:
        for_each = ((Text(_named(program)), percent(program.share)) for program in pair)
        table.add_row(*(cell for cells in for_each for cell in cells))
    console(160).print(table)


def _named(program: AlikeProgram) -> str:
    from grader.report.escape import escape

    return escape(f"{program.name} ({' and '.join(program.students)})" if program.students else program.name)
