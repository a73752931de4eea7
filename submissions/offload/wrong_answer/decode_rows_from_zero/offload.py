import math


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if min(num_cpu_blocks, block_size) < 1:
            raise ValueError
        self.block_size = block_size
        self.free_cpu_blocks = list(range(num_cpu_blocks))
        self.block_tables = {}
        self.lengths = {}
        self.prefill_lens = {}

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1 or seq_id in self.block_tables:
            raise ValueError
        count = math.ceil(num_tokens / self.block_size)
        if count > len(self.free_cpu_blocks):
            raise RuntimeError
        self.block_tables[seq_id] = self.free_cpu_blocks[:count]
        self.free_cpu_blocks = self.free_cpu_blocks[count:]
        self.lengths[seq_id] = num_tokens
        self.prefill_lens[seq_id] = 0
        return self.block_tables[seq_id].copy()

    def can_append(self, seq_id):
        return self.lengths[seq_id] % self.block_size != 0 or len(self.free_cpu_blocks) >= 1

    def may_append(self, seq_id):
        if not self.can_append(seq_id):
            raise RuntimeError
        new = -1
        if self.lengths[seq_id] % self.block_size == 0:
            new = self.free_cpu_blocks.pop(0)
            self.block_tables[seq_id].append(new)
        self.lengths[seq_id] += 1
        return new

    def mark_offloaded(self, seq_id, num_tokens):
        if not (self.prefill_lens[seq_id] <= num_tokens <= self.lengths[seq_id]):
            raise ValueError
        self.prefill_lens[seq_id] = num_tokens

    def deallocate(self, seq_id):
        table = self.block_tables.pop(seq_id)
        self.lengths.pop(seq_id)
        self.prefill_lens.pop(seq_id)
        self.free_cpu_blocks += table[::-1]

    def get_all_cpu_blocks(self, seq_id):
        return self.block_tables[seq_id].copy()

    def get_prefilled_cpu_blocks(self, seq_id):
        count = math.ceil(self.prefill_lens[seq_id] / self.block_size)
        return self.block_tables[seq_id][:count]

    def get_prefill_len(self, seq_id):
        return self.prefill_lens[seq_id]

    def get_decode_start_pos(self, seq_id):
        return self.prefill_lens[seq_id] % self.block_size


