import math


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1:
            raise ValueError("num_cpu_blocks")
        if block_size < 1:
            raise ValueError("block_size")
        self.block_size = block_size
        self.free_cpu_blocks = [i for i in range(num_cpu_blocks)]
        self.block_tables = {}
        self.lengths = {}
        self.prefill_lens = {}

    def check_id(self, seq_id):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError("num_tokens must be at least 1")
        if seq_id in self.block_tables:
            raise ValueError("id is in use")
        need = math.ceil(num_tokens / self.block_size)
        if need > len(self.free_cpu_blocks):
            raise RuntimeError("out of CPU blocks")
        self.block_tables[seq_id] = self.free_cpu_blocks[:need]
        self.free_cpu_blocks = self.free_cpu_blocks[need:]
        self.lengths[seq_id] = num_tokens
        self.prefill_lens[seq_id] = 0
        return self.block_tables[seq_id][:]

    def can_append(self, seq_id):
        self.check_id(seq_id)
        if self.lengths[seq_id] % self.block_size != 0:
            return True
        return len(self.free_cpu_blocks) >= 1

    def may_append(self, seq_id):
        if not self.can_append(seq_id):
            raise RuntimeError("out of CPU blocks")
        new_block = -1
        if self.lengths[seq_id] % self.block_size == 0:
            new_block = self.free_cpu_blocks.pop(0)
            self.block_tables[seq_id].append(new_block)
        self.lengths[seq_id] += 1
        return new_block

    def mark_offloaded(self, seq_id, num_tokens):
        self.check_id(seq_id)
        if num_tokens < self.prefill_lens[seq_id] or num_tokens > self.lengths[seq_id]:
            raise ValueError("num_tokens")
        self.prefill_lens[seq_id] = num_tokens

    def deallocate(self, seq_id):
        self.check_id(seq_id)
        table = self.block_tables.pop(seq_id)
        for block in reversed(table):
            self.free_cpu_blocks.append(block)
        del self.lengths[seq_id]
        del self.prefill_lens[seq_id]

    def get_all_cpu_blocks(self, seq_id):
        self.check_id(seq_id)
        return self.block_tables[seq_id][:]

    def get_prefilled_cpu_blocks(self, seq_id):
        self.check_id(seq_id)
        count = math.ceil(self.prefill_lens[seq_id] / self.block_size)
        return self.block_tables[seq_id][:count]

    def get_prefill_len(self, seq_id):
        self.check_id(seq_id)
        return self.prefill_lens[seq_id]

    def get_decode_start_pos(self, seq_id):
        return self.get_prefill_len(seq_id) % self.block_size


