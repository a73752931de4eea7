"""What Valgrind observed of a program's use of memory, case by case: memory errors, and breaches of a contract.

A breach is an access to shared memory that an operation may not touch. It is no memory error and costs nothing by
itself, because only the state after a call is judged (a block may be stored again as a whole, or changed and changed
back), and because Valgrind does not print the address of a repeated error. If the native run shows a difference in that
memory, the breach gives its line. A breach without such an effect (a read, the same value stored again) gives no line.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from grader.core.judgement import SHARED_MEMORY
from grader.core.model import Access, MemorySpan, ModelFactory
from grader.core.verdict import Advice, SourceLine, Visibility
from grader.runtime.protocol import Comparison, Place

TOOL = "Valgrind"
"""The checker's name, as reports write it."""


Allowed = Mapping[int, Sequence[tuple[MemorySpan, ...]]]
"""For each case, what its operations may touch, up to and including the first operation with a wrong record."""

_MOST_CASES = 3
_MOST_SPANS = 2
_CONTRACT = struct.Struct(f"<{1 + 3 * _MOST_SPANS}i")
_NOTHING_ALLOWED = _CONTRACT.pack(1, *[0] * 3 * _MOST_SPANS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFault:
    """One error that the checker reported. `operation` counts from 0; for a leak it is the number of operations."""

    case: int
    operation: int
    kind: str
    """The word for the error in findings."""
    symptom: str
    """The word for the error in mistakes."""
    message: str
    lines: tuple[SourceLine, ...]
    auxiliary: tuple[SourceLine, ...]
    """Where the memory was allocated or freed."""
    origin: str = ""
    """What happened at `auxiliary`, in words to which "at" and the line are added."""
    leak: bool = False
    unset: bool = False
    """Whether a value was used that was never set."""
    stores: bool = False
    """Whether the error was a store to memory that must not be written."""
    breach: bool = False
    """Whether the error was an access to shared memory that its operation may not touch."""
    explains_state: bool = False
    """Whether the error probably caused a wrong state of the same call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfreed:
    """The memory that some consecutive cases of one process never freed, according to the checker's own record."""

    cases: tuple[int, ...]
    unreported: int
    """The number of these allocations that the harness did not report as left."""
    by_function: Mapping[str, int]
    """The number of these allocations by the outermost function of the submission on the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the checker reported on all cases that it ran."""

    asked: int
    """The number of cases that the checker was to run."""
    errors: tuple[MemoryFault, ...]
    counted: dict[Place, int]
    """The number of errors except breaches that the checker counted in each operation. It prints repeated ones once."""
    stopped: dict[int, int]
    """Cases that ran to their end without the checker but not with it; the operation (from 0) where they stopped."""
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]]
    """Cases that end without the checker but hang twice with it, or need far more time with it than the work needs,
    with the operation and the lines where they were."""
    diverged: dict[int, int]
    """Cases that allocate and free differently than without the checker, without an error; the first such operation."""
    unchecked: tuple[int, ...]
    """Cases that were not observed to their end."""
    processes: int = 0
    cpu_seconds: float = 0.0
    breaches: tuple[MemoryFault, ...] = ()
    evasion: str = ""
    """How the program kept the unchecked cases from the checker, in words that fit after "the program"; "" if only no
    time was left for them."""
    left: Mapping[int, int] = field(default_factory=dict)
    """For each case in which all operations returned, the number of allocations that the harness reported as left."""
    unfreed: tuple[Unfreed, ...] = ()
    stores: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that stored into shared memory which the operation may not touch, including repeated stores."""
    copies: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that read memory which the operation may only read; for a few cases with a difference."""
    unknown_instruction: bool = False
    """Whether the checker does not know an instruction of the program: then the unchecked cases prove nothing."""
    cut: bool = False
    """Whether the checker's report stops in the middle although the program came to its end."""
    unexplained: bool = False
    """Whether the checker stopped in the middle of a case, and neither the grader nor the harness ended it."""
    unread: tuple[tuple[Place, str, tuple[int, ...]], ...] = ()
    """For each process whose report could not be read in full: where it was at its end, the reason, and all its cases.
    The program caused the loss, because the checker's own report is short and complete."""
    refused: str = ""
    """What the checker printed, if it did not begin any case."""

    @property
    def unexplained_end(self) -> str:
        """How the checker ended, if something outside the program could have caused that, too; "" otherwise."""
        middle = "of its report" if self.cut else "of a case" if self.unexplained else ""
        ended = f"{TOOL} ended in the middle {middle}, and nobody says why" if middle else ""
        return f"{TOOL} did not start the program: {self.refused}" if self.refused else ended

    @property
    def late(self) -> bool:
        """Whether a limit of time was reached, or no time was left for some cases."""
        return bool(self.hung or (self.unchecked and not self.stopped and not self.unknown_instruction))

    @property
    def unseen(self) -> frozenset[int]:
        """Cases that were not observed in full because of the program itself.

        These are the cases of each process whose report is incomplete, and the cases that were kept from the checker.
        """
        unseen = frozenset(number for _, _, cases in self.unread for number in cases)
        return unseen.union(self.unchecked if self.evasion else ())

    @property
    def coverage(self) -> str:
        """In a sentence, how many cases the checker saw, and why not all; "" if it saw all."""
        if not self.unchecked:
            return ""
        seen = f"{TOOL} saw {self.asked - len(self.unchecked)} of {self.asked} cases only: "
        if self.unknown_instruction:
            why = "it does not know an instruction that the program runs, such as one of AVX-512"
            return f"{seen}{why}. That is no mistake, and the cases that it did not see cost no point."
        if not self.evasion:
            return f"{seen}no time was left for the others. They cost no point."
        return f"{seen}the program {self.evasion}. The others earn no points for the use of memory."


