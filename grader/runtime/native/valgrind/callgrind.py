"""Count the instructions of the demanded functions over the cases: the same in every run, for a leaderboard.

Callgrind runs the public cases once more. Its counting is toggled by the entry points of the harness, functions that
contain nothing but a jump (HARNESS_DOOR in harness/harness.h). So the count includes what the student's code does and
what it calls of libc (of freestanding.c where that suffices), plus one instruction a call for the entry point. It
includes neither the driver nor the harness's allocator: each function in the place of malloc, free and so on is an
entry point in the other direction. Toggling on the demanded functions themselves would be wrong: a demanded function
that calls another one would switch the count off (https://valgrind.org/docs/manual/cl-manual.html, --toggle-collect).

The number depends on compiler, libc and kind of processor, and on which cases ran to their end. Compare it only between
submissions with all points, graded on one machine. It never counts for points.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from grader.core.case import Case
from grader.core.errors import DriverError
from grader.runtime.native.compile.elf import Bind, Elf
from grader.runtime.native.driver import Driver
from grader.runtime.native.plan import plan
from grader.runtime.native.valgrind.contract import Contract
from grader.runtime.native.wire import Frames, Kind
from grader.runtime.program import Program
from grader.system.sandbox import RUN_LIMITS, Limits, Workspace

__all__ = ["count_instructions"]

_DOOR = re.compile(r"h[0-9a-f]{16}_\w+")  # harness_objects.py chooses the digits, once for each compiler
_SUMMARY = re.compile(rb"^summary: (\d+)$", re.MULTILINE)
_MOST_BYTES = 1 << 20
_WALL_SECONDS = 60.0
_CPU_SECONDS = 15  # the cases of a class need a quarter of a second
_SILENT_SECONDS, _START_SECONDS = 1.0, 8.0  # between two operations, and before the first case
_COMMAND = (
    *("env", "LD_BIND_NOW=1"),  # else the first call of each libc function would include its symbol lookup
    "valgrind",
    "--tool=callgrind",
    "--collect-atstart=no",
    "--vgdb=no",
    "--command-line-only=yes",  # no options from a file that the program may have left for the next run
)


def count_instructions(
    work: Workspace,
    program: Program,
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    driver: Driver,
) -> int | None:
    """Count the instructions over the cases with these numbers.

    Returns None when the program has no entry points or no time left, or when not all cases came to their end. Raises
    `DriverError` when Callgrind did not start the program.
    """
    doors = _doors(program.checked)
    if not doors or work.budget.empty:
        return None
    token = secrets.randbits(64)
    nothing_forbidden = {number: Contract(cases[number], (), strict=False).encoded() for number in numbers}
    profile = work.folder / f"profile-{secrets.token_hex(8)}"
    done = work.run(
        lambda ends: [
            *_COMMAND,
            *(f"--toggle-collect={door}" for door in doors),
            f"--callgrind-out-file={profile}",
            f"./{program.place(work, checked=True)}",
            *map(str, ends),
        ],
        limits=Limits(
            wall_seconds=_WALL_SECONDS,
            cpu_seconds=_CPU_SECONDS,
            file_size=RUN_LIMITS.file_size,
            processes=RUN_LIMITS.processes,
            open_files=None,
            sees_processes=True,
            silent_seconds=_SILENT_SECONDS,
            silent_start_seconds=_START_SECONDS,
        ),
        feeds=[plan(cases, numbers, token=token, driver=driver, contracts=nothing_forbidden)],
        channels=1,
    )
    operations = sum(len(cases[number].trace.operations) for number in numbers)
    frames = [(frame.kind, frame.case) for frame in Frames(done.channels[0], token, operations)]
    if not frames and done.exit_code is not None:
        reason = done.stderr.decode(errors="replace").strip()[-500:]
        raise DriverError(f"Callgrind did not start the program: {reason or 'it says nothing'}")
    ended = {case for kind, case in frames if kind == Kind.END}
    if not done.succeeded or ended != set(numbers):
        return None
    summary = _SUMMARY.search(_content(profile))
    return int(summary[1]) if summary else None


def _doors(program: bytes) -> list[str]:
    """Return the entry points between the student's code and the harness.

    The student's own names are local by now, so none of them can be mistaken for an entry point.
    """
    elf = Elf.read(program)
    symbols = elf.symbols() if elf else ()
    return sorted({one.name for one in symbols if _DOOR.fullmatch(one.name) and one.bind == Bind.GLOBAL})


def _content(profile: Path) -> bytes:
    """Return the beginning of a regular file; else nothing: the program shares the folder and may have replaced it."""
    try:
        descriptor = os.open(profile, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MOST_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
