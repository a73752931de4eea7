"""Random traces: pools in which blocks run short, lengths around block and table boundaries, forks of forks.

Most traces have one engine with a pool of a few blocks, since blocks are freed, shared and taken again soon there; in
others a sequence fills a whole L2 table, or reaches the longest possible length, or very many sequences are in the
list. Some calls must be refused, for each reason that the handout gives; in a few traces pokes leave holes in tables.

No trace contains what the handout leaves open, such as negative ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from reference.operation import NULL, Argument, Operation, Trace
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, L2_PT_SIZE, MAX_LOGICAL_BLOCKS
from reference.paged_kv.engine import Engine
from reference.paged_kv.oracle import PagedKV
from reference.paged_kv.sequence import UNMAPPED, Sequence

_TABLE = KV_PER_BLOCK * L2_PT_SIZE
_LONGEST = KV_PER_BLOCK * MAX_LOGICAL_BLOCKS
_BURSTS = (1, 1, 1, 1, 1, 1, 2, KV_PER_BLOCK - 1, KV_PER_BLOCK, KV_PER_BLOCK + 1)
"""The numbers of `append_kv` calls in a row."""
_INTS = (0, -1, 1, 2**31 - 1, -(2**31))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What the traces of one kind have in common."""

    blocks: tuple[int, ...]
    lengths: tuple[int, ...]
    """Sequences are created with about these lengths."""
    ids: int
    """Most ids are 1 to `ids`. Often the largest unused one is taken, so the list of sequences is not sorted by id."""
    create: int = 3
    free: int = 2
    fork: int = 3
    append: int = 6
    engines: int = 1
    whole: float = 0.15
    """The fraction of the sequences that take about all free blocks."""
    pokes: float = 0.0
    """The fraction of the operations that are pokes: they make holes in tables, which no call makes."""


_TABLE_POOLS = (L2_PT_SIZE + 1, L2_PT_SIZE + 2, L2_PT_SIZE + 4, 2 * L2_PT_SIZE + 2, 2 * L2_PT_SIZE + 8)
_LONG_POOLS = (MAX_LOGICAL_BLOCKS, MAX_LOGICAL_BLOCKS + 1, MAX_LOGICAL_BLOCKS + 3)
_SMALL = _Kind(blocks=(1, 2, 2, 3, 3, 4, 5, 6, 8), lengths=(1, KV_PER_BLOCK, 2 * KV_PER_BLOCK), ids=5)
_KINDS = (
    (10, _SMALL),
    (2, _Kind(blocks=(4, 6, L2_PT_SIZE + 2), lengths=(1, KV_PER_BLOCK, 3 * KV_PER_BLOCK, _TABLE), ids=4, pokes=0.15)),
    (2, _Kind(blocks=(2, 3, 4), lengths=(1, KV_PER_BLOCK), ids=3, engines=2)),
    (3, _Kind(blocks=_TABLE_POOLS, lengths=(_TABLE, _TABLE, 2 * _TABLE, KV_PER_BLOCK), ids=4)),
    (1, _Kind(blocks=_LONG_POOLS, lengths=(_LONGEST, _LONGEST, _LONGEST - _TABLE), ids=3, free=1)),
    (2, _Kind(blocks=(90, 130), lengths=(1,), ids=400, create=12, free=1, fork=8, append=1, whole=0.0)),
)
"""The kinds of traces with their weights."""


def generate(random: Random, length: int) -> list[Operation]:
    """Return a trace that begins with `llm_init`. An engine that is alive at its end is not destroyed."""
    (kind,) = random.choices([kind for _, kind in _KINDS], [weight for weight, _ in _KINDS])
    world = PagedKV(Trace(operations=()))
    operations: list[Operation] = []
    for operation in _operations(random, kind, world):
        world.apply(operation)
        operations.append(operation)
        if len(operations) == length:
            break
    return operations


def _operations(random: Random, kind: _Kind, world: PagedKV) -> Iterator[Operation]:
    """Yield operations without end; each is drawn to suit the state before it."""
    while True:
        target = random.randint(1, kind.engines)
        engine = world.engines.get(target)
        if engine is None:
            yield from _init(random, kind, target)
        elif engine.active_seqs and random.random() < kind.pokes:
            yield _poke(random, random.choice(engine.active_seqs), target)
        elif random.random() < 0.006:
            yield Operation(name="llm_destroy", target=target)
        elif random.random() < 0.01:
            name, arguments = _call(random, kind, engine) if random.random() < 0.8 else ("llm_destroy", ())
            yield Operation(name=name, arguments=arguments, target=None)
        else:
            name, arguments = _call(random, kind, engine)
            repeats = random.choice(_BURSTS) if name == "append_kv" else 1
            for _ in range(repeats):
                yield Operation(name=name, arguments=arguments, target=target)
                if name == "append_kv":
                    arguments = (arguments[0], random.randrange(1000))


