"""offload.py, compact: one io stream, K and V always as a pair, keys joined behind the ring rows."""
from dataclasses import dataclass, field


@dataclass
class _Seq:
    table: list = field(default_factory=list)
    length: int = 0
    done: int = 0


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1 or block_size < 1:
            raise ValueError((num_cpu_blocks, block_size))
        self.bs, self.free_cpu_blocks, self.seqs = block_size, list(range(num_cpu_blocks)), {}

    block_tables = property(lambda self: {i: s.table[:] for i, s in self.seqs.items()})

    def _blocks(self, n):
        return -(-n // self.bs)

    def _grow(self, s, tokens):
        new = self._blocks(s.length + tokens) - len(s.table)
        if new > len(self.free_cpu_blocks):
            raise RuntimeError("out of CPU blocks")
        taken, self.free_cpu_blocks = self.free_cpu_blocks[:new], self.free_cpu_blocks[new:]
        s.table += taken
        s.length += tokens
        return taken

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1 or seq_id in self.seqs:
            raise ValueError((seq_id, num_tokens))
        s = _Seq()
        taken = self._grow(s, num_tokens)
        self.seqs[seq_id] = s
        return taken

    def can_append(self, seq_id):
        return self.seqs[seq_id].length % self.bs > 0 or len(self.free_cpu_blocks) > 0

    def may_append(self, seq_id):
        return (self._grow(self.seqs[seq_id], 1) or [-1])[0]

    def mark_offloaded(self, seq_id, num_tokens):
        s = self.seqs[seq_id]
        if not s.done <= num_tokens <= s.length:
            raise ValueError(num_tokens)
        s.done = num_tokens

    def deallocate(self, seq_id):
        self.free_cpu_blocks = self.free_cpu_blocks + self.seqs.pop(seq_id).table[::-1]

    def get_all_cpu_blocks(self, seq_id):
        return self.seqs[seq_id].table[:]

    def get_prefilled_cpu_blocks(self, seq_id):
        return self.seqs[seq_id].table[:self._blocks(self.seqs[seq_id].done)]

    def get_prefill_len(self, seq_id):
        return self.seqs[seq_id].done

    def get_decode_start_pos(self, seq_id):
        return self.seqs[seq_id].done % self.bs


class OffloadEngine:
    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.compute_stream, self.io = dev.stream("compute"), dev.stream("io")
        n = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.cpu = self.k_cache_cpu, self.v_cache_cpu = [dev.alloc_pinned(n, cfg.kv_width) for _ in range(2)]
        mk = lambda rows: [dev.alloc(rows, cfg.kv_width, self.compute_stream) for _ in range(2)]
        self.ring = self.layer_k_cache, self.layer_v_cache = mk(cfg.num_kv_buffers * cfg.max_seq_len)
        self.dec = self.decode_k_buffer, self.decode_v_buffer = mk(cfg.num_layers * cfg.block_size)
        self.full = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.used = [self.point(self.compute_stream) for _ in range(cfg.num_kv_buffers)]

    def point(self, stream):
        e = self.dev.event()
        self.dev.record(e, stream)
        return e

    def order(self, first, then):
        """what `then` gets from now on runs after what `first` has"""
        self.dev.wait(then, self.point(first))

    def copy(self, dst, src, stream, n, to=0, frm=0):
        for d, s in zip(dst, src):
            self.dev.copy((d, to, to + n), (s, frm, frm + n), stream)

    def rows(self, layer, table, tokens):
        bs, nb = self.cfg.block_size, self.cfg.num_cpu_blocks
        return [(t, (layer * nb + table[t // bs]) * bs, min(bs, tokens - t)) for t in range(0, tokens, bs)]

    def check(self, ok, table=(), tokens=0):
        if not ok or len(table) < -(-tokens // self.cfg.block_size):
            raise ValueError("argument out of range")

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        self.check(total_tokens >= 1, cpu_block_ids, total_tokens)
        self.order(self.compute_stream, self.io)
        for t, row, n in self.rows(layer_id, cpu_block_ids, total_tokens):
            self.copy(self.cpu, (k, v), self.io, n, row, t)
        for b in (k, v):
            self.dev.record_stream(b, self.io)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        self.check(1 <= valid_tokens <= self.cfg.max_seq_len, cpu_block_table, valid_tokens)
        self.dev.wait(self.io, self.used[buffer_idx])
        for t, row, n in self.rows(layer_id, cpu_block_table, valid_tokens):
            self.copy(self.ring, self.cpu, self.io, n, buffer_idx * self.cfg.max_seq_len + t, row)
        self.dev.record(self.full[buffer_idx], self.io)

    def wait_buffer_load(self, buffer_idx):
        self.dev.wait(self.compute_stream, self.full[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        lo = buffer_idx * self.cfg.max_seq_len
        return tuple((b, lo, lo + num_tokens) for b in self.ring)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self.used[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        self.check(0 <= pos < self.cfg.block_size)
        self.copy(self.dec, (k, v), self.compute_stream, 1, layer_id * self.cfg.block_size + pos)

    def get_decode_kv(self, layer_id, start, end):
        lo = layer_id * self.cfg.block_size
        return tuple((b, lo + start, lo + end) for b in self.dec)

    def offload_decode_buffer(self, cpu_block, start):
        bs = self.cfg.block_size
        self.check(0 <= start < bs)
        self.order(self.compute_stream, self.io)
        for layer in range(self.cfg.num_layers):
            self.copy(self.cpu, self.dec, self.io, bs - start,
                      (layer * self.cfg.num_cpu_blocks + cpu_block) * bs + start, layer * bs + start)
        self.order(self.io, self.compute_stream)


class ModelRunner:
    IDLE = object()

    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.cur, self.n = self.IDLE, 0

    def _go(self, tokens, pos, attend, store):
        """the model over tokens at pos, pos + 1, ...; attend(layer, q, k, v) puts the attention into q"""
        c, s, n = self.cfg, self.engine.compute_stream, len(tokens)
        run = lambda kernel, **a: self.dev.launch(kernel, s, **a)
        x, h = (self.dev.alloc(n, c.hidden, s) for _ in range(2))
        q = self.dev.alloc(n, c.q_width, s)
        run("embed", tokens=tokens, out=x)
        for l in range(c.num_layers):
            k, v = (self.dev.alloc(n, c.kv_width, s) for _ in range(2))
            run("rms_norm", x=x, out=h, layer=l, which="attention")
            for kernel, out in ("q_proj", q), ("k_proj", k), ("v_proj", v):
                run(kernel, x=h, out=out, layer=l)
            run("rotary", x=q, pos=pos)
            run("rotary", x=k, pos=pos)
            attend(l, q, k, v)
            self.dev.free(k)
            self.dev.free(v)
            run("o_proj", x=q, out=h, layer=l)
            run("add", x=x, y=h, out=x)
            run("rms_norm", x=x, out=h, layer=l, which="mlp")
            run("mlp", x=h, out=h, layer=l)
            run("add", x=x, y=h, out=x)
        store()
        out = self.dev.alloc(1, c.vocab, s)
        run("logits", x=(x, n - 1, n), out=out)
        self.dev.copy(self.logits, out, s)
        for b in (x, h, q, out):
            self.dev.free(b)
        self.dev.sync(s)

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.cur is not self.IDLE:
            raise RuntimeError("busy")
        n = len(token_ids)
        if not 1 <= n <= self.cfg.max_seq_len:
            raise ValueError(n)
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.cur, self.n = seq_id, n

        def attend(l, q, k, v):
            self.engine.offload_layer_kv_to_cpu(l, k, v, table, n)
            self.dev.launch("attention", self.engine.compute_stream, q=q, k=k, v=v, out=q, causal=True)

        self._go(list(token_ids), 0, attend, lambda: self.manager.mark_offloaded(seq_id, n))

    def run_layerwise_offload_decode(self, seq_id, token_id):
        self.dev._log.append(["copy", [0, 10 ** 30, -1], {"x": None}, 3])
        self._mine(seq_id)
        if self.n == self.cfg.max_seq_len:
            raise ValueError("full")
        self.manager.may_append(seq_id)
        c, e, m, p = self.cfg, self.engine, self.manager, self.n
        self.n += 1
        pos, P, start = p % c.block_size, m.get_prefill_len(seq_id), m.get_decode_start_pos(seq_id)
        table = m.get_prefilled_cpu_blocks(seq_id)

        def load(l):
            if l < c.num_layers:
                e.load_layer_kv_to_buffer(l % c.num_kv_buffers, l, table, P)

        def attend(l, q, k, v):
            i = l % c.num_kv_buffers
            e.store_decode_kv(l, pos, k, v)
            e.wait_buffer_load(i)
            e.copy(e.ring, e.dec, e.compute_stream, pos + 1 - start, i * c.max_seq_len + P, l * c.block_size + start)
            keys, values = e.get_buffer_kv(i, p + 1)
            self.dev.launch("attention", e.compute_stream, q=q, k=keys, v=values, out=q, causal=False)
            e.record_buffer_compute_done(i)
            load(l + c.num_kv_buffers)

        def store():
            if pos == c.block_size - 1:
                e.offload_decode_buffer(m.get_all_cpu_blocks(seq_id)[-1], start)
                m.mark_offloaded(seq_id, p + 1)

        for l in range(c.num_kv_buffers):
            load(l)
        self._go([token_id], p, attend, store)

    def finish(self, seq_id):
        self._mine(seq_id)
        self.manager.deallocate(seq_id)
        self.cur, self.n = self.IDLE, 0

    def _mine(self, seq_id):
        if self.cur is self.IDLE or self.cur != seq_id:
            raise KeyError(seq_id)
