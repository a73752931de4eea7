"""Who grades what, when several batches work on one store at once.

A claim is a lock on one byte of a file beside the store. The kernel gives it back however its holder ends. One more
byte is held by all together, so that nobody takes away what a batch is going to use.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from grader.core.errors import StoreError

__all__ = ["RunLocks", "run_locks"]


class RunLocks:
    """What this process has claimed, by keys."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def take(self, key: str) -> bool:
        """Is it ours now? Not where another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except OSError:
            return False
        return True

    def give_back(self, key: str) -> None:
        """Another process may have it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(key))


@contextlib.contextmanager
def run_locks(store: Path, *, alone: bool = False) -> Iterator[RunLocks]:
    """Those on what is graded for this store; all are given back at the end.

    Waits while somebody has the store `alone`; who wants that, and cannot, gets a `StoreError`.
    """
    with store.with_name(f"{store.name}-claims").open("a+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH, 1, _IN_USE)
        except BlockingIOError:
            raise StoreError(f"{store}: a batch is using it; wait for its end") from None
        yield RunLocks(file)


_IN_USE = 1 << 48


def _place(key: str) -> int:
    """Two keys at one place only wait for each other; none is at that of all."""
    return int(key[:12], 16)
