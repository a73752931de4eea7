"""What a grading needs of this machine: installed programs, disk space, and sufficient resource limits.

Disk and limits are checked before anything is graded, and again after a tool failed: a failure of the machine must not
look like a mistake of a student.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from grader.core.errors import OutOfRoom, ToolMissing
from grader.core.verdict import Tool
from grader.system import process
from grader.system.process_tree import Patience

MACHINE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""The numbers of `OSError` that show a problem of the whole machine, not of one file."""

_MEGABYTE = 1 << 20
_LEAST_BYTES, _LEAST_FILES = 16 * _MEGABYTE, 200
"""A grading needs a tenth of these bytes, and a hundred files; a student's file may need more."""

_MANAGERS = {
    "apt-get": "sudo apt-get install -y {}",
    "dnf": "sudo dnf install -y {}",
    "pacman": "sudo pacman -S {}",
    "zypper": "sudo zypper install {}",
    "apk": "sudo apk add {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededTool:
    """A program that must be installed for gradings of a lab."""

    name: str
    """The command that starts the tool; an absolute path if no other file may be used."""
    purpose: str
    title: str = ""
    """The name of the tool in reports, if it differs from `name`."""
    packages: str = ""
    """The tool's Debian packages; other systems have only the first. Empty: the package has the name of the tool."""
    makes: Tool | None = None
    """The kind of tool in the findings that it reports; None if it reports none."""
    instead: str = ""
    """What to do without the tool, in a sentence; empty if nothing can be done."""

    @property
    def short_name(self) -> str:
        """The command without folders: two machines may have the same tool in different folders."""
        return Path(self.name).name

    @property
    def install_command(self) -> str:
        """The shell command that installs the tool on this machine."""
        manager = next((name for name in _MANAGERS if shutil.which(name)), "apt-get")
        packages = self.packages or self.short_name
        return _MANAGERS[manager].format(packages if manager == "apt-get" else packages.split()[0])


def require(*tools: NeededTool) -> None:
    """Raise `ToolMissing` for the first of `tools` that is not installed."""
    for tool in tools:
        if shutil.which(tool.name) is None:
            raise ToolMissing(tool.name, tool.install_command, tool.instead)


@cache
def version(tool: str) -> str:
    """Return the first line that `tool --version` prints; "" if the tool is not installed."""
    program = shutil.which(tool)
    return "" if program is None else first_line([program, "--version"])


def first_line(command: Sequence[str]) -> str:
    """Run a command, and return the first line that it prints."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = process.run(command, cwd=Path("/"), limits=Patience(wall_seconds=30), environment=environment)
    return done.stdout.decode(errors="replace").partition("\n")[0]


class _Limit(NamedTuple):
    """A resource limit that programs inherit from the grader, and the least value that a grading needs."""

    what: str
    number: int
    option: str
    least: int
    unit: int


_LIMITS = (
    _Limit("address space", resource.RLIMIT_AS, "-v", 4 << 30, _MEGABYTE),
    _Limit("data segment", resource.RLIMIT_DATA, "-d", 4 << 30, _MEGABYTE),
    _Limit("file size", resource.RLIMIT_FSIZE, "-f", 128 * _MEGABYTE, _MEGABYTE),
    _Limit("stack", resource.RLIMIT_STACK, "-s", 8 * _MEGABYTE, _MEGABYTE),
    _Limit("open files", resource.RLIMIT_NOFILE, "-n", 128, 1),
    _Limit("processes", resource.RLIMIT_NPROC, "-u", 16, 1),
    _Limit("CPU seconds", resource.RLIMIT_CPU, "-t", 60, 1),
)


def check_limits() -> None:
    """Raise `OutOfRoom` if a resource limit set by the shell could stop a program that the grader starts."""
    small = []
    for limit in _LIMITS:
        soft, _ = resource.getrlimit(limit.number)
        if soft != resource.RLIM_INFINITY and soft < limit.least:
            unit = " MB" if limit.unit == _MEGABYTE else ""
            here, least = soft / limit.unit, limit.least // limit.unit
            small.append(f"{limit.what} {here:g}{unit}, needed {least}{unit} (ulimit {limit.option})")
    if small:
        raise OutOfRoom(f"the limits of this shell are too low for grading: {'; '.join(small)}. Raise them")


def check_room(folder: Path) -> None:
    """Raise `OutOfRoom` if a folder's file system has less space or fewer files left than a grading may need."""
    try:
        system = os.statvfs(folder)
    except OSError as error:
        raise no_room(folder, error) from error
    available = system.f_bavail * system.f_frsize
    if system.f_blocks and available < _LEAST_BYTES:
        left = f"{available / _MEGABYTE:.1f} MB left, and a grading may need {_LEAST_BYTES // _MEGABYTE} MB"
    elif system.f_files and system.f_favail < _LEAST_FILES:
        left = f"room for {system.f_favail} more files, and a grading may need {_LEAST_FILES}"
    else:
        return
    raise OutOfRoom(f"{folder} has {left}. Make room there, or set TMPDIR to a folder that has more")


def no_room(place: Path, error: OSError) -> OutOfRoom:
    """Return the exception to raise if the operating system does not let the grader write its own files."""
    return OutOfRoom(
        f"{place}: {error.strerror or error}. Make room there, or set TMPDIR to a folder where files can be written"
    )


def memory_kills() -> int:
    """Return the number of processes that this machine's kernel killed for lack of memory; 0 if it is unknown."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
