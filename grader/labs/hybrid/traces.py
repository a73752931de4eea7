"""Random traces: small pools and prefixes that occur again, large pages that change their type, and functions.

No trace contains what the handout leaves open: each operation is chosen from the state that the engine is in.
"""

from __future__ import annotations

from math import lcm
from random import Random

from reference.hybrid.engine import Hybrid
from reference.hybrid.fit import POLICIES
from reference.operation import Argument, Operation

_REQUESTS = ("a", "b", "c", "d", "e", "f")
_OWNERS = ("p", "q", "r", "s")
_TYPES = ("x", "y", "z")
_LONGEST = 30  # tokens of a request
_FUNCTIONS = 8  # calls in a trace of functions
_POWERS = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 4))  # block sizes with the bytes of a token
_ONE_PAGE = ((1, 6), (2, 3), (3, 2), (6, 1), (1, 2))  # such pairs: pages of 6 bytes, and one of 2 bytes

Call = tuple[str, tuple[Argument, ...]]


def generate(random: Random, length: int) -> list[Operation]:
    """Return a trace: 6 of 10 traces are of a manager, 3 of an allocator, 1 of functions."""
    kind = random.randrange(10)
    if kind == 9:
        return [Operation(name=name, arguments=arguments) for name, arguments in _functions(random)][:length]
    engine = Hybrid()
    maker: _Requests | _Pages = _Requests(random, engine, length) if kind < 6 else _Pages(random, engine)
    operations = [Operation(name="spoil")] if random.random() < 0.3 else []
    while len(operations) < length:
        for name, arguments in maker.next():
            operation = Operation(name=name, arguments=arguments)
            engine.apply(operation)
            operations.append(operation)
    return operations[:length]


