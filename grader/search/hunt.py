"""Search beyond the cases: random traces on which a submission goes wrong, small traces, and small engines.

`hunt` looks for a failing random trace; equal seeds give equal traces in the same order. `shrink` makes a failing trace
as short and simple as it can be: the smaller trace must go wrong in the same way in the same call. Edits of one kind
are tried side by side in one run of the program. Those that work alone are then tried together, then half of them,
and so on, since most do not depend on each other. This is repeated until nothing changes any more: then no operation
can be left out, and no single value can be replaced by a simpler one. Hypothesis' shrinker is not used: it asks for
the result of one candidate after the other, and each would start the sandbox again.

The results of a search help the reader of a report and never cost a point. If every case passes, `checked`
tries the transitions of the lab's small engines: every call in every state that calls lead to, or in some hundreds
of these states. If a public case fails, `smallest` finds the smallest trace that fails in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count, islice

from grader.assignment.lab import Lab
from grader.assignment.stored import stored
from grader.core.case import Case
from grader.core.closure import Closure, Covering, closure_of, covering_of
from grader.core.record import SmallestTrace
from grader.core.verdict import Advice
from grader.search.player import FailingTrace, TracePlayer, explicit
from grader.system.budget import IMPATIENT
from reference.operation import Argument, Operation
from reference.oracle import Generator

_LENGTHS = (15, 30, 60, 120)
"""The numbers of operations of the traces, round by round: long ones reach states that short ones do not."""
_FIRST_TRACES, _MOST_TRACES = 15, 90
"""The number of traces of the first round, and its maximum; the number doubles from round to round."""
_COMPARED = 6
"""The number of failing traces of a round that are compared: `hunt` returns the shortest of them."""
_MORE_ROUNDS = 4
"""The number of rounds that search for a failing trace without pokes, if one with pokes is known."""
_SEEDS = 1_000_000
"""The number of traces that are reserved for each seed; no search plays as many."""


def hunt(
    player: TracePlayer, generate: Generator, seed: int, *, late: Callable[[], bool], progress: Callable[[int], None]
) -> FailingTrace | None:
    """Play rounds of random traces. Return the shortest of a few failing traces of a round; None if no time is left.

    While the best trace has pokes, a few more rounds search for one without pokes. `progress` is called with the number
    of traces that were played.
    """
    numbers = count(seed * _SEEDS)
    best: FailingTrace | None = None
    more = _MORE_ROUNDS
    for round_number in count():
        if late() or not more:
            break
        size = min(_FIRST_TRACES << min(round_number, 10), _MOST_TRACES)
        cases = list(_cases(player, generate, islice(numbers, size), _LENGTHS[round_number % len(_LENGTHS)]))
        failing = [trace for _, trace in islice(player.failing(cases), _COMPARED)]
        progress(player.played)
        best = min(filter(None, [best, *failing]), key=lambda trace: _order(player, trace), default=None)
        if best is not None:
            more = more - 1 if _pokes(player, best) else 0
    return best


def _order(player: TracePlayer, failing: FailingTrace) -> tuple[int, int]:
    """Return the sort key of failing traces: fewer pokes come first, then shorter traces."""
    return _pokes(player, failing), failing.operation


def _pokes(player: TracePlayer, failing: FailingTrace) -> int:
    operations = player.lab.grammar.operations
    return sum(operations[operation.name].is_poke for operation in failing.case.trace.operations)


def fails(player: TracePlayer, case: Case) -> FailingTrace | None:
    """Return a case as a failing trace, or the first of its random traces that fails; None if no trace fails.

    The memory checker runs only if nothing else shows a fault. `player` keeps it on afterwards.
    """
    traces = [case.trace.operations] if case.generated is None else case.generated.traces
    player.domain.learn(explicit(operations) for operations in traces)
    wholes = [player.case(explicit(operations), dict(case.trace.settings)) for operations in traces]
    instruments = (False, True) if "memory_checker" in player.lab.runtime.options else (False,)
    for player.memory_checker in instruments:
        failing = next((trace for _, trace in player.failing([whole for whole in wholes if whole is not None])), None)
        if failing is not None:
            return failing
    return None


def _cases(player: TracePlayer, generate: Generator, numbers: Iterable[int], length: int) -> Iterator[Case]:
    for number in numbers:
        case = player.case(generate(number, length), player.lab.random_settings(number))
        if case is not None:
            yield case


Edit = Mapping[int, Operation | None]
"""The replacements of some operations; None removes the operation."""

_MOST_TOGETHER = 96
"""The maximal number of candidates in one run of the program."""
_MOST_HANGING = 12
"""The same maximum if the trace hangs, because each candidate that hangs uses up its time."""
_MOST_PAIRS = 192
"""The maximal number of pairs of values that are simplified together."""


def shrink(player: TracePlayer, failing: FailingTrace, late: Callable[[], bool] = lambda: False) -> FailingTrace:
    """Return the smallest trace found that fails in the same way, or the failing trace itself.

    `late` returns whether no time is left. Then the result is not marked as the smallest. Candidates have little time,
    so if the trace hangs, the result is played again with the full time.
    """
    small = _shrunk(replace(player, limits=IMPATIENT, late=late, shares=not failing.hangs), failing)
    if not failing.hangs:
        return small
    confirmed = any(failing.faults[0] in trace.faults for _, trace in player.failing([small.case]))
    return small if confirmed else failing


def _shrunk(player: TracePlayer, failing: FailingTrace) -> FailingTrace:
    wanted = failing.faults[0]
    most = _MOST_TOGETHER if player.shares else _MOST_HANGING
    failing = _with_fewer_settings(player, failing)

    def failing_alike(edits: Sequence[Edit]) -> Iterator[tuple[int, FailingTrace]]:
        """Yield the index of each edit after which the trace fails in the same way, with the edited trace, in order."""
        operations = explicit(failing.case.trace.operations)
        settings = dict(failing.case.trace.settings)
        candidates = [(place, player.case(_edited(operations, edit), settings)) for place, edit in enumerate(edits)]
        cases = [(place, case) for place, case in candidates if case is not None]
        if cases:
            for number, trace in player.failing([case for _, case in cases]):
                if wanted in trace.faults and _size(trace.case) < _size(failing.case):
                    yield cases[number][0], trace

    before: FailingTrace | None = None
    while failing is not before and not player.late():
        before = failing
        for propose in (_without, _renamed, _simpler, _simpler_together):
            while not player.late():
                smaller = _best(failing_alike, list(propose(explicit(failing.case.trace.operations))), most)
                if smaller is None:
                    break
                failing = smaller
    return replace(failing, is_smallest=not player.late())


def _with_fewer_settings(player: TracePlayer, failing: FailingTrace) -> FailingTrace:
    """Play the trace again, and return the failing trace without the settings that it does not need."""
    failing = next((trace for _, trace in player.failing([failing.case])), failing)
    for name in failing.case.trace.settings:
        settings = {other: value for other, value in failing.case.trace.settings.items() if other != name}
        case = player.case(explicit(failing.case.trace.operations), settings)
        if case is not None and case.trace.settings != failing.case.trace.settings:
            alike = (trace for _, trace in player.failing([case]) if failing.faults[0] in trace.faults)
            failing = next(alike, failing)
    return failing


def _best(
    failing_alike: Callable[[Sequence[Edit]], Iterator[tuple[int, FailingTrace]]], edits: Sequence[Edit], most: int
) -> FailingTrace | None:
    """Return the trace after as many of the edits as possible; None if every edit makes the failure disappear.

    At most `most` edits are tried in one run.
    """
    for first in range(0, len(edits), most):
        some = edits[first : first + most]
        working = list(failing_alike(some))
        if not working:
            continue
        unions = _unions([some[place] for place, _ in working])
        together = min((trace for _, trace in failing_alike(unions)), key=lambda trace: _size(trace.case), default=None)
        alone = min((trace for _, trace in working), key=lambda trace: _size(trace.case))
        return alone if together is None or _size(alone.case) < _size(together.case) else together
    return None


def _unions(edits: Sequence[Edit]) -> list[Edit]:
    """Return the unions of all edits, of the first half, of the first quarter, and so on, without overlapping edits."""
    unions: list[Edit] = []
    count = len(edits)
    while count > 1:
        union: dict[int, Operation | None] = {}
        for edit in edits[:count]:
            if not union.keys() & edit.keys():
                union.update(edit)
        unions.append(union)
        count //= 2
    return unions


def _edited(operations: Sequence[Operation], edit: Edit) -> list[Operation]:
    changed = (edit.get(place, operation) for place, operation in enumerate(operations))
    return [operation for operation in changed if operation is not None]


def _size(case: Case) -> tuple[int, int, str]:
    """Return the sort key of traces by size: fewer operations first, then smaller values."""
    operations = explicit(case.trace.operations)
    weight = sum(_weight(value) for operation in operations for value in (operation.target, *operation.arguments))
    return len(operations), weight, " ".join(map(str, operations))


def _weight(value: Argument) -> int:
    """Return how far a value is from the simplest values: 1, an empty list, null."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value - 1 if value > 0 else 2 - 2 * value
    if isinstance(value, float):
        return 2 * abs(int(value)) + (value != int(value))
    return sum(_weight(item) + 1 for item in value)


