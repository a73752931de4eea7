"""The lab of CS110 Homework 3, which connects reference, cases, driver and pictures; and its small engine."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import Number, Signature
from grader.core.judgement import Judgement
from grader.core.rubric import Facet
from grader.labs.c_lab import c_lab
from grader.labs.paged_kv.model import PagedKVModel, record_of
from grader.labs.paged_kv.picture import NOTATION, describe_poke, picture
from grader.labs.paged_kv.states import places
from grader.runtime.native import values
from grader.runtime.native.compile.toolchain import gcc_major
from reference.operation import Operation, Reply, Trace
from reference.paged_kv.constants import (
    BLOCK_SIZE,
    CONSTANTS,
    HEADER,
    KV_PER_BLOCK,
    L1_PT_SIZE,
    L2_PT_SIZE,
    MAX_LOGICAL_BLOCKS,
)
from reference.paged_kv.oracle import PagedKV
from reference.paged_kv.pool import GUARD_BYTES, Pool
from reference.paged_kv.sequence import UNMAPPED

_ROOT = Path(__file__).parents[3]
_HERE = Path(__file__).parent

_LABELS_GCC = 12

FACETS = tuple(
    Facet(name)
    for name in (
        *("reply", "counters", "ref_count", "tables", "fields", "list", "written", "copied", "untouched"),
        *("heap", "failing", "choice", "isolation"),
    )
)
"""The named parts of a record."""

_MOST_ENGINES = 8
_MOST_POOL_BYTES = 1 << 20
_MOST_BYTES_IN_ALL = _MOST_ENGINES * _MOST_POOL_BYTES
"""The most bytes of all pools of a case together, because the reference fills each pool."""

_MOST_KV = MAX_LOGICAL_BLOCKS * KV_PER_BLOCK
_ID = Number("seq_id")
_SLOT = Number("L1 slot", 0, L1_PT_SIZE - 1)

_OPERATIONS = {  # in the order of the driver's enum code
    "llm_init": Signature(
        arguments=(Number("pool_size", 0, _MOST_POOL_BYTES),),
        replies=("engine",),
        refusals=("NULL",),
        null_first=True,
        null_target=False,
        opens=True,
        task="Task 1",
    ),
    "create_sequence": Signature(
        arguments=(_ID, Number("initial_kv_len")), replies=("seq",), refusals=("NULL",), task="Task 2"
    ),
    "free_sequence": Signature(arguments=(_ID,), replies=("0",), refusals=("-1",), task="Task 2"),
    "fork_sequence": Signature(
        arguments=(Number("parent_seq_id"), Number("new_seq_id")), replies=("seq",), refusals=("NULL",), task="Task 3"
    ),
    "append_kv": Signature(arguments=(_ID, Number("kv_data")), replies=("0",), refusals=("-1",), task="Task 4"),
    "llm_destroy": Signature(arguments=(), replies=("0",), refusals=("-1",), closes=True, task="Task 5"),
    "move_l2": Signature(arguments=(_ID, _SLOT, _SLOT), null_target=False),
    "unmap": Signature(arguments=(_ID, Number("logical block", 0, MAX_LOGICAL_BLOCKS - 1)), null_target=False),
    "set_kv_count": Signature(arguments=(_ID, Number("kv_count", 0, _MOST_KV)), null_target=False),
}

_BUILDING = {
    "make_engine": Signature(arguments=(Number("pool_size", 0, _MOST_POOL_BYTES),), null_target=False),
    "add_sequence": Signature(arguments=(_ID, Number("kv_count", 0, _MOST_KV)), null_target=False),
    "map_block": Signature(
        arguments=(_ID, Number("logical block", 0, MAX_LOGICAL_BLOCKS - 1), Number("block", -1)), null_target=False
    ),
    "store_record": Signature(arguments=(Number("place", 0), Number("kv_data")), null_target=False),
}
"""The pokes by which a state is built (`_built`), which no case file uses."""

_SETTINGS = {
    "pool_blocks": Number("pool_blocks", 1, _MOST_POOL_BYTES // BLOCK_SIZE),
    "pool_bytes": Number("pool_bytes", 0, _MOST_POOL_BYTES),
    "pool_align": Number("pool_align", 4, BLOCK_SIZE, step=4),
    "heap_falls": Number("heap_falls", 0, 1),
}


@cache
def lab() -> Lab:
    """Return the lab. Raises `RubricError` when its rubric is wrong."""
    return c_lab(
        "paged_kv",
        "CS110 Homework 3: paged KV-cache memory manager",
        _HERE,
        str(HEADER.with_suffix("")),
        operations=_OPERATIONS,
        building=_BUILDING,
        facets=FACETS,
        oracle="reference.paged_kv:PagedKV",
        cases=_ROOT / "cases" / "paged_kv",
        settings=_SETTINGS,
        numbers=_driver_settings,
        places=places,
        constants=CONSTANTS,
        model=PagedKVModel,
        smalls=lambda: (SmallPagedKV(),),
        example="append_kv 1 77 -> 0",
        most_targets=_MOST_ENGINES,
        built=_built,
        complete=_complete,
        predicates={"takes-too-many-blocks": _takes_too_many, "no-copy-needed": _no_copy_needed},
        is_odd=_is_odd,
        random_settings=_random_settings,
        setting_words={"heap_falls": "each allocation lies at a lower address than the one before"},
        notation=NOTATION,
        describe_poke=describe_poke,
        picture=picture,
        labels_hold=_labels_hold,
        starter={"llm_memory.c": _HERE / "starter" / "llm_memory.c", HEADER.name: HEADER},
    )


def _complete(settings: dict[str, int], operations: list[Operation]) -> Iterator[tuple[str, str]]:
    """Add the `llm_init` and `llm_destroy` calls that a case omits. The settings give the size of the pool.

    Yields (key, message) for each problem.
    """
    written = {operation.target for operation in operations if operation.name == "llm_init"}
    size = settings.get("pool_bytes", settings.get("pool_blocks", 0) * BLOCK_SIZE)
    sized = "pool_bytes" in settings or "pool_blocks" in settings
    if "pool_bytes" in settings and "pool_blocks" in settings:
        yield "pool_bytes", "write either pool_blocks or pool_bytes, not both"
    if 1 in written and sized:
        yield "pool_blocks", "the trace has its own llm_init; omit pool_blocks and pool_bytes"
    uses_first = any(operation.target == 1 for operation in operations)
    if uses_first and 1 not in written:
        if not sized:
            yield "operations", "pool_blocks is missing: write pool_blocks = 4, or an llm_init in the trace"
        elif size < BLOCK_SIZE:
            yield (
                "pool_bytes",
                f"llm_init refuses fewer than {BLOCK_SIZE} bytes; write it out: llm_init {size} -> NULL",
            )
        operations.insert(0, Operation(name="llm_init", arguments=(size,), claim="engine", implicit=True))
    pools = sum(operation.numbers[0] for operation in operations if operation.name == "llm_init")
    if pools > _MOST_BYTES_IN_ALL:
        yield "operations", f"all pools together have {pools} bytes; at most {_MOST_BYTES_IN_ALL} are played"
    alive: dict[int, None] = {}
    for operation in operations:
        if operation.target is not None and operation.name == "llm_init" and operation.claim == "engine":
            alive[operation.target] = None
        elif operation.target is not None and operation.name == "llm_destroy":
            alive.pop(operation.target, None)
    operations += [Operation(name="llm_destroy", target=target, claim="0", implicit=True) for target in alive]


def _built(model: PagedKVModel) -> Iterator[Operation]:
    """Yield the pokes that build the state of a model: all existing engines with their pools."""
    seed = model.oracle.seed
    for number, slot in model.oracle.state().items():
        target, engine, pool_bytes = int(number), slot["engine"], slot["pool_bytes"]
        if engine is None:
            continue
        yield Operation(name="make_engine", arguments=(pool_bytes,), target=target)
        for name, sequence in engine["sequences"].items():
            seq_id, tables = int(name), sequence["block_table"]
            yield Operation(name="add_sequence", arguments=(seq_id, sequence["kv_count"]), target=target)
            for first, table in enumerate(tables):
                blocks = [(place, block) for place, block in enumerate(table or ()) if block != UNMAPPED]
                for place, block in blocks or ([(0, UNMAPPED)] if table is not None else []):
                    logical = first * L2_PT_SIZE + place
                    yield Operation(name="map_block", arguments=(seq_id, logical, block), target=target)
        fresh = Pool.fresh(seed, target, pool_bytes).records
        stored = Pool(array("i", slot["region"]), pool_bytes).records
        for place, (old, new) in enumerate(zip(fresh, stored, strict=True)):
            if old != new:
                yield Operation(name="store_record", arguments=(place, new), target=target)


def _labels_hold() -> bool:
    """Return whether the samples' labels hold here: they were made with Debian 12's gcc and Valgrind."""
    return gcc_major() == _LABELS_GCC


def _is_odd(trace: Trace) -> bool:
    """Return whether a pool does not begin or end at a block boundary, or whether addresses fall."""
    pools = [operation.arguments[0] for operation in trace.operations if operation.name == "llm_init"]
    return any(trace.settings.get(name) for name in ("pool_align", "heap_falls")) or any(
        isinstance(size, int) and size > BLOCK_SIZE and size % BLOCK_SIZE for size in pools
    )


def _driver_settings(trace: Trace) -> tuple[int, ...]:
    """Return the settings in the order of the driver's enum setting: seed, engines, pool_align, heap_falls."""
    engines = max(operation.target or 1 for operation in trace.operations)
    seed, *others = (trace.settings.get(name, 0) for name in ("seed", "pool_align", "heap_falls"))
    return seed, engines, *others


