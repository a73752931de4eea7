"""`grade pack`: a bundle for the platform where students submit."""

from __future__ import annotations

import sys
from pathlib import Path

from grader.assignment.input_file import suggestion
from grader.bundles import BUNDLES
from grader.bundles.bundle import check_folder, put
from grader.cli.options import chosen_cases, chosen_lab, lab_option
from grader.cli.parser import Parser
from grader.core.errors import ExitCode, UsageError


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    text = "; ".join(f"{name}, {bundle.what}" for name, bundle in BUNDLES.items())
    parser.argument("name", metavar="NAME", offer=BUNDLES.keys, help=f"Which bundle: {text}.")
    parser.argument("folder", metavar="DIR", type=Path, help="The folder to make, with the bundle's files in it.")
    lab_option(parser)
    text = "Put it in the place of the same bundle that was packed there before."
    parser.option("--replace", action="store_true", help=text)


def pack(name: str, folder: Path, *, lab: str | None, replace: bool) -> ExitCode:
    """Make a bundle for the platform where students submit.

    The folder is made as a whole or not at all. The same clone makes the same bytes each time.

    Examples:
        grade pack gradescope autograder/
        grade pack gradescope autograder/ --replace
    """
    if name not in BUNDLES:
        raise UsageError(f"there is no bundle '{name}'{suggestion(name, BUNDLES)}; there are {', '.join(BUNDLES)}")
    check_folder(folder, replace=replace)
    selected_lab = chosen_lab(lab)
    bundle = BUNDLES[name]
    put(bundle.make(selected_lab, chosen_cases(selected_lab, "*", seed=None)), folder, replace=replace)
    sys.stdout.write(f"{folder}: {bundle.then}\n")
    return ExitCode.ACCEPTED