def _without(operations: Sequence[Operation]) -> Iterator[Edit]:
    """Yield edits that remove runs of operations, long runs first, then pairs of operations near each other."""
    length = len(operations)
    size = length // 2
    while size:
        for first in range(0, length, size):
            yield dict.fromkeys(range(first, min(first + size, length)))
        size //= 2
    for first in range(length):
        for second in range(first + 1, min(first + 4, length)):
            yield {first: None, second: None}


def _renamed(operations: Sequence[Operation]) -> Iterator[Edit]:
    """Yield edits that replace a number, or swap two, wherever they occur, because equal ids belong together."""
    numbers = {number for operation in operations for number in operation.numbers}
    targets = {operation.target for operation in operations} - {None, 1}
    for old in sorted(numbers):
        for new in (1, 2, 3):
            if _weight(new) < _weight(old) and old > 0:
                yield {
                    place: _with_numbers(operation, {old: new})
                    for place, operation in enumerate(operations)
                    if old in operation.numbers
                }
    for low in range(1, 4):
        for high in range(low + 1, 5):
            yield {
                place: _with_numbers(operation, {low: high, high: low})
                for place, operation in enumerate(operations)
                if not {low, high}.isdisjoint(operation.numbers)
            }
    for target in targets:
        yield {
            place: replace(operation, target=1)
            for place, operation in enumerate(operations)
            if operation.target == target
        }


