"""Encode cases as harness/harness.c reads them, and decide which cases may share a process.

Code that runs in a process can search its memory, and can pass information on: by a pipe's size, or by the time that it
takes. So no process is ever given both public and hidden cases. What a program reports and prints in a public case
comes from a process that never held a hidden case.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from grader.core.case import Case
from grader.runtime.native.driver import Driver
from grader.system.budget import TIME_LIMITS, TimeLimits
from reference.operation import NULL, Operation, Trace

WATCH = -1
"""In the place of a failing allocation: none fails, and memory freed by the call that allocated it is reported."""

T = TypeVar("T")
_MAGIC = 0x504C414E
_MEMCHECK, _TRACE, _CONFINED, _LINES = 1, 2, 4, 8
_SETTINGS = 4
_CALL = struct.Struct("<8i")
_MICROSECONDS = 1_000_000


def plan(
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    token: int,
    driver: Driver,
    contracts: Mapping[int, bytes] | None = None,
    failing: Sequence[int] = (),
    hanging: Iterable[str] = (),
    limits: TimeLimits = TIME_LIMITS,
    total: float = TIME_LIMITS.replay,
    tracing: bool = False,
    lines: bool = False,
    confined: bool = False,
) -> bytes:
    """Encode the cases with these numbers as the driver reads them; under Valgrind each with its `contracts`.

    Raises `ValueError` unless they are all public or all hidden.
    `failing`: for each case which allocation fails, or with `lines` which operation to report; see harness.c.
    `hanging`: the calls that are known to hang. `limits`: for single operations. `total`: seconds for all of the cases.
    `confined`: a process in which student code runs gives up all rights that it can.
    """
    if len({cases[number].visibility for number in numbers}) > 1:
        raise ValueError("public and hidden cases in one process")
    share = limits.hangs * len(numbers) / max(1, len(cases))  # shared by all cases of a submission
    seconds = (limits.operation, limits.least_operation, share, total)  # as "time" in harness.c
    times = [max(1, int(second * _MICROSECONDS)) for second in seconds]
    mode = _MEMCHECK * bool(contracts) | _TRACE * tracing | _CONFINED * confined | _LINES * lines
    codes = driver.codes
    proven = sum(1 << codes[name] for name in set(hanging))
    parts = [struct.pack("<iQiiiiiQi", _MAGIC, token, mode, *times, proven, len(numbers))]
    for number in numbers:
        trace = cases[number].trace
        head = struct.pack("<3i", number, len(trace.operations), failing[number] if failing else 0)
        parts += [head, _encode_all(_ById(trace), _ById(driver)), (contracts or {}).get(number, b"")]
    return b"".join(parts)


class _ById(Generic[T]):
    """A cache key: equal only for the same object, which it keeps alive. Long traces are not hashed again."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=1024)
def _encode_all(trace: _ById[Trace], driver: _ById[Driver]) -> bytes:
    """Encode settings and operations of a trace; they are the same for every submission of a class."""
    values = (*driver.value.settings(trace.value), *[0] * _SETTINGS)[:_SETTINGS]
    codes = driver.value.codes
    calls = (_encode(operation, codes) for operation in trace.value.operations)
    return struct.pack(f"<{_SETTINGS}i", *values) + b"".join(calls)


def _encode(operation: Operation, codes: dict[str, int]) -> bytes:
    nulls = sum(1 << i for i, argument in enumerate(operation.arguments) if argument == NULL)
    padded = [*operation.numbers, *[0] * 5][:5]
    return _CALL.pack(codes[operation.name], operation.target or 0, nulls, *padded)
