"""What a command writes to: a stderr that nobody reads is no reason to end, or to end otherwise."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any, TextIO

__all__ = ["drop_what_failed", "set_up"]

_OUT, _ERR = 1, 2


class _Lossy(io.FileIO):
    """What cannot be written is lost: the reader has gone, the disk is full, the terminal is closed."""

    def write(self, data: Any, /) -> int:
        """Write what can be written, and say that it was all."""
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


class _Noting(io.FileIO):
    """Who cannot write to it is known afterwards: the error itself does not say where it comes from."""

    failed = False

    def write(self, data: Any, /) -> int:
        """Write it."""
        try:
            return super().write(data)
        except OSError:
            _Noting.failed = True
            raise


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
    sys.stdout = _stream(sys.stdout, _Noting(_OUT, "wb", closefd=False), errors="replace")
    sys.stderr = _stream(sys.stderr, _Lossy(_ERR, "wb", closefd=False), errors="backslashreplace", by_line=True)


def _stream(before: TextIO | None, raw: io.FileIO, *, errors: str, by_line: bool = False) -> TextIO:
    """What takes the place of a stream of Python's own; one that a test has put there stays."""
    if before is not None and not isinstance(before, io.TextIOWrapper):
        return before
    encoding, as_before = (before.encoding, before.line_buffering) if before is not None else ("utf-8", False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=by_line or as_before
    )


def drop_what_failed() -> bool:
    """Could stdout not be written to? Then what it holds goes nowhere, and Python does not complain at its end."""
    if _Noting.failed:
        _open_nowhere(_OUT)
    return _Noting.failed


def _open_nowhere(number: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
