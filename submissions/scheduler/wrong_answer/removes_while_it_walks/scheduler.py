"""A scheduler for a paged KV cache."""


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
        if max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if max_num_batched_tokens < 1:
            raise ValueError("max_num_batched_tokens must be at least 1")
        if long_prefill_token_threshold < 0:
            raise ValueError("the threshold must not be negative")
        if policy != "fcfs" and policy != "priority":
            raise ValueError("unknown policy")
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.threshold = long_prefill_token_threshold
        self.policy = policy
        self.reserve_full = reserve_full
        self.waiting = []
        self.running = []
        self.last_scheduled = {}  # id -> tokens of the last step

    # helpers

    def key(self, request):
        return (request.priority, request.arrival_time, request.request_id)

    def insert_by_key(self, request):
        i = 0
        while i < len(self.waiting) and self.key(self.waiting[i]) < self.key(request):
            i += 1
        self.waiting.insert(i, request)

    def share(self, missing, budget):
        n = missing
        if self.threshold > 0 and n > self.threshold:
            n = self.threshold
        if n > budget:
            n = budget
        return n

    def pick_victim(self):
        if self.policy == "fcfs":
            return self.running[-1]
        return max(self.running, key=self.key)

    def preempt(self, request):
        self.running.remove(request)
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.status = "PREEMPTED"
        request.num_preemptions += 1
        if self.policy == "fcfs":
            self.waiting.insert(0, request)
        else:
            self.insert_by_key(request)

    # the interface

    def add_request(self, request):
        """Let a request wait (Task 1)."""
        for other in self.waiting + self.running:
            if other.request_id == request.request_id:
                raise ValueError("there is a request of this id")
        if request.num_prompt_tokens < 1:
            raise ValueError("empty prompt")
        if request.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")
        longest = request.num_prompt_tokens + request.max_tokens
        if ceil_div(longest, self.kv.block_size) > self.kv.num_blocks - 1:
            raise ValueError("the request can never fit")
        request.status = "WAITING"
        if self.policy == "fcfs":
            self.waiting.append(request)
        else:
            self.insert_by_key(request)

    def schedule(self):
        """Do one step, and return what was decided (Task 2)."""
        budget = self.max_num_batched_tokens
        scheduled = {}
        new = []
        resumed = []
        preempted = []

        # Phase A: running requests
        i = 0
        while i < len(self.running) and budget > 0:
            r = self.running[i]
            n = self.share(r.num_tokens - r.num_computed_tokens, budget)
            r_is_out = False
            while self.kv.allocate_slots(r, n) is None:
                victim = self.pick_victim()
                place = self.running.index(victim)
                self.preempt(victim)
                preempted.append(victim.request_id)
                if victim is r:
                    r_is_out = True
                    break
                if place < i:
                    # everybody behind the victim has moved up
                    i -= 1
                    budget += scheduled.pop(victim.request_id)
            if r_is_out:
                break
            scheduled[r.request_id] = n
            budget -= n
            i += 1

        # Phase B: waiting requests
        if not preempted:
            while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
                r = self.waiting[0]
                hits, t = self.kv.get_computed_blocks(r)
                n = self.share(r.num_tokens - t, budget)
                if self.reserve_full:
                    needed = max(ceil_div(r.num_tokens, self.kv.block_size) - len(hits), 0)
                    for block in hits:
                        if block.ref_cnt == 0:
                            needed += 1
                    if needed > self.kv.get_num_free_blocks():
                        break
                if self.kv.allocate_slots(r, n, hits) is None:
                    break
                self.waiting.pop(0)
                self.running.append(r)
                if r.status == "PREEMPTED":
                    resumed.append(r.request_id)
                else:
                    new.append(r.request_id)
                r.num_computed_tokens = t
                r.status = "RUNNING"
                scheduled[r.request_id] = n
                budget -= n

        self.last_scheduled = dict(scheduled)
        return {
            "scheduled": scheduled,
            "new": new,
            "resumed": resumed,
            "preempted": preempted,
            "total": sum(scheduled.values()),
        }

    def update(self, samples):
        """Take the tokens that the model computed; return the ids of finished requests (Task 3)."""
        finished = []
        for r in self.running:
            if r.request_id not in self.last_scheduled:
                continue
            r.num_computed_tokens += self.last_scheduled[r.request_id]
            if r.num_computed_tokens == r.num_tokens:
                r.append_output_token_ids(samples[r.request_id])
            if r.num_output_tokens >= r.max_tokens:
                self.running.remove(r)
                self.kv.free(r)
                r.status = "FINISHED"
                finished.append(r.request_id)
        self.last_scheduled = {}
        return finished

    def abort(self, request_id):
        """Take a request out (Task 4)."""
        for r in self.waiting:
            if r.request_id == request_id:
                self.waiting.remove(r)
                r.status = "FINISHED"
                return True
        for r in self.running:
            if r.request_id == request_id:
                self.running.remove(r)
                self.kv.free(r)
                r.status = "FINISHED"
                return True
        return False

    def reset_prefix_cache(self, preempt_running=False):
        """Forget cached content (Task 4)."""
        if preempt_running:
            while self.running:
                self.preempt(self.running[-1])
        return self.kv.reset_prefix_cache()


