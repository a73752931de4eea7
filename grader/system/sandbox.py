"""Compile and run a student's code in a private folder, with few rights, and end everything that it starts.

The protection that a machine provides is probed, never assumed, and is stored in every record.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from grader.core.errors import CannotStart, Unprotected
from grader.core.record import Protection
from grader.system import process, resources
from grader.system.budget import Budget
from grader.system.confine.launcher import USERS, bubble, launcher, machine, user_of_this_process
from grader.system.folders import closed_folders, noexec, private_folder, remove, remove_abandoned, temporary_folder
from grader.system.process import Command, Completed
from grader.system.process_tree import Patience

LEVELS = ("limits", "confine", "bubblewrap")
"""Levels of protection from student code, weakest first. `limits`: resource limits and, for root, another user.
`confine`: also refused system calls (and Landlock, where the kernel has it). `bubblewrap`: also namespaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Patience):
    """What a program may use, and how long the grader waits for it. None: as much as the grader itself may use."""

    cpu_seconds: int | None = None
    address_space: int | None = None
    file_size: int | None = None
    processes: int | None = None
    open_files: int | None = 64
    sees_processes: bool = False
    """Whether the program may read all of /proc, as a harness must."""
    sees_itself: bool = False
    """Whether the program may read its own folder in /proc, and /proc/cpuinfo, as Valgrind must."""
    fixed_addresses: bool = False
    """Whether memory has the same addresses in every run of a program, if the machine allows this. Then what depends on
    them (such as the order of a set of objects) is the same in every run."""

    def at_pace(self, pace: float) -> Limits:
        """Return the limits for a machine that is `pace` times slower than a usual one."""
        return replace(
            self,
            wall_seconds=self.wall_seconds * pace,
            silent_seconds=None if self.silent_seconds is None else self.silent_seconds * pace,
            silent_start_seconds=self.silent_start_seconds * pace,
            own_seconds=None if self.own_seconds is None else self.own_seconds * pace,
            cpu_seconds=None if self.cpu_seconds is None else math.ceil(self.cpu_seconds * pace),
        )

    def words(self) -> Iterator[str]:
        """Yield the launcher's arguments for these limits."""
        values = (self.cpu_seconds, self.address_space, self.file_size, self.processes, self.open_files)
        for name, value in zip(("cpu", "space", "file", "processes", "files"), values, strict=True):
            if value is not None:
                yield f"{name}={value}"
        if self.fixed_addresses:
            yield "fixed"


COMPILE_LIMITS = Limits(
    wall_seconds=30,
    silent_seconds=30,  # compilers print nothing while they work; their total time and memory are checked
    silent_start_seconds=30,
    own_seconds=2.5,
    cpu_seconds=3,
    address_space=512 << 20,
    file_size=64 << 20,
    processes=64,
)
"""Compiler and assembler share `own_seconds`, which include sleep, and the memory limit of the `Watchdog`."""
LINK_LIMITS = replace(COMPILE_LIMITS, silent_seconds=None, own_seconds=None, file_size=128 << 20)
"""A linked program may be larger than the largest object in it; ld needs 350 MB of memory to merge 30 MB of strings."""
RUN_LIMITS = Limits(
    wall_seconds=120,
    blocked_counts=True,
    cpu_seconds=12,
    address_space=8 << 30,
    file_size=1 << 20,
    processes=64,
    sees_processes=True,
)

_ALWAYS = ("resource limits", "no privileges", "clean environment", "private folder", "own session")

