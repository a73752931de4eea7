"""Random operations in several mixtures, drawn with an eye on the state that they meet."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from reference.operation import Operation
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, L1_PT_SIZE, MAX_LOGICAL_BLOCKS
from reference.tests.paged_kv.naive import Arguments, Naive, NaiveEngine

_LONGEST = KV_PER_BLOCK * MAX_LOGICAL_BLOCKS
LIMITS = [-(2**31), -1, 0, 1, 2**31 - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A mixture: sizes of pools in bytes, number of ids, lengths of new sequences, weights of the calls."""

    name: str
    pools: tuple[int, int]
    ids: int
    length: int
    longest: int
    traces: int
    operations: int
    create: int = 10
    free: int = 8
    fork: int = 10
    append: int = 60
    destroy: float = 0.5
    move_l2: int = 0
    unmap: int = 0
    set_kv_count: int = 0
    must_meet: frozenset[str]
    """Clauses and situations (`NaiveEngine.met`) without which the mixture is not worth its time."""


PATHS = {"in-place", "new-page", "copy-on-write"}
ORDINARY = PATHS | {"Task 4/oom", "Task 2/no-room", "Task 2/unique-id", "Task 2/length", "live-sequences"}
PROFILES = (
    Profile(
        name="crowded",
        pools=(BLOCK_SIZE, 5 * BLOCK_SIZE),
        ids=6,
        length=40,
        longest=_LONGEST + 1,
        traces=40,
        operations=250,
        must_meet=frozenset(
            ORDINARY | {"Task 3/unique-id", "Task 3/parent", "Constraint 1/null-engine", "Task 2/too-long"}
        ),
    ),
    Profile(
        name="branching",
        pools=(4 * BLOCK_SIZE, 12 * BLOCK_SIZE),
        ids=9,
        length=60,
        longest=300,
        traces=40,
        operations=250,
        create=5,
        fork=20,
        must_meet=frozenset(ORDINARY | {"still-shared", "last-reference"}),
    ),
    Profile(
        name="poked",
        pools=(BLOCK_SIZE, 24 * BLOCK_SIZE),
        ids=5,
        length=90,
        longest=400,
        traces=40,
        operations=250,
        move_l2=9,
        unmap=9,
        set_kv_count=6,
        must_meet=frozenset(PATHS | {"holes", "unmapped-entries", "mid-block", "l2-missing", "Task 4/full"}),
    ),
    Profile(
        name="long",
        pools=(250 * BLOCK_SIZE, 300 * BLOCK_SIZE),
        ids=4,
        length=4200,
        longest=4200,
        traces=8,
        operations=500,
        create=4,
        free=3,
        fork=4,
        append=80,
        set_kv_count=1,
        must_meet=frozenset(PATHS | {"Task 4/full", "l2-missing", "Task 2/too-long", "Task 2/no-room"}),
    ),
)


class Traffic:
    """Operations for two engines; `world` is asked what is there, so that most of them are accepted."""

    def __init__(self, rng: random.Random, profile: Profile, world: Naive) -> None:
        self.rng = rng
        self.profile = profile
        self.world = world
        self.growing: tuple[int, int] | None = None
        names = ("create", "free", "fork", "append", "destroy", "move_l2", "unmap", "set_kv_count")
        self.weights = {name: float(getattr(profile, name)) for name in names}

    def operations(self) -> Iterator[Operation]:
        """One trace: the caller applies each operation to `world` before it asks for the next."""
        for _ in range(self.profile.operations):
            target = self.rng.choices((1, 2, None), (70, 28, 2))[0]
            if target is None:
                yield self._null_engine()
                continue
            engine = self.world.slots[target - 1]
            if engine is None or not engine.alive:
                yield Operation(name="llm_init", arguments=self._pool(), target=target)
            elif self.growing and self.growing[0] == target and self.rng.random() < 0.7:
                yield self._append(target, self.growing[1])
            else:
                yield self._call(target, engine)

    def _null_engine(self) -> Operation:
        calls: tuple[tuple[str, Arguments], ...] = (
            ("create_sequence", (1, 5)),
            ("free_sequence", (1,)),
            ("fork_sequence", (1, 2)),
            ("append_kv", (1, 5)),
            ("llm_destroy", ()),
        )
        name, arguments = self.rng.choice(calls)
        return Operation(name=name, arguments=arguments, target=None)

    def _pool(self) -> Arguments:
        dice = self.rng.random()
        if dice < 0.04:
            return (None, self.rng.randrange(200))
        if dice < 0.1:
            return (self.rng.randrange(BLOCK_SIZE),)
        return (self.rng.randint(*self.profile.pools),)

    def _call(self, target: int, engine: NaiveEngine) -> Operation:
        name = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        seq_id = self._id(engine)
        if name == "append":
            self.growing = (target, seq_id)
            return self._append(target, seq_id)
        arguments: dict[str, Arguments] = {
            "create": (self.rng.randrange(self.profile.ids), self._length()),
            "free": (seq_id,),
            "fork": (seq_id, self.rng.randrange(self.profile.ids)),
            "destroy": (),
            "move_l2": (seq_id, *self._l1_slots(engine, seq_id)),
            "unmap": (seq_id, self._logical(engine, seq_id)),
            "set_kv_count": (seq_id, self._kv_count(engine, seq_id)),
        }
        calls = {
            "create": "create_sequence",
            "free": "free_sequence",
            "fork": "fork_sequence",
            "destroy": "llm_destroy",
        }
        return Operation(name=calls.get(name, name), arguments=arguments[name], target=target)

    def _append(self, target: int, seq_id: int) -> Operation:
        kv_data = self.rng.choice(LIMITS) if self.rng.random() < 0.1 else self.rng.getrandbits(31)
        return Operation(name="append_kv", arguments=(seq_id, kv_data), target=target)

    def _id(self, engine: NaiveEngine) -> int:
        if engine.order and self.rng.random() < 0.9:
            return self.rng.choice(engine.order)
        return self.rng.randrange(self.profile.ids)

    def _length(self) -> int:
        dice = self.rng.random()
        if dice < 0.05:
            return self.rng.randint(-2, 0)
        if dice < 0.1:
            return self.rng.choice((self.profile.longest, _LONGEST - 1, _LONGEST, _LONGEST + 1))
        if dice < 0.3:
            return KV_PER_BLOCK * self.rng.randint(1, self.profile.length // KV_PER_BLOCK)
        return self.rng.randint(1, self.profile.length)

    def _l1_slots(self, engine: NaiveEngine, seq_id: int) -> tuple[int, int]:
        tables = [l1 for owner, l1 in sorted(engine.tables) if owner == seq_id]
        source = self.rng.choice(tables) if tables and self.rng.random() < 0.9 else self.rng.randrange(L1_PT_SIZE)
        return source, self.rng.randrange(L1_PT_SIZE)

    def _logical(self, engine: NaiveEngine, seq_id: int) -> int:
        mapped = [logical for owner, logical in sorted(engine.blocks) if owner == seq_id]
        return self.rng.choice(mapped) if mapped and self.rng.random() < 0.9 else self.rng.randrange(MAX_LOGICAL_BLOCKS)

    def _kv_count(self, engine: NaiveEngine, seq_id: int) -> int:
        if self.rng.random() < 0.6:
            kv_count = KV_PER_BLOCK * self._logical(engine, seq_id) + self.rng.randrange(KV_PER_BLOCK + 1)
            return min(_LONGEST, kv_count)
        return self.rng.choice((0, _LONGEST - KV_PER_BLOCK, _LONGEST - 1, _LONGEST, self.rng.randrange(_LONGEST + 1)))
