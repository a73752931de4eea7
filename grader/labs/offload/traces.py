"""Random traces: managers with few blocks, engines, and runners with sequences in succession.

The traces avoid what the handout leaves open: a loaded buffer is used before it is loaded again and before any offload
or flush, and only written rows are loaded. The traces for searches (`explore`) also have second managers and runners,
the number 0 as a sequence, a load before anything was computed, and loads with longer tables than they need.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from grader.labs.offload.oracle import Offload
from reference.operation import Argument, Operation

_Line = tuple[str, tuple[Argument, ...]]
_SEQS = "abcde"
_VOCAB = 23
_MANAGER = (
    *("allocate", "allocate", "may_append", "may_append", "may_append", "may_append", "can_append", "mark", "mark"),
    *("deallocate", "blocks", "prefilled", "prefill_len", "decode_start"),
)
"""The operations on a manager, the frequent ones several times."""


def generate(random: Random, length: int) -> list[Operation]:
    """Return a trace of at most `length` operations: of a manager, an engine or a runner."""
    maker = random.choice((_manager, _engine, _runner, _runner))
    return [Operation(name=name, arguments=arguments) for name, arguments in maker(random, length)]


def _manager(random: Random, length: int) -> list[_Line]:
    blocks, size = random.randint(1, 8), random.randint(1, 4)
    lines: list[_Line] = [("manager", (blocks, size))]
    reference = Offload()
    reference.apply(Operation(name="manager", arguments=(blocks, size)))
    while len(lines) < length:
        name = random.choice(_MANAGER)
        known = list(reference.alone.block_tables)
        seq = random.choice(known) if known and name != "allocate" else random.choice(_SEQS)
        if random.random() < 1 / 7:
            seq = random.choice(_SEQS)
        more: tuple[Argument, ...] = ()
        if name == "allocate":
            more = (random.randint(0, 2 * size + 2),)
        elif name == "mark":
            tokens, offloaded = reference.alone.lengths.get(seq, 0), reference.alone.offloaded.get(seq, 0)
            more = (random.randint(max(offloaded - 1, 0), tokens + random.randint(0, 1)),) if tokens else (0,)
        lines.append((name, (seq, *more)))
        reference.apply(Operation(name=name, arguments=(seq, *more)))
    return lines


def _engine(random: Random, length: int) -> list[_Line]:
    layers, blocks, size = random.randint(1, 3), random.randint(2, 5), random.randint(1, 4)
    settings = layers, blocks, size, random.choice((1, 2, 3, layers, layers + 1)), random.randint(size, 12)
    maker = _EngineLines(random, settings)
    lines: list[_Line] = [("engine", settings)]
    while len(lines) < length:
        lines += maker.next()
    return lines[:length]


class _EngineLines:
    """Makes operations of an engine, and remembers which rows were written."""

    def __init__(self, random: Random, settings: tuple[int, int, int, int, int]) -> None:
        self.random = random
        self.layers, self.blocks, self.size, self.buffers, self.longest = settings
        self.cpu: dict[tuple[int, int], int] = {}  # by layer and block, the number of written rows from row 0 on
        self.stored: dict[int, set[int]] = {}  # by layer, the written rows of the decode buffers

    def next(self) -> list[_Line]:
        """Return the next lines."""
        drawn = self.random.random()
        if drawn < 0.25:
            return [self._offload()]
        if drawn < 0.6 and self.cpu:
            return self._load()
        if drawn < 0.8:
            layer, pos = self.random.randrange(self.layers), self.random.randrange(self.size)
            self.stored.setdefault(layer, set()).add(pos)
            return [("store", (layer, pos))]
        if drawn < 0.88:
            start, end = sorted((self.random.randint(0, self.size), self.random.randint(0, self.size)))
            return [("decode_rows", (self.random.randrange(self.layers), start, end))]
        return [self._flush()] if drawn < 0.94 else [self._refused()]

    def _offload(self) -> _Line:
        layer, tokens = self.random.randrange(self.layers), self.random.randint(1, self.blocks * self.size)
        needed = -(-tokens // self.size)
        ids = self.random.sample(range(self.blocks), self.random.randint(needed, self.blocks))
        for place, block in enumerate(ids[:needed]):
            rows = min(self.size, tokens - place * self.size)
            self.cpu[layer, block] = max(rows, self.cpu.get((layer, block), 0))
        return "offload", (layer, tokens, tuple(ids))

    def _load(self) -> list[_Line]:
        """Return lines that load written rows into a buffer or two, and use each buffer."""
        lines: list[_Line] = []
        uses: list[_Line] = []
        for buffer in self.random.sample(range(self.buffers), self.random.randint(1, min(2, self.buffers))):
            layer = self.random.choice([layer for layer, _ in self.cpu])
            full = [block for (of, block), rows in self.cpu.items() if of == layer and rows == self.size]
            part = [block for (of, block), rows in self.cpu.items() if of == layer and rows < self.size]
            ids = self.random.sample(full, self.random.randint(0, min(len(full), self.longest // self.size)))
            tokens = len(ids) * self.size
            if part and tokens < self.longest:
                ids.append(self.random.choice(part))
                tokens += min(self.cpu[layer, ids[-1]], self.longest - tokens)
            if tokens:
                lines.append(("load", (buffer, layer, tuple(ids), tokens)))
                uses.append(("use", (buffer, self.random.choice((tokens, self.random.randint(0, tokens))))))
        return [*lines, *uses]

    def _flush(self) -> _Line:
        block, start = self.random.randrange(self.blocks), self.random.randrange(self.size)
        for layer in range(self.layers):
            before = self.cpu.pop((layer, block), 0)
            written = set(range(min(before, start))) | {row for row in self.stored.get(layer, ()) if row >= start}
            rows = next(row for row in range(self.size + 1) if row not in written)
            if rows:
                self.cpu[layer, block] = rows
        return "flush", (block, start)

    def _refused(self) -> _Line:
        """Return a call with an argument that must be refused."""
        few = tuple(range(self.blocks))
        return self.random.choice(
            (
                ("offload", (0, 0, few)),
                ("offload", (0, self.size + 1, (0,))),
                ("load", (0, 0, few, 0)),
                ("load", (0, 0, tuple(range(self.longest + 1)), self.longest + 1)),
                ("load", (0, 0, (), 1)),
                ("store", (0, self.random.choice((-1, self.size)))),
                ("flush", (0, self.random.choice((-1, self.size)))),
            )
        )


def _runner(random: Random, length: int) -> list[_Line]:
    layers, blocks, size = random.randint(1, 4), random.randint(3, 6), random.randint(1, 4)
    settings = (layers, blocks, size, random.choice((1, 2, 3, layers, layers + 2)), size * random.randint(3, 4))
    lines: list[_Line] = [("runner", settings)]
    reference = Offload()

    def add(name: str, *arguments: Argument) -> None:
        lines.append((name, arguments))
        reference.apply(Operation(name=name, arguments=arguments))

    reference.apply(Operation(name="runner", arguments=settings))
    for _ in range(random.randint(2, 3)):
        seq = random.choice("ab")
        wanted = random.choice((1, size - 1, size, size + 1, 2 * size - 1, 2 * size + 1))
        add("prefill", seq, tuple(random.randrange(_VOCAB) for _ in range(wanted)))
        for _ in range(random.randint(1, 2 * size + 2)):
            if random.random() < 1 / 9:
                add(*_refused_by_a_runner(random, seq))
            add("decode", seq, random.randrange(_VOCAB))
        add("finish", seq)
    return lines[:length]


def _refused_by_a_runner(random: Random, seq: str) -> tuple[str, str, Argument] | tuple[str, str]:
    other = "b" if seq == "a" else "a"
    return random.choice((("prefill", other, (1,)), ("prefill", seq, (1,)), ("decode", other, 1), ("finish", other)))


_FIRST_LOAD = (Operation(name="load", arguments=(0, 0, (0,), 1)), Operation(name="use", arguments=(0, 1)))


def explore(random: Random, length: int) -> list[Operation]:
    """Return a trace of a manager, an engine or a runner."""
    operations = generate(random, length)
    first = operations[0]
    more = _FIRST_LOAD if first.name == "engine" and random.random() < 0.2 else ()
    number_0 = random.random() < 0.2
    trace = [first, *more]
    for operation in operations[1:]:
        changed = _with_number_0(operation) if number_0 else operation
        trace += [_with_longer_table(random, changed, first), *_another(random, first.name)]
    return trace


def _another(random: Random, kind: str) -> tuple[Operation, ...]:
    """Return () or, rarely, an operation that makes a second manager or runner, which must not affect the first."""
    if random.random() >= 0.04:
        return ()
    if kind == "manager":
        blocks, size = random.randint(1, 4), random.randint(1, 3)
        return (Operation(name="another_manager", arguments=(blocks, size, random.randint(1, blocks * size))),)
    if kind == "runner":
        return (Operation(name="another_runner", arguments=(random.choice("abc"), (random.randrange(7),))),)
    return ()


def _with_number_0(operation: Operation) -> Operation:
    """Return the operation with the sequence 0 instead of "a"."""
    return replace(operation, arguments=tuple(0 if value == "a" else value for value in operation.arguments))


def _with_longer_table(random: Random, operation: Operation, engine: Operation) -> Operation:
    """Return the operation; a load sometimes gets one block more than it needs, but never if its table is too short."""
    if operation.name != "load" or random.random() >= 0.2:
        return operation
    arguments: tuple[Any, ...] = operation.arguments
    buffer, layer, ids, tokens = arguments
    blocks, size = engine.numbers[1:3]
    if len(ids) * size < tokens:
        return operation
    others = [block for block in range(blocks) if block not in ids]
    longer = (*ids, random.choice(others)) if others else ids
    return replace(operation, arguments=(buffer, layer, longer, tokens))
