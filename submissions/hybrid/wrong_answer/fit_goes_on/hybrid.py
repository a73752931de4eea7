import math
from collections import defaultdict
from fractions import Fraction as F


class HybridKVCacheManager:

    def __init__(self, pool, groups, caching=True):
        for kind, bs, w in groups:
            if kind not in {'full', 'sliding', 'mamba', 'cross'} or bs < 1:
                raise ValueError(kind)
            if kind == 'sliding' and w < 2 or kind == 'cross' and caching:
                raise ValueError(kind)
        self.pool, self.groups, self.caching = pool, [tuple(g) for g in groups], caching
        self.lcm = math.lcm(*(g[1] for g in self.groups))
        self.req_to_blocks = defaultdict(lambda: [[] for _ in self.groups])

    def _from(self, g, n):
        kind, bs, w = self.groups[g]
        need = {'full': n, 'cross': n, 'mamba': 1, 'sliding': -(-(w - 1) // bs) if kind == 'sliding' else 0}
        return max(0, n - need[kind])

    def _hit(self, g, hashes, T):
        n = T // self.groups[g][1]
        lo = self._from(g, n)
        tail = [self.pool.get_cached_block(h, g) for h in hashes[lo:n]]
        return None if None in tail else [self.pool.null_block] * lo + tail

    def get_computed_blocks(self, req):
        if self.caching:
            hs = [req.block_hashes(bs) for _, bs, _ in self.groups]
            T = (req.num_tokens - 1) // self.lcm * self.lcm
            while T > 0:
                hits = []
                for g, h in enumerate(hs):
                    hits.append(self._hit(g, h, T))
                    if hits[-1] is None:
                        break
                else:
                    return hits, T
                T -= self.lcm
        return [[] for _ in self.groups], 0

    def _release(self, tabs, done):
        for (kind, bs, w), tab in zip(self.groups, tabs):
            skip = {'sliding': lambda: done - w + 1, 'mamba': lambda: done - 1}.get(kind, lambda: 0)()
            out = []
            for i in range(min(max(skip, 0) // bs, len(tab))):
                out.insert(0, tab[i])
                tab[i] = self.pool.null_block
            self.pool.free_blocks(out)

    def allocate_slots(self, req, n, hits=None, nhit=0):
        if n < 1:
            raise ValueError(n)
        done = req.num_computed_tokens + nhit
        total = done + n
        tabs = self.req_to_blocks[req.request_id]
        hits = [list(h) for h in hits] if hits else [[] for _ in self.groups]
        self._release(tabs, done)
        need = []
        for (kind, bs, w), tab, hit in zip(self.groups, tabs, hits):
            slots = req.num_encoder_tokens if kind == 'cross' else total
            need.append(max(0, -(-slots // bs) - len(tab) - len(hit)))
        lazy = [b for h in hits for b in h if b.ref_cnt == 0 and not b.is_null]
        if sum(need) + len(lazy) > self.pool.num_free:
            return None
        for tab, hit in zip(tabs, hits):
            self.pool.touch(hit)
            tab[:0] = hit
        new = [self.pool.get_new_blocks(k) for k in need]
        for tab, blocks in zip(tabs, new):
            tab += blocks
        if self.caching:
            E = total // self.lcm * self.lcm
            for g, (kind, bs, w) in enumerate(self.groups):
                self.pool.cache_full_blocks(tabs[g][:E // bs], req.block_hashes(bs)[:E // bs], g)
        return [list(blocks) for blocks in new]

    def free(self, req):
        for tab in self.req_to_blocks.pop(req.request_id, []):
            self.pool.free_blocks(tab[::-1])


class LcmAllocator:

    def __init__(self, page_bytes, budget):
        if not page_bytes or min(page_bytes.values()) < 1 or budget < 0:
            raise ValueError('arguments')
        self.bytes = dict(page_bytes)
        self.large_page_bytes = L = math.lcm(*page_bytes.values())
        self.num_large_pages = budget // L
        self.ratio = {t: L // b for t, b in page_bytes.items()}
        self.free_large_pages = list(range(self.num_large_pages))
        self.owner, self.kind = {}, {}
        self.slots = {t: {} for t in page_bytes}

    def _type(self, t):
        if t not in self.bytes:
            raise ValueError(t)

    def _ids(self, p, t):
        return range(p * self.ratio[t], (p + 1) * self.ratio[t])

    def _cut(self, p, t, rid):
        self.kind[p], self.owner[p] = t, rid
        self.slots[t].update((i, 'empty') for i in self._ids(p, t))
        return p * self.ratio[t]

    def _drop(self, p):
        t = self.kind.pop(p)
        del self.owner[p]
        for i in self._ids(p, t):
            del self.slots[t][i]

    def _key(self, p):
        t = self.kind[p]
        states = [self.slots[t][i] for i in self._ids(p, t)]
        keys = [(s[0], -s[1]) for s in states if type(s) is tuple]
        return max(keys) if keys and 'used' not in states else None

    def _pick(self, rid, t):
        sl, r = self.slots[t], self.ratio[t]
        empty = sorted(i for i, s in sl.items() if s == 'empty')
        for i in empty:
            if self.owner[i // r] == rid:
                return i
        if self.free_large_pages:
            return self._cut(self.free_large_pages.pop(0), t, rid)
        old = [(self._key(p), p) for p in self.kind if self._key(p)]
        if old:
            p = min(old)[1]
            self._drop(p)
            return self._cut(p, t, rid)
        for i in empty:
            if self.owner[i // r] is None:
                return i
        if empty:
            return empty[0]
        cached = [(s[0], -s[1], i) for i, s in sl.items() if s != 'used']
        return min(cached)[2] if cached else None

    def alloc(self, rid, t):
        self._type(t)
        i = self._pick(rid, t)
        if i is not None:
            self.slots[t][i] = 'used'
            if self.owner[i // self.ratio[t]] is None:
                self.owner[i // self.ratio[t]] = rid
        return i

    def free(self, t, i):
        self._type(t)
        if self.slots[t].get(i) != 'used':
            raise ValueError(i)
        self.slots[t][i] = 'empty'
        p = i // self.ratio[t]
        if all(self.slots[t][j] == 'empty' for j in self._ids(p, t)):
            self._drop(p)
            self.free_large_pages.append(p)

    def release(self, t, i, last_access, prefix_length):
        self._type(t)
        if self.slots[t].get(i) != 'used':
            raise ValueError(i)
        self.slots[t][i] = (last_access, prefix_length)

    def reuse(self, t, i):
        self._type(t)
        if type(self.slots[t].get(i)) is not tuple:
            raise ValueError(i)
        self.slots[t][i] = 'used'

    def remove_request(self, rid):
        for p, o in self.owner.items():
            if o == rid:
                self.owner[p] = None

    def byte_offset(self, t, i):
        self._type(t)
        if not 0 <= i < self.num_large_pages * self.ratio[t]:
            raise ValueError(i)
        return i * self.bytes[t]


def fit(policy, budget, page_bytes, requests, weights=None):
    A = LcmAllocator(page_bytes, budget)
    g = math.gcd(*page_bytes.values())
    if policy not in ('lcm', 'max', 'static', 'gcd'):
        raise ValueError(policy)
    left = {'max': budget // max(page_bytes.values()), 'gcd': budget // g}
    if policy == 'static':
        for t in page_bytes:
            left[t,] = budget * weights[t] // sum(weights.values()) // page_bytes[t]
    admitted = needed = entries = 0
    for req in requests:
        n = {t: req.get(t, 0) for t in page_bytes}
        size, pages = sum(n[t] * page_bytes[t] for t in n), sum(n.values())
        cost = {'max': {'max': pages}, 'gcd': {'gcd': size // g}, 'lcm': {}, 'static': {(t,): n[t] for t in n}}[policy]
        if any(left[k] < c for k, c in cost.items()):
            continue
        if policy == 'lcm' and None in (A.alloc(str(admitted), t) for t in n for _ in range(n[t])):
            continue
        for k, c in cost.items():
            left[k] -= c
        admitted += 1
        needed += size
        entries += size // g if policy == 'gcd' else pages
    return admitted, needed, entries


def unify_page_size(layers):
    big = max(s[1] * s[3] for _, s in layers)
    out = []
    for name, (kind, bs, w, tb) in layers:
        if big % (bs * tb):
            raise NotImplementedError(name)
        out.append((name, (kind, big // tb, w, tb)))
    return out


def get_kv_cache_groups(layers):
    same = defaultdict(list)
    for name, spec in layers:
        same[tuple(spec)].append(name)
    few, many = min(map(len, same.values())), max(map(len, same.values()))
    size = many if many < 1.5 * few else few
    out = []
    for names in same.values():
        k = -(-len(names) // size)
        out += [names[i::k] for i in range(k)]
    return out


def get_kv_cache_config(layers, available, override=None):
    layers = unify_page_size(layers)
    groups = get_kv_cache_groups(layers)
    spec = dict(layers)
    sizes = [spec[g[0]][1] for g in groups]
    page = sizes[0] * spec[groups[0][0]][3]
    width = max(map(len, groups))
    n = max(0, available // page // width) if override is None else override
    return {'groups': groups, 'block_sizes': sizes, 'page_bytes': page, 'num_blocks': n,
            'tensors': [[g[i] for g in groups if i < len(g)] for i in range(width)],
            'tensor_bytes': page * n, 'padding_layers': width * len(groups) - len(layers),
            'alignment': math.lcm(*sizes)}


def uniform_waste(layers, tokens, encoder=0):
    use = {'full': lambda w: tokens, 'sliding': lambda w: min(tokens, w), 'cross': lambda w: encoder}
    if any(k not in use for k, _, _ in layers):
        raise ValueError('kind')
    return 1 - F(sum(c * use[k](w) for k, c, w in layers), sum(c for _, c, _ in layers) * (tokens + encoder))
