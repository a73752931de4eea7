"""`grade doctor` and `grade pack`: what this machine needs to grade, and bundles for grading on other platforms."""

from __future__ import annotations

import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grader import __version__, pipeline
from grader.assignment.input_file import suggestion
from grader.assignment.lab import Settings
from grader.bundles import BUNDLES, check_folder, put
from grader.classroom.workers import grading_plan
from grader.cli.app import argument, flag
from grader.cli.options import Selection, lab_named, lab_option
from grader.cli.terminal import table
from grader.core.errors import CannotStart, ExitCode, GraderError, UsageError
from grader.core.verdict import Verdict
from grader.labs import open_lab, present
from grader.report.phrases import slowness
from grader.runtime.protocol import DEFAULTS
from grader.system import folders, resources, sandbox
from grader.system.confine.launcher import machine


def _protection() -> Table:
    """Return a table of the protections that were tried on this machine, and their results."""
    here = machine()
    tried = table(f"protection: {sandbox.protection().level}", "tried", "here", "what it takes from student code")
    for name, result, purpose in (
        ("another user", "yes" if here.user else "", "files and processes of whoever grades; only root can give it"),
        (
            "Landlock",
            f"version {here.landlock}" if here.landlock else "",
            "all files but its own and those of the compiler or interpreter",
        ),
        ("seccomp", "yes" if here.seccomp else "", "sockets, other processes, other programs, mounts, ..."),
        ("bubblewrap", here.bubblewrap, "the sight of other processes and of the network"),
    ):
        tried.add_row(name, result or "[bold]no[/bold]", purpose)
    return tried


def _remains() -> str:
    """Return what student code can reach at the lowest level of protection; "" above that level."""
    here = machine()
    if here.seccomp:
        return ""
    reached = []
    if not here.landlock:
        reached.append(f"every file that {'anybody' if here.user else 'you'} may read or change")
    if not here.user:
        reached.append("your other processes, of which it may also start as many as you may")
    others = f"{', '.join(reached)} and " if reached else ""
    return (
        f"What remains: while it is built or run, student code reaches {others}the network. "
        "Grade only what you would run yourself, or in a container of its own."
    )


def _tried(lab: str) -> str:
    """Grade the skeleton of a lab. Return why this failed, or ""."""
    plan = grading_plan(Settings(lab=lab))
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        for name, path in plan.lab.starter.items():
            (Path(folder) / name).write_bytes(path.read_bytes())
        try:
            record = pipeline.grade(Path(folder), plan.lab, plan.cases)
        except (GraderError, OSError) as error:
            return str(error)
    ran = record.complete and record.outcomes and record.verdict is not Verdict.JUDGE_ERROR
    return "" if ran else "it did not finish, and nothing says why"


def doctor() -> ExitCode:
    """Show what is installed, what protects this machine from the graded code, and what to install.

    At the end it grades the skeleton that students begin with, as a test.

    Exit code: 0 if everything is installed and works, 3 if not.
    """
    console = Console(highlight=False)
    tools = table(f"grader {__version__}, Python {platform.python_version()}", "tool", "version", "what for")
    missing = []
    for tool in dict.fromkeys(tool for name in present() for tool in open_lab(name).runtime.tools(DEFAULTS)):
        version = resources.version(tool.name)
        if not version:
            missing.append(tool)
        tools.add_row(tool.short_name, version or "[bold]missing[/bold]", tool.purpose)
    console.print(tools)
    place, users = folders.cache_folder(), folders.users_cache_folder()
    why = f", because {users} cannot be written or is in another user's folder; XDG_CACHE_HOME names another place"
    console.print(escape(f"cache: {place}{why if place != users else ''}"))
    try:
        console.print(_protection())
        if remains := _remains():
            console.print(remains)
    except CannotStart as error:
        console.print(f"protection: cannot be tried: {escape(str(error))}")
    for command in dict.fromkeys(tool.install_command for tool in missing):
        console.print(f"install what is missing:  {command}")
    if missing:
        return ExitCode.JUDGE_ERROR
    paces = []
    for lab in present():
        hindered = _tried(lab)
        result = f"[bold]does not work[/bold]: {escape(hindered)}" if hindered else "works"
        console.print(f"a whole grading of {lab}: {result}")
        paces += [] if hindered else [open_lab(lab).runtime.pace()]
    if paces:
        usual = "this machine is as fast as usual, and time limits are not extended"
        console.print(f"pace: {slowness(max(paces)) or usual}")
    return ExitCode.ACCEPTED if len(paces) == len(present()) else ExitCode.JUDGE_ERROR


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

    The folder is made completely or not at all. The same clone makes the same bytes each time.

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
