"""An engine's calls, made by the grader: the rows that it knows, and whether they lie where they must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from grader.labs.offload.dense import Array, rows_of_fill
from grader.labs.offload.device import CPU, DECODE, RING
from grader.labs.offload.replay import Log, Replay, agreeing, contents_of, held
from grader.labs.offload.sentences import Findings

_PARTS = {**dict.fromkeys(CPU, "cpu"), **dict.fromkeys(RING, "ring"), **dict.fromkeys(DECODE, "decode")}
_MOST_SHOWN = 3


@dataclass(slots=True)
class EngineCase:
    """What must lie in each buffer of the storage; garbage where nothing is known."""

    replay: Replay
    fills: int = 0
    """How many calls the driver filled rows for."""
    known: dict[str, Array] = field(default_factory=dict)
    touched: dict[str, list[int]] = field(default_factory=dict)
    """The rows that the last operation had to write."""

    def __post_init__(self) -> None:
        """Begin with garbage everywhere."""
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
        """The driver's rows go to blocks."""
        filled = self._filled(max(num_tokens, 1))
        if num_tokens < 1 or len(ids) * self.replay.config.block_size < num_tokens:
            return
        for name, rows in zip(CPU, filled, strict=True):
            self._put(name, self._places(layer, ids, num_tokens), rows)

    def load(self, buffer: int, layer: int, ids: Sequence[int], num_tokens: int) -> None:
        """Blocks go to the ring."""
        config = self.replay.config
        if not 1 <= num_tokens <= config.max_seq_len or len(ids) * config.block_size < num_tokens:
            return
        first, places = buffer * config.max_seq_len, self._places(layer, ids, num_tokens)
        for name, source in zip(RING, CPU, strict=True):
            self._put(name, [*range(first, first + num_tokens)], self.known[source][places])

    def store(self, layer: int, pos: int) -> None:
        """The driver's row goes to the decode buffers."""
        filled, size = self._filled(1), self.replay.config.block_size
        for name, rows in zip(DECODE, filled, strict=True):
            if 0 <= pos < size:
                self._put(name, [layer * size + pos], rows)

    def flush(self, block: int, start: int) -> None:
        """Rows of the decode buffers go to a block of every layer."""
        config = self.replay.config
        if not 0 <= start < config.block_size:
            return
        pairs = [(layer, row) for layer in range(config.num_layers) for row in range(start, config.block_size)]
        places = [config.cpu_row(layer, block, row) for layer, row in pairs]
        for name, source in zip(CPU, DECODE, strict=True):
            self._put(name, places, self.known[source][[layer * config.block_size + row for layer, row in pairs]])

    def follow(self, name: str, arguments: Sequence[object]) -> None:
        """Do an operation; one that touches no memory does nothing."""
        self.touched.clear()
        if name in ("offload", "load", "store", "flush"):
            getattr(self, name)(*arguments)

    def compare(self, findings: Findings, log: Log) -> bool:
        """Find what is known and does not lie there. Return whether a buffer that was to be written was not.

        Wrong rows become the right ones, so that each is reported once.
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
        """The CPU rows of tokens in some blocks."""
        config, size = self.replay.config, self.replay.config.block_size
        return [config.cpu_row(layer, ids[token // size], token % size) for token in range(tokens)]

    def _filled(self, rows: int) -> tuple[Array, Array]:
        """The rows that the driver filled for a call: keys and values."""
        self.fills += 1
        width = self.replay.config.kv_width
        return rows_of_fill(2 * self.fills - 1, rows, width), rows_of_fill(2 * self.fills, rows, width)

    def _place(self, name: str, row: int) -> str:
        """A row in the words of the handout."""
        config = self.replay.config
        if name in RING:
            return f"token {row % config.max_seq_len} in buffer {row // config.max_seq_len}"
        layer, rest = divmod(row, config.cpu_rows if name in CPU else config.block_size)
        block, rest = divmod(rest, config.block_size)
        where = f" of block {block}" if name in CPU else ""
        return f"row {rest}{where} of layer {layer}"
