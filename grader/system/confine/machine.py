"""The protection that this machine supports. Each kind is tried, nothing is assumed."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.core.errors import CannotStart
from grader.system import process
from grader.system.confine.bubble import bubble
from grader.system.confine.launcher import launcher
from grader.system.process import Patience

_LANDLOCK_CREATE, _VERSION = 444, 1
_EVERYTHING = ("/usr", "/bin", "/lib", "/lib64", "/nix")
_NOBODY = 61_183
"""A user id similar to those that student code gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The kinds of protection that work on this machine."""

    user: bool
    """Whether a program can be run as another user. Only root may do so, and not in every container."""
    landlock: int
    """The version of Landlock; 0 when the kernel has none, or does not let the grader use it."""
    seccomp: bool
    bubblewrap: str = ""
    """The path of bubblewrap; "" when it is missing, or when the kernel does not let it make namespaces."""

    def words(self) -> Iterator[str]:
        """Yield the launcher's arguments that have no value."""
        if self.landlock:
            yield "landlock"
        if self.seccomp:
            yield "seccomp"


@cache
def machine() -> Machine:
    """Try each kind once. Raises `CannotStart` when no program starts: then it is unknown what works."""
    if not _works([]):
        raise CannotStart("programs cannot be started here by the grader's own launcher; `ulimit -a` may say why")
    return Machine(
        user=os.geteuid() == 0 and _works([f"user={_NOBODY}"]),
        landlock=_landlock() if _works(["landlock", *(f"read={path}" for path in _EVERYTHING)]) else 0,
        seccomp=_works(["seccomp"]),
        bubblewrap=_bubblewrap(),
    )


def _bubblewrap() -> str:
    program = shutil.which("bwrap") or ""
    return program if program and _works(["init"], bubble(program)) else ""


def _works(words: Sequence[str], around: Sequence[str] = ()) -> bool:
    """Whether the launcher starts a program with these `words`. It does not when it cannot do one of them."""
    done = process.run(
        [*around, str(launcher()), *words, "--", "true"],
        cwd=Path("/"),
        limits=Patience(wall_seconds=10),
        environment={"PATH": "/usr/bin:/bin"},
    )
    return done.succeeded


def _landlock() -> int:
    return int(ctypes.CDLL(None).syscall(_LANDLOCK_CREATE, None, 0, _VERSION))
