"""What must be in memory: after the calls of an engine, and after the calls of a runner.

The grader makes an engine's calls itself, so it knows each row. For a runner it knows what the model computes, so it
checks where keys and values are, whether they and the logits are the model's, and what a decode loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grader.labs.offload.dense import Array, Computed, Layer, rows_of_fill
from grader.labs.offload.device import CPU, DECODE, RING, RowSpan, StreamWork, serialised
from grader.labs.offload.replay import (
    Cache,
    Log,
    Replay,
    agreeing,
    contents_of,
    cpu_rows,
    decode_rows,
    fill_gaps,
    held,
    same,
    same_keys,
)
from grader.labs.offload.sentences import Findings, garbage, serial

_PARTS = {**dict.fromkeys(CPU, "cpu"), **dict.fromkeys(RING, "ring"), **dict.fromkeys(DECODE, "decode")}
_MOST_SHOWN = 3


@dataclass(slots=True)
class EngineCase:
    """What each buffer of the storage must hold; NaN where nothing is known."""

    replay: Replay
    fills: int = 0
    """The number of calls for which the driver filled rows."""
    known: dict[str, Array] = field(default_factory=dict)
    touched: dict[str, list[int]] = field(default_factory=dict)
    """The rows that the last operation had to write."""

    def __post_init__(self) -> None:
        """Begin with no known row."""
        config = self.replay.config
        sizes = (
            config.num_layers * config.cpu_rows,
            config.num_kv_buffers * config.max_seq_len,
            config.num_layers * config.block_size,
        )
        for names, rows in zip((CPU, RING, DECODE), sizes, strict=True):
            for name in names:
                self.known[name] = np.full((rows, config.kv_width), np.nan)

    def offload(self, layer: int, num_tokens: int, ids: Sequence[int]) -> None:
        """Expect the rows that the driver passed, in the CPU blocks `ids` of a layer."""
        filled = self._filled(max(num_tokens, 1))
        if num_tokens < 1 or len(ids) * self.replay.config.block_size < num_tokens:
            return
        for name, rows in zip(CPU, filled, strict=True):
            self._put(name, self._places(layer, ids, num_tokens), rows)

    def load(self, buffer: int, layer: int, ids: Sequence[int], num_tokens: int) -> None:
        """Expect the first rows of the CPU blocks `ids` of a layer in a buffer of the ring."""
        config = self.replay.config
        if not 1 <= num_tokens <= config.max_seq_len or len(ids) * config.block_size < num_tokens:
            return
        first, places = buffer * config.max_seq_len, self._places(layer, ids, num_tokens)
        for name, source in zip(RING, CPU, strict=True):
            self._put(name, [*range(first, first + num_tokens)], self.known[source][places])

    def store(self, layer: int, pos: int) -> None:
        """Expect the row that the driver passed, in the decode buffers."""
        filled, size = self._filled(1), self.replay.config.block_size
        for name, rows in zip(DECODE, filled, strict=True):
            if 0 <= pos < size:
                self._put(name, [layer * size + pos], rows)

    def flush(self, block: int, start: int) -> None:
        """Expect rows of the decode buffers in a block of every layer."""
        config = self.replay.config
        if not 0 <= start < config.block_size:
            return
        pairs = [(layer, row) for layer in range(config.num_layers) for row in range(start, config.block_size)]
        places = [config.cpu_row(layer, block, row) for layer, row in pairs]
        for name, source in zip(CPU, DECODE, strict=True):
            self._put(name, places, self.known[source][[layer * config.block_size + row for layer, row in pairs]])

    def follow(self, name: str, arguments: Sequence[object]) -> None:
        """Note what an operation must do to the rows. Operations that touch no memory are skipped."""
        self.touched.clear()
        if name in ("offload", "load", "store", "flush"):
            getattr(self, name)(*arguments)

    def compare(self, findings: Findings, log: Log) -> bool:
        """Find rows that differ from the known ones. Return whether a buffer that had to be written was not written.

        Wrong rows are replaced by the right ones, so that each is reported once.
        """
        idle = False
        for name, known in self.known.items():
            contents = contents_of(self.replay, name)
            places = [row for row in self.touched.get(name, ()) if not np.isnan(known[row]).any()]
            if contents is None:
                if name in self.touched:
                    findings.add(_PARTS[name], f"there is no {name}")
                    idle = True
                continue
            right = agreeing(contents, known)
            unwritten = bool(places) and bool(np.isnan(contents[places]).all())
            idle = idle or (unwritten and not log.writes(self.replay.storage.get(name)))
            wrong = ~np.isnan(known).any(axis=-1) & ~right
            for row in np.flatnonzero(wrong)[:_MOST_SHOWN]:
                findings.add(_PARTS[name], f"{self._place(name, int(row))} of {name} {held(contents[row : row + 1])}")
            contents[wrong] = known[wrong]
        return idle

    def _put(self, name: str, places: list[int], rows: Array) -> None:
        self.known[name][places] = rows
        self.touched[name] = places

    def _places(self, layer: int, ids: Sequence[int], tokens: int) -> list[int]:
        """Return the CPU rows of the first `tokens` tokens in these blocks."""
        config, size = self.replay.config, self.replay.config.block_size
        return [config.cpu_row(layer, ids[token // size], token % size) for token in range(tokens)]

    def _filled(self, rows: int) -> tuple[Array, Array]:
        """Return the rows that the driver filled for a call: keys and values."""
        self.fills += 1
        width = self.replay.config.kv_width
        return rows_of_fill(2 * self.fills - 1, rows, width), rows_of_fill(2 * self.fills, rows, width)

    def _place(self, name: str, row: int) -> str:
        """Return a row in the words of the handout."""
        config = self.replay.config
        if name in RING:
            return f"token {row % config.max_seq_len} in buffer {row // config.max_seq_len}"
        layer, rest = divmod(row, config.cpu_rows if name in CPU else config.block_size)
        block, rest = divmod(rest, config.block_size)
        where = f" of block {block}" if name in CPU else ""
        return f"row {rest}{where} of layer {layer}"


_WRITTEN = {"offloaded": CPU, "stored": DECODE}
"""For each kind of work, its buffers: a call that wrote into all of them did the work, perhaps at wrong places."""


@dataclass(slots=True)
class Before:
    """What the program has when a decode begins: its table, P (offloaded tokens), and the rows for the attention."""

    position: int
    table: list[int]
    offloaded: int
    consistent: bool
    """Whether the offloaded tokens and the tokens in the decode buffers make up the whole sequence."""
    cached: dict[tuple[str, int], Array] = field(default_factory=dict)
    """The rows in the CPU cache, by "k" or "v" and layer."""
    waiting: dict[tuple[str, int], Array] = field(default_factory=dict)
    """The rows in the decode buffers, by "k" or "v" and layer."""


@dataclass(frozen=True, slots=True)
class _Masked:
    """What a call computes if its attention mask is wrong, the most frequent mistake."""

    flag: str
    computed: Callable[[], Computed]

    def explains(self, number: int, kind: str, rows: Array) -> bool:
        """Return whether the keys ("k") or values ("v") of a layer are those of the wrong mask."""
        layer = self.computed()[0][number]
        return bool(agreeing(rows, layer.keys if kind == "k" else layer.values).all())


@dataclass(slots=True)
class RunnerCase:
    """What the grader knows of the sequence that a runner has."""

    replay: Replay
    rows: dict[tuple[str, int], Array] = field(default_factory=dict)
    """The reference's rows, one for each token, by "k" or "v" and layer."""
    before: Before | None = None
    """The state in which the current decode began."""

    def prefill(self, findings: Findings, log: Log, tokens: Sequence[int], table: list[int]) -> None:
        """Find what is wrong after an accepted prefill into the blocks of a table."""
        model = self.replay.memory.model
        layers, logits = model.prompt(tokens)
        masked = _Masked("causal=False", lambda: model.prompt(tokens, causal=False))
        for number, layer in enumerate(layers):
            self.rows["k", number], self.rows["v", number] = model.rotary(layer.keys, 0), layer.values
            own = self._own(log, number, layer, masked=masked, findings=findings)
            for kind, mine in (("k", own.keys), ("v", own.values)):
                rows = cpu_rows(self.replay, (kind, number), table, range(len(tokens)))
                self._check_stored(findings, (kind, number), (rows, mine), 0)
        self._check_logits(findings, logits, masked)
        self._close(findings, log)

    def begin_decode(self, position: int, table: list[int], offloaded: int) -> None:
        """Record the state in which a decode begins. The reference's rows replace garbage."""
        size = self.replay.config.block_size
        start, end = offloaded % size, position % size
        self.before = before = Before(position, table, offloaded, offloaded + end - start == position)
        for layer in range(self.replay.config.num_layers):
            for kind in "kv":
                cached, waiting = range(offloaded), range(start, end)
                right = self.rows.get((kind, layer))
                if before.consistent and right is not None and len(right) == position:
                    fill_gaps(self.replay, (kind, layer), table=table, cached=cached, rows=waiting, right=right)
                before.cached[kind, layer] = cpu_rows(self.replay, (kind, layer), table, cached)
                before.waiting[kind, layer] = decode_rows(self.replay, (kind, layer), waiting)

    def decode(self, findings: Findings, log: Log, token: int, table: list[int]) -> None:
        """Find what an accepted decode did wrong, if `begin_decode` ran. `table` is the block table after it."""
        before, self.before = self.before, None
        if before is None:
            return
        model, size = self.replay.memory.model, self.replay.config.block_size
        pairs = [
            (
                np.concatenate([before.cached["k", layer], before.waiting["k", layer]]),
                np.concatenate([before.cached["v", layer], before.waiting["v", layer]]),
            )
            for layer in range(self.replay.config.num_layers)
        ]
        layers, logits = model.token(token, before.position, pairs)
        masked = _Masked("causal=True", lambda: model.token(token, before.position, pairs, causal=True))
        row = before.position % size
        for number, layer in enumerate(layers):
            own = self._own(log, number, layer, masked=masked, findings=findings)
            new = {"k": model.rotary(layer.keys, before.position), "v": layer.values}
            for kind, mine in (("k", own.keys), ("v", own.values)):
                rows = decode_rows(self.replay, (kind, number), range(row, row + 1))
                self._check_stored(findings, (kind, number), (rows, mine), before.position, is_decode=True)
                right = self.rows.get((kind, number))
                self.rows[kind, number] = new[kind] if right is None else np.concatenate([right, new[kind]])
        self._check_flushed(findings, before, table)
        self._check_logits(findings, logits, masked)
        if not before.consistent:  # the expected values assume a right P; `tracking` reports a wrong P
            findings.drop("values", "logits")
        self._check_loads(findings, log, before)
        self._close(findings, log)

    def _check_loads(self, findings: Findings, log: Log, before: Before) -> None:
        """Find loads and kernels that must be able to overlap but are ordered, and layers that were not loaded."""
        copies: dict[int, list[StreamWork]] = {}
        for work, load in _loads(self.replay, log):
            copies.setdefault(load[0], []).append(work)
        attentions = [work for work in log.works if work.call.name == "attention"]
        ends = {work.call.arguments["layer"]: work for work in log.works if work.call.name == "o_proj"}
        for pair in serialised(copies, dict(enumerate(attentions)), ends, self.replay.config.num_kv_buffers):
            findings.add("overlap", serial(pair, self.replay))
        if len(copies) < self.replay.config.num_layers and before.offloaded:
            findings.add("ring", "not every layer was loaded")
            findings.undone.add("loaded")

    def _close(self, findings: Findings, log: Log) -> None:
        """Remove work that was done at wrong places from `undone`. Report garbage before the values it made wrong."""
        storage = self.replay.storage
        written = {name for name, number in storage.items() if log.writes(number)}
        findings.undone -= {word for word, names in _WRITTEN.items() if written.issuperset(names)}
        if log.garbage and findings.has("values", "logits"):
            findings.wrong.insert(0, ("values", garbage(*log.garbage[0], self.replay)))

    def _own(self, log: Log, number: int, layer: Layer, *, masked: _Masked, findings: Findings) -> Layer:
        """Return what the program computed in a layer, and find what differs from the model."""
        own = []
        for kind, results, right in (("k", log.keys, layer.keys), ("v", log.values, layer.values)):
            rows = np.concatenate(results[number]) if number in results else np.empty((0, right.shape[1]))
            if len(rows) != len(right):
                findings.add(
                    "values", f"layer {number}: {kind}_proj computed {len(rows)} rows in this call, of {len(right)}"
                )
                own.append(right)
                continue
            wrong = np.flatnonzero(~agreeing(rows, right))
            if len(wrong):
                text = f"layer {number}: {kind} of row {wrong[0]} of this call is not the model's"
                is_first = not findings.has("values")
                if is_first and number and masked.explains(number, kind, rows):
                    text += f", but what attention with {masked.flag} in layer {number - 1} leads to"
                elif is_first and number:
                    text += f", though layer {number - 1} began right: its attention, or what follows, is wrong"
                findings.add("values", text)
            own.append(rows)
        return Layer(*own)

    def _check_stored(
        self, findings: Findings, of: Cache, rows: tuple[Array, Array], first: int, *, is_decode: bool = False
    ) -> None:
        """Find rows that were not stored at their place, and keys that were stored there with a wrong rotation."""
        (kind, layer), where = of, "the decode buffer" if is_decode else "the CPU cache"
        stored, mine = rows
        config, model = self.replay.config, self.replay.memory.model
        placed = same_keys(stored, mine, config.head_dim) if kind == "k" else agreeing(stored, mine)
        if np.isnan(stored).all():
            findings.undone.add("stored" if is_decode else "offloaded")
        for place in np.flatnonzero(~placed)[:3]:
            text = f"layer {layer}: {kind} of token {first + place} {held(stored[place])}, in {where}"
            findings.add("decode" if is_decode else "cpu", text)
        if kind == "k":
            turned = placed & ~agreeing(stored, model.rotary(mine, first))
            for place in np.flatnonzero(turned)[:1]:
                token = int(first + place)
                text = f"layer {layer}: the cached k of token {token} is not rotated for position {token}"
                findings.add("values", text + self._turned(stored[place], mine[place], token))

    def _turned(self, stored: Array, mine: Array, token: int) -> str:
        """Return in words how the key of a token is wrongly rotated; "" if no near position explains it."""
        turn = self.replay.memory.model.rotary
        if agreeing(stored, mine):
            return ", but not at all"
        near = (other for other in (token + 1, token - 1) if other >= 0)
        return next((f", but for {it}" for it in near if agreeing(stored[None], turn(mine[None], it))[0]), "")

    def _check_flushed(self, findings: Findings, before: Before, table: list[int]) -> None:
        """Find wrong changes of the CPU cache: a decode flushes a full block, and changes nothing else."""
        size = self.replay.config.block_size
        full = before.position % size == size - 1
        block = before.position // size * size
        for layer in range(self.replay.config.num_layers):
            for kind in "kv":
                now = cpu_rows(self.replay, (kind, layer), before.table, range(before.offloaded))
                for token in np.flatnonzero(~same(now, before.cached[kind, layer]))[:1]:
                    findings.add(
                        "flush", f"layer {layer}: {kind} of token {token}, which was offloaded before, was overwritten"
                    )
                if full:
                    rows = range(before.offloaded % size, size)
                    tokens = range(block + rows.start, block + size)
                    arrived = cpu_rows(self.replay, (kind, layer), table, tokens)
                    right = agreeing(arrived, decode_rows(self.replay, (kind, layer), rows))
                    for place in np.flatnonzero(~right)[:1]:
                        where = f"row {rows[place]} of block {before.position // size} of the table"
                        findings.add(
                            "flush", f"layer {layer}: {kind} of token {tokens[place]} was not flushed to {where}"
                        )

    def _check_logits(self, findings: Findings, right: Array, masked: _Masked) -> None:
        held_row = self.replay.logits()
        if held_row is None or held_row.shape != right.shape:
            findings.undone.add("logits")
            findings.add("logits", "there are no logits in self.logits")
        elif np.isnan(held_row).any():
            findings.undone.add("logits")
            findings.add("logits", "self.logits holds garbage")
        elif not agreeing(held_row, right)[0]:
            is_masked = agreeing(held_row, masked.computed()[1])[0]
            of = f"those of attention with {masked.flag}" if is_masked else "not the model's"
            findings.add("logits", f"the logits are {of}")

    def host_span(self) -> RowSpan | None:
        """Return the rows that the host reads when a call returns."""
        number = self.replay.storage.get("logits")
        return None if number is None else RowSpan(number, 0, self.replay.device.buffers[number].rows)


