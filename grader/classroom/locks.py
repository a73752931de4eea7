"""Locks on what is graded, for several batches that use one store at once.

A lock covers one byte of a file beside the store. The kernel releases it however its holder ends. All batches share a
lock on one more byte, so that no process removes what a batch is going to use.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from grader.core.errors import StoreError


class RunLocks:
    """The locks of this process, by key."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def take(self, key: str) -> bool:
        """Whether this process now has the lock of the key; False when another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except OSError:
            return False
        return True

    def give_back(self, key: str) -> None:
        """Release the lock of the key, so that another process may take it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(key))


@contextlib.contextmanager
def run_locks(store: Path, *, alone: bool = False) -> Iterator[RunLocks]:
    """Yield the locks on what is graded for this store; all are released at the end.

    Waits while another process has the store `alone`. With `alone`, raises `StoreError` if any other process uses it.
    """
    with store.with_name(f"{store.name}-claims").open("a+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH, 1, _IN_USE)
        except BlockingIOError:
            raise StoreError(f"{store}: a batch is using it; wait for its end") from None
        yield RunLocks(file)


_IN_USE = 1 << 48


def _place(key: str) -> int:
    """Return the byte of a key. Two keys with the same byte only wait for each other; no key has the byte `_IN_USE`."""
    return int(key[:12], 16)
