# Scheduler over a paged KV cache
from collections import deque


def div_up(a, b):
    q = a // b
    if q * b < a:
        q += 1
    return q


class Scheduler:

    waiting = deque()
    running = []
    last_scheduled = {}

    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if max_num_seqs < 1:
            raise ValueError("max_num_seqs must be at least 1")
        if max_num_batched_tokens < 1:
            raise ValueError("max_num_batched_tokens must be at least 1")
        if long_prefill_token_threshold < 0:
            raise ValueError("threshold must not be negative")
        if policy not in ["fcfs", "priority"]:
            raise ValueError("policy: " + str(policy))
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.long_prefill_token_threshold = long_prefill_token_threshold
        self.policy = policy
        self.reserve_full = reserve_full

    def get_key(self, request):
        return (request.priority, request.arrival_time, request.request_id)

    def insert_sorted(self, request):
        position = 0
        for other in self.waiting:
            if self.get_key(other) > self.get_key(request):
                break
            position += 1
        self.waiting.insert(position, request)

    def add_request(self, request):
        for other in self.waiting:
            if other.request_id == request.request_id:
                raise ValueError("already waiting")
        for other in self.running:
            if other.request_id == request.request_id:
                raise ValueError("already running")
        if request.num_prompt_tokens < 1:
            raise ValueError("empty prompt")
        if request.max_tokens < 1:
            raise ValueError("max_tokens")
        blocks = div_up(request.num_prompt_tokens + request.max_tokens, self.kv.block_size)
        if blocks > self.kv.num_blocks - 1:
            raise ValueError("too long")
        request.status = "WAITING"
        if self.policy == "fcfs":
            self.waiting.append(request)
        else:
            self.insert_sorted(request)

    def get_share(self, missing, budget):
        share = missing
        if self.long_prefill_token_threshold > 0 and share > self.long_prefill_token_threshold:
            share = self.long_prefill_token_threshold
        if share > budget:
            share = budget
        return share

    def find_victim(self):
        if self.policy == "fcfs":
            return self.running[-1]
        victim = self.running[0]
        for other in self.running:
            if self.get_key(other) > self.get_key(victim):
                victim = other
        return victim

    def preempt(self, request):
        self.running.remove(request)
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = "PREEMPTED"
        if self.policy == "fcfs":
            self.waiting.appendleft(request)
        else:
            self.insert_sorted(request)

    def schedule(self):
        budget = self.max_num_batched_tokens
        scheduled = {}
        new = []
        resumed = []
        preempted = []

        # Phase A: running requests
        i = 0
        while i < len(self.running) and budget > 0:
            request = self.running[i]
            n = self.get_share(request.num_tokens - request.num_computed_tokens, budget)
            blocks = self.kv.allocate_slots(request, n)
            while blocks is None:
                victim = self.find_victim()
                if self.running.index(victim) < i:
                    i -= 1
                self.preempt(victim)
                preempted.append(victim.request_id)
                if victim.request_id in scheduled:
                    budget += scheduled[victim.request_id]
                    del scheduled[victim.request_id]
                if victim is request:
                    break
                blocks = self.kv.allocate_slots(request, n)
            if blocks is None:
                break
            scheduled[request.request_id] = n
            budget -= n
            i += 1

        # Phase B: waiting requests
        if len(preempted) == 0:
            while len(self.waiting) > 0 and budget > 0 and len(self.running) < self.max_num_seqs:
                request = self.waiting[0]
                hits, t = self.kv.get_computed_blocks(request)
                n = self.get_share(request.num_tokens - t, budget)
                if self.reserve_full:
                    needed = max(div_up(request.num_tokens, self.kv.block_size) - len(hits), 0)
                    for block in hits:
                        if block.ref_cnt == 0:
                            needed += 1
                    if needed > self.kv.get_num_free_blocks():
                        break
                if self.kv.allocate_slots(request, n, hits) is None:
                    break
                self.waiting.popleft()
                self.running.append(request)
                if request.status == "PREEMPTED":
                    resumed.append(request.request_id)
                else:
                    new.append(request.request_id)
                request.num_computed_tokens = t
                request.status = "RUNNING"
                scheduled[request.request_id] = n
                budget -= n

        self.last_scheduled = dict(scheduled)
        total = 0
        for n in scheduled.values():
            total += n
        return {"scheduled": scheduled, "new": new, "resumed": resumed, "preempted": preempted, "total": total}

    def update(self, samples):
        finished = []
        for request in list(self.running):
            if request.request_id not in self.last_scheduled:
                continue
            request.num_computed_tokens += self.last_scheduled[request.request_id]
            if request.num_computed_tokens == request.num_tokens:
                request.append_output_token_ids(samples[request.request_id])
                if request.num_output_tokens == request.max_tokens:
                    self.running.remove(request)
                    self.kv.free(request)
                    request.status = "FINISHED"
                    finished.append(request.request_id)
        self.last_scheduled = {}
        return finished

    def abort(self, request_id):
        for request in self.waiting:
            if request.request_id == request_id:
                self.waiting.remove(request)
                request.status = "FINISHED"
                return True
        for request in self.running:
            if request.request_id == request_id:
                self.running.remove(request)
                self.kv.free(request)
                request.status = "FINISHED"
                return True
        return False

    def reset_prefix_cache(self, preempt_running=False):
        if preempt_running:
            for request in self.running[::-1]:
                self.preempt(request)
        return self.kv.reset_prefix_cache()


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if utilization_percent < 1 or utilization_percent > 100:
        raise ValueError("percent")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if len(available) == 0:
        raise ValueError("no worker")
    counts = []
    for memory in available:
        blocks = memory // (page_bytes * num_layers)
        if blocks < 0:
            blocks = 0
        counts.append(blocks)
    if override is not None:
        return override
    return min(counts)


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    if available <= 0:
        raise ValueError("no memory")
    needed = div_up(max_model_len, block_size) * page_bytes * num_layers
    if needed > available:
        raise ValueError("not enough memory")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    if available <= 0:
        return 0
    blocks = available // (page_bytes * num_layers)
    return min(blocks * block_size, max_model_len)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / div_up(max_model_len, block_size)


