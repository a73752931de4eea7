"""The judge of every lab whose states are plain values: it plays the oracle from the state the program itself was in.

A record is {"state": STATE, "reply": REPLY}, encoded as canonical JSON or by the lab's `Codec`. REPLY is {"returned":
VALUE}, or {"raised": CLASS} for one of the lab's error classes. A part of the program's state that could not be read is
{"!": REASON}: the class of the error that reading it raised, or a description of what is wrong with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from grader.core.case import NOT_WRITTEN, Case, Signature
from grader.core.judgement import SENTENCE, UNREAD, Difference, Judgement
from grader.core.model import (
    ABSENT,
    EACH,
    UNREADABLE,
    Codec,
    MemorySpan,
    Model,
    ModelFactory,
    at,
    child,
    entries,
    is_unreadable,
    play,
    without,
)
from grader.core.rubric import Facet
from grader.judge.work import work
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn, Oracle, OracleFactory, Plain, text_of

REPLY, ACCEPTED, REFUSED = "reply", "accepted", "refused"
"""Path prefixes (see `Facet.path`). `REPLY` is also the name of the default facet of replies."""

Invariants = Callable[[dict[str, Any]], Iterable[str]]
"""Yields a sentence for each invariant that a state breaks."""

Circumstances = Callable[[dict[str, Any], Operation, Reply, dict[str, Any]], Iterable[str]]
"""Yields words by which known mistakes recognise a call, from the state before it, the reply and the state after it."""

_MOST_DIFFERENCES = 100
_MOST_SHOWN = 300
_MOST_OF_A_SENTENCE = 600


def _as_json(record: dict[str, Plain]) -> bytes:
    return text_of(record).encode()


def _from_json(record: bytes) -> object:
    try:
        return json.loads(record)
    except (ValueError, RecursionError) as error:
        raise CannotGoOn("its state could not be read") from error


JSON = Codec(encode=_as_json, decode=_from_json)
"""Canonical JSON."""


def record_of(reply: Reply, state: dict[str, Plain], codec: Codec = JSON) -> bytes:
    """Return the record of a reply and a state."""
    raised: dict[str, Plain] = {"raised": reply.text} if _is_class(reply.text) else {"returned": json.loads(reply.text)}
    return codec.encode({"state": state, "reply": raised})


def reply_of(record: dict[str, Any], refusals: Iterable[str]) -> Reply:
    """Return the reply in a decoded record; `refusals` are the replies with which this call may refuse.

    A call that is not written yet did not refuse: it did nothing.
    """
    reply = record["reply"]
    if "raised" in reply:
        raised = str(reply["raised"])
        return Reply(text=raised, refused=raised != NOT_WRITTEN or raised in refusals)
    text = text_of(reply.get("returned"))
    return Reply(text=text, refused=text in refusals)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One operation: the expected record, the actual one, and the replies in them."""

    call: str
    wanted: dict[str, Any]
    actual: dict[str, Any]
    expected: Reply
    came: Reply


