"""Where a student's code is compiled and run: a private folder, few rights, and an end for everything it starts.

What protection a machine really gives is probed, never assumed, and goes into every record.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from grader import process
from grader.budget import Budget
from grader.errors import CannotStart
from grader.process import Command, Completed, Limits
from grader.record import Protection

__all__ = ["COMPILE_LIMITS", "RUN_LIMITS", "Workspace", "protection", "workspace"]

COMPILE_LIMITS = Limits(wall_seconds=30, cpu_seconds=10, address_space=4 << 30, file_size=64 << 20, processes=64)
RUN_LIMITS = Limits(wall_seconds=120, cpu_seconds=12, address_space=8 << 30, file_size=1 << 20, processes=64)

_FIRST_USER = 61_184
"""User ids from here on belong to nobody; 64 of them, so that gradings side by side have different ones."""
_USERS = 64

_LIMITS = ("resource limits", "no new privileges", "clean environment", "private folder", "own session")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A private folder, the rights of what runs there, and its time."""

    folder: Path
    user: int | None
    budget: Budget = field(default_factory=Budget)

    def run(
        self,
        command: Sequence[str] | Command,
        *,
        limits: Limits,
        feeds: Sequence[bytes] = (),
        channels: int = 0,
    ) -> Completed:
        """Run a program in the folder with few rights, paid from the budget; see `grader.process.run`."""
        done = process.run(
            command,
            cwd=self.folder,
            limits=replace(
                limits,
                wall_seconds=self.budget.wall_limit(limits.wall_seconds),
                cpu_seconds=self.budget.cpu_limit(limits.cpu_seconds),
                # it counts all processes of a user: with our own user it would count our own
                processes=limits.processes if self.user is not None else None,
            ),
            environment=_environment(self.folder),
            user=self.user,
            feeds=feeds,
            channels=channels,
        )
        self.budget.take(done.cpu_seconds, done.wall_seconds)
        return done

    def add(self, name: str, content: bytes, mode: int = 0o644) -> Path:
        """Put a file of ours there in the place of what is there; what runs there may not write to it."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        return path


@contextlib.contextmanager
def workspace(budget: Budget | None = None) -> Iterator[Workspace]:
    """A fresh private folder, gone with everything in it at the end; with what is left of a budget, or a new one."""
    user = _unprivileged_user()  # asked first: nothing may come between the folder and its end
    folder = Path(tempfile.mkdtemp(prefix="grade-"))
    try:
        if user is not None:
            os.chown(folder, user, user)
        folder.chmod(0o700)
        yield Workspace(folder=folder, user=user, budget=budget or Budget())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def protection() -> Protection:
    """What is active on this machine."""
    if _unprivileged_user() is None:
        return Protection(level="limits", active=_LIMITS)
    return Protection(level="limits+user", active=(*_LIMITS, "unprivileged user"))


def _unprivileged_user() -> int | None:
    """The user id for student code: one per grading process where we are root and may change, else None."""
    return _FIRST_USER + os.getpid() % _USERS if _can_change_user() else None


@cache
def _can_change_user() -> bool:
    """Try it: a container may run us as root and still refuse other users."""
    if os.geteuid() != 0:
        return False
    try:
        tried = process.run(
            ["true"],
            cwd=Path("/"),
            limits=Limits(wall_seconds=10),
            environment={"PATH": "/usr/bin:/bin"},
            user=_FIRST_USER,
        )
    except (CannotStart, ValueError):
        return False
    return tried.succeeded


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of ours; messages in plain English, so that tools' texts are the same everywhere."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": str(folder), "HOME": str(folder)}
