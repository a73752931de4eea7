"""Runs of a program: which cases may share a process, and whether an unexplained end was caused by this machine.

Public and hidden cases never share a process: what a program prints or keeps there would reveal the hidden ones.

A program that is killed from outside looks like a program that ended itself. The same holds when its harness or an
instrument is killed. In that case a known-good program runs the same way on this machine and must come to its end. Then
the submission runs once more: an end that does not occur again was not caused by the submission.

A process that the kernel killed for lack of memory looks like a process that killed itself. The kernel's own count of
such kills tells them apart: when it rose, the submission is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from grader.core.case import Case
from grader.core.errors import BrokenTool, OutOfRoom
from grader.core.verdict import Visibility
from grader.runtime.protocol import Program
from grader.system import resources, sandbox
from grader.system.sandbox import Workspace


class _RunResult(Protocol):
    @property
    def unexplained_end(self) -> str:
        """How the run ended, where a failing machine could have caused that too; "" otherwise."""


_R = TypeVar("_R", bound=_RunResult)
_P = TypeVar("_P", bound=Program)


def run_confirmed(
    work: Workspace,
    program: _P,
    run: Callable[[Workspace, _P], _R],
    *,
    known_good: Callable[[Workspace], _P],
) -> _R:
    """Run the program; confirm an unexplained end by a `known_good` program.

    Raises `GraderError` when nothing can be said about the program.
    """
    kills = resources.memory_kills()
    first = run(work, program)
    if not first.unexplained_end:
        return first
    with sandbox.workspace(tools=work.tools) as place:
        failure = run(place, known_good(place)).unexplained_end
    if failure:
        raise BrokenTool(f"not even a known-good program comes to its end here: {failure}")
    again = run(work, program)
    if again.unexplained_end and resources.memory_kills() > kills:
        raise OutOfRoom(f"the kernel ended processes of this machine for want of memory: {again.unexplained_end}")
    return again


def by_visibility(cases: Sequence[Case], numbers: Iterable[int]) -> list[list[int]]:
    """Split these case numbers into the public and then the hidden ones: a process may have either, not both."""
    parts: dict[Visibility, list[int]] = {visibility: [] for visibility in Visibility}
    for number in numbers:
        parts[cases[number].visibility].append(number)
    return [part for part in (parts[Visibility.PUBLIC], parts[Visibility.HIDDEN]) if part]
