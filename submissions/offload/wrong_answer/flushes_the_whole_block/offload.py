# Lab offload
# block manager + offload engine + model runner
# one stream computes, one stream copies between CPU and GPU


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1:
            raise ValueError
        if block_size < 1:
            raise ValueError
        self.block_size = block_size
        self.free_cpu_blocks = []
        i = 0
        while i < num_cpu_blocks:
            self.free_cpu_blocks.append(i)
            i = i + 1
        self.block_tables = {}
        self.length = {}
        self.offloaded = {}

    def blocks_needed(self, tokens):
        blocks = 0
        while blocks * self.block_size < tokens:
            blocks = blocks + 1
        return blocks

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError
        if seq_id in self.block_tables:
            raise ValueError
        needed = self.blocks_needed(num_tokens)
        if len(self.free_cpu_blocks) < needed:
            raise RuntimeError
        self.block_tables[seq_id] = []
        while needed > 0:
            self.block_tables[seq_id].append(self.free_cpu_blocks.pop(0))
            needed = needed - 1
        self.length[seq_id] = num_tokens
        self.offloaded[seq_id] = 0
        return self.get_all_cpu_blocks(seq_id)

    def can_append(self, seq_id):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)
        if self.length[seq_id] % self.block_size == 0:
            if len(self.free_cpu_blocks) == 0:
                return False
        return True

    def may_append(self, seq_id):
        if self.can_append(seq_id) == False:
            raise RuntimeError
        new_block = -1
        if self.length[seq_id] % self.block_size == 0:
            new_block = self.free_cpu_blocks.pop(0)
            self.block_tables[seq_id].append(new_block)
        self.length[seq_id] = self.length[seq_id] + 1
        return new_block

    def mark_offloaded(self, seq_id, num_tokens):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)
        if num_tokens < self.offloaded[seq_id]:
            raise ValueError
        if num_tokens > self.length[seq_id]:
            raise ValueError
        self.offloaded[seq_id] = num_tokens

    def deallocate(self, seq_id):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)
        table = self.block_tables[seq_id]
        i = len(table) - 1
        while i >= 0:
            self.free_cpu_blocks.append(table[i])
            i = i - 1
        del self.block_tables[seq_id]
        del self.length[seq_id]
        del self.offloaded[seq_id]

    def get_all_cpu_blocks(self, seq_id):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)
        answer = []
        for b in self.block_tables[seq_id]:
            answer.append(b)
        return answer

    def get_prefilled_cpu_blocks(self, seq_id):
        all_blocks = self.get_all_cpu_blocks(seq_id)
        n = self.blocks_needed(self.offloaded[seq_id])
        answer = []
        i = 0
        while i < n:
            answer.append(all_blocks[i])
            i = i + 1
        return answer

    def get_prefill_len(self, seq_id):
        if seq_id not in self.block_tables:
            raise KeyError(seq_id)
        return self.offloaded[seq_id]

    def get_decode_start_pos(self, seq_id):
        return self.get_prefill_len(seq_id) % self.block_size


