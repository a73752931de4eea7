"""Part 2: large pages of the least common size, each cut into slots of one type at a time."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm
from typing import Any

from reference.oracle import Engine, Refused

EMPTY, USED = "empty", "used"
Slot = str | tuple[int, int]  # EMPTY, USED, or (last access, prefix length) of an evictable slot
Key = tuple[int, int]


def _key(slot: Slot) -> Key:
    """Return the key by which slots are evicted: the oldest first, of equally old slots that with the longer prefix."""
    assert not isinstance(slot, str)
    last_access, prefix_length = slot
    return last_access, -prefix_length


class LcmAllocator(Engine):
    """The handout's calls on an LcmAllocator."""

    def __init__(self) -> None:
        super().__init__()
        self.page_bytes: dict[str, int] = {}
        self.large_page_bytes = 0
        self.num_large_pages = 0
        self.ratio: dict[str, int] = {}
        self.free_large_pages: list[int] = []
        self.owner: dict[int, str | None] = {}  # of each large page in use
        self.slots: dict[str, dict[int, Slot]] = {}

    def lcm(self, page_bytes: tuple[tuple[str, int], ...], budget: int) -> None:
        """Do the handout's call `LcmAllocator(page_bytes, budget)`."""
        self.because("Part 2/large-pages")
        if not page_bytes or min(size for _, size in page_bytes) < 1 or budget < 0:
            raise Refused("ValueError", "Part 2/bad-sizes")
        self.page_bytes = dict(page_bytes)
        self.large_page_bytes = lcm(*self.page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {name: self.large_page_bytes // size for name, size in page_bytes}
        self.free_large_pages = list(range(self.num_large_pages))
        self.owner = {}
        self.slots = {name: {} for name in self.page_bytes}

    def alloc(self, request: str, page_type: str) -> int:
        """Do the handout's call `alloc(request, page_type)`: its five steps, in order. Return the slot's id."""
        self._check_type(page_type)
        own = (page for page, owner in self.owner.items() if owner == request)
        small_id = self._lowest_empty(page_type, own)
        if small_id is not None:
            self.because("Part 2/step-1")
            return self._use(request, page_type, small_id)
        if self.free_large_pages:
            self.because("Part 2/step-2")
            return self._open(request, page_type, self.free_large_pages.pop(0))
        evictable = self._evictable_large_pages()
        if evictable:
            self.because("Part 2/step-3")
            _, page = min(evictable)
            self._close(page)
            return self._open(request, page_type, page)
        small_id = self._lowest_empty(page_type, (page for page, owner in self.owner.items() if owner is None))
        if small_id is not None:
            self.because("Part 2/step-4")
            return self._use(request, page_type, small_id)
        small_id = self._lowest_empty(page_type, self.owner)
        if small_id is not None:
            self.because("Part 2/step-4")
            return self._use(request, page_type, small_id)
        cached = [(_key(slot), slot_id) for slot_id, slot in self.slots[page_type].items() if slot not in (EMPTY, USED)]
        if cached:
            self.because("Part 2/step-5")
            _, small_id = min(cached)
            return self._use(request, page_type, small_id)
        raise Refused("null", "Part 2/no-step")

    def _check_type(self, page_type: str) -> None:
        if page_type not in self.page_bytes:
            raise Refused("ValueError", "Part 2/unknown-type")

    def _lowest_empty(self, page_type: str, pages: Iterable[int]) -> int | None:
        """Return the lowest empty slot of a type on one of these large pages, or None."""
        allowed, slots = set(pages), self.slots[page_type]
        empty = [small_id for small_id, slot in slots.items() if slot == EMPTY]
        return min((small_id for small_id in empty if small_id // self.ratio[page_type] in allowed), default=None)

    def _use(self, request: str, page_type: str, small_id: int) -> int:
        """Use a slot. A page without owner gets this request as its owner."""
        self.slots[page_type][small_id] = USED
        page = small_id // self.ratio[page_type]
        if self.owner[page] is None:
            self.owner[page] = request
        return small_id

    def _open(self, request: str, page_type: str, page: int) -> int:
        """Cut a large page into slots of this type, and use the lowest one."""
        first = page * self.ratio[page_type]
        self.owner[page] = request
        self.slots[page_type].update(dict.fromkeys(range(first, first + self.ratio[page_type]), EMPTY))
        return self._use(request, page_type, first)

    def _close(self, page: int) -> None:
        """Remove the slots of a large page."""
        page_type, slots = self._cut(page)
        del self.owner[page]
        for small_id in slots:
            del self.slots[page_type][small_id]

    def _cut(self, page: int) -> tuple[str, dict[int, Slot]]:
        """Return the type of a large page in use, and its slots."""
        for page_type, slots in self.slots.items():
            own = {small_id: slot for small_id, slot in slots.items() if small_id // self.ratio[page_type] == page}
            if own:
                return page_type, own
        raise ValueError(f"large page {page} is in use but has no slots")

    def _evictable_large_pages(self) -> list[tuple[Key, int]]:
        """Return the large pages with cached but no used slots, each with the key of its slot to evict last."""
        evictable = []
        for page in self.owner:
            slots = self._cut(page)[1].values()
            keys = [_key(slot) for slot in slots if slot not in (EMPTY, USED)]
            if keys and USED not in slots:
                evictable.append((max(keys), page))
        return evictable

    def _check_slot(self, page_type: str, small_id: int, *, used: bool) -> Slot:
        """Return the slot. Raises `Refused` unless it exists and is used, or evictable if `used` is False."""
        self._check_type(page_type)
        slot = self.slots[page_type].get(small_id)
        if slot is None or slot == EMPTY or (slot == USED) is not used:
            raise Refused("ValueError", "Part 2/wrong-state")
        return slot

    def free_page(self, page_type: str, small_id: int) -> None:
        """Do the handout's call `free(page_type, small_id)`. A large page whose slots are all empty is free again."""
        self.because("Part 2/free")
        self._check_slot(page_type, small_id, used=True)
        self.slots[page_type][small_id] = EMPTY
        page = small_id // self.ratio[page_type]
        if all(slot == EMPTY for slot in self._cut(page)[1].values()):
            self._close(page)
            self.free_large_pages.append(page)

    def release(self, page_type: str, small_id: int, last_access: int, prefix_length: int) -> None:
        """Do the handout's call `release(...)`: a used slot gets evictable."""
        self.because("Part 2/release")
        self._check_slot(page_type, small_id, used=True)
        self.slots[page_type][small_id] = (last_access, prefix_length)

    def reuse(self, page_type: str, small_id: int) -> None:
        """Do the handout's call `reuse(page_type, small_id)`: an evictable slot gets used."""
        self.because("Part 2/reuse")
        self._check_slot(page_type, small_id, used=False)
        self.slots[page_type][small_id] = USED

    def remove(self, request: str) -> None:
        """Do the handout's call `remove_request(request)`: the request's pages have no owner any more."""
        self.because("Part 2/remove_request")
        self.owner = {page: None if owner == request else owner for page, owner in self.owner.items()}

    def offset(self, page_type: str, small_id: int) -> int:
        """Do the handout's call `byte_offset(page_type, small_id)`."""
        self.because("Part 2/byte_offset")
        self._check_type(page_type)
        if not 0 <= small_id < self.num_large_pages * self.ratio[page_type]:
            raise Refused("ValueError", "Part 2/byte_offset")
        return small_id * self.page_bytes[page_type]

    def state(self) -> dict[str, Any]:
        """Return the values of all attributes, as plain values."""
        return {
            "geometry": [self.large_page_bytes, self.num_large_pages, dict(self.ratio)],
            "free_large_pages": list(self.free_large_pages),
            "owner": {str(page): owner for page, owner in self.owner.items()},
            "slots": {
                page_type: {
                    str(small_id): slot if isinstance(slot, str) else list(slot) for small_id, slot in of.items()
                }
                for page_type, of in self.slots.items()
            },
            "sizes": dict(self.page_bytes),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        self.large_page_bytes, self.num_large_pages, ratio = state["geometry"]
        self.ratio, self.page_bytes = dict(ratio), dict(state["sizes"])
        self.free_large_pages = list(state["free_large_pages"])
        self.owner = {int(page): owner for page, owner in state["owner"].items()}
        self.slots = {
            page_type: {int(small_id): slot if isinstance(slot, str) else tuple(slot) for small_id, slot in of.items()}
            for page_type, of in state["slots"].items()
        }
