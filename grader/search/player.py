"""Play traces that are in no case file on a submission, and return what goes wrong first in each.

A search stays within what the handout defines. The handout may say nothing about blocks without tokens or about a
request without a manager, and then every program is right. The random traces of a lab stay within its handout. So in
other traces a call follows only calls that it follows in random traces, and has no smaller values than there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from grader.assignment.lab import Lab
from grader.core.case import Case, Expected, Generated, JsonValue, Number, Word
from grader.core.errors import OptionalStage, OptionalStages
from grader.core.judgement import Evidence, Symptom
from grader.core.model import Step, play
from grader.core.verdict import Verdict, Visibility
from grader.judge.compare import compare, evidence
from grader.runtime.protocol import NO_TIME, Comparison, GradingOptions, Observations, Played, Program
from grader.search.generated import together
from grader.system.budget import IMPATIENT, TIME_LIMITS, TimeLimits
from grader.system.sandbox import Workspace
from reference.operation import Argument, Operation, Trace
from reference.oracle import CannotGoOn, Generator

_TRACES, _LENGTH = 120, 40
"""The number and length of the traces from which a domain is learned."""
_BEGINNINGS = 600
"""The number of traces from which the domain only learns the first operation."""


@dataclass(slots=True)
class Domain:
    """The calls and values that occur in some traces: other traces may use them."""

    after: dict[str, set[str]] = field(default_factory=dict)
    """For each operation with which traces begin, by name: the names of the operations that come after it."""
    least: dict[tuple[str, int], int] = field(default_factory=dict)
    """The smallest number in an argument, by name of the operation and index of the argument."""
    shortest: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """The shortest list in an argument, by name, index, and the number of lists around this list."""

    alone: frozenset[str] = frozenset()
    """Operations that need nothing before them: cases begin with them, although no random trace does."""

    @classmethod
    def of(cls, generate: Generator, cases: Iterable[Case] = ()) -> Domain:
        """Return a domain with the calls and values of random traces, and the operations with which cases begin."""
        domain = cls(alone=frozenset(operation.name for case in cases for operation in case.trace.operations[:1]))
        for seed in range(_BEGINNINGS):
            domain.after.setdefault(generate(seed, 2)[0].name, set())
        domain.learn(generate(seed, _LENGTH) for seed in range(_TRACES))
        return domain

    def learn(self, traces: Iterable[Sequence[Operation]]) -> None:
        """Add the calls and values that occur in these traces."""
        traces = [trace for trace in traces if trace]
        for trace in traces:
            self.after.setdefault(trace[0].name, set())
        for trace in traces:
            for begun, operation in self._with_beginnings(trace):
                self.after[begun].add(operation.name)
                for place, argument in enumerate(operation.arguments):
                    key = operation.name, place
                    self.least[key] = min([self.least.get(key, 2**63), *_numbers(argument)])
                    for depth, length in _lengths(argument):
                        self.shortest[*key, depth] = min(self.shortest.get((*key, depth), 2**63), length)

    def has(self, trace: Sequence[Operation]) -> bool:
        """Return whether `alone` or `after` allows every operation, and `least` and `shortest` allow all arguments."""
        if all(operation.name in self.alone for operation in trace):
            return bool(trace) and all(map(self._allows, trace))
        if trace[0].name not in self.after:
            return False
        return all(
            operation.name in self.after[begun] and self._allows(operation)
            for begun, operation in self._with_beginnings(trace)
        )

    def _with_beginnings(self, trace: Sequence[Operation]) -> Iterator[tuple[str, Operation]]:
        """Yield each operation, with the name of the latest operation up to there that may begin a trace."""
        begun = trace[0].name
        for operation in trace:
            begun = operation.name if operation.name in self.after else begun
            yield begun, operation

    def _allows(self, operation: Operation) -> bool:
        return all(
            min(_numbers(argument), default=2**63) >= self.least.get((operation.name, place), 2**63)
            and all(
                length >= self.shortest.get((operation.name, place, depth), 2**63)
                for depth, length in _lengths(argument)
            )
            for place, argument in enumerate(operation.arguments)
        )


def _numbers(value: Argument) -> Iterator[int]:
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _lengths(value: Argument, depth: int = 0) -> Iterator[tuple[int, int]]:
    """Yield for each list in a value the number of lists around it, and its length."""
    if isinstance(value, tuple):
        yield depth, len(value)
        for item in value:
            yield from _lengths(item, depth + 1)


T = TypeVar("T")
U = TypeVar("U")

_AT_ONCE = 6
"""The number of traces that are played alone at a time, after they failed together with others."""


class NoOptionalStages(OptionalStages):
    """Runs no optional stage: a search needs no lines and explanations."""

    def run(self, stage: OptionalStage, work: Callable[[], T], *, otherwise: U) -> T | U:  # noqa: ARG002
        """Return `otherwise`, without running `work`."""
        return otherwise


@dataclass(frozen=True, slots=True)
class TraceFault:
    """What goes wrong first in a trace; equal faults probably have the same cause."""

    call: str
    kind: str
    """The facet of a difference, or the kind of a symptom."""
    refused: tuple[bool, bool] = (False, False)
    """For a difference: whether the call must be refused, and whether the program refused it."""


@dataclass(frozen=True, slots=True)
class FailingTrace:
    """A trace up to the operation that goes wrong, the operations that the grader adds to its end, and the faults."""

    case: Case
    faults: tuple[TraceFault, ...]
    """The faults of the operation that goes wrong, the most important first."""
    operation: int
    """The operation that goes wrong, counted from 0."""
    sentence: str = ""
    """A sentence that says what is wrong at this operation."""
    hangs: bool = False
    is_smallest: bool = False
    """Whether the trace is as small as it can be. False if the time was over before that was known."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations up to the wrong one, which may be one that the grader adds to the end."""
        return self.case.trace.operations[: self.operation + 1]


