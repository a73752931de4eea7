"""Homework 3 as an oracle: the engines of one trace with their pools, the calls, and the pokes."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotPoke
from reference.paged_kv import pokes
from reference.paged_kv.constants import BLOCK_SIZE
from reference.paged_kv.engine import Engine, llm_init, null_engine
from reference.paged_kv.pool import Pool
from reference.paged_kv.sequence import Sequence

_POKES = ("move_l2", "unmap", "set_kv_count", "add_sequence", "map_block", "store_record")


class PagedKV:
    """All engines of one trace, by their numbers in the case file. A pool stays when its engine is destroyed."""

    def __init__(self, trace: Trace, restored: Callable[[memoryview, int], Engine] = Engine) -> None:
        """Begin without engines. `restored` makes the engines of `restore`, from a pool's records and block count."""
        self.seed = trace.settings.get("seed", 0)
        self.restored = restored
        self.engines: dict[int | None, Engine] = {}
        """None is never a key: a NULL pointer leads to no engine."""
        self.pools: dict[int, Pool] = {}

    def apply(self, operation: Operation) -> Reply:
        """Do one call or poke. Raises `CannotPoke` when a poke does not fit the state."""
        if operation.name == "llm_init":
            return self._llm_init(operation.target or 1, *operation.arguments)
        if operation.name == "make_engine":
            self._llm_init(operation.target or 1, *operation.arguments)
            return Reply(text="")
        engine = self.engines.get(operation.target)
        if operation.name in _POKES:
            if engine is None:
                raise CannotPoke(f"there is no engine @{operation.target}")
            getattr(pokes, operation.name)(engine, *operation.numbers)
            return Reply(text="")
        if engine is None:
            return null_engine(operation.name)
        if operation.name == "llm_destroy":
            del self.engines[operation.target]
        reply: Reply = getattr(engine, operation.name)(*operation.arguments)
        return reply

    def state(self) -> dict[str, Any]:
        """Return for each engine number with a pool: the size, the engine or None, and the pool's region word by word.

        An engine has its counters, `ref_count`, the ids in the order of the list, and the sequences by their ids.
        """
        return {
            str(number): {
                "pool_bytes": pool.pool_bytes,
                "engine": _state_of(self.engines[number]) if number in self.engines else None,
                "region": pool.region.tolist(),
            }
            for number, pool in self.pools.items()
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state, as `state` returns it; counts in it may contradict each other."""
        self.engines, self.pools = {}, {}
        for number, slot in state.items():
            pool = Pool(array("i", slot["region"]), slot["pool_bytes"])
            self.pools[int(number)] = pool
            if slot["engine"] is not None:
                self.engines[int(number)] = self._engine_of(slot["engine"], pool)

    def _llm_init(self, number: int, *arguments: Any) -> Reply:
        """`llm_init SIZE` makes a fresh pool for engine `number`; `llm_init NULL SIZE` hands over no pool."""
        *null_pool, size = arguments
        if null_pool:
            return llm_init(None, size)[1]
        self.pools[number] = Pool.fresh(self.seed, number, size)
        engine, reply = llm_init(self.pools[number].records, size)
        if engine is not None:
            self.engines[number] = engine
        return reply

    def _engine_of(self, state: dict[str, Any], pool: Pool) -> Engine:
        engine = self.restored(pool.records, pool.pool_bytes // BLOCK_SIZE)
        engine.total_local_blocks = state["total_local_blocks"]
        engine.free_local_blocks = state["free_local_blocks"]
        engine.ref_count = list(state["ref_count"])
        for seq_id in state["active_seqs"]:
            left = state["sequences"][str(seq_id)]
            sequence = Sequence(seq_id, left["kv_count"])
            sequence.block_table = _copied(left["block_table"])
            engine.active_seqs.append(sequence)
        return engine


def _state_of(engine: Engine) -> dict[str, Any]:
    return {
        "total_local_blocks": engine.total_local_blocks,
        "free_local_blocks": engine.free_local_blocks,
        "ref_count": list(engine.ref_count),
        "active_seqs": [sequence.seq_id for sequence in engine.active_seqs],
        "sequences": {
            str(sequence.seq_id): {"kv_count": sequence.kv_count, "block_table": _copied(sequence.block_table)}
            for sequence in engine.active_seqs
        },
    }


def _copied(block_table: list[list[int] | None]) -> list[list[int] | None]:
    return [None if l2_table is None else list(l2_table) for l2_table in block_table]
