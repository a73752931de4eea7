from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Sequence

class Node:
    """An entry of a queue. `tokens` is what the current step gives to the request, 0 for nothing."""
    __slots__ = ("request", "prev", "next", "tokens")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.prev: Node = self
        self.next: Node = self
        self.tokens: int = 0

class LinkedQueue:
    __slots__ = ("_head", "_size")
    def __init__(self) -> None:
        self._head = Node(None)
        self._size = 0
    def __len__(self) -> int:
        return self._size
    def __iter__(self) -> Iterator[Any]:
        for node in self.nodes():
            yield node.request
    def nodes(self) -> Iterator[Node]:
        node = self._head.next
        while node is not self._head:
            yield node
            node = node.next
    @property
    def first(self) -> Optional[Node]:
        return self._head.next if self._size else None
    @property
    def last(self) -> Optional[Node]:
        return self._head.prev if self._size else None
    def after(self, node: Node) -> Optional[Node]:
        return None if node.next is self._head else node.next
    def _insert_before(self, place: Node, node: Node) -> None:
        node.prev, node.next = place.prev, place
        place.prev.next = node
        place.prev = node
        self._size += 1
    def push_back(self, node: Node) -> None:
        self._insert_before(self._head, node)
    def push_front(self, node: Node) -> None:
        self._insert_before(self._head.next, node)
    def push_sorted(self, node: Node) -> None:
        key = key_of(node.request)
        place = self._head.next
        while place is not self._head and key_of(place.request) < key:
            place = place.next
        self._insert_before(place, node)
    def unlink(self, node: Node) -> None:
        node.prev.next = node.next
        node.next.prev = node.prev
        node.prev = node.next = node
        self._size -= 1

def key_of(request: Any) -> tuple[int, int, str]:
    return (request.priority, request.arrival_time, request.request_id)

def blocks_for(tokens: int, block_size: int) -> int:
    return (tokens + block_size - 1) // block_size

