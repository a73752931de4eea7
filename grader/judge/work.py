"""Decide what work the calls of a program did, and which work a case asks for. Points are earned only for work.

Every operation is judged from the state that the program itself is in, so a program that never admits a request
rightly schedules none. Such a program would pass many cases without doing anything. So a hand-written case passes for
its rule only if the program somewhere did what the case is about:

- A case asks for each pair of a call and a facet that the rule counts, if the reference's call does something in that
  facet in this case. The run must show the pair in some hand-written case: the call should have done something in that
  facet, judged from the program's own state, and did something. Whether that was right is judged by the facets.
- If there is no such pair, the case asks for each call at which the rule is judged and that does something in the
  reference's run. In this case itself, the call must have done something when there was something to do.

Random traces do not count, because points would then depend on the seed. A run whose records equal the reference's
shows everything that its case asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from grader.core.case import Case
from grader.core.model import ABSENT, at, entries, without
from grader.core.rubric import Facet, Rule
from grader.runtime.protocol import Comparison, Shown


def work(facets: Sequence[Facet], call: str, reply: object, states: tuple[object, object]) -> frozenset[str]:
    """Return the facets in which a call did something: its reply has content, or the state changed.

    `reply` is None for a call that was refused, `states` are those before and after the call.
    """
    return frozenset(chain(_in_state(facets, *states), _in_reply(facets, call, reply)))


def _in_state(facets: Sequence[Facet], before: object, after: object) -> Iterator[str]:
    for facet in facets:
        first, *path = facet.steps
        if first == "state" and not facet.sentences:
            old, new = at(before, path), at(after, path)
            changes = facet.of_call or old != new
            if changes and (is_something(new) or (is_something(old) and not facet.of_call)):
                yield facet.name


def _in_reply(facets: Sequence[Facet], call: str, reply: object) -> Iterator[str]:
    own = [facet for facet in facets if facet.steps[0] == "reply" and (not facet.calls or call in facet.calls)]
    parts = [facet for facet in own if len(facet.steps) > 1 and at(reply, facet.steps[1:]) is not ABSENT]
    yield from (facet.name for facet in parts if is_something(at(reply, facet.steps[1:])))
    wholes = [facet for facet in own if len(facet.steps) == 1]
    others = entries(without(reply, {facet.steps[1] for facet in parts})).values() if parts else (reply,)
    if wholes and any(map(is_something, others)):
        yield max(wholes, key=lambda facet: len(facet.calls) > 0).name


def is_something(value: object) -> bool:
    """Whether a value has content: it is not true, false, null, zero, an empty text or an empty structure.

    If a list contains lists, only these count: [[],[],0] has no content, [0] is a list with a block.
    """
    if isinstance(value, list):
        inner = [item for item in value if isinstance(item, list | dict)]
        return any(map(is_something, inner)) if inner else len(value) > 0
    if isinstance(value, dict):
        return any(map(is_something, value.values()))
    return value is not ABSENT and not isinstance(value, bool) and bool(value)


def shown_everywhere(comparisons: Iterable[Comparison]) -> frozenset[Shown]:
    """Return the pairs (call, facet) such that in a hand-written case the call did something in the facet."""
    return frozenset(chain.from_iterable(map(shown, filter(_is_written, comparisons))))


def asked_calls(case: Case, rule: Rule) -> frozenset[str]:
    """Return the calls that a case is about: those that do something in a facet that its rule counts.

    If there is no such call, return all calls that do something and at which the rule is judged.
    """
    pairs = set(_asked(case))
    counted = frozenset(call for call, facet in pairs if rule.counts(facet, call))
    return counted or frozenset(call for call, _ in pairs if rule.is_judged_at(call))


def never_shown(comparison: Comparison, rule: Rule, everywhere: frozenset[Shown]) -> tuple[Shown, ...]:
    """Return the pairs (call, facet) that the case asks for and that were not shown, as the module describes.

    `everywhere` has the pairs that hand-written cases of the run show. Facet "" in the result means any facet.
    """
    case = comparison.case
    if not _is_written(comparison) or comparison.follows == len(case.trace.operations):
        return ()
    pairs = sorted({(call, facet) for call, facet in _asked(case) if rule.counts(facet, call)})
    if pairs:
        return tuple(pair for pair in pairs if pair not in everywhere)
    here = {call for call, _ in shown(comparison)}
    return tuple((call, "") for call in sorted(asked_calls(case, rule) - here))


def sentence_of(pairs: Sequence[Shown]) -> str:
    """Return a sentence that names what a case asks for and the program never did."""
    places: dict[str, list[str]] = {}
    for call, facet in pairs:
        places.setdefault(call, []).extend([facet] if facet else [])
    parts = [f"{call} ({', '.join(names)})" if names else call for call, names in places.items()]
    return f"It is about what your program did in none of the cases that were run: {'; '.join(parts)}"


def _is_written(comparison: Comparison) -> bool:
    return comparison.case.seed is None and comparison.case.generated is None


def _asked(case: Case, first: int | None = None) -> Iterator[Shown]:
    """Yield the pairs (call, facet) in which the reference does something in the `first` operations (None: in all)."""
    for operation, facets in zip(case.trace.operations[:first], case.expected.worked, strict=False):
        yield from ((operation.name, facet) for facet in facets)


def shown(comparison: Comparison) -> Iterator[Shown]:
    """Yield the pairs (call, facet) such that in this case the call did something in the facet."""
    yield from _asked(comparison.case, comparison.follows)
    yield from comparison.shown
