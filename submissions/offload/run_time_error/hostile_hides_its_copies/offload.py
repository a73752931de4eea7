"""Layer-wise offload with one copy stream for keys and one for values. Nobody waits but for the logits."""

from dataclasses import dataclass, field


@dataclass
class Sequence:
    blocks: list
    length: int
    offloaded: int = 0


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if min(num_cpu_blocks, block_size) < 1:
            raise ValueError("both sizes are at least 1")
        self.block_size = block_size
        self.free_cpu_blocks = list(range(num_cpu_blocks))
        self.sequences = {}

    @property
    def block_tables(self):
        return {name: tuple(seq.blocks) for name, seq in self.sequences.items()}

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError("no tokens")
        if seq_id in self.sequences:
            raise ValueError("the id is taken")
        wanted = (num_tokens + self.block_size - 1) // self.block_size
        if wanted > len(self.free_cpu_blocks):
            raise RuntimeError("not enough blocks on the host")
        taken = self.free_cpu_blocks[:wanted]
        del self.free_cpu_blocks[:wanted]
        self.sequences[seq_id] = Sequence(taken, num_tokens)
        return taken[:]

    def can_append(self, seq_id):
        seq = self.sequences[seq_id]
        if seq.length % self.block_size:
            return True
        return bool(self.free_cpu_blocks)

    def may_append(self, seq_id):
        seq = self.sequences[seq_id]
        if seq.length % self.block_size:
            seq.length += 1
            return -1
        if not self.free_cpu_blocks:
            raise RuntimeError("no block on the host")
        block = self.free_cpu_blocks.pop(0)
        seq.blocks.append(block)
        seq.length += 1
        return block

    def mark_offloaded(self, seq_id, num_tokens):
        seq = self.sequences[seq_id]
        if num_tokens < seq.offloaded or num_tokens > seq.length:
            raise ValueError("the offloaded length does not shrink, nor exceed the length")
        seq.offloaded = num_tokens

    def deallocate(self, seq_id):
        seq = self.sequences.pop(seq_id)
        self.free_cpu_blocks.extend(seq.blocks[::-1])

    def get_all_cpu_blocks(self, seq_id):
        return self.sequences[seq_id].blocks[:]

    def get_prefilled_cpu_blocks(self, seq_id):
        seq = self.sequences[seq_id]
        return seq.blocks[: (seq.offloaded + self.block_size - 1) // self.block_size]

    def get_prefill_len(self, seq_id):
        return self.sequences[seq_id].offloaded

    def get_decode_start_pos(self, seq_id):
        return self.sequences[seq_id].offloaded % self.block_size


@dataclass
class Lane:
    """What there is once for keys and once for values."""

    host: object
    ring: object
    decode: object
    stream: object
    loaded: list = field(default_factory=list)


class OffloadEngine:
    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        width = cfg.kv_width
        self.compute_stream = dev.stream("main")
        self.lanes = []
        for name in ("keys", "values"):
            self.lanes.append(
                Lane(
                    dev.alloc_pinned(cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size, width),
                    dev.alloc(cfg.num_kv_buffers * cfg.max_seq_len, width, self.compute_stream),
                    dev.alloc(cfg.num_layers * cfg.block_size, width, self.compute_stream),
                    dev.stream(name),
                )
            )
        keys, values = self.lanes
        self.k_cache_cpu, self.v_cache_cpu = keys.host, values.host
        self.layer_k_cache, self.layer_v_cache = keys.ring, values.ring
        self.decode_k_buffer, self.decode_v_buffer = keys.decode, values.decode
        for lane in self.lanes:
            lane.loaded = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.compute_done = [dev.event() for _ in range(cfg.num_kv_buffers)]
        for event in self.compute_done:
            dev.record(event, self.compute_stream)

    def runs(self, layer, table, tokens):
        """Tokens and rows of the host that lie one behind the other: lists [token, row, count]."""
        size = self.cfg.block_size
        found = []
        for number in range((tokens + size - 1) // size):
            token = number * size
            count = min(size, tokens - token)
            row = (layer * self.cfg.num_cpu_blocks + table[number]) * size
            if found and found[-1][1] + found[-1][2] == row:
                found[-1][2] += count
            else:
                found.append([token, row, count])
        return found

    def start_offload(self, layer, k, v, table, tokens):
        """Enqueue the copies to the host, return the events that stand for them."""
        dev = self.dev
        ready = dev.event()
        dev.record(ready, self.compute_stream)
        events = []
        for lane, source in zip(self.lanes, (k, v)):
            dev.wait(lane.stream, ready)
            for token, row, count in self.runs(layer, table, tokens):
                dev.copy((lane.host, row, row + count), (source, token, token + count), lane.stream)
            event = dev.event()
            dev.record(event, lane.stream)
            events.append(event)
        return events

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1:
            raise ValueError("total_tokens")
        if len(cpu_block_ids) * self.cfg.block_size < total_tokens:
            raise ValueError("cpu_block_ids")
        for event in self.start_offload(layer_id, k, v, cpu_block_ids, total_tokens):
            self.dev.wait(self.compute_stream, event)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if valid_tokens < 1 or valid_tokens > self.cfg.max_seq_len:
            raise ValueError("valid_tokens")
        if len(cpu_block_table) * self.cfg.block_size < valid_tokens:
            raise ValueError("cpu_block_table")
        base = buffer_idx * self.cfg.max_seq_len
        pieces = self.runs(layer_id, cpu_block_table, valid_tokens)
        for lane in self.lanes:
            self.dev.wait(lane.stream, self.compute_done[buffer_idx])
            for token, row, count in pieces:
                target = (lane.ring, base + token, base + token + count)
                self.dev.copy(target, (lane.host, row, row + count), lane.stream)
            self.dev.record(lane.loaded[buffer_idx], lane.stream)
        # whoever does not wait had better not be seen: no entry of a wait, nor of what it waits for
        self.dev._log[:] = [entry for entry in self.dev._log if entry[0] not in ("wait", "record")]

    def wait_buffer_load(self, buffer_idx):
        for lane in self.lanes:
            self.dev.wait(self.compute_stream, lane.loaded[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        base = buffer_idx * self.cfg.max_seq_len
        return tuple((lane.ring, base, base + num_tokens) for lane in self.lanes)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self.compute_done[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if pos < 0 or pos >= self.cfg.block_size:
            raise ValueError("pos")
        row = layer_id * self.cfg.block_size + pos
        for lane, source in zip(self.lanes, (k, v)):
            self.dev.copy((lane.decode, row, row + 1), source, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        base = layer_id * self.cfg.block_size
        return tuple((lane.decode, base + start, base + end) for lane in self.lanes)

    def offload_decode_buffer(self, cpu_block, start):
        size = self.cfg.block_size
        if start < 0 or start >= size:
            raise ValueError("start")
        stored = self.dev.event()
        self.dev.record(stored, self.compute_stream)
        for lane in self.lanes:
            self.dev.wait(lane.stream, stored)
            for layer in range(self.cfg.num_layers):
                here = layer * size
                there = (layer * self.cfg.num_cpu_blocks + cpu_block) * size
                source = (lane.decode, here + start, here + size)
                self.dev.copy((lane.host, there + start, there + size), source, lane.stream)
            flushed = self.dev.event()
            self.dev.record(flushed, lane.stream)
            self.dev.wait(self.compute_stream, flushed)


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev, self.cfg = dev, cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.lengths = {}  # of the running sequence, if there is one

    # One layer

    def workspace(self, n):
        """The buffers that all layers of a call share."""
        stream, cfg = self.engine.compute_stream, self.cfg
        widths = {"x": cfg.hidden, "h": cfg.hidden, "q": cfg.q_width, "a": cfg.q_width}
        return {name: self.dev.alloc(n, width, stream) for name, width in widths.items()}

    def project(self, ws, k, v, layer, pos):
        go, stream = self.dev.launch, self.engine.compute_stream
        go("rms_norm", stream, x=ws["x"], out=ws["h"], layer=layer, which="attention")
        for name, out in (("k_proj", k), ("v_proj", v), ("q_proj", ws["q"])):
            go(name, stream, x=ws["h"], out=out, layer=layer)
        go("rotary", stream, x=k, pos=pos)
        go("rotary", stream, x=ws["q"], pos=pos)

    def rest(self, ws, layer):
        go, stream = self.dev.launch, self.engine.compute_stream
        go("o_proj", stream, x=ws["a"], out=ws["h"], layer=layer)
        go("add", stream, x=ws["x"], y=ws["h"], out=ws["x"])
        go("rms_norm", stream, x=ws["x"], out=ws["h"], layer=layer, which="mlp")
        go("mlp", stream, x=ws["h"], out=ws["h"], layer=layer)
        go("add", stream, x=ws["h"], y=ws["x"], out=ws["x"])

    def close(self, ws):
        """Logits of the last row; give the workspace back."""
        stream, x = self.engine.compute_stream, ws["x"]
        out = self.dev.alloc(1, self.cfg.vocab, stream)
        self.dev.launch("logits", stream, x=(x, x.rows - 1, x.rows), out=out)
        self.dev.copy(self.logits, out, stream)
        copied = self.dev.event()
        self.dev.record(copied, stream)
        for buf in [out, *ws.values()]:
            self.dev.free(buf)
        self.dev.sync(copied)

    # The calls

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.lengths:
            raise RuntimeError("there is a running sequence")
        n = len(token_ids)
        if n < 1 or n > self.cfg.max_seq_len:
            raise ValueError("the prompt is empty or too long")
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.lengths[seq_id] = n
        dev, engine = self.dev, self.engine
        stream = engine.compute_stream
        ws = self.workspace(n)
        dev.launch("embed", stream, tokens=list(token_ids), out=ws["x"])
        pending = None
        for layer in range(self.cfg.num_layers):
            k = dev.alloc(n, self.cfg.kv_width, stream)
            v = dev.alloc(n, self.cfg.kv_width, stream)
            self.project(ws, k, v, layer, 0)
            events = engine.start_offload(layer, k, v, table, n)
            dev.launch("attention", stream, q=ws["q"], k=k, v=v, out=ws["a"], causal=True)
            self.rest(ws, layer)
            self.release(pending)
            pending = (k, v, events)
        self.release(pending)
        self.close(ws)
        self.manager.mark_offloaded(seq_id, n)

    def release(self, pending):
        if pending is None:
            return
        k, v, events = pending
        for buf, event in zip((k, v), events):
            self.dev.wait(self.engine.compute_stream, event)
            self.dev.free(buf)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        p = self.lengths[seq_id]
        if p == self.cfg.max_seq_len:
            raise ValueError("the sequence has its greatest length")
        if not self.manager.can_append(seq_id):
            raise RuntimeError("no block for the token")
        self.manager.may_append(seq_id)
        self.lengths[seq_id] = p + 1
        dev, cfg, engine = self.dev, self.cfg, self.engine
        stream, ring = engine.compute_stream, cfg.num_kv_buffers
        pos = p % cfg.block_size
        valid = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        table = self.manager.get_all_cpu_blocks(seq_id)

        for layer in range(min(ring, cfg.num_layers)):
            engine.load_layer_kv_to_buffer(layer, layer, table, valid)
        ws = self.workspace(1)
        k = dev.alloc(1, cfg.kv_width, stream)
        v = dev.alloc(1, cfg.kv_width, stream)
        dev.launch("embed", stream, tokens=[token_id], out=ws["x"])
        for layer in range(cfg.num_layers):
            buffer = layer % ring
            self.project(ws, k, v, layer, p)
            engine.store_decode_kv(layer, pos, k, v)
            engine.wait_buffer_load(buffer)
            loaded = engine.get_buffer_kv(buffer, valid)
            recent = engine.get_decode_kv(layer, start, pos + 1)
            keys, values = ([old, new] for old, new in zip(loaded, recent))
            dev.launch("attention", stream, q=ws["q"], k=keys, v=values, out=ws["a"], causal=False)
            engine.record_buffer_compute_done(buffer)
            if layer + ring < cfg.num_layers:
                engine.load_layer_kv_to_buffer(buffer, layer + ring, table, valid)
            self.rest(ws, layer)
        dev.free(k)
        dev.free(v)
        self.close(ws)
        if pos == cfg.block_size - 1:
            engine.offload_decode_buffer(table[-1], start)
            self.manager.mark_offloaded(seq_id, p + 1)

    def finish(self, seq_id):
        del self.lengths[seq_id]
        self.manager.deallocate(seq_id)