class Scheduler:
    __slots__ = ("kv", "max_num_seqs", "max_num_batched_tokens", "threshold", "policy", "reserve_full",
                 "_waiting", "_running", "_where", "_budget")

    def __init__(self, kv: Any, max_num_seqs: int, max_num_batched_tokens: int,
                 long_prefill_token_threshold: int = 0, policy: str = "fcfs", reserve_full: bool = False) -> None:
        if max_num_seqs < 1 or max_num_batched_tokens < 1:
            raise ValueError("the limits must be positive")
        if long_prefill_token_threshold < 0:
            raise ValueError("long_prefill_token_threshold must not be negative")
        if policy != "fcfs" and policy != "priority":
            raise ValueError("policy must be fcfs or priority")
        self.kv, self.policy, self.reserve_full = kv, policy, reserve_full
        self.max_num_seqs, self.max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self.threshold = long_prefill_token_threshold
        self._waiting = LinkedQueue()
        self._running = LinkedQueue()
        self._where: dict[str, tuple[LinkedQueue, Node]] = {}
        self._budget = 0

    @property
    def waiting(self) -> Iterator[Any]:
        return iter(self._waiting)

    @property
    def running(self) -> Iterator[Any]:
        return iter(self._running)

    # -- Task 1
    def add_request(self, request: Any) -> None:
        if request.request_id in self._where:
            raise ValueError("the id is taken")
        if request.num_prompt_tokens == 0 or request.max_tokens < 1:
            raise ValueError("nothing to compute")
        longest = request.num_prompt_tokens + request.max_tokens
        if blocks_for(longest, self.kv.block_size) > self.kv.num_blocks - 1:
            raise ValueError("the request can never fit")
        request.status = "WAITING"
        self._let_wait(Node(request), self._waiting.push_back)

    def _let_wait(self, node: Node, push: Callable[[Node], None]) -> None:
        (self._waiting.push_sorted if self.policy == "priority" else push)(node)
        self._where[node.request.request_id] = (self._waiting, node)

    # -- Task 2
    def _share(self, lacks: int) -> int:
        if 0 < self.threshold < lacks:
            lacks = self.threshold
        return lacks if lacks < self._budget else self._budget

    def _victim(self) -> Node:
        return self._running.last if self.policy == "fcfs" else max(self._running.nodes(), key=lambda node: key_of(node.request))

    def _preempt(self, node: Node) -> None:
        request = node.request
        self._running.unlink(node)
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = "PREEMPTED"
        self._budget += node.tokens
        node.tokens = 0
        self._let_wait(node, self._waiting.push_front)

    def schedule(self) -> dict[str, Any]:
        self._budget = self.max_num_batched_tokens
        for node in self._running.nodes():
            node.tokens = 0
        preempted, new, resumed = [], [], []
        self._phase_a(preempted)
        if not preempted:
            self._phase_b(new, resumed)
        scheduled = {node.request.request_id: node.tokens for node in self._running.nodes() if node.tokens}
        return {"scheduled": scheduled, "new": new, "resumed": resumed, "preempted": preempted,
                "total": sum(scheduled.values())}

    def _phase_a(self, preempted: list[str]) -> None:
        node = self._running.first
        while node is not None and self._budget > 0:
            request = node.request
            n = self._share(request.num_tokens - request.num_computed_tokens)
            while self.kv.allocate_slots(request, n) is None:
                victim = self._victim()
                self._preempt(victim)
                preempted.append(victim.request.request_id)
                if victim is node:
                    return
            node.tokens = n
            self._budget -= n
            node = self._running.after(node)

    def _phase_b(self, new: list[str], resumed: list[str]) -> None:
        while self._budget > 0 and len(self._running) < self.max_num_seqs:
            node = self._waiting.first
            if node is None:
                return
            request = node.request
            hits, tokens = self.kv.get_computed_blocks(request)
            n = self._share(request.num_tokens - tokens)
            if self.reserve_full:
                need = max(blocks_for(request.num_tokens, self.kv.block_size) - len(hits), 0)
                need += sum(1 for block in hits if block.ref_cnt == 0)
                if need > self.kv.get_num_free_blocks():
                    return
            if self.kv.allocate_slots(request, n, hits) is None:
                return
            self._waiting.unlink(node)
            self._running.push_back(node)
            self._where[request.request_id] = (self._running, node)
            node.tokens = n
            self._budget -= n
            (resumed if request.status == "PREEMPTED" else new).append(request.request_id)
            request.num_computed_tokens = tokens
            request.status = "RUNNING"

    # -- Task 3
    def update(self, samples: dict[str, int]) -> list[str]:
        finished: list[str] = []
        node = self._running.first
        while node is not None:
            following = self._running.after(node)
            if node.tokens:
                request = node.request
                request.num_computed_tokens += node.tokens
                node.tokens = 0
                if request.num_computed_tokens == request.num_tokens:
                    request.append_output_token_ids(samples[request.request_id])
                    if request.num_output_tokens >= request.max_tokens:
                        self._remove(request.request_id)
                        finished.append(request.request_id)
            node = following
        return finished

    def _remove(self, request_id: str) -> None:
        queue, node = self._where.pop(request_id)
        queue.unlink(node)
        if queue is self._running:
            self.kv.free(node.request)
        node.request.status = "FINISHED"

    # -- Task 4
    def abort(self, request_id: str) -> bool:
        known = request_id in self._where
        if known:
            self._remove(request_id)
        return known

    def reset_prefix_cache(self, preempt_running: bool = False) -> bool:
        if preempt_running:
            while (node := self._running.last) is not None:
                self._preempt(node)
        return self.kv.reset_prefix_cache()

# -- Task 5
def page_size_bytes(block_size: int, num_kv_heads: int, head_size: int, itemsize: int) -> int:
    keys = values = block_size * num_kv_heads * head_size * itemsize
    return keys + values

def available_kv_memory(total: int, utilization_percent: int, weights: int, peak_activation: int, other: int = 0) -> int:
    if utilization_percent < 1 or utilization_percent > 100:
        raise ValueError("utilization_percent must be in 1..100")
    return (total * utilization_percent) // 100 - (weights + peak_activation + other)

