"""Search random traces for one on which a submission goes wrong, and make it as short and simple as it can be.

A seed makes the same traces in the same order. A smaller trace goes wrong in the same way in the same call. Edits of
one kind are tried side by side in one run of the program. Those that work alone are then tried together, then half of
them, and so on, since most do not depend on each other. That is repeated until nothing changes any more: then no
operation can be left out, and no value alone be replaced by a simpler one. Hypothesis' shrinker was looked at: it asks
for the result of one candidate after the other, and each would start the sandbox again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count, islice

from grader.core.case import Case
from grader.search.player import FailingTrace, TracePlayer, explicit
from grader.system.budget import IMPATIENT
from reference.operation import Argument, Operation
from reference.oracle import Generator

_LENGTHS = (15, 30, 60, 120)
"""The numbers of operations of the traces, round by round: long ones reach states that short ones do not."""
_FIRST_TRACES, _MOST_TRACES = 15, 90
"""The number of traces of the first round, which doubles from round to round, and of the largest."""
_COMPARED = 6
"""The number of failing traces of a round of which the shortest is returned."""
_MORE_ROUNDS = 4
"""The number of rounds that are played for a failing trace without pokes, where one with pokes is known."""
_SEEDS = 1_000_000
"""The numbers of traces that are reserved for each seed; no search plays so many."""


def hunt(
    player: TracePlayer, generate: Generator, seed: int, *, late: Callable[[], bool], progress: Callable[[int], None]
) -> FailingTrace | None:
    """Return a failing trace: the shortest of a few of the first round that has some; None when time is over.

    While it has pokes, a few more rounds are played for one that makes calls only. `progress` is called with the number
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
    """Traces without pokes come first, then short ones."""
    return _pokes(player, failing), failing.operation


def _pokes(player: TracePlayer, failing: FailingTrace) -> int:
    operations = player.lab.grammar.operations
    return sum(operations[operation.name].is_poke for operation in failing.case.trace.operations)


def fails(player: TracePlayer, case: Case) -> FailingTrace | None:
    """Return a case of an assignment as a failing trace; of random traces the first that fails. None: none fails.

    The tool that looks for wrong uses of memory looks only where nothing else shows a fault, and goes on looking then.
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
"""What comes in the place of some operations; None: nothing."""

_MOST_TOGETHER = 96
"""The most candidates of one run."""
_MOST_HANGING = 12
"""The same where the trace hangs: each candidate that hangs too uses up its time."""
_MOST_PAIRS = 192
"""The most pairs of values that are made simpler together."""


def shrink(player: TracePlayer, failing: FailingTrace, late: Callable[[], bool] = lambda: False) -> FailingTrace:
    """Return the smallest trace that is reached from a failing one; itself where no smaller one fails in the same way.

    `late` returns whether no time is left; what was reached until then is returned, and is not called the smallest.
    Candidates have little time; where the trace hangs, what is reached is played once more with all of it.
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
        """Yield the edits after which the same goes wrong, in order."""
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
    """Return it as it fails when played again, without the settings that it does not need."""
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
    """Return what is left after as many of the edits as can be made together; None where none can be made.

    At `most` so many are tried side by side.
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
    """All edits in one, the first half of them in one, and so on; of edits of the same operation the first one."""
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
    """The order in which traces are simpler: fewer operations, then smaller values."""
    operations = explicit(case.trace.operations)
    weight = sum(_weight(value) for operation in operations for value in (operation.target, *operation.arguments))
    return len(operations), weight, " ".join(map(str, operations))


def _weight(value: Argument) -> int:
    """How far a value is from the simplest ones: 1, an empty list, null."""
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
    """Leave out runs of operations, long ones first, then each alone, then each pair of calls near each other."""
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
    """Replace a number by a smaller one wherever it stands, or swap two: ids belong together."""
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
    """Replace each argument by simpler ones."""
    for place, operation in enumerate(operations):
        for number, argument in enumerate(operation.arguments):
            for value in dict.fromkeys(_simpler_values(argument)):
                yield {place: _with_argument(operation, number, value)}


def _simpler_together(operations: Sequence[Operation]) -> Iterator[Edit]:
    """Replace two arguments at once: a pool and what fits in it, lists of which each item has one in the other."""
    places = [
        (place, number, [value for value, _ in zip(_halves(argument), range(2), strict=False)])
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
    """Yield smaller numbers that keep what a number is a multiple of, as far as they can."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 1:
        yield value & (value - 1) or value // 2  # without the lowest bit
        yield value // 2


def _simpler_values(value: Argument) -> Iterator[Argument]:
    """Yield simpler values of the same kind, the simplest first.

    A positive number stays positive: a handout often says nothing about blocks without tokens, windows of length 0.
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
