# scheduler.py
# lab: paged kv cache, scheduler


def round_up_division(a, b):
    result = a // b
    if a % b != 0:
        result = result + 1
    return result


def comes_first(a, b):
    # True if request a is more important than request b
    if a.priority != b.priority:
        return a.priority < b.priority
    if a.arrival_time != b.arrival_time:
        return a.arrival_time < b.arrival_time
    return a.request_id < b.request_id


def position_of_id(some_list, request_id):
    i = 0
    while i < len(some_list):
        if some_list[i].request_id == request_id:
            return i
        i = i + 1
    return -1


class Scheduler:
    def __init__(self, kv, max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold=0,
                 policy="fcfs", reserve_full=False):
        if max_num_seqs < 1 or max_num_batched_tokens < 1 or long_prefill_token_threshold < 0:
            raise ValueError("a number is too small")
        if policy != "fcfs" and policy != "priority":
            raise ValueError("policy must be fcfs or priority")
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.long_prefill_token_threshold = long_prefill_token_threshold
        self.policy = policy
        self.reserve_full = reserve_full
        self.waiting = []
        self.running = []
        # what the last schedule decided: two lists side by side
        self.step_requests = []
        self.step_tokens = []

    # helpers
    def get_share(self, missing, budget):
        if self.long_prefill_token_threshold > 0:
            missing = min(missing, self.long_prefill_token_threshold)
        return min(missing, budget)

    def put_at_place_of_key(self, request):
        i = 0
        while i < len(self.waiting) and comes_first(self.waiting[i], request):
            i = i + 1
        self.waiting.insert(i, request)

    def find_victim(self):
        victim = self.running[len(self.running) - 1]
        if self.policy == "priority":
            i = 0
            while i < len(self.running):
                if comes_first(victim, self.running[i]):
                    victim = self.running[i]
                i = i + 1
        return victim

    def do_preempt(self, victim):
        self.running.remove(victim)
        self.kv.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions = victim.num_preemptions + 1
        victim.status = "PREEMPTED"
        if self.policy == "fcfs":
            self.waiting.insert(0, victim)
        else:
            self.put_at_place_of_key(victim)

    def take_back_from_step(self, request):
        # gives the number of tokens that come back
        i = position_of_id(self.step_requests, request.request_id)
        if i == -1:
            return 0
        self.step_requests.pop(i)
        return self.step_tokens.pop(i)

    def everything_would_fit(self, request, hits):
        blocks = round_up_division(request.num_tokens, self.kv.block_size) - len(hits)
        if blocks < 0:
            blocks = 0
        i = 0
        while i < len(hits):
            if hits[i].ref_cnt == 0:
                blocks = blocks + 1
            i = i + 1
        return blocks <= self.kv.get_num_free_blocks()

    # task 1
    def add_request(self, request):
        if position_of_id(self.waiting + self.running, request.request_id) != -1:
            raise ValueError("this id is already there")
        if request.num_prompt_tokens == 0 or request.max_tokens < 1:
            raise ValueError("no prompt or no output")
        longest = request.num_prompt_tokens + request.max_tokens
        if round_up_division(longest, self.kv.block_size) > self.kv.num_blocks - 1:
            raise ValueError("can never fit")
        request.status = "WAITING"
        if self.policy == "fcfs":
            self.waiting.append(request)
        else:
            self.put_at_place_of_key(request)

    # task 2
    def schedule(self):
        budget = self.max_num_batched_tokens
        self.step_requests = []
        self.step_tokens = []
        new = []
        resumed = []
        preempted = []

        # phase A: I go over a copy because the list changes on the way
        candidates = list(self.running)
        stop = False
        c = 0
        while c < len(candidates) and budget > 0 and not stop:
            request = candidates[c]
            c = c + 1
            if request not in self.running:
                continue
            tokens = self.get_share(request.num_tokens - request.num_computed_tokens, budget)
            answer = self.kv.allocate_slots(request, tokens)
            while answer is None and not stop:
                victim = self.find_victim()
                self.do_preempt(victim)
                preempted.append(victim.request_id)
                budget = budget + self.take_back_from_step(victim)
                if victim is request:
                    stop = True
                else:
                    tokens = self.get_share(request.num_tokens - request.num_computed_tokens, budget)
                    answer = self.kv.allocate_slots(request, tokens)
            if not stop:
                self.step_requests.append(request)
                self.step_tokens.append(tokens)
                budget = budget - tokens

        # phase B
        stop = len(preempted) > 0
        while not stop:
            if len(self.waiting) == 0 or budget == 0 or len(self.running) >= self.max_num_seqs:
                stop = True
            else:
                tokens = self.try_to_admit(budget)
                if tokens == 0:
                    stop = True
                else:
                    request = self.running[len(self.running) - 1]
                    if request.status == "WAITING":
                        new.append(request.request_id)
                    else:
                        resumed.append(request.request_id)
                    request.status = "RUNNING"
                    self.step_requests.append(request)
                    self.step_tokens.append(tokens)
                    budget = budget - tokens

        scheduled = {}
        i = 0
        while i < len(self.step_requests):
            scheduled[self.step_requests[i].request_id] = self.step_tokens[i]
            i = i + 1
        return {"scheduled": scheduled, "new": new, "resumed": resumed, "preempted": preempted,
                "total": sum(self.step_tokens)}

    def try_to_admit(self, budget):
        # moves the first waiting request to running and gives its tokens, 0 if it has to wait
        request = self.waiting[0]
        hits, hit_tokens = self.kv.get_computed_blocks(request)
        tokens = self.get_share(request.num_tokens - hit_tokens, budget)
        if self.reserve_full and not self.everything_would_fit(request, hits):
            return 0
        if self.kv.allocate_slots(request, tokens, hits) is None:
            return 0
        self.waiting.pop(0)
        self.running.append(request)
        request.num_computed_tokens = hit_tokens
        return tokens

    # task 3
    def update(self, samples):
        finished = []
        i = 0
        while i < len(self.step_requests):
            request = self.step_requests[i]
            if request in self.running:
                request.num_computed_tokens = request.num_computed_tokens + self.step_tokens[i]
                if request.num_computed_tokens == request.num_tokens:
                    request.append_output_token_ids(samples[request.request_id])
                    if request.num_output_tokens == request.max_tokens:
                        self.running.remove(request)
                        self.kv.free(request)
                        request.status = "FINISHED"
                        finished.append(request.request_id)
            i = i + 1
        self.step_requests = []
        self.step_tokens = []
        return finished

    # task 4
    def abort(self, request_id):
        i = position_of_id(self.waiting, request_id)
        if i != -1:
            request = self.waiting.pop(i)
            request.status = "FINISHED"
            return True
        i = position_of_id(self.running, request_id)
        if i != -1:
            request = self.running.pop(i)
            self.kv.free(request)
            request.status = "FINISHED"
            return True
        return False

    def reset_prefix_cache(self, preempt_running=False):
        if preempt_running:
            while len(self.running) > 0:
                self.do_preempt(self.running[len(self.running) - 1])
        return self.kv.reset_prefix_cache()


