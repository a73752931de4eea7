"""offload lab"""
import math
import collections


class HybridKVCacheManager:

    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1 or block_size < 1:
            raise ValueError("need at least one block of one token")
        self.block_size = block_size
        self.free_cpu_blocks = collections.deque(range(num_cpu_blocks))
        self.block_tables = {}
        self.counts = {}        # id: [length, offloaded]

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError(num_tokens)
        if seq_id in self.block_tables:
            raise ValueError(seq_id)
        need = math.ceil(num_tokens / self.block_size)
        if need > len(self.free_cpu_blocks):
            raise RuntimeError("not enough blocks")
        self.block_tables[seq_id] = [self.free_cpu_blocks.popleft() for _ in range(need)]
        self.counts[seq_id] = [num_tokens, 0]
        return self.get_all_cpu_blocks(seq_id)

    def can_append(self, seq_id):
        length, _ = self.counts[seq_id]
        return bool(length % self.block_size or self.free_cpu_blocks)

    def may_append(self, seq_id):
        if not self.can_append(seq_id):
            raise RuntimeError("not enough blocks")
        counts = self.counts[seq_id]
        counts[0] += 1
        if (counts[0] - 1) % self.block_size:
            return -1
        block = self.free_cpu_blocks.popleft()
        self.block_tables[seq_id].append(block)
        return block

    def mark_offloaded(self, seq_id, num_tokens):
        length, offloaded = self.counts[seq_id]
        if not offloaded <= num_tokens <= length:
            raise ValueError(num_tokens)
        self.counts[seq_id][1] = num_tokens

    def deallocate(self, seq_id):
        table = self.block_tables.pop(seq_id)
        del self.counts[seq_id]
        self.free_cpu_blocks.extend(table[::-1])

    def get_all_cpu_blocks(self, seq_id):
        return list(self.block_tables[seq_id])

    def get_prefilled_cpu_blocks(self, seq_id):
        blocks = math.ceil(self.counts[seq_id][1] / self.block_size)
        return self.block_tables[seq_id][:blocks]

    def get_prefill_len(self, seq_id):
        return self.counts[seq_id][1]

    def get_decode_start_pos(self, seq_id):
        return self.counts[seq_id][1] % self.block_size


