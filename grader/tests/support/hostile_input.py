"""Code that tests of hostile input share: pieces of Valgrind's XML, and a limit on the time for reading them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from grader.runtime.native.replay import FrameKind, Frames
from grader.runtime.native.valgrind.reports import ReadReport, RunProgress, followed, read
from grader.tests.runtime.native.test_replay import TOKEN, frame
from grader.tests.support.raising import Raising

WELL = b"</valgrindoutput>"
ERROR = (
    b"<error><kind>InvalidRead</kind><what>Invalid read</what>"
    b"<stack><frame><ip>0x401000</ip><fn>f</fn><file>llm_memory.c</file><line>7</line></frame></stack></error>"
)


def mark(case: int, operation: int, *, token: int = TOKEN, word: str = "errors") -> bytes:
    """Return the message that the harness writes after errors."""
    return f"<clientmsg><tid>1</tid><text>pkv {word} {token:x} {case:x} {operation:x}\n</text></clientmsg>".encode()


def course(*, errors: int = 1) -> RunProgress:
    """Return the progress of cases 4 and 2, of three operations each; both ended, with `errors` in each operation."""
    frames = [
        one
        for case in (4, 2)
        for one in (
            frame(FrameKind.BEGIN, case, -1),
            *(frame(FrameKind.STEP, case, number, struct.pack("<i", errors)) for number in range(3)),
            frame(FrameKind.END, case, -1, struct.pack("<iiq", 0, 0, 1000)),
        )
    ]
    return followed(Frames(b"".join(frames), TOKEN, 6), {4: 3, 2: 3}, TOKEN)


def said(*pieces: bytes, errors: int = 1) -> ReadReport:
    """Return the result of reading these pieces."""
    return read(b"".join([*pieces, WELL]), course(errors=errors), "llm_memory.c", lambda _: {}, optional=Raising())


@contextmanager
def quickly(seconds: float = 3.0) -> Iterator[None]:
    """Assert that the block takes less than `seconds` of CPU time; each of these attacks once took minutes."""
    started = time.thread_time()
    yield
    assert time.thread_time() - started < seconds
