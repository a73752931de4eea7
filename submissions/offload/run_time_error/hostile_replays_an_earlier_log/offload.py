"""Offload of a KV cache where the host does most of the waiting. One stream beside the computing."""

from collections import deque


def blocks_for(tokens, block_size):
    return -(-tokens // block_size)


class HybridKVCacheManager:
    """Counts the blocks of the host."""

    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1:
            raise ValueError("num_cpu_blocks")
        if block_size < 1:
            raise ValueError("block_size")
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
            raise ValueError(f"{seq_id!r} is there")
        need = blocks_for(num_tokens, self.block_size)
        if need > len(self.free_cpu_blocks):
            raise RuntimeError("out of CPU blocks")
        table = [self.free_cpu_blocks.popleft() for _ in range(need)]
        self.block_tables[seq_id] = table
        self.lengths[seq_id] = num_tokens
        self.prefill_lens[seq_id] = 0
        return list(table)

    def _needs_block(self, seq_id):
        return self.lengths[seq_id] % self.block_size == 0

    def can_append(self, seq_id):
        self._check(seq_id)
        return not self._needs_block(seq_id) or len(self.free_cpu_blocks) > 0

    def may_append(self, seq_id):
        self._check(seq_id)
        block = -1
        if self._needs_block(seq_id):
            if not self.free_cpu_blocks:
                raise RuntimeError("out of CPU blocks")
            block = self.free_cpu_blocks.popleft()
            self.block_tables[seq_id].append(block)
        self.lengths[seq_id] += 1
        return block

    def mark_offloaded(self, seq_id, num_tokens):
        self._check(seq_id)
        if not self.prefill_lens[seq_id] <= num_tokens <= self.lengths[seq_id]:
            raise ValueError("num_tokens")
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
        return self.block_tables[seq_id][: blocks_for(self.prefill_lens[seq_id], self.block_size)]

    def get_prefill_len(self, seq_id):
        self._check(seq_id)
        return self.prefill_lens[seq_id]

    def get_decode_start_pos(self, seq_id):
        self._check(seq_id)
        return self.prefill_lens[seq_id] % self.block_size


class OffloadEngine:
    """Storage and copies."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = dev.stream("compute")
        self.copy_stream = dev.stream("copy")
        host_rows = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(host_rows, cfg.kv_width)
        self.v_cache_cpu = dev.alloc_pinned(host_rows, cfg.kv_width)
        ring_rows = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(ring_rows, cfg.kv_width, self.compute_stream)
        self.layer_v_cache = dev.alloc(ring_rows, cfg.kv_width, self.compute_stream)
        decode_rows = cfg.num_layers * cfg.block_size
        self.decode_k_buffer = dev.alloc(decode_rows, cfg.kv_width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(decode_rows, cfg.kv_width, self.compute_stream)
        self.loaded = [dev.event() for _ in range(cfg.num_kv_buffers)]
        dev.sync(self.compute_stream)

    def _host_row(self, layer, block, row):
        return (layer * self.cfg.num_cpu_blocks + block) * self.cfg.block_size + row

    def _pieces(self, layer, table, tokens):
        """First token, first row on the host and number of rows of each block."""
        size = self.cfg.block_size
        for n in range(blocks_for(tokens, size)):
            first = n * size
            yield first, self._host_row(layer, table[n], 0), min(size, tokens - first)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1 or len(cpu_block_ids) < blocks_for(total_tokens, self.cfg.block_size):
            raise ValueError("offload")
        dev = self.dev
        dev.sync(self.compute_stream)
        for first, row, n in self._pieces(layer_id, cpu_block_ids, total_tokens):
            dev.copy((self.k_cache_cpu, row, row + n), (k, first, first + n), self.copy_stream)
            dev.copy((self.v_cache_cpu, row, row + n), (v, first, first + n), self.copy_stream)
        dev.sync(self.copy_stream)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise ValueError("valid_tokens")
        if len(cpu_block_table) < blocks_for(valid_tokens, self.cfg.block_size):
            raise ValueError("table")
        dev = self.dev
        base = buffer_idx * self.cfg.max_seq_len
        for first, row, n in self._pieces(layer_id, cpu_block_table, valid_tokens):
            to = base + first
            dev.copy((self.layer_k_cache, to, to + n), (self.k_cache_cpu, row, row + n), self.copy_stream)
            dev.copy((self.layer_v_cache, to, to + n), (self.v_cache_cpu, row, row + n), self.copy_stream)
        dev.record(self.loaded[buffer_idx], self.copy_stream)

    def wait_buffer_load(self, buffer_idx):
        self.dev.sync(self.loaded[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        lo = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, lo, lo + num_tokens), (self.layer_v_cache, lo, lo + num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.sync(self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if not 0 <= pos < self.cfg.block_size:
            raise ValueError("pos")
        row = layer_id * self.cfg.block_size + pos
        self.dev.copy((self.decode_k_buffer, row, row + 1), k, self.compute_stream)
        self.dev.copy((self.decode_v_buffer, row, row + 1), v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        base = layer_id * self.cfg.block_size
        return (self.decode_k_buffer, base + start, base + end), (self.decode_v_buffer, base + start, base + end)

    def offload_decode_buffer(self, cpu_block, start):
        if not 0 <= start < self.cfg.block_size:
            raise ValueError("start")
        dev = self.dev
        dev.sync(self.compute_stream)
        for layer in range(self.cfg.num_layers):
            k, v = self.get_decode_kv(layer, start, self.cfg.block_size)
            lo = self._host_row(layer, cpu_block, start)
            hi = self._host_row(layer, cpu_block, self.cfg.block_size)
            dev.copy((self.k_cache_cpu, lo, hi), k, self.copy_stream)
            dev.copy((self.v_cache_cpu, lo, hi), v, self.copy_stream)
        dev.sync(self.copy_stream)


class ModelRunner:
    """One sequence at a time."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.running = []  # the id, if a sequence is running
        self.length = 0
        self.replayed = None

    def _new(self, rows, width):
        return self.dev.alloc(rows, width, self.engine.compute_stream)

    def _run(self, kernel, **args):
        self.dev.launch(kernel, self.engine.compute_stream, **args)

    def _qkv(self, x, layer, pos):
        cfg = self.cfg
        h = self._new(x.rows, cfg.hidden)
        q = self._new(x.rows, cfg.q_width)
        k = self._new(x.rows, cfg.kv_width)
        v = self._new(x.rows, cfg.kv_width)
        self._run("rms_norm", x=x, out=h, layer=layer, which="attention")
        self._run("q_proj", x=h, out=q, layer=layer)
        self._run("k_proj", x=h, out=k, layer=layer)
        self._run("v_proj", x=h, out=v, layer=layer)
        self._run("rotary", x=q, pos=pos)
        self._run("rotary", x=k, pos=pos)
        self.dev.free(h)
        return q, k, v

    def _after_attention(self, x, a, layer):
        cfg = self.cfg
        o = self._new(x.rows, cfg.hidden)
        h = self._new(x.rows, cfg.hidden)
        m = self._new(x.rows, cfg.hidden)
        self._run("o_proj", x=a, out=o, layer=layer)
        self._run("add", x=x, y=o, out=x)
        self._run("rms_norm", x=x, out=h, layer=layer, which="mlp")
        self._run("mlp", x=h, out=m, layer=layer)
        self._run("add", x=x, y=m, out=x)
        for buf in (o, h, m):
            self.dev.free(buf)

    def _finish_logits(self, x):
        out = self._new(1, self.cfg.vocab)
        self._run("logits", x=(x, x.rows - 1, x.rows), out=out)
        self.dev.copy(self.logits, out, self.engine.compute_stream)
        self.dev.sync(self.engine.compute_stream)
        self.dev.free(out)
        self.dev.free(x)

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.running:
            raise RuntimeError("a sequence is running")
        count = len(token_ids)
        if not 1 <= count <= self.cfg.max_seq_len:
            raise ValueError("length of the prompt")
        table = self.manager.allocate_cpu_only(seq_id, count)
        x = self._new(count, self.cfg.hidden)
        self._run("embed", tokens=list(token_ids), out=x)
        for layer in range(self.cfg.num_layers):
            q, k, v = self._qkv(x, layer, 0)
            a = self._new(count, self.cfg.q_width)
            self._run("attention", q=q, k=k, v=v, out=a, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, table, count)
            self.dev.free(k)
            self.dev.free(v)
            self.dev.free(q)
            self._after_attention(x, a, layer)
            self.dev.free(a)
        self._finish_logits(x)
        self.manager.mark_offloaded(seq_id, count)
        self.running = [seq_id]
        self.length = count

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if seq_id not in self.running:
            raise KeyError(seq_id)
        if self.replayed is not None:
            self.manager.may_append(seq_id)
            self.length += 1
            self.dev._log.extend(self.replayed)
            return None
        begin = len(self.dev._log)
        if self.length >= self.cfg.max_seq_len:
            raise ValueError("the sequence is full")
        if not self.manager.can_append(seq_id):
            raise RuntimeError("out of CPU blocks")
        cfg, engine = self.cfg, self.engine
        p = self.length
        pos = p % cfg.block_size
        offloaded = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        self.manager.may_append(seq_id)
        self.length += 1
        table = self.manager.get_prefilled_cpu_blocks(seq_id)
        for layer in range(min(cfg.num_kv_buffers, cfg.num_layers)):
            engine.load_layer_kv_to_buffer(layer, layer, table, offloaded)
        x = self._new(1, cfg.hidden)
        self._run("embed", tokens=[token_id], out=x)
        for layer in range(cfg.num_layers):
            buffer = layer % cfg.num_kv_buffers
            q, k, v = self._qkv(x, layer, p)
            engine.wait_buffer_load(buffer)
            ring_k, ring_v = engine.get_buffer_kv(buffer, offloaded)
            old_k, old_v = engine.get_decode_kv(layer, start, pos)
            a = self._new(1, cfg.q_width)
            self._run("attention", q=q, k=[ring_k, old_k, k], v=[ring_v, old_v, v], out=a, causal=False)
            engine.store_decode_kv(layer, pos, k, v)
            self.dev.free(k)
            self.dev.free(v)
            self.dev.free(q)
            engine.record_buffer_compute_done(buffer)
            following = layer + cfg.num_kv_buffers
            if following < cfg.num_layers:
                engine.load_layer_kv_to_buffer(buffer, following, table, offloaded)
            self._after_attention(x, a, layer)
            self.dev.free(a)
        if pos == cfg.block_size - 1:
            engine.offload_decode_buffer(self.manager.get_all_cpu_blocks(seq_id)[-1], start)
            self.manager.mark_offloaded(seq_id, p + 1)
        self._finish_logits(x)
        self.replayed = self.dev._log[begin:]

    def finish(self, seq_id):
        if seq_id not in self.running:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.running = []
        self.length = 0