class OffloadEngine:

    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.compute_stream = dev.stream("main")
        self.h2d = dev.stream("h2d")
        self.d2h = dev.stream("d2h")
        cpu_rows = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        ring_rows = cfg.num_kv_buffers * cfg.max_seq_len
        decode_rows = cfg.num_layers * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(cpu_rows, cfg.kv_width)
        self.v_cache_cpu = dev.alloc_pinned(cpu_rows, cfg.kv_width)
        self.layer_k_cache = dev.alloc(ring_rows, cfg.kv_width, self.compute_stream)
        self.layer_v_cache = dev.alloc(ring_rows, cfg.kv_width, self.compute_stream)
        self.decode_k_buffer = dev.alloc(decode_rows, cfg.kv_width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(decode_rows, cfg.kv_width, self.compute_stream)
        self.loaded = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        for i in range(cfg.num_kv_buffers):
            self.record_buffer_compute_done(i)
        self.saved = dev.event()

    def _row(self, layer_id, table, token):
        block, row = table[token // self.cfg.block_size], token % self.cfg.block_size
        return (layer_id * self.cfg.num_cpu_blocks + block) * self.cfg.block_size + row

    def _save(self, jobs):
        """jobs: (cpu row, K range, V range); all of them after the work of the compute stream"""
        ready = self.dev.event()
        self.dev.record(ready, self.compute_stream)
        self.dev.wait(self.d2h, ready)
        for row, k, v in jobs:
            rows = k[2] - k[1]
            self.dev.copy((self.k_cache_cpu, row, row + rows), k, self.d2h)
            self.dev.copy((self.v_cache_cpu, row, row + rows), v, self.d2h)
        self.dev.record(self.saved, self.d2h)
        self.dev.wait(self.compute_stream, self.saved)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1 or len(cpu_block_ids) < math.ceil(total_tokens / self.cfg.block_size):
            raise ValueError(total_tokens)
        jobs = []
        for t in range(0, total_tokens, self.cfg.block_size):
            end = min(t + self.cfg.block_size, total_tokens)
            jobs.append((self._row(layer_id, cpu_block_ids, t), (k, t, end), (v, t, end)))
        self._save(jobs)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise ValueError(valid_tokens)
        if len(cpu_block_table) < math.ceil(valid_tokens / self.cfg.block_size):
            raise ValueError(cpu_block_table)
        self.dev.wait(self.h2d, self.done[buffer_idx])
        self.dev.wait(self.h2d, self.saved)
        for t in range(0, valid_tokens, self.cfg.block_size):
            n = min(self.cfg.block_size, valid_tokens - t)
            src = self._row(layer_id, cpu_block_table, t)
            dst = buffer_idx * self.cfg.max_seq_len + t
            self.dev.copy((self.layer_k_cache, dst, dst + n), (self.k_cache_cpu, src, src + n), self.h2d)
            self.dev.copy((self.layer_v_cache, dst, dst + n), (self.v_cache_cpu, src, src + n), self.h2d)
        self.dev.record(self.loaded[buffer_idx], self.h2d)

    def wait_buffer_load(self, buffer_idx):
        self.dev.wait(self.compute_stream, self.loaded[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        lo = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, lo, lo + num_tokens), (self.layer_v_cache, lo, lo + num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self.done[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if not 0 <= pos < self.cfg.block_size:
            raise ValueError(pos)
        to_k, to_v = self.get_decode_kv(layer_id, pos, pos + 1)
        self.dev.copy(to_k, k, self.compute_stream)
        self.dev.copy(to_v, v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        lo = layer_id * self.cfg.block_size
        return (self.decode_k_buffer, lo + start, lo + end), (self.decode_v_buffer, lo + start, lo + end)

    def offload_decode_buffer(self, cpu_block, start):
        if not 0 <= start < self.cfg.block_size:
            raise ValueError(start)
        self._save([(self._row(layer, [cpu_block], start),) + self.get_decode_kv(layer, start, self.cfg.block_size)
                    for layer in range(self.cfg.num_layers)])


class ModelRunner:

    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.active = {}        # id: length

    def new(self, rows, width):
        return self.dev.alloc(rows, width, self.engine.compute_stream)

    def do(self, kernel, **args):
        self.dev.launch(kernel, self.engine.compute_stream, **args)

    def project(self, x, layer, pos):
        h = self.new(x.rows, self.cfg.hidden)
        self.do("rms_norm", x=x, out=h, layer=layer, which="attention")
        result = []
        for kernel, width in ("q_proj", self.cfg.q_width), ("k_proj", self.cfg.kv_width), ("v_proj", self.cfg.kv_width):
            out = self.new(x.rows, width)
            self.do(kernel, x=h, out=out, layer=layer)
            if kernel != "v_proj":
                self.do("rotary", x=out, pos=pos)
            result.append(out)
        self.dev.free(h)
        return result

    def after_attention(self, x, a, layer):
        h = self.new(x.rows, self.cfg.hidden)
        self.do("o_proj", x=a, out=h, layer=layer)
        self.dev.free(a)
        self.do("add", x=x, y=h, out=x)
        self.do("rms_norm", x=x, out=h, layer=layer, which="mlp")
        self.do("mlp", x=h, out=h, layer=layer)
        self.do("add", x=x, y=h, out=x)
        self.dev.free(h)

    def output(self, x):
        out = self.new(1, self.cfg.vocab)
        self.do("logits", x=(x, x.rows - 1, x.rows), out=out)
        self.dev.copy(self.logits, out, self.engine.compute_stream)
        self.dev.free(out)
        self.dev.free(x)
        self.dev.sync(self.engine.compute_stream)

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.active:
            raise RuntimeError("a sequence is running")
        n = len(token_ids)
        if n < 1 or n > self.cfg.max_seq_len:
            raise ValueError(n)
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.active[seq_id] = n
        x = self.new(n, self.cfg.hidden)
        self.do("embed", tokens=list(token_ids), out=x)
        caches = []
        for layer in range(self.cfg.num_layers):
            q, k, v = self.project(x, layer, 0)
            self.do("attention", q=q, k=k, v=v, out=q, causal=True)
            self.after_attention(x, q, layer)
            caches.append((k, v))
        for layer, (k, v) in enumerate(caches):
            self.engine.offload_layer_kv_to_cpu(layer, k, v, table, n)
            self.dev.free(k)
            self.dev.free(v)
        self.manager.mark_offloaded(seq_id, n)
        self.output(x)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        p = self.active[seq_id]
        if p == self.cfg.max_seq_len:
            raise ValueError(p)
        self.manager.may_append(seq_id)
        self.active[seq_id] = p + 1
        cfg, engine, manager = self.cfg, self.engine, self.manager
        pos = p % cfg.block_size
        offloaded, start = manager.get_prefill_len(seq_id), manager.get_decode_start_pos(seq_id)
        table = manager.get_prefilled_cpu_blocks(seq_id)
        for layer in range(min(cfg.num_layers, cfg.num_kv_buffers)):
            engine.load_layer_kv_to_buffer(layer, layer, table, offloaded)
        x = self.new(1, cfg.hidden)
        self.do("embed", tokens=[token_id], out=x)
        for layer in range(cfg.num_layers):
            i = layer % cfg.num_kv_buffers
            q, k, v = self.project(x, layer, p)
            engine.store_decode_kv(layer, pos, k, v)
            self.dev.free(k)
            self.dev.free(v)
            engine.wait_buffer_load(i)
            k0, v0 = engine.get_buffer_kv(i, offloaded)
            k1, v1 = engine.get_decode_kv(layer, start, pos + 1)
            self.do("attention", q=q, k=[k0, k1], v=[v0, v1], out=q, causal=False)
            engine.record_buffer_compute_done(i)
            if layer + cfg.num_kv_buffers < cfg.num_layers:
                engine.load_layer_kv_to_buffer(i, layer + cfg.num_kv_buffers, table, offloaded)
            self.after_attention(x, q, layer)
        if pos == cfg.block_size - 1:
            engine.offload_decode_buffer(manager.get_all_cpu_blocks(seq_id)[-1], start)
            manager.mark_offloaded(seq_id, p + 1)
        self.output(x)

    def finish(self, seq_id):
        del self.active[seq_id]
        self.manager.deallocate(seq_id)
