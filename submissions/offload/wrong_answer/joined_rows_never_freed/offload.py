from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass
class SeqState:
    length: int
    offloaded: int = 0


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks: int, block_size: int) -> None:
        if num_cpu_blocks < 1:
            raise ValueError("num_cpu_blocks < 1")
        if block_size < 1:
            raise ValueError("block_size < 1")
        self.num_cpu_blocks = num_cpu_blocks
        self.block_size = block_size
        self.free_cpu_blocks: deque[int] = deque(range(num_cpu_blocks))
        self.block_tables: dict[Any, list[int]] = {}
        self.states: dict[Any, SeqState] = {}

    def allocate_cpu_only(self, seq_id: Any, num_tokens: int) -> list[int]:
        if num_tokens < 1:
            raise ValueError("num_tokens < 1")
        if seq_id in self.states:
            raise ValueError(f"sequence {seq_id!r} exists")
        n = ceil_div(num_tokens, self.block_size)
        if len(self.free_cpu_blocks) < n:
            raise RuntimeError("out of CPU blocks")
        self.block_tables[seq_id] = [self.free_cpu_blocks.popleft() for _ in range(n)]
        self.states[seq_id] = SeqState(num_tokens)
        return self.get_all_cpu_blocks(seq_id)

    def can_append(self, seq_id: Any) -> bool:
        state = self.states[seq_id]
        if state.length % self.block_size == 0:
            return bool(self.free_cpu_blocks)
        return True

    def may_append(self, seq_id: Any) -> int:
        state = self.states[seq_id]
        if state.length % self.block_size != 0:
            state.length += 1
            return -1
        if not self.free_cpu_blocks:
            raise RuntimeError("out of CPU blocks")
        state.length += 1
        block = self.free_cpu_blocks.popleft()
        self.block_tables[seq_id].append(block)
        return block

    def mark_offloaded(self, seq_id: Any, num_tokens: int) -> None:
        state = self.states[seq_id]
        if num_tokens < state.offloaded or num_tokens > state.length:
            raise ValueError("offloaded length out of range")
        state.offloaded = num_tokens

    def deallocate(self, seq_id: Any) -> None:
        del self.states[seq_id]
        self.free_cpu_blocks.extend(reversed(self.block_tables.pop(seq_id)))

    def get_all_cpu_blocks(self, seq_id: Any) -> list[int]:
        return list(self.block_tables[seq_id])

    def get_prefilled_cpu_blocks(self, seq_id: Any) -> list[int]:
        n = ceil_div(self.states[seq_id].offloaded, self.block_size)
        return list(self.block_tables[seq_id][:n])

    def get_prefill_len(self, seq_id: Any) -> int:
        return self.states[seq_id].offloaded

    def get_decode_start_pos(self, seq_id: Any) -> int:
        return self.states[seq_id].offloaded % self.block_size


