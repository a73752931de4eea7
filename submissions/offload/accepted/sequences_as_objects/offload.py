"""Layer-wise CPU offload of the KV cache."""

from collections import deque


class Sequence:
    """What the manager knows of a sequence."""

    def __init__(self, blocks, length):
        self.blocks = blocks
        self.length = length
        self.offloaded = 0


class HybridKVCacheManager:
    """Blocks of CPU memory for sequences."""

    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1 or block_size < 1:
            raise ValueError("both must be at least 1")
        self.block_size = block_size
        self.free_cpu_blocks = deque(range(num_cpu_blocks))
        self.sequences = {}

    @property
    def block_tables(self):
        return {seq_id: list(seq.blocks) for seq_id, seq in self.sequences.items()}

    def _blocks_for(self, num_tokens):
        return (num_tokens + self.block_size - 1) // self.block_size

    def allocate_cpu_only(self, seq_id, num_tokens):
        """Give a new sequence its blocks; return the table."""
        if num_tokens < 1:
            raise ValueError("no tokens")
        if seq_id in self.sequences:
            raise ValueError("the sequence is there already")
        count = self._blocks_for(num_tokens)
        if count > len(self.free_cpu_blocks):
            raise RuntimeError("not enough CPU blocks")
        blocks = [self.free_cpu_blocks.popleft() for _ in range(count)]
        self.sequences[seq_id] = Sequence(blocks, num_tokens)
        return list(blocks)

    def _needs_block(self, seq):
        return seq.length % self.block_size == 0

    def can_append(self, seq_id):
        """Return whether there is room for one more token."""
        seq = self.sequences[seq_id]
        return not self._needs_block(seq) or len(self.free_cpu_blocks) > 0

    def may_append(self, seq_id):
        """Let the sequence grow by a token; return the block that it took, or -1."""
        seq = self.sequences[seq_id]
        block = -1
        if self._needs_block(seq):
            if not self.free_cpu_blocks:
                raise RuntimeError("no free CPU block")
            block = self.free_cpu_blocks.popleft()
            seq.blocks.append(block)
        seq.length += 1
        return block

    def mark_offloaded(self, seq_id, num_tokens):
        """Note that num_tokens tokens are in the CPU cache."""
        seq = self.sequences[seq_id]
        if not seq.offloaded <= num_tokens <= seq.length:
            raise ValueError("bad number of offloaded tokens")
        seq.offloaded = num_tokens

    def deallocate(self, seq_id):
        """Take the blocks back and forget the sequence."""
        seq = self.sequences.pop(seq_id)
        self.free_cpu_blocks.extend(reversed(seq.blocks))

    def get_all_cpu_blocks(self, seq_id):
        """Return the table."""
        return list(self.sequences[seq_id].blocks)

    def get_prefilled_cpu_blocks(self, seq_id):
        """Return the blocks that hold an offloaded token."""
        seq = self.sequences[seq_id]
        return seq.blocks[: self._blocks_for(seq.offloaded)]

    def get_prefill_len(self, seq_id):
        """Return the number of offloaded tokens."""
        return self.sequences[seq_id].offloaded

    def get_decode_start_pos(self, seq_id):
        """Return the row of the decode buffer that holds the first token not yet offloaded."""
        return self.sequences[seq_id].offloaded % self.block_size


