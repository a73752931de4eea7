"""Lab "offload": layer-wise CPU offload of the KV cache."""
from collections import deque


def ceil_div(a, b):
    return (a + b - 1) // b


class HybridKVCacheManager:

    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1:
            raise ValueError("num_cpu_blocks must be at least 1")
        if block_size < 1:
            raise ValueError("block_size must be at least 1")
        self.num_cpu_blocks = num_cpu_blocks
        self.block_size = block_size
        self.free_cpu_blocks = deque(range(num_cpu_blocks))
        self.block_tables = {}
        self.lengths = {}
        self.prefill_lens = {}

    def _check(self, seq_id):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError("a sequence has at least one token")
        if seq_id in self.block_tables:
            raise ValueError("sequence exists: %r" % (seq_id,))
        num_blocks = ceil_div(num_tokens, self.block_size)
        if num_blocks > len(self.free_cpu_blocks):
            raise RuntimeError("not enough CPU blocks")
        table = [self.free_cpu_blocks.popleft() for _ in range(num_blocks)]
        self.block_tables[seq_id] = table
        self.lengths[seq_id] = num_tokens
        self.prefill_lens[seq_id] = 0
        return list(table)

    def can_append(self, seq_id):
        self._check(seq_id)
        if self.lengths[seq_id] % self.block_size == 0:
            return len(self.free_cpu_blocks) > 0
        return True

    def may_append(self, seq_id):
        self._check(seq_id)
        if not self.can_append(seq_id):
            raise RuntimeError("no free CPU block")
        block = -1
        if self.lengths[seq_id] % self.block_size == 0:
            block = self.free_cpu_blocks.popleft()
            self.block_tables[seq_id].append(block)
        self.lengths[seq_id] += 1
        return block

    def mark_offloaded(self, seq_id, num_tokens):
        self._check(seq_id)
        if num_tokens < self.prefill_lens[seq_id] or num_tokens > self.lengths[seq_id]:
            raise ValueError("bad offloaded length %r" % (num_tokens,))
        self.prefill_lens[seq_id] = num_tokens

    def deallocate(self, seq_id):
        self._check(seq_id)
        table = self.block_tables.pop(seq_id)
        del self.lengths[seq_id]
        del self.prefill_lens[seq_id]
        for block in reversed(table):
            self.free_cpu_blocks.append(block)

    def get_all_cpu_blocks(self, seq_id):
        self._check(seq_id)
        return list(self.block_tables[seq_id])

    def get_prefilled_cpu_blocks(self, seq_id):
        self._check(seq_id)
        n = ceil_div(self.prefill_lens[seq_id], self.block_size)
        return self.block_tables[seq_id][:n]

    def get_prefill_len(self, seq_id):
        self._check(seq_id)
        return self.prefill_lens[seq_id]

    def get_decode_start_pos(self, seq_id):
        self._check(seq_id)
        return self.prefill_lens[seq_id] % self.block_size


