from abc import ABC, abstractmethod
from collections import deque


class BadConfiguration(ValueError):
    """A constructor or function got an argument out of its range."""


class RequestRefused(ValueError):
    """A request cannot join the waiting queue."""


class TooLarge(RequestRefused):
    """There would never be enough memory."""


def blocks_needed(tokens, block_size):
    return (tokens - 1) // block_size + 1


# ---- Queueing policies ----
class QueuePolicy(ABC):
    def __init__(self):
        self.queue = deque()

    def __iter__(self):
        return iter(self.queue)

    def remove(self, request):
        self.queue = deque(r for r in self.queue if r is not request)

    @abstractmethod
    def enqueue(self, request):
        """A new request arrives."""

    @abstractmethod
    def requeue(self, request):
        """A preempted request comes back."""

    @abstractmethod
    def victim(self, running):
        """The running request that is preempted next."""


class Fcfs(QueuePolicy):
    def enqueue(self, request):
        self.queue.append(request)

    def requeue(self, request):
        self.queue.appendleft(request)

    def victim(self, running):
        return running[-1]


class Priority(QueuePolicy):
    @staticmethod
    def key(request):
        return (request.priority, request.arrival_time, request.request_id)

    def enqueue(self, request):
        self.queue = deque(sorted([*self.queue, request], key=self.key))

    requeue = enqueue

    def victim(self, running):
        return sorted(running, key=self.key)[-1]


class AdmissionRule:
    def allows(self, kv, request, hits):
        return True


class ReserveFull(AdmissionRule):
    def allows(self, kv, request, hits):
        missing = max(blocks_needed(request.num_tokens, kv.block_size) - len(hits), 0)
        woken = len([hit for hit in hits if hit.ref_cnt == 0])
        return missing + woken <= kv.get_num_free_blocks()


# ---- The scheduler ----
class StepRecord:
    def __init__(self, budget):
        self.budget = budget
        self.entries = []                       # [request, tokens], in order
        self.admitted = {"WAITING": [], "PREEMPTED": []}
        self.preempted = []

    def book(self, request, tokens):
        self.entries.append((request, tokens))
        self.budget -= tokens

    def cancel(self, victim):
        self.preempted.append(victim.request_id)
        for entry in self.entries:
            if entry[0] is victim:
                self.entries.remove(entry)
                self.budget += entry[1]
                return

    def tokens_of(self, request):
        for other, tokens in self.entries:
            if other is request:
                return tokens
        return 0

    def result(self):
        scheduled = {request.request_id: tokens for request, tokens in self.entries}
        return {
            "scheduled": scheduled,
            "new": self.admitted["WAITING"][:],
            "resumed": self.admitted["PREEMPTED"][:],
            "preempted": self.preempted[:],
            "total": sum(scheduled.values()),
        }


