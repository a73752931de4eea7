"""Scheduler, first version. Tasks 1, 2 (fcfs), 5 and the start of 6."""
import math


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if max_num_seqs < 1 or max_num_batched_tokens < 1:
            raise ValueError("bad limits")
        if long_prefill_token_threshold < 0:
            raise ValueError("bad threshold")
        if policy != "fcfs" and policy != "priority":
            raise ValueError("bad policy")
        self.kv = kv
        self.limits = {"seqs": max_num_seqs, "tokens": max_num_batched_tokens,
                       "threshold": long_prefill_token_threshold}
        self.policy = policy
        self.reserve_full = reserve_full
        self.waiting = []
        self.running = []
        self.tokens_of_step = {}

    def add_request(self, request):
        ids = [r.request_id for r in self.waiting] + [r.request_id for r in self.running]
        if request.request_id in ids:
            raise ValueError("id")
        if request.num_prompt_tokens == 0 or request.max_tokens < 1:
            raise ValueError("length")
        size = self.kv.block_size
        if math.ceil((request.num_prompt_tokens + request.max_tokens) / size) > self.kv.num_blocks - 1:
            raise ValueError("memory")
        request.status = "WAITING"
        self.waiting.append(request)

    def share(self, lacks, budget):
        if self.limits["threshold"]:
            return min(lacks, self.limits["threshold"], budget)
        return min(lacks, budget)

    def schedule(self):
        budget = self.limits["tokens"]
        result = {"scheduled": {}, "new": [], "resumed": [], "preempted": [], "total": 0}
        for request in list(self.running):
            if budget == 0 or request not in self.running:
                break
            n = self.share(request.num_tokens - request.num_computed_tokens, budget)
            while self.kv.allocate_slots(request, n) is None:
                victim = self.running.pop()
                self.kv.free(victim)
                victim.num_computed_tokens = 0
                victim.num_preemptions += 1
                victim.status = "PREEMPTED"
                self.waiting.insert(0, victim)
                result["preempted"].append(victim.request_id)
                if victim is request:
                    break
            else:
                result["scheduled"][request.request_id] = n
                budget -= n
        if not result["preempted"]:
            while self.waiting and budget and len(self.running) < self.limits["seqs"]:
                request = self.waiting[0]
                hits, t = self.kv.get_computed_blocks(request)
                n = self.share(request.num_tokens - t, budget)
                if self.kv.allocate_slots(request, n, hits) is None:
                    break
                self.running.append(self.waiting.pop(0))
                which = "new" if request.status == "WAITING" else "resumed"
                result[which].append(request.request_id)
                request.status = "RUNNING"
                request.num_computed_tokens = t
                result["scheduled"][request.request_id] = n
                budget -= n
        self.tokens_of_step = dict(result["scheduled"])
        result["total"] = sum(self.tokens_of_step.values())
        return result

    def update(self, samples):
        finished = []
        for request in self.running:
            if request.request_id in self.tokens_of_step:
                request.num_computed_tokens += self.tokens_of_step[request.request_id]
                if request.num_computed_tokens == request.num_tokens:
                    request.append_output_token_ids(samples[request.request_id])
        # TODO finished requests
        return finished

    def abort(self, request_id):
        pass

    # TODO reset_prefix_cache


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if not 1 <= utilization_percent <= 100:
        raise ValueError("percent")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if not available:
        raise ValueError("workers")
    if override is not None:
        return override
    return max(0, min(available) // (page_bytes * num_layers))


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / math.ceil(max_model_len / block_size)


def simulate(policy, slots, max_len, block_size, lengths):
    if policy not in ("max", "pow2", "oracle", "paged"):
        raise ValueError("policy")
    for prompt, output in lengths:
        if prompt < 1 or output < 1 or prompt + output > max_len:
            raise ValueError("lengths")
    raise NotImplementedError
