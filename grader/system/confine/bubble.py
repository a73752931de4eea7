"""Bubblewrap around the launcher: no other processes, no network, no files but the system's and the private folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from grader.system.confine.launcher import launcher

_ROOT = Path(__file__).parents[3]
_NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives")
_TEMPORARY = Path("/tmp")  # noqa: S108 - an empty one of its own


def bubble(command: str, *, readable: Iterable[str] = (), folder: Path | None = None) -> list[str]:
    """Return the command before the launcher; `command` is bubblewrap's path. The system and `readable` can be read.

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
    """Yield options that mount a path as it is outside: /bin is a symbolic link on most systems."""
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
