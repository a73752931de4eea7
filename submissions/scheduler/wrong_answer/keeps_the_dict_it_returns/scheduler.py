import bisect
import heapq
from collections import deque
from dataclasses import dataclass


def cdiv(a, b):
    return -(-a // b)


def order(request):
    return request.priority, request.arrival_time, request.request_id


class FcfsQueue:
    def __init__(self):
        self.items = deque()

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)

    def first(self):
        return self.items[0]

    def add(self, request):
        self.items.append(request)

    def put_back(self, request):
        self.items.appendleft(request)

    def discard(self, request):
        self.items.remove(request)


class PriorityQueue:
    def __init__(self):
        self.items = []

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)

    def first(self):
        return self.items[0]

    def add(self, request):
        bisect.insort(self.items, request, key=order)

    put_back = add

    def discard(self, request):
        self.items.remove(request)


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        queues = {"fcfs": FcfsQueue, "priority": PriorityQueue}
        if policy not in queues:
            raise ValueError(f"policy {policy!r}")
        if min(max_num_seqs, max_num_batched_tokens) < 1 or long_prefill_token_threshold < 0:
            raise ValueError("limit too small")
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.threshold = long_prefill_token_threshold
        self.policy = policy
        self.reserve_full = reserve_full
        self.waiting = queues[policy]()
        self._running = {}
        self._step = {}

    @property
    def running(self):
        return list(self._running.values())

    def add_request(self, request):
        rid = request.request_id
        if rid in self._running or any(w.request_id == rid for w in self.waiting):
            raise ValueError(f"{rid} is here already")
        if request.num_prompt_tokens <= 0 or request.max_tokens <= 0:
            raise ValueError("nothing to do")
        blocks = cdiv(request.num_prompt_tokens + request.max_tokens, self.kv.block_size)
        if blocks >= self.kv.num_blocks:
            raise ValueError(f"{rid} needs {blocks} blocks")
        request.status = "WAITING"
        self.waiting.add(request)

    def _share(self, lacking, budget):
        if self.threshold:
            lacking = min(lacking, self.threshold)
        return min(lacking, budget)

    def _victim(self):
        if self.policy == "priority":
            return max(self._running.values(), key=order)
        return next(reversed(self._running.values()))

    def _preempt(self, request):
        del self._running[request.request_id]
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = "PREEMPTED"
        self.waiting.put_back(request)

    def _room_for_all(self, request, hits):
        want = max(cdiv(request.num_tokens, self.kv.block_size) - len(hits), 0)
        want += sum(1 for block in hits if block.ref_cnt == 0)
        return want <= self.kv.get_num_free_blocks()

    def schedule(self):
        budget = self.max_num_batched_tokens
        scheduled, preempted = {}, []
        admitted = {"WAITING": [], "PREEMPTED": []}

        for r in self.running:
            if budget <= 0:
                break
            if r.request_id not in self._running:
                continue
            n = self._share(r.num_tokens - r.num_computed_tokens, budget)
            while self.kv.allocate_slots(r, n) is None:
                v = self._victim()
                self._preempt(v)
                preempted.append(v.request_id)
                budget += scheduled.pop(v.request_id, 0)
                if v is r:
                    break
            if r.request_id not in self._running:
                break
            scheduled[r.request_id] = n
            budget -= n

        while not preempted and self.waiting and budget > 0 and len(self._running) < self.max_num_seqs:
            r = self.waiting.first()
            hits, t = self.kv.get_computed_blocks(r)
            n = self._share(r.num_tokens - t, budget)
            if self.reserve_full and not self._room_for_all(r, hits):
                break
            if self.kv.allocate_slots(r, n, hits) is None:
                break
            self.waiting.discard(r)
            self._running[r.request_id] = r
            admitted[r.status].append(r.request_id)
            r.num_computed_tokens = t
            r.status = "RUNNING"
            scheduled[r.request_id] = n
            budget -= n

        self._step = scheduled
        return {
            "scheduled": scheduled,
            "new": admitted["WAITING"],
            "resumed": admitted["PREEMPTED"],
            "preempted": preempted,
            "total": sum(scheduled.values()),
        }

    def update(self, samples):
        done = []
        for r in self.running:
            rid = r.request_id
            if rid in self._step:
                r.num_computed_tokens += self._step[rid]
                if r.num_computed_tokens == r.num_tokens:
                    r.append_output_token_ids(samples[rid])
                if r.num_output_tokens == r.max_tokens:
                    self._finish(r)
                    done.append(rid)
        self._step = {}
        return done

    def _finish(self, request):
        del self._running[request.request_id]
        self.kv.free(request)
        request.status = "FINISHED"

    def abort(self, request_id):
        if request_id in self._running:
            self._finish(self._running[request_id])
            return True
        for w in self.waiting:
            if w.request_id == request_id:
                self.waiting.discard(w)
                w.status = "FINISHED"
                return True
        return False

    def reset_prefix_cache(self, preempt_running=False):
        if preempt_running:
            for r in reversed(self.running):
                self._preempt(r)
        return self.kv.reset_prefix_cache()


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    keys = block_size * num_kv_heads * head_size * itemsize
    values = keys
    return keys + values


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if not 1 <= utilization_percent <= 100:
        raise ValueError("utilization_percent")
    return (total * utilization_percent) // 100 - (weights + peak_activation + other)


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if not available:
        raise ValueError("no worker")
    per_worker = [max(0, a // (page_bytes * num_layers)) for a in available]
    return min(per_worker) if override is None else override


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    need = cdiv(max_model_len, block_size) * page_bytes * num_layers
    if available < need:
        raise ValueError(f"{need} bytes needed")
    return need


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    fits = max(available, 0) // (page_bytes * num_layers) * block_size
    return min(fits, max_model_len)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / cdiv(max_model_len, block_size)


def pow2_at_least(x):
    return 1 << (x - 1).bit_length()


class BuddyMemory:
    """free[size] is a heap of the start addresses of the free chunks of this size."""

    def __init__(self, slots):
        self.free = {}
        address = 0
        for bit in reversed(range(slots.bit_length())):
            self.free[1 << bit] = []
            if slots & (1 << bit):
                self.free[1 << bit].append(address)
                address += 1 << bit

    def alloc(self, places):
        want = pow2_at_least(places)
        size = min((s for s, starts in self.free.items() if starts and s >= want), default=None)
        if size is None:
            return None
        start = heapq.heappop(self.free[size])
        while size > want:
            size //= 2
            heapq.heappush(self.free[size], start + size)
        return start, size

    def release(self, start, size):
        buddy = start ^ size
        if buddy in self.free[size]:
            self.free[size].remove(buddy)
            heapq.heapify(self.free[size])
            self.release(min(start, buddy), 2 * size)
        else:
            heapq.heappush(self.free[size], start)


@dataclass(eq=False)
class Job:
    held: int
    final: int
    wanted: int = 0
    start: int = 0
    size: int = 0
    blocks: int = 0


def simulate(policy, slots, max_len, block_size, lengths):
    if policy not in {"max", "pow2", "oracle", "paged"}:
        raise ValueError(policy)
    jobs = []
    for prompt, output in lengths:
        final = prompt + output
        if min(prompt, output) < 1 or final > max_len:
            raise ValueError("bad length")
        job = Job(prompt, final)
        if policy == "paged":
            if cdiv(final, block_size) > slots // block_size:
                raise ValueError("too large for the memory")
        else:
            job.wanted = {
                "max": max_len,
                "pow2": min(max_len, prompt + pow2_at_least(output)),
                "oracle": final,
            }[policy]
            if pow2_at_least(job.wanted) > slots:
                raise ValueError("too large for the memory")
        jobs.append(job)
    if policy == "paged":
        return run_paged(slots, block_size, deque(jobs))
    return run_contiguous(slots, deque(jobs))


def run_contiguous(slots, queue):
    memory = BuddyMemory(slots)
    running, rows = [], []
    while queue or running:
        while queue:
            place = memory.alloc(queue[0].wanted)
            if place is None:
                break
            job = queue.popleft()
            job.start, job.size = place
            running.append(job)

        row = [
            sum(j.held for j in running),
            sum(j.final - j.held for j in running),
            sum(j.wanted - j.final for j in running),
        ]
        rows.append(row + [slots - sum(row)])

        for job in running:
            job.held += 1
            if job.held == job.final:
                memory.release(job.start, job.size)
        running = [j for j in running if j.held < j.final]
    return rows


def run_paged(slots, block_size, queue):
    free = slots // block_size
    running, rows = [], []
    while queue or running:
        while queue and cdiv(queue[0].held, block_size) <= free:
            job = queue.popleft()
            job.blocks = cdiv(job.held, block_size)
            free -= job.blocks
            running.append(job)

        held = sum(j.held for j in running)
        used = block_size * sum(j.blocks for j in running)
        rows.append([held, 0, used - held, slots - used])

        for job in list(running):
            if job not in running:
                break
            if job.held + 1 == job.final:
                running.remove(job)
                free += job.blocks
                continue
            if job.held + 1 > job.blocks * block_size:
                while free == 0 and job in running:
                    last = running.pop()
                    free += last.blocks
                    queue.appendleft(last)
                if job not in running:
                    break
                free -= 1
                job.blocks += 1
            job.held += 1
    return rows