class _Requests:
    """Makes calls of a manager: requests that begin with equal tokens, return, grow, and are freed."""

    def __init__(self, random: Random, engine: Hybrid, length: int) -> None:
        self.random, self.engine = random, engine
        self.until_second = random.randrange(length // 3, length) if random.random() < 0.25 else -1
        self.prefixes = [self._tokens(random.randint(0, 24)) for _ in range(2)]

    def _tokens(self, count: int) -> str:
        return "".join(self.random.choice("ab") for _ in range(count))

    def next(self) -> list[Call]:
        """Return the next call, or up to three calls that belong together."""
        random, requests = self.random, self.engine.requests
        self.until_second -= 1
        if not self.engine.settings or self.until_second == 0:
            return [self._manager()]
        if not requests or (len(requests) < len(_REQUESTS) and random.random() < 0.15):
            return self._new()
        name = random.choice(list(requests))
        (make,) = random.choices((self._seldom, self._leave, self._go_on), (13, 10, 77))
        return make(name)

    def _seldom(self, name: str) -> list[Call]:
        random = self.random
        pool = self.engine.pool
        cached = [block for block in pool.free_queue if pool.has_hash(block)]
        some = cached if cached and random.random() < 0.8 else list(range(1, self.engine.settings[0]))
        evicted = tuple(random.sample(some, min(len(some), random.randint(0, 4))))
        calls: list[Call] = [("evict", (evicted,)), ("match", (name,)), ("step", (name, random.choice((0, -1))))]
        return random.choices([*calls, self._wrong()], (6, 4, 2, 1))

    def _leave(self, name: str) -> list[Call]:
        return [(self.random.choice(("free", "free", "preempt")), (name,))]

    def _go_on(self, name: str) -> list[Call]:
        """Return calls that give a request blocks, or more tokens."""
        known = self.engine.requests[name]
        left = len(known.tokens) - known.computed
        if not any(self.engine.tables.get(name, ())) and not known.computed and self.random.random() < 0.8:
            return self._admit(name, left)
        if left:
            return [("step", (name, self._some(left)))]
        if len(known.tokens) < _LONGEST:
            return [("append", (name, self._tokens(self.random.randint(1, 4))))]
        return self._leave(name)

    def _some(self, left: int) -> int:
        """Return a number of tokens: all that are left, some of them, or more."""
        return self.random.choice((left, left + 2, self.random.randint(1, left), self.random.randint(1, left), 1))

    def _manager(self) -> Call:
        random = self.random
        caching = random.random() < 0.85
        size, ratios = random.randint(1, 3), (1,) if random.random() < 0.5 else (1, 2, 3)
        kinds = ["full", "sliding", "sliding", "mamba", *(() if caching else ("cross", "cross"))]
        groups = tuple(
            (random.choice(kinds), size * random.choice(ratios), random.randint(2, 9))
            for _ in range(random.choice((1, 2, 2, 3, 3, 4)))
        )
        return "manager", (random.randint(2, 33) + random.choice((0, 0, 12)), groups, caching)

    def _wrong(self) -> Call:
        """Return a call of a manager's constructor that must be refused."""
        group, caching = self.random.choice(
            ((("ring", 2, 4), True), (("full", 0, 4), True), (("sliding", 2, 1), False), (("cross", 2, 4), True))
        )
        return "manager", (9, (("full", 1, 2), group), caching)

    def _new(self) -> list[Call]:
        random = self.random
        name = random.choice([name for name in _REQUESTS if name not in self.engine.requests])
        tokens = random.choice(self.prefixes)
        if random.random() < 0.3:
            tokens = tokens[: random.randint(0, len(tokens))]
        tokens += self._tokens(random.randint(0 if tokens else 1, 6))
        new: Call = ("new", (name, tokens, random.choice((0, 0, 1, 3, 6))))
        if random.random() < 0.6:
            return [new, *self._admit(name, len(tokens))]
        return [new, ("step", (name, self._some(len(tokens))))][: random.randint(1, 2)]

    def _admit(self, name: str, left: int) -> list[Call]:
        return [("match", (name,)), ("admit", (name, self._some(left)))]


class _Pages:
    """Makes calls of an allocator: few pages, slots that are used again, equal times."""

    def __init__(self, random: Random, engine: Hybrid) -> None:
        self.random, self.engine = random, engine
        self.time = 0
        self.frees = random.random()  # how likely a slot that is given back becomes empty

    def next(self) -> list[Call]:
        """Return the next call, in a list."""
        random, engine = self.random, self.engine
        if not engine.page_bytes:
            return [("lcm", _sizes_and_budget(random))]
        page_type = random.choice(list(engine.page_bytes))
        drawn = random.random()
        if drawn < 0.5:
            return [("alloc", (random.choice(_OWNERS), page_type))]
        if drawn < 0.57:
            return [("remove", (random.choice(_OWNERS),))]
        if drawn < 0.59:
            most = engine.num_large_pages * engine.ratio[page_type]
            return [("offset", (random.choice((page_type, page_type, "w")), random.randint(-1, most)))]
        if drawn < 0.63:
            return [self._wrong(page_type)]
        return [self._change()]

    def _change(self) -> Call:
        """Return a call that changes a slot which is not empty."""
        random = self.random
        slots = [
            (page_type, small_id, slot)
            for page_type, of in self.engine.slots.items()
            for small_id, slot in of.items()
            if slot != "empty"
        ]
        if not slots:
            return "alloc", (random.choice(_OWNERS), random.choice(list(self.engine.page_bytes)))
        page_type, small_id, slot = random.choice(slots)
        if slot != "used":
            return "reuse", (page_type, small_id)
        if random.random() < self.frees:
            return "free_page", (page_type, small_id)
        self.time += random.choice((0, 0, 1))
        return "release", (page_type, small_id, self.time, random.randint(0, 3))

    def _wrong(self, page_type: str) -> Call:
        """Return a call on a slot that may not exist, or on an unknown type."""
        random = self.random
        page_type = random.choice((page_type, page_type, page_type, "w"))
        slots = list(self.engine.slots.get(page_type, ()))
        small_id = random.choice(slots) if slots and random.random() < 0.7 else random.randint(-1, 9)
        name = random.choice(("free_page", "release", "reuse", "alloc"))
        if name == "alloc":
            return name, ("p", "w")
        return name, (page_type, small_id, *((self.time, 1) if name == "release" else ()))


def _sizes_and_budget(random: Random) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return the sizes of one to three types, and a budget for zero to nine large pages."""
    sizes = tuple((name, random.choice((1, 2, 3, 4, 6))) for name in _TYPES[: random.randint(1, 3)])
    large = lcm(*(size for _, size in sizes))
    return sizes, random.choice((random.randint(0, 9), random.randint(1, 3))) * large + random.randrange(large)


def _functions(random: Random) -> list[Call]:
    """Return calls of several functions."""
    makers = (_fit, _fit, _fit, _unify, _group, _config, _config, _waste)
    return [make(random) for make in random.sample(makers, _FUNCTIONS)]


def _fit(random: Random) -> Call:
    sizes, budget = _sizes_and_budget(random)
    requests = tuple(
        tuple((name, random.randint(0, 5)) for name, _ in sizes if random.random() < 0.8)
        for _ in range(random.randint(1, 9))
    )
    policy = random.choice((*POLICIES, *POLICIES, *POLICIES, "best"))
    weights = tuple((name, random.randint(1, 4)) for name, _ in sizes) if policy == "static" else None
    return "fit", (policy, budget, sizes, requests, weights)


def _layers(random: Random, shapes: tuple[tuple[int, int], ...]) -> tuple[tuple[str, tuple[str, int, int, int]], ...]:
    """Return up to 24 layers of one to three specs, mixed; `shapes` are block sizes with the bytes of a token."""
    specs = []
    for _ in range(random.randint(1, 3)):
        block_size, token_bytes = random.choice(shapes)
        kind = random.choice(("full", "sliding", "mamba"))
        specs.append((kind, block_size, random.choice((0, 4)), token_bytes))
    counts = [random.randint(1, 8) for _ in specs]
    drawn = random.sample(specs, sum(counts), counts=counts)
    return tuple((f"l{number}", spec) for number, spec in enumerate(drawn))


def _unify(random: Random) -> Call:
    return "unify", (_layers(random, random.choice((_POWERS, _ONE_PAGE, ((2, 1), (1, 3), (2, 2))))),)


def _group(random: Random) -> Call:
    return "group", (_layers(random, ((1, 1), (1, 2))),)


def _config(random: Random) -> Call:
    available = random.randint(-50, 900)
    layers = _layers(random, random.choice((_POWERS, _ONE_PAGE)))
    return "config", (layers, available, random.choice((None, None, None, 0, 7)))


def _waste(random: Random) -> Call:
    kinds = ("full", "sliding", "cross", "mamba") if random.random() < 0.4 else ("full", "sliding", "cross")
    layers = tuple(
        (random.choice(kinds), random.randint(1, 9), random.randint(2, 30)) for _ in range(random.randint(1, 4))
    )
    return "waste", (layers, random.randint(1, 40), random.choice((0, random.randint(0, 30))))