class OffloadEngine:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = dev.stream("compute")
        # keys and values are loaded by one stream each
        self.k_stream = dev.stream("load k")
        self.v_stream = dev.stream("load v")
        self.out_stream = dev.stream("out")

        n = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(n, cfg.kv_width)
        self.v_cache_cpu = dev.alloc_pinned(n, cfg.kv_width)
        n = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(n, cfg.kv_width, self.compute_stream)
        self.layer_v_cache = dev.alloc(n, cfg.kv_width, self.compute_stream)
        n = cfg.num_layers * cfg.block_size
        self.decode_k_buffer = dev.alloc(n, cfg.kv_width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(n, cfg.kv_width, self.compute_stream)
        dev.sync(self.compute_stream)

        self.k_loaded = []
        self.v_loaded = []
        self.compute_done = []
        for i in range(cfg.num_kv_buffers):
            self.k_loaded.append(dev.event())
            self.v_loaded.append(dev.event())
            self.compute_done.append(dev.event())

    def runs(self, blocks, total):
        """[first token, first row in layer 0, count] for runs of neighbouring blocks"""
        bs = self.cfg.block_size
        runs = []
        t = 0
        while t < total:
            block = blocks[t // bs]
            count = min(bs, total - t)
            if runs and runs[-1][1] + runs[-1][2] == block * bs:
                runs[-1][2] += count
            else:
                runs.append([t, block * bs, count])
            t += bs
        return runs

    def begin_out(self):
        # the out stream goes on after everything that was computed
        event = self.dev.event()
        self.dev.record(event, self.compute_stream)
        self.dev.wait(self.out_stream, event)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        bs = self.cfg.block_size
        if total_tokens < 1 or len(cpu_block_ids) < math.ceil(total_tokens / bs):
            raise ValueError("total_tokens")
        self.begin_out()
        offset = layer_id * self.cfg.num_cpu_blocks * bs
        for t, row, count in self.runs(cpu_block_ids, total_tokens):
            row += offset
            self.dev.copy((self.k_cache_cpu, row, row + count), (k, t, t + count), self.out_stream)
            self.dev.copy((self.v_cache_cpu, row, row + count), (v, t, t + count), self.out_stream)
        self.dev.sync(self.out_stream)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        bs = self.cfg.block_size
        if valid_tokens < 1 or valid_tokens > self.cfg.max_seq_len:
            raise ValueError("valid_tokens")
        if len(cpu_block_table) < math.ceil(valid_tokens / bs):
            raise ValueError("cpu_block_table")
        self.dev.wait(self.k_stream, self.compute_done[buffer_idx])
        self.dev.wait(self.v_stream, self.compute_done[buffer_idx])
        offset = layer_id * self.cfg.num_cpu_blocks * bs
        start = buffer_idx * self.cfg.max_seq_len
        for t, row, count in self.runs(cpu_block_table, valid_tokens):
            src, dst = offset + row, start + t
            self.dev.copy((self.layer_k_cache, dst, dst + count), (self.k_cache_cpu, src, src + count), self.k_stream)
            self.dev.copy((self.layer_v_cache, dst, dst + count), (self.v_cache_cpu, src, src + count), self.v_stream)
        self.dev.record(self.k_loaded[buffer_idx], self.k_stream)
        self.dev.record(self.v_loaded[buffer_idx], self.v_stream)

    def wait_buffer_load(self, buffer_idx):
        self.dev.sync(self.k_loaded[buffer_idx])
        self.dev.sync(self.v_loaded[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        first = buffer_idx * self.cfg.max_seq_len
        last = first + num_tokens
        return (self.layer_k_cache, first, last), (self.layer_v_cache, first, last)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self.compute_done[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if pos < 0 or pos >= self.cfg.block_size:
            raise ValueError("pos")
        row = layer_id * self.cfg.block_size + pos
        self.dev.copy((self.decode_k_buffer, row, row + 1), k, self.compute_stream)
        self.dev.copy((self.decode_v_buffer, row, row + 1), v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        first = layer_id * self.cfg.block_size + start
        last = layer_id * self.cfg.block_size + end
        return (self.decode_k_buffer, first, last), (self.decode_v_buffer, first, last)

    def offload_decode_buffer(self, cpu_block, start):
        bs = self.cfg.block_size
        if start < 0 or start >= bs:
            raise ValueError("start")
        self.begin_out()
        for layer in range(self.cfg.num_layers):
            k, v = self.get_decode_kv(layer, 0, bs)
            block_row = (layer * self.cfg.num_cpu_blocks + cpu_block) * bs
            rows = (block_row, block_row + bs)
            self.dev.copy((self.k_cache_cpu, *rows), k, self.out_stream)
            self.dev.copy((self.v_cache_cpu, *rows), v, self.out_stream)
        self.dev.sync(self.out_stream)


NOTHING = object()


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.current = NOTHING
        self.num_tokens = 0

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.current is not NOTHING:
            raise RuntimeError("there is a running sequence")
        token_ids = list(token_ids)
        n = len(token_ids)
        if n < 1 or n > self.cfg.max_seq_len:
            raise ValueError("token_ids")
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.current = seq_id
        self.num_tokens = n

        dev, cfg, engine = self.dev, self.cfg, self.engine
        s = engine.compute_stream
        # the same workspace serves all layers
        x = dev.alloc(n, cfg.hidden, s)
        h = dev.alloc(n, cfg.hidden, s)
        q = dev.alloc(n, cfg.q_width, s)
        a = dev.alloc(n, cfg.q_width, s)
        k = dev.alloc(n, cfg.kv_width, s)
        v = dev.alloc(n, cfg.kv_width, s)
        dev.launch("embed", s, tokens=token_ids, out=x)
        for layer in range(cfg.num_layers):
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="attention")
            dev.launch("q_proj", s, x=h, out=q, layer=layer)
            dev.launch("k_proj", s, x=h, out=k, layer=layer)
            dev.launch("v_proj", s, x=h, out=v, layer=layer)
            dev.launch("rotary", s, x=q, pos=0)
            dev.launch("rotary", s, x=k, pos=0)
            engine.offload_layer_kv_to_cpu(layer, k, v, table, n)
            dev.launch("attention", s, q=q, k=k, v=v, out=a, causal=True)
            dev.launch("o_proj", s, x=a, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="mlp")
            dev.launch("mlp", s, x=h, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)
        self.manager.mark_offloaded(seq_id, n)
        out = dev.alloc(1, cfg.vocab, s)
        dev.launch("logits", s, x=(x, n - 1, n), out=out)
        dev.copy(self.logits, out, s)
        dev.sync()
        for buf in (x, h, q, a, k, v, out):
            dev.free(buf)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if self.current is NOTHING or self.current != seq_id:
            raise KeyError(seq_id)
        if self.num_tokens >= self.cfg.max_seq_len:
            raise ValueError("max_seq_len")
        p = self.num_tokens
        self.manager.may_append(seq_id)  # raises if there is no block
        self.num_tokens += 1

        dev, cfg, engine = self.dev, self.cfg, self.engine
        s = engine.compute_stream
        pos = p % cfg.block_size
        P = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        table = self.manager.get_all_cpu_blocks(seq_id)

        for layer in range(cfg.num_layers):
            if layer < cfg.num_kv_buffers:
                engine.load_layer_kv_to_buffer(layer, layer, table, P)

        x = dev.alloc(1, cfg.hidden, s)
        h = dev.alloc(1, cfg.hidden, s)
        q = dev.alloc(1, cfg.q_width, s)
        k = dev.alloc(1, cfg.kv_width, s)
        v = dev.alloc(1, cfg.kv_width, s)
        dev.launch("embed", s, tokens=[token_id], out=x)
        for layer in range(cfg.num_layers):
            i = layer % cfg.num_kv_buffers
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="attention")
            dev.launch("q_proj", s, x=h, out=q, layer=layer)
            dev.launch("k_proj", s, x=h, out=k, layer=layer)
            dev.launch("v_proj", s, x=h, out=v, layer=layer)
            dev.launch("rotary", s, x=q, pos=p)
            dev.launch("rotary", s, x=k, pos=p)
            # the new row is read from the decode buffer
            engine.store_decode_kv(layer, pos, k, v)
            k_new, v_new = engine.get_decode_kv(layer, start, pos + 1)
            engine.wait_buffer_load(i)
            k_old, v_old = engine.get_buffer_kv(i, P)
            dev.launch("attention", s, q=q, k=[k_old, k_new], v=[v_old, v_new], out=q, causal=False)
            engine.record_buffer_compute_done(i)
            following = layer + cfg.num_kv_buffers
            if following < cfg.num_layers:
                engine.load_layer_kv_to_buffer(i, following, table, P)
            dev.launch("o_proj", s, x=q, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="mlp")
            dev.launch("mlp", s, x=h, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)

        out = dev.alloc(1, cfg.vocab, s)
        dev.launch("logits", s, x=x, out=out)
        dev.copy(self.logits, out, s)
        dev.sync()
        for buf in (x, h, q, k, v, out):
            dev.free(buf)

        if pos == cfg.block_size - 1:
            engine.offload_decode_buffer(table[-1], start)
            self.manager.mark_offloaded(seq_id, p + 1)

    def finish(self, seq_id):
        if self.current is NOTHING or self.current != seq_id:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.current = NOTHING
