"""Runs of a program: which cases may share a process, and whether a bad end was caused by this machine.

Public and hidden cases never share a process: what a program prints or keeps there would reveal the hidden ones.

A program that is killed from outside looks like a program that ended itself. The same holds when its harness or an
instrument is killed. In that case a known-good program runs the same way on this machine and must come to its end. Then
the submission runs once more: an end that does not occur again was not caused by the submission.

A process that the kernel killed for lack of memory looks like a process that killed itself. The kernel's own count of
such kills tells them apart: if the count has risen, the submission is not judged.

A program that reaches a limit of time on a machine that has become slower looks like a slow program. So a known-good
program is timed again at that moment. If it needs longer than when the limits were chosen, the limits become longer in
proportion, and the submission has another try with its whole time.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from grader.core.case import Case
from grader.core.errors import BrokenTool, OutOfRoom, TooBusy
from grader.core.verdict import Visibility
from grader.runtime.protocol import Program, Runtime
from grader.system import resources, sandbox
from grader.system.budget import IMPATIENT, MOST_PACE
from grader.system.folders import cached
from grader.system.process import Completed
from grader.system.sandbox import Workspace

_SLOWER = 1.2
"""Limits become longer if the machine is at least this many times slower than before; less may be chance."""
_MEASUREMENTS = 3
_MOST_OUTPUT = 2000
_timed: dict[str, tuple[float, float]] = {}
"""By language of the runtime: when a known-good program was last timed in this process, and the pace."""


class _Late(Protocol):
    @property
    def late(self) -> bool:
        """Whether a limit of time was reached, which a machine that has become slower could have caused too."""


class _RunResult(_Late, Protocol):
    @property
    def unexplained_end(self) -> str:
        """How the run ended, if a failing machine could have caused that, too; "" otherwise."""


_L = TypeVar("_L", bound=_Late)
_R = TypeVar("_R", bound=_RunResult)
_P = TypeVar("_P", bound=Program)


def measured_once(pace_now: Callable[[], float], *parts: bytes) -> float:
    """Return the pace of this machine. It is measured once for each value of `parts`, and then cached."""

    def make(folder: Path) -> None:
        (folder / "pace").write_text(str(min(pace_now() for _ in range(_MEASUREMENTS))))

    kind = f"pace {os.uname().machine} {os.uname().release}"
    return float((cached((kind.encode(), *parts), make) / "pace").read_text())


def timely(work: Workspace, runtime: Runtime, run: Callable[[], _L]) -> _L:
    """Return the result of `run`. If it was late and this machine has become slower, run again with longer limits."""
    began = time.monotonic()
    first = run()
    return run() if first.late and has_become_slower(work, runtime, since=began) else first


def has_become_slower(work: Workspace, runtime: Runtime, *, since: float) -> bool:
    """Time a known-good program, and return whether this machine is slower than the limits of `work` assume.

    If it is, the limits become longer, and the submission has its whole time again. A timing made after `since` (by
    `time.monotonic`) is not repeated. Raises `GraderError` if no known-good program can be timed, or if the machine is
    too slow to grade.
    """
    budget = work.budget
    if budget.limits == IMPATIENT:  # such a result is confirmed with the usual limits
        return False
    when, pace = _timed.get(runtime.language, (-math.inf, 0.0))
    if when < since:
        pace = runtime.pace_now()
        _timed[runtime.language] = time.monotonic(), pace
    if pace >= _SLOWER * budget.pace:
        budget.begin_again(pace)
        return True
    if pace >= MOST_PACE:
        raise TooBusy(f"this machine is {MOST_PACE:.0f} times slower than a usual one or more: too slow to grade")
    return False


def run_confirmed(
    work: Workspace,
    program: _P,
    run: Callable[[Workspace, _P], _R],
    *,
    runtime: Runtime,
    known_good: Callable[[Workspace], _P],
) -> _R:
    """Run the program. Confirm an unexplained end with a `known_good` program, and a reached time limit by timing one.

    Raises `GraderError` when nothing can be said about the program.
    """
    kills = resources.memory_kills()
    first = timely(work, runtime, lambda: run(work, program))
    if not first.unexplained_end:
        return first
    with sandbox.workspace(work.budget.renewed(), tools=work.tools) as place:
        failure = run(place, known_good(place)).unexplained_end
    if failure:
        raise BrokenTool(f"not even a known-good program comes to its end here: {failure}")
    again = timely(work, runtime, lambda: run(work, program))
    if again.unexplained_end and resources.memory_kills() > kills:
        raise OutOfRoom(f"the kernel ended processes of this machine for want of memory: {again.unexplained_end}")
    return again


def printed_by(done: Completed) -> bytes:
    """Return the beginning of what a program that played cases has printed.

    Raises `TooBusy` if the program was ended although it was working.
    """
    if done.timed_out and not done.silent:
        raise TooBusy("the machine is too busy: the cases were not done in minutes, although no call was slow")
    return done.stdout[:_MOST_OUTPUT] + done.stderr[:_MOST_OUTPUT]  # a flood on one stream does not hide the other


def by_visibility(cases: Sequence[Case], numbers: Iterable[int]) -> list[list[int]]:
    """Split these case numbers into the public and then the hidden ones: a process may have only one of these lists."""
    parts: dict[Visibility, list[int]] = {visibility: [] for visibility in Visibility}
    for number in numbers:
        parts[cases[number].visibility].append(number)
    return [part for part in (parts[Visibility.PUBLIC], parts[Visibility.HIDDEN]) if part]