def allowed_spans(comparison: Comparison, model: ModelFactory) -> tuple[tuple[MemorySpan, ...], ...]:
    """Return what each operation may touch (see `Model.allowed`), up to and including the first with a wrong record.

    What that last one may touch depends on the program's own choice of blocks.
    """
    case, steps, follows = comparison.case, comparison.played.steps, comparison.follows
    allowed = case.expected.allowed[:follows]
    if comparison.ended_at <= follows:
        return allowed
    judging = model(case.trace)
    before = steps[follows - 1].record if follows else None
    judging.judge(before, case.trace.operations[follows], steps[follows].record)
    return (*allowed, judging.allowed())


@dataclass(frozen=True, slots=True)
class Contract:
    """What each operation of a case may touch. Operations after those of `allowed` may touch everything."""

    calls: Sequence[str]
    allowed: Sequence[tuple[MemorySpan, ...]]
    strict: bool
    """Whether the memory that an operation may only read may not be touched at all."""

    def guards(self, operation: int) -> bool:
        """Whether any part of the lent memory may not be accessed in this operation."""
        return operation < len(self.allowed)

    def encoded(self) -> bytes:
        """Return the bytes that the driver reads: one struct contract for each operation."""
        free = bytes(_CONTRACT.size * (len(self.calls) - len(self.allowed)))
        return b"".join([*map(self._encode, self.allowed), free])

    def _encode(self, spans: tuple[MemorySpan, ...]) -> bytes:
        if not spans:
            return _NOTHING_ALLOWED
        places = [span[:3] for span in spans if not (self.strict and span.access is Access.READ)]
        numbers = [number for place in places for number in place]
        return _CONTRACT.pack(1, *numbers, *[0] * (3 * _MOST_SPANS - len(numbers)))