@dataclass(slots=True)
class PlainModel:
    """A `grader.core.model.Model` that plays an oracle with plain states."""

    trace: Trace
    oracle: OracleFactory = field(kw_only=True)
    calls: Mapping[str, Signature] = field(kw_only=True)
    facets: tuple[Facet, ...] = field(kw_only=True)
    invariants: Invariants | None = field(kw_only=True, default=None)
    circumstances: Circumstances | None = field(kw_only=True, default=None)
    codec: Codec = field(kw_only=True, default=JSON)
    _engine: Oracle = field(init=False)
    _reply: Reply = field(init=False, default=Reply(text="null"))
    _call: str = field(init=False, default="")
    _records: tuple[bytes, bytes] = field(init=False)
    """The last two records that `record` returned, the newest last."""
    _judged: tuple[bytes, dict[str, Plain]] | None = field(init=False, default=None)
    """The record that was judged last, and the state that was expected in this record."""

    def __post_init__(self) -> None:
        """Begin with a new engine."""
        self._engine = self.oracle(self.trace)
        self._records = b"", self._record({})

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. Raises `CannotGoOn` if the operation names an object that does not exist."""
        before = self._engine.state() if self.circumstances is not None else {}
        try:
            reply = self._engine.apply(operation)
        except CannotGoOn:
            raise
        except Exception as error:  # an engine need not check whether the objects that a case names exist
            raise CannotGoOn(f"it names something that is not there ({_in_engine(error)})") from error
        self._reply, self._call = self._situated(before, operation, reply), operation.name
        return self._reply

    def record(self) -> bytes:
        """Return the record of the last operation: its reply and the state after it."""
        self._records = self._records[1], self._record(self._engine.state())
        return self._records[1]

    def allowed(self) -> tuple[MemorySpan, ...]:
        """Return no spans, because a plain state has no memory that the driver lends to the program."""
        return ()

    def worked(self) -> frozenset[str]:
        """Return the facets in which the last operation did something. Call `record` first."""
        before, after = map(self._decoded, self._records)
        return work(self.facets, self._call, _returned(after), (before["state"], after["state"]))

    def restore(self, record: bytes) -> None:
        """Set the engine's state to that of a record."""
        self._restore(self._decoded(record)["state"])

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare `actual` with the record that the operation should lead to from `before`.

        If `before` was the record judged last, the reference's values replace parts of `before` that could not be read.
        """
        state = self._before(before)
        after = self._decoded(actual)
        try:
            begun = self._engine.state() if state is not None or self.circumstances is not None else {}
            start = {} if state is None else self._decoded(self._record(begun))["state"]
            expected = self._engine.apply(operation)
            right = self._engine.state()
        except CannotGoOn:
            raise
        except Exception as error:  # an engine need not survive every state that a program can leave
            raise CannotGoOn(f"{operation} has no meaning in the state that the calls before it left") from error
        with suppress(Exception):  # the program's state may be too odd to compute circumstances
            expected = self._situated(begun, operation, expected)
        self._reply = expected
        self._judged = actual, right
        wanted = self._decoded(self._record(right))
        came = reply_of(after, self.calls[operation.name].refusals)
        differences = list(self._differences(_Seen(operation.name, wanted, after, expected, came)))[:_MOST_DIFFERENCES]
        return Judgement(
            expected=expected,
            actual=came,
            differences=tuple(differences),
            unchanged=state is not None and state == after["state"],
            broken=tuple(self._broken(state or {}, after["state"])) if differences else (),
            due=work(self.facets, operation.name, _returned(wanted), (start, wanted["state"])),
            worked=bool(work(self.facets, operation.name, _returned(after), (state or start, after["state"]))),
        )

    def compared(self) -> bytes:
        """Return the oracle's reply and state after the operation that was judged last."""
        return self.record()

    def describe(self, record: bytes) -> dict[str, object]:
        """Return the decoded record."""
        return self._decoded(record)

    def _record(self, state: dict[str, Plain]) -> bytes:
        return record_of(self._reply, state, self.codec)

    def _situated(self, before: dict[str, Plain], operation: Operation, reply: Reply) -> Reply:
        """Return the reply with the circumstances of the call that was just made."""
        if self.circumstances is None:
            return reply
        words = self.circumstances(before, operation, reply, self._engine.state())
        return replace(reply, circumstances=frozenset(words))

    def _decoded(self, record: bytes) -> dict[str, Any]:
        """Return a record's values. Raises `CannotGoOn` for bytes that are not a record."""
        value = self.codec.decode(record)
        if not isinstance(value, dict) or not all(isinstance(value.get(key), dict) for key in ("reply", "state")):
            raise CannotGoOn("its state could not be read")
        return value

    def _before(self, before: bytes | None) -> dict[str, Any] | None:
        """Set the engine to the state `before` an operation. Return this state as the program reported it."""
        if before is None:
            self._engine = self.oracle(self.trace)
            return None
        state: dict[str, Any] = self._decoded(before)["state"]
        readable = dict(state)
        for name, value in state.items():
            if is_unreadable(value):
                if self._judged is None or self._judged[0] != before or name not in self._judged[1]:
                    raise CannotGoOn(f"{self._heading(name)} cannot be read: {value[UNREADABLE]}")
                readable[name] = self._judged[1][name]
        self._restore(readable)
        return state

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self._engine.restore(state)
        except CannotGoOn:
            raise
        except Exception as error:  # such as a text where a number belongs
            raise CannotGoOn("what the calls before left is no state that the handout knows") from error

    def _heading(self, name: str) -> str:
        return next((facet.heading for facet in self.facets if facet.steps[:2] == ("state", name)), name)

    def _differences(self, seen: _Seen) -> Iterator[Difference]:
        """Yield the differences of all facets, the reply first.

        If a call must refuse and did not, or refused and must not, yield only this difference: it causes all others.
        """
        yield from self._replies(seen)
        if seen.expected.refused != seen.came.refused:
            return
        refusing = next((facet for facet in self.facets if facet.steps[0] == REFUSED), None)
        for facet in self.facets:
            if facet.steps[0] == "state":
                for difference in _facet_differences(facet, facet.steps, seen.wanted, seen.actual):
                    if refusing is None or not seen.expected.refused:
                        yield difference
                    else:
                        yield replace(difference, facet=refusing.name, place=facet.name)

    def _replies(self, seen: _Seen) -> Iterator[Difference]:
        """Yield the differences of a reply: part by part if both replies have parts, otherwise of the whole reply."""
        wanted, actual = seen.wanted[REPLY], seen.actual[REPLY]
        mine, theirs = wanted.get("returned", ABSENT), actual.get("returned", ABSENT)
        accepts = seen.expected.refused == seen.came.refused
        parts = [
            facet
            for facet in self.facets
            if facet.steps[0] == REPLY and len(facet.steps) > 1 and (not facet.calls or seen.call in facet.calls)
            if facet.steps[1] == EACH or child(mine, facet.steps[1]) is not ABSENT
        ]
        each = any(facet.steps[1] == EACH for facet in parts)
        if accepts and parts and _same_parts(mine, theirs, each=each):
            for facet in parts:
                yield from _facet_differences(facet, facet.steps, {REPLY: mine}, {REPLY: theirs})
            named = {facet.steps[1] for facet in parts}
            mine, theirs = (without(side, named) for side in (mine, theirs))
        whole = self._whole(seen.call, REPLY if accepts else ACCEPTED)
        raised = wanted.get("raised"), actual.get("raised")
        if raised[0] == raised[1] and _equal(mine, theirs, whole.tolerance):
            return
        expected, came = _reply_in_words(wanted), _reply_in_words(actual)
        yield Difference(
            facet=whole.name,
            field=f"what {seen.call} returns",
            expected=expected,
            actual=came,
            sentence=f"{seen.call} {_done(actual)}, expected {expected}",
        )

    def _whole(self, call: str, root: str) -> Facet:
        """Return the facet of a call's whole reply (`root` REPLY), or of whether the program accepts it (ACCEPTED)."""
        fitting = [
            facet for facet in self.facets if facet.steps == (root,) and (not facet.calls or call in facet.calls)
        ]
        if not fitting and root == ACCEPTED:
            return self._whole(call, REPLY)
        return max(fitting, key=lambda facet: len(facet.calls) > 0, default=Facet(REPLY, path=REPLY))

    def _broken(self, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
        """Yield the sentences of the invariants that the operation broke."""
        if self.invariants is not None:
            already = _sentences(self.invariants, before)
            yield from (sentence for sentence in _sentences(self.invariants, after) if sentence not in already)


def table_problems(model: ModelFactory, facets: Sequence[Facet], cases: Sequence[Case]) -> Iterator[str]:
    """Yield the problems of a lab's facets or oracle that the reference's runs of all cases show."""
    unseen, of_call = list(facets), {part for facet in facets if facet.of_call for part in facet.steps[1:2]}
    for case in cases:
        engine, restores = model(case.trace), True
        for operation, record in zip(case.trace.operations, case.expected.records, strict=True):
            values = engine.describe(record)
            unseen = [facet for facet in unseen if not _is_in(facet, operation.name, values)]
            restores = restores and _restores(engine, record, of_call)
        if not restores:
            yield f"{case.name}: restore(state()) of the oracle does not lead back to the same state()"
            return
    for trace in chain.from_iterable(case.generated.traces for case in cases if case.generated is not None):
        if not unseen:
            break
        engine = model(Trace(operations=trace))
        for step in play(engine, Trace(operations=trace)):
            values = engine.describe(step.record)
            unseen = [facet for facet in unseen if not _is_in(facet, step.operation.name, values)]
    for facet in unseen:
        yield (
            f"the path {'.'.join(facet.steps)} of the facet {facet.name} leads nowhere in all runs of the reference; "
            "correct the path, or write a case in which there is something"
        )


def _restores(engine: Model, record: bytes, of_call: Collection[str]) -> bool:
    """Whether restoring a record's state gives the same state, apart from facets that describe one call only."""
    try:
        engine.restore(record)
    except CannotGoOn:
        return False
    restored, state = (without(engine.describe(each)["state"], of_call) for each in (engine.record(), record))
    return restored == state


def _is_in(facet: Facet, call: str, record: Mapping[str, Any]) -> bool:
    """Whether a facet's path exists in the record of a call; True for paths that are not part of a record."""
    root, *steps = facet.steps
    if root == REPLY and facet.calls and call not in facet.calls:
        return False
    if root not in (REPLY, "state") or facet.steps == (REPLY,):
        return True
    value = at(_returned(record) if root == REPLY else record[root], steps)
    return value is not ABSENT and (EACH not in steps or any(entry is not ABSENT for entry in entries(value).values()))


def _in_engine(error: Exception) -> str:
    """Return the exception that an engine raised, with its place."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    place = f" in {Path(entry.tb_frame.f_code.co_filename).name}:{entry.tb_lineno}" if entry is not None else ""
    return f"{type(error).__name__}: {error}{place}"


def _returned(record: Mapping[str, Any]) -> object:
    """Return what a call returned; None if it raised an error."""
    return record[REPLY].get("returned")


def _sentences(invariants: Invariants, state: dict[str, Any]) -> list[str]:
    """Return the sentences for a state's broken invariants; [] if the state is too broken to check."""
    try:
        return list(invariants(state))
    except Exception:  # noqa: BLE001 - a program may leave values of any type; the differences say so
        return []


def _is_class(text: str) -> bool:
    """Whether a reply's text is the name of an error class: JSON never begins with a capital letter."""
    return text[:1].isupper()


def _facet_differences(
    facet: Facet, steps: tuple[str, ...], wanted: object, actual: object, *, entry: str = ""
) -> Iterator[Difference]:
    """Yield the differences of one facet between the values at the path `steps`."""
    if not steps:
        yield from _entries(facet, wanted, actual) if facet.per and not entry else _alone(facet, entry, wanted, actual)
        return
    first, *rest = steps
    if first != EACH:
        yield from _facet_differences(facet, tuple(rest), child(wanted, first), child(actual, first), entry=entry)
        return
    if isinstance(actual, list) and isinstance(wanted, list) and len(actual) == len(wanted):
        keys: Iterable[str] = map(str, range(len(wanted)))
    elif isinstance(actual, dict) and isinstance(wanted, dict) and not is_unreadable(actual):
        keys = dict.fromkeys([*wanted, *actual])
    else:
        yield from _alone(facet, entry, wanted, actual)
        return
    for key in keys:
        yield from _facet_differences(facet, tuple(rest), child(wanted, key), child(actual, key), entry=key)


def _entries(facet: Facet, wanted: object, actual: object) -> Iterator[Difference]:
    """Yield the differences of two lists or mappings entry by entry; of the whole if they cannot be matched."""
    if isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual):
        for number, (mine, theirs) in enumerate(zip(wanted, actual, strict=True)):
            yield from _alone(facet, str(number), mine, theirs)
    elif isinstance(wanted, dict) and isinstance(actual, dict) and not is_unreadable(actual):
        for key in dict.fromkeys([*wanted, *actual]):
            yield from _alone(facet, key, child(wanted, key), child(actual, key))
    else:
        yield from _alone(facet, "", wanted, actual)


