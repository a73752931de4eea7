"""KV cache offload, layer by layer."""

from collections import deque


class HybridKVCacheManager:
    """Hands out CPU blocks, first in, first out."""

    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1 or block_size < 1:
            raise ValueError("num_cpu_blocks and block_size must be at least 1")
        self.block_size = block_size
        self.free_cpu_blocks = deque(range(num_cpu_blocks))
        self.block_tables = {}
        self._length = {}
        self._offloaded = {}

    def _blocks_for(self, num_tokens):
        return (num_tokens + self.block_size - 1) // self.block_size

    def _check(self, seq_id):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError("a sequence has at least one token")
        if seq_id in self.block_tables:
            raise ValueError("this sequence is there already")
        needed = self._blocks_for(num_tokens)
        if needed > len(self.free_cpu_blocks):
            raise RuntimeError("not enough free CPU blocks")
        table = [self.free_cpu_blocks.popleft() for _ in range(needed)]
        self.block_tables[seq_id] = table
        self._length[seq_id] = num_tokens
        self._offloaded[seq_id] = 0
        return list(table)

    def _needs_block(self, seq_id):
        return self._length[seq_id] % self.block_size == 0

    def can_append(self, seq_id):
        self._check(seq_id)
        return not self._needs_block(seq_id) or len(self.free_cpu_blocks) > 0

    def may_append(self, seq_id):
        self._check(seq_id)
        block = -1
        if self._needs_block(seq_id):
            if not self.free_cpu_blocks:
                raise RuntimeError("no free CPU block")
            block = self.free_cpu_blocks.popleft()
            self.block_tables[seq_id].append(block)
        self._length[seq_id] += 1
        return block

    def mark_offloaded(self, seq_id, num_tokens):
        self._check(seq_id)
        if not self._offloaded[seq_id] <= num_tokens <= self._length[seq_id]:
            raise ValueError("the offloaded length only grows, up to the length")
        self._offloaded[seq_id] = num_tokens

    def deallocate(self, seq_id):
        self._check(seq_id)
        for block in reversed(self.block_tables.pop(seq_id)):
            self.free_cpu_blocks.append(block)
        del self._length[seq_id]
        del self._offloaded[seq_id]

    def get_all_cpu_blocks(self, seq_id):
        self._check(seq_id)
        return list(self.block_tables[seq_id])

    def get_prefilled_cpu_blocks(self, seq_id):
        self._check(seq_id)
        return self.block_tables[seq_id][: self._blocks_for(self._offloaded[seq_id])]

    def get_prefill_len(self, seq_id):
        self._check(seq_id)
        return self._offloaded[seq_id]

    def get_decode_start_pos(self, seq_id):
        self._check(seq_id)
        return self._offloaded[seq_id] % self.block_size


