"""Layer-wise KV offload, written around iterators.

K and V travel on load streams of their own; one store stream brings rows back to the host.
Prefill keeps the K/V of the layer before until the layer after it has been computed.
"""
from itertools import islice
from contextlib import contextmanager


def pieces(total, size):
    """(index, first, last) of the pieces of at most `size` that cover range(total)."""
    for index, first in enumerate(range(0, total, size)):
        yield index, first, min(total, first + size)


def runs(table, total, size):
    """(first token, block, tokens) where neighbouring blocks are joined to one run."""
    current = None
    for index, first, last in pieces(total, size):
        block = table[index]
        if current and block == current[3] + 1:
            current[2] += last - first
            current[3] = block
        else:
            if current:
                yield tuple(current[:3])
            current = [first, block, last - first, block]
    if current:
        yield tuple(current[:3])


def blocks_for(tokens, size):
    return sum(1 for _ in pieces(tokens, size))


class Entry:
    __slots__ = ("table", "length", "offloaded")

    def __init__(self, table, length):
        self.table, self.length, self.offloaded = table, length, 0


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if min(num_cpu_blocks, block_size) < 1:
            raise ValueError("both arguments must be positive")
        self._size = block_size
        self._free = list(range(num_cpu_blocks))
        self._seqs = {}

    @property
    def free_cpu_blocks(self):
        return tuple(self._free)

    @property
    def block_tables(self):
        return {seq_id: tuple(entry.table) for seq_id, entry in self._seqs.items()}

    def _take(self, count):
        if count > len(self._free):
            raise RuntimeError(f"{count} blocks wanted, {len(self._free)} free")
        taken = list(islice(self._free, count))
        del self._free[:count]
        return taken

    def _is_full(self, entry):
        return entry.length % self._size == 0

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1 or seq_id in self._seqs:
            raise ValueError((seq_id, num_tokens))
        entry = Entry(self._take(blocks_for(num_tokens, self._size)), num_tokens)
        self._seqs[seq_id] = entry
        return entry.table[:]

    def can_append(self, seq_id):
        entry = self._seqs[seq_id]
        return not self._is_full(entry) or any(True for _ in self._free)

    def may_append(self, seq_id):
        entry = self._seqs[seq_id]
        new = self._take(1) if self._is_full(entry) else []
        entry.table.extend(new)
        entry.length += 1
        return next(iter(new), -1)

    def mark_offloaded(self, seq_id, num_tokens):
        entry = self._seqs[seq_id]
        if not entry.offloaded <= num_tokens <= entry.length:
            raise ValueError(num_tokens)
        entry.offloaded = num_tokens

    def deallocate(self, seq_id):
        self._free.extend(reversed(self._seqs.pop(seq_id).table))

    def get_all_cpu_blocks(self, seq_id):
        return self._seqs[seq_id].table[:]

    def get_prefilled_cpu_blocks(self, seq_id):
        entry = self._seqs[seq_id]
        return list(islice(entry.table, blocks_for(entry.offloaded, self._size)))

    def get_prefill_len(self, seq_id):
        return self._seqs[seq_id].offloaded

    def get_decode_start_pos(self, seq_id):
        return self._seqs[seq_id].offloaded % self._size


