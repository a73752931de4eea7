"""A scheduler for a paged KV cache: fill in the bodies, task by task. Names and signatures are fixed."""


class Scheduler:
    """Decides which requests compute how many tokens in each step (Tasks 1 to 4)."""

    def __init__(
        self,
        kv,
        max_num_seqs,
        max_num_batched_tokens,
        long_prefill_token_threshold=0,
        policy="fcfs",
        reserve_full=False,
    ):
        self.waiting = []
        self.running = []

    def add_request(self, request):
        """Let a request wait (Task 1)."""

    def schedule(self):
        """Do one step, and return what was decided (Task 2)."""

    def update(self, samples):
        """Take the tokens that the model computed; return the ids of finished requests (Task 3)."""

    def abort(self, request_id):
        """Take a request out (Task 4)."""

    def reset_prefix_cache(self, preempt_running=False):
        """Forget cached content (Task 4)."""


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    """Return the bytes of one block in one layer (Task 5)."""


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    """Return the bytes that are left for the KV cache (Task 5)."""


def get_num_blocks(available, page_bytes, num_layers, override=None):
    """Return the number of blocks for which every worker has room (Task 5)."""


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    """Return the bytes that one request of max_model_len tokens needs (Task 5)."""


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    """Return the largest length that fits (Task 5)."""


def max_concurrency(num_blocks, max_model_len, block_size):
    """Return how many requests of max_model_len tokens there is room for (Task 5)."""


def simulate(policy, slots, max_len, block_size, lengths):
    """Return a row of totals for each step (Task 6)."""
