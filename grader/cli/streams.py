"""What a command writes to: a stderr that nobody reads is no reason to end, or to end otherwise."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["drop_output", "drop_what_fails", "reader_is_gone", "set_up"]

_OUT, _ERR = 1, 2


class _Lossy(io.FileIO):
    """What cannot be written is lost: the reader has gone, the disk is full, the terminal is closed."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write what can be written, and say that it was all."""
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def set_up() -> None:
    """Make stdout and stderr such that they can be written to.

    A character that the terminal's encoding lacks becomes a question mark. One that was closed becomes nowhere: else
    the next file that is opened, such as a store, would be what is written to.
    """
    for number in (0, _OUT, _ERR):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            _open_nowhere(number)
    if sys.stdout is None:
        sys.stdout = open(_OUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as we live
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if sys.stderr is None or isinstance(sys.stderr, io.TextIOWrapper):
        encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
        raw = io.BufferedWriter(_Lossy(_ERR, "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", line_buffering=True)


def reader_is_gone() -> bool:
    """Of stdout, such as `head`?"""
    poll = select.poll()
    poll.register(_OUT, 0)
    return any(what & select.POLLERR for _, what in poll.poll(0))


def drop_output() -> None:
    """What stdout still holds cannot be written: it goes nowhere, and Python does not complain at its end."""
    _open_nowhere(_OUT)


def drop_what_fails() -> bool:
    """Can stdout not be written to? Then what it holds is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output()
        return True
    return False


def _open_nowhere(number: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
