"""KV offload, layer by layer."""
from collections import deque


class Seq:
    def __init__(self, table, length):
        self.table = table
        self.length = length
        self.prefilled = 0


class HybridKVCacheManager:
    def __init__(self, num_cpu_blocks, block_size):
        if num_cpu_blocks <= 0 or block_size <= 0:
            raise ValueError("must be positive")
        self.block_size = block_size
        self.free_cpu_blocks = deque(range(num_cpu_blocks))
        self.seqs = {}

    @property
    def block_tables(self):
        return {i: list(s.table) for i, s in self.seqs.items()}

    def num_blocks(self, tokens):
        full, rest = divmod(tokens, self.block_size)
        return full + (1 if rest else 0)

    def allocate_cpu_only(self, seq_id, num_tokens):
        if num_tokens < 1:
            raise ValueError("num_tokens")
        if seq_id in self.seqs:
            raise ValueError("seq_id")
        n = self.num_blocks(num_tokens)
        if len(self.free_cpu_blocks) < n:
            raise RuntimeError("no blocks")
        seq = Seq([], num_tokens)
        for _ in range(n):
            seq.table.append(self.free_cpu_blocks.popleft())
        self.seqs[seq_id] = seq
        return list(seq.table)

    def can_append(self, seq_id):
        seq = self.seqs[seq_id]
        return seq.length % self.block_size != 0 or len(self.free_cpu_blocks) != 0

    def may_append(self, seq_id):
        seq = self.seqs[seq_id]
        if not self.can_append(seq_id):
            raise RuntimeError("no blocks")
        seq.length += 1
        if len(seq.table) < self.num_blocks(seq.length):
            seq.table.append(self.free_cpu_blocks.popleft())
            return seq.table[-1]
        return -1

    def mark_offloaded(self, seq_id, num_tokens):
        seq = self.seqs[seq_id]
        if not seq.prefilled <= num_tokens <= seq.length:
            raise ValueError("num_tokens")
        seq.prefilled = num_tokens

    def deallocate(self, seq_id):
        seq = self.seqs.pop(seq_id)
        seq.table.reverse()
        self.free_cpu_blocks.extend(seq.table)

    def get_all_cpu_blocks(self, seq_id):
        return list(self.seqs[seq_id].table)

    def get_prefilled_cpu_blocks(self, seq_id):
        seq = self.seqs[seq_id]
        return seq.table[:self.num_blocks(seq.prefilled)]

    def get_prefill_len(self, seq_id):
        return self.seqs[seq_id].prefilled

    def get_decode_start_pos(self, seq_id):
        return self.seqs[seq_id].prefilled % self.block_size