class OffloadEngine:
    """Copies to the host are waited for by the host. Copies to the ring run on their own stream."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = dev.stream("compute")
        self.copy_stream = dev.stream("copy")
        rows = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(rows, cfg.kv_width)
        self.v_cache_cpu = dev.alloc_pinned(rows, cfg.kv_width)
        rows = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(rows, cfg.kv_width, self.compute_stream)
        self.layer_v_cache = dev.alloc(rows, cfg.kv_width, self.compute_stream)
        rows = cfg.num_layers * cfg.block_size
        self.decode_k_buffer = dev.alloc(rows, cfg.kv_width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(rows, cfg.kv_width, self.compute_stream)
        self.ready = dev.event()
        dev.record(self.ready, self.compute_stream)
        self.load_events = {}
        self.done_events = {}

    def runs(self, layer_id, table, tokens):
        """Yield (token, row in the CPU cache, count) for runs of neighbouring blocks."""
        bs = self.cfg.block_size
        layer_base = layer_id * self.cfg.num_cpu_blocks * bs
        t = 0
        while t < tokens:
            first = t // bs
            last = first
            while (last + 1) * bs < tokens and table[last + 1] == table[last] + 1:
                last += 1
            count = min((last + 1) * bs, tokens) - t
            yield t, layer_base + table[first] * bs, count
            t += count

    def copy_to_host(self, pairs):
        # on the compute stream, so it is behind everything that wrote the rows
        for dst, src in pairs:
            self.dev.copy(dst, src, self.compute_stream)
        self.dev.sync(self.compute_stream)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1:
            raise ValueError
        if len(cpu_block_ids) < math.ceil(total_tokens / self.cfg.block_size):
            raise ValueError
        pairs = []
        for t, row, count in self.runs(layer_id, cpu_block_ids, total_tokens):
            pairs.append(((self.k_cache_cpu, row, row + count), (k, t, t + count)))
            pairs.append(((self.v_cache_cpu, row, row + count), (v, t, t + count)))
        self.copy_to_host(pairs)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if not (1 <= valid_tokens <= self.cfg.max_seq_len):
            raise ValueError
        if len(cpu_block_table) < math.ceil(valid_tokens / self.cfg.block_size):
            raise ValueError
        self.dev.wait(self.copy_stream, self.done_events.get(buffer_idx, self.ready))
        offset = buffer_idx * self.cfg.max_seq_len
        for t, row, count in self.runs(layer_id, cpu_block_table, valid_tokens):
            to = offset + t
            self.dev.copy((self.layer_k_cache, to, to + count), (self.k_cache_cpu, row, row + count), self.copy_stream)
            self.dev.copy((self.layer_v_cache, to, to + count), (self.v_cache_cpu, row, row + count), self.copy_stream)
        if buffer_idx not in self.load_events:
            self.load_events[buffer_idx] = self.dev.event()
        self.dev.record(self.load_events[buffer_idx], self.copy_stream)

    def wait_buffer_load(self, buffer_idx):
        if buffer_idx in self.load_events:
            self.dev.wait(self.compute_stream, self.load_events[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        a = buffer_idx * self.cfg.max_seq_len
        b = a + num_tokens
        return (self.layer_k_cache, a, b), (self.layer_v_cache, a, b)

    def record_buffer_compute_done(self, buffer_idx):
        if buffer_idx not in self.done_events:
            self.done_events[buffer_idx] = self.dev.event()
        self.dev.record(self.done_events[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if not (0 <= pos < self.cfg.block_size):
            raise ValueError
        row = layer_id * self.cfg.block_size + pos
        self.dev.copy((self.decode_k_buffer, row, row + 1), k, self.compute_stream)
        self.dev.copy((self.decode_v_buffer, row, row + 1), v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        a = layer_id * self.cfg.block_size + start
        b = layer_id * self.cfg.block_size + end
        return (self.decode_k_buffer, a, b), (self.decode_v_buffer, a, b)

    def offload_decode_buffer(self, cpu_block, start):
        bs = self.cfg.block_size
        if not (0 <= start < bs):
            raise ValueError
        pairs = []
        for layer in range(self.cfg.num_layers):
            row = (layer * self.cfg.num_cpu_blocks + cpu_block) * bs
            k, v = self.get_decode_kv(layer, start, bs)
            pairs.append(((self.k_cache_cpu, row + start, row + bs), k))
            pairs.append(((self.v_cache_cpu, row + start, row + bs), v))
        self.copy_to_host(pairs)


class Workspace:
    """The device memory of one call; all is freed at the end."""

    def __init__(self, dev, cfg, stream, rows):
        self.dev = dev
        self.stream = stream
        self.x = dev.alloc(rows, cfg.hidden, stream)
        self.h = dev.alloc(rows, cfg.hidden, stream)
        self.q = dev.alloc(rows, cfg.q_width, stream)
        self.k = dev.alloc(rows, cfg.kv_width, stream)
        self.v = dev.alloc(rows, cfg.kv_width, stream)
        self.out = dev.alloc(1, cfg.vocab, stream)
        self.all = [self.x, self.h, self.q, self.k, self.v, self.out]

    def run(self, kernel, **args):
        self.dev.launch(kernel, self.stream, **args)

    def release(self):
        for buf in self.all:
            self.dev.free(buf)


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.running = None  # (id, length)

    def before_attention(self, w, layer, pos):
        w.run("rms_norm", x=w.x, out=w.h, layer=layer, which="attention")
        w.run("q_proj", x=w.h, out=w.q, layer=layer)
        w.run("rotary", x=w.q, pos=pos)
        w.run("k_proj", x=w.h, out=w.k, layer=layer)
        w.run("rotary", x=w.k, pos=pos)
        w.run("v_proj", x=w.h, out=w.v, layer=layer)

    def behind_attention(self, w, layer):
        w.run("o_proj", x=w.q, out=w.h, layer=layer)
        w.run("add", x=w.x, y=w.h, out=w.x)
        w.run("rms_norm", x=w.x, out=w.h, layer=layer, which="mlp")
        w.run("mlp", x=w.h, out=w.h, layer=layer)
        w.run("add", x=w.h, y=w.x, out=w.x)

    def last_logits(self, w, rows):
        w.run("logits", x=(w.x, rows - 1, rows), out=w.out)
        self.dev.copy(self.logits, w.out, self.engine.compute_stream)
        self.dev.sync(self.engine.compute_stream)

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.running is not None:
            raise RuntimeError
        n = len(token_ids)
        if not (1 <= n <= self.cfg.max_seq_len):
            raise ValueError
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.running = (seq_id, n)
        w = Workspace(self.dev, self.cfg, self.engine.compute_stream, n)
        w.run("embed", tokens=list(token_ids), out=w.x)
        for layer in range(self.cfg.num_layers):
            self.before_attention(w, layer, 0)
            self.engine.offload_layer_kv_to_cpu(layer, w.k, w.v, table, n)
            w.run("attention", q=w.q, k=w.k, v=w.v, out=w.q, causal=True)
            self.behind_attention(w, layer)
        self.manager.mark_offloaded(seq_id, n)
        self.last_logits(w, n)
        w.release()

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if self.running is None or self.running[0] != seq_id:
            raise KeyError(seq_id)
        p = self.running[1]
        if p == self.cfg.max_seq_len:
            raise ValueError
        self.manager.may_append(seq_id)
        self.running = (seq_id, p + 1)
        bs, ring = self.cfg.block_size, self.cfg.num_kv_buffers
        pos = p % bs
        offloaded = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        table = self.manager.get_all_cpu_blocks(seq_id)
        for layer in range(self.cfg.num_layers):
            if layer == ring:
                break
            self.engine.load_layer_kv_to_buffer(layer, layer, table, offloaded)
        w = Workspace(self.dev, self.cfg, self.engine.compute_stream, 1)
        w.run("embed", tokens=[token_id], out=w.x)
        for layer in range(self.cfg.num_layers):
            i = layer % ring
            self.before_attention(w, layer, p)
            self.engine.store_decode_kv(layer, pos, w.k, w.v)
            self.engine.wait_buffer_load(i)
            old_k, old_v = self.engine.get_buffer_kv(i, offloaded)
            new_k, new_v = self.engine.get_decode_kv(layer, 0, pos + 1)
            w.run("attention", q=w.q, k=[old_k, new_k], v=[old_v, new_v], out=w.q, causal=False)
            self.engine.record_buffer_compute_done(i)
            if layer + ring < self.cfg.num_layers:
                self.engine.load_layer_kv_to_buffer(i, layer + ring, table, offloaded)
            self.behind_attention(w, layer)
        self.last_logits(w, 1)
        if pos == bs - 1:
            self.engine.offload_decode_buffer(table[-1], start)
            self.manager.mark_offloaded(seq_id, p + 1)
        w.release()

    def finish(self, seq_id):
        if self.running is None or self.running[0] != seq_id:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.running = None
