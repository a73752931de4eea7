"""The grammar of a lab's case files, and a case after it was read.

A stored case has its records as deltas, because deltas load fast: each holds only what is new since the record before.
An operation changes a few bytes of a record at some places, and may shift the bytes after them.
"""

from __future__ import annotations

import copyreg
import hashlib
import json
import marshal
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from grader.core.model import MemorySpan, ModelFactory, Step
from grader.core.verdict import Visibility
from reference.operation import Argument, Operation, Reply, Trace, written
from reference.oracle import Generator

_LITERALS = ("null", "true", "false")
EVERY = 12
"""In random traces the state is read after every twelfth operation and after the last, because reading costs more than
calling. A lab may choose another number (`Grammar.every`)."""
NOT_WRITTEN = "NotImplementedError"
"""The error of a Python call that is not written yet. The case continues, as after a call that returns None."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Number:
    """An argument or a setting: its name in the handout and the values that a case may use."""

    name: str
    least: int = _INT_MIN
    most: int = _INT_MAX
    step: int = 1

    def __contains__(self, value: int) -> bool:
        return value in range(self.least, self.most + 1, self.step)

    @property
    def values(self) -> str:
        """The allowed values in words."""
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"from {self.least} to {self.most}{steps}"

    @property
    def wanted(self) -> str:
        """What must be written, in words."""
        return f"a number {self.values}"

    def read(self, word: str) -> int:
        """Return the value of a word of a case file. Raises `ValueError` if the word is no allowed number."""
        if not _NUMBER.fullmatch(word) or int(word) not in self:
            raise ValueError(word)
        return int(word)


@dataclass(frozen=True, slots=True)
class Word:
    """An argument that is a bare word, such as the id of a request."""

    name: str
    wanted: str = "a word of letters, digits, - and _"
    """What must be written, in words."""
    pattern: str = r"[A-Za-z_][A-Za-z0-9_-]*"

    def read(self, word: str) -> str:
        """Return the word. Raises `ValueError` if it does not match `pattern`, or is null, true or false."""
        if not re.fullmatch(self.pattern, word) or word in _LITERALS:
            raise ValueError(word)
        return word


@dataclass(frozen=True, slots=True)
class JsonValue:
    """An argument or a reply that is written as JSON without spaces: a list, a number, a text, null, true or false.

    A reply may be an object too.
    """

    name: str
    wanted: str
    """What must be written, in words, such as "a list of block ids"."""
    fits: Callable[[Argument], bool] = field(default=lambda _: True)

    def read(self, word: str) -> Argument:
        """Return the value; a list becomes a tuple. Raises `ValueError` if it is not JSON, or if `fits` rejects it."""
        value = frozen(_loaded(word))
        if not self.fits(value):
            raise ValueError(word)
        return value

    def read_reply(self, word: str) -> str:
        """Return a claimed reply in canonical form. Raises `ValueError` if it is not JSON, or if `fits` rejects it."""
        value = _loaded(word)
        if not isinstance(value, dict) and not self.fits(frozen(value)):
            raise ValueError(word)
        return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _loaded(word: str) -> object:
    """Return the parsed JSON. Raises `ValueError` for bad JSON, and for NaN and infinities."""

    def refuse(constant: str) -> object:
        raise ValueError(constant)

    try:
        return json.loads(word, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError(word) from error


def frozen(value: object) -> Argument:
    """Return a JSON value as an argument: lists become tuples. Raises `ValueError` for objects."""
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, bool | int | float | str | None):
        return value
    raise ValueError(str(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How an operation is written in a case file. A poke returns nothing, so a case claims no reply for it."""

    arguments: tuple[Number | JsonValue | Word, ...]
    replies: tuple[str, ...] = ()
    """The bare words that the operation may return when it does its work."""
    returns: Number | JsonValue | None = None
    """The other values that the operation may return."""
    refusals: tuple[str, ...] = ()
    """What the operation may return if it must not do its work, the usual reply first: a word, a value such as `null`,
    or the name of an error class. Empty if the operation always does its work."""
    null_first: bool = False
    """Whether NULL may be written before the arguments (`open NULL 64`)."""
    null_target: bool = True
    """Whether the target may be `@NULL`."""
    opens: bool = False
    closes: bool = False
    task: str = ""
    """The handout's name for the task in which students write the operation."""

    @property
    def is_poke(self) -> bool:
        """Whether the operation is a poke, which is not one of the handout's calls."""
        return not self.replies and self.returns is None

    def read_reply(self, word: str) -> str:
        """Return a claimed reply in the form in which models return it. Raises `ValueError` for an impossible reply."""
        if word in (*self.replies, *self.refusals):
            return word
        if self.returns is None:
            raise ValueError(word)
        if isinstance(self.returns, JsonValue):
            return self.returns.read_reply(word)
        return written(self.returns.read(word))

    @property
    def wanted_replies(self) -> str:
        """The replies that a case may claim, in words."""
        words = [f"-> {word}" for word in (*self.replies, *self.refusals)]
        return " or ".join([*words, *([f"{self.returns.wanted} behind ->"] if self.returns is not None else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The grammar of a lab's case files."""

    operations: Mapping[str, Signature]
    settings: Mapping[str, Number]
    """Numeric keys of the header that are specific to the lab, such as `capacity`."""
    example: str
    """An operation line with a reply, for messages that say what to write."""
    most_targets: int
    clauses: Mapping[str, str]
    """The sentences of the handout that a case may name, with their text."""
    rules: tuple[str, ...]
    complete: Callable[[dict[str, int], list[Operation]], Iterator[tuple[str, str]]]
    """Adds the operations that a case omits; yields (key, message) for settings that do not fit."""
    model: ModelFactory
    code: tuple[Path, ...] = ()
    """The lab's own files of code, because loaded cases depend on them (grader.assignment.stored)."""
    generate: Callable[[], Generator | None] | None = None
    """Returns the generator of random traces; None if the lab has none."""
    every: int = EVERY
    """In random traces the state is read after every `every`th operation."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """The numbers of the assignment that a case may name in braces."""
    check: Callable[[Sequence[Case]], Iterable[str]] = lambda _: ()
    """Takes all cases of the lab, and yields the problems of the lab itself that they show together."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference does in a case.

    For each operation: its reply, the record after it, the memory that it may touch, and the facets in which it does
    something.
    """

    replies: tuple[Reply, ...]
    records: tuple[bytes, ...]
    allowed: tuple[tuple[MemorySpan, ...], ...]
    worked: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Expected:
        """Collect the steps of a played trace (`grader.core.model.play`)."""
        played = tuple(steps)
        return cls(
            replies=tuple(step.reply for step in played),
            records=tuple(step.record for step in played),
            allowed=tuple(step.allowed for step in played),
            worked=tuple(step.worked for step in played),
        )

    def first(self, count: int) -> Expected:
        """Return an `Expected` of only the first `count` operations."""
        few = slice(count)
        return Expected(self.replies[few], self.records[few], self.allowed[few], self.worked[few])

    def __reduce__(self) -> tuple[Callable[..., Expected], tuple[object, ...]]:
        return _unpacked, (self.replies, deltas(self.records), self.allowed, self.worked)


def _unpacked(
    replies: tuple[Reply, ...],
    stored: tuple[Delta, ...],
    allowed: tuple[tuple[MemorySpan, ...], ...],
    worked: tuple[frozenset[str], ...],
) -> Expected:
    return Expected(replies, restored(stored), allowed, worked)


def _reduced(operation: Operation) -> tuple[Callable[..., Operation], tuple[object, ...]]:
    """Tell pickle how to store an operation, in half the default time: cases have thousands of operations."""
    place = operation.target, operation.line, operation.implicit
    return _operation, (operation.name, operation.arguments, *place, operation.claim, operation.comment)


def _operation(  # noqa: PLR0917 - what is pickled has no names
    name: str,
    arguments: tuple[Argument, ...],
    target: int | None,
    line: int,
    implicit: bool,  # noqa: FBT001
    claim: str | None,
    comment: str,
) -> Operation:
    return Operation(
        name=name,
        arguments=arguments,
        target=target,
        line=line,
        implicit=implicit,
        claim=claim,
        comment=comment,
    )


copyreg.pickle(Operation, _reduced)


def listed(operations: Iterable[Operation]) -> list[list[object]]:
    """Return calls as [name, [argument, ...]], with lists instead of tuples, as in JSON."""
    return [[operation.name, [*map(_listed, operation.arguments)]] for operation in operations]


def _listed(argument: Argument) -> object:
    return [*map(_listed, argument)] if isinstance(argument, tuple) else argument


def pack(operations: Iterable[Operation]) -> bytes:
    """Return calls as the harness of Python submissions reads them: `listed`, in marshal's format."""
    return marshal.dumps(listed(operations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """The random traces of a generated case, and what the reference does in them."""

    seeds: range
    length: int
    """The number of operations of each trace."""
    traces: tuple[tuple[Operation, ...], ...] = field(repr=False, default=())
    digests: tuple[bytes, ...] = field(repr=False, default=())
    """For each trace the SHA-256 of its records (see `digest`)."""
    packed: tuple[bytes, ...] = field(repr=False, compare=False, default=())
    """Each trace as `pack` makes it; empty if the traces were not packed in advance."""
    every: int | None = None
    """The state is read after every `every`th operation; None for the lab's number (`Grammar.every`)."""

    def __post_init__(self) -> None:
        assert len(self.packed) in {0, len(self.traces)}, "a trace would be played as another"

    def first(self, count: int) -> Generated:
        """Return a `Generated` with only the first `count` traces."""
        few = slice(count)
        return replace(
            self, seeds=self.seeds[few], traces=self.traces[few], digests=self.digests[few], packed=self.packed[few]
        )

    @staticmethod
    def digest(records: Iterable[bytes], every: int = EVERY) -> bytes:
        """Return the digest of the records of a trace. Only every `every`th record and the last one have a state.

        A wrong state usually stays wrong, so it is noticed later. A trace that fails is played again, alone and with
        all states.
        """
        if every == 1:  # records are canonical
            return hashlib.sha256(b"[%b]" % b",".join(records)).digest()
        decoded = list(map(json.loads, records))
        for number in range(len(decoded) - 1):
            if (number + 1) % every:
                decoded[number]["state"] = {}
        return hashlib.sha256(json.dumps(decoded, separators=(",", ":"), sort_keys=True).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A complete case that was checked against the reference."""

    name: str
    """Folder and file name without extension, such as `append/first_append_after_fork`."""
    path: Path
    title: str
    handout: tuple[str, ...]
    rule: str
    """The rule that loses points if the case fails. "" for random traces: a failing trace gets the rule it breaks."""
    visibility: Visibility
    weight: int
    trace: Trace
    expected: Expected = field(repr=False)
    """What the reference does in `trace`."""
    generated: Generated | None = None
    """The random traces of a generated case, whose own `trace` is empty. The case passes if the program agrees with the
    reference in all of them. Otherwise the shortest failing trace replaces it."""
    seed: int | None = None
    """The seed of the random trace that replaced a generated case; None for other cases."""


Delta = tuple[tuple[int, int, bytes], ...]
"""Parts of a record, each (start, stop, more): copy `before[start:stop]` of the record before, then append `more`."""

_CHUNK = 64
"""The number of bytes that are compared at once. A smaller chunk saves nothing: each copied part costs space too."""


def deltas(records: Iterable[bytes]) -> tuple[Delta, ...]:
    """Return the records as deltas (see `restored`)."""
    before = b""
    packed = []
    for record in records:
        packed.append(tuple(_delta(before, record)))
        before = record
    return tuple(packed)


def restored(stored: Iterable[Delta]) -> tuple[bytes, ...]:
    """Return the records that were stored as `deltas`."""
    before = b""
    records = []
    for delta in stored:
        view = memoryview(before)
        parts: list[bytes | memoryview] = []
        for start, stop, more in delta:
            parts += (view[start:stop], more)
        before = b"".join(parts)
        records.append(before)
    return tuple(records)


def _delta(before: bytes, record: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield a record as a delta.

    Between the common start and the common end, each chunk is looked for in the record before: right after the part
    that was copied last, at the same distance from the start, at the same distance from the end, then anywhere.
    """
    same = _same(before, record)
    tail = _same(before[same:][::-1], record[same:][::-1])
    end, shift = len(record) - tail, len(before) - len(record)
    start, stop, more = 0, same, b""
    for place in range(same, end, _CHUNK):
        chunk = record[place : min(place + _CHUNK, end)]
        known = next((at for at in (stop, place, place + shift) if at >= 0 and before.startswith(chunk, at)), -1)
        source = known if known >= 0 else before.find(chunk)
        if source < 0:
            more += chunk
        elif source == stop and not more:
            stop += len(chunk)
        else:
            yield start, stop, more
            start, stop, more = source, source + len(chunk), b""
    if end + shift == stop and not more:
        stop += tail
    elif tail:
        yield start, stop, more
        start, stop, more = end + shift, end + shift + tail, b""
    yield start, stop, more


def _same(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of bytes at the start that are equal in both."""
    least, most = 0, min(len(first), len(second))
    while least < most:
        middle = (least + most + 1) // 2
        if first[least:middle] == second[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
