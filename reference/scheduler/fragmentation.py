"""Task 6: how much memory older servers wasted, and on what, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from reference.oracle import Refused

Row = list[int]  # token, reserved, internal, external
CONTIGUOUS = ("max", "pow2", "oracle")


@dataclass(eq=False)
class Served:
    """A request of `prompt` tokens that finishes with `final` tokens, and holds `held` tokens now."""

    prompt: int
    final: int
    held: int = 0
    start: int = 0  # the first slot of its chunk
    blocks: int = 0


def simulate(policy: str, slots: int, max_len: int, block_size: int, lengths: tuple[tuple[int, int], ...]) -> list[Row]:
    """Return a row for each step until all requests have finished. Raises `Refused` if a request never fits."""
    if policy not in (*CONTIGUOUS, "paged"):
        raise Refused("ValueError", "Task 6/policy")
    if any(prompt < 1 or output < 1 or prompt + output > max_len for prompt, output in lengths):
        raise Refused("ValueError", "Task 6/lengths")
    queue = [Served(prompt, prompt + output, held=prompt) for prompt, output in lengths]
    if policy == "paged":
        return _Paged(slots, block_size, queue).rows()
    return _Contiguous(policy, slots, max_len, queue).rows()


class _Contiguous:
    """The policies under which each request has one chunk of a buddy allocator."""

    def __init__(self, policy: str, slots: int, max_len: int, queue: list[Served]) -> None:
        self.policy, self.slots, self.max_len, self.queue = policy, slots, max_len, queue
        self.free = _cut(slots)
        for request in queue:
            if all(size < _power(self.wanted(request)) for _, size in self.free):
                raise Refused("ValueError", "Task 6/never-fits")

    def wanted(self, request: Served) -> int:
        """Return the size that a request asks for."""
        if self.policy == "max":
            return self.max_len
        if self.policy == "pow2":
            return min(self.max_len, request.prompt + _power(request.final - request.prompt))
        return request.final

    def rows(self) -> list[Row]:
        """Serve all requests, and return a row for each step."""
        running: list[Served] = []
        rows = []
        while self.queue or running:
            while self.queue and self.take(self.queue[0]):
                running.append(self.queue.pop(0))
            token = sum(request.held for request in running)
            reserved = sum(request.final - request.held for request in running)
            internal = sum(self.wanted(request) - request.final for request in running)
            rows.append([token, reserved, internal, self.slots - token - reserved - internal])
            for request in running:
                request.held += 1
                if request.held == request.final:
                    self.give(request)
            running = [request for request in running if request.held < request.final]
        return rows

    def take(self, request: Served) -> bool:
        """Take the smallest free chunk that suffices (the lowest of equal ones); halve it while a half suffices."""
        needed = _power(self.wanted(request))
        fitting = [(size, start) for start, size in self.free if size >= needed]
        if not fitting:
            return False
        size, start = min(fitting)
        self.free.remove((start, size))
        while size > needed:
            size //= 2
            self.free.append((start + size, size))
        request.start = start
        return True

    def give(self, request: Served) -> None:
        """Give a request's chunk back, and join it with its buddy while the buddy is free."""
        start, size = request.start, _power(self.wanted(request))
        while (start ^ size, size) in self.free:
            self.free.remove((start ^ size, size))
            start, size = min(start, start ^ size), 2 * size
        self.free.append((start, size))


class _Paged:
    """The policy under which a request has just the blocks that its held tokens need."""

    def __init__(self, slots: int, block_size: int, queue: list[Served]) -> None:
        self.slots, self.size, self.queue = slots, block_size, queue
        self.free = slots // block_size
        if any(-(-request.final // block_size) > self.free for request in queue):
            raise Refused("ValueError", "Task 6/never-fits")

    def rows(self) -> list[Row]:
        """Serve all requests, and return a row for each step."""
        running: list[Served] = []
        rows = []
        while self.queue or running:
            while self.queue and self.needed(self.queue[0]) <= self.free:
                request = self.queue.pop(0)
                request.blocks = self.needed(request)
                self.free -= request.blocks
                running.append(request)
            token = sum(request.held for request in running)
            internal = sum(request.blocks * self.size - request.held for request in running)
            rows.append([token, 0, internal, self.slots - token - internal])
            self.advance(running)
        return rows

    def needed(self, request: Served) -> int:
        """Return the number of blocks for the tokens that a request holds."""
        return -(-request.held // self.size)

    def advance(self, running: list[Served]) -> None:
        """Add a token to each running request, in order. While a needed block is not free, preempt the last request."""
        for request in list(running):
            if request not in running:
                continue
            if request.held + 1 == request.final:
                running.remove(request)
                self.free += request.blocks
                continue
            while request.held == request.blocks * self.size and not self.free:
                out = running.pop()
                self.free += out.blocks
                out.blocks = 0
                self.queue.insert(0, out)
                if out is request:
                    return
            if request.held == request.blocks * self.size:
                request.blocks += 1
                self.free -= 1
            request.held += 1


def _power(size: int) -> int:
    """Return the smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def _cut(slots: int) -> list[tuple[int, int]]:
    """Return chunks (start, size) from address 0 upwards, each the largest power of two that still fits."""
    chunks, start = [], 0
    while start < slots:
        size = 1 << ((slots - start).bit_length() - 1)
        chunks.append((start, size))
        start += size
    return chunks