def get_num_blocks(available: Sequence[int], page_bytes: int, num_layers: int, override: Optional[int] = None) -> int:
    if len(available) == 0:
        raise ValueError("there must be a worker")
    if override is not None:
        return override
    return min(max(memory, 0) // page_bytes // num_layers for memory in available)

def check_enough_memory(available: int, max_model_len: int, block_size: int, page_bytes: int, num_layers: int) -> int:
    if available <= 0:
        raise ValueError("no memory for the cache")
    needed = blocks_for(max_model_len, block_size) * num_layers * page_bytes
    if needed > available:
        raise ValueError("not even one request fits")
    return needed

def estimate_max_model_len(available: int, max_model_len: int, block_size: int, page_bytes: int, num_layers: int) -> int:
    low, high = 0, max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_for(middle, block_size) * page_bytes * num_layers <= available:
            low = middle
        else:
            high = middle - 1
    return low

def max_concurrency(num_blocks: int, max_model_len: int, block_size: int) -> float:
    return num_blocks / blocks_for(max_model_len, block_size)

# -- Task 6
class Buddy:
    """Bit i of maps[k]: the chunk of 2**k places at address i * 2**k is free."""
    __slots__ = ("maps",)

    def __init__(self, slots: int) -> None:
        self.maps = [0] * slots.bit_length()
        start = 0
        for order in reversed(range(slots.bit_length())):
            if slots >> order & 1:
                self.maps[order] |= 1 << (start >> order)
                start += 1 << order

    @staticmethod
    def order_of(wanted: int) -> int:
        order = 0
        while 1 << order < wanted:
            order += 1
        return order

    def fits(self, wanted: int) -> bool:
        return any(self.maps[self.order_of(wanted):])

    def take(self, wanted: int) -> Optional[tuple[int, int]]:
        goal = self.order_of(wanted)
        for order in range(goal, len(self.maps)):
            if self.maps[order]:
                index = (self.maps[order] & -self.maps[order]).bit_length() - 1
                self.maps[order] ^= 1 << index
                while order > goal:
                    order -= 1
                    index *= 2
                    self.maps[order] |= 1 << (index + 1)
                return order, index
        return None

    def give(self, order: int, index: int) -> None:
        while self.maps[order] >> (index ^ 1) & 1:
            self.maps[order] ^= 1 << (index ^ 1)
            index //= 2
            order += 1
        self.maps[order] |= 1 << index

class Job:
    __slots__ = ("held", "final", "wanted", "order", "index", "blocks")

    def __init__(self, held: int, final: int, wanted: int) -> None:
        self.held, self.final, self.wanted = held, final, wanted
        self.order = self.index = self.blocks = 0

def simulate(policy: str, slots: int, max_len: int, block_size: int, lengths: Sequence[Sequence[int]]) -> list[list[int]]:
    if policy not in ("max", "pow2", "oracle", "paged"):
        raise ValueError("unknown policy")
    jobs = LinkedQueue()
    empty = Buddy(slots)
    for prompt, output in lengths:
        final = prompt + output
        if prompt < 1 or output < 1 or final > max_len:
            raise ValueError("bad lengths")
        wanted = final
        if policy == "max":
            wanted = max_len
        elif policy == "pow2":
            wanted = min(max_len, prompt + (1 << Buddy.order_of(output)))
        if not (blocks_for(final, block_size) <= slots // block_size if policy == "paged" else empty.fits(wanted)):
            raise ValueError("no place even in an empty memory")
        jobs.push_back(Node(Job(prompt, final, wanted)))
    if policy == "paged":
        return _simulate_paged(slots, block_size, jobs)
    return _simulate_contiguous(slots, empty, jobs)

def _simulate_contiguous(slots: int, memory: Buddy, queue: LinkedQueue) -> list[list[int]]:
    rows: list[list[int]] = []
    running = LinkedQueue()
    held = final = wanted = 0               # sums over the running requests
    while len(queue) or len(running):
        while (node := queue.first) is not None:
            job = node.request
            chunk = memory.take(job.wanted)
            if chunk is None:
                break
            job.order, job.index = chunk
            queue.unlink(node)
            running.push_back(node)
            held += job.held
            final += job.final
            wanted += job.wanted
        rows.append([held, final - held, wanted - final, slots - wanted])
        for node in list(running.nodes()):
            job = node.request
            job.held += 1
            held += 1
            if job.held == job.final:
                running.unlink(node)
                memory.give(job.order, job.index)
                held -= job.held
                final -= job.final
                wanted -= job.wanted
    return rows

def _simulate_paged(slots: int, block_size: int, queue: LinkedQueue) -> list[list[int]]:
    rows: list[list[int]] = []
    running = LinkedQueue()
    total = slots // block_size
    used = held = 0
    while len(queue) or len(running):
        while (node := queue.first) is not None:
            job = node.request
            need = blocks_for(job.held, block_size)
            if used + need > total:
                break
            queue.unlink(node)
            running.push_back(node)
            job.blocks = need
            used += need
            held += job.held
        rows.append([held, 0, used * block_size - held, slots - used * block_size])
        current = running.first
        while current is not None:
            job = current.request
            if job.held + 1 == job.final:
                done, current = current, running.after(current)
                running.unlink(done)
                used -= job.blocks
                held -= job.held
                continue
            if job.held == job.blocks * block_size:
                out: Optional[Node] = None
                while used == total and out is not current:
                    out = running.last
                    running.unlink(out)
                    queue.push_front(out)
                    used -= out.request.blocks
                    held -= out.request.held
                    out.request.blocks = 0
                if out is current:
                    break
                job.blocks += 1
                used += 1
            job.held += 1
            held += 1
            current = running.after(current)
    return rows
