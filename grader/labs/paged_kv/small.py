"""The small engine of paged_kv: three blocks and two ids, and lengths around the boundaries of blocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from grader.labs.paged_kv.judging.model import record_of
from grader.runtime.native import values
from reference.operation import Operation, Reply, Trace
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK
from reference.paged_kv.oracle import PagedKV
from reference.paged_kv.pool import GUARD_BYTES

_BLOCKS = 3
_IDS = (1, 2)
_UNKNOWN = 3
"""An id that no sequence ever has."""
_LENGTHS = (
    *(0, 1, KV_PER_BLOCK - 1, KV_PER_BLOCK, KV_PER_BLOCK + 1),
    *(2 * KV_PER_BLOCK, 2 * KV_PER_BLOCK + 1, _BLOCKS * KV_PER_BLOCK, _BLOCKS * KV_PER_BLOCK + 1),
)
_KV_DATA = 7

_CALLS = (
    Operation(name="llm_init", arguments=(_BLOCKS * BLOCK_SIZE,)),
    *(Operation(name="create_sequence", arguments=(number, length)) for number in _IDS for length in _LENGTHS),
    *(Operation(name="fork_sequence", arguments=pair) for pair in ((1, 2), (2, 1), (1, 1), (_UNKNOWN, 1))),
    *(Operation(name="append_kv", arguments=(number, _KV_DATA)) for number in (*_IDS, _UNKNOWN)),
    *(Operation(name="free_sequence", arguments=(number,)) for number in (*_IDS, _UNKNOWN)),
)

_WORD = 4
_BEFORE = 4 * _WORD
"""The bytes of a record before its state: an object, and the name with its length."""
_POOL = _BLOCKS * BLOCK_SIZE + 2 * GUARD_BYTES + 2 * _WORD
"""The bytes at the end of a state: the pool and its guards, and the end of two objects."""


class SmallPagedKV:
    """See `grader.core.closure.SmallEngine`."""

    calls: Sequence[Operation] = _CALLS
    most = sys.maxsize

    def __init__(self) -> None:
        self._oracle = PagedKV(Trace(operations=_CALLS))
        self._state = b""
        """The state after the last call that changed something, as named values."""

    def apply(self, operation: Operation) -> Reply:
        """Do a call."""
        return self._oracle.apply(operation)

    def state(self) -> object:
        """The state of the oracle, with the values that belong to it."""
        return self._oracle.state(), self._state

    def restore(self, state: Any) -> None:
        """Take over such a state."""
        oracle_state, self._state = state
        self._oracle.restore(oracle_state)

    def record(self, operation: Operation, reply: Reply) -> bytes:
        """A call that is refused changes nothing but the reply."""
        if not reply.refused:
            self._state = values.encode(self._oracle.state())
        around = values.encode(record_of(operation, reply, {}))
        return around[:_BEFORE] + self._state + around[_BEFORE + len(values.encode({})) :]

    def essence(self, record: bytes) -> bytes:  # noqa: ARG002 - it is that of the state
        """Engine and sequences, without the content of the pool."""
        return self._state[:-_POOL]