# task 5
def page_size_bytes(block_size, num_kv_heads, head_size, itemsize):
    keys = block_size * num_kv_heads * head_size * itemsize
    values = block_size * num_kv_heads * head_size * itemsize
    return keys + values


def available_kv_memory(total, utilization_percent, weights, peak_activation, other=0):
    if utilization_percent < 1 or utilization_percent > 100:
        raise ValueError("percentage is wrong")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available, page_bytes, num_layers, override=None):
    if len(available) == 0:
        raise ValueError("there is no worker")
    if override is not None:
        return override
    block_bytes = page_bytes * num_layers
    smallest = min(available) // block_bytes
    if smallest < 0:
        return 0
    return smallest


def check_enough_memory(available, max_model_len, block_size, page_bytes, num_layers):
    if available <= 0:
        raise ValueError("no memory")
    needed = round_up_division(max_model_len, block_size) * page_bytes * num_layers
    if needed > available:
        raise ValueError("not enough memory")
    return needed


def estimate_max_model_len(available, max_model_len, block_size, page_bytes, num_layers):
    if available <= 0:
        return 0
    blocks = available // (page_bytes * num_layers)
    return min(blocks * block_size, max_model_len)


def max_concurrency(num_blocks, max_model_len, block_size):
    return num_blocks / round_up_division(max_model_len, block_size)


# ---------- task 6 ----------
# a request of the simulation is a list, these are the places in it
HELD = 0
FINAL = 1
WANTED = 2
MEMORY = 3      # start of the chunk, or number of blocks


def next_power_of_two(number):
    power = 1
    while power < number:
        power = power * 2
    return power


