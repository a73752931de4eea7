"""The launcher of every program that a workspace runs, bubblewrap around it, its user, and this machine's protection.

The launcher is confine.c. Bubblewrap leaves a program no other processes, no network, and no files but the system's and
the private folder. Each grader process has an unused user id for its programs, so that no submission can see or signal
another. Each kind of protection is tried, never assumed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.core.errors import BrokenTool, CannotStart, OutOfRoom
from grader.system import process
from grader.system.folders import cached, temporary_folder
from grader.system.process_tree import Patience

_FIRST, _COUNT = 61_184, 64
_PARENTS = ("/run", "/var/lib")
_NAME = "paged-kv-grader-users"

USERS = range(_FIRST, _FIRST + _COUNT)
"""All user ids that a process may get."""

_HERE = Path(__file__).parent
_FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
_PATIENCE = Patience(wall_seconds=60)
_SYSTEM_PATH = {"PATH": "/usr/bin:/bin"}

_ROOT = Path(__file__).parents[3]
_NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives")
_TEMPORARY = Path("/tmp")  # noqa: S108 - bubblewrap makes a new, empty one

_LANDLOCK_CREATE, _VERSION = 444, 1
_EVERYTHING = ("/usr", "/bin", "/lib", "/lib64", "/nix")
_NOBODY = 61_183
"""A user id similar to those that student code gets."""


@cache
def launcher() -> Path:
    """Return the path of the launcher. Compile it first if this version is not in the cache.

    Raises `BrokenTool` if compiling fails, `CannotStart` without a C compiler.
    """
    sources = sorted(_HERE.glob("*.[ch]"))
    return cached([source.read_bytes() for source in sources], _make) / "confine"


def _make(folder: Path) -> None:
    """Compile the launcher into `folder`, statically if a static libc exists: then it starts in a third of the time."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}
    command = ["cc", *_FLAGS, "-o", "confine", str(_HERE / "confine.c")]
    done = process.run([*command, "-static"], cwd=folder, limits=_PATIENCE, environment=environment)
    if not done.succeeded:
        done = process.run(command, cwd=folder, limits=_PATIENCE, environment=environment)
    if not done.succeeded:
        raise BrokenTool(f"our own launcher does not compile:\n{done.stderr.decode(errors='replace')}")
    starts = process.run(["./confine", "--", "true"], cwd=folder, limits=_PATIENCE, environment=_SYSTEM_PATH)
    if not starts.succeeded:  # a launcher that does not work is not cached
        raise BrokenTool(f"our own launcher does not work:\n{starts.stderr.decode(errors='replace')}")


def bubble(command: str, *, readable: Iterable[str] = (), folder: Path | None = None) -> list[str]:
    """Return the part of a command before the launcher. `command` is bubblewrap's path; `readable` can be read inside.

    The launcher stays as the first process inside (its argument `init`), because a student's program would not get all
    signals as the first process. When the launcher ends, everything inside ends.
    """
    words = [command, *_NAMESPACES, "--as-pid-1", "--die-with-parent", "--proc", "/proc", *_folder(_TEMPORARY)]
    outside = [path for path in readable if not any(Path(path).is_relative_to(known) for known in (*_SYSTEM, "/proc"))]
    for path in (*_SYSTEM, *outside):
        words += _mounted(Path(path))
    if any(_ROOT.is_relative_to(path) for path in _SYSTEM):
        words += ["--tmpfs", str(_ROOT)]  # the cases are not part of the system
    words += _mounted(launcher())
    words += [*_folder(Path("/dev")), "--dev-bind", "/dev/null", "/dev/null"]
    if folder is not None:
        words += [*_folder(folder.parent), "--bind", str(folder), str(folder), "--chdir", str(folder)]
    return [*words, "--"]


def _mounted(path: Path) -> Iterator[str]:
    """Yield options that make a path the same inside as outside. /bin is a symbolic link on most systems."""
    if path.is_symlink():
        yield from ("--symlink", str(path.readlink()), str(path))
    elif path.exists():
        yield from (*_folder(path.parent), "--ro-bind", str(path), str(path))


def _folder(path: Path) -> Iterator[str]:
    """Yield options that make a folder and its parents with access for all users.

    Bubblewrap's own folders are accessible to its own user only.
    """
    for folder in (*reversed(path.parents), path):
        yield from ("--perms", "0755", "--dir", str(folder))


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
    """Return which kinds of protection work: try all at once and, if that fails, each alone.

    Raises `CannotStart` if no program starts: then it is unknown what works.
    """
    user = [f"user={_NOBODY}"] if os.geteuid() == 0 else []
    landlock = ["landlock", *(f"read={path}" for path in _EVERYTHING)]
    together = _works([*user, *landlock, "seccomp"])
    if not together and not _works([]):
        raise CannotStart("programs cannot be started here by the grader's own launcher; `ulimit -a` may say why")
    bubblewrap = shutil.which("bwrap") or ""
    return Machine(
        user=bool(user) and (together or _works(user)),
        landlock=_landlock() if together or _works(landlock) else 0,
        seccomp=together or _works(["seccomp"]),
        bubblewrap=bubblewrap if bubblewrap and _works(["init"], bubble(bubblewrap)) else "",
    )


def _works(words: Sequence[str], around: Sequence[str] = ()) -> bool:
    """Return whether the launcher can start a program with all the protections that `words` name.

    `around` is a command that starts the launcher.
    """
    command = [*around, str(launcher()), *words, "--", "true"]
    return process.run(command, cwd=Path("/"), limits=Patience(wall_seconds=10), environment=_SYSTEM_PATH).succeeded


def _landlock() -> int:
    return int(ctypes.CDLL(None).syscall(_LANDLOCK_CREATE, None, 0, _VERSION))


def user_of_this_process() -> int:
    """Return a user id that no other grader has until this process ends. Raises `OutOfRoom` if all ids are taken."""
    return _user(os.getpid())


@cache
def _user(_: int) -> int:
    """Lock and return the first free user id; the kernel releases the lock when this process ends.

    The argument is the process id. A forked process takes a user of its own: the lock that it inherits is its parent's.
    """
    folder = _folder_of_users()
    try:
        for number in range(_COUNT):
            lock = os.open(str(_FIRST + number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600, dir_fd=folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                return _FIRST + number
    finally:
        os.close(folder)
    raise OutOfRoom(f"{_COUNT} gradings are running on this machine, and no user ID is left for another one")


def _folder_of_users() -> int:
    """Return a descriptor of the lock folder. Only the grader's user has access: no other user can take the locks."""
    for parent in (*_PARENTS, temporary_folder()):
        place = Path(parent, _NAME)
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, exist_ok=True)
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            status = os.fstat(folder)
            if status.st_uid == os.geteuid() and not status.st_mode & 0o077 and os.access(place, os.W_OK):
                return folder
            os.close(folder)
    raise CannotStart(f"there is no place for locks: none of {', '.join(_PARENTS)} can be written to")
