"""Tasks 1 to 4: the scheduler, and the requests and the pool under it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reference.block_pool import Manager
from reference.operation import Operation, Reply
from reference.oracle import Engine, Refused, function
from reference.scheduler import budget, fragmentation

WAITING, RUNNING, PREEMPTED, FINISHED = "WAITING", "RUNNING", "PREEMPTED", "FINISHED"
_ENDLESS = 10**9
_OF_THE_POOL = ("ref", "hash", "index", "ncached")


@dataclass
class Request:
    """A request with the attributes that the students' given module has."""

    prompt: list[int]
    max_tokens: int
    priority: int
    arrival: int
    status: str = WAITING
    computed: int = 0
    preemptions: int = 0
    outputs: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """The tokens of the prompt, then those of the outputs."""
        return [*self.prompt, *self.outputs]


class Scheduler(Engine):
    """The reference engine: a scheduler with its manager and requests."""

    def __init__(self) -> None:
        self.kv = Manager()
        self.settings: list[Any] = []  # the arguments of the constructor
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.requests: dict[str, Request] = {}
        self.calls: list[list[Any]] = []  # on the manager, in the last operation
        self.scheduled: dict[str, int] = {}  # tokens by request, from a `schedule` without an `update` so far

    def apply(self, operation: Operation) -> Reply:
        """Do one operation, and note its calls on the manager in `calls`."""
        self.calls = []
        return super().apply(operation)

    # Task 1: construction and add_request

    def scheduler(
        self, num_blocks: int, block_size: int, caching: bool, max_num_seqs: int, max_num_batched_tokens: int,
        threshold: int, policy: str, reserve_full: bool,
    ) -> None:  # fmt: skip
        """Make a new manager, and do the handout's call `Scheduler(manager, max_num_seqs, ..., reserve_full)`."""
        if max_num_seqs < 1 or max_num_batched_tokens < 1 or threshold < 0 or policy not in ("fcfs", "priority"):
            raise Refused("ValueError", "Task 1/constructor")
        self.because("Task 1/constructor")
        self.restore(type(self)().state())  # forgets the old requests and queues
        made_with = [num_blocks, block_size, caching, max_num_seqs, max_num_batched_tokens, threshold, policy]
        self.settings = [*made_with, reserve_full]
        self.kv.mgr(num_blocks, block_size, caching, _ENDLESS)

    def add(self, request: str, tokens: tuple[int, ...], max_tokens: int, priority: int, arrival: int) -> None:
        """Do the handout's call `add_request(Request(...))`."""
        if request in (*self.waiting, *self.running):
            raise Refused("ValueError", "Task 1/same-id")
        if not tokens or max_tokens < 1:
            raise Refused("ValueError", "Task 1/empty")
        if -(-(len(tokens) + max_tokens) // self.kv.block_size) > self.kv.num_blocks - 1:
            raise Refused("ValueError", "Task 1/never-fits")
        self.requests[request] = Request(list(tokens), max_tokens, priority, arrival)
        self.kv.new(request, tokens)
        self.because("Task 1/add_request")
        self._wait(request, at_front=False)

    def _wait(self, request: str, *, at_front: bool) -> None:
        """Put a request into `waiting`: by its key under priority, at the front or at the tail under fcfs."""
        if self._policy == "priority":
            key = self._key(request)
            place = sum(self._key(other) < key for other in self.waiting)
        else:
            place = 0 if at_front else len(self.waiting)
        self.waiting.insert(place, request)

    @property
    def _policy(self) -> str:
        return str(self.settings[6])

    def _key(self, request: str) -> tuple[int, int, str]:
        known = self.requests[request]
        return known.priority, known.arrival, request

    # Task 2: schedule

    def schedule(self) -> list[Any]:
        """Do the handout's call `schedule()`: serve running requests first, then admit waiting ones."""
        self.because("Task 2/schedule")
        self.scheduled = {}
        preempted = self._serve_running()
        new, resumed = ([], []) if preempted else self._admit_waiting()
        pairs = [[request, tokens] for request, tokens in self.scheduled.items()]
        return [pairs, new, resumed, preempted, sum(self.scheduled.values())]

    @property
    def _budget(self) -> int:
        """The number of tokens that may still be scheduled in this step."""
        most: int = self.settings[4]
        return most - sum(self.scheduled.values())

    def _share(self, missing: int) -> int:
        """Return how many of a request's `missing` tokens are computed in this step."""
        threshold: int = self.settings[5]
        return min(missing, threshold or missing, self._budget)

    def _serve_running(self) -> list[str]:
        """Do phase A: schedule the running requests. Return the ids of the preempted requests."""
        preempted: list[str] = []
        served: list[str] = []
        while self._budget:
            request = next((request for request in self.running if request not in served), None)
            if request is None:
                break
            served.append(request)
            self.because("Task 2/handshake")
            tokens = self._share(len(self.requests[request].tokens) - self.requests[request].computed)
            while not self._allocate(request, tokens, []):
                victim = self.running[-1] if self._policy == "fcfs" else max(self.running, key=self._key)
                self._preempt(victim)
                preempted.append(victim)
                if victim == request:
                    return preempted
            self.scheduled[request] = tokens
        return preempted

    def _preempt(self, victim: str) -> None:
        """Free the blocks of a running request, and put it back into `waiting`."""
        known = self.requests[victim]
        self.because("Task 2/preempt")
        if self.scheduled.pop(victim, None) is not None:
            self.because("Task 2/refund")
        self.running.remove(victim)
        self._free(victim)
        known.computed, known.status = 0, PREEMPTED
        known.preemptions += 1
        self._wait(victim, at_front=True)

    def _admit_waiting(self) -> tuple[list[str], list[str]]:
        """Do phase B: admit waiting requests. Return the ids of the new ones, and of those preempted before."""
        new: list[str] = []
        resumed: list[str] = []
        while self.waiting and self._budget and len(self.running) < self.settings[3]:
            request = self.waiting[0]
            known = self.requests[request]
            self._tell_pool(request)
            hits = self.kv.hits_of(request)
            hit_tokens = len(hits) * self.kv.block_size
            self.because("Task 2/admission")
            if self.settings[7] and not self._has_room(len(known.tokens), hits):
                self.because("Task 2/reserve-full")
                break
            tokens = self._share(len(known.tokens) - hit_tokens)
            if not self._allocate(request, tokens, hits):
                self.because("Task 2/nobody-overtakes")
                break
            (new if known.status == WAITING else resumed).append(request)
            self.running.append(self.waiting.pop(0))
            known.computed, known.status = hit_tokens, RUNNING
            self.scheduled[request] = tokens
        return new, resumed

    def _has_room(self, tokens: int, hits: list[int]) -> bool:
        """Return whether blocks for `tokens` tokens are free. Hits in the free queue take room too."""
        needed = max(-(-tokens // self.kv.block_size) - len(hits), 0)
        return needed + sum(self.kv.ref[block] == 0 for block in hits) <= self.kv.num_free

    # Task 3: update

    def update(self) -> list[str]:
        """Count scheduled tokens as computed; a request without missing tokens gets a sample. Return finished ids."""
        self.because("Task 3/update")
        finished = []
        for request in [request for request in self.running if request in self.scheduled]:
            known = self.requests[request]
            known.computed += self.scheduled[request]
            self.because("Task 3/sample")
            if known.computed == len(known.tokens):
                known.outputs.append(self._sample(known))
                self._tell_pool(request)
                if len(known.outputs) == known.max_tokens:
                    self.because("Task 3/finished")
                    self._leave(request)
                    finished.append(request)
        self.scheduled = {}
        return finished

    @staticmethod
    def _sample(known: Request) -> int:
        """Return the token that the model of the tests samples."""
        tokens = known.tokens
        return (sum(place * token for place, token in enumerate(tokens, 1)) + len(tokens)) % 3

    def _leave(self, request: str) -> None:
        """Take a request out of its list, free its blocks, and mark it as finished."""
        if request in self.running:
            self.running.remove(request)
            self._free(request)
        else:
            self.waiting.remove(request)
        self.requests[request].status = FINISHED

    # Task 4: abort and reset_prefix_cache

    def abort(self, request: str) -> bool:
        """Finish a waiting or running request. Raises `Refused` if there is no such request."""
        if request not in (*self.waiting, *self.running):
            raise Refused("false", "Task 4/abort-unknown")
        self.because("Task 4/abort")
        self._leave(request)
        return True

    def reset(self, preempt_running: bool) -> bool:
        """Do the handout's call `reset_prefix_cache(preempt_running)`."""
        self.because("Task 4/reset")
        for victim in reversed(self.running) if preempt_running else ():
            self._preempt(victim)
        return self.kv.reset_prefix_cache()

    # Tasks 5 and 6: functions

    page_size_bytes = function("Task 5/page_size_bytes", budget.page_size_bytes)
    available_kv_memory = function("Task 5/available_kv_memory", budget.available_kv_memory)
    get_num_blocks = function("Task 5/get_num_blocks", budget.get_num_blocks)
    check_enough_memory = function("Task 5/check_enough_memory", budget.check_enough_memory)
    estimate_max_model_len = function("Task 5/estimate_max_model_len", budget.estimate_max_model_len)
    max_concurrency = function("Task 5/max_concurrency", budget.max_concurrency)

    def simulate(self, policy: str, slots: int, max_len: int, block_size: int, lengths: tuple[Any, ...]) -> list[Any]:
        """Return the result of `fragmentation.simulate`."""
        self.because("Task 6/paged" if policy == "paged" else "Task 6/buddy")
        return fragmentation.simulate(policy, slots, max_len, block_size, lengths)

    # The manager that is given

    def _tell_pool(self, request: str) -> None:
        """Update the pool's copy of a request. A student's pool needs no update: it is given the request itself."""
        known, there = self.requests[request], self.kv.requests[request]
        there.num_computed_tokens = known.computed
        if there.num_tokens < len(known.tokens):
            self.kv.append_tokens(request, tuple(known.tokens[there.num_tokens :]))

    def _allocate(self, request: str, tokens: int, hits: list[int]) -> bool:
        """Do the manager's call `allocate_slots`, and return whether there was room."""
        self._tell_pool(request)
        try:
            self.kv.allocate_slots(request, tokens, hits)
        except Refused:
            self.calls.append(["none", request, tokens, len(hits)])
            return False
        self.calls.append(["alloc", request, tokens, len(hits)])
        return True

    def _free(self, request: str) -> None:
        """Do the manager's call `free`; note it in `calls` if the request has blocks."""
        if self.kv.tables.get(request):
            self.calls.append(["free", request])
        self.kv.free_blocks_of(request)

    def state(self) -> dict[str, Any]:
        """Return what the scheduler, its requests and its manager show, and what the caller knows."""
        pool = self.kv.state()
        return {
            "running": list(self.running),
            "waiting": list(self.waiting),
            "req": {
                name: [known.status, known.computed, known.preemptions, list(known.outputs)]
                for name, known in self.requests.items()
            },
            "calls": [list(call) for call in self.calls],
            "tables": pool["tables"],
            "free": pool["free"],
            "settings": list(self.settings),
            "scheduled": dict(self.scheduled),
            "given": {
                name: [list(known.prompt), known.max_tokens, known.priority, known.arrival]
                for name, known in self.requests.items()
            },
            "pool": {name: pool[name] for name in _OF_THE_POOL},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        self.settings = list(state["settings"])
        self.running, self.waiting = list(state["running"]), list(state["waiting"])
        self.scheduled, self.calls = dict(state["scheduled"]), [list(call) for call in state["calls"]]
        self.requests = {}
        for name, (prompt, most, priority, arrival) in state["given"].items():
            status, computed, preemptions, outputs = state["req"][name]
            known = Request(list(prompt), most, priority, arrival, status, computed, preemptions, list(outputs))
            self.requests[name] = known
        self.kv = Manager()
        if self.settings:
            num_blocks, block_size, caching, *_ = self.settings
            self.kv.mgr(num_blocks, block_size, caching, _ENDLESS)
            for name, known in self.requests.items():
                self.kv.new(name, tuple(known.tokens))
            queue = {"free": state["free"], "num_free": len(state["free"]), "tables": state["tables"]}
            self.kv.restore({**self.kv.state(), **state["pool"], **queue})