def get_wanted(policy, max_len, prompt, output):
    if policy == "max":
        return max_len
    if policy == "pow2":
        return min(max_len, prompt + next_power_of_two(output))
    return prompt + output


# the free chunks: a dict size -> list of start addresses

def make_free_chunks(slots):
    chunks = {}
    size = next_power_of_two(slots)
    start = 0
    while size >= 1:
        chunks[size] = []
        if start + size <= slots:
            chunks[size].append(start)
            start = start + size
        size = size // 2
    return chunks


def take_from_chunks(chunks, size):
    # gives the start address or -1
    have = size
    while have in chunks and len(chunks[have]) == 0:
        have = have * 2
    if have not in chunks:
        return -1
    start = min(chunks[have])
    chunks[have].remove(start)
    while have > size:
        have = have // 2
        chunks[have].append(start + have)
    return start


def give_to_chunks(chunks, start, size):
    buddy = start ^ size
    while buddy in chunks[size]:
        chunks[size].remove(buddy)
        start = min(start, buddy)
        size = size * 2
        buddy = start ^ size
    chunks[size].append(start)


def simulate(policy, slots, max_len, block_size, lengths):
    if policy != "max" and policy != "pow2" and policy != "oracle" and policy != "paged":
        raise ValueError("unknown policy")
    queue = []
    i = 0
    while i < len(lengths):
        prompt = lengths[i][0]
        output = lengths[i][1]
        if prompt < 1 or output < 1 or prompt + output > max_len:
            raise ValueError("wrong length")
        wanted = get_wanted(policy, max_len, prompt, output)
        if policy == "paged" and round_up_division(prompt + output, block_size) > slots // block_size:
            raise ValueError("request does not fit in the memory")
        if policy != "paged" and next_power_of_two(wanted) > slots:
            raise ValueError("request does not fit in the memory")
        queue.append([prompt, prompt + output, wanted, 0])
        i = i + 1
    if policy == "paged":
        return run_paged(slots, block_size, queue)
    return run_contiguous(slots, queue)


def run_contiguous(slots, queue):
    chunks = make_free_chunks(slots)
    running = []
    rows = []
    while len(queue) > 0 or len(running) > 0:
        full = False
        while len(queue) > 0 and not full:
            start = take_from_chunks(chunks, next_power_of_two(queue[0][WANTED]))
            if start == -1:
                full = True
            else:
                request = queue.pop(0)
                request[MEMORY] = start
                running.append(request)
        token = 0
        reserved = 0
        internal = 0
        i = 0
        while i < len(running):
            token = token + running[i][HELD]
            reserved = reserved + running[i][FINAL] - running[i][HELD]
            internal = internal + running[i][WANTED] - running[i][FINAL]
            i = i + 1
        rows.append([token, reserved, internal, slots - token - reserved - internal])
        i = 0
        while i < len(running):
            request = running[i]
            request[HELD] = request[HELD] + 1
            if request[HELD] == request[FINAL]:
                running.pop(i)
                give_to_chunks(chunks, request[MEMORY], next_power_of_two(request[WANTED]))
            else:
                i = i + 1
    return rows


def run_paged(slots, block_size, queue):
    free = slots // block_size
    running = []
    rows = []
    while len(queue) > 0 or len(running) > 0:
        full = False
        while len(queue) > 0 and not full:
            need = round_up_division(queue[0][HELD], block_size)
            if need > free:
                full = True
            else:
                request = queue.pop(0)
                request[MEMORY] = need
                free = free - need
                running.append(request)
        token = 0
        internal = 0
        i = 0
        while i < len(running):
            token = token + running[i][HELD]
            internal = internal + running[i][MEMORY] * block_size - running[i][HELD]
            i = i + 1
        rows.append([token, 0, internal, slots - token - internal])
        i = 0
        while i < len(running):
            request = running[i]
            if request[HELD] + 1 == request[FINAL]:
                running.pop(i)
                free = free + request[MEMORY]
            elif request[HELD] + 1 <= request[MEMORY] * block_size:
                request[HELD] = request[HELD] + 1
                i = i + 1
            else:
                while free == 0 and i < len(running):
                    last = running.pop(len(running) - 1)
                    free = free + last[MEMORY]
                    last[MEMORY] = 0
                    queue.insert(0, last)
                if i < len(running):
                    free = free - 1
                    request[MEMORY] = request[MEMORY] + 1
                    request[HELD] = request[HELD] + 1
                    i = i + 1
    return rows
