"""offload.py: KV cache offload, block manager, engine and runner."""


class HybridKVCacheManager:

    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks < 1 or block_size < 1:
            raise ValueError
        self.bs = block_size
        self.free_cpu_blocks = list(range(num_cpu_blocks))
        self.block_tables = {}
        self.info = {}  # id -> [length, P]

    def nblocks(self, tokens):
        return (tokens + self.bs - 1) // self.bs

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError
        if seq_id in self.info:
            raise ValueError
        n = self.nblocks(num_tokens)
        if n > len(self.free_cpu_blocks):
            raise RuntimeError
        self.block_tables[seq_id] = self.free_cpu_blocks[:n]
        self.free_cpu_blocks = self.free_cpu_blocks[n:]
        self.info[seq_id] = [num_tokens, 0]
        return list(self.block_tables[seq_id])

    def can_append(self, seq_id):
        length = self.info[seq_id][0]
        if length % self.bs == 0:
            return len(self.free_cpu_blocks) > 0
        return True

    def may_append(self, seq_id):
        if not self.can_append(seq_id):
            raise RuntimeError
        result = -1
        if self.info[seq_id][0] % self.bs == 0:
            result = self.free_cpu_blocks.pop(0)
            self.block_tables[seq_id].append(result)
        self.info[seq_id][0] += 1
        return result

    def mark_offloaded(self, seq_id, num_tokens):
        length, P = self.info[seq_id]
        if num_tokens < P or num_tokens > length:
            raise ValueError
        self.info[seq_id][1] = num_tokens

    def deallocate(self, seq_id):
        del self.info[seq_id]
        for b in reversed(self.block_tables.pop(seq_id)):
            self.free_cpu_blocks.append(b)

    def get_all_cpu_blocks(self, seq_id):
        return list(self.block_tables[seq_id])

    def get_prefilled_cpu_blocks(self, seq_id):
        return self.block_tables[seq_id][:self.nblocks(self.info[seq_id][1])]

    def get_prefill_len(self, seq_id):
        return self.info[seq_id][1]

    def get_decode_start_pos(self, seq_id):
        return self.info[seq_id][1] % self.bs


