import heapq
from bisect import bisect_left, insort
from itertools import count

POLICIES = frozenset({"fcfs", "priority"})


class WaitingHeap:
    """A heap of [rank, ticket, request]; removed entries stay as tombstones until they surface.

    fcfs: the rank is a number, growing at the tail and shrinking at the front.
    priority: the rank is the key of the request.
    """

    def __init__(self, by_key):
        self._by_key = by_key
        self._heap = []
        self._entries = {}              # request_id -> live entry
        self._tail, self._head = count(1), count(-1, -1)
        self._tickets = count()

    def _push(self, rank, request):
        entry = [rank, next(self._tickets), request]
        self._entries[request.request_id] = entry
        heapq.heappush(self._heap, entry)

    def join(self, request):
        self._push(priority_key(request) if self._by_key else next(self._tail), request)

    def come_back(self, request):
        self._push(priority_key(request) if self._by_key else next(self._head), request)

    def _drop_dead(self):
        while self._heap and self._heap[0][2] is None:
            heapq.heappop(self._heap)

    def peek(self):
        self._drop_dead()
        return self._heap[0][2]

    def discard(self, request_id):
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return None
        request, entry[2] = entry[2], None
        return request

    def __contains__(self, request_id):
        return request_id in self._entries

    def __len__(self):
        return len(self._entries)

    def __iter__(self):
        live = (e for e in self._heap if e[2] is not None)
        return iter([e[2] for e in sorted(live, key=lambda e: (e[0], e[1]))])


def priority_key(request):
    return request.priority, request.arrival_time, request.request_id


def blocks_for(tokens, block_size):
    return (tokens + block_size - 1) // block_size


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {sorted(POLICIES)}")
        if min(max_num_seqs, max_num_batched_tokens) < 1 or long_prefill_token_threshold < 0:
            raise ValueError("limit out of range")
        self._kv = kv
        self._max_seqs = max_num_seqs
        self._max_tokens = max_num_batched_tokens
        # "no threshold" is the same as a threshold that is never smaller than the budget
        self._chunk = long_prefill_token_threshold or max_num_batched_tokens
        self._by_key = policy == "priority"
        self._reserve_full = bool(reserve_full)
        self._waiting = WaitingHeap(self._by_key)
        self._running = {}              # request_id -> request, dicts keep the order of admission
        self._known = set()             # ids
        self._pending = {}              # request_id -> (request, tokens) between schedule and update

    @property
    def waiting(self):
        return list(self._waiting)

    @property
    def running(self):
        return list(self._running.values())

    # -- Task 1
    def add_request(self, request):
        rid = request.request_id
        if rid in self._known:
            raise ValueError(f"{rid!r} is already here")
        if request.num_prompt_tokens == 0 or request.max_tokens < 1:
            raise ValueError(f"{rid!r} has nothing to compute")
        usable = self._kv.num_blocks - 1
        if blocks_for(request.num_prompt_tokens + request.max_tokens, self._kv.block_size) > usable:
            raise ValueError(f"{rid!r} needs more than {usable} blocks")
        self._known.add(rid)
        request.status = "WAITING"
        self._waiting.join(request)

    # -- Task 2
    def _preempt(self, victim):
        del self._running[victim.request_id]
        self._kv.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = "PREEMPTED"
        self._waiting.come_back(victim)

    def _victim(self):
        if self._by_key:
            return max(self._running.values(), key=priority_key)
        return self._running[next(reversed(self._running))]

    def schedule(self):
        budget = self._max_tokens
        plan, new, resumed, preempted = {}, [], [], []

        for request in list(self._running.values()):
            if budget == 0:
                break
            rid = request.request_id
            if rid not in self._running:
                continue                # fell victim to a request before it
            n = min(request.num_tokens - request.num_computed_tokens, self._chunk, budget)
            while (got := self._kv.allocate_slots(request, n)) is None:
                victim = self._victim()
                self._preempt(victim)
                preempted.append(victim.request_id)
                if victim is request:
                    break
                budget += plan.pop(victim.request_id, (None, 0))[1]
            if got is None:
                break
            plan[rid] = (request, n)
            budget -= n

        while not preempted and len(self._waiting) and budget and len(self._running) < self._max_seqs:
            request = self._waiting.peek()
            hits, cached = self._kv.get_computed_blocks(request)
            n = min(request.num_tokens - cached, self._chunk, budget)
            if self._reserve_full and not self._has_room_for_all(request, hits):
                break
            if self._kv.allocate_slots(request, n, hits) is None:
                break
            rid = request.request_id
            self._waiting.discard(rid)
            self._running[rid] = request
            (new if request.status == "WAITING" else resumed).append(rid)
            request.num_computed_tokens = cached
            request.status = "RUNNING"
            plan[rid] = (request, n)
            budget -= n

        self._pending = plan
        return {
            "scheduled": {rid: n for rid, (_, n) in plan.items()},
            "new": new,
            "resumed": resumed,
            "preempted": preempted,
            "total": self._max_tokens - budget,
        }

    def _has_room_for_all(self, request, hits):
        fresh = max(blocks_for(request.num_tokens, self._kv.block_size) - len(hits), 0)
        revived = sum(1 for block in hits if block.ref_cnt == 0)
        return fresh + revived <= self._kv.get_num_free_blocks()

    # -- Task 3
    def update(self, samples):
        plan, self._pending = self._pending, {}
        finished = []
        for rid, request in list(self._running.items()):
            owner, tokens = plan.get(rid, (None, 0))
            if owner is not request:
                continue
            request.num_computed_tokens += tokens
            if request.num_computed_tokens < request.num_tokens:
                continue
            request.append_output_token_ids(samples[rid])
            if request.num_output_tokens == request.max_tokens:
                del self._running[rid]
                self._kv.free(request)
                request.status = "FINISHED"
                finished.append(rid)
        return finished

    # -- Task 4
    def abort(self, request_id):
        request = self._waiting.discard(request_id)
        if request is None:
            request = self._running.pop(request_id, None)
            if request is None:
                return False
            self._kv.free(request)
        request.status = "FINISHED"
        return True

    def reset_prefix_cache(self, preempt_running=False):
        while preempt_running and self._running:
            self._preempt(self._running[next(reversed(self._running))])
        return self._kv.reset_prefix_cache()