_SYSTEM = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/include"),
    *("/usr/local/bin", "/usr/local/lib", "/usr/local/lib64", "/usr/local/libexec", "/usr/local/include"),
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/ld.so.preload"),
)
"""The folders that compilers, other tools and the loader read. Not all of /usr: the cases may be there."""
_PATH = "/usr/local/bin:/usr/bin:/bin"
NO_VARIABLES: Mapping[str, str] = {}
"""No variables to add to the clean environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A private folder, and the rights and the time budget of the programs that run in it."""

    folder: Path
    user: int | None
    confined: bool = False
    """Whether a process can give up rights by itself, as the harness does before it runs student code."""
    budget: Budget = field(default_factory=Budget)
    tools: tuple[str, ...] = ()
    """The programs that are started here, and those that they start; they may be outside the system's folders."""

    def run(
        self,
        command: Sequence[str] | Command,
        *,
        limits: Limits,
        feeds: Sequence[bytes] = (),
        channels: int = 0,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> Completed:
        """Run a program in the folder with few rights and charge the budget; see `grader.system.process.run`.

        `variables` are added to the clean environment. `limits`, and the seconds of the result, are those of a usual
        machine (`Budget.pace`).
        """
        pace = self.budget.pace
        environment = {**_environment(self.folder), **variables}
        paid = replace(
            limits,
            wall_seconds=self.budget.wall_limit(limits.wall_seconds),
            cpu_seconds=self.budget.cpu_limit(limits.cpu_seconds),
            # the kernel counts all processes of a user: for the grader's own user, the grader's would count, too
            processes=limits.processes if self.user is not None else None,
            unwanted=self.budget.unwanted,
        ).at_pace(pace)
        reads = (*_readable(environment["PATH"], self.tools), *_in_proc(limits))

        bubblewrap = machine().bubblewrap
        around = bubble(bubblewrap, readable=reads, folder=self.folder) if bubblewrap else []

        def confined(ends: Sequence[int]) -> list[str]:
            *theirs, errors = ends
            arguments = command(theirs) if callable(command) else command
            words = [f"errors={errors}", *(["init"] if bubblewrap else []), *paid.words(), *self._rights(reads)]
            return [*around, str(launcher()), *words, "--", *arguments]

        done = process.run(
            confined,
            cwd=self.folder,
            limits=paid,
            environment=environment,
            feeds=feeds,
            channels=channels + 1,
            becomes=self.user,
            wrapped=bool(bubblewrap),
        )
        *channels_read, message = done.channels
        if message.startswith(b"="):
            done = _as_inside(done, int(message[1:]))
        elif message:
            raise self._cannot_start(message.decode(errors="replace"))
        done = replace(
            done,
            channels=tuple(channels_read),
            cpu_seconds=done.cpu_seconds / pace,
            own_seconds=done.own_seconds / pace,
            wall_seconds=done.wall_seconds / pace,
        )
        self.budget.take(done.own_seconds, done.wall_seconds)
        return done

    def _cannot_start(self, reason: str) -> CannotStart:
        """Return the exception for a reason that the launcher gives, such as "./program: Permission denied"."""
        instead = f"a program for the submission cannot be started: {reason}"
        return CannotStart(noexec(self.folder / reason.partition(": ")[0]) or instead)

    def _rights(self, reads: Sequence[str]) -> Iterator[str]:
        """Yield the launcher's arguments for user and rights of a program, which may read the paths `reads`."""
        if self.user is not None:
            yield f"user={self.user}"
        yield from machine().words()
        if machine().landlock:
            yield from (f"read={path}" for path in reads)
            yield from ("write=/dev/null", f"write={self.folder}")

    def may_be_read(self, path: Path) -> bool:
        """Return whether a path is in a folder that every program may read here, other than /dev and /etc."""
        places = _readable(_PATH, self.tools)
        return any(path.is_relative_to(place) for place in places if not place.startswith(("/dev", "/etc")))

    def add(self, name: str, content: bytes, mode: int = 0o644) -> Path:
        """Write a file of the grader to the folder and replace what is there; programs may not write to the file."""
        path = self.folder / name
        try:
            if path.is_dir() and not path.is_symlink():
                remove(path)
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            path.chmod(mode)
        except OSError as error:
            raise resources.no_room(path, error) from error
        return path

    def read(self, name: str) -> bytes:
        """Return the content of a file that a program wrote to the folder; empty when there is no such file."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise resources.no_room(self.folder / name, error) from error

    def clear(self) -> None:
        """Remove everything in the folder, so that the next program finds it empty, as the first program did."""
        try:
            for path in self.folder.iterdir():
                if path.is_dir() and not path.is_symlink():
                    remove(path)
                else:
                    path.unlink()
        except OSError as error:
            raise resources.no_room(self.folder, error) from error


@contextlib.contextmanager
def workspace(budget: Budget | None = None, *, tools: tuple[str, ...] = ()) -> Iterator[Workspace]:
    """Make a new private folder, and remove it with its contents at the end.

    Programs in it use what is left of `budget`, or a new budget. `tools` are the programs that are started in it; they
    may be installed outside the system's folders.

    Raises `OutOfRoom` if this machine has less left than a grading may need, `CannotStart` if programs could not
    enter the folder.
    """
    user = user_of_this_process() if machine().user else None  # first: nothing may fail between folder and removal
    _swept()
    resources.check_limits()
    resources.check_room(temporary_folder())
    with private_folder(user) as folder:
        if user is not None and not machine().bubblewrap and (closed := closed_folders(folder)):
            raise CannotStart(f"submissions run as a user who may not enter {closed[-1]}: set TMPDIR to another folder")
        budget = budget or Budget()
        yield Workspace(folder=folder, user=user, confined=machine().seccomp, budget=budget, tools=tools)


def sweep() -> None:
    """Remove the private folders that killed graders left."""
    remove_abandoned((os.geteuid(), *(USERS if os.geteuid() == 0 else ())))


_swept = cache(sweep)
"""Does what `sweep` does, but only once in each process, before the process uses more disk."""


def _as_inside(done: Completed, status: int) -> Completed:
    """Return `done` with the exit status of the program itself, not of bubblewrap around it."""
    if os.WIFSIGNALED(status):
        return replace(done, exit_code=None, signal=os.WTERMSIG(status))
    return replace(done, exit_code=os.waitstatus_to_exitcode(status), signal=None)


def protection() -> Protection:
    """Return the protection that is active on this machine."""
    here = machine()
    active = [*_ALWAYS]
    if here.user:
        active.append("unprivileged user")
    if here.landlock:
        active.append(f"Landlock {here.landlock}")
    if here.seccomp:
        active.append("seccomp")
    if here.bubblewrap:
        active.append("bubblewrap")
    return Protection(level=LEVELS[here.seccomp + (here.seccomp and bool(here.bubblewrap))], active=tuple(active))


def require(level: str) -> None:
    """Raise `Unprotected` when the active level is below `level`, one of `LEVELS`."""
    here = protection()
    if LEVELS.index(here.level) < LEVELS.index(level):
        raise Unprotected(
            f"nothing was run: this machine confines student code at level '{here.level}', not '{level}'; "
            "`grade doctor` shows what is missing"
        )


def _in_proc(limits: Limits) -> list[str]:
    """Return the parts of /proc that may be read. The launcher opens /proc/self, and then becomes the program."""
    return ["/proc"] if limits.sees_processes else ["/proc/self", "/proc/cpuinfo"] if limits.sees_itself else []


@cache
def _readable(path: str, tools: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths that every program may read: the system's, and the real paths of `tools` on this PATH."""
    programs = [shutil.which(tool, path=path) for tool in tools]
    places = {
        place for program in programs if program for place in (Path(program).parent, Path(program).resolve().parents[1])
    }
    elsewhere = [str(place) for place in sorted(places) if not any(place.is_relative_to(known) for known in _SYSTEM)]
    return (*_SYSTEM, *(place for place in elsewhere if place not in ("/", "/usr", "/usr/local")))


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment without the grader's variables. In the C locale, tools print the same texts everywhere."""
    return {"PATH": _PATH, "LC_ALL": "C", "TMPDIR": str(folder), "HOME": str(folder)}
