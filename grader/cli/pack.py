"""`grade pack`: a bundle for the platform where students submit."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from grader.assignment.input_file import suggestion
from grader.bundles.bundle import check_folder, put
from grader.bundles.platforms import BUNDLES
from grader.cli.parser import argument, flag
from grader.cli.selection import Selection, lab_named, lab_option
from grader.core.errors import ExitCode, UsageError

_BUNDLES = "; ".join(f"{name}, {bundle.what}" for name, bundle in BUNDLES.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """The options of `grade pack`."""

    name: str = argument("NAME", f"Which bundle: {_BUNDLES}.", offer=BUNDLES.keys)
    folder: Path = argument("DIR", "The folder to create for the bundle's files.", type=Path)
    lab: str | None = lab_option()
    replace: bool = flag("--replace", "Replace an earlier bundle of the same kind in that folder.")


def pack(options: PackOptions) -> ExitCode:
    """Make a bundle for the platform where students submit.

    The folder is made as a whole or not at all. The same clone makes the same bytes each time.

    Examples:
        grade pack gradescope autograder/
        grade pack gradescope autograder/ --replace
    """
    name, folder, replace = options.name, options.folder, options.replace
    if name not in BUNDLES:
        raise UsageError(f"there is no bundle '{name}'{suggestion(name, BUNDLES)}; there are {', '.join(BUNDLES)}")
    check_folder(folder, replace=replace)
    lab, bundle = lab_named(options.lab), BUNDLES[name]
    put(bundle.make(lab, Selection().cases(lab).cases), folder, replace=replace)
    sys.stdout.write(f"{folder}: {bundle.then}\n")
    return ExitCode.ACCEPTED
