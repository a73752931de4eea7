"""Scheduler: the steps are generators of small events, the folding of events into a result is elsewhere."""
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile


# ---------------------------------------------------------------- helpers

def ceil_div(a, b):
    return -(-a // b)


def sort_key(request):
    return request.priority, request.arrival_time, request.request_id


def share(missing, threshold, budget):
    limits = [missing, budget] + ([threshold] if threshold > 0 else [])
    return min(limits)


def without(requests, gone):
    return [r for r in requests if r is not gone]


def require(condition, text):
    if not condition:
        raise ValueError(text)


# ---------------------------------------------------------------- events and results

@dataclass(frozen=True)
class Scheduled:
    request: object
    tokens: int


@dataclass(frozen=True)
class Preempted:
    request: object


@dataclass(frozen=True)
class Admitted:
    request: object
    tokens: int
    was: str


@dataclass
class Step:
    budget: int
    tokens: dict = field(default_factory=dict)
    new: list = field(default_factory=list)
    resumed: list = field(default_factory=list)
    preempted: list = field(default_factory=list)

    def apply(self, event):
        rid = event.request.request_id
        if isinstance(event, Preempted):
            self.budget += self.tokens.pop(rid, 0)
            self.preempted.append(rid)
            return
        if isinstance(event, Admitted):
            (self.resumed if event.was == "PREEMPTED" else self.new).append(rid)
        self.tokens[rid] = event.tokens
        self.budget -= event.tokens

    def result(self):
        return {
            "scheduled": dict(self.tokens),
            "new": list(self.new),
            "resumed": list(self.resumed),
            "preempted": list(self.preempted),
            "total": sum(self.tokens.values()),
        }


@dataclass(frozen=True)
class Policy:
    """How a policy orders the queue and picks a victim."""
    join: object
    come_back: object
    victim: object


def insert_by_key(queue, request):
    key = sort_key(request)
    smaller = list(takewhile(lambda r: sort_key(r) < key, queue))
    return smaller + [request] + queue[len(smaller):]


POLICIES = {
    "fcfs": Policy(
        join=lambda queue, r: queue + [r],
        come_back=lambda queue, r: [r] + queue,
        victim=lambda running: running[-1],
    ),
    "priority": Policy(
        join=insert_by_key,
        come_back=insert_by_key,
        victim=partial(max, key=sort_key),
    ),
}


# ---------------------------------------------------------------- the scheduler

class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        require(max_num_seqs >= 1, "max_num_seqs")
        require(max_num_batched_tokens >= 1, "max_num_batched_tokens")
        require(long_prefill_token_threshold >= 0, "long_prefill_token_threshold")
        require(policy in POLICIES, "policy")
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.threshold = long_prefill_token_threshold
        self.policy = POLICIES[policy]
        self.reserve_full = reserve_full
        self.waiting = []
        self.running = []
        self._pending = {}
        self._preempted = []

    def _blocks(self, tokens):
        return ceil_div(tokens, self.kv.block_size)

    def add_request(self, request):
        known = {r.request_id for r in [*self.waiting, *self.running]}
        require(request.request_id not in known, "id in use")
        require(request.num_prompt_tokens >= 1, "empty prompt")
        require(request.max_tokens >= 1, "max_tokens")
        longest = request.num_prompt_tokens + request.max_tokens
        require(self._blocks(longest) <= self.kv.num_blocks - 1, "can never fit")
        request.status = "WAITING"
        self.waiting = self.policy.join(self.waiting, request)

    def schedule(self):
        step = Step(self.max_num_batched_tokens, preempted=self._preempted)
        self._preempted = []
        for event in self._grow(step):
            step.apply(event)
        if not step.preempted:
            for event in self._admit(step):
                step.apply(event)
        self._pending = dict(step.tokens)
        return step.result()

    def _preempt(self, request):
        self.running = without(self.running, request)
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = "PREEMPTED"
        self.waiting = self.policy.come_back(self.waiting, request)
        return Preempted(request)

    def _grow(self, step):
        for request in list(self.running):
            if step.budget < 1:
                return
            if request not in self.running:
                continue
            n = share(request.num_tokens - request.num_computed_tokens, self.threshold, step.budget)
            while self.kv.allocate_slots(request, n) is None:
                victim = self.policy.victim(self.running)
                yield self._preempt(victim)
                if victim is request:
                    return
            yield Scheduled(request, n)

    def _admit(self, step):
        while self.waiting and step.budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            hits, found = self.kv.get_computed_blocks(request)
            n = share(request.num_tokens - found, self.threshold, step.budget)
            if self.reserve_full and not self._whole_fits(request, hits):
                return
            if self.kv.allocate_slots(request, n, hits) is None:
                return
            was = request.status
            self.waiting = self.waiting[1:]
            self.running = self.running + [request]
            request.num_computed_tokens = found
            request.status = "RUNNING"
            yield Admitted(request, n, was)

    def _whole_fits(self, request, hits):
        fresh = max(self._blocks(request.num_tokens) - len(hits), 0)
        idle = sum(1 for block in hits if block.ref_cnt == 0)
        return fresh + idle <= self.kv.get_num_free_blocks()

    def update(self, samples):
        pending, self._pending = self._pending, {}
        return list(self._finished(pending, samples))

    def _finished(self, pending, samples):
        for request in [r for r in self.running if r.request_id in pending]:
            rid = request.request_id
            request.num_computed_tokens += pending[rid]
            if request.num_computed_tokens == request.num_tokens:
                request.append_output_token_ids(samples[rid])
            if request.num_output_tokens >= request.max_tokens:
                self._finish(request)
                yield rid

    def _finish(self, request):
        if request in self.running:
            self.running = without(self.running, request)
            self.kv.free(request)
        else:
            self.waiting = without(self.waiting, request)
        request.status = "FINISHED"

    def abort(self, request_id):
        found = [r for r in [*self.waiting, *self.running] if r.request_id == request_id]
        for request in found:
            self._finish(request)
        return bool(found)

    def reset_prefix_cache(self, preempt_running=False):
        if preempt_running:
            for request in reversed(self.running):
                self._preempt(request)
                self._preempted.append(request.request_id)
        return self.kv.reset_prefix_cache()


# ---------------------------------------------------------------- Task 5

def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    require(1 <= utilization_percent <= 100, "utilization_percent")
    return total * utilization_percent // 100 - sum((weights, peak_activation, other))


def get_num_blocks(available, page_bytes, num_layers, override=None):
    require(len(available) > 0, "no worker")
    fewest = min(max(0, memory // (page_bytes * num_layers)) for memory in available)
    return fewest if override is None else override


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    needed = ceil_div(max_model_len, block_size) * page_bytes * num_layers
    require(available > 0, "no memory at all")
    require(available >= needed, "not enough memory")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    blocks = max(0, available) // (page_bytes * num_layers)
    return min(max_model_len, blocks * block_size)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / ceil_div(max_model_len, block_size)


# ---------------------------------------------------------------- Task 6

def power_of_two_from(n):
    return 1 << (n - 1).bit_length()


def cut(slots, start=0):
    """The chunks of the empty memory, (size, start)."""
    while slots:
        size = 1 << (slots.bit_length() - 1)
        yield size, start
        start, slots = start + size, slots - size


def take(free, wanted):
    """(chunk, the chunks that stay free), or None."""
    size = power_of_two_from(wanted)
    candidates = [c for c in free if c[0] >= size]
    if not candidates:
        return None
    have, start = min(candidates)
    rest = free - {(have, start)}
    while have > size:
        have //= 2
        rest = rest | {(have, start + have)}
    return (have, start), rest


def give_back(free, chunk):
    size, start = chunk
    buddy = (size, start ^ size)
    if buddy in free:
        return give_back(free - {buddy}, (2 * size, min(start, buddy[1])))
    return free | {chunk}


@dataclass(frozen=True)
class Job:
    number: int
    held: int
    final: int
    wanted: int
    memory: object = None       # a chunk, or a number of blocks


WANTED = {
    "max": lambda max_len, p, o: max_len,
    "pow2": lambda max_len, p, o: min(max_len, p + power_of_two_from(o)),
    "oracle": lambda max_len, p, o: p + o,
    "paged": lambda max_len, p, o: 0,
}


def simulate(policy, slots, max_len, block_size, lengths):
    require(policy in WANTED, "policy")
    for prompt, output in lengths:
        require(prompt >= 1 and output >= 1, "lengths")
        require(prompt + output <= max_len, "too long")
    jobs = [Job(i, p, p + o, WANTED[policy](max_len, p, o)) for i, (p, o) in enumerate(lengths)]
    if policy == "paged":
        require(all(ceil_div(j.final, block_size) <= slots // block_size for j in jobs), "no place")
        return list(paged_rows(slots, block_size, jobs))
    empty = frozenset(cut(slots))
    require(all(take(empty, j.wanted) for j in jobs), "no place")
    return list(contiguous_rows(slots, empty, jobs))


def contiguous_rows(slots, free, queue):
    running = []
    while queue or running:
        while queue and (got := take(free, queue[0].wanted)):
            chunk, free = got
            running = running + [replace(queue[0], memory=chunk)]
            queue = queue[1:]
        token = sum(j.held for j in running)
        reserved = sum(j.final - j.held for j in running)
        internal = sum(j.wanted - j.final for j in running)
        yield [token, reserved, internal, slots - token - reserved - internal]
        running = [replace(j, held=j.held + 1) for j in running]
        for job in running:
            if job.held == job.final:
                free = give_back(free, job.memory)
        running = [j for j in running if j.held < j.final]


def paged_rows(slots, block_size, queue):
    free, running = slots // block_size, []
    while queue or running:
        while queue and (need := ceil_div(queue[0].held, block_size)) <= free:
            free -= need
            running = running + [replace(queue[0], memory=need)]
            queue = queue[1:]
        token = sum(j.held for j in running)
        internal = sum(j.memory * block_size - j.held for j in running)
        yield [token, 0, internal, slots - token - internal]
        done, todo = [], running
        while todo:
            job, todo = todo[0], todo[1:]
            if job.held + 1 == job.final:
                free += job.memory
                continue
            if job.held < job.memory * block_size:
                done.append(replace(job, held=job.held + 1))
                continue
            while not free and todo:
                victim, todo = todo[-1], todo[:-1]
                free += victim.memory
                queue = [replace(victim, memory=None)] + queue
            if not free:
                free += job.memory
                queue = [replace(job, memory=None)] + queue
                break
            free -= 1
            done.append(replace(job, held=job.held + 1, memory=job.memory + 1))
        running = done