def _with_numbers(operation: Operation, new: Mapping[int, int]) -> Operation:
    def renamed(value: Argument) -> Argument:
        return new.get(value, value) if isinstance(value, int) and not isinstance(value, bool) else value

    return replace(operation, arguments=tuple(map(renamed, operation.arguments)))


def _simpler(operations: Sequence[Operation]) -> Iterator[Edit]:
    """Yield edits that replace an argument by a simpler one."""
    for place, operation in enumerate(operations):
        for number, argument in enumerate(operation.arguments):
            for value in dict.fromkeys(_simpler_values(argument)):
                yield {place: _with_argument(operation, number, value)}


def _simpler_together(operations: Sequence[Operation]) -> Iterator[Edit]:
    """Yield edits that simplify two arguments, such as a pool and its content, or remove an item of parallel lists."""
    places = [
        (place, number, list(_halves(argument)))
        for place, operation in enumerate(operations)
        for number, argument in enumerate(operation.arguments)
    ]
    pairs = combinations([(place, number, value) for place, number, values in places for value in values], 2)
    for (first, at, value), (second, there, other) in islice(pairs, _MOST_PAIRS):
        if (first, at) != (second, there):
            edit = {first: _with_argument(operations[first], at, value)}
            yield edit | {second: _with_argument(edit.get(second, operations[second]), there, other)}
    for place, operation in enumerate(operations):
        lists = {number: items for number, items in enumerate(operation.arguments) if isinstance(items, tuple)}
        for item in range(min(map(len, lists.values()), default=0) if len(lists) > 1 else 0):
            shorter = operation
            for number, items in lists.items():
                shorter = _with_argument(shorter, number, (*items[:item], *items[item + 1 :]))
            yield {place: shorter}


def _with_argument(operation: Operation, number: int, value: Argument) -> Operation:
    return replace(operation, arguments=(*operation.arguments[:number], value, *operation.arguments[number + 1 :]))


