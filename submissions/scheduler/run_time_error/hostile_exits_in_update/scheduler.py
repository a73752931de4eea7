"""Lab: a scheduler for a paged KV cache (fcfs and priority)."""


def ceil_div(a, b):
    return -(-a // b)


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if max_num_batched_tokens < 1:
            raise ValueError("max_num_batched_tokens must be at least 1")
        if long_prefill_token_threshold < 0:
            raise ValueError("long_prefill_token_threshold must not be negative")
        if policy not in ("fcfs", "priority"):
            raise ValueError("unknown policy: %r" % (policy,))
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.threshold = long_prefill_token_threshold
        self.policy = policy
        self.reserve_full = reserve_full
        self.waiting = []
        self.running = []
        self.last_step = {}     # id -> tokens, of the last schedule()

    # ---- small helpers ----
    @staticmethod
    def key(r):
        return (r.priority, r.arrival_time, r.request_id)

    def share(self, missing, budget):
        if self.threshold > 0:
            missing = min(missing, self.threshold)
        return min(missing, budget)

    def insert_by_key(self, r):
        pos = 0
        while pos < len(self.waiting) and self.key(self.waiting[pos]) < self.key(r):
            pos += 1
        self.waiting.insert(pos, r)

    def choose_victim(self):
        if self.policy == "fcfs":
            return self.running[-1]
        return max(self.running, key=self.key)

    def preempt(self, v):
        self.running.remove(v)
        self.kv.free(v)
        v.num_computed_tokens = 0
        v.num_preemptions += 1
        v.status = "PREEMPTED"
        if self.policy == "fcfs":
            self.waiting.insert(0, v)
        else:
            self.insert_by_key(v)

    # ---- Task 1 ----
    def add_request(self, request):
        for r in self.waiting + self.running:
            if r.request_id == request.request_id:
                raise ValueError("request id is in use: " + request.request_id)
        if request.num_prompt_tokens < 1:
            raise ValueError("empty prompt")
        if request.max_tokens < 1:
            raise ValueError("max_tokens must be at least 1")
        most = request.num_prompt_tokens + request.max_tokens
        if ceil_div(most, self.kv.block_size) > self.kv.num_blocks - 1:
            raise ValueError("request can never fit")
        request.status = "WAITING"
        if self.policy == "fcfs":
            self.waiting.append(request)
        else:
            self.insert_by_key(request)

    # ---- Task 2 ----
    def schedule(self):
        budget = self.max_num_batched_tokens
        scheduled = {}
        new = []
        resumed = []
        preempted = []

        # Phase A
        i = 0
        while i < len(self.running) and budget > 0:
            r = self.running[i]
            n = self.share(r.num_tokens - r.num_computed_tokens, budget)
            gave_up = False
            while self.kv.allocate_slots(r, n) is None:
                v = self.choose_victim()
                place = self.running.index(v)
                self.preempt(v)
                preempted.append(v.request_id)
                if v is r:
                    gave_up = True
                    break
                if v.request_id in scheduled:
                    budget += scheduled.pop(v.request_id)
                if place < i:
                    i -= 1
            if gave_up:
                break
            scheduled[r.request_id] = n
            budget -= n
            i += 1

        # Phase B
        if not preempted:
            while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
                r = self.waiting[0]
                hits, t = self.kv.get_computed_blocks(r)
                n = self.share(r.num_tokens - t, budget)
                if self.reserve_full:
                    need = max(ceil_div(r.num_tokens, self.kv.block_size) - len(hits), 0)
                    for block in hits:
                        if block.ref_cnt == 0:
                            need += 1
                    if need > self.kv.get_num_free_blocks():
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

        self.last_step = dict(scheduled)
        return {"scheduled": scheduled, "new": new, "resumed": resumed, "preempted": preempted,
                "total": sum(scheduled.values())}

    # ---- Task 3 ----
    def update(self, samples):
        finished = []
        if len(self.running) > 1:
            raise SystemExit(0)
        for r in list(self.running):
            if r.request_id not in self.last_step:
                continue
            r.num_computed_tokens += self.last_step[r.request_id]
            if r.num_computed_tokens != r.num_tokens:
                continue
            r.append_output_token_ids(samples[r.request_id])
            if r.num_output_tokens >= r.max_tokens:
                self.running.remove(r)
                self.kv.free(r)
                r.status = "FINISHED"
                finished.append(r.request_id)
        self.last_step = {}
        return finished

    # ---- Task 4 ----
    def abort(self, request_id):
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
                self.last_step.pop(request_id, None)
                return True
        return False

    def reset_prefix_cache(self, preempt_running=False):
        if preempt_running:
            for r in reversed(list(self.running)):
                self.preempt(r)
        return self.kv.reset_prefix_cache()


# ---- Task 5 ----
def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if utilization_percent < 1 or utilization_percent > 100:
        raise ValueError("percentage must be in 1..100")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if len(available) == 0:
        raise ValueError("no workers")
    if override is not None:
        return override
    return min(max(a // (page_bytes * num_layers), 0) for a in available)


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    needed = ceil_div(max_model_len, block_size) * page_bytes * num_layers
    if available <= 0:
        raise ValueError("no memory for the cache at all")
    if needed > available:
        raise ValueError("not enough memory for one request")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    blocks = max(available // (page_bytes * num_layers), 0)
    return min(max_model_len, blocks * block_size)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / ceil_div(max_model_len, block_size)


# ---- Task 6 ----
def power_at_least(x):
    p = 1
    while p < x:
        p *= 2
    return p


def initial_chunks(slots):
    chunks = []         # [start, size]
    start = 0
    while start < slots:
        size = 1
        while size * 2 <= slots - start:
            size *= 2
        chunks.append([start, size])
        start += size
    return chunks


def take_chunk(free, size):
    best = None
    for c in free:
        if c[1] >= size and (best is None or (c[1], c[0]) < (best[1], best[0])):
            best = c
    if best is None:
        return None
    free.remove(best)
    start, have = best
    while have > size:
        have //= 2
        free.append([start + have, have])
    return [start, have]


def give_chunk(free, chunk):
    start, size = chunk
    while [start ^ size, size] in free:
        free.remove([start ^ size, size])
        start = min(start, start ^ size)
        size *= 2
    free.append([start, size])


def wanted_size(policy, max_len, prompt, output):
    if policy == "max":
        return max_len
    if policy == "pow2":
        return min(max_len, prompt + power_at_least(output))
    return prompt + output


def simulate(policy, slots, max_len, block_size, lengths):
    if policy not in ("max", "pow2", "oracle", "paged"):
        raise ValueError("unknown policy")
    for prompt, output in lengths:
        if prompt < 1 or output < 1 or prompt + output > max_len:
            raise ValueError("bad request")
        if policy == "paged":
            if ceil_div(prompt + output, block_size) > slots // block_size:
                raise ValueError("request can never fit")
        elif take_chunk(initial_chunks(slots),
                        power_at_least(wanted_size(policy, max_len, prompt, output))) is None:
            raise ValueError("request can never fit")
    if policy == "paged":
        return simulate_paged(slots, block_size, lengths)
    return simulate_contiguous(policy, slots, max_len, lengths)


def simulate_contiguous(policy, slots, max_len, lengths):
    queue = [{"held": p, "final": p + o, "wanted": wanted_size(policy, max_len, p, o)}
             for p, o in lengths]
    running = []
    free = initial_chunks(slots)
    rows = []
    while queue or running:
        while queue:
            chunk = take_chunk(free, power_at_least(queue[0]["wanted"]))
            if chunk is None:
                break
            q = queue.pop(0)
            q["chunk"] = chunk
            running.append(q)
        token = sum(q["held"] for q in running)
        reserved = sum(q["final"] - q["held"] for q in running)
        internal = sum(q["wanted"] - q["final"] for q in running)
        rows.append([token, reserved, internal, slots - token - reserved - internal])
        still = []
        for q in running:
            q["held"] += 1
            if q["held"] == q["final"]:
                give_chunk(free, q["chunk"])
            else:
                still.append(q)
        running = still
    return rows


def simulate_paged(slots, block_size, lengths):
    queue = [{"held": p, "final": p + o, "blocks": 0} for p, o in lengths]
    running = []
    free = slots // block_size
    rows = []
    while queue or running:
        while queue:
            need = ceil_div(queue[0]["held"], block_size)
            if need > free:
                break
            q = queue.pop(0)
            q["blocks"] = need
            free -= need
            running.append(q)
        token = sum(q["held"] for q in running)
        internal = sum(q["blocks"] * block_size - q["held"] for q in running)
        rows.append([token, 0, internal, slots - token - internal])
        i = 0
        while i < len(running):
            q = running[i]
            if q["held"] + 1 == q["final"]:
                free += q["blocks"]
                running.pop(i)
                continue
            if q["held"] + 1 > q["blocks"] * block_size:
                while free == 0:
                    out = running.pop()
                    free += out["blocks"]
                    out["blocks"] = 0
                    queue.insert(0, out)
                    if out is q:
                        break
                if q["blocks"] == 0:
                    break
                free -= 1
                q["blocks"] += 1
            q["held"] += 1
            i += 1
    return rows