# -- Task 5
def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    one_side = block_size * num_kv_heads * head_size * itemsize
    return one_side + one_side


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if not 1 <= utilization_percent <= 100:
        raise ValueError("utilization_percent must be in 1..100")
    return (total * utilization_percent) // 100 - (weights + peak_activation + other)


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if not available:
        raise ValueError("at least one worker is needed")
    if override is not None:
        return override
    return max(min(available) // (page_bytes * num_layers), 0)


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    needed = blocks_for(max_model_len, block_size) * (page_bytes * num_layers)
    if available <= 0 or available < needed:
        raise ValueError(f"{needed} bytes are needed, {available} are there")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    block = page_bytes * num_layers
    if available < block:
        return 0
    return min(available // block * block_size, max_model_len)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / blocks_for(max_model_len, block_size)


# -- Task 6
class Buddies:
    """Free chunks as one sorted list of (size, start): the first that is large enough is the best."""

    def __init__(self, slots):
        self.free = []
        start = 0
        while slots:
            size = 1 << (slots.bit_length() - 1)
            insort(self.free, (size, start))
            start += size
            slots -= size

    def take(self, size):
        at = bisect_left(self.free, (size, -1))
        if at == len(self.free):
            return None
        have, start = self.free.pop(at)
        while have > size:
            have >>= 1
            insort(self.free, (have, start + have))
        return size, start

    def give(self, size, start):
        while True:
            buddy = (size, start ^ size)
            at = bisect_left(self.free, buddy)
            if at == len(self.free) or self.free[at] != buddy:
                break
            del self.free[at]
            start &= ~size
            size <<= 1
        insort(self.free, (size, start))


def round_up(x):
    return 1 << (x - 1).bit_length()


WANTED = {
    "max": lambda max_len, p, o: max_len,
    "pow2": lambda max_len, p, o: min(max_len, p + round_up(o)),
    "oracle": lambda max_len, p, o: p + o,
}


class Sim:
    __slots__ = ("held", "final", "wanted", "place")

    def __init__(self, held, final, wanted):
        self.held, self.final, self.wanted, self.place = held, final, wanted, None


def simulate(policy, slots, max_len, block_size, lengths):
    if policy != "paged" and policy not in WANTED:
        raise ValueError(f"unknown policy {policy!r}")
    sims = []
    for prompt, output in lengths:
        if prompt < 1 or output < 1 or prompt + output > max_len:
            raise ValueError(f"request out of range: {prompt} + {output}")
        final = prompt + output
        if policy == "paged":
            wanted = final
            fits = blocks_for(final, block_size) <= slots // block_size
        else:
            wanted = WANTED[policy](max_len, prompt, output)
            fits = Buddies(slots).take(round_up(wanted)) is not None
        if not fits:
            raise ValueError(f"request can never be admitted: {prompt} + {output}")
        sims.append(Sim(prompt, final, wanted))
    sims.reverse()                      # the front of the queue is the end of the list
    return _paged(sims, slots, block_size) if policy == "paged" else _contiguous(sims, slots)


def _contiguous(queue, slots):
    memory, running, rows = Buddies(slots), [], []
    while queue or running:
        while queue and (chunk := memory.take(round_up(queue[-1].wanted))) is not None:
            running.append(queue.pop())
            running[-1].place = chunk
        token = sum(s.held for s in running)
        reserved = sum(s.final for s in running) - token
        internal = sum(s.wanted for s in running) - token - reserved
        rows.append([token, reserved, internal, slots - token - reserved - internal])
        for s in running:
            s.held += 1
            if s.held == s.final:
                memory.give(*s.place)
        running = [s for s in running if s.held < s.final]
    return rows


def _paged(queue, slots, block_size):
    free, running, rows = slots // block_size, [], []
    while queue or running:
        while queue and blocks_for(queue[-1].held, block_size) <= free:
            s = queue.pop()
            s.place = blocks_for(s.held, block_size)
            free -= s.place
            running.append(s)
        token = sum(s.held for s in running)
        taken = sum(s.place for s in running) * block_size
        rows.append([token, 0, taken - token, slots - taken])
        for s in running[:]:
            if s.place == 0:
                break                   # put out in this step, and so is everybody behind it
            if s.held + 1 == s.final:
                running.remove(s)
                free += s.place
                continue
            if s.held == s.place * block_size:
                while free == 0 and s.place:
                    out = running.pop()
                    free += out.place
                    out.place = 0
                    queue.append(out)
                if s.place == 0:
                    break
                s.place += 1
                free -= 1
            s.held += 1
    return rows