class OffloadEngine:
    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.compute_stream = dev.stream("compute")
        self.loaders = dev.stream("load k"), dev.stream("load v")
        self.storer = dev.stream("store")
        host = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu, self.v_cache_cpu = (dev.alloc_pinned(host, cfg.kv_width) for _ in "kv")
        self.layer_k_cache, self.layer_v_cache, self.decode_k_buffer, self.decode_v_buffer = (
            dev.alloc(rows, cfg.kv_width, self.compute_stream)
            for rows in (cfg.num_kv_buffers * cfg.max_seq_len, cfg.num_kv_buffers * cfg.max_seq_len,
                         cfg.num_layers * cfg.block_size, cfg.num_layers * cfg.block_size))
        built = self.mark(self.compute_stream)
        self._done = dict.fromkeys(range(cfg.num_kv_buffers), built)
        self._loaded = {}
        self._stored = None

    # ---- events -----------------------------------------------------

    def mark(self, stream):
        event = self.dev.event()
        self.dev.record(event, stream)
        return event

    def after(self, stream, *events):
        for event in filter(None, events):
            self.dev.wait(stream, event)

    @contextmanager
    def storing(self):
        """The store stream, behind everything computed so far; its end is remembered."""
        self.after(self.storer, self.mark(self.compute_stream))
        yield self.storer
        self._stored = self.mark(self.storer)

    # ---- rows ---------------------------------------------------------

    def _host_row(self, layer, block):
        return (layer * self.cfg.num_cpu_blocks + block) * self.cfg.block_size

    def _pairs(self, layer, table, tokens):
        """(first token, last token, first host row, last host row)"""
        for first, block, count in runs(table, tokens, self.cfg.block_size):
            row = self._host_row(layer, block)
            yield first, first + count, row, row + count

    def copy_out(self, layer_id, k, v, table, tokens):
        """Enqueues the copies of a layer; returns the event behind them."""
        with self.storing() as stream:
            for first, last, lo, hi in self._pairs(layer_id, table, tokens):
                for host, src in (self.k_cache_cpu, k), (self.v_cache_cpu, v):
                    self.dev.copy((host, lo, hi), (src, first, last), stream)
        return self._stored

    # ---- the methods of the handout --------------------------------

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1 or len(cpu_block_ids) < blocks_for(total_tokens, self.cfg.block_size):
            raise ValueError(total_tokens)
        self.after(self.compute_stream, self.copy_out(layer_id, k, v, cpu_block_ids, total_tokens))

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise ValueError(valid_tokens)
        if len(cpu_block_table) < blocks_for(valid_tokens, self.cfg.block_size):
            raise ValueError("table too short")
        base = buffer_idx * self.cfg.max_seq_len
        ends = []
        for stream, ring, host in zip(self.loaders, (self.layer_k_cache, self.layer_v_cache),
                                      (self.k_cache_cpu, self.v_cache_cpu)):
            self.after(stream, self._done[buffer_idx], self._stored)
            for first, last, lo, hi in self._pairs(layer_id, cpu_block_table, valid_tokens):
                self.dev.copy((ring, base + first, base + last), (host, lo, hi), stream)
            ends.append(self.mark(stream))
        self._loaded[buffer_idx] = ends

    def wait_buffer_load(self, buffer_idx):
        self.after(self.compute_stream, *self._loaded.get(buffer_idx, ()))

    def get_buffer_kv(self, buffer_idx, num_tokens):
        lo = buffer_idx * self.cfg.max_seq_len
        return tuple((ring, lo, lo + num_tokens) for ring in (self.layer_k_cache, self.layer_v_cache))

    def record_buffer_compute_done(self, buffer_idx):
        self._done[buffer_idx] = self.mark(self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if pos not in range(self.cfg.block_size):
            raise ValueError(pos)
        for dst, src in zip(self.get_decode_kv(layer_id, pos, pos + 1), (k, v)):
            self.dev.copy(dst, src, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        lo = layer_id * self.cfg.block_size
        return tuple((buf, lo + start, lo + end) for buf in (self.decode_k_buffer, self.decode_v_buffer))

    def offload_decode_buffer(self, cpu_block, start):
        size = self.cfg.block_size
        if start not in range(size):
            raise ValueError(start)
        with self.storing() as stream:
            for layer in range(self.cfg.num_layers):
                row = self._host_row(layer, cpu_block)
                for host, rows in zip((self.k_cache_cpu, self.v_cache_cpu), self.get_decode_kv(layer, start, size)):
                    self.dev.copy((host, row + start, row + size), rows, stream)
        self.after(self.compute_stream, self._stored)


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self._running = []          # at most one (id, length)

    def _k(self, kernel, **arguments):
        self.dev.launch(kernel, self.engine.compute_stream, **arguments)

    @contextmanager
    def _tmp(self, *shapes):
        bufs = [self.dev.alloc(rows, width, self.engine.compute_stream) for rows, width in shapes]
        yield bufs
        for buf in reversed(bufs):
            self.dev.free(buf)

    def _layers(self, x, pos, rows):
        """Runs the layers over x. Yields (layer, q, k, v) when they are projected and rotated; whoever
        iterates puts the attention into q and is given back the word when q may be read."""
        cfg = self.cfg
        for layer in range(cfg.num_layers):
            k, v = (self.dev.alloc(rows, cfg.kv_width, self.engine.compute_stream) for _ in "kv")
            with self._tmp((rows, cfg.hidden), (rows, cfg.q_width)) as (h, q):
                self._k("rms_norm", x=x, out=h, layer=layer, which="attention")
                for name, out in ("q_proj", q), ("k_proj", k), ("v_proj", v):
                    self._k(name, x=h, out=out, layer=layer)
                for out in q, k:
                    self._k("rotary", x=out, pos=pos)
                yield layer, q, k, v
                self._k("o_proj", x=q, out=h, layer=layer)
                self._k("add", x=h, y=x, out=x)
                self._k("rms_norm", x=x, out=h, layer=layer, which="mlp")
                self._k("mlp", x=h, out=h, layer=layer)
                self._k("add", x=h, y=x, out=x)

    def _finish_step(self, x, rows):
        with self._tmp((1, self.cfg.vocab)) as (out,):
            self._k("logits", x=(x, rows - 1, rows), out=out)
            self.dev.copy(self.logits, out, self.engine.compute_stream)
        self.dev.sync(self.engine.mark(self.engine.compute_stream))

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self._running:
            raise RuntimeError("busy")
        rows = len(token_ids)
        if rows not in range(1, self.cfg.max_seq_len + 1):
            raise ValueError(rows)
        table = self.manager.allocate_cpu_only(seq_id, rows)
        engine = self.engine
        before = None

        def release(item):
            if item:
                k, v, copied = item
                engine.after(engine.compute_stream, copied)
                self.dev.free(k)
                self.dev.free(v)

        with self._tmp((rows, self.cfg.hidden)) as (x,):
            self._k("embed", tokens=list(token_ids), out=x)
            for layer, q, k, v in self._layers(x, 0, rows):
                self._k("attention", q=q, k=k, v=v, out=q, causal=True)
                release(before)
                before = k, v, engine.copy_out(layer, k, v, table, rows)
            release(before)
            self.manager.mark_offloaded(seq_id, rows)
            self._finish_step(x, rows)
        self._running.append((seq_id, rows))

    def _prefetch(self, table, tokens):
        """Each next() loads one more layer."""
        for layer in range(self.cfg.num_layers):
            self.engine.load_layer_kv_to_buffer(layer % self.cfg.num_kv_buffers, layer, table, tokens)
            yield layer

    def _known(self, seq_id):
        for running, length in self._running:
            if running == seq_id:
                return length
        raise KeyError(seq_id)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        p = self._known(seq_id)
        self.manager.may_append(seq_id)
        if p == self.cfg.max_seq_len:
            raise ValueError("the sequence has its greatest length")
        self._running[:] = [(seq_id, p + 1)]
        engine, size, ring = self.engine, self.cfg.block_size, self.cfg.num_kv_buffers
        pos = p % size
        offloaded = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        loads = self._prefetch(self.manager.get_prefilled_cpu_blocks(seq_id), offloaded)
        for _ in islice(loads, ring):
            pass
        with self._tmp((1, self.cfg.hidden)) as (x,):
            self._k("embed", tokens=[token_id], out=x)
            for layer, q, k, v in self._layers(x, p, 1):
                buffer = layer % ring
                engine.wait_buffer_load(buffer)
                parts = engine.get_buffer_kv(buffer, offloaded), engine.get_decode_kv(layer, start, pos), (k, v)
                keys, values = map(list, zip(*parts))
                self._k("attention", q=q, k=keys, v=values, out=q, causal=False)
                engine.record_buffer_compute_done(buffer)
                next(loads, None)
                engine.store_decode_kv(layer, pos, k, v)
                for buf in k, v:
                    self.dev.free(buf)
            if pos == size - 1:
                engine.offload_decode_buffer(self.manager.get_all_cpu_blocks(seq_id)[-1], start)
                self.manager.mark_offloaded(seq_id, p + 1)
            self._finish_step(x, 1)

    def finish(self, seq_id):
        self._known(seq_id)
        self.manager.deallocate(seq_id)
        self._running.clear()
