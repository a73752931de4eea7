import math


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        assert max_num_seqs >= 1
        assert max_num_batched_tokens >= 1
        assert long_prefill_token_threshold >= 0
        assert policy in ("fcfs", "priority")
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.budget = max_num_batched_tokens
        self.threshold = long_prefill_token_threshold
        self.policy = policy
        self.reserve_full = reserve_full
        self.waiting = []
        self.running = []

    def add_request(self, request):
        if any(r.request_id == request.request_id for r in self.waiting + self.running):
            raise ValueError("duplicate id")
        if request.num_prompt_tokens == 0 or request.max_tokens < 1:
            raise ValueError("empty request")
        request.status = "WAITING"
        self.waiting.append(request)

    def share(self, m, budget):
        if self.threshold:
            m = min(m, self.threshold)
        return min(m, budget)

    def preempt(self, v):
        self.running.remove(v)
        self.kv.free(v)
        v.num_computed_tokens = 0
        v.num_preemptions += 1
        v.status = "PREEMPTED"
        self.waiting.insert(0, v)

    def schedule(self):
        budget = self.budget
        scheduled = {}
        new, resumed, preempted = [], [], []
        for r in list(self.running):
            if budget == 0:
                break
            if r not in self.running:
                continue
            n = self.share(r.num_tokens - r.num_computed_tokens, budget)
            blocks = self.kv.allocate_slots(r, n)
            while blocks is None:
                v = self.running[-1]
                self.preempt(v)
                preempted.append(v.request_id)
                if v is r:
                    break
                blocks = self.kv.allocate_slots(r, n)
            if blocks is not None:
                scheduled[r.request_id] = n
                budget -= n

        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            r = self.waiting[0]
            hits, t = self.kv.get_computed_blocks(r)
            n = self.share(r.num_tokens - t, budget)
            if self.kv.allocate_slots(r, n, hits) is None:
                break
            self.waiting.pop(0)
            self.running.append(r)
            (new if r.status == "WAITING" else resumed).append(r.request_id)
            r.num_computed_tokens = t
            r.status = "RUNNING"
            scheduled[r.request_id] = n
            budget -= n
        self.scheduled = dict(scheduled)
        return {"scheduled": scheduled, "new": new, "resumed": resumed, "preempted": preempted,
                "total": sum(scheduled.values())}

    def update(self, samples):
        finished = []
        for r in list(self.running):
            if r.request_id in self.scheduled:
                r.num_computed_tokens += self.scheduled[r.request_id]
                if r.num_computed_tokens == r.num_tokens:
                    r.append_output_token_ids(samples[r.request_id])
                    if r.num_output_tokens == r.max_tokens:
                        self.running.remove(r)
                        self.kv.free(r)
                        r.status = "FINISHED"
                        finished.append(r.request_id)
        return finished

    def abort(self, request_id):
        pass

    def reset_prefix_cache(self, preempt_running=False):
        return self.kv.reset_prefix_cache()


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if override is not None:
        return override
    return min(available) // (page_bytes * num_layers)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / math.ceil(max_model_len / block_size)


def simulate(policy, slots, max_len, block_size, lengths):
    rows = []
    if policy == "max":
        queue = [[p, p + o] for p, o in lengths]
        running = []
        while queue or running:
            while queue and (len(running) + 1) * max_len <= slots:
                running.append(queue.pop(0))
            token = sum(h for h, f in running)
            reserved = sum(f - h for h, f in running)
            internal = sum(max_len - f for h, f in running)
            rows.append([token, reserved, internal, slots - token - reserved - internal])
            for r in running:
                r[0] += 1
            running = [r for r in running if r[0] < r[1]]
    return rows