def _init(random: Random, kind: _Kind, target: int) -> Iterator[Operation]:
    """Yield an `llm_init` that succeeds, sometimes after one that must fail."""
    if random.random() < 0.1:
        refused: tuple[Argument, ...] = random.choice(((NULL, 4 * BLOCK_SIZE), (BLOCK_SIZE - 4,), (0,)))
        yield Operation(name="llm_init", arguments=refused, target=target)
    rest = random.choice((0, 0, 0, 4, BLOCK_SIZE - 4))
    yield Operation(name="llm_init", arguments=(random.choice(kind.blocks) * BLOCK_SIZE + rest,), target=target)


def _poke(random: Random, sequence: Sequence, target: int) -> Operation:
    """Draw a poke that fits the sequence."""
    tables = [slot for slot, table in enumerate(sequence.block_table) if table is not None]
    free_slots = [slot for slot, table in enumerate(sequence.block_table) if table is None]
    mapped = [logical for logical in range(MAX_LOGICAL_BLOCKS) if sequence.block_at(logical) != UNMAPPED]
    drawn = random.random()
    if tables and free_slots and drawn < 0.4:
        arguments: tuple[int, ...] = (random.choice(tables), random.choice(free_slots[:3]))
        return Operation(name="move_l2", arguments=(sequence.seq_id, *arguments), target=target)
    if mapped and drawn < 0.8:
        return Operation(name="unmap", arguments=(sequence.seq_id, random.choice(mapped)), target=target)
    count = random.choice((0, sequence.kv_count // 2, sequence.kv_count + KV_PER_BLOCK))
    return Operation(name="set_kv_count", arguments=(sequence.seq_id, min(count, _LONGEST)), target=target)


def _call(random: Random, kind: _Kind, engine: Engine) -> tuple[str, tuple[Argument, ...]]:
    """Draw a call and its arguments."""
    active = [sequence.seq_id for sequence in engine.active_seqs]
    weights = {
        "create_sequence": kind.create,
        "free_sequence": kind.free,
        "fork_sequence": kind.fork,
        "append_kv": kind.append,
    }
    (name,) = random.choices(list(weights), list(weights.values()))
    if not active and random.random() < 0.9:
        name = "create_sequence"
    existing = random.choice(active) if active and random.random() < 0.93 else _new_id(random, kind, active)
    if name == "create_sequence":
        return name, (_free_id(random, kind, active), _length(random, kind, engine))
    if name == "free_sequence":
        return name, (existing,)
    if name == "fork_sequence":
        return name, (existing, _free_id(random, kind, active))
    return name, (existing, random.choice(_INTS) if random.random() < 0.1 else random.randrange(1000))


def _free_id(random: Random, kind: _Kind, active: list[int]) -> int:
    """Return an id that no sequence has, or sometimes one that is in use."""
    if active and random.random() < 0.06:
        return random.choice(active)
    return _new_id(random, kind, active)


def _new_id(random: Random, kind: _Kind, active: list[int]) -> int:
    """Return an id that no sequence has, often the largest such id: then ids fall along the list of sequences."""
    left = [number for number in range(kind.ids, 0, -1) if number not in active]
    if random.random() < 0.04 or not left:
        return random.choice((0, kind.ids + 1 + len(active), 2**31 - 1))
    return left[0] if random.random() < 0.5 else random.choice(left)


def _length(random: Random, kind: _Kind, engine: Engine) -> int:
    """Return a length near a boundary: of a block, of a table, or of the free blocks."""
    if random.random() < 0.06:
        return random.choice((0, -1, _LONGEST + 1, -(2**31), 2**31 - 1))
    if random.random() < kind.whole:
        return max(1, engine.free_local_blocks * KV_PER_BLOCK + random.choice((-KV_PER_BLOCK, 0, 0, 1)))
    return max(1, random.choice(kind.lengths) + random.choice((-1, 0, 0, 1, 1, KV_PER_BLOCK)))
