"""Layer-wise CPU offload of the KV cache: fill in the bodies, part by part. Names and signatures are fixed."""


class HybridKVCacheManager:
    """Blocks of CPU memory for sequences (Part 1)."""

    def __init__(self, num_cpu_blocks, block_size):
        self.free_cpu_blocks = []
        self.block_tables = {}

    def allocate_cpu_only(self, seq_id, num_tokens):
        """Give a new sequence its blocks; return the table."""

    def can_append(self, seq_id):
        """Return whether there is room for one more token."""

    def may_append(self, seq_id):
        """Let the sequence grow by a token; return the block that it took, or -1."""

    def mark_offloaded(self, seq_id, num_tokens):
        """Note that num_tokens tokens are in the CPU cache."""

    def deallocate(self, seq_id):
        """Take the blocks back and forget the sequence."""

    def get_all_cpu_blocks(self, seq_id):
        """Return the table."""

    def get_prefilled_cpu_blocks(self, seq_id):
        """Return the blocks that hold an offloaded token."""

    def get_prefill_len(self, seq_id):
        """Return the number of offloaded tokens."""

    def get_decode_start_pos(self, seq_id):
        """Return the row of the decode buffer that holds the first token not yet offloaded."""


class OffloadEngine:
    """The caches, and the copies between them (Part 2)."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.compute_stream = dev.stream("compute")

    def offload_layer_kv_to_cpu(self, layer_id, k, v, cpu_block_ids, total_tokens):
        """Copy keys and values of a layer to its blocks."""

    def load_layer_kv_to_buffer(self, buffer_idx, layer_id, cpu_block_table, valid_tokens):
        """Copy the first tokens of a layer to a buffer of the ring."""

    def wait_buffer_load(self, buffer_idx):
        """Let later work on compute_stream run after the last load of the buffer."""

    def get_buffer_kv(self, buffer_idx, num_tokens):
        """Return two ranges, K then V."""

    def record_buffer_compute_done(self, buffer_idx):
        """Note that the work on compute_stream so far is all that reads the buffer."""

    def store_decode_kv(self, layer_id, pos, k, v):
        """Copy keys and values of a token to the decode buffers."""

    def get_decode_kv(self, layer_id, start, end):
        """Return two ranges, K then V."""

    def offload_decode_buffer(self, cpu_block, start):
        """Flush the decode buffers from row start on to a block."""


class ModelRunner:
    """Runs a sequence through the model (Part 3)."""

    def __init__(self, dev, cfg):
        self.dev = dev
        self.cfg = cfg
        self.manager = HybridKVCacheManager(cfg.num_cpu_blocks, cfg.block_size)
        self.engine = OffloadEngine(dev, cfg)

    def run_layerwise_offload_prefill(self, seq_id, token_ids):
        """Run the whole prompt, layer by layer."""

    def run_layerwise_offload_decode(self, seq_id, token_id):
        """Run one token through all layers."""

    def finish(self, seq_id):
        """Forget the sequence."""