class OffloadEngine:
    def __init__(self, dev, cfg) -> None:
        self.dev = dev
        self.cfg = cfg
        self.block_size = cfg.block_size
        self.max_seq_len = cfg.max_seq_len

        # streams: everything that computes, copies D2H, copies H2D of K, copies H2D of V
        self.compute_stream = dev.stream("compute")
        self.d2h = dev.stream("d2h")
        self.h2d_k = dev.stream("h2d k")
        self.h2d_v = dev.stream("h2d v")

        n_cpu = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        n_ring = cfg.num_kv_buffers * cfg.max_seq_len
        n_dec = cfg.num_layers * cfg.block_size
        self.k_cache_cpu, self.v_cache_cpu = (dev.alloc_pinned(n_cpu, cfg.kv_width) for _ in "kv")
        self.layer_k_cache, self.layer_v_cache = (dev.alloc(n_ring, cfg.kv_width, self.compute_stream) for _ in "kv")
        self.decode_k_buffer, self.decode_v_buffer = (dev.alloc(n_dec, cfg.kv_width, self.compute_stream) for _ in "kv")

        self.created = self._mark(self.compute_stream)
        self.last_d2h = None  # event behind the last copy to the host
        self.loaded = [None] * cfg.num_kv_buffers  # (event of K, event of V)
        self.released = [self.created] * cfg.num_kv_buffers

    def _mark(self, stream):
        event = self.dev.event()
        self.dev.record(event, stream)
        return event

    def _host_row(self, layer: int, block: int) -> int:
        return (layer * self.cfg.num_cpu_blocks + block) * self.block_size

    def _pieces(self, layer: int, blocks, total: int):
        """(first token, row in the CPU cache, number of tokens) for each block."""
        for i in range(ceil_div(total, self.block_size)):
            first = i * self.block_size
            yield first, self._host_row(layer, blocks[i]), min(self.block_size, total - first)

    # --- device to host -------------------------------------------------------------------------------------------

    def start_offload(self, layer_id, k, v, cpu_block_ids, total_tokens):
        """Enqueue the copies and return an event; k and v have to stay until then."""
        self.dev.wait(self.d2h, self._mark(self.compute_stream))
        for first, row, n in self._pieces(layer_id, cpu_block_ids, total_tokens):
            self.dev.copy((self.k_cache_cpu, row, row + n), (k, first, first + n), self.d2h)
            self.dev.copy((self.v_cache_cpu, row, row + n), (v, first, first + n), self.d2h)
        self.last_d2h = self._mark(self.d2h)
        return self.last_d2h

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens) -> None:
        if total_tokens < 1 or len(cpu_block_ids) < ceil_div(total_tokens, self.block_size):
            raise ValueError("nothing to copy, or too few blocks")
        copied = self.start_offload(layer_id, k, v, cpu_block_ids, total_tokens)
        self.dev.wait(self.compute_stream, copied)  # so that the free of the caller comes later

    def offload_decode_buffer(self, cpu_block, start) -> None:
        if start < 0 or start >= self.block_size:
            raise ValueError("start out of range")
        self.dev.wait(self.d2h, self._mark(self.compute_stream))
        for layer in range(self.cfg.num_layers):
            row = self._host_row(layer, cpu_block)
            dst = (row + start, row + self.block_size)
            src_k, src_v = self.get_decode_kv(layer, start, self.block_size)
            self.dev.copy((self.k_cache_cpu, *dst), src_k, self.d2h)
            self.dev.copy((self.v_cache_cpu, *dst), src_v, self.d2h)
        self.last_d2h = self._mark(self.d2h)
        self.dev.wait(self.compute_stream, self.last_d2h)

    # --- host to device -------------------------------------------------------------------------------------------

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens) -> None:
        if valid_tokens < 1 or valid_tokens > self.max_seq_len:
            raise ValueError("valid_tokens out of range")
        if len(cpu_block_table) < ceil_div(valid_tokens, self.block_size):
            raise ValueError("too few blocks")
        for stream in (self.h2d_k, self.h2d_v):
            self.dev.wait(stream, self.released[buffer_idx])
            if self.last_d2h is not None:
                self.dev.wait(stream, self.last_d2h)
        at = buffer_idx * self.max_seq_len
        for first, row, n in self._pieces(layer_id, cpu_block_table, valid_tokens):
            lo = at + first
            self.dev.copy((self.layer_k_cache, lo, lo + n), (self.k_cache_cpu, row, row + n), self.h2d_k)
            self.dev.copy((self.layer_v_cache, lo, lo + n), (self.v_cache_cpu, row, row + n), self.h2d_v)
        self.loaded[buffer_idx] = self._mark(self.h2d_k), self._mark(self.h2d_v)

    def wait_buffer_load(self, buffer_idx) -> None:
        for event in self.loaded[buffer_idx] or ():
            self.dev.wait(self.compute_stream, event)

    def get_buffer_kv(self, buffer_idx, num_tokens):
        lo = buffer_idx * self.max_seq_len
        hi = lo + num_tokens
        return (self.layer_k_cache, lo, hi), (self.layer_v_cache, lo, hi)

    def record_buffer_compute_done(self, buffer_idx) -> None:
        self.released[buffer_idx] = self._mark(self.compute_stream)

    # --- decode buffer --------------------------------------------------------------------------------------------

    def store_decode_kv(self, layer_id, pos, k, v) -> None:
        if pos < 0 or pos >= self.block_size:
            raise ValueError("pos out of range")
        dst_k, dst_v = self.get_decode_kv(layer_id, pos, pos + 1)
        self.dev.copy(dst_k, k, self.compute_stream)
        self.dev.copy(dst_v, v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        lo, hi = layer_id * self.block_size + start, layer_id * self.block_size + end
        return (self.decode_k_buffer, lo, hi), (self.decode_v_buffer, lo, hi)


class ModelRunner:
    def __init__(self, dev, cfg) -> None:
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.compute = self.engine.compute_stream
        self.is_running = False
        self.current = None
        self.length = 0

    def _project(self, x, layer, pos, h, q, k, v):
        dev, s = self.dev, self.compute
        dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="attention")
        for kernel, out in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
            dev.launch(kernel, s, x=h, out=out, layer=layer)
        for rotated in (q, k):
            dev.launch("rotary", s, x=rotated, pos=pos)

    def _after_attention(self, x, h, a, layer):
        """x += o_proj(a); x += mlp(norm(x)). h is scratch."""
        dev, s = self.dev, self.compute
        dev.launch("o_proj", s, x=a, out=h, layer=layer)
        dev.launch("add", s, x=x, y=h, out=x)
        dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="mlp")
        dev.launch("mlp", s, x=h, out=h, layer=layer)
        dev.launch("add", s, x=x, y=h, out=x)

    def _logits(self, last_row):
        out = self.dev.alloc(1, self.cfg.vocab, self.compute)
        self.dev.launch("logits", self.compute, x=last_row, out=out)
        self.dev.copy(self.logits, out, self.compute)
        self.dev.sync(self.compute)
        self.dev.free(out)

    def run_layerwise_offload_prefill(self, seq_id, token_ids) -> None:
        if self.is_running:
            raise RuntimeError(f"sequence {self.current!r} is running")
        n = len(token_ids)
        if n < 1 or n > self.cfg.max_seq_len:
            raise ValueError("length of the prompt")
        blocks = self.manager.allocate_cpu_only(seq_id, n)
        self.is_running, self.current, self.length = True, seq_id, n

        cfg, dev, s = self.cfg, self.dev, self.compute
        x, h = (dev.alloc(n, cfg.hidden, s) for _ in range(2))
        q, a = (dev.alloc(n, cfg.q_width, s) for _ in range(2))
        dev.launch("embed", s, tokens=list(token_ids), out=x)

        in_flight = deque()  # (k, v, event) of at most two layers

        def drop_oldest():
            k, v, copied = in_flight.popleft()
            dev.wait(s, copied)
            dev.free(k)
            dev.free(v)

        for layer in range(cfg.num_layers):
            if len(in_flight) == 2:
                drop_oldest()
            k, v = (dev.alloc(n, cfg.kv_width, s) for _ in range(2))
            self._project(x, layer, 0, h, q, k, v)
            dev.launch("attention", s, q=q, k=k, v=v, out=a, causal=True)
            in_flight.append((k, v, self.engine.start_offload(layer, k, v, blocks, n)))
            self._after_attention(x, h, a, layer)
        while in_flight:
            drop_oldest()

        self._logits((x, n - 1, n))
        for buf in (x, h, q, a):
            dev.free(buf)
        self.manager.mark_offloaded(seq_id, n)

    def run_layerwise_offload_decode(self, seq_id, token_id) -> None:
        if not self.is_running or seq_id != self.current:
            raise KeyError(seq_id)
        p = self.length
        if p >= self.cfg.max_seq_len:
            raise ValueError("max_seq_len reached")
        self.manager.may_append(seq_id)
        self.length += 1

        cfg, dev, s, engine, manager = self.cfg, self.dev, self.compute, self.engine, self.manager
        pos = p % cfg.block_size
        P = manager.get_prefill_len(seq_id)
        start = manager.get_decode_start_pos(seq_id)
        table = manager.get_all_cpu_blocks(seq_id)
        nbuf = cfg.num_kv_buffers

        for layer in range(min(nbuf, cfg.num_layers)):
            engine.load_layer_kv_to_buffer(layer % nbuf, layer, table, P)

        x, h = (dev.alloc(1, cfg.hidden, s) for _ in range(2))
        q, a = (dev.alloc(1, cfg.q_width, s) for _ in range(2))
        keys, values = (dev.alloc(p + 1, cfg.kv_width, s) for _ in range(2))
        k, v = (dev.alloc(1, cfg.kv_width, s) for _ in range(2))
        dev.launch("embed", s, tokens=[token_id], out=x)

        for layer in range(cfg.num_layers):
            i = layer % nbuf
            self._project(x, layer, p, h, q, k, v)
            engine.wait_buffer_load(i)
            ring = engine.get_buffer_kv(i, P)
            recent = engine.get_decode_kv(layer, start, pos)
            for joined, old, mid, new in zip((keys, values), ring, recent, (k, v)):
                dev.copy((joined, 0, P), old, s)
                dev.copy((joined, P, p), mid, s)
                dev.copy((joined, p, p + 1), new, s)
            engine.record_buffer_compute_done(i)  # the ring was read by the copies
            if layer + nbuf < cfg.num_layers:
                engine.load_layer_kv_to_buffer(i, layer + nbuf, table, P)
            engine.store_decode_kv(layer, pos, k, v)
            dev.launch("attention", s, q=q, k=keys, v=values, out=a, causal=False)
            self._after_attention(x, h, a, layer)

        if pos + 1 == cfg.block_size:
            engine.offload_decode_buffer(table[-1], start)
            manager.mark_offloaded(seq_id, p + 1)

        self._logits(x)
        for buf in (x, h, q, a, k, v):
            dev.free(buf)

    def finish(self, seq_id) -> None:
        if not self.is_running or seq_id != self.current:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.is_running = False
        self.current = None