def _halves(value: Argument) -> Iterator[int]:
    """Yield smaller numbers, first one that is divisible by the same power of two, if there is one."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 1:
        yield value & (value - 1) or value // 2  # without the lowest bit
        yield value // 2


def _simpler_values(value: Argument) -> Iterator[Argument]:
    """Yield simpler values of the same kind, the simplest first.

    A positive number stays positive: a handout often does not define blocks without tokens or windows of length 0.
    """
    if isinstance(value, bool):
        yield from (False,) * value
    elif isinstance(value, int):
        cleared = (value & ~(1 << bit) for bit in reversed(range(value.bit_length()))) if value > 0 else ()
        for new in (1, value // 2, *cleared, value - 1 if value > 0 else value + 1):
            if _weight(new) < _weight(value) and (new > 0) >= (value > 0):
                yield new
    elif isinstance(value, str):
        yield None
        yield from (value[:size] for size in (1, len(value) // 2, len(value) - 1) if 0 < size < len(value))
    elif isinstance(value, tuple):
        yield ()
        yield value[: len(value) // 2]
        yield value[len(value) // 2 :]
        for place, item in enumerate(value):
            yield (*value[:place], *value[place + 1 :])
            for simpler in _simpler_values(item) if not isinstance(item, str) else ():  # names must stay different
                yield (*value[:place], simpler, *value[place + 1 :])


Explored = Closure | Covering
"""A closure to walk through, or traces that go through all transitions."""

_NO_CASE = "Every case passes, but your program goes wrong in these calls, which costs no point"
_SECONDS = 2.0
"""The seconds for finding a smaller trace. After that time the smallest trace so far is used."""
_MOST_STATES = 24
"""The maximal number of wrong states in which calls are tried: those that the fewest calls lead to."""
_MOST_SUSPECTS = 1500
"""The maximal number of transitions that are tried if failing traces are known instead of wrong states."""


def load_closure(lab: Lab) -> Explored | None:
    """Return the transitions of a lab's small engines, explored once per version of the code; None without engines.

    To explore a closure takes some ten seconds.
    """
    smalls = lab.smalls()
    if not smalls:
        return None

    def explored() -> Explored:
        return covering_of(smalls, lab.model) if lab.runtime.plays_generated else closure_of(smalls[0])

    return stored("closures", lab.name, list, explored)


def checked(player: TracePlayer, explored: Explored) -> tuple[str, tuple[Advice, ...]]:
    """Return a sentence if the program is right in all transitions, or advice on where it goes wrong.

    Both are empty if nothing is known: the program has more memory than can be kept for each state, or its states
    differ from the reference's in a way that breaks no rule.
    """
    if isinstance(explored, Closure):
        sentence, failing = _walked(player, explored)
    else:
        sentence, failing = _covered(player, explored)
    return sentence, (_advice(failing),) if failing is not None else ()


def _walked(player: TracePlayer, closure: Closure) -> tuple[str, FailingTrace | None]:
    walked = player.lab.runtime.walk(player.work, player.program, closure)
    if walked is None or not walked.fits:
        return "", None
    if walked.sums is None:
        return "", _first(player, [closure.trace(walked.state, walked.call)])
    if walked.sums == closure.sums:
        opening, *calls = closure.calls
        return (
            f"All {closure.transitions:,} transitions of a small engine agree: after {opening}, {len(calls)} calls in "
            f"each of the {len(closure):,} states that they lead to."
        ), None
    pairs = zip(walked.sums, closure.sums, strict=True)
    ways = [closure.trace(state) for state, (actual, right) in enumerate(pairs) if actual != right]
    ways = sorted(ways, key=len)[:_MOST_STATES]
    return "", _first(player, [[*way, call] for way in ways for call in closure.calls[1:]])


def _covered(player: TracePlayer, covering: Covering) -> tuple[str, FailingTrace | None]:
    differing = player.differing(covering.generated)
    if not differing:
        return (
            f"All {covering.transitions:,} transitions of {covering.engines} small engines agree: the calls that are "
            f"tried in each of {covering.states:,} states."
        ), None
    failing = _first(player, covering.suspects(differing)[:_MOST_SUSPECTS])
    if failing is None:  # the fault needs a longer way than the shortest one
        failing = _first(player, [covering.generated.traces[place] for place in differing[:_MOST_STATES]])
        failing = _shrunk_in_time(player, failing) if failing is not None else None
    return "", failing


def _first(player: TracePlayer, traces: Iterable[Sequence[Operation]]) -> FailingTrace | None:
    """Return the first trace that fails alone."""
    cases = [case for case in map(player.case, traces) if case is not None]
    return next((failing for _, failing in player.failing(cases)), None)


def _shrunk_in_time(player: TracePlayer, failing: FailingTrace) -> FailingTrace:
    """Return the smallest trace that fails in the same way and is found within `_SECONDS`."""
    started = time.monotonic()
    return shrink(player, failing, lambda: time.monotonic() - started > _SECONDS)


def _advice(failing: FailingTrace) -> Advice:
    calls = "; ".join(map(str, failing.operations))
    return Advice(kind="closure", message=f"{_NO_CASE}: {calls}: {failing.sentence}")


def smallest(player: TracePlayer, case: Case) -> SmallestTrace | None:
    """Return the smallest trace that fails as this case does; None if the case does not fail when played again."""
    failing = fails(player, case)
    if failing is None:
        return None
    failing = _shrunk_in_time(player, failing)
    return SmallestTrace(
        case=case.name,
        calls=tuple(map(str, failing.operations)),
        sentence=failing.sentence,
        is_smallest=failing.is_smallest,
    )