def _random_settings(number: int) -> dict[str, int]:
    """Make addresses fall in every other random trace: a program that compares them may be right while they rise."""
    return {"heap_falls": 1} if number % 2 else {}


def _takes_too_many(judgement: Judgement) -> bool:
    """Return whether the program has fewer free blocks than it must have."""
    return any(
        difference.field.endswith("free_local_blocks") and {"too-low", "isolation"} & difference.tags == {"too-low"}
        for difference in judgement.differences
    )


def _no_copy_needed(judgement: Judgement) -> bool:
    """Return False for an append that must copy a shared block, else True."""
    return "copy-on-write" not in judgement.expected.circumstances


_SMALL_BLOCKS = 3
_IDS = (1, 2)
_UNKNOWN = 3
"""An id that no sequence ever has."""
_LENGTHS = (
    *(0, 1, KV_PER_BLOCK - 1, KV_PER_BLOCK, KV_PER_BLOCK + 1),
    *(2 * KV_PER_BLOCK, 2 * KV_PER_BLOCK + 1, _SMALL_BLOCKS * KV_PER_BLOCK, _SMALL_BLOCKS * KV_PER_BLOCK + 1),
)
_KV_DATA = 7

_CALLS = (
    Operation(name="llm_init", arguments=(_SMALL_BLOCKS * BLOCK_SIZE,)),
    *(Operation(name="create_sequence", arguments=(number, length)) for number in _IDS for length in _LENGTHS),
    *(Operation(name="fork_sequence", arguments=pair) for pair in ((1, 2), (2, 1), (1, 1), (_UNKNOWN, 1))),
    *(Operation(name="append_kv", arguments=(number, _KV_DATA)) for number in (*_IDS, _UNKNOWN)),
    *(Operation(name="free_sequence", arguments=(number,)) for number in (*_IDS, _UNKNOWN)),
)

_WORD = 4
_BEFORE = 4 * _WORD
"""The bytes of a record before its state: an object's head, and a name with its length."""
_POOL = _SMALL_BLOCKS * BLOCK_SIZE + 2 * GUARD_BYTES + 2 * _WORD
"""The bytes at the end of a state: the pool and its guards, and the ends of two objects."""


class SmallPagedKV:
    """An engine of three blocks, two ids, lengths around block boundaries; see `grader.core.closure.SmallEngine`."""

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
        """Return the state of the oracle and its named values."""
        return self._oracle.state(), self._state

    def restore(self, state: Any) -> None:
        """Set the state to one that `state` returned."""
        oracle_state, self._state = state
        self._oracle.restore(oracle_state)

    def record(self, operation: Operation, reply: Reply) -> bytes:
        """Return the record of a call. A refused call changes nothing but the reply."""
        if not reply.refused:
            self._state = values.encode(self._oracle.state())
        around = values.encode(record_of(operation, reply, {}))
        return around[:_BEFORE] + self._state + around[_BEFORE + len(values.encode({})) :]

    def essence(self, record: bytes) -> bytes:  # noqa: ARG002 - the state suffices
        """Return the state without the content of the pool."""
        return self._state[:-_POOL]