class Classified:
    """Separates breaches from memory errors that Valgrind only counted: it prints errors with the same stack once."""

    def __init__(
        self, contracts: Mapping[int, Contract], errors: Sequence[MemoryFault], counted: Mapping[Place, int]
    ) -> None:
        self.contracts = contracts
        self.guarded = {place: count for place, count in counted.items() if contracts[place[0]].guards(place[1])}
        self.breaches = [error for error in errors if error.breach]
        others = [error for error in errors if not error.breach and not error.leak]
        self.printed = Counter((breach.case, breach.operation) for breach in self.breaches)
        self.faulty = {(error.case, error.operation) for error in others}
        self.faulty_calls = {self._call(error.case, error.operation) for error in others}
        self.breaching_calls = {self._call(breach.case, breach.operation) for breach in self.breaches}

    def is_breach(self, place: Place) -> bool:
        """Whether all errors counted there are breaches; False for repeats in a call that has other errors too."""
        if place not in self.guarded or place in self.faulty:
            return False
        call = self._call(*place)
        repeats = self.guarded[place] > self.printed[place]
        return call in self.breaching_calls and not (repeats and call in self.faulty_calls)

    def lines(self, *, stores: bool) -> dict[Place, tuple[SourceLine, ...]]:
        """Return the lines of each operation's breaches; for a repeated breach, those of the call's first breach."""
        here: dict[Place, MemoryFault] = {}
        same: dict[str, MemoryFault] = {}
        for breach in self.breaches:
            if breach.stores is stores:
                here.setdefault((breach.case, breach.operation), breach)
                same.setdefault(self._call(breach.case, breach.operation), breach)
        first = {place: here.get(place) or same.get(self._call(*place)) for place in self.guarded}
        return {place: breach.lines for place, breach in first.items() if breach is not None}

    def _call(self, case: int, operation: int) -> str:
        calls = self.contracts[case].calls
        return calls[min(operation, len(calls) - 1)]


def cases_without_line(
    comparisons: Sequence[Comparison], checked: Checked, allowed: Allowed, order: Sequence[int]
) -> list[int]:
    """Return a few cases whose first wrong operation must read shared memory and left it wrong, at an unknown line.

    `order` has the numbers of the failing cases, the most important first.
    """
    lacking = (number for number in order if _lacks_line(number, comparisons[number], checked, allowed))
    return list(islice(lacking, _MOST_CASES))


def cases_with_unset(checked: Checked) -> list[int]:
    """Return a few cases in which a value was used that was never set."""
    return list(dict.fromkeys(error.case for error in checked.errors if error.unset))[:_MOST_CASES]


def _lacks_line(number: int, comparison: Comparison, checked: Checked, allowed: Allowed) -> bool:
    """Return whether the last operation with a contract went wrong, had to read shared memory, and has no line yet."""
    spans = allowed.get(number, ())
    last = len(spans) - 1
    return (
        last >= 0
        and any(span.access is Access.READ for span in spans[last])
        and _touched(comparison, last)
        and (number, last) not in checked.stores
        and number not in {*checked.stopped, *checked.hung, *checked.unchecked}
        and comparison.played.complete
    )


def advice(comparisons: Sequence[Comparison], checked: Checked, allowed: Allowed) -> Iterator[Advice]:
    """Yield advice on stores by calls that may touch nothing, if no effect is left afterwards: each line once.

    Only public cases are used: by its choice of lines a program could otherwise reveal a hidden case.
    """
    seen = set()
    for breach in checked.breaches:
        comparison = comparisons[breach.case]
        touches_nothing = tuple(allowed[breach.case][breach.operation : breach.operation + 1]) == ((),)
        visible = _touched(comparison, breach.operation)
        hidden = comparison.case.visibility is Visibility.HIDDEN
        if hidden or not breach.stores or visible or not touches_nothing or breach.lines[:1] in seen:
            continue
        seen.add(breach.lines[:1])
        call = comparison.case.trace.operations[breach.operation].name
        yield Advice(
            kind="breach",
            message=f"{call} writes here to memory that it should leave alone, though nothing of it is left afterwards",
            case=comparison.case.name,
            operation=breach.operation + 1,
            source=breach.lines,
        )


def _touched(comparison: Comparison, operation: int) -> bool:
    """Return whether the native run shows a difference in shared memory."""
    judgement = comparison.wrong.get(operation)
    return judgement is not None and any(SHARED_MEMORY in difference.tags for difference in judgement.differences)