class OffloadEngine:
    """The caches, and the copies between them. Everything is ordered by events, the host never waits."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
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

        self.compute_ready = dev.event()  # what offload_stream waits for
        self.offload_done = dev.event()  # the last copy to the host
        self.load_done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.buffer_free = [dev.event() for _ in range(cfg.num_kv_buffers)]
        for event in self.buffer_free:
            dev.record(event, self.compute_stream)

    def _cpu_row(self, layer_id, block):
        return (layer_id * self.cfg.num_cpu_blocks + block) * self.cfg.block_size

    def _pieces(self, blocks, num_tokens):
        """Yield (block, first token, number of tokens) for each block in use."""
        size = self.cfg.block_size
        for i, first in enumerate(range(0, num_tokens, size)):
            yield blocks[i], first, min(size, num_tokens - first)

    def _check_blocks(self, blocks, num_tokens):
        if len(blocks) * self.cfg.block_size < num_tokens:
            raise ValueError("too few blocks")

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        """Copy keys and values of a layer to its blocks."""
        if total_tokens < 1:
            raise ValueError("no tokens")
        self._check_blocks(cpu_block_ids, total_tokens)
        dev = self.dev
        dev.record(self.compute_ready, self.compute_stream)
        dev.wait(self.offload_stream, self.compute_ready)
        for block, first, count in self._pieces(cpu_block_ids, total_tokens):
            row = self._cpu_row(layer_id, block)
            dev.copy((self.k_cache_cpu, row, row + count), (k, first, first + count), self.offload_stream)
            dev.copy((self.v_cache_cpu, row, row + count), (v, first, first + count), self.offload_stream)
        dev.record_stream(k, self.offload_stream)
        dev.record_stream(v, self.offload_stream)
        dev.record(self.offload_done, self.offload_stream)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        """Copy the first tokens of a layer to a buffer of the ring."""
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise ValueError("bad number of tokens")
        self._check_blocks(cpu_block_table, valid_tokens)
        dev = self.dev
        dev.wait(self.load_stream, self.buffer_free[buffer_idx])
        dev.wait(self.load_stream, self.offload_done)
        base = buffer_idx * self.cfg.max_seq_len
        for block, first, count in self._pieces(cpu_block_table, valid_tokens):
            row = self._cpu_row(layer_id, block)
            to = base + first
            dev.copy((self.layer_k_cache, to, to + count), (self.k_cache_cpu, row, row + count), self.load_stream)
            dev.copy((self.layer_v_cache, to, to + count), (self.v_cache_cpu, row, row + count), self.load_stream)
        dev.record(self.load_done[buffer_idx], self.load_stream)

    def wait_buffer_load(self, buffer_idx):
        """Let later work on compute_stream run after the last load of the buffer."""
        self.dev.wait(self.compute_stream, self.load_done[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        """Return two ranges, K then V."""
        lo = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, lo, lo + num_tokens), (self.layer_v_cache, lo, lo + num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        """Note that the work on compute_stream so far is all that reads the buffer."""
        self.dev.record(self.buffer_free[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        """Copy keys and values of a token to the decode buffers."""
        if not 0 <= pos < self.cfg.block_size:
            raise ValueError("bad position")
        k_row, v_row = self.get_decode_kv(layer_id, pos, pos + 1)
        self.dev.copy(k_row, k, self.compute_stream)
        self.dev.copy(v_row, v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        """Return two ranges, K then V."""
        lo = layer_id * self.cfg.block_size
        return (self.decode_k_buffer, lo + start, lo + end), (self.decode_v_buffer, lo + start, lo + end)

    def offload_decode_buffer(self, cpu_block, start):
        """Flush the decode buffers from row start on to a block."""
        if not 0 <= start < self.cfg.block_size:
            raise ValueError("bad row")
        dev, size = self.dev, self.cfg.block_size
        dev.record(self.compute_ready, self.compute_stream)
        dev.wait(self.offload_stream, self.compute_ready)
        for layer in range(self.cfg.num_layers):
            k, v = self.get_decode_kv(layer, start, size)
            row = self._cpu_row(layer, cpu_block)
            dev.copy((self.k_cache_cpu, row + start, row + size), k, self.offload_stream)
            dev.copy((self.v_cache_cpu, row + start, row + size), v, self.offload_stream)
        dev.record(self.offload_done, self.offload_stream)
        dev.wait(self.compute_stream, self.offload_done)


class ModelRunner:
    """Runs a sequence through the model."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.running = []  # the id of the sequence, if there is one
        self.length = 0

    # helpers

    def _new(self, rows, width):
        return self.dev.alloc(rows, width, self.engine.compute_stream)

    def _launch(self, kernel, **args):
        self.dev.launch(kernel, self.engine.compute_stream, **args)

    def _project(self, layer, x, n, pos):
        """Return q, k and v of n tokens."""
        cfg = self.cfg
        h = self._new(n, cfg.hidden)
        self._launch("rms_norm", x=x, out=h, layer=layer, which="attention")
        q, k, v = self._new(n, cfg.q_width), self._new(n, cfg.kv_width), self._new(n, cfg.kv_width)
        self._launch("q_proj", x=h, out=q, layer=layer)
        self._launch("k_proj", x=h, out=k, layer=layer)
        self._launch("v_proj", x=h, out=v, layer=layer)
        self._launch("rotary", x=q, pos=pos)
        self._launch("rotary", x=k, pos=pos)
        self.dev.free(h)
        return q, k, v

    def _rest_of_layer(self, layer, x, a, n):
        """Everything behind the attention; x is changed in place."""
        h = self._new(n, self.cfg.hidden)
        self._launch("o_proj", x=a, out=h, layer=layer)
        self._launch("add", x=x, y=h, out=x)
        self._launch("rms_norm", x=x, out=h, layer=layer, which="mlp")
        self._launch("mlp", x=h, out=h, layer=layer)
        self._launch("add", x=x, y=h, out=x)
        self.dev.free(h)

    def _write_logits(self, row):
        out = self._new(1, self.cfg.vocab)
        self._launch("logits", x=row, out=out)
        self.dev.copy(self.logits, out, self.engine.compute_stream)
        self.dev.free(out)
        self.dev.sync(self.engine.compute_stream)

    # the three calls

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        """Run the whole prompt, layer by layer."""
        if self.running:
            raise RuntimeError("a sequence is running")
        n = len(token_ids)
        if not 1 <= n <= self.cfg.max_seq_len:
            raise ValueError("bad number of tokens")
        blocks = self.manager.allocate_cpu_only(seq_id, n)
        self.running = [seq_id]
        self.length = n

        x = self._new(n, self.cfg.hidden)
        self._launch("embed", tokens=list(token_ids), out=x)
        for layer in range(self.cfg.num_layers):
            q, k, v = self._project(layer, x, n, 0)
            self._launch("attention", q=q, k=k, v=v, out=q, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, blocks, n)
            self.dev.free(k)
            self.dev.free(v)
            self._rest_of_layer(layer, x, q, n)
            self.dev.free(q)
        self.manager.mark_offloaded(seq_id, n)
        self._write_logits((x, n - 1, n))
        self.dev.free(x)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        """Run one token through all layers."""
        if seq_id not in self.running:
            raise KeyError(seq_id)
        if self.length == self.cfg.max_seq_len:
            raise ValueError("the sequence is full")
        if not self.manager.can_append(seq_id):
            raise RuntimeError("no free CPU block")
        cfg, engine = self.cfg, self.engine
        p = self.length
        pos = p % cfg.block_size
        offloaded = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        self.manager.may_append(seq_id)
        self.length += 1
        blocks = self.manager.get_prefilled_cpu_blocks(seq_id)

        for layer in range(min(cfg.num_kv_buffers, cfg.num_layers)):
            engine.load_layer_kv_to_buffer(layer, layer, blocks, offloaded)
        x = self._new(1, cfg.hidden)
        self._launch("embed", tokens=[token_id], out=x)
        for layer in range(cfg.num_layers):
            buffer = layer % cfg.num_kv_buffers
            q, k, v = self._project(layer, x, 1, p)
            engine.wait_buffer_load(buffer)
            ring_k, ring_v = engine.get_buffer_kv(buffer, offloaded)
            old_k, old_v = engine.get_decode_kv(layer, start, pos)
            self._launch("attention", q=q, k=[ring_k, old_k, k], v=[ring_v, old_v, v], out=q, causal=False)
            engine.record_buffer_compute_done(buffer)
            if layer + cfg.num_kv_buffers < cfg.num_layers:
                engine.load_layer_kv_to_buffer(buffer, layer + cfg.num_kv_buffers, blocks, offloaded)
            engine.store_decode_kv(layer, pos, k, v)
            self.dev.free(k)
            self.dev.free(v)
            self._rest_of_layer(layer, x, q, 1)
            self.dev.free(q)
        if pos == cfg.block_size - 1:
            engine.offload_decode_buffer(self.manager.get_all_cpu_blocks(seq_id)[-1], start)
            self.manager.mark_offloaded(seq_id, p + 1)
        self._write_logits(x)
        self.dev.free(x)

    def finish(self, seq_id):
        """Forget the sequence."""
        if seq_id not in self.running:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.running = []