def _alone(facet: Facet, entry: str, wanted: object, actual: object) -> Iterator[Difference]:
    if not _equal(wanted, actual, facet.tolerance):
        name = f"{facet.per} {entry}: {facet.heading}" if entry else facet.heading
        tells = facet.sentences and isinstance(actual, list) and bool(actual)
        yield Difference(
            facet=facet.name,
            field=name,
            entry=entry,
            expected=facet.absent or "nothing" if wanted is ABSENT else _shown(wanted),
            actual=facet.absent if facet.absent and actual is ABSENT else _shown(actual),
            sentence=_first_sentence(facet, actual) if tells else "",
            tags=frozenset({SENTENCE} if tells else {UNREAD} if is_unreadable(actual) else ()),
        )


def _first_sentence(facet: Facet, sentences: Any) -> str:
    """Return the first sentence of a facet of sentences, and the number of further ones."""
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    return f"{facet.heading}: {str(sentences[0])[:_MOST_OF_A_SENTENCE]}{more}"


def _same_parts(mine: object, theirs: object, *, each: bool) -> bool:
    """Whether two replies have comparable parts: objects, or lists of equal length (with `each`, their items too)."""
    if isinstance(mine, list) and isinstance(theirs, list):
        pairs = zip(mine, theirs, strict=False)
        return len(mine) == len(theirs) and (not each or all(_same_parts(*pair, each=False) for pair in pairs))
    return isinstance(mine, dict) and isinstance(theirs, dict)


