from math import ceil, floor, inf


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0, policy="fcfs", reserve_full=False):
        if min(max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold + 1) < 1 or policy not in {"fcfs", "priority"}: raise ValueError
        self.kv, self.seqs, self.tokens, self.cap, self.full = kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold or inf, reserve_full
        self.key = (lambda r: (r.priority, r.arrival_time, r.request_id)) if policy == "priority" else (lambda r: 0)
        self.waiting, self.running, self.step = [], [], {}

    def add_request(self, r):
        if any(r.request_id == q.request_id for q in self.waiting + self.running) or min(r.num_prompt_tokens, r.max_tokens) < 1: raise ValueError
        if -(-(r.num_prompt_tokens + r.max_tokens) // self.kv.block_size) >= self.kv.num_blocks: raise ValueError
        r.status = "WAITING"
        self.waiting = sorted(self.waiting + [r], key=self.key)  # stable: the tail with fcfs

    def preempt(self, v):
        self.running.remove(v)
        self.kv.free(v)
        v.num_computed_tokens, v.status, v.num_preemptions = 0, "PREEMPTED", v.num_preemptions + 1
        self.waiting = sorted([v] + self.waiting, key=self.key)  # stable: the front with fcfs
        return v

    def schedule(self):
        left, step, new, resumed, out = self.tokens, {}, [], [], []
        for r in self.running[:]:
            if not left: break
            if r not in self.running: continue
            n = min(r.num_tokens - r.num_computed_tokens, self.cap, left)
            while r in self.running and self.kv.allocate_slots(r, n) is None:
                v = self.preempt(max(reversed(self.running), key=self.key))  # the first of equals: the last one with fcfs
                left, out = left + step.pop(v.request_id, 0), out + [v.request_id]
            if r not in self.running: break
            step[r.request_id], left = n, left - n
        while not out and self.waiting and left and len(self.running) < self.seqs:
            r = self.waiting[0]
            hits, t = self.kv.get_computed_blocks(r)
            n = min(r.num_tokens - t, self.cap, left)
            if self.full and max(-(-r.num_tokens // self.kv.block_size) - len(hits), 0) + sum(not b.ref_cnt for b in hits) > self.kv.get_num_free_blocks(): break
            if self.kv.allocate_slots(r, n, hits) is None: break
            (new if r.status == "WAITING" else resumed).append(r.request_id)
            self.running.append(self.waiting.pop(0))
            step[r.request_id], left, r.status, r.num_computed_tokens = n, left - n, "RUNNING", t
        self.step = step
        return {"scheduled": dict(step), "new": new, "resumed": resumed, "preempted": out, "total": sum(step.values())}

    def update(self, samples):
        done = []
        for r in [r for r in self.running if r.request_id in self.step]:
            r.num_computed_tokens += self.step[r.request_id]
            if r.num_computed_tokens == r.num_tokens: r.append_output_token_ids(samples[r.request_id])
            if r.num_output_tokens == r.max_tokens: done += [r.request_id] * self.abort(r.request_id)
        self.step = {}
        return done

    def abort(self, request_id):
        for q in self.running, self.waiting:
            for r in q:
                if r.request_id == request_id:
                    q.remove(r)
                    self.kv.free(r)
                    r.status = "FINISHED"
                    return True
        return False

    def reset_prefix_cache(self, preempt_running=False):
        while preempt_running and self.running: self.preempt(self.running[-1])
        return self.kv.reset_prefix_cache()


def page_size_bytes(block_size, num_kv_heads, head_size, itemsize): return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if utilization_percent not in range(1, 101): raise ValueError
    return floor(total * (utilization_percent / 100)) - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    fewest = max(0, int(min(available) / (page_bytes * num_layers)))  # min([]) is a ValueError
    return fewest if override is None else override


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    if available < (need := ceil(max_model_len / block_size) * page_bytes * num_layers): raise ValueError  # need is above 0
    return need


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    return max(0, min(max_model_len, available // (page_bytes * num_layers) * block_size))


def max_concurrency(num_blocks, max_model_len, block_size): return num_blocks / ceil(max_model_len / block_size)


def simulate(policy, slots, max_len, block_size, lengths):
    up, rows, run, paged = (lambda n: 1 << (n - 1).bit_length()), [], [], policy == "paged"
    want = {"max": lambda p, o: max_len, "pow2": lambda p, o: min(max_len, p + up(o)), "oracle": lambda p, o: p + o, "paged": lambda p, o: p + o}
    if policy not in want or any(min(p, o) < 1 or p + o > max_len for p, o in lengths): raise ValueError
    wait = [{"held": p, "final": p + o, "want": want[policy](p, o)} for p, o in lengths]
    if any(-(-q["final"] // block_size) > slots // block_size if paged else up(q["want"]) > slots for q in wait): raise ValueError
    free = {(1 << b, slots >> b + 1 << b + 1) for b in range(slots.bit_length()) if slots >> b & 1}
    blocks = slots // block_size if paged else 0
    while wait or run:
        while wait:
            if paged:
                need = -(-wait[0]["held"] // block_size)
                if need > blocks: break
                blocks -= need
                run.append(wait.pop(0) | {"mem": need})
            else:
                size, at = min((c for c in free if c[0] >= wait[0]["want"]), default=(0, 0))
                if not size: break
                free.remove((size, at))
                while size // 2 >= wait[0]["want"]:
                    size //= 2
                    free.add((size, at + size))
                run.append(wait.pop(0) | {"mem": (size, at)})
        tok, fin, wan = (sum(q[k] for q in run) for k in ("held", "final", "want"))
        use = sum(q["mem"] for q in run) * block_size if paged else wan
        rows.append([tok, 0, use - tok, slots - use] if paged else [tok, fin - tok, wan - fin, slots - wan])
        for q in run[:]:
            if not any(q is x for x in run): continue
            last = q["held"] + 1 == q["final"]
            if paged and not last and q["held"] == q["mem"] * block_size:
                while not blocks and any(q is x for x in run):
                    wait.insert(0, run.pop())
                    blocks += wait[0]["mem"]
                if not any(q is x for x in run): break
                blocks, q["mem"] = blocks - 1, q["mem"] + 1
            q["held"] += 1
            if last:
                run = [x for x in run if x is not q]
                if paged: blocks += q["mem"]
                else:
                    size, at = q["mem"]
                    while (size, at ^ size) in free:
                        free.remove((size, at ^ size))
                        size, at = 2 * size, at & ~size
                    free.add((size, at))
    return rows