class OffloadEngine:
    """The caches. Loads run on one stream, all copies to the host on another."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = dev.stream("compute")
        self.load_stream = dev.stream("load")
        self.offload_stream = dev.stream("offload")

        width = cfg.kv_width
        host_rows = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(host_rows, width)
        self.v_cache_cpu = dev.alloc_pinned(host_rows, width)
        ring_rows = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(ring_rows, width, self.compute_stream)
        self.layer_v_cache = dev.alloc(ring_rows, width, self.compute_stream)
        decode_rows = cfg.num_layers * cfg.block_size
        self.decode_k_buffer = dev.alloc(decode_rows, width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(decode_rows, width, self.compute_stream)

        self._load_done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self._compute_done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        for event in self._compute_done:
            dev.record(event, self.compute_stream)  # the allocs are writes
        self._compute_so_far = dev.event()
        self._host_written = dev.event()

    def _cpu_row(self, layer_id, block, row):
        return (layer_id * self.cfg.num_cpu_blocks + block) * self.cfg.block_size + row

    def _offload_after_compute(self):
        self.dev.record(self._compute_so_far, self.compute_stream)
        self.dev.wait(self.offload_stream, self._compute_so_far)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        size = self.cfg.block_size
        if total_tokens < 1:
            raise ValueError("nothing to offload")
        if len(cpu_block_ids) * size < total_tokens:
            raise ValueError("too few blocks")
        self._offload_after_compute()
        for first in range(0, total_tokens, size):
            last = min(first + size, total_tokens)
            row = self._cpu_row(layer_id, cpu_block_ids[first // size], 0)
            for cache, src in ((self.k_cache_cpu, k), (self.v_cache_cpu, v)):
                self.dev.copy((cache, row, row + last - first), (src, first, last), self.offload_stream)
        self.dev.record(self._host_written, self.offload_stream)
        self.dev.record_stream(k, self.offload_stream)
        self.dev.record_stream(v, self.offload_stream)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        size = self.cfg.block_size
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise ValueError("valid_tokens is out of range")
        if len(cpu_block_table) * size < valid_tokens:
            raise ValueError("too few blocks")
        self.dev.wait(self.load_stream, self._compute_done[buffer_idx])
        self.dev.wait(self.load_stream, self._host_written)
        base = buffer_idx * self.cfg.max_seq_len
        for ring, cache in ((self.layer_k_cache, self.k_cache_cpu), (self.layer_v_cache, self.v_cache_cpu)):
            for first in range(0, valid_tokens, size):
                last = min(first + size, valid_tokens)
                row = self._cpu_row(layer_id, cpu_block_table[first // size], 0)
                self.dev.copy((ring, base + first, base + last), (cache, row, row + last - first), self.load_stream)
        self.dev.record(self._load_done[buffer_idx], self.load_stream)

    def wait_buffer_load(self, buffer_idx):
        self.dev.wait(self.compute_stream, self._load_done[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        lo = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, lo, lo + num_tokens), (self.layer_v_cache, lo, lo + num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self._compute_done[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if not 0 <= pos < self.cfg.block_size:
            raise ValueError("no such row of the decode buffer")
        k_row, v_row = self.get_decode_kv(layer_id, pos, pos + 1)
        self.dev.copy(k_row, k, self.compute_stream)
        self.dev.copy(v_row, v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        base = layer_id * self.cfg.block_size
        return (self.decode_k_buffer, base + start, base + end), (self.decode_v_buffer, base + start, base + end)

    def offload_decode_buffer(self, cpu_block, start):
        size = self.cfg.block_size
        if not 0 <= start < size:
            raise ValueError("no such row of the decode buffer")
        self._offload_after_compute()
        for layer in range(self.cfg.num_layers):
            lo, hi = self._cpu_row(layer, cpu_block, start), self._cpu_row(layer, cpu_block, size)
            k_rows, v_rows = self.get_decode_kv(layer, start, size)
            self.dev.copy((self.k_cache_cpu, lo, hi), k_rows, self.offload_stream)
            self.dev.copy((self.v_cache_cpu, lo, hi), v_rows, self.offload_stream)
        self.dev.record(self._host_written, self.offload_stream)
        self.dev.wait(self.compute_stream, self._host_written)  # the next store overwrites the rows


class ModelRunner:
    """Runs one sequence at a time."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self._running = {}  # at most one sequence, with its length

    # small helpers

    def _alloc(self, rows, width):
        return self.dev.alloc(rows, width, self.engine.compute_stream)

    def _free(self, *bufs):
        for buf in bufs:
            self.dev.free(buf)

    def _launch(self, kernel, **args):
        self.dev.launch(kernel, self.engine.compute_stream, **args)

    def _embed(self, tokens):
        x = self._alloc(len(tokens), self.cfg.hidden)
        self._launch("embed", tokens=tokens, out=x)
        return x

    def _qkv(self, layer, x, pos):
        cfg, rows = self.cfg, x.rows
        h = self._alloc(rows, cfg.hidden)
        q = self._alloc(rows, cfg.q_width)
        k = self._alloc(rows, cfg.kv_width)
        v = self._alloc(rows, cfg.kv_width)
        self._launch("rms_norm", x=x, out=h, layer=layer, which="attention")
        self._launch("q_proj", x=h, out=q, layer=layer)
        self._launch("k_proj", x=h, out=k, layer=layer)
        self._launch("v_proj", x=h, out=v, layer=layer)
        self._launch("rotary", x=q, pos=pos)
        self._launch("rotary", x=k, pos=pos)
        self._free(h)
        return q, k, v

    def _attention(self, q, k, v, causal):
        a = self._alloc(q.rows, self.cfg.q_width)
        self._launch("attention", q=q, k=k, v=v, out=a, causal=causal)
        return a

    def _rest_of_layer(self, layer, x, a):
        y = self._alloc(x.rows, self.cfg.hidden)
        self._launch("o_proj", x=a, out=y, layer=layer)
        self._launch("add", x=x, y=y, out=x)
        self._launch("rms_norm", x=x, out=y, layer=layer, which="mlp")
        self._launch("mlp", x=y, out=y, layer=layer)
        self._launch("add", x=x, y=y, out=x)
        self._free(y)

    def _finish_call(self, x):
        out = self._alloc(1, self.cfg.vocab)
        self._launch("logits", x=(x, x.rows - 1, x.rows), out=out)
        self.dev.copy(self.logits, out, self.engine.compute_stream)
        copied = self.dev.event()
        self.dev.record(copied, self.engine.compute_stream)
        self.dev.sync(copied)
        self._free(out, x)

    # the three methods

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self._running:
            raise RuntimeError("a sequence is running")
        tokens = list(token_ids)
        if not 1 <= len(tokens) <= self.cfg.max_seq_len:
            raise ValueError("the prompt is too short or too long")
        blocks = self.manager.allocate_cpu_only(seq_id, len(tokens))
        self._running[seq_id] = len(tokens)

        x = self._embed(tokens)
        for layer in range(self.cfg.num_layers):
            q, k, v = self._qkv(layer, x, 0)
            a = self._attention(q, k, v, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, blocks, len(tokens))
            self._free(k, v)
            self._rest_of_layer(layer, x, a)
            self._free(q, a)
        self.manager.mark_offloaded(seq_id, len(tokens))
        self._finish_call(x)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if seq_id not in self._running:
            raise KeyError(seq_id)
        p = self._running[seq_id]
        if p == self.cfg.max_seq_len:
            raise ValueError("the sequence is as long as it may be")
        self.manager.may_append(seq_id)
        self._running[seq_id] = p + 1

        cfg, engine = self.cfg, self.engine
        pos = p % cfg.block_size
        offloaded = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        table = self.manager.get_prefilled_cpu_blocks(seq_id)

        for layer in range(min(cfg.num_kv_buffers, cfg.num_layers)):
            engine.load_layer_kv_to_buffer(layer, layer, table, offloaded)

        x = self._embed([token_id])
        for layer in range(cfg.num_layers):
            buffer = layer % cfg.num_kv_buffers
            q, k, v = self._qkv(layer, x, p)
            engine.wait_buffer_load(buffer)
            ring_k, ring_v = engine.get_buffer_kv(buffer, offloaded)
            new_k, new_v = engine.get_decode_kv(layer, start, pos)
            a = self._attention(q, [ring_k, new_k, k], [ring_v, new_v, v], causal=True)
            engine.store_decode_kv(layer, pos, k, v)
            engine.record_buffer_compute_done(buffer)
            ahead = layer + cfg.num_kv_buffers
            if ahead < cfg.num_layers:
                engine.load_layer_kv_to_buffer(buffer, ahead, table, offloaded)
            self._rest_of_layer(layer, x, a)
            self._free(q, k, v, a)

        if pos == cfg.block_size - 1:
            engine.offload_decode_buffer(self.manager.get_all_cpu_blocks(seq_id)[-1], start)
            self.manager.mark_offloaded(seq_id, p + 1)
        self._finish_call(x)

    def finish(self, seq_id):
        if seq_id not in self._running:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        del self._running[seq_id]
