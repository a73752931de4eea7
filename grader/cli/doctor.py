"""`grade doctor`: tools, versions, protection, and what to install."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grader import __version__, pipeline
from grader.assignment.lab import Settings
from grader.classroom.fingerprint import grading_plan
from grader.core.errors import CannotStart, ExitCode, GraderError
from grader.core.verdict import Verdict
from grader.labs import open_lab, present
from grader.report.phrases import slowness
from grader.runtime.protocol import DEFAULTS
from grader.system import folders, resources, sandbox
from grader.system.confine.launcher import machine


def _protection() -> Table:
    """Return a table of the protections that were tried on this machine, with the results."""
    here = machine()
    table = Table(title=f"protection: {sandbox.protection().level}", title_justify="left")
    for heading in ("tried", "here", "what it takes from student code"):
        table.add_column(heading, overflow="fold")
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
        table.add_row(name, result or "[bold]no[/bold]", purpose)
    return table


def _remains() -> str:
    """Return a sentence on what student code can reach at the lowest level of protection; "" above that level."""
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
    """Grade the skeleton that students of a lab begin with. Return what prevents that, "" when nothing does."""
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
    table = Table(title=f"grader {__version__}, Python {platform.python_version()}", title_justify="left")
    for heading in ("tool", "version", "what for"):
        table.add_column(heading, overflow="fold")
    missing = []
    for tool in dict.fromkeys(tool for name in present() for tool in open_lab(name).runtime.tools(DEFAULTS)):
        version = resources.version(tool.name)
        if not version:
            missing.append(tool)
        table.add_row(tool.short_name, version or "[bold]missing[/bold]", tool.purpose)
    console.print(table)
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
