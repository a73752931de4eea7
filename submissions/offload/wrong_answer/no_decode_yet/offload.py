# offload.py


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1 or block_size < 1:
            raise ValueError
        self.block_size = block_size
        self.free_cpu_blocks = list(range(num_cpu_blocks))
        self.block_tables = {}
        self.length = {}
        self.prefill_len = {}

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1 or seq_id in self.block_tables:
            raise ValueError
        n = (num_tokens + self.block_size - 1) // self.block_size
        if len(self.free_cpu_blocks) < n:
            raise RuntimeError
        self.block_tables[seq_id] = self.free_cpu_blocks[:n]
        self.free_cpu_blocks = self.free_cpu_blocks[n:]
        self.length[seq_id] = num_tokens
        self.prefill_len[seq_id] = 0
        return list(self.block_tables[seq_id])

    def can_append(self, seq_id):
        return self.length[seq_id] % self.block_size != 0 or len(self.free_cpu_blocks) > 0

    def may_append(self, seq_id):
        if not self.can_append(seq_id):
            raise RuntimeError
        block = -1
        if self.length[seq_id] % self.block_size == 0:
            block = self.free_cpu_blocks.pop(0)
            self.block_tables[seq_id].append(block)
        self.length[seq_id] += 1
        return block

    def mark_offloaded(self, seq_id, num_tokens):
        if num_tokens < self.prefill_len[seq_id] or num_tokens > self.length[seq_id]:
            raise ValueError
        self.prefill_len[seq_id] = num_tokens

    def deallocate(self, seq_id):
        for b in reversed(self.block_tables[seq_id]):
            self.free_cpu_blocks.append(b)
        del self.block_tables[seq_id]
        del self.length[seq_id]
        del self.prefill_len[seq_id]

    def get_all_cpu_blocks(self, seq_id):
        return list(self.block_tables[seq_id])

    def get_prefilled_blocks(self, seq_id):
        n = (self.prefill_len[seq_id] + self.block_size - 1) // self.block_size
        return self.block_tables[seq_id][:n]

    def get_prefill_len(self, seq_id):
        return self.prefill_len[seq_id]


class OffloadEngine:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = dev.stream("compute")
        self.copy_stream = dev.stream("copy")
        n = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(n, cfg.kv_width)
        self.v_cache_cpu = dev.alloc_pinned(n, cfg.kv_width)
        n = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(n, cfg.kv_width, self.compute_stream)
        self.layer_v_cache = dev.alloc(n, cfg.kv_width, self.compute_stream)
        n = cfg.num_layers * cfg.block_size
        self.decode_k_buffer = dev.alloc(n, cfg.kv_width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(n, cfg.kv_width, self.compute_stream)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1 or len(cpu_block_ids) * self.cfg.block_size < total_tokens:
            raise ValueError
        self.dev.sync(self.compute_stream)
        for i, block in enumerate(cpu_block_ids):
            a = i * self.cfg.block_size
            b = min(a + self.cfg.block_size, total_tokens)
            row = (layer_id * self.cfg.num_cpu_blocks + block) * self.cfg.block_size
            self.dev.copy((self.k_cache_cpu, row, row + b - a), (k, a, b), self.copy_stream)
            self.dev.copy((self.v_cache_cpu, row, row + b - a), (v, a, b), self.copy_stream)
        self.dev.sync(self.copy_stream)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        raise NotImplementedError

    def wait_buffer_load(self, buffer_idx):
        raise NotImplementedError

    def get_buffer_kv(self, buffer_idx, num_tokens):
        row = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, row, row + num_tokens), (self.layer_v_cache, row, row + num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        raise NotImplementedError

    def store_decode_kv(self, layer_id, pos, k, v):
        pass

    def get_decode_kv(self, layer_id, start, end):
        pass


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.running = None

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.running is not None:
            raise RuntimeError
        n = len(token_ids)
        if n < 1 or n > self.cfg.max_seq_len:
            raise ValueError
        blocks = self.manager.allocate_cpu_only(seq_id, n)
        self.running = seq_id
        dev, cfg, s = self.dev, self.cfg, self.engine.compute_stream
        x = dev.alloc(n, cfg.hidden, s)
        h = dev.alloc(n, cfg.hidden, s)
        q = dev.alloc(n, cfg.q_width, s)
        k = dev.alloc(n, cfg.kv_width, s)
        v = dev.alloc(n, cfg.kv_width, s)
        out = dev.alloc(1, cfg.vocab, s)
        dev.launch("embed", s, tokens=list(token_ids), out=x)
        for layer in range(cfg.num_layers):
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="attention")
            dev.launch("q_proj", s, x=h, out=q, layer=layer)
            dev.launch("k_proj", s, x=h, out=k, layer=layer)
            dev.launch("v_proj", s, x=h, out=v, layer=layer)
            dev.launch("rotary", s, x=q, pos=0)
            dev.launch("rotary", s, x=k, pos=0)
            dev.launch("attention", s, q=q, k=k, v=v, out=q, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, blocks, n)
            dev.launch("o_proj", s, x=q, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="mlp")
            dev.launch("mlp", s, x=h, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)
        self.manager.mark_offloaded(seq_id, n)
        dev.launch("logits", s, x=(x, n - 1, n), out=out)
        dev.copy(self.logits, out, s)
        dev.sync()
        for buf in (x, h, q, k, v, out):
            dev.free(buf)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if seq_id != self.running:
            raise KeyError(seq_id)
        self.manager.may_append(seq_id)

    def finish(self, seq_id):
        if seq_id != self.running:
            raise KeyError(seq_id)
        self.manager.deallocate(seq_id)
        self.running = None
