"""The small engines of hybrid: managers of groups of all kinds, with two requests, and large pages of two types."""

from __future__ import annotations

from collections.abc import Sequence

from grader.labs.plain_lab import SmallLines, State
from reference.operation import Operation, written

_MOST_TOKENS = 8
_WEIGHTS = ('[["x",1],["y",2]]', '[["x",3],["y",4]]')
_NO_WEIGHTS = tuple((policy, "null") for policy in ("lcm", "max", "gcd", "best"))


def _one_after_the_other(memory: object, state: State, operation: Operation) -> object | None:
    """Make one manager first. After a `match` make only an `admit`; make other calls of a request as `_may` allows."""
    name = operation.name
    if (name == "manager") is bool(state["settings"]) or (state["looked"] and name != "admit"):
        return None
    request = operation.arguments[0] if operation.arguments else None
    return memory if request not in ("a", "b") or _may(name, state, request) else None


def _may(name: str, state: State, request: str) -> bool:
    """Return whether a call fits a request: `new` a new one, other calls an existing one in a suitable state."""
    known = state["requests"].get(request)
    if known is None or name == "new":
        return known is None and name == "new"
    tokens, _, computed = known
    if name in ("match", "admit"):
        return not computed and request not in state["tables"]
    if name == "append":
        return bool(len(tokens) <= computed < _MOST_TOKENS)
    return bool(name != "step" or computed < len(tokens))


def _manager(arguments: str, *, new: Sequence[str] = ("a abba 1", "b abbab 3"), spoil: bool = False) -> SmallLines:
    return SmallLines(
        opening="spoil" if spoil else f"manager {arguments}",
        lines=(
            *((f"manager {arguments}",) if spoil else ()),
            *(f"new {line}" for line in new),
            *(f"{call} {request}" for request in "ab" for call in ("match", "free", "preempt")),
            *(f"{call} {request} {tokens}" for request in "ab" for call in ("admit", "step") for tokens in (1, 9)),
            *(f"append {request} {tokens}" for request in "ab" for tokens in ("a", "bb")),
            *("evict [1]", "evict [3,2]", "step a -1"),
        ),
        most=1000,
        remember=_one_after_the_other,
    )


_EVICTED = SmallLines(
    opening='manager 9 [["sliding",1,3],["mamba",1,0]] true',
    lines=(
        *("new a abba 0", "match a", "admit a 9", "preempt a"),
        *(f"evict [{block}]" for block in (1, 2, 3, 5, 6, 7)),
    ),
    most=900,
    remember=_one_after_the_other,
)
"""Shows the hits of a request after any of its blocks was evicted."""
_COMING_BACK = SmallLines(
    opening='manager 5 [["full",2,0]] true',
    lines=("new a abbaa 0", "new b bbbb 0", "match a", "admit a 9", "step b 9", "free a", "free b", "preempt a"),
    most=500,
    remember=_one_after_the_other,
)

_SLOTS = ("x 0", "x 1", "y 0")
_PAGES = SmallLines(
    opening='lcm [["x",1],["y",2]] 3',
    lines=(
        *(f"alloc {request} {page_type}" for request in "pq" for page_type in "xy"),
        *(f"{call} {slot}" for slot in _SLOTS for call in ("free_page", "reuse")),
        *(f"release {slot} {key}" for slot in _SLOTS for key in ("1 1", "1 2", "2 1")),
        *("remove p", "remove q", "offset x 1", "offset x 2", "offset y 1", "alloc p w", "free_page w 0"),
    ),
    most=3000,
)
"""Two requests take and give back slots of two types."""

_SPECS = (("full", 2, 0, 3), ("sliding", 3, 4, 2), ("full", 1, 0, 3), ("mamba", 4, 0, 1))
_COUNTS = ((3,), (2, 1), (2, 2), (2, 3), (3, 4), (5, 3, 1), (1, 0, 2), (0, 2, 3), (3, 5, 0, 4), (0, 7, 0, 4), (1, 1, 1))


def _layers(counts: Sequence[int]) -> str:
    """Return layers with these counts of each spec, in turn."""
    specs = [spec for turn in range(max(counts)) for spec, count in zip(_SPECS, counts, strict=False) if turn < count]
    return written(tuple((f"l{number}", spec) for number, spec in enumerate(specs)))


_OLD_PAGES = SmallLines(
    opening='lcm [["x",1],["y",2]] 4',
    lines=(
        *("alloc p x", "alloc p y"),
        *("release x 0 1 1", "release x 0 3 2", "release x 1 2 1", "release x 1 2 2"),
        *("release x 2 2 1", "release x 2 1 2", "release x 3 2 2", "release x 3 3 1", "release y 1 2 3"),
    ),
    most=1400,
)
_FREED_PAGES = SmallLines(
    opening='lcm [["x",1],["y",2]] 6',
    lines=(
        *("alloc p x", "alloc q x", "alloc p y", "free_page x 0", "free_page x 1", "free_page x 2"),
        *("free_page y 0", "free_page y 1", "free_page y 2", "remove p"),
    ),
    most=700,
)
_WRONG_GROUPS = SmallLines(
    opening='manager 9 [["full",2,4]] true',
    lines=[
        f'manager 9 [["full",1,2],{group}] {caching}'
        for group, caching in (
            *(('["ring",2,4]', "true"), ('["full",0,4]', "true"), ('["sliding",2,1]', "false")),
            *(('["cross",2,4]', "true"), ('["cross",2,4]', "false"), ('["sliding",2,2]', "true")),
        )
    ],
    most=1,
)
_REQUESTS = (
    '[[["x",3],["y",2]],[["x",1]],[["y",4]]]',
    '[[["y",1]],[["y",1],["x",4]],[["x",2]]]',
    '[[["x",1]],[["x",1]],[["x",1]],[["y",1]]]',
)
_FUNCTIONS = SmallLines(
    opening=f"group {_layers((3,))}",
    lines=(
        *(f"{call} {_layers(counts)}" for counts in _COUNTS for call in ("group", "unify")),
        *(f"config {_layers(counts)} {rest}" for counts in _COUNTS for rest in ("-7 null", "95 null", "96 0", "9 7")),
        *(
            f"fit {policy} {budget} {sizes} {requests} {weights}"
            for policy, weights in (*_NO_WEIGHTS, *(("static", weights) for weights in _WEIGHTS))
            for budget in (6, 12, 18, 31)
            for sizes in ('[["x",2],["y",3]]', '[["x",4],["y",6]]')
            for requests in _REQUESTS
        ),
        *(
            f'waste [["{kind}",3,4],["full",2,9]] {tokens} {encoder}'
            for kind in ("full", "sliding", "cross", "mamba")
            for tokens in (9, 10, 30)
            for encoder in (0, 5)
        ),
    ),
    most=1,
)

SMALL = (
    _manager('7 [["full",2,0],["sliding",2,4]] true'),
    _manager('9 [["full",2,0],["mamba",3,0]] true', new=("a abbaabb 0", "b abbaaba 0")),
    _manager('12 [["sliding",2,3],["full",1,0],["sliding",2,3]] true', spoil=True),
    _manager('8 [["full",2,0],["cross",2,0],["sliding",1,3]] false', new=("a abba 1", "b abb 3")),
    _EVICTED,
    _COMING_BACK,
    _PAGES,
    _OLD_PAGES,
    _FREED_PAGES,
    _WRONG_GROUPS,
    _FUNCTIONS,
)
