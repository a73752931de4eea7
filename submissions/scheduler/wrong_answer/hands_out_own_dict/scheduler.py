"""Scheduler in a functional style: immutable tuples, small pure functions, dataclasses for records."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import takewhile
from typing import Callable, Iterable, Iterator, NamedTuple


# ------------------------------------------------------------------ pure helpers
def cdiv(a: int, b: int) -> int:
    return -(a // -b)


def key_of(r) -> tuple:
    return (r.priority, r.arrival_time, r.request_id)


def without(items: tuple, gone) -> tuple:
    return tuple(x for x in items if x is not gone)


def find(items: Iterable, request_id: str):
    return next((r for r in items if r.request_id == request_id), None)


def sorted_in(items: tuple, r) -> tuple:
    smaller = tuple(takewhile(lambda x: key_of(x) < key_of(r), items))
    return smaller + (r,) + items[len(smaller):]


@dataclass(frozen=True)
class Policy:
    join: Callable          # (waiting, request) -> waiting
    rejoin: Callable        # the same for a preempted request
    victim: Callable        # running -> request


POLICIES = {
    "fcfs": Policy(join=lambda w, r: w + (r,),
                   rejoin=lambda w, r: (r,) + w,
                   victim=lambda running: running[-1]),
    "priority": Policy(join=sorted_in,
                       rejoin=sorted_in,
                       victim=lambda running: max(running, key=key_of)),
}


@dataclass(frozen=True)
class Limits:
    seqs: int
    tokens: int
    threshold: int
    reserve_full: bool

    def __post_init__(self):
        for name, least in (("seqs", 1), ("tokens", 1), ("threshold", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}")

    def share(self, lacking: int, budget: int) -> int:
        caps = (lacking, budget) + ((self.threshold,) if self.threshold else ())
        return min(caps)


@dataclass
class Step:
    """What one call of schedule() has decided so far."""
    budget: int
    scheduled: dict = field(default_factory=dict)
    new: list = field(default_factory=list)
    resumed: list = field(default_factory=list)
    preempted: list = field(default_factory=list)

    def give(self, r, n: int) -> None:
        self.scheduled[r.request_id] = n
        self.budget -= n

    def withdraw(self, r) -> None:
        self.preempted.append(r.request_id)
        self.budget += self.scheduled.pop(r.request_id, 0)

    def as_dict(self) -> dict:
        return {"scheduled": self.scheduled, "new": self.new, "resumed": self.resumed,
                "preempted": self.preempted, "total": sum(self.scheduled.values())}


# ------------------------------------------------------------------ Tasks 1 to 4
class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if policy not in POLICIES:
            raise ValueError(f"no such policy: {policy}")
        self.limits = Limits(max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold, reserve_full)
        self.policy = POLICIES[policy]
        self.kv = kv
        self.waiting: tuple = ()
        self.running: tuple = ()
        self.shares: dict = {}          # id -> tokens of the step under way

    def add_request(self, request) -> None:
        problem = self.objection(request)
        if problem:
            raise ValueError(problem)
        request.status = "WAITING"
        self.waiting = self.policy.join(self.waiting, request)

    def objection(self, r) -> str | None:
        if find(self.waiting + self.running, r.request_id):
            return "this id is in use"
        if r.num_prompt_tokens < 1:
            return "empty prompt"
        if r.max_tokens < 1:
            return "max_tokens must be positive"
        if cdiv(r.num_prompt_tokens + r.max_tokens, self.kv.block_size) >= self.kv.num_blocks:
            return "too long for this cache"
        return None

    def preempt(self, v) -> None:
        self.running = without(self.running, v)
        self.kv.free(v)
        v.num_computed_tokens, v.status = 0, "PREEMPTED"
        v.num_preemptions += 1
        self.waiting = self.policy.rejoin(self.waiting, v)

    def schedule(self) -> dict:
        step = Step(self.limits.tokens)
        before = self.running
        for r in before:
            if step.budget < 1:
                break
            if any(r is x for x in self.running) and not self.serve(step, r):
                break
        if not step.preempted:
            while self.admit_first(step):
                pass
        self.shares = step.scheduled
        return step.as_dict()

    def serve(self, step: Step, r) -> bool:
        """Make room for r, whatever it costs the others; False if r itself had to go."""
        n = self.limits.share(r.num_tokens - r.num_computed_tokens, step.budget)
        while self.kv.allocate_slots(r, n) is None:
            v = self.policy.victim(self.running)
            self.preempt(v)
            step.withdraw(v)
            if v is r:
                return False
        step.give(r, n)
        return True

    def admit_first(self, step: Step) -> bool:
        if not (self.waiting and step.budget > 0 and len(self.running) < self.limits.seqs):
            return False
        r = self.waiting[0]
        hits, t = self.kv.get_computed_blocks(r)
        n = self.limits.share(r.num_tokens - t, step.budget)
        if self.limits.reserve_full and self.full_need(r, hits) > self.kv.get_num_free_blocks():
            return False
        if self.kv.allocate_slots(r, n, hits) is None:
            return False
        self.waiting, self.running = self.waiting[1:], self.running + (r,)
        {"WAITING": step.new, "PREEMPTED": step.resumed}[r.status].append(r.request_id)
        r.num_computed_tokens, r.status = t, "RUNNING"
        step.give(r, n)
        return True

    def full_need(self, r, hits) -> int:
        return (max(cdiv(r.num_tokens, self.kv.block_size) - len(hits), 0)
                + len([b for b in hits if b.ref_cnt == 0]))

    def update(self, samples) -> list:
        alive = [(r, self.shares[r.request_id]) for r in self.running if r.request_id in self.shares]
        return [r.request_id for r, n in alive if self.advance(r, n, samples)]

    def advance(self, r, n: int, samples) -> bool:
        """Book n computed tokens; True if that finished the request."""
        r.num_computed_tokens += n
        if r.num_computed_tokens != r.num_tokens:
            return False
        r.append_output_token_ids(samples[r.request_id])
        if r.num_output_tokens < r.max_tokens:
            return False
        self.retire(r)
        return True

    def retire(self, r) -> None:
        if any(r is x for x in self.running):
            self.running = without(self.running, r)
            self.kv.free(r)
        else:
            self.waiting = without(self.waiting, r)
        r.status = "FINISHED"

    def abort(self, request_id) -> bool:
        r = find(self.waiting + self.running, request_id)
        if r is None:
            return False
        self.retire(r)
        self.shares.pop(request_id, None)
        return True

    def reset_prefix_cache(self, preempt_running=False) -> bool:
        if preempt_running:
            for r in self.running[::-1]:
                self.preempt(r)
        return self.kv.reset_prefix_cache()


# ------------------------------------------------------------------ Task 5
def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return reduce(int.__mul__, (block_size, num_kv_heads, head_size, itemsize), 2)


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if utilization_percent not in range(1, 101):
        raise ValueError("utilization_percent")
    return reduce(int.__sub__, (weights, peak_activation, other), total * utilization_percent // 100)


def get_num_blocks(available, page_bytes, num_layers, override=None):
    rooms = [max(0, a // (page_bytes * num_layers)) for a in available]
    if not rooms:
        raise ValueError("available is empty")
    return min(rooms) if override is None else override


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    needed = cdiv(max_model_len, block_size) * page_bytes * num_layers
    if available <= 0 or needed > available:
        raise ValueError(f"not enough memory: {available} < {needed}")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    def fits(n):
        return cdiv(n, block_size) * page_bytes * num_layers <= available

    low, high = 0, max_model_len        # low fits (or is 0), nothing above high does
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / cdiv(max_model_len, block_size)


# ------------------------------------------------------------------ Task 6
class Chunk(NamedTuple):
    size: int
    start: int


@dataclass(frozen=True)
class Job:
    held: int
    final: int
    wanted: int
    chunk: Chunk | None = None
    blocks: int = 0


def pow2(n: int) -> int:
    return 1 if n <= 1 else 2 * pow2((n + 1) // 2)


def cut(slots: int, start: int = 0) -> frozenset:
    if slots == 0:
        return frozenset()
    size = pow2(slots + 1) // 2
    return cut(slots - size, start + size) | {Chunk(size, start)}


def halve(chunk: Chunk, size: int, free: frozenset) -> tuple[Chunk, frozenset]:
    if chunk.size == size:
        return chunk, free
    half = chunk.size // 2
    return halve(Chunk(half, chunk.start), size, free | {Chunk(half, chunk.start + half)})


def take(free: frozenset, size: int) -> tuple[Chunk | None, frozenset]:
    best = min((c for c in free if c.size >= size), default=None)
    return (None, free) if best is None else halve(best, size, free - {best})


def give(free: frozenset, chunk: Chunk) -> frozenset:
    buddy = Chunk(chunk.size, chunk.start ^ chunk.size)
    if buddy not in free:
        return free | {chunk}
    return give(free - {buddy}, Chunk(chunk.size * 2, min(chunk.start, buddy.start)))


WANTED = {
    "max": lambda max_len, prompt, output: max_len,
    "pow2": lambda max_len, prompt, output: min(max_len, prompt + pow2(output)),
    "oracle": lambda max_len, prompt, output: prompt + output,
    "paged": lambda max_len, prompt, output: prompt + output,
}


def simulate(policy, slots, max_len, block_size, lengths):
    if policy not in WANTED:
        raise ValueError(f"no such policy: {policy}")
    if any(p < 1 or o < 1 or p + o > max_len for p, o in lengths):
        raise ValueError("prompt or output out of range")
    jobs = tuple(Job(p, p + o, WANTED[policy](max_len, p, o)) for p, o in lengths)
    if policy == "paged":
        never = any(cdiv(j.final, block_size) > slots // block_size for j in jobs)
    else:
        largest = max((c.size for c in cut(slots)), default=0)
        never = any(pow2(j.wanted) > largest for j in jobs)
    if never:
        raise ValueError("a request can never be admitted")
    return list(paged(slots, block_size, jobs) if policy == "paged" else contiguous(slots, jobs))


def contiguous(slots: int, queue: tuple) -> Iterator[list]:
    running, free = (), cut(slots)
    while queue or running:
        while queue:
            chunk, left = take(free, pow2(queue[0].wanted))
            if chunk is None:
                break
            free, running, queue = left, running + (replace(queue[0], chunk=chunk),), queue[1:]
        parts = [sum(j.held for j in running), sum(j.final - j.held for j in running),
                 sum(j.wanted - j.final for j in running)]
        yield parts + [slots - sum(parts)]
        moved = tuple(replace(j, held=j.held + 1) for j in running)
        free = reduce(give, (j.chunk for j in moved if j.held == j.final), free)
        running = tuple(j for j in moved if j.held < j.final)


def paged(slots: int, block_size: int, queue: tuple) -> Iterator[list]:
    running, free = (), slots // block_size
    while queue or running:
        while queue and cdiv(queue[0].held, block_size) <= free:
            need = cdiv(queue[0].held, block_size)
            free, running, queue = free - need, running + (replace(queue[0], blocks=need),), queue[1:]
        token = sum(j.held for j in running)
        internal = sum(j.blocks * block_size - j.held for j in running)
        yield [token, 0, internal, slots - token - internal]
        running, queue, free = advance_all((), running, queue, free, block_size)


def advance_all(done: tuple, todo: tuple, queue: tuple, free: int, block_size: int) -> tuple:
    """done have their token of this step, todo (in order) have not yet."""
    while todo:
        job, todo = todo[0], todo[1:]
        if job.held + 1 == job.final:
            free += job.blocks
            continue
        grow = job.held + 1 > job.blocks * block_size
        while grow and free == 0 and todo:
            last, todo = todo[-1], todo[:-1]
            free, queue = free + last.blocks, (replace(last, blocks=0),) + queue
        if grow and free == 0:
            return done, (replace(job, blocks=0),) + queue, free + job.blocks
        free -= grow
        done += (replace(job, held=job.held + 1, blocks=job.blocks + grow),)
    return done, queue, free