class Scheduler:
    QUEUES = {"fcfs": Fcfs, "priority": Priority}

    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if max_num_seqs < 1 or max_num_batched_tokens < 1 or long_prefill_token_threshold < 0:
            raise BadConfiguration("limit out of range")
        if policy not in self.QUEUES:
            raise BadConfiguration(f"unknown policy {policy}")
        self.waiting = self.QUEUES[policy]()
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.threshold = long_prefill_token_threshold
        self.rule = ReserveFull() if reserve_full else AdmissionRule()
        self.running = []
        self.step = StepRecord(0)

    # Task 1
    def add_request(self, request):
        rid = request.request_id
        if self._find(rid) is not None:
            raise RequestRefused(f"{rid}: id already in use")
        if request.num_prompt_tokens < 1 or request.max_tokens < 1:
            raise RequestRefused(f"{rid}: prompt and output need at least one token")
        total = request.num_prompt_tokens + request.max_tokens
        if blocks_needed(total, self.kv.block_size) > self.kv.num_blocks - 1:
            raise TooLarge(f"{rid}: {total} tokens never fit")
        request.status = "WAITING"
        self.waiting.enqueue(request)

    def _find(self, request_id):
        for group in (self.waiting, self.running):
            for request in group:
                if request.request_id == request_id:
                    return request
        return None

    # Task 2
    def schedule(self):
        self.step = StepRecord(self.max_num_batched_tokens)
        self._serve_running()
        if not self.step.preempted:
            self._admit_waiting()
        return self.step.result()

    def _share(self, lacking):
        if self.threshold:
            lacking = min(lacking, self.threshold)
        return min(lacking, self.step.budget)

    def _serve_running(self):
        served = 0
        while served < len(self.running) and self.step.budget > 0:
            request = self.running[served]
            tokens = self._share(request.num_tokens - request.num_computed_tokens)
            if not self._make_room(request, tokens):
                return
            self.step.book(request, tokens)
            served = self.running.index(request) + 1

    def _make_room(self, request, tokens):
        while self.kv.allocate_slots(request, tokens) is None:
            victim = self.waiting.victim(self.running)
            self._preempt(victim)
            self.step.cancel(victim)
            if victim is request:
                return False
        return True

    def _preempt(self, victim):
        self.running.remove(victim)
        self.kv.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = "PREEMPTED"
        self.waiting.requeue(victim)

    def _admit_waiting(self):
        while self.waiting.queue and self.step.budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.waiting.queue[0]
            hits, cached = self.kv.get_computed_blocks(request)
            tokens = self._share(request.num_tokens - cached)
            if not self.rule.allows(self.kv, request, hits):
                return
            request.num_computed_tokens = cached
            if self.kv.allocate_slots(request, tokens, hits) is None:
                request.num_computed_tokens = 0
                return
            self.running.append(self.waiting.queue.popleft())
            self.step.admitted[request.status].append(request.request_id)
            request.status = "RUNNING"
            self.step.book(request, tokens)

    # Task 3
    def update(self, samples):
        step, self.step = self.step, StepRecord(0)
        finished = []
        for request in tuple(self.running):
            tokens = step.tokens_of(request)
            if tokens == 0:
                continue
            request.num_computed_tokens += tokens
            if request.num_computed_tokens == request.num_tokens:
                request.append_output_token_ids(samples[request.request_id])
                if request.num_output_tokens == request.max_tokens:
                    self._retire(request)
                    finished.append(request.request_id)
        return finished

    def _retire(self, request):
        if request.status == "RUNNING":
            self.running.remove(request)
            self.kv.free(request)
        else:
            self.waiting.remove(request)
        request.status = "FINISHED"

    # Task 4
    def abort(self, request_id):
        request = self._find(request_id)
        if request is None:
            return False
        self._retire(request)
        return True

    def reset_prefix_cache(self, preempt_running=False):
        if preempt_running:
            for request in self.running[::-1]:
                self._preempt(request)
        return self.kv.reset_prefix_cache()


