# hybrid.py
import math


class Group:
    def __init__(self, number, kind, block_size, window):
        self.number = number
        self.kind = kind
        self.block_size = block_size
        self.window = 1 if kind == "mamba" else window

    def blocks(self, slots):
        return math.ceil(slots / self.block_size)

    def slots(self, request, total):
        if self.kind == "cross":
            return request.num_encoder_tokens
        return total

    def outside(self, computed):
        """number of blocks at the beginning that nobody looks at"""
        if self.kind in ("sliding", "mamba"):
            return max(0, computed - self.window + 1) // self.block_size
        return 0

    def wanted(self, count):
        """number of blocks at the end of a hit"""
        if self.kind == "sliding":
            return min(count, self.blocks(self.window - 1))
        if self.kind == "mamba":
            return min(count, 1)
        return count


class HybridKVCacheManager:

    def __init__(self, block_pool, groups, enable_caching=True):
        self.block_pool = block_pool
        self.enable_caching = enable_caching
        self.groups = []
        self.alignment = 1
        number = 0
        for kind, block_size, window in groups:
            if kind not in ["full", "sliding", "mamba", "cross"]:
                raise ValueError("kind")
            if block_size < 1:
                raise ValueError("block_size")
            if kind == "sliding" and window < 2:
                raise ValueError("window")
            if kind == "cross" and enable_caching:
                raise ValueError("cross and caching")
            self.groups.append(Group(number, kind, block_size, window))
            self.alignment = math.lcm(self.alignment, block_size)
            number += 1
        self.req_to_blocks = {}

    def get_computed_blocks(self, request):
        if not self.enable_caching:
            return [[] for g in self.groups], 0
        T = (request.num_tokens - 1) // self.alignment * self.alignment
        while T > 0:
            hits = []
            for g in self.groups:
                hashes = request.block_hashes(g.block_size)
                count = T // g.block_size
                nulls = count - g.wanted(count)
                hit = [self.block_pool.null_block] * nulls
                for i in range(nulls, count):
                    block = self.block_pool.get_cached_block(hashes[i], g.number)
                    if block is None:
                        break
                    hit.append(block)
                if len(hit) < count:
                    break
                hits.append(hit)
            if len(hits) == len(self.groups):
                return hits, T
            T -= self.alignment
        return [[] for g in self.groups], 0

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens")
        if new_computed_blocks is None:
            new_computed_blocks = [[] for g in self.groups]
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        if request.request_id in self.req_to_blocks:
            tables = self.req_to_blocks[request.request_id]
        else:
            tables = [[] for g in self.groups]

        # 3. release
        for g in self.groups:
            table = tables[g.number]
            last = min(g.outside(computed), len(table)) - 1
            while last >= 0:
                block = table[last]
                table[last] = self.block_pool.null_block
                self.block_pool.free_blocks([block])
                last -= 1

        # 4. check
        numbers = []
        in_queue = 0
        for g in self.groups:
            hit = new_computed_blocks[g.number]
            n = g.blocks(g.slots(request, total)) - len(tables[g.number]) - len(hit)
            numbers.append(max(0, n))
            for block in hit:
                if block.ref_cnt == 0 and not block.is_null:
                    in_queue += 1
        if sum(numbers) + in_queue > self.block_pool.num_free:
            return None

        # 5. hits
        for g in self.groups:
            self.block_pool.touch(new_computed_blocks[g.number])
            tables[g.number].extend(new_computed_blocks[g.number])

        # 6. new blocks
        result = []
        for g in self.groups:
            new = self.block_pool.get_new_blocks(numbers[g.number])
            tables[g.number].extend(new)
            result.append(list(new))
        self.req_to_blocks[request.request_id] = tables

        # 7. caching
        if self.enable_caching:
            E = total // self.alignment * self.alignment
            for g in self.groups:
                n = E // g.block_size
                hashes = request.block_hashes(g.block_size)
                self.block_pool.cache_full_blocks(tables[g.number][:n], hashes[:n], g.number)
        return result

    def free(self, request):
        if request.request_id not in self.req_to_blocks:
            return
        for table in self.req_to_blocks[request.request_id]:
            self.block_pool.free_blocks(table[::-1])
        del self.req_to_blocks[request.request_id]


class LcmAllocator:
    def __init__(self, page_bytes, budget):
        pass

    def alloc(self, request_id, type):
        pass

    def free(self, type, id):
        pass

    def release(self, type, id, last_access, prefix_length):
        pass

    def reuse(self, type, id):
        pass

    def remove_request(self, request_id):
        pass

    def byte_offset(self, type, id):
        pass


def fit(policy, budget, page_bytes, requests, weights=None):
    pass


def unify_page_size(layers):
    pass


def get_kv_cache_groups(layers):
    pass


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    pass


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    pass
