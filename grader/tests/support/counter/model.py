"""What a counter does: it is started with a total of 0, counts up and down, and never goes below 0."""

from __future__ import annotations

import struct

from grader.core.judgement import Difference, Judgement
from grader.core.model import MemorySpan
from reference.operation import Argument, Operation, Reply, Trace
from reference.oracle import CannotGoOn

_RECORD = struct.Struct("<3i")
_INT = 1
_STOPPED = -1


def pack(reply: int, total: int) -> bytes:
    """The record after an operation: the kind and the value of its reply, and the total."""
    return _RECORD.pack(_INT, reply, total)


def _sum(value: Argument) -> int:
    return value if isinstance(value, int) else sum(map(_sum, value)) if isinstance(value, tuple) else 0


class Counter:
    """The reference; see `grader.core.model.Model`."""

    def __init__(self, _: Trace) -> None:
        self.total = _STOPPED
        self.reply = 0

    def apply(self, operation: Operation) -> Reply:
        """Do one operation."""
        number = _sum(operation.arguments)
        refused = operation.name == "take" and number > self.total
        self.reply = -1 if refused else 0
        if operation.name in ("start", "stop"):
            self.total = 0 if operation.name == "start" else _STOPPED
        elif not refused:
            self.total += -number if operation.name == "take" else number
        if operation.name == "add_all":
            self.reply = self.total
        return Reply(text=str(self.reply), refused=refused, clause="Part 2/below" if refused else "Part 1/total")

    def record(self) -> bytes:
        """The reply and the total."""
        return pack(self.reply, self.total)

    def allowed(self) -> tuple[MemorySpan, ...]:
        """There is no memory."""
        return ()

    def worked(self) -> frozenset[str]:
        """Nobody asks."""
        return frozenset()

    def restore(self, record: bytes) -> None:
        """Take over a total. Raises `CannotGoOn` when the record is none."""
        try:
            _, self.reply, self.total = _RECORD.unpack(record)
        except struct.error as error:
            raise CannotGoOn(str(error)) from error

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare reply and total."""
        if before is not None:
            self.restore(before)
        expected = self.apply(operation)
        right, wrong = (self.reply, self.total), _RECORD.unpack(actual)[1:]
        names = (("reply", f"what {operation.name} returns"), ("total", "total"))
        differences = tuple(
            Difference(facet=facet, field=field, expected=str(want), actual=str(have))
            for (facet, field), want, have in zip(names, right, wrong, strict=True)
            if want != have
        )
        return Judgement(
            expected=expected, actual=Reply(text=str(wrong[0]), refused=wrong[0] == -1), differences=differences
        )

    def compared(self) -> bytes:
        """The reply and the total after the operation that was judged last."""
        return self.record()

    def describe(self, record: bytes) -> dict[str, object]:
        """The total by its name."""
        self.restore(record)
        return {"total": self.total}
