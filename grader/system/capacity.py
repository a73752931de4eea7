"""What this machine has left for a grading: disk space, and what the grader's own resource limits leave to programs.

It is checked before anything is graded, and again when a tool failed: a failure of the machine must not look like a
mistake of a student.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import NamedTuple

from grader.core.errors import OutOfRoom

MACHINE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""The numbers of `OSError` that are the trouble of the whole machine, and of no one file."""

_MEGABYTE = 1 << 20
_LEAST_BYTES, _LEAST_FILES = 16 * _MEGABYTE, 200
"""A grading needs a tenth of these bytes, and a hundred files; a student's file may need more."""


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
    """Raise `OutOfRoom` when a limit of the shell, not of the grader, could stop a program that the grader starts."""
    small = []
    for limit in _LIMITS:
        soft, _ = resource.getrlimit(limit.number)
        if soft != resource.RLIM_INFINITY and soft < limit.least:
            unit = " MB" if limit.unit == _MEGABYTE else ""
            here, least = soft / limit.unit, limit.least // limit.unit
            small.append(f"{limit.what} {here:g}{unit}, needed {least}{unit} (ulimit {limit.option})")
    if small:
        raise OutOfRoom(f"limits of this shell are too low to grade anything: {'; '.join(small)}. Raise them")


def check_room(folder: Path) -> None:
    """Raise `OutOfRoom` when a folder's file system has less space or fewer files left than a grading may need."""
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
    """Return the exception to raise when the operating system does not let the grader write its own files."""
    return OutOfRoom(
        f"{place}: {error.strerror or error}. Make room there, or set TMPDIR to a folder where files can be written"
    )


def memory_kills() -> int:
    """Return the number of processes of this machine that the kernel killed for lack of memory; 0 when unknown."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
