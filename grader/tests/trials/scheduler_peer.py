"""`python -m grader.tests.trials.scheduler_peer --archive PATH [--traces 1500]`: the reference against vLLM itself.

PATH is vLLM's source archive, vllm-0.22.1.tar.gz, which is unpacked but not built; without it the trial is skipped. Its
Scheduler, over its own KVCacheManager, in a child process, and the reference of the scheduler are given the same random
traces, 40 steps each: those of `grader.labs.scheduler.traces`, and every fourth one of a kind in which tokens come back
to the budget and somebody needs them. vLLM's admission gate (`scheduler_reserve_full_isl`) is `reserve_full`.

What must hold: after every operation both have the same reply (scheduled tokens in order, new, resumed and preempted
requests, total; finished requests in order), running and waiting requests in order, statuses, computed tokens,
preemptions, outputs, calls on the manager, tables, free queue, reference counts, hashes (named by contents) and index.
When blocks are cached is thereby compared, too.

Left out is what vLLM does not have or does elsewhere: the functions, `simulate`, `spoil`, and what `add_request`
refuses, which vLLM asserts or checks before its scheduler. Four things are compared in other words. vLLM counts
tokens as computed at the end of `schedule`, the handout in `update`: those of an open step, or of a step in which the
request was aborted, are subtracted. vLLM leaves it to the model to give no token for an incomplete prompt; here the
model is the trial, so that only the finished requests of `update` and their order are vLLM's. vLLM has the gate inside
`allocate_slots`; a newcomer that it refuses is no call. vLLM returns the preempted requests as a set; their order is
that in which it frees them. Not compared is what only vLLM has: statistics of hits, events, finished ids for workers.

Two differences are known, both in what the handout decides and vLLM does not. `--without-known` leaves out additions
that may show one, and says how many they were; in every fourth trace arrivals are made equal, so that the first occurs.

1. Two running requests of the same priority and arrival. The victim of the handout is the larger id, vLLM's the one
   that was admitted first:  scheduler 4 1 false 2 8 0 priority false; add a [1] 2 0 0; add b [1] 2 0 0; schedule;
   update; schedule  preempts `b`, in vLLM `a`. In `waiting` vLLM compares ids as the handout does.
2. An id comes again between `schedule` and `update`, after its request was aborted. In vLLM the new request gets the
   token of the old one, and perhaps is finished by it:  scheduler 9 2 false 3 8 0 fcfs false; add a [1] 1 0 0;
   schedule; abort a; add a [1,1] 1 0 1; update  returns [], in vLLM ["a"].

It takes about a minute, prints how many traces and operations agree, what occurred in them, and the first
difference; the exit code is 1 when there is one.

`--freeze FILE` also writes traces with what vLLM had, for reference/tests/scheduler/test_vllm_traces.py:
`--without-known --traces 160 --length 16 --freeze reference/tests/scheduler/vllm_traces.json.gz` made the file that is
there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

from grader.labs.scheduler.oracle import circumstances
from grader.labs.scheduler.traces import generate
from grader.tests.support.vllm_peer import PeerTrial, Played, VllmSide
from reference.operation import Operation
from reference.scheduler.scheduler import Scheduler
from reference.tests.scheduler.test_vllm_traces import parts

_BOTH = ("scheduler", "add", "schedule", "update", "abort", "reset")
"""Operations that vLLM has too; the others are functions, or something that the caller does."""

_ENDLESS = 10**9


def played(seed: int, length: int, *, without_known: bool) -> Played:
    """Play a seed's trace until it has so many steps."""
    drawn = 4 * length
    while True:
        trace, engine, steps = Played(seed), Scheduler(), 0
        for operation in drawn_for(seed, drawn):
            if without_known and is_known(engine, operation):
                trace.known += 1
                continue
            before = engine.state()
            reply = engine.apply(operation)
            if reply.text == "ValueError":  # vLLM refuses elsewhere; it changed nothing
                continue
            steps += operation.name == "update"
            trace.operations.append(operation)
            trace.after.append((json.loads(reply.text), parts(engine.state())))
            words = {reply.clause, *circumstances(before, operation, reply, engine.state())}
            trace.met.update(_met(engine, operation, trace.after[-1][0], words))
            if steps == length:
                return trace
        drawn *= 2


def drawn_for(seed: int, length: int) -> Iterator[Operation]:
    """The operations of a seed that both sides have, of about so many."""
    random = Random(seed)
    for operation in generate(random, length):
        if operation.name in _BOTH:
            yield _closer(operation) if seed % 4 == 0 else operation


