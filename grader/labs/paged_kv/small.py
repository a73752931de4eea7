"""The small engine of paged_kv: three blocks and two ids, and lengths around the boundaries of blocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from grader.labs.paged_kv.judging.model import reply_words
from grader.labs.paged_kv.judging.record import encode, state_of
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

_REPLY = 8
_POOL = _BLOCKS * BLOCK_SIZE + 2 * GUARD_BYTES
"""The bytes at the end of a record: the pool and its guards."""


class SmallPagedKV:
    """See `grader.core.closure.SmallEngine`."""

    calls: Sequence[Operation] = _CALLS
    most = sys.maxsize

    def __init__(self) -> None:
        self._oracle = PagedKV(Trace(operations=_CALLS))
        self._record = b""
        """After the last call that changed something."""

    def apply(self, operation: Operation) -> Reply:
        """Do a call."""
        return self._oracle.apply(operation)

    def state(self) -> object:
        """The state of the oracle, with the record that belongs to it."""
        return self._oracle.state(), self._record

    def restore(self, state: Any) -> None:
        """Take over such a state."""
        oracle_state, self._record = state
        self._oracle.restore(oracle_state)

    def record(self, operation: Operation, reply: Reply) -> bytes:
        """A call that is refused changes nothing but the reply."""
        words = encode(state_of(*reply_words(operation, reply), {}, 0))
        if reply.refused:
            return words + self._record[_REPLY:]
        self._record = encode(state_of(*reply_words(operation, reply), self._oracle.state(), 1))
        return self._record

    def essence(self, record: bytes) -> bytes:
        """Engine and sequences, without the reply and without the content of the pool."""
        return record[_REPLY:-_POOL]