def _equal(wanted: object, actual: object, tolerance: float) -> bool:
    """Whether two values are equal, types included; fractions within the tolerance."""
    if isinstance(wanted, list) and isinstance(actual, list):
        pairs = zip(wanted, actual, strict=False)
        return len(wanted) == len(actual) and all(_equal(mine, theirs, tolerance) for mine, theirs in pairs)
    if isinstance(wanted, dict) and isinstance(actual, dict):
        return wanted.keys() == actual.keys() and all(_equal(wanted[key], actual[key], tolerance) for key in wanted)
    if tolerance and float in (type(wanted), type(actual)) and _is_number(wanted) and _is_number(actual):
        return math.isclose(float(str(wanted)), float(str(actual)), rel_tol=0.0, abs_tol=tolerance)
    return type(wanted) is type(actual) and wanted == actual


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """Return a value as a report writes it."""
    if value is ABSENT:
        return "missing"
    if is_unreadable(value):
        return f"unreadable ({value[UNREADABLE]})"  # type: ignore[index]
    text = text_of(value)  # type: ignore[arg-type]
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _reply_in_words(reply: dict[str, Any]) -> str:
    return str(reply["raised"]) if "raised" in reply else _shown(reply.get("returned", ABSENT))


def _done(reply: dict[str, Any]) -> str:
    words = _reply_in_words(reply)
    return f"raised {words}" if "raised" in reply else f"returned {words}"