def _closer(operation: Operation) -> Operation:
    """The operation with one arrival for two: then ids decide."""
    if operation.name != "add":
        return operation
    *others, arrival = operation.arguments
    assert isinstance(arrival, int)
    return replace(operation, arguments=(*others, arrival // 2))


def is_known(engine: Scheduler, operation: Operation) -> bool:
    """Whether a request joins that may make vLLM differ."""
    if operation.name != "add":
        return False
    name, _, _, priority, arrival = operation.arguments
    present = [*engine.waiting, *engine.running]
    if name in engine.scheduled and name not in present:
        return True
    keys = [(engine.requests[other].priority, engine.requests[other].arrival) for other in present]
    return engine.settings[6] == "priority" and (priority, arrival) in keys


def _met(engine: Scheduler, operation: Operation, reply: Any, words: set[str]) -> Iterator[str]:
    """What a summary counts."""
    if operation.name != "schedule":
        return
    _, _, caching, *_, threshold, policy, reserve = engine.settings
    yield f"steps under {policy}"
    yield from (f"steps with {what}" for what, on in (("caching", caching), ("a threshold", threshold)) if on)
    gate = "with" if reserve else "without"
    yield from (f"preemptions {gate} the gate" for _ in reply[3])
    names = {"hits": "steps with hits", "refund": "refunds", "Task 2/reserve-full": "refusals by the gate"}
    names |= {"Task 2/nobody-overtakes": "refusals of a newcomer", "self": "requesters that were the victim"}
    yield from (name for word, name in names.items() if word in words)


class VllmScheduler(VllmSide):
    """vLLM's scheduler, and requests; each operation does what the handout's driver does."""

    def __init__(self) -> None:
        super().__init__()
        self._schedulers = import_module("vllm.v1.core.sched.scheduler")
        self._aborted = self.requests_module.RequestStatus.FINISHED_ABORTED

    def scheduler(  # noqa: PLR0917 - as in a trace
        self, num_blocks: int, block_size: int, caching: bool, max_num_seqs: int, max_num_batched_tokens: int,  # noqa: FBT001
        threshold: int, policy: str, reserve_full: bool,  # noqa: FBT001
    ) -> None:  # fmt: skip
        """A new scheduler with a new manager."""
        self._scheduler = self._schedulers.Scheduler(
            _settings(
                num_blocks=num_blocks,
                enable_prefix_caching=caching,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                long_prefill_token_threshold=threshold,
                policy=policy,
                scheduler_reserve_full_isl=reserve_full,
            ),
            self.config(num_blocks, block_size),
            SimpleNamespace(should_advance=lambda _request: False),
            block_size,
            mm_registry=SimpleNamespace(supports_multimodal_inputs=lambda _model: False),
        )
        self.block_hasher = self.hasher(block_size)
        self.requests: dict[str, Any] = {}
        self.calls: list[list[Any]] = []
        self.step: Any = None  # what the last `schedule` returned, until `update`
        self.in_step: dict[str, Any] = {}  # the requests that it scheduled
        self.ahead: dict[str, int] = {}  # tokens that vLLM counts as computed already
        manager = self._scheduler.kv_cache_manager
        self.allocate, self.free = manager.allocate_slots, manager.free
        manager.allocate_slots, manager.free = self._allocate_slots, self._free

    def _allocate_slots(self, request: Any, num_new_tokens: int, **more: Any) -> Any:
        """vLLM's, and noted. With the gate a refused newcomer was refused by the gate: a share needs no more."""
        blocks = self.allocate(request, num_new_tokens, **more)
        hits = more["new_computed_blocks"].blocks[0] if "new_computed_blocks" in more else ()
        if blocks is not None or not more.get("full_sequence_must_fit"):
            self.calls.append(["none" if blocks is None else "alloc", request.request_id, num_new_tokens, len(hits)])
        return blocks

    def _free(self, request: Any) -> None:
        """vLLM's, and noted if there is something to free."""
        if self.pool(self._scheduler.kv_cache_manager)["tables"].get(request.request_id):
            self.calls.append(["free", request.request_id])
        self.free(request)

    def apply(self, name: str, arguments: list[Any]) -> Any:
        """Calls on the manager are those of this operation."""
        self.calls = []
        return super().apply(name, arguments)

    def add(  # noqa: PLR0917 - as in a trace
        self, name: str, tokens: list[int], max_tokens: int, priority: int, arrival: int
    ) -> None:
        """A new request."""
        sampling = SimpleNamespace(
            max_tokens=max_tokens,
            min_tokens=0,
            eos_token_id=None,
            stop_token_ids=(),
            repetition_detection=None,
            num_logprobs=None,
            extra_args=None,
            skip_reading_prefix_cache=None,
        )
        request = self.requests_module.Request(
            name, tokens, sampling, None, arrival_time=arrival, priority=priority, block_hasher=self.block_hasher
        )
        self._scheduler.add_request(request)
        self.requests[name] = request
        self.ahead.pop(name, None)

    def schedule(self) -> list[Any]:
        """One step. vLLM gives the preempted as a set; the order is that in which they were freed."""
        self.step = self._scheduler.schedule()
        scheduled, cached = self.step.num_scheduled_tokens, self.step.scheduled_cached_reqs
        self.in_step = {name: self.requests[name] for name in scheduled}
        self.ahead |= scheduled
        preempted = [call[1] for call in self.calls if call[0] == "free"]
        assert self.step.preempted_req_ids == set(preempted)
        return [
            [list(pair) for pair in scheduled.items()],
            [new.req_id for new in self.step.scheduled_new_reqs],
            [name for name in cached.req_ids if name in cached.resumed_req_ids],
            preempted,
            self.step.total_num_scheduled_tokens,
        ]

    def update(self) -> list[str]:
        """The model has run. It gives no token for a request whose tokens are not all computed."""
        for name, request in self.in_step.items():
            if not request.is_finished():
                self.ahead.pop(name, None)
        output = SimpleNamespace(
            sampled_token_ids=list(map(_sampled, self.in_step.values())),
            req_id_to_index={name: place for place, name in enumerate(self.in_step)},
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=None,
            num_nans_in_logits=None,
            kv_connector_output=None,
            cudagraph_stats=None,
            routed_experts=None,
        )
        clients = self._scheduler.update_from_output(self.step, output)
        return [each.request_id for client in clients.values() for each in client.outputs if each.finish_reason]

    def abort(self, name: str) -> bool:
        """The client has gone."""
        return bool(self._scheduler.finish_requests(name, self._aborted))

    def reset(self, preempt_running: bool) -> Any:  # noqa: FBT001 - as in a trace
        """Forget all hashes."""
        return self._scheduler.reset_prefix_cache(reset_running_requests=preempt_running)

    def state(self) -> dict[str, Any]:
        """What of vLLM's state is compared."""
        assert not self._scheduler.skipped_waiting
        pool = self.pool(self._scheduler.kv_cache_manager)
        waiting, running = (
            [each.request_id for each in queue] for queue in (self._scheduler.waiting, self._scheduler.running)
        )
        requests = {name: self._request(request) for name, request in self.requests.items()}
        return parts(
            {**pool, "pool": pool, "waiting": waiting, "running": running, "req": requests, "calls": self.calls}
        )

    def _request(self, request: Any) -> list[Any]:
        status = "FINISHED" if request.is_finished() else request.status.name
        computed = request.num_computed_tokens - self.ahead.get(request.request_id, 0)
        return [status, computed, request.num_preemptions, list(request.output_token_ids)]


def _settings(**given: Any) -> SimpleNamespace:
    """vLLM's configuration: what a trace says, and everything else switched off."""
    off = dict.fromkeys(("lora_config", "kv_events_config", "kv_transfer_config", "ec_transfer_config"))
    return SimpleNamespace(
        **off,
        speculative_config=None,
        use_v2_model_runner=False,
        model_config=SimpleNamespace(
            max_model_len=_ENDLESS, is_encoder_decoder=False, enable_return_routed_experts=False
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks=given.pop("num_blocks"), enable_prefix_caching=given.pop("enable_prefix_caching")
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=0,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
        ),
        observability_config=SimpleNamespace(kv_cache_metrics=False),
        scheduler_config=SimpleNamespace(
            **given, max_num_scheduled_tokens=None, enable_chunked_prefill=True, async_scheduling=False
        ),
    )


def _sampled(request: Any) -> list[int]:
    """The handout's sample, if the request is complete."""
    if request.num_computed_tokens < request.num_tokens:
        return []
    tokens = request.all_token_ids
    return [(sum(place * token for place, token in enumerate(tokens, 1)) + len(tokens)) % 3]


TRIAL = PeerTrial(
    module="grader.tests.trials.scheduler_peer",
    documentation=__doc__,
    side=VllmScheduler,
    play=played,
    seeds=count(),
    traces=1500,
    length=40,
    unit="steps",
)

if __name__ == "__main__":
    sys.exit(TRIAL.run())
