"""KV cache offload, as a tree of small classes."""
from abc import ABC, abstractmethod
from collections import deque


class BlockQueue(deque):
    """First in, first out."""

    def take(self, count):
        if count > len(self):
            raise RuntimeError(f"{count} blocks wanted")
        return [self.popleft() for _ in range(count)]


class Sequence:
    def __init__(self, block_size, blocks, num_tokens):
        self.block_size, self.blocks = block_size, blocks
        self.num_tokens, self.num_offloaded = num_tokens, 0

    def needs_block(self):
        return len(self.blocks) * self.block_size == self.num_tokens

    def offloaded_blocks(self):
        whole, rest = divmod(self.num_offloaded, self.block_size)
        return self.blocks[:whole + (1 if rest else 0)]


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1 or block_size < 1:
            raise ValueError("a manager needs blocks, and a block rows")
        self.block_size = block_size
        self.free_cpu_blocks = BlockQueue(range(num_cpu_blocks))
        self._sequences = {}

    @property
    def block_tables(self):
        return {seq_id: list(seq.blocks) for seq_id, seq in self._sequences.items()}

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError("num_tokens")
        if seq_id in self._sequences:
            raise ValueError("seq_id")
        blocks = self.free_cpu_blocks.take((num_tokens - 1) // self.block_size + 1)
        self._sequences[seq_id] = Sequence(self.block_size, blocks, num_tokens)
        return list(blocks)

    def can_append(self, seq_id):
        seq = self._sequences[seq_id]
        return bool(len(self.free_cpu_blocks)) or not seq.needs_block()

    def may_append(self, seq_id):
        seq = self._sequences[seq_id]
        taken = -1
        if seq.needs_block():
            taken, = self.free_cpu_blocks.take(1)
            seq.blocks.append(taken)
        seq.num_tokens += 1
        return taken

    def mark_offloaded(self, seq_id, num_tokens):
        seq = self._sequences[seq_id]
        if num_tokens < seq.num_offloaded or num_tokens > seq.num_tokens:
            raise ValueError(f"{num_tokens} tokens cannot be offloaded")
        seq.num_offloaded = num_tokens

    def deallocate(self, seq_id):
        self.free_cpu_blocks.extend(reversed(self._sequences.pop(seq_id).blocks))

    def get_all_cpu_blocks(self, seq_id):
        return list(self._sequences[seq_id].blocks)

    def get_prefilled_cpu_blocks(self, seq_id):
        return self._sequences[seq_id].offloaded_blocks()

    def get_prefill_len(self, seq_id):
        return self._sequences[seq_id].num_offloaded

    def get_decode_start_pos(self, seq_id):
        return self._sequences[seq_id].num_offloaded % self.block_size


class Fence:
    """A point in the work of a stream; others can be put behind it."""

    def __init__(self, dev):
        self.dev, self.event = dev, dev.event()

    def set(self, stream):
        self.dev.record(self.event, stream)

    def hold(self, stream):
        self.dev.wait(stream, self.event)


class HostTable:
    """k_cache_cpu and v_cache_cpu, seen as layers of blocks of rows."""

    def __init__(self, cfg, k, v):
        self.cfg, self.k, self.v = cfg, k, v

    def rows(self, layer, block, lo, hi):
        base = (layer * self.cfg.num_cpu_blocks + block) * self.cfg.block_size
        return (self.k, base + lo, base + hi), (self.v, base + lo, base + hi)

    def walk(self, layer, table, tokens):
        """[(token, count, K rows, V rows)]"""
        size, result = self.cfg.block_size, []
        if len(table) * size < tokens:
            raise ValueError("the table has too few blocks")
        while len(result) * size < tokens:
            token = len(result) * size
            result.append((token, size) + self.rows(layer, table[len(result)], 0, size))
        return result


class DeviceRows:
    """Two device buffers, of which a part begins at `base`."""

    def __init__(self, k, v, base):
        self.k, self.v, self.base = k, v, base

    def rows(self, lo, hi):
        return (self.k, self.base + lo, self.base + hi), (self.v, self.base + lo, self.base + hi)


class RingSlot(DeviceRows):
    def __init__(self, dev, k, v, base, owner):
        super().__init__(k, v, base)
        self.filled = Fence(dev)
        self.read = Fence(dev)
        self.read.set(owner)


class OffloadEngine:
    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.compute_stream = dev.stream("compute")
        pinned = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu, self.v_cache_cpu = (dev.alloc_pinned(pinned, cfg.kv_width) for _ in range(2))
        self.layer_k_cache, self.layer_v_cache = self._device_pair(cfg.num_kv_buffers * cfg.max_seq_len)
        self.decode_k_buffer, self.decode_v_buffer = self._device_pair(cfg.num_layers * cfg.block_size)

        self.host = HostTable(cfg, self.k_cache_cpu, self.v_cache_cpu)
        self.slots = [RingSlot(dev, self.layer_k_cache, self.layer_v_cache, i * cfg.max_seq_len, self.compute_stream)
                      for i in range(cfg.num_kv_buffers)]
        self.decode_rows = [DeviceRows(self.decode_k_buffer, self.decode_v_buffer, i * cfg.block_size)
                            for i in range(cfg.num_layers)]
        self.uploads = dev.stream("host to device")
        self.downloads = dev.stream("device to host")
        self.computed = Fence(dev)
        self.downloaded = Fence(dev)
        self._flush_in_flight = False

    def _device_pair(self, rows):
        return [self.dev.alloc(rows, self.cfg.kv_width, self.compute_stream) for _ in range(2)]

    def _begin_download(self):
        self.computed.set(self.compute_stream)
        self.computed.hold(self.downloads)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1:
            raise ValueError("total_tokens")
        pieces = self.host.walk(layer_id, cpu_block_ids, total_tokens)
        self._begin_download()
        for token, count, host_k, host_v in pieces:
            count = min(count, total_tokens - token)
            for (host, lo, _), buf in ((host_k, k), (host_v, v)):
                self.dev.copy((host, lo, lo + count), (buf, token, token + count), self.downloads)
        self.downloaded.set(self.downloads)
        for buf in (k, v):
            self.dev.record_stream(buf, self.downloads)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if valid_tokens < 1 or valid_tokens > self.cfg.max_seq_len:
            raise ValueError("valid_tokens")
        pieces = self.host.walk(layer_id, cpu_block_table, valid_tokens)
        slot = self.slots[buffer_idx]
        slot.read.hold(self.uploads)
        self.downloaded.hold(self.uploads)
        for token, count, host_k, host_v in pieces:
            slot_k, slot_v = slot.rows(token, token + count)
            self.dev.copy(slot_v, host_v, self.uploads)
            self.dev.copy(slot_k, host_k, self.uploads)
        slot.filled.set(self.uploads)

    def wait_buffer_load(self, buffer_idx):
        self.slots[buffer_idx].filled.hold(self.compute_stream)

    def get_buffer_kv(self, buffer_idx, num_tokens):
        return self.slots[buffer_idx].rows(0, num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        self.slots[buffer_idx].read.set(self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if pos < 0 or pos >= self.cfg.block_size:
            raise ValueError("pos")
        if self._flush_in_flight:
            self.downloaded.hold(self.compute_stream)
            self._flush_in_flight = False
        row_k, row_v = self.decode_rows[layer_id].rows(pos, pos + 1)
        self.dev.copy(row_k, k, self.compute_stream)
        self.dev.copy(row_v, v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        return self.decode_rows[layer_id].rows(start, end)

    def offload_decode_buffer(self, cpu_block, start):
        size = self.cfg.block_size
        if start < 0 or start >= size:
            raise ValueError("start")
        self._begin_download()
        for layer in range(self.cfg.num_layers):
            flushed = self.get_decode_kv(layer, start, size)
            for target, source in zip(self.host.rows(layer, cpu_block, start, size), flushed):
                self.dev.copy(target, source, self.downloads)
        self.downloaded.set(self.downloads)
        self._flush_in_flight = True


class Workspace:
    """Device memory of one call; what is still there at the end is freed."""

    def __init__(self, runner):
        self.dev, self.stream, self.live = runner.dev, runner.engine.compute_stream, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop(*self.live)

    def make(self, rows, width):
        buf = self.dev.alloc(rows, width, self.stream)
        self.live.append(buf)
        return buf

    def drop(self, *bufs):
        for buf in bufs:
            self.live.remove(buf)
            self.dev.free(buf)


class ForwardPass(ABC):
    """The layers over some tokens at positions first, first + 1, ..."""

    def __init__(self, runner, space, tokens, first):
        self.runner, self.space = runner, space
        self.cfg, self.dev, self.engine = runner.cfg, runner.dev, runner.engine
        self.tokens, self.first, self.rows = tokens, first, len(tokens)

    @abstractmethod
    def attend(self, layer, q, k, v, a):
        """Puts the attention of the layer into a."""

    def before_layers(self):
        pass

    def after_layers(self):
        pass

    def kernel(self, name, **arguments):
        self.dev.launch(name, self.engine.compute_stream, **arguments)

    def run(self):
        self.x = self.space.make(self.rows, self.cfg.hidden)
        self.kernel("embed", tokens=self.tokens, out=self.x)
        self.before_layers()
        for layer in range(self.cfg.num_layers):
            self.attention_half(layer)
            self.mlp_half(layer)
        self.after_layers()
        self.read_out()

    def attention_half(self, layer):
        h = self.space.make(self.rows, self.cfg.hidden)
        self.kernel("rms_norm", x=self.x, out=h, layer=layer, which="attention")
        k, v = (self.space.make(self.rows, self.cfg.kv_width) for _ in range(2))
        q, a = (self.space.make(self.rows, self.cfg.q_width) for _ in range(2))
        for kernel, out in (("v_proj", v), ("k_proj", k), ("q_proj", q)):
            self.kernel(kernel, x=h, out=out, layer=layer)
        self.kernel("rotary", x=k, pos=self.first)
        self.kernel("rotary", x=q, pos=self.first)
        self.attend(layer, q, k, v, a)
        self.kernel("o_proj", x=a, out=h, layer=layer)
        self.kernel("add", x=self.x, y=h, out=self.x)
        self.space.drop(h, q, k, v, a)

    def mlp_half(self, layer):
        h, m = (self.space.make(self.rows, self.cfg.hidden) for _ in range(2))
        self.kernel("rms_norm", x=self.x, out=h, layer=layer, which="mlp")
        self.kernel("mlp", x=h, out=m, layer=layer)
        self.kernel("add", x=self.x, y=m, out=self.x)
        self.space.drop(h, m)

    def read_out(self):
        out = self.space.make(1, self.cfg.vocab)
        self.kernel("logits", x=(self.x, self.rows - 1, self.rows), out=out)
        self.dev.copy(self.runner.logits, out, self.engine.compute_stream)
        self.dev.sync(self.engine.compute_stream)


class PrefillPass(ForwardPass):
    def __init__(self, runner, space, seq_id, tokens, table):
        super().__init__(runner, space, tokens, 0)
        self.seq_id, self.table = seq_id, table

    def attend(self, layer, q, k, v, a):
        self.kernel("attention", q=q, k=k, v=v, out=a, causal=True)
        self.engine.offload_layer_kv_to_cpu(layer, k, v, self.table, self.rows)

    def after_layers(self):
        self.runner.manager.mark_offloaded(self.seq_id, self.rows)


class DecodePass(ForwardPass):
    """Joins all keys of a layer in one buffer, so that the ring buffer is given back early."""

    def __init__(self, runner, space, seq_id, token, position):
        super().__init__(runner, space, [token], position)
        manager = runner.manager
        self.seq_id, self.row = seq_id, position % self.cfg.block_size
        self.offloaded = manager.get_prefill_len(seq_id)
        self.start = manager.get_decode_start_pos(seq_id)
        self.table = manager.get_prefilled_cpu_blocks(seq_id)

    def load(self, layer):
        if layer < self.cfg.num_layers:
            self.engine.load_layer_kv_to_buffer(layer % self.cfg.num_kv_buffers, layer, self.table, self.offloaded)

    def before_layers(self):
        for layer in range(self.cfg.num_kv_buffers):
            self.load(layer)

    def attend(self, layer, q, k, v, a):
        slot = layer % self.cfg.num_kv_buffers
        self.engine.store_decode_kv(layer, self.row, k, v)
        self.engine.wait_buffer_load(slot)
        joined = []
        ring = self.engine.get_buffer_kv(slot, self.offloaded)
        fresh = self.engine.get_decode_kv(layer, self.start, self.row + 1)
        for old, new in zip(ring, fresh):
            buf = self.space.make(self.first + 1, self.cfg.kv_width)
            self.dev.copy((buf, 0, self.offloaded), old, self.engine.compute_stream)
            self.dev.copy((buf, self.offloaded, self.first + 1), new, self.engine.compute_stream)
            joined.append(buf)
        self.engine.record_buffer_compute_done(slot)
        self.load(layer + self.cfg.num_kv_buffers)
        self.kernel("attention", q=q, k=joined[0], v=joined[1], out=a, causal=False)
        self.space.drop(*joined)

    def after_layers(self):
        if self.row + 1 == self.cfg.block_size:
            manager = self.runner.manager
            self.engine.offload_decode_buffer(manager.get_all_cpu_blocks(self.seq_id)[-1], self.start)
            manager.mark_offloaded(self.seq_id, self.first + 1)


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.running = None

    def _require(self, seq_id):
        if self.running is None or self.running[0] != seq_id:
            raise KeyError(seq_id)
        return self.running[1]

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.running is not None:
            raise RuntimeError("one sequence at a time")
        tokens = list(token_ids)
        if not tokens or len(tokens) > self.cfg.max_seq_len:
            raise ValueError("length of the prompt")
        table = self.manager.allocate_cpu_only(seq_id, len(tokens))
        self.running = seq_id, len(tokens)
        with Workspace(self) as space:
            PrefillPass(self, space, seq_id, tokens, table).run()

    def run_layerwise_offload_decode(self, seq_id, token_id):
        position = self._require(seq_id)
        if position >= self.cfg.max_seq_len:
            raise ValueError("the sequence is as long as it can be")
        self.manager.may_append(seq_id)
        self.running = seq_id, position + 1
        with Workspace(self) as space:
            DecodePass(self, space, seq_id, token_id, position).run()

    def finish(self, seq_id):
        self._require(seq_id)
        self.manager.deallocate(seq_id)
        self.running = None
