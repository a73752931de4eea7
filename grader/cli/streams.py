"""The stdout and stderr of a command. A failed write to stderr neither ends it nor changes its exit code."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any, TextIO

_OUT, _ERR = 1, 2


class _Lossy(io.FileIO):
    """A stream that drops what cannot be written: the reader has gone, the disk is full, the terminal is closed."""

    def write(self, data: Any, /) -> int:
        """Write what can be written, and return the size of all of it."""
        with contextlib.suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


class _Noting(io.FileIO):
    """A stream that records that a write failed: the error itself does not say which stream it comes from."""

    failed = False

    def write(self, data: Any, /) -> int:
        """Write the data; record an `OSError` and raise it again."""
        try:
            return super().write(data)
        except OSError:
            _Noting.failed = True
            raise


def set_up() -> None:
    """Make sure that stdout and stderr can be written to.

    A character that the terminal's encoding lacks becomes a question mark on stdout and an escape on stderr. A standard
    descriptor that was closed is opened on /dev/null: otherwise the next file that is opened, such as a store, would
    get its number, and output would be written into that file.
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
    """Return the replacement of one of Python's standard streams; a stream that a test has put there stays."""
    if before is not None and not isinstance(before, io.TextIOWrapper):
        return before
    encoding, as_before = (before.encoding, before.line_buffering) if before is not None else ("utf-8", False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=by_line or as_before
    )


def drop_what_failed() -> bool:
    """Whether a write to stdout failed. If so, redirect it to /dev/null, so that Python reports no error at exit."""
    if _Noting.failed:
        _open_nowhere(_OUT)
    return _Noting.failed


def _open_nowhere(number: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