class OffloadEngine:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = dev.stream("compute")
        self.transfer_stream = dev.stream("transfer")
        cpu = cfg.num_layers * cfg.num_cpu_blocks * cfg.block_size
        self.k_cache_cpu = dev.alloc_pinned(cpu, cfg.kv_width)
        self.v_cache_cpu = dev.alloc_pinned(cpu, cfg.kv_width)
        gpu = cfg.num_kv_buffers * cfg.max_seq_len
        self.layer_k_cache = dev.alloc(gpu, cfg.kv_width, self.compute_stream)
        self.layer_v_cache = dev.alloc(gpu, cfg.kv_width, self.compute_stream)
        self.decode_k_buffer = dev.alloc(cfg.block_size, cfg.kv_width, self.compute_stream)
        self.decode_v_buffer = dev.alloc(cfg.block_size, cfg.kv_width, self.compute_stream)
        self.load_events = [dev.event() for _ in range(cfg.num_kv_buffers)]
        self.done_events = [dev.event() for _ in range(cfg.num_kv_buffers)]
        for e in self.done_events:
            dev.record(e, self.compute_stream)

    def _copy_blocks(self, layer, table, tokens, to_host, k, v, first):
        bs = self.cfg.block_size
        for i in range((tokens + bs - 1) // bs):
            n = min(bs, tokens - i * bs)
            row = (layer * self.cfg.num_cpu_blocks + table[i]) * bs
            for cpu, gpu in ((self.k_cache_cpu, k), (self.v_cache_cpu, v)):
                host = (cpu, row, row + n)
                device = (gpu, first + i * bs, first + i * bs + n)
                if to_host:
                    self.dev.copy(host, device, self.transfer_stream)
                else:
                    self.dev.copy(device, host, self.transfer_stream)

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        if total_tokens < 1 or len(cpu_block_ids) * self.cfg.block_size < total_tokens:
            raise ValueError("blocks")
        self.dev.sync(self.compute_stream)
        self._copy_blocks(layer_id, cpu_block_ids, total_tokens, True, k, v, 0)
        self.dev.sync(self.transfer_stream)

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        if not 1 <= valid_tokens <= self.cfg.max_seq_len:
            raise ValueError("valid_tokens")
        if len(cpu_block_table) * self.cfg.block_size < valid_tokens:
            raise ValueError("blocks")
        self.dev.wait(self.transfer_stream, self.done_events[buffer_idx])
        first = buffer_idx * self.cfg.max_seq_len
        self._copy_blocks(layer_id, cpu_block_table, valid_tokens, False, self.layer_k_cache, self.layer_v_cache, first)
        self.dev.record(self.load_events[buffer_idx], self.transfer_stream)

    def wait_buffer_load(self, buffer_idx):
        self.dev.wait(self.compute_stream, self.load_events[buffer_idx])

    def get_buffer_kv(self, buffer_idx, num_tokens):
        first = buffer_idx * self.cfg.max_seq_len
        return (self.layer_k_cache, first, first + num_tokens), (self.layer_v_cache, first, first + num_tokens)

    def record_buffer_compute_done(self, buffer_idx):
        self.dev.record(self.done_events[buffer_idx], self.compute_stream)

    def store_decode_kv(self, layer_id, pos, k, v):
        if not 0 <= pos < self.cfg.block_size:
            raise ValueError("pos")
        self.dev.copy((self.decode_k_buffer, pos, pos + 1), k, self.compute_stream)
        self.dev.copy((self.decode_v_buffer, pos, pos + 1), v, self.compute_stream)

    def get_decode_kv(self, layer_id, start, end):
        return (self.decode_k_buffer, start, end), (self.decode_v_buffer, start, end)


class ModelRunner:
    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)
        self.logits = dev.alloc_pinned(1, cfg.vocab)
        self.running = set()

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        if self.running:
            raise RuntimeError("running")
        n = len(token_ids)
        if n < 1 or n > self.cfg.max_seq_len:
            raise ValueError("token_ids")
        table = self.manager.allocate_cpu_only(seq_id, n)
        self.running.add(seq_id)
        s = self.engine.compute_stream
        dev, cfg = self.dev, self.cfg
        x = dev.alloc(n, cfg.hidden, s)
        h = dev.alloc(n, cfg.hidden, s)
        q = dev.alloc(n, cfg.q_width, s)
        k = dev.alloc(n, cfg.kv_width, s)
        v = dev.alloc(n, cfg.kv_width, s)
        dev.launch("embed", s, tokens=list(token_ids), out=x)
        for layer in range(cfg.num_layers):
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="attention")
            dev.launch("q_proj", s, x=h, out=q, layer=layer)
            dev.launch("k_proj", s, x=h, out=k, layer=layer)
            dev.launch("v_proj", s, x=h, out=v, layer=layer)
            dev.launch("rotary", s, x=q, pos=0)
            dev.launch("rotary", s, x=k, pos=0)
            self.engine.offload_layer_kv_to_cpu(layer, k, v, table, n)
            dev.launch("attention", s, q=q, k=k, v=v, out=q, causal=True)
            dev.launch("o_proj", s, x=q, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)
            dev.launch("rms_norm", s, x=x, out=h, layer=layer, which="mlp")
            dev.launch("mlp", s, x=h, out=h, layer=layer)
            dev.launch("add", s, x=x, y=h, out=x)
        out = dev.alloc(1, cfg.vocab, s)
        dev.launch("logits", s, x=(x, n - 1, n), out=out)
        dev.copy(self.logits, out, s)
        dev.sync(s)
        for buf in (x, h, q, k, v, out):
            dev.free(buf)
        self.manager.mark_offloaded(seq_id, n)

    def run_layerwise_offload_decode(self, seq_id, token_id):
        if seq_id not in self.running:
            raise KeyError(seq_id)
        raise NotImplementedError("decode")