def ceil_div(a, b):
    return (a + b - 1) // b


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    """Return the bytes of one block in one layer (Task 5)."""
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    """Return the bytes that are left for the KV cache (Task 5)."""
    if utilization_percent < 1 or utilization_percent > 100:
        raise ValueError("not a percentage")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    """Return the number of blocks for which every worker has room (Task 5)."""
    if len(available) == 0:
        raise ValueError("no workers")
    if override is not None:
        return override
    fewest = min(available) // (page_bytes * num_layers)
    return max(fewest, 0)


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    """Return the bytes that one request of max_model_len tokens needs (Task 5)."""
    if available <= 0:
        raise ValueError("no memory")
    needed = ceil_div(max_model_len, block_size) * page_bytes * num_layers
    if needed > available:
        raise ValueError("not enough memory")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    """Return the largest length that fits (Task 5)."""
    blocks = available // (page_bytes * num_layers)
    if blocks < 1:
        return 0
    return min(blocks * block_size, max_model_len)


def max_concurrency(num_blocks, max_model_len, block_size):
    """Return how many requests of max_model_len tokens there is room for (Task 5)."""
    return num_blocks / ceil_div(max_model_len, block_size)


# ---------------------------------------------------------------- Task 6


def round_up_pow2(x):
    p = 1
    while p < x:
        p *= 2
    return p


class Buddy:
    """Chunks of free memory, as pairs [size, start]."""

    def __init__(self, slots):
        self.free = []
        start = 0
        while start < slots:
            size = 1
            while size * 2 <= slots - start:
                size *= 2
            self.free.append((size, start))
            start += size

    def largest(self):
        return max(self.free)[0]

    def take(self, wanted):
        """Return (size, start), or None if there is no chunk."""
        size = round_up_pow2(wanted)
        candidates = [chunk for chunk in self.free if chunk[0] >= size]
        if not candidates:
            return None
        chunk = min(candidates)
        self.free.remove(chunk)
        have, start = chunk
        while have > size:
            have //= 2
            self.free.append((have, start + have))
        return (size, start)

    def give_back(self, chunk):
        size, start = chunk
        while (size, start ^ size) in self.free:
            self.free.remove((size, start ^ size))
            start = min(start, start ^ size)
            size *= 2
        self.free.append((size, start))


def wanted_places(policy, max_len, prompt, output):
    if policy == "max":
        return max_len
    if policy == "pow2":
        return min(max_len, prompt + round_up_pow2(output))
    return prompt + output


def simulate(policy, slots, max_len, block_size, lengths):
    """Return a row of totals for each step (Task 6)."""
    if policy not in ("max", "pow2", "oracle", "paged"):
        raise ValueError("unknown policy")
    for prompt, output in lengths:
        if prompt < 1 or output < 1:
            raise ValueError("a prompt and an output have at least one token")
        if prompt + output > max_len:
            raise ValueError("longer than max_len")
    if policy == "paged":
        return simulate_paged(slots, block_size, lengths)
    return simulate_contiguous(policy, slots, max_len, lengths)


def simulate_contiguous(policy, slots, max_len, lengths):
    memory = Buddy(slots)
    queue = []
    for prompt, output in lengths:
        wanted = wanted_places(policy, max_len, prompt, output)
        if round_up_pow2(wanted) > memory.largest():
            raise ValueError("a request never fits")
        queue.append({"held": prompt, "final": prompt + output, "wanted": wanted, "chunk": None})

    rows = []
    running = []
    while queue or running:
        # admit
        while queue:
            chunk = memory.take(queue[0]["wanted"])
            if chunk is None:
                break
            r = queue.pop(0)
            r["chunk"] = chunk
            running.append(r)
        # count
        token = reserved = internal = 0
        for r in running:
            token += r["held"]
            reserved += r["final"] - r["held"]
            internal += r["wanted"] - r["final"]
        rows.append([token, reserved, internal, slots - token - reserved - internal])
        # advance
        still_running = []
        for r in running:
            r["held"] += 1
            if r["held"] == r["final"]:
                memory.give_back(r["chunk"])
            else:
                still_running.append(r)
        running = still_running
    return rows


def simulate_paged(slots, block_size, lengths):
    free = slots // block_size
    queue = []
    for prompt, output in lengths:
        if ceil_div(prompt + output, block_size) > free:
            raise ValueError("a request never fits")
        queue.append({"held": prompt, "final": prompt + output, "blocks": 0})

    rows = []
    running = []
    while queue or running:
        # admit
        while queue:
            needed = ceil_div(queue[0]["held"], block_size)
            if needed > free:
                break
            r = queue.pop(0)
            r["blocks"] = needed
            free -= needed
            running.append(r)
        # count
        token = sum(r["held"] for r in running)
        blocks = sum(r["blocks"] for r in running)
        rows.append([token, 0, blocks * block_size - token, slots - blocks * block_size])
        # advance
        i = 0
        while i < len(running):
            r = running[i]
            if r["held"] + 1 == r["final"]:
                free += r["blocks"]
                running.pop(i)
                continue
            if r["held"] == r["blocks"] * block_size:
                while free == 0:
                    victim = running.pop()
                    free += victim["blocks"]
                    victim["blocks"] = 0
                    queue.insert(0, victim)
                    if victim is r:
                        break
                if r["blocks"] == 0:
                    break
                free -= 1
                r["blocks"] += 1
            r["held"] += 1
            i += 1
    return rows