class OffloadEngine:

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = s = dev.stream("s")
        w = cfg.kv_width
        n = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(n, w)
        self.v_cache_cpu = dev.alloc_pinned(n, w)
        n = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(n, w, s)
        self.layer_v_cache = dev.alloc(n, w, s)
        n = cfg.num_layers * cfg.block_size
        self.decode_k_buffer = dev.alloc(n, w, s)
        self.decode_v_buffer = dev.alloc(n, w, s)

    def cp(self, dst, dlo, src, slo, n):
        self.dev.copy((dst, dlo, dlo + n), (src, slo, slo + n), self.compute_stream)

    def host_row(self, layer, token, table):
        b, r = divmod(token, self.cfg.block_size)
        return (layer * self.cfg.num_cpu_blocks + table[b]) * self.cfg.block_size + r

    def enough(self, table, tokens):
        return len(table) * self.cfg.block_size >= tokens

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1 or not self.enough(cpu_block_ids, total_tokens):
            raise ValueError
        for t in range(total_tokens):
            row = self.host_row(layer_id, t, cpu_block_ids)
            self.cp(self.k_cache_cpu, row, k, t, 1)
            self.cp(self.v_cache_cpu, row, v, t, 1)
        self.dev.sync()

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if not 1 <= valid_tokens <= self.cfg.max_seq_len or not self.enough(cpu_block_table, valid_tokens):
            raise ValueError
        for t in range(valid_tokens):
            row = self.host_row(layer_id, t, cpu_block_table)
            to = buffer_idx * self.cfg.max_seq_len + t
            self.cp(self.layer_k_cache, to, self.k_cache_cpu, row, 1)
            self.cp(self.layer_v_cache, to, self.v_cache_cpu, row, 1)
        self.dev.sync()

    def wait_buffer_load(self, buffer_idx):
        self.dev.sync()

    def get_buffer_kv(self, buffer_idx, num_tokens):
        a = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, a, a + num_tokens), (self.layer_v_cache, a, a + num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.sync()

    def store_decode_kv(self, layer_id, pos, k, v):
        if not 0 <= pos < self.cfg.block_size:
            raise ValueError
        self.cp(self.decode_k_buffer, layer_id * self.cfg.block_size + pos, k, 0, 1)
        self.cp(self.decode_v_buffer, layer_id * self.cfg.block_size + pos, v, 0, 1)
        self.dev.sync()

    def get_decode_kv(self, layer_id, start, end):
        a = layer_id * self.cfg.block_size
        return (self.decode_k_buffer, a + start, a + end), (self.decode_v_buffer, a + start, a + end)

    def offload_decode_buffer(self, cpu_block, start):
        bs = self.cfg.block_size
        if not 0 <= start < bs:
            raise ValueError
        for layer in range(self.cfg.num_layers):
            row = (layer * self.cfg.num_cpu_blocks + cpu_block) * bs + start
            self.cp(self.k_cache_cpu, row, self.decode_k_buffer, layer * bs + start, bs - start)
            self.cp(self.v_cache_cpu, row, self.decode_v_buffer, layer * bs + start, bs - start)
        self.dev.sync()


class ModelRunner:

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.busy = {}

    def new(self, n, w):
        return self.dev.alloc(n, w, self.engine.compute_stream)

    def k(self, name, **args):
        self.dev.launch(name, self.engine.compute_stream, **args)

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        cfg, n = self.cfg, len(token_ids)
        if self.busy:
            raise RuntimeError
        if n < 1 or n > cfg.max_seq_len:
            raise ValueError
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.busy[seq_id] = n
        x, h = self.new(n, cfg.hidden), self.new(n, cfg.hidden)
        q = self.new(n, cfg.q_width)
        ks = []
        vs = []
        self.k("embed", tokens=list(token_ids), out=x)
        for layer in range(cfg.num_layers):
            ks.append(self.new(n, cfg.kv_width))
            vs.append(self.new(n, cfg.kv_width))
            self.project(layer, x, h, q, ks[layer], vs[layer], 0)
            self.k("attention", q=q, k=ks[layer], v=vs[layer], out=q, causal=True)
            self.engine.offload_layer_kv_to_cpu(layer, ks[layer], vs[layer], table, n)
            self.residual(layer, x, h, q)
        self.output(x, n - 1)
        for b in ks + vs + [x, h, q]:
            self.dev.free(b)
        self.manager.mark_offloaded(seq_id, n)

    def project(self, layer, x, h, q, k, v, pos):
        self.k("rms_norm", x=x, out=h, layer=layer, which="attention")
        self.k("q_proj", x=h, out=q, layer=layer)
        self.k("k_proj", x=h, out=k, layer=layer)
        self.k("v_proj", x=h, out=v, layer=layer)
        self.k("rotary", x=q, pos=pos)
        self.k("rotary", x=k, pos=pos)

    def residual(self, layer, x, h, a):
        self.k("o_proj", x=a, out=h, layer=layer)
        self.k("add", x=x, y=h, out=x)
        self.k("rms_norm", x=x, out=h, layer=layer, which="mlp")
        self.k("mlp", x=h, out=h, layer=layer)
        self.k("add", x=x, y=h, out=x)

    def output(self, x, row):
        out = self.new(1, self.cfg.vocab)
        self.k("logits", x=(x, row, row + 1), out=out)
        self.dev.copy(self.logits, out, self.engine.compute_stream)
        self.dev.sync()
        self.dev.free(out)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        cfg, e, m = self.cfg, self.engine, self.manager
        p = self.busy[seq_id]
        if p == cfg.max_seq_len:
            raise ValueError
        m.may_append(seq_id)
        self.busy[seq_id] = p + 1
        pos = p % cfg.block_size
        P, start = m.get_prefill_len(seq_id), m.get_decode_start_pos(seq_id)
        table = m.get_prefilled_cpu_blocks(seq_id)
        N = cfg.num_kv_buffers
        for layer in range(min(N, cfg.num_layers)):
            e.load_layer_kv_to_buffer(layer, layer, table, P)
        x, h, q = self.new(1, cfg.hidden), self.new(1, cfg.hidden), self.new(1, cfg.q_width)
        k, v = self.new(1, cfg.kv_width), self.new(1, cfg.kv_width)
        self.k("embed", tokens=[token_id], out=x)
        for layer in range(cfg.num_layers):
            self.project(layer, x, h, q, k, v, p)
            e.store_decode_kv(layer, pos, k, v)
            e.wait_buffer_load(layer % N)
            k1, v1 = e.get_buffer_kv(layer % N, P)
            k2, v2 = e.get_decode_kv(layer, start, pos + 1)
            self.k("attention", q=q, k=[k1, k2], v=[v1, v2], out=q, causal=False)
            e.record_buffer_compute_done(layer % N)
            if layer + N < cfg.num_layers:
                e.load_layer_kv_to_buffer(layer % N, layer + N, table, P)
            self.residual(layer, x, h, q)
        if pos == cfg.block_size - 1:
            e.offload_decode_buffer(m.get_all_cpu_blocks(seq_id)[-1], start)
            m.mark_offloaded(seq_id, p + 1)
        self.output(x, 0)
        for b in (x, h, q, k, v):
            self.dev.free(b)

    def finish(self, seq_id):
        del self.busy[seq_id]
        self.manager.deallocate(seq_id)
