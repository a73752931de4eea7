"""Cases as drivers/harness.c reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from grader.grammar import Case
from grader.same import Same
from grader.verdict import Visibility
from reference.operation import Operation, Trace

__all__ = ["WATCH", "plan"]

WATCH = -1
"""In the place of a failing allocation: none fails, and memory freed by the call that made it is reported."""

_MAGIC = 0x504C414E
_MEMCHECK, _TRACE, _CONFINED, _LINES = 1, 2, 4, 8
_SETTINGS = 4
_CALL = struct.Struct("<8i")
_TIMES = (60_000, 3_000, 900_000)  # microseconds: first, least and hangs; see "time" in harness.c
_TOTAL_SECONDS = 10.0


def plan(
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    token: int,
    codes: dict[str, int],
    settings: Callable[[Trace], tuple[int, ...]],
    contracts: Mapping[int, bytes] | None = None,
    failing: Sequence[int] = (),
    total: float = _TOTAL_SECONDS,
    tracing: bool = False,
    lines: bool = False,
    confined: bool = False,
) -> bytes:
    """The cases with these numbers, as the driver reads them; under Valgrind each with its `contracts`.

    `failing`: for each case which allocation fails, or with `lines` of which operation to tell; see harness.c.
    `total`: seconds for all of them.
    `confined`: a process in which student code runs gives up what rights it can.
    """
    times = (*_TIMES, max(1, int(total * 1e6)))
    mode = _MEMCHECK * bool(contracts) | _TRACE * tracing | _CONFINED * confined | _LINES * lines
    parts = [struct.pack("<iQiiiiii", _MAGIC, token, mode, *times, len(numbers))]
    for number in numbers:
        trace = cases[number].trace
        values = (*settings(trace), *[0] * _SETTINGS)[:_SETTINGS]
        quiet = cases[number].visibility is Visibility.HIDDEN  # its prints would tell what it asks
        head = (number, len(trace.operations), quiet, failing[number] if failing else 0)
        parts.append(struct.pack(f"<{4 + _SETTINGS}i", *head, *values))
        parts += [_encode_all(Same(trace), tuple(codes.items())), (contracts or {}).get(number, b"")]
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _encode_all(trace: Same[Trace], codes: tuple[tuple[str, int], ...]) -> bytes:
    """The operations of a trace; they are the same for every submission of a class."""
    return b"".join(_encode(operation, dict(codes)) for operation in trace.value.operations)


def _encode(operation: Operation, codes: dict[str, int]) -> bytes:
    values = [argument if isinstance(argument, int) else 0 for argument in operation.arguments]
    nulls = sum(1 << i for i, argument in enumerate(operation.arguments) if argument is None)
    padded = (values + [0] * 5)[:5]
    return _CALL.pack(codes[operation.name], operation.target or 0, nulls, *padded)
