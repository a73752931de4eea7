"""Part 2: the caches, and the copies between them.

There are two streams: all computing is on one, all copies between host and device are on the other. Offloaded and
flushed rows have arrived when the call returns, because the host waits for them. The compute stream waits for the loads
that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference.oracle import Refused

Range = tuple[Any, int, int]
"""Rows of a buffer: the buffer, the first row, and the row after the last."""


class OffloadEngine:
    """The storage, and the calls that move rows between its parts."""

    def __init__(self, dev: Any, cfg: Any) -> None:
        self.dev, self.cfg = dev, cfg
        self.compute_stream, self.copy_stream = dev.stream("compute"), dev.stream("copy")
        rows = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu, self.v_cache_cpu = (dev.alloc_pinned(rows, cfg.kv_width) for _ in "kv")
        rows = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache, self.layer_v_cache = (dev.alloc(rows, cfg.kv_width, self.compute_stream) for _ in "kv")
        rows = cfg.num_layers * cfg.block_size
        self.decode_k_buffer, self.decode_v_buffer = (dev.alloc(rows, cfg.kv_width, self.compute_stream) for _ in "kv")
        self.loaded = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.compute_done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.ready = dev.event()  # recorded on compute_stream before a copy to the CPU caches, which waits for it
        self.arrived = dev.event()  # recorded on copy_stream after such copies; the host waits for it
        for event in self.compute_done:  # so that the first load of each buffer waits for the allocs
            dev.record(event, self.compute_stream)

    def offload_layer_kv_to_cpu(
        self, layer_id: int, k: Any, v: Any, cpu_block_ids: Sequence[int], total_tokens: int
    ) -> None:
        """Copy the keys and values of a layer to the CPU blocks of its tokens."""
        if total_tokens < 1:
            raise Refused("ValueError", "Part 2/offload-refused")
        if len(cpu_block_ids) < self._blocks(total_tokens):
            raise Refused("ValueError", "Part 2/offload-refused")
        self._begin_after_compute()
        for token in range(0, total_tokens, self.cfg.block_size):
            rows = min(self.cfg.block_size, total_tokens - token)
            row = self._cpu_row(layer_id, cpu_block_ids[token // self.cfg.block_size])
            self._copy((self.k_cache_cpu, row), (k, token), rows)
            self._copy((self.v_cache_cpu, row), (v, token), rows)
        self._wait_until_arrived()

    def load_layer_kv_to_buffer(
        self, buffer_idx: int, layer_id: int, cpu_block_table: Sequence[int], valid_tokens: int
    ) -> None:
        """Copy the first `valid_tokens` tokens of a layer to a buffer of the ring, after the buffer's last reader."""
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise Refused("ValueError", "Part 2/load-refused")
        if len(cpu_block_table) < self._blocks(valid_tokens):
            raise Refused("ValueError", "Part 2/load-refused")
        self.dev.wait(self.copy_stream, self.compute_done[buffer_idx])
        for token in range(0, valid_tokens, self.cfg.block_size):
            rows = min(self.cfg.block_size, valid_tokens - token)
            row = self._cpu_row(layer_id, cpu_block_table[token // self.cfg.block_size])
            place = buffer_idx * self.cfg.max_seq_len + token
            self._copy((self.layer_k_cache, place), (self.k_cache_cpu, row), rows)
            self._copy((self.layer_v_cache, place), (self.v_cache_cpu, row), rows)
        self.dev.record(self.loaded[buffer_idx], self.copy_stream)

    def wait_buffer_load(self, buffer_idx: int) -> None:
        """Make later computing wait for the last load of a buffer."""
        self.dev.wait(self.compute_stream, self.loaded[buffer_idx])

    def get_buffer_kv(self, buffer_idx: int, num_tokens: int) -> tuple[Range, Range]:
        """Return the first `num_tokens` rows of a buffer: keys and values."""
        first = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, first, first + num_tokens), (self.layer_v_cache, first, first + num_tokens)

    def record_buffer_compute_done(self, buffer_idx: int) -> None:
        """Record that the computing launched so far is all that reads a buffer: the next load waits for it."""
        self.dev.record(self.compute_done[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id: int, pos: int, k: Any, v: Any) -> None:
        """Put the keys and values of a new token into the decode buffers."""
        if not 0 <= pos < self.cfg.block_size:
            raise Refused("ValueError", "Part 2/store-refused")
        (keys, row, _), (values, _, _) = self.get_decode_kv(layer_id, pos, pos + 1)
        self.dev.copy((keys, row, row + 1), k, self.compute_stream)
        self.dev.copy((values, row, row + 1), v, self.compute_stream)

    def get_decode_kv(self, layer_id: int, start: int, end: int) -> tuple[Range, Range]:
        """Return rows `start` to `end` - 1 of a layer's decode buffers: keys and values."""
        first = layer_id * self.cfg.block_size
        return (self.decode_k_buffer, first + start, first + end), (self.decode_v_buffer, first + start, first + end)

    def offload_decode_buffer(self, cpu_block: int, start: int) -> None:
        """Copy the decode buffers of all layers, from row `start` on, to the same rows of a CPU block."""
        if not 0 <= start < self.cfg.block_size:
            raise Refused("ValueError", "Part 2/flush-refused")
        self._begin_after_compute()
        rows = self.cfg.block_size - start
        for layer in range(self.cfg.num_layers):
            row = self._cpu_row(layer, cpu_block) + start
            self._copy((self.k_cache_cpu, row), (self.decode_k_buffer, layer * self.cfg.block_size + start), rows)
            self._copy((self.v_cache_cpu, row), (self.decode_v_buffer, layer * self.cfg.block_size + start), rows)
        self._wait_until_arrived()

    def _blocks(self, tokens: int) -> int:
        blocks: int = -(-tokens // self.cfg.block_size)
        return blocks

    def _cpu_row(self, layer: int, block: int) -> int:
        """Return the first row of a layer's part of a block in the CPU caches."""
        row: int = (layer * self.cfg.num_cpu_blocks + block) * self.cfg.block_size
        return row

    def _copy(self, to: tuple[Any, int], of: tuple[Any, int], rows: int) -> None:
        """Copy `rows` rows; `to` and `of` are each a buffer and its first row."""
        self.dev.copy((to[0], to[1], to[1] + rows), (of[0], of[1], of[1] + rows), self.copy_stream)

    def _begin_after_compute(self) -> None:
        self.dev.record(self.ready, self.compute_stream)
        self.dev.wait(self.copy_stream, self.ready)

    def _wait_until_arrived(self) -> None:
        self.dev.record(self.arrived, self.copy_stream)
        self.dev.sync(self.arrived)