def _loads(replay: Replay, log: Log) -> Iterator[tuple[StreamWork, tuple[int, int, str, range]]]:
    """Yield the copies from the CPU caches to the ring, each with its layer, buffer, "k" or "v", and CPU rows."""
    names = {number: name for name, number in [*replay.storage.items()][::-1]}
    for work in log.works:
        if work.call.name != "copy":
            continue
        to, of = work.call.writes[0], work.call.reads[0]
        source = names.get(of.buffer, "")
        if source in CPU and names.get(to.buffer) in RING and of.rows:
            layer, buffer = of.lo // replay.config.cpu_rows, to.lo // replay.config.max_seq_len
            yield work, (layer, buffer, source[0], range(of.lo, of.hi))


def loads_of(replay: Replay, log: Log, wanted: dict[int, list[int]]) -> tuple[list[Any], dict[str, Any]]:
    """Return which layer was loaded into which buffer, in order, and how many rows of its keys and values.

    `wanted` has for each layer the CPU rows to load, each once. If the loaded rows differ, a text replaces the number.
    """
    loads: dict[str, list[list[int]]] = {}
    rows: dict[str, list[int]] = {}
    for _, (layer, buffer, kind, places) in _loads(replay, log):
        of_kind = loads.setdefault(kind, [])
        if of_kind[-1:] != [[layer, buffer]]:
            of_kind.append([layer, buffer])
        rows.setdefault(f"{layer} {kind}", []).extend(places)
    shown: dict[str, Any] = {}
    for key, loaded in rows.items():
        right = wanted.get(int(key.split()[0]), [])
        if sorted(loaded) == sorted(right):
            shown[key] = len(loaded)
        else:
            missing = len(set(right) - set(loaded))
            shown[key] = f"{len(loaded)} rows" + (f", and {missing} of the right ones not" if missing else "")
    return max(loads.values(), key=len, default=[]), shown
