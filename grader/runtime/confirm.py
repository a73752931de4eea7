"""Is it the program's doing that a run of it ended oddly, or this machine's?

A program that is killed from outside, or whose harness or Valgrind is, looks like one that ended itself. Then an
innocent program does the same here and must come to its end, and the program itself is run once more: what does not
come again was no doing of its own.

A process that the kernel killed for want of memory looks like one that killed itself. The kernel's own count of such
kills tells them apart: when it rose, nobody is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from grader.assignment.lab import Lab, Program
from grader.core.errors import DriverError, OutOfRoom
from grader.system import capacity, sandbox
from grader.system.sandbox import Workspace

__all__ = ["run_confirmed"]


class _Seen(Protocol):
    @property
    def unexplained_end(self) -> str:
        """What a machine in trouble could have done as well; "" when nothing is."""


_S = TypeVar("_S", bound=_Seen)


def run_confirmed(lab: Lab, work: Workspace, program: Program, run: Callable[[Workspace, Program], _S]) -> _S:
    """Run the program. Raises `GraderError` when nothing can be said about it."""
    kills = capacity.memory_kills()
    first = run(work, program)
    if not first.unexplained_end:
        return first
    with sandbox.workspace() as place:
        trouble = run(place, lab.known_good(place)).unexplained_end
    if trouble:
        raise DriverError(f"not even an innocent program comes to its end here: {trouble}")
    again = run(work, program)
    if again.unexplained_end and capacity.memory_kills() > kills:
        raise OutOfRoom(f"the kernel ended processes of this machine for want of memory: {again.unexplained_end}")
    return again
