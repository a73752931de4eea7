"""Random traces: queues, pools and managers so small that ids, hashes and blocks occur again and again.

No trace contains a call whose result the handout leaves open: each operation is chosen by the state of the engine.
Traces for searches (`explore`) also have the calls that the other traces lack, and several pools in one trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from reference.block_pool.manager import Manager
from reference.operation import Argument, Operation

_WORDS = ("A", "B", "C")
_REQUESTS = ("a", "b", "c", "d", "e", "f")
_LONGEST = 24  # tokens of a request

Choice = tuple[str, tuple[Argument, ...]]


def generate(random: Random, length: int) -> list[Operation]:
    """Return a trace: 1 of 6 traces is of a queue, 2 of pools, 3 of managers."""
    kind = random.randrange(6)
    return _trace(random, length, _queue if kind == 0 else _pool if kind < 3 else _ManagerCalls(random).choose)


def _trace(random: Random, length: int, make: Callable[[Random, Manager], Choice]) -> list[Operation]:
    engine, operations = Manager(), list[Operation]()
    while len(operations) < length:
        name, arguments = make(random, engine)
        operation = Operation(name=name, arguments=arguments)
        engine.apply(operation)
        operations.append(operation)
    return operations


def _some(random: Random, items: list[int], most: int) -> tuple[int, ...]:
    """Return at most `most` of the items, in any order."""
    return tuple(random.sample(items, min(len(items), random.randint(0, most))))


def _one_of(random: Random, **choices: tuple[int, Callable[[], tuple[Argument, ...]]]) -> Choice:
    """Return a call, drawn by weights."""
    (name,) = random.choices(list(choices), [weight for weight, _ in choices.values()])
    return name, choices[name][1]()


def _queue(random: Random, engine: Manager) -> Choice:
    if not engine.num_blocks:
        count = random.randint(1, 8)
        return "queue", (count, tuple(random.sample(range(count), random.randint(0, count))))
    blocks = list(range(engine.num_blocks))
    outside = [block for block in blocks if block not in engine.forward]
    likely = outside if outside and random.random() < 0.8 else blocks
    inside = engine.forward if engine.forward and random.random() < 0.8 else blocks
    return _one_of(
        random,
        popleft=(4, tuple),
        popleft_n=(3, lambda: (random.randint(0, 4),)),
        remove=(5, lambda: (random.choice(inside),)),
        append=(4, lambda: (random.choice(likely),)),
        append_n=(4, lambda: (_some(random, likely, 3),)),
        get_all_free_blocks=(1, tuple),
    )


def _pool(random: Random, engine: Manager) -> Choice:
    if not engine.num_blocks:
        return "pool", (random.randint(1, 9), random.random() < 0.87, random.randint(1, 3))
    blocks = list(range(engine.num_blocks))
    used = [block for block in blocks if engine.ref[block]]
    inside = used if random.random() < 0.85 else blocks
    several = _some(random, blocks, 3)
    hashes = tuple(random.choice(_WORDS) for _ in several)
    size = len(engine.payload[0])
    return _one_of(
        random,
        get_new_blocks=(6, lambda: (random.randint(0, 3),)),
        touch=(5, lambda: (_some(random, blocks, 3) + _some(random, blocks, 1),)),
        free_blocks=(8, lambda: (_some(random, inside, 4),)),
        cache_full_blocks=(6, lambda: (several, hashes)),
        get_cached_block=(3, lambda: (random.choice(_WORDS),)),
        maybe_evict=(2, lambda: (random.choice(blocks),)),
        evict_blocks=(2, lambda: (several if random.random() < 0.8 else (*several, random.choice((-1, len(blocks)))),)),
        reset_prefix_cache=(1, tuple),
        fork_block=(4, lambda: (random.choice(used or blocks),)),
        set_payload=(2, lambda: (random.choice(blocks), tuple(random.randrange(9) for _ in range(size)))),
        get_num_free_blocks=(1, tuple),
        get_usage=(1, tuple),
    )


class _ManagerCalls:
    """Makes calls of a manager: requests begin with equal tokens, grow, are preempted, admitted again and freed."""

    def __init__(self, random: Random, *, items_at_the_end: bool = False) -> None:
        self.items_at_the_end = items_at_the_end
        self.size = random.randint(1, 4)
        self.alphabet = random.randint(2, 3)
        self.prefixes = [self._tokens(random, self.size * random.randint(0, 5)) for _ in range(2)]
        self.extras = random.random() < 0.4 or items_at_the_end
        self.longest = random.randint(6, _LONGEST) if random.random() < 0.3 else 100
        self.before: list[tuple[int, ...]] = []

    def _tokens(self, random: Random, count: int) -> tuple[int, ...]:
        return tuple(random.randrange(self.alphabet) for _ in range(count))

    def choose(self, random: Random, engine: Manager) -> Choice:
        """Return the next call."""
        if not engine.num_blocks:
            return "mgr", (random.randint(2, 18), self.size, random.random() < 0.87, self.longest)
        known = list(engine.requests)
        if not known:
            return self._new(random, engine)
        request = random.choice(known)
        if not engine.tables.get(request) and random.random() < 0.5:
            return self._admit(random, engine, request)
        if len(known) < len(_REQUESTS) and random.random() < 0.15:
            return self._new(random, engine)
        hashes = [name for name in engine.hash if name and "+" not in name] or ["A"]
        room = self.longest - engine.requests[request].num_tokens
        return _one_of(
            random,
            admit=(3, lambda: self._admit(random, engine, request)[1]),
            step=(6, lambda: (request, random.choice((1, 1, 1, 2, 3)))),
            append_tokens=(6 if room else 0, lambda: (request, self._tokens(random, random.randint(1, min(3, room))))),
            free=(4, lambda: (request,)),
            preempt=(3, lambda: (request,)),
            write=(4, lambda: (request, self._position(random, engine, request), random.randint(10, 99))),
            get_computed_blocks=(2, lambda: (request,)),
            evict_blocks=(1, lambda: (_some(random, list(range(engine.num_blocks)), 3),)),
            reset_prefix_cache=(1, tuple),
            get_cached_block=(1, lambda: (random.choice(hashes),)),
            get_num_free_blocks=(1, tuple),
            get_usage=(1, tuple),
            keys=(1, lambda: (request,)),
        )

    def _admit(self, random: Random, engine: Manager, request: str) -> Choice:
        missing = engine.requests[request].num_tokens - engine.requests[request].num_computed_tokens
        return "admit", (request, random.choice((1, max(1, missing), max(1, missing // 2), missing + 2)))

    def _new(self, random: Random, engine: Manager) -> Choice:
        name = random.choice([name for name in _REQUESTS if name not in engine.requests])
        if self.before and random.random() < 0.35:
            tokens = random.choice(self.before)
        else:
            tokens = random.choice(self.prefixes) + self._tokens(random, random.randint(0, 6))
        if random.random() < 0.3:
            tokens = tokens[: len(tokens) // self.size * self.size]
        tokens = (tokens or self._tokens(random, 1))[: self.longest]
        self.before.append(tokens)
        if not self.extras or random.random() < 0.4:
            return "new", (name, tokens)
        lora = random.choice((None, "x", "y"))
        salt = random.choice((None, None, "s", "t"))
        return "new_with", (name, tokens, lora, salt, self._features(random, len(tokens)), random.random() < 0.2)

    def _features(self, random: Random, count: int) -> tuple[Argument, ...]:
        """Return items. No item has offset -1 in a block, because Python's hashes of -1 and -2 are equal.

        With `items_at_the_end` the items begin in the block that `append_tokens` fills.
        """
        features = list[tuple[str, int, int]]()
        start, end, gap = (count // self.size * self.size, count + 2, 1) if self.items_at_the_end else (0, count, 3)
        while start < end and len(features) < 2:
            offset = start + random.randint(0, gap)
            most = 1 if self.items_at_the_end or offset % self.size == self.size - 1 else 2 * self.size
            features.append((random.choice("pq"), offset, random.randint(1, most)))
            start = offset + features[-1][2]
        return tuple(features) if random.random() < 0.6 else ()

    def _position(self, random: Random, engine: Manager, request: str) -> int:
        slots = len(engine.tables.get(request, ())) * self.size
        return random.randrange(slots) if slots and random.random() < 0.9 else random.choice((-1, slots))


_CHAINS = (((1, 2),), ((1,), (2,)), ((12,),), ((1, 2), (3,)), ((1,), (2, 3)), ((2, 1),))


def explore(random: Random, length: int) -> list[Operation]:
    """Return a trace. 1 of 10 has items in blocks that `append_tokens` fills; of the others 1 of 4 joins two traces."""
    if random.random() < 0.1:
        operations = _trace(random, length, _ManagerCalls(random, items_at_the_end=True).choose)
    else:
        parts = 2 if random.random() < 0.25 else 1
        operations = [operation for _ in range(parts) for operation in generate(random, max(1, length // parts))]
    return [varied for operation in operations for varied in _varied(random, operation)]


def _varied(random: Random, operation: Operation) -> list[Operation]:
    """Return the operation, sometimes in another form, or followed by another operation."""
    drawn = random.random()
    if operation.name == "free_blocks" and drawn < 0.3:
        return [replace(operation, name="free_iterator")]
    if drawn < 0.05:
        return [operation, Operation(name="clear_lists")]
    if drawn > 0.8 and operation.name == "new":
        return [operation, Operation(name="same_hash", arguments=(random.choice(_CHAINS), random.choice(_CHAINS)))]
    return [operation]