@dataclass(slots=True)
class TracePlayer:
    """Plays traces on one submission. Each run of the program gets the time of a whole grading."""

    lab: Lab
    work: Workspace
    program: Program
    seed: int
    domain: Domain
    """A trace outside of this domain is not played."""
    memory_checker: bool = False
    """Whether the memory checker (Valgrind) runs too."""
    limits: TimeLimits = TIME_LIMITS
    late: Callable[[], bool] = lambda: False
    """Returns whether no time is left; then nothing more is played."""
    shares: bool = True
    """Whether traces first share a process, and only those that fail there are played alone; no gain if many hang."""
    played: int = 0
    """The number of traces that were played."""
    optional: OptionalStages = field(default_factory=NoOptionalStages)

    def case(self, operations: Sequence[Operation], settings: dict[str, int] | None = None) -> Case | None:
        """Return a case of these operations; None if the handout leaves them open or a case file cannot have them."""
        settings = {"seed": self.seed, **(settings or {})}
        if not all(map(self._fits, operations)) or not self.domain.has(operations):
            return None
        try:
            steps = list(self._steps(operations, settings))
        except Exception:  # noqa: BLE001 - an engine may break in any way on calls for which it was not written
            return None
        trace = Trace(operations=tuple(step.operation for step in steps), settings=settings)
        return self._case(trace, Expected.of(steps))

    def _case(self, trace: Trace, expected: Expected, generated: Generated | None = None) -> Case:
        return Case(
            name="hunt/trace",
            path=Path("trace.toml"),
            title="the shortest failing trace",
            rule="",
            visibility=Visibility.PUBLIC,
            handout=(),
            trace=trace,
            expected=expected,
            weight=1,
            generated=generated,
        )

    def differing(self, generated: Generated) -> tuple[int, ...]:
        """Return the indices of the traces that differ from the reference.

        The traces share processes, so a trace that differs here may be right when it is played alone.
        """
        whole = self._case(Trace(operations=()), Expected.of(()), generated)
        return self._play([whole], self.limits)[0].failing

    def failing(self, cases: Sequence[Case]) -> Iterator[tuple[int, FailingTrace]]:
        """Yield the cases that go wrong when they are played alone, with their indices, in order.

        Cases are played only when the next result is asked for.
        """
        self.played += len(cases)
        if self.lab.runtime.plays_generated and self.shares and not self.memory_checker:
            suspects = iter(self._failing_together(cases))
        else:
            suspects = iter(range(len(cases)))
        at_once = _AT_ONCE if self.lab.runtime.plays_generated else len(cases)
        while not self.late() and (some := list(islice(suspects, at_once))):
            alone = self._observed([cases[place] for place in some])
            for number, place in enumerate(some):
                trace = self._cut(alone, number)
                if trace is not None:
                    yield place, trace

    def _failing_together(self, cases: Sequence[Case]) -> tuple[int, ...]:
        """Return the indices of the cases that went wrong when they shared a process."""
        if len(cases) < 2:
            return tuple(range(len(cases)))
        return self._play([together(cases, self.lab.grammar.every)], IMPATIENT)[0].failing

    def _play(self, cases: Sequence[Case], limits: TimeLimits) -> Sequence[Played]:
        work = replace(self.work, budget=self.work.budget.renewed(limits))
        played = self.lab.runtime.play(work, self.program, cases, optional=self.optional).played
        self.work.budget.pace = work.budget.pace  # it may have become slower
        return played

    def _observed(self, cases: Sequence[Case]) -> Observations:
        comparisons = [compare(each, self.lab.model) for each in self._play(cases, self.limits)]
        return self.lab.runtime.inspect(
            replace(self.work, budget=self.work.budget.renewed(self.limits)),
            self.program,
            comparisons=comparisons,
            options=GradingOptions(memory_checker=self.memory_checker),
            optional=self.optional,
        )

    def _cut(self, observed: Observations, number: int) -> FailingTrace | None:
        """Return the trace with this number up to where it goes wrong; None if it does not go wrong."""
        comparison = observed.comparisons[number]
        ending = comparison.played.ending
        if (ending is not None and ending.kind == NO_TIME) or comparison.unjudged:
            return None
        pieces = evidence(observed, number)
        if not pieces:
            return None
        first = min(piece.operation for piece in pieces)
        operations = comparison.case.trace.operations
        case = self.case(explicit(operations[: first + 1]), dict(comparison.case.trace.settings))
        at_first = [piece for piece in pieces if piece.operation == first]
        faults = tuple(dict.fromkeys(_fault(piece, comparison) for piece in at_first))
        hangs = any(piece.verdict is Verdict.TIME_LIMIT_EXCEEDED for piece in at_first)
        return FailingTrace(case or comparison.case, faults, first, at_first[0].seen, hangs)

    def _steps(self, operations: Sequence[Operation], settings: dict[str, int]) -> Iterator[Step]:
        """Yield what the reference does in these operations and in those that the grader adds to their end.

        A setting is removed if the operations say the same, such as a size.
        """
        model = self.lab.model(Trace(operations=tuple(operations), settings=settings))
        steps = list(play(model, Trace(operations=tuple(operations))))
        self._check_opened(steps)
        whole = [replace(step.operation, claim=step.reply.text) for step in steps]
        for key, message in list(self.lab.grammar.complete(dict(settings), list(whole))):
            if settings.pop(key, None) is None:
                raise CannotGoOn(message)
        for key, message in self.lab.grammar.complete(settings, whole):
            raise CannotGoOn(f"{key}: {message}")
        yield from steps
        yield from play(model, Trace(operations=tuple(whole[len(steps) :])))

    def _check_opened(self, steps: Sequence[Step]) -> None:
        """Raise `CannotGoOn` if a target is opened twice: no call could close the two."""
        opened: set[int | None] = set()
        for step in steps:
            signature, target = self.lab.grammar.operations[step.operation.name], step.operation.target
            if signature.opens and target in opened:
                raise CannotGoOn(f"@{target} is open already")
            if signature.opens and not step.reply.refused:
                opened.add(target)
            elif signature.closes:
                opened.discard(target)

    def _fits(self, operation: Operation) -> bool:
        """Return whether a case file may have this operation."""
        signature = self.lab.grammar.operations.get(operation.name)
        if signature is None:
            return False
        arguments = operation.arguments[1:] if operation.arguments[:1] == ("NULL",) else operation.arguments
        return len(arguments) == len(signature.arguments) and all(
            _allows(wanted, value) for wanted, value in zip(signature.arguments, arguments, strict=True)
        )


def explicit(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations as a case file can have them: without claims and without operations added by the grader."""
    last = max((place for place, operation in enumerate(operations) if not operation.implicit), default=-1)
    return [replace(operation, line=0, claim=None, implicit=False) for operation in operations[: last + 1]]


def _allows(wanted: Number | JsonValue | Word, value: Argument) -> bool:
    if isinstance(wanted, Number):
        return isinstance(value, int) and not isinstance(value, bool) and value in wanted
    if isinstance(wanted, Word):
        return isinstance(value, str) and re.fullmatch(wanted.pattern, value) is not None
    return wanted.fits(value)


def _fault(piece: Evidence, comparison: Comparison) -> TraceFault:
    operations = comparison.case.trace.operations
    call = operations[min(piece.operation, len(operations) - 1)].name
    if isinstance(piece, Symptom):
        return TraceFault(call, piece.matched_kind)
    judgement = comparison.wrong[piece.operation]
    return TraceFault(call, piece.facet, (judgement.expected.refused, judgement.actual.refused))