# ---- Task 5 ----
def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return block_size * num_kv_heads * head_size * itemsize * 2


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if not 0 < utilization_percent <= 100:
        raise BadConfiguration("utilization_percent must be in 1..100")
    return total * utilization_percent // 100 - sum((weights, peak_activation, other))


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if not available:
        raise BadConfiguration("no worker")
    if override is None:
        return min(max(0, memory) // (page_bytes * num_layers) for memory in available)
    return override


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    needed = blocks_needed(max_model_len, block_size) * page_bytes * num_layers
    if available <= 0 or needed > available:
        raise TooLarge(f"{needed} bytes needed, {available} available")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    whole_blocks = max(0, available) // (page_bytes * num_layers)
    return min(whole_blocks * block_size, max_model_len)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / blocks_needed(max_model_len, block_size)


# ---- Task 6 ----
class SimRequest:
    def __init__(self, prompt, output):
        self.prompt, self.output = prompt, output
        self.held, self.final = prompt, prompt + output


class Chunk:
    def __init__(self, start, size):
        self.start, self.size = start, size
        self.taken, self.halves = False, None

    def best_free(self, size):
        if self.size < size or self.taken:
            return None
        if self.halves is None:
            return (self.size, self.start, self)
        found = [f for f in (half.best_free(size) for half in self.halves) if f]
        return min(found, key=lambda f: f[:2], default=None)

    def take(self, size):
        if self.size == size:
            self.taken = True
            return self.start
        half = self.size // 2
        self.halves = (Chunk(self.start, half), Chunk(self.start + half, half))
        return self.halves[0].take(size)

    def give(self, start, size):
        if self.size == size:
            self.taken = False
            return
        self.halves[start >= self.start + self.size // 2].give(start, size)
        if all(half.halves is None and not half.taken for half in self.halves):
            self.halves = None


class Memory(ABC):
    def __init__(self, slots, max_len, block_size):
        self.slots, self.max_len, self.block_size = slots, max_len, block_size
        self.places = {}

    @abstractmethod
    def take(self, request):
        """Memory for the request, or None."""

    @abstractmethod
    def release(self, request):
        """Give everything back."""

    @abstractmethod
    def row(self, running):
        """Reserved and internal."""

    def admit(self, request):
        place = self.take(request)
        if place is not None:
            self.places[request] = place
        return place is not None

    def grow(self, request):
        return True


class ContiguousMemory(Memory):
    def __init__(self, slots, max_len, block_size):
        super().__init__(slots, max_len, block_size)
        self.roots = []
        start = 0
        while start < slots:
            size = self.power(slots - start + 1) // 2
            self.roots.append(Chunk(start, size))
            start += size

    @staticmethod
    def power(least):
        return 1 << (least - 1).bit_length()

    @abstractmethod
    def wanted(self, request):
        """Size that is asked for, before rounding."""

    def could_hold(self, request):
        return bool(self.roots) and self.roots[0].size >= self.power(self.wanted(request))

    def take(self, request):
        size = self.power(self.wanted(request))
        found = [f for f in (root.best_free(size) for root in self.roots) if f]
        if not found:
            return None
        return min(found, key=lambda f: f[:2])[2].take(size), size

    def release(self, request):
        start, size = self.places.pop(request)
        for root in self.roots:
            if root.start <= start < root.start + root.size:
                root.give(start, size)

    def row(self, running):
        return [sum(r.final - r.held for r in running), sum(self.wanted(r) - r.final for r in running)]


class MaxMemory(ContiguousMemory):
    def wanted(self, request):
        return self.max_len


class Pow2Memory(ContiguousMemory):
    def wanted(self, request):
        return min(self.max_len, request.prompt + self.power(request.output))


class OracleMemory(ContiguousMemory):
    def wanted(self, request):
        return request.final


class PagedMemory(Memory):
    def __init__(self, slots, max_len, block_size):
        super().__init__(slots, max_len, block_size)
        self.free = slots // block_size

    def could_hold(self, request):
        return blocks_needed(request.final, self.block_size) <= self.slots // self.block_size

    def take(self, request):
        blocks = blocks_needed(request.held, self.block_size)
        if blocks > self.free:
            return None
        self.free -= blocks
        return blocks

    def release(self, request):
        self.free += self.places.pop(request)

    def row(self, running):
        return [0, sum(self.places[r] * self.block_size - r.held for r in running)]

    def grow(self, request):
        if request.held < self.places[request] * self.block_size:
            return True
        if self.free == 0:
            return False
        self.free -= 1
        self.places[request] += 1
        return True


class Simulation:
    MEMORIES = {"max": MaxMemory, "pow2": Pow2Memory, "oracle": OracleMemory, "paged": PagedMemory}

    def __init__(self, policy, slots, max_len, block_size, lengths):
        if policy not in self.MEMORIES:
            raise BadConfiguration(f"unknown policy {policy}")
        self.memory = self.MEMORIES[policy](slots, max_len, block_size)
        self.queue = deque()
        self.running = []
        for prompt, output in lengths:
            request = SimRequest(prompt, output)
            if prompt < 1 or output < 1 or request.final > max_len:
                raise BadConfiguration(f"lengths {prompt}, {output}")
            if not self.memory.could_hold(request):
                raise TooLarge(f"lengths {prompt}, {output}")
            self.queue.append(request)

    def rows(self):
        rows = []
        while self.queue or self.running:
            while self.queue and self.memory.admit(self.queue[0]):
                self.running.append(self.queue.popleft())
            parts = [sum(r.held for r in self.running)] + self.memory.row(self.running)
            rows.append(parts + [self.memory.slots - sum(parts)])
            self.advance()
        return rows

    def advance(self):
        for request in self.running[:]:
            if request not in self.memory.places:
                return
            if request.held + 1 == request.final:
                self.memory.release(request)
                self.running.remove(request)
                continue
            while not self.memory.grow(request):
                last = self.running.pop()
                self.memory.release(last)
                self.queue.appendleft(last)
                if last is request:
                    return
            request.held += 1


def simulate(policy, slots, max_len, block_size, lengths):
    return Simulation(policy, slots, max_len, block_size, lengths).rows()
