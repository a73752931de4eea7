from collections import deque, OrderedDict


def ceil_div(a, b):
    return (a + b - 1) // b


class Scheduler:

    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        for value, low in ((max_num_seqs, 1), (max_num_batched_tokens, 1), (long_prefill_token_threshold, 0)):
            if value < low:
                raise ValueError(value)
        if policy not in ["fcfs", "priority"]:
            raise ValueError(policy)
        self.kv, self.seqs, self.tokens = kv, max_num_seqs, max_num_batched_tokens
        self.chunk = long_prefill_token_threshold
        self.fcfs = policy == "fcfs"
        self.reserve_full = reserve_full
        self.waiting = deque()
        self.running = []
        self.plan = OrderedDict()

    def key(self, r):
        return (r.priority, r.arrival_time, r.request_id)

    def put(self, r, front):
        if not self.fcfs:
            self.waiting = deque(sorted(list(self.waiting) + [r], key=self.key))
        elif front:
            self.waiting.appendleft(r)
        else:
            self.waiting.append(r)

    def add_request(self, request):
        ids = [r.request_id for r in self.waiting] + [r.request_id for r in self.running]
        if request.request_id in ids:
            raise ValueError("id")
        if not request.num_prompt_tokens or request.max_tokens < 1:
            raise ValueError("empty")
        if ceil_div(request.num_prompt_tokens + request.max_tokens, self.kv.block_size) >= self.kv.num_blocks:
            raise ValueError("too long")
        request.status = "WAITING"
        self.put(request, False)

    def share(self, m, budget):
        return min(m, budget, self.chunk) if self.chunk else min(m, budget)

    def preempt(self, v):
        self.running.remove(v)
        self.kv.free(v)
        v.num_computed_tokens = 0
        v.num_preemptions += 1
        v.status = "PREEMPTED"
        self.put(v, True)

    def schedule(self):
        budget = self.tokens
        self.plan = OrderedDict()
        new, resumed, preempted = [], [], []
        for r in list(self.running):
            if budget <= 0:
                break
            if r not in self.running:
                continue
            n = self.share(r.num_tokens - r.num_computed_tokens, budget)
            ok = True
            while self.kv.allocate_slots(r, n) is None:
                v = self.running[-1] if self.fcfs else max(self.running, key=self.key)
                self.preempt(v)
                preempted.append(v.request_id)
                budget += self.plan.pop(v.request_id, 0)
                if v is r:
                    ok = False
                    break
            if not ok:
                break
            self.plan[r.request_id] = n
            budget -= n
        while not preempted and self.waiting and budget and len(self.running) < self.seqs:
            r = self.waiting[0]
            hits, t = self.kv.get_computed_blocks(r)
            n = self.share(r.num_tokens - t, budget)
            if self.reserve_full:
                need = max(ceil_div(r.num_tokens, self.kv.block_size) - len(hits), 0)
                need += sum(b.ref_cnt == 0 for b in hits)
                if need > self.kv.get_num_free_blocks():
                    break
            if self.kv.allocate_slots(r, n, hits) is None:
                break
            self.waiting.popleft()
            self.running.append(r)
            if r.status == "WAITING":
                new.append(r.request_id)
            else
                resumed.append(r.request_id)
            r.num_computed_tokens = t
            r.status = "RUNNING"
            self.plan[r.request_id] = n
            budget -= n
        return {"scheduled": dict(self.plan), "new": new, "resumed": resumed, "preempted": preempted,
                "total": sum(self.plan.values())}

    def update(self, samples):
        done = []
        for r in list(self.running):
            n = self.plan.get(r.request_id)
            if n is None:
                continue
            r.num_computed_tokens += n
            if r.num_computed_tokens == r.num_tokens:
                r.append_output_token_ids(samples[r.request_id])
                if r.num_output_tokens == r.max_tokens:
                    self.running.remove(r)
                    self.kv.free(r)
                    r.status = "FINISHED"
                    done.append(r.request_id)
        self.plan.clear()
        return done

    def abort(self, request_id):
        for r in list(self.waiting) + self.running:
            if r.request_id == request_id:
                if r in self.running:
                    self.running.remove(r)
                    self.kv.free(r)
                else:
                    self.waiting.remove(r)
                r.status = "FINISHED"
                self.plan.pop(request_id, None)
                return True
        return False

    def reset_prefix_cache(self, preempt_running=False):
        while preempt_running and self.running:
            self.preempt(self.running[-1])
        return self.kv.reset_prefix_cache()


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if not 1 <= utilization_percent <= 100:
        raise ValueError("percent")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if not available:
        raise ValueError("empty")
    if override is not None:
        return override
    return max(0, min(available) // (page_bytes * num_layers))


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    need = ceil_div(max_model_len, block_size) * page_bytes * num_layers
    if available <= 0 or need > available:
        raise ValueError("memory")
    return need


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    return min(max_model_len, max(0, available // (page_bytes * num_layers)) * block_size)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / ceil_div(max_model_len, block_size)


def simulate(policy, slots, max_len, block_size, lengths):
    raise NotImplementedError