class Buddy:

    def __init__(self, slots):
        self.free = []
        start = 0
        while slots > 0:
            size = 1
            while size * 2 <= slots:
                size *= 2
            self.free.append((start, size))
            start += size
            slots -= size

    def alloc(self, wanted):
        size = 1
        while size < wanted:
            size *= 2
        best = None
        for chunk in sorted(self.free):
            if chunk[1] >= size and (best is None or chunk[1] < best[1]):
                best = chunk
        if best is None:
            return None
        self.free.remove(best)
        start, have = best
        while have > size:
            have = have // 2
            self.free.append((start + have, have))
        return (start, size)

    def release(self, chunk):
        start, size = chunk
        buddy = (start ^ size, size)
        while buddy in self.free:
            self.free.remove(buddy)
            start = min(start, buddy[0])
            size *= 2
            buddy = (start ^ size, size)
        self.free.append((start, size))


class Job:
    def __init__(self, prompt, output):
        self.held = prompt
        self.final = prompt + output
        self.wanted = 0
        self.chunk = None
        self.blocks = 0


def simulate(policy, slots, max_len, block_size, lengths):
    if policy not in ["max", "pow2", "oracle", "paged"]:
        raise ValueError("policy")
    queue = []
    for prompt, output in lengths:
        if prompt < 1 or output < 1 or prompt + output > max_len:
            raise ValueError("lengths")
        job = Job(prompt, output)
        if policy == "max":
            job.wanted = max_len
        elif policy == "pow2":
            p = 1
            while p < output:
                p *= 2
            job.wanted = min(max_len, prompt + p)
        elif policy == "oracle":
            job.wanted = job.final
        if policy == "paged":
            if div_up(job.final, block_size) > slots // block_size:
                raise ValueError("does not fit")
        elif Buddy(slots).alloc(job.wanted) is None:
            raise ValueError("does not fit")
        queue.append(job)
    if policy == "paged":
        return simulate_paged(slots, block_size, queue)
    memory = Buddy(slots)
    running = []
    rows = []
    while queue or running:
        while queue:
            chunk = memory.alloc(queue[0].wanted)
            if chunk is None:
                break
            queue[0].chunk = chunk
            running.append(queue.pop(0))
        token = 0
        reserved = 0
        internal = 0
        for job in running:
            token += job.held
            reserved += job.final - job.held
            internal += job.wanted - job.final
        rows.append([token, reserved, internal, slots - token - reserved - internal])
        for job in list(running):
            job.held += 1
            if job.held == job.final:
                running.remove(job)
                memory.release(job.chunk)
    return rows


def simulate_paged(slots, block_size, queue):
    free = slots // block_size
    running = []
    rows = []
    while queue or running:
        while queue and div_up(queue[0].held, block_size) <= free:
            job = queue.pop(0)
            job.blocks = div_up(job.held, block_size)
            free -= job.blocks
            running.append(job)
        token = 0
        internal = 0
        for job in running:
            token += job.held
            internal += job.blocks * block_size - job.held
        rows.append([token, 0, internal, slots - token - internal])
        for job in list(running):
            if job not in running:
                continue
            if job.held + 1 == job.final:
                running.remove(job)
                free += job.blocks
                continue
            if job.held == job.blocks * block_size:
                while free == 0 and job in running:
                    victim = running.pop()
                    free += victim.blocks
                    victim.blocks = 0
                    queue.insert(0, victim)
                if job not in running:
                    break
                free -= 1
                job.blocks += 1
            job.held += 1
    return rows