class OffloadEngine:
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

        # one event per buffer for "loaded" and one for "used"
        self.loaded = []
        self.used = []
        i = 0
        while i < cfg.num_kv_buffers:
            self.loaded.append(dev.event())
            self.used.append(dev.event())
            i = i + 1

        # wait until the memory is really there
        dev.sync(self.compute_stream)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1:
            raise ValueError
        if len(cpu_block_ids) * self.cfg.block_size < total_tokens:
            raise ValueError
        # the kernels must be finished before we copy
        self.dev.sync(self.compute_stream)
        t = 0
        while t < total_tokens:
            block = cpu_block_ids[t // self.cfg.block_size]
            row = layer_id * self.cfg.num_cpu_blocks + block
            row = row * self.cfg.block_size + t % self.cfg.block_size
            self.dev.copy((self.k_cache_cpu, row, row + 1), (k, t, t + 1), self.copy_stream)
            self.dev.copy((self.v_cache_cpu, row, row + 1), (v, t, t + 1), self.copy_stream)
            t = t + 1
        # the caller may free k and v now
        done = self.dev.event()
        self.dev.record(done, self.copy_stream)
        self.dev.sync(done)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if valid_tokens < 1:
            raise ValueError
        if valid_tokens > self.cfg.max_seq_len:
            raise ValueError
        if len(cpu_block_table) * self.cfg.block_size < valid_tokens:
            raise ValueError
        self.dev.sync(self.used[buffer_idx])
        t = 0
        while t < valid_tokens:
            block = cpu_block_table[t // self.cfg.block_size]
            row = layer_id * self.cfg.num_cpu_blocks + block
            row = row * self.cfg.block_size + t % self.cfg.block_size
            to = buffer_idx * self.cfg.max_seq_len + t
            self.dev.copy((self.layer_k_cache, to, to + 1), (self.k_cache_cpu, row, row + 1), self.copy_stream)
            self.dev.copy((self.layer_v_cache, to, to + 1), (self.v_cache_cpu, row, row + 1), self.copy_stream)
            t = t + 1
        self.dev.record(self.loaded[buffer_idx], self.copy_stream)

    def wait_buffer_load(self, buffer_idx):
        self.dev.sync(self.loaded[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        first = buffer_idx * self.cfg.max_seq_len
        k = (self.layer_k_cache, first, first + num_tokens)
        v = (self.layer_v_cache, first, first + num_tokens)
        return k, v

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self.used[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if pos < 0:
            raise ValueError
        if pos >= self.cfg.block_size:
            raise ValueError
        row = layer_id * self.cfg.block_size + pos
        self.dev.copy((self.decode_k_buffer, row, row + 1), (k, 0, 1), self.compute_stream)
        self.dev.copy((self.decode_v_buffer, row, row + 1), (v, 0, 1), self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        first = layer_id * self.cfg.block_size
        k = (self.decode_k_buffer, first + start, first + end)
        v = (self.decode_v_buffer, first + start, first + end)
        return k, v

    def offload_decode_buffer(self, cpu_block, start):
        if start < 0:
            raise ValueError
        if start >= self.cfg.block_size:
            raise ValueError
        # the kernels must be finished before we copy
        self.dev.sync(self.compute_stream)
        layer = 0
        while layer < self.cfg.num_layers:
            r = 0
            while r < self.cfg.block_size:
                row = (layer * self.cfg.num_cpu_blocks + cpu_block) * self.cfg.block_size + r
                src = layer * self.cfg.block_size + r
                self.dev.copy((self.k_cache_cpu, row, row + 1), (self.decode_k_buffer, src, src + 1), self.copy_stream)
                self.dev.copy((self.v_cache_cpu, row, row + 1), (self.decode_v_buffer, src, src + 1), self.copy_stream)
                r = r + 1
            layer = layer + 1
        # the rows are used again soon, so wait here
        done = self.dev.event()
        self.dev.record(done, self.copy_stream)
        self.dev.sync(done)


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.running = []      # empty list: nothing runs
        self.length = 0

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if len(self.running) > 0:
            raise RuntimeError
        n = len(token_ids)
        if n < 1:
            raise ValueError
        if n > self.cfg.max_seq_len:
            raise ValueError
        blocks = self.manager.allocate_cpu_only(seq_id, n)
        self.running.append(seq_id)
        self.length = n

        dev = self.dev
        cfg = self.cfg
        s = self.engine.compute_stream

        # all memory of the prefill, used again in every layer
        x = dev.alloc(n, cfg.hidden, s)
        h = dev.alloc(n, cfg.hidden, s)
        o = dev.alloc(n, cfg.hidden, s)
        q = dev.alloc(n, cfg.q_width, s)
        a = dev.alloc(n, cfg.q_width, s)
        k = dev.alloc(n, cfg.kv_width, s)
        v = dev.alloc(n, cfg.kv_width, s)

        tokens = []
        for t in token_ids:
            tokens.append(t)
        dev.launch("embed", s, tokens=tokens, out=x)

        layer = 0
        while layer < cfg.num_layers:
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="attention")
            dev.launch("q_proj", s, x=h, out=q, layer=layer)
            dev.launch("k_proj", s, x=h, out=k, layer=layer)
            dev.launch("v_proj", s, x=h, out=v, layer=layer)
            dev.launch("rotary", s, x=q, pos=0)
            dev.launch("rotary", s, x=k, pos=0)
            dev.launch("attention", s, q=q, k=k, v=v, out=a, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, blocks, n)
            dev.launch("o_proj", s, x=a, out=o, layer=layer)
            dev.launch("add", s, x=x, y=o, out=x)
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="mlp")
            dev.launch("mlp", s, x=h, out=o, layer=layer)
            dev.launch("add", s, x=x, y=o, out=x)
            layer = layer + 1

        self.manager.mark_offloaded(seq_id, n)

        out = dev.alloc(1, cfg.vocab, s)
        dev.launch("logits", s, x=(x, n - 1, n), out=out)
        dev.copy(self.logits, out, s)
        dev.sync(s)

        dev.free(out)
        dev.free(x)
        dev.free(h)
        dev.free(o)
        dev.free(q)
        dev.free(a)
        dev.free(k)
        dev.free(v)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if seq_id not in self.running:
            raise KeyError(seq_id)
        if self.length == self.cfg.max_seq_len:
            raise ValueError
        if self.manager.can_append(seq_id) == False:
            raise RuntimeError

        dev = self.dev
        cfg = self.cfg
        engine = self.engine
        s = engine.compute_stream

        p = self.length
        pos = p % cfg.block_size
        self.manager.may_append(seq_id)
        self.length = self.length + 1
        num_offloaded = self.manager.get_prefill_len(seq_id)
        start = self.manager.get_decode_start_pos(seq_id)
        blocks = self.manager.get_prefilled_cpu_blocks(seq_id)

        # first loads
        layer = 0
        while layer < cfg.num_kv_buffers and layer < cfg.num_layers:
            engine.load_layer_kv_to_buffer(layer, layer, blocks, num_offloaded)
            layer = layer + 1

        x = dev.alloc(1, cfg.hidden, s)
        h = dev.alloc(1, cfg.hidden, s)
        o = dev.alloc(1, cfg.hidden, s)
        q = dev.alloc(1, cfg.q_width, s)
        a = dev.alloc(1, cfg.q_width, s)
        k = dev.alloc(1, cfg.kv_width, s)
        v = dev.alloc(1, cfg.kv_width, s)
        dev.launch("embed", s, tokens=[token_id], out=x)

        layer = 0
        while layer < cfg.num_layers:
            buffer = layer % cfg.num_kv_buffers
            engine.wait_buffer_load(buffer)

            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="attention")
            dev.launch("q_proj", s, x=h, out=q, layer=layer)
            dev.launch("k_proj", s, x=h, out=k, layer=layer)
            dev.launch("v_proj", s, x=h, out=v, layer=layer)
            dev.launch("rotary", s, x=q, pos=p)
            dev.launch("rotary", s, x=k, pos=p)

            ring_k, ring_v = engine.get_buffer_kv(buffer, num_offloaded)
            all_k = [ring_k]
            all_v = [ring_v]
            if pos > start:
                dec_k, dec_v = engine.get_decode_kv(layer, start, pos)
                all_k.append(dec_k)
                all_v.append(dec_v)
            all_k.append((k, 0, 1))
            all_v.append((v, 0, 1))
            dev.launch("attention", s, q=q, k=all_k, v=all_v, out=a, causal=False)
            engine.store_decode_kv(layer, pos, k, v)
            engine.record_buffer_compute_done(buffer)

            # queue up the rest of the layer first, the next load is for later
            dev.launch("o_proj", s, x=a, out=o, layer=layer)
            dev.launch("add", s, x=x, y=o, out=x)
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="mlp")
            dev.launch("mlp", s, x=h, out=o, layer=layer)
            dev.launch("add", s, x=x, y=o, out=x)

            next_layer = layer + cfg.num_kv_buffers
            if next_layer < cfg.num_layers:
                engine.load_layer_kv_to_buffer(buffer, next_layer, blocks, num_offloaded)
            layer = layer + 1

        if pos == cfg.block_size - 1:
            table = self.manager.get_all_cpu_blocks(seq_id)
            engine.offload_decode_buffer(table[len(table) - 1], start)
            self.manager.mark_offloaded(seq_id, p + 1)

        out = dev.alloc(1, cfg.vocab, s)
        dev.launch("logits", s, x=x, out=out)
        dev.copy(self.logits, out, s)
        dev.sync(s)

        dev.free(out)
        dev.free(x)
        dev.free(h)
        dev.free(o)
        dev.free(q)
        dev.free(a)
        dev.free(k)
        dev.free(v)

    def finish(self, seq_id):
        if seq_id not in self.running:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.running = []
        self.length = 0