class OffloadEngine:

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.block_size = cfg.block_size
        self.compute_stream = dev.stream("compute")
        self.load_stream = dev.stream("load")
        self.offload_stream = dev.stream("offload")

        cpu_rows = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(cpu_rows, cfg.kv_width)
        self.v_cache_cpu = dev.alloc_pinned(cpu_rows, cfg.kv_width)
        ring_rows = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(ring_rows, cfg.kv_width, self.compute_stream)
        self.layer_v_cache = dev.alloc(ring_rows, cfg.kv_width, self.compute_stream)
        decode_rows = cfg.num_layers * cfg.block_size
        self.decode_k_buffer = dev.alloc(decode_rows, cfg.kv_width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(decode_rows, cfg.kv_width, self.compute_stream)

        # events, one pair per ring buffer, recorded again and again
        self.load_done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.compute_done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        for event in self.compute_done:
            dev.record(event, self.compute_stream)      # the allocs of the ring
        self.compute_ready = dev.event()
        self.offload_done = dev.event()

    def _cpu_row(self, layer_id, block):
        return (layer_id * self.cfg.num_cpu_blocks + block) * self.block_size

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1:
            raise ValueError("nothing to offload")
        if len(cpu_block_ids) < ceil_div(total_tokens, self.block_size):
            raise ValueError("too few CPU blocks")
        dev = self.dev
        dev.record(self.compute_ready, self.compute_stream)
        dev.wait(self.offload_stream, self.compute_ready)
        for index, first in enumerate(range(0, total_tokens, self.block_size)):
            last = min(first + self.block_size, total_tokens)
            row = self._cpu_row(layer_id, cpu_block_ids[index])
            dst_rows = (row, row + last - first)
            dev.copy((self.k_cache_cpu,) + dst_rows, (k, first, last), self.offload_stream)
            dev.copy((self.v_cache_cpu,) + dst_rows, (v, first, last), self.offload_stream)
        dev.record_stream(k, self.offload_stream)
        dev.record_stream(v, self.offload_stream)
        dev.record(self.offload_done, self.offload_stream)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise ValueError("bad number of tokens")
        if len(cpu_block_table) < ceil_div(valid_tokens, self.block_size):
            raise ValueError("block table too short")
        dev = self.dev
        dev.wait(self.load_stream, self.compute_done[buffer_idx])
        dev.wait(self.load_stream, self.offload_done)
        base = buffer_idx * self.cfg.max_seq_len
        for index, first in enumerate(range(0, valid_tokens, self.block_size)):
            last = min(first + self.block_size, valid_tokens)
            row = self._cpu_row(layer_id, cpu_block_table[index])
            src_rows = (row, row + last - first)
            dst_rows = (base + first, base + last)
            dev.copy((self.layer_k_cache,) + dst_rows, (self.k_cache_cpu,) + src_rows, self.load_stream)
            dev.copy((self.layer_v_cache,) + dst_rows, (self.v_cache_cpu,) + src_rows, self.load_stream)
        dev.record(self.load_done[buffer_idx], self.load_stream)

    def wait_buffer_load(self, buffer_idx):
        self.dev.wait(self.compute_stream, self.load_done[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        base = buffer_idx * self.cfg.max_seq_len
        return ((self.layer_k_cache, base, base + num_tokens),
                (self.layer_v_cache, base, base + num_tokens))

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self.compute_done[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if not 0 <= pos < self.block_size:
            raise ValueError("bad decode position")
        row = layer_id * self.block_size + pos
        self.dev.copy((self.decode_k_buffer, row, row + 1), k, self.compute_stream)
        self.dev.copy((self.decode_v_buffer, row, row + 1), v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        base = layer_id * self.block_size
        return ((self.decode_k_buffer, base + start, base + end),
                (self.decode_v_buffer, base + start, base + end))

    def offload_decode_buffer(self, cpu_block, start):
        if not 0 <= start < self.block_size:
            raise ValueError("bad decode position")
        dev = self.dev
        dev.record(self.compute_ready, self.compute_stream)
        dev.wait(self.offload_stream, self.compute_ready)
        for layer_id in range(self.cfg.num_layers):
            k, v = self.get_decode_kv(layer_id, start, self.block_size)
            row = self._cpu_row(layer_id, cpu_block)
            dst_rows = (row + start, row + self.block_size)
            dev.copy((self.k_cache_cpu,) + dst_rows, k, self.offload_stream)
            dev.copy((self.v_cache_cpu,) + dst_rows, v, self.offload_stream)


class ModelRunner:

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.stream = self.engine.compute_stream
        self.is_running = False
        self.seq_id = None
        self.seq_len = 0

    # ---- pieces of a layer -------------------------------------------

    def _embed(self, tokens):
        x = self.dev.alloc(len(tokens), self.cfg.hidden, self.stream)
        self.dev.launch("embed", self.stream, tokens=list(tokens), out=x)
        return x

    def _qkv(self, x, layer, pos):
        dev, cfg, stream = self.dev, self.cfg, self.stream
        h = dev.alloc(x.rows, cfg.hidden, stream)
        q = dev.alloc(x.rows, cfg.q_width, stream)
        k = dev.alloc(x.rows, cfg.kv_width, stream)
        v = dev.alloc(x.rows, cfg.kv_width, stream)
        dev.launch("rms_norm", stream, x=x, out=h, layer=layer, which="attention")
        dev.launch("q_proj", stream, x=h, out=q, layer=layer)
        dev.launch("k_proj", stream, x=h, out=k, layer=layer)
        dev.launch("v_proj", stream, x=h, out=v, layer=layer)
        dev.launch("rotary", stream, x=q, pos=pos)
        dev.launch("rotary", stream, x=k, pos=pos)
        dev.free(h)
        return q, k, v

    def _rest_of_layer(self, x, a, layer):
        dev, cfg, stream = self.dev, self.cfg, self.stream
        h = dev.alloc(x.rows, cfg.hidden, stream)
        dev.launch("o_proj", stream, x=a, out=h, layer=layer)
        dev.launch("add", stream, x=x, y=h, out=x)
        dev.launch("rms_norm", stream, x=x, out=h, layer=layer, which="mlp")
        dev.launch("mlp", stream, x=h, out=h, layer=layer)
        dev.launch("add", stream, x=x, y=h, out=x)
        dev.free(h)

    def _logits(self, x):
        dev = self.dev
        out = dev.alloc(1, self.cfg.vocab, self.stream)
        dev.launch("logits", self.stream, x=(x, x.rows - 1, x.rows), out=out)
        dev.copy(self.logits, out, self.stream)
        dev.free(out)
        dev.sync(self.stream)

    # ---- the three calls ---------------------------------------------

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.is_running:
            raise RuntimeError("a sequence is running")
        n = len(token_ids)
        if not 1 <= n <= self.cfg.max_seq_len:
            raise ValueError("bad prompt length")
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.is_running = True
        self.seq_id = seq_id
        self.seq_len = n

        dev = self.dev
        x = self._embed(token_ids)
        for layer in range(self.cfg.num_layers):
            q, k, v = self._qkv(x, layer, 0)
            dev.launch("attention", self.stream, q=q, k=k, v=v, out=q, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, table, n)
            dev.free(k)
            dev.free(v)
            self._rest_of_layer(x, q, layer)
            dev.free(q)
        self.manager.mark_offloaded(seq_id, n)
        self._logits(x)
        dev.free(x)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if not self.is_running or seq_id != self.seq_id:
            raise KeyError(seq_id)
        if self.seq_len >= self.cfg.max_seq_len:
            raise ValueError("sequence is full")
        if not self.manager.can_append(seq_id):
            raise RuntimeError("no free CPU block")

        dev, cfg, engine, manager = self.dev, self.cfg, self.engine, self.manager
        p = self.seq_len
        pos = p % cfg.block_size
        manager.may_append(seq_id)
        self.seq_len += 1
        num_offloaded = manager.get_prefill_len(seq_id)
        start = manager.get_decode_start_pos(seq_id)
        prefilled = manager.get_prefilled_cpu_blocks(seq_id)

        for layer in range(min(cfg.num_kv_buffers, cfg.num_layers)):
            engine.load_layer_kv_to_buffer(layer, layer, prefilled, num_offloaded)
        x = self._embed([token_id])
        for layer in range(cfg.num_layers):
            buffer_idx = layer % cfg.num_kv_buffers
            q, k, v = self._qkv(x, layer, p)
            engine.wait_buffer_load(buffer_idx)
            ring_k, ring_v = engine.get_buffer_kv(buffer_idx, num_offloaded)
            dec_k, dec_v = engine.get_decode_kv(layer, start, pos)
            dev.launch("attention", self.stream, q=q, k=[ring_k, dec_k, k], v=[ring_v, dec_v, v],
                       out=q, causal=False)
            engine.record_buffer_compute_done(buffer_idx)
            next_layer = layer + cfg.num_kv_buffers
            if next_layer < cfg.num_layers:
                engine.load_layer_kv_to_buffer(buffer_idx, next_layer, prefilled, num_offloaded)
            engine.store_decode_kv(layer, pos, k, v)
            dev.free(k)
            dev.free(v)
            self._rest_of_layer(x, q, layer)
            dev.free(q)

        if pos == cfg.block_size - 1:
            engine.offload_decode_buffer(manager.get_all_cpu_blocks(seq_id)[-1], start)
            manager.mark_offloaded(seq_id, p + 1)
        self._logits(x)
        dev.free(x)

    def finish(self, seq_id):
        if not self.is_running or seq_id != self.seq_id:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.is_running = False
        self.seq_id = None
        self.seq_len = 0
