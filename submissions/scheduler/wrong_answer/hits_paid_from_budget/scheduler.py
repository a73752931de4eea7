import heapq
from bisect import bisect_left, insort


def _ceil(a, b):
    return (a + b - 1) // b


class _Queue:
    """Heap of (key, request); the keys are unique, so requests are never compared."""

    def __init__(self, by_priority):
        self.by_priority = by_priority
        self.heap = []
        self.first = 0
        self.last = 0

    def _push(self, number, request):
        if self.by_priority:
            key = (request.priority, request.arrival_time, request.request_id)
        else:
            key = number
        heapq.heappush(self.heap, (key, request))

    def push_back(self, request):
        self.last += 1
        self._push(self.last, request)

    def push_front(self, request):
        self.first -= 1
        self._push(self.first, request)

    def peek(self):
        return self.heap[0][1]

    def pop(self):
        return heapq.heappop(self.heap)[1]

    def remove(self, request_id):
        for i, (_, request) in enumerate(self.heap):
            if request.request_id == request_id:
                self.heap[i] = self.heap[-1]
                self.heap.pop()
                heapq.heapify(self.heap)
                return request
        return None

    def ordered(self):
        return [request for _, request in sorted(self.heap, key=lambda pair: pair[0])]

    def __len__(self):
        return len(self.heap)

    def __contains__(self, request_id):
        return any(request.request_id == request_id for _, request in self.heap)


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if max_num_seqs < 1 or max_num_batched_tokens < 1 or long_prefill_token_threshold < 0:
            raise ValueError("limits")
        if policy not in ("fcfs", "priority"):
            raise ValueError("unknown policy %r" % (policy,))
        self._kv = kv
        self._seqs = max_num_seqs
        self._tokens = max_num_batched_tokens
        self._threshold = long_prefill_token_threshold
        self._priority = policy == "priority"
        self._reserve_full = reserve_full
        self._queue = _Queue(self._priority)
        self._admitted = 0          # a ticket for each admission
        self._tickets = []          # sorted; the running requests are found by ticket
        self._by_ticket = {}
        self._step = {}             # ticket -> tokens of the last step

    @property
    def waiting(self):
        return tuple(self._queue.ordered())

    @property
    def running(self):
        return tuple(self._by_ticket[t] for t in self._tickets)

    def add_request(self, request):
        if request.request_id in self._queue:
            raise ValueError("waits already")
        if any(r.request_id == request.request_id for r in self._by_ticket.values()):
            raise ValueError("runs already")
        if request.num_prompt_tokens < 1 or request.max_tokens < 1:
            raise ValueError("nothing to do")
        most = _ceil(request.num_prompt_tokens + request.max_tokens, self._kv.block_size)
        if most > self._kv.num_blocks - 1:
            raise ValueError("never fits")
        request.status = "WAITING"
        self._queue.push_back(request)

    def _share(self, lacking, budget):
        if self._threshold:
            lacking = min(lacking, self._threshold)
        return min(lacking, budget)

    def _leave(self, ticket):
        del self._tickets[bisect_left(self._tickets, ticket)]
        request = self._by_ticket.pop(ticket)
        self._kv.free(request)
        return request

    def _preempt(self, ticket):
        request = self._leave(ticket)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = "PREEMPTED"
        self._queue.push_front(request)
        return request

    def _victim(self):
        if not self._priority:
            return self._tickets[-1]
        return max(self._tickets, key=lambda t: (self._by_ticket[t].priority,
                                                 self._by_ticket[t].arrival_time,
                                                 self._by_ticket[t].request_id))

    def schedule(self):
        budget = self._tokens
        step = {}
        new, resumed, preempted = [], [], []

        # Phase A. The next one to be served has the smallest ticket above the current one.
        ticket = 0
        while budget > 0:
            place = bisect_left(self._tickets, ticket + 1)
            if place == len(self._tickets):
                break
            ticket = self._tickets[place]
            request = self._by_ticket[ticket]
            n = self._share(request.num_tokens - request.num_computed_tokens, budget)
            got = self._kv.allocate_slots(request, n)
            while got is None:
                victim = self._victim()
                preempted.append(self._preempt(victim).request_id)
                budget += step.pop(victim, 0)
                if victim == ticket:
                    break
                got = self._kv.allocate_slots(request, n)
            if got is None:
                break
            step[ticket] = n
            budget -= n

        # Phase B
        names = {t: self._by_ticket[t].request_id for t in step}
        while not preempted and self._queue and budget > 0 and len(self._tickets) < self._seqs:
            request = self._queue.peek()
            hits, t = self._kv.get_computed_blocks(request)
            n = self._share(request.num_tokens, budget) - t
            if n < 1:
                break
            if self._reserve_full:
                need = max(_ceil(request.num_tokens, self._kv.block_size) - len(hits), 0)
                need += len([b for b in hits if b.ref_cnt == 0])
                if need > self._kv.get_num_free_blocks():
                    break
            if self._kv.allocate_slots(request, n, hits) is None:
                break
            self._queue.pop()
            self._admitted += 1
            insort(self._tickets, self._admitted)
            self._by_ticket[self._admitted] = request
            names[self._admitted] = request.request_id
            if request.status == "WAITING":
                new.append(request.request_id)
            else:
                resumed.append(request.request_id)
            request.num_computed_tokens = t
            request.status = "RUNNING"
            step[self._admitted] = n
            budget -= n

        self._step = step
        return {"scheduled": {names[t]: n for t, n in step.items()},
                "new": new, "resumed": resumed, "preempted": preempted,
                "total": self._tokens - budget}

    def update(self, samples):
        finished = []
        for ticket in sorted(self._step):
            request = self._by_ticket.get(ticket)
            if request is None:
                continue
            request.num_computed_tokens += self._step[ticket]
            if request.num_computed_tokens != request.num_tokens:
                continue
            request.append_output_token_ids(samples[request.request_id])
            if request.num_output_tokens == request.max_tokens:
                self._leave(ticket)
                request.status = "FINISHED"
                finished.append(request.request_id)
        self._step = {}
        return finished

    def abort(self, request_id):
        request = self._queue.remove(request_id)
        if request is None:
            for ticket in self._tickets:
                if self._by_ticket[ticket].request_id == request_id:
                    request = self._leave(ticket)
                    break
            else:
                return False
        request.status = "FINISHED"
        return True

    def reset_prefix_cache(self, preempt_running=False):
        while preempt_running and self._tickets:
            self._preempt(self._tickets[-1])
        return self._kv.reset_prefix_cache()


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    one_token = num_kv_heads * head_size * itemsize
    return block_size * (one_token + one_token)


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if not 1 <= utilization_percent <= 100:
        raise ValueError("percentage")
    usable, _ = divmod(total * utilization_percent, 100)
    return usable - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if not available:
        raise ValueError("no workers")
    if override is not None:
        return override
    return max(min(available) // (page_bytes * num_layers), 0)


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    need = _ceil(max_model_len, block_size) * page_bytes * num_layers
    if available <= 0 or available < need:
        raise ValueError("need %d bytes" % need)
    return need


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    # how many of the lengths 1..max_model_len fit: they are monotone
    return bisect_left(range(1, max_model_len + 1), True,
                       key=lambda n: _ceil(n, block_size) * page_bytes * num_layers > available)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / _ceil(max_model_len, block_size)


class _Buddies:
    def __init__(self, slots):
        self.free = []              # sorted (size, start)
        start = 0
        while start < slots:
            size = 1
            while size * 2 <= slots - start:
                size *= 2
            insort(self.free, (size, start))
            start += size

    def get(self, wanted):
        goal = 1
        while goal < wanted:
            goal *= 2
        i = bisect_left(self.free, (goal, 0))
        if i == len(self.free):
            return None
        size, start = self.free.pop(i)
        while size > goal:
            size //= 2
            insort(self.free, (size, start + size))
        return size, start

    def put(self, chunk):
        size, start = chunk
        while True:
            other = (size, start ^ size)
            i = bisect_left(self.free, other)
            if i == len(self.free) or self.free[i] != other:
                break
            self.free.pop(i)
            start = min(start, other[1])
            size *= 2
        insort(self.free, (size, start))


def _wanted(policy, max_len, prompt, output):
    if policy == "max":
        return max_len
    if policy == "oracle":
        return prompt + output
    p = 1
    while p < output:
        p += p
    return min(max_len, prompt + p)


def simulate(policy, slots, max_len, block_size, lengths):
    if policy not in ("max", "pow2", "oracle", "paged"):
        raise ValueError(policy)
    biggest = max((size for size, _ in _Buddies(slots).free), default=0)
    for prompt, output in lengths:
        if min(prompt, output) < 1 or prompt + output > max_len:
            raise ValueError("bad lengths")
        if policy == "paged":
            if _ceil(prompt + output, block_size) > slots // block_size:
                raise ValueError("too big")
        elif _wanted(policy, max_len, prompt, output) > biggest:
            raise ValueError("too big")
    if policy == "paged":
        return _paged(slots, block_size, lengths)
    memory = _Buddies(slots)
    waiting = [[p, p + o, _wanted(policy, max_len, p, o), None] for p, o in reversed(lengths)]
    running = []
    rows = []
    while waiting or running:
        while waiting:
            chunk = memory.get(waiting[-1][2])
            if chunk is None:
                break
            running.append(waiting.pop())
            running[-1][3] = chunk
        token = reserved = internal = 0
        for held, final, wanted, _ in running:
            token += held
            reserved += final - held
            internal += wanted - final
        rows.append([token, reserved, internal, slots - token - reserved - internal])
        still = []
        for job in running:
            job[0] += 1
            if job[0] == job[1]:
                memory.put(job[3])
            else:
                still.append(job)
        running = still
    return rows


def _paged(slots, block_size, lengths):
    pool = list(range(slots // block_size))
    heapq.heapify(pool)
    queue = [(i, p, p + o) for i, (p, o) in enumerate(lengths)]     # sorted by number, always
    running = []                                                    # [number, held, final, blocks]
    rows = []
    while queue or running:
        while queue and _ceil(queue[0][1], block_size) <= len(pool):
            number, held, final = queue.pop(0)
            blocks = [heapq.heappop(pool) for _ in range(_ceil(held, block_size))]
            running.append([number, held, final, blocks])
        token = sum(job[1] for job in running)
        room = sum(len(job[3]) for job in running) * block_size
        rows.append([token, 0, room - token, slots - room])
        i = 0
        while i < len(running):
            job = running[i]
            if job[1] + 1 == job[2]:
                for b in job[3]:
                    heapq.heappush(pool, b)
                running.pop(i)
                continue
            if job[1] == len(job[3]) * block_size:
                while not pool:
                    out = running.pop()
                    for b in out[3]:
                        heapq.heappush(pool, b)
                    queue.insert(0, (out[0], out[1], out[2]))
                    if out is job:
                        break
                if i == len(running):
                    break
                job[3].append(heapq.heappop(pool))
            job[1] += 1
            i += 1
    return rows
