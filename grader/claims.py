"""Who grades what, when several batches work on one store at once.

A claim is a lock on one byte of a file beside the store. The kernel gives it back however its holder ends.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["Claims", "claims"]


class Claims:
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
def claims(store: Path) -> Iterator[Claims]:
    """Those on what is graded for this store; all are given back at the end."""
    with store.with_name(f"{store.name}-claims").open("ab") as file:
        yield Claims(file)


def _place(key: str) -> int:
    """Two keys at one place only wait for each other."""
    return int(key[:12], 16)
