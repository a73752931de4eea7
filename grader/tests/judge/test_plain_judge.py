"""The default judge: an oracle played from the program's own state, and differences by facet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grader.core.case import JsonValue, Signature
from grader.core.judgement import UNREAD, Judgement
from grader.core.rubric import Facet
from grader.judge.plain_judge import PlainModel, _Seen
from grader.tests.support.toy.engine import Shelf
from grader.tests.support.toy.lab import never
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn

_FACETS = (
    Facet("users", per="box"),
    Facet("free", title="free boxes, first to last"),
    Facet("names", per="word"),
    Facet("reply", path="reply", tolerance=1e-9),
)
_ANY = JsonValue("value", "any value")
_CALLS = {
    "shelf": Signature(arguments=(), returns=_ANY),
    "take": Signature(arguments=(), returns=_ANY, refusals=("ValueError",)),
    "give": Signature(arguments=(), returns=_ANY, refusals=("ValueError",)),
    "label": Signature(arguments=(), returns=_ANY),
    "find": Signature(arguments=(), returns=_ANY, refusals=("null",)),
    "usage": Signature(arguments=(), returns=_ANY),
}
_OPERATIONS = (
    Operation(name="shelf", arguments=(4,)),
    Operation(name="take", arguments=(2,)),
    Operation(name="give", arguments=((1,),)),
    Operation(name="take", arguments=(9,)),
    Operation(name="find", arguments=("a",)),
    Operation(name="usage"),
)
_SHELF, _TAKE, _GIVE, _TOO_MANY, _FIND, _USAGE = range(6)


def model() -> PlainModel:
    """A judge of the shelf."""
    trace = Trace(operations=_OPERATIONS)
    return PlainModel(trace, oracle=lambda _: Shelf(), calls=_CALLS, facets=_FACETS, invariants=never)


def records() -> list[bytes]:
    """The reference's records."""
    played, all_of_them = model(), []
    for operation in _OPERATIONS:
        played.apply(operation)
        all_of_them.append(played.record())
    return all_of_them


def changed(record: bytes, reply: dict[str, Any] | None = None, **state: Any) -> bytes:
    """A record with another reply, or other parts of the state."""
    value = json.loads(record)
    value["reply"] = reply or value["reply"]
    value["state"].update(state)
    return json.dumps(value).encode()


def judged(number: int, actual: bytes, before: bytes | None = None) -> Judgement:
    """Judge this record of one operation."""
    return model().judge(before or records()[number - 1], _OPERATIONS[number], actual)


def seen(judgement: Judgement) -> list[tuple[str, str]]:
    """Facets and sentences of the differences."""
    return [(one.facet, one.seen) for one in judgement.differences]


def test_types_count() -> None:
    """True is no 1, and a fraction no number of boxes."""
    assert seen(judged(_TAKE, changed(records()[_TAKE], users=[True, 1, 0.0, 0]))) == [
        ("users", "box 0: users is true, expected 1"),
        ("users", "box 2: users is 0.0, expected 0"),
    ]


def test_fractions_within_the_tolerance_are_equal() -> None:
    """Of the facet that has one."""
    right = records()[_USAGE]

    assert not judged(_USAGE, changed(right, {"returned": 0.25 + 1e-12})).differences
    assert seen(judged(_USAGE, changed(right, {"returned": 0.26}))) == [("reply", "usage returned 0.26, expected 0.25")]


def test_the_next_operation_is_judged_from_the_programs_own_state() -> None:
    """A wrong queue is one mistake, not one at each operation that follows."""
    before = changed(records()[_GIVE], free=[1, 2, 3])
    after = changed(records()[_TOO_MANY], free=[1, 2, 3])

    assert not judged(_TOO_MANY, after, before).differences


def test_a_mapping_that_cannot_be_read_is_no_mapping() -> None:
    """Of its parts nothing is known, so none of them is missing."""
    names = Facet("names", per="word", path="state.names.*")
    played = PlainModel(
        Trace(operations=_OPERATIONS), oracle=lambda _: Shelf(), calls=_CALLS, facets=(names,), invariants=never
    )
    before = changed(records()[_GIVE], names={"a": 1})
    judged_here = played.judge(
        before, _OPERATIONS[_TOO_MANY], changed(records()[_TOO_MANY], names={"!": "AttributeError"})
    )

    assert seen(judged_here) == [("names", 'names is unreadable (AttributeError), expected {"a":1}')]
    assert judged_here.differences[0].tags == {UNREAD}


@pytest.mark.parametrize("record", [b"", b"[1]", b'{"reply":1,"state":{}}', b"[" * 100_000, b"\xff"])
def test_bytes_that_are_no_record_end_the_case(record: bytes) -> None:
    """Whatever a program sent."""
    with pytest.raises(CannotGoOn, match="could not be read"):
        judged(_GIVE, record)


def test_parts_of_a_reply_have_facets_of_their_own() -> None:
    """One wrong part costs its own rule only."""
    facets = (Facet("hits", path="reply.hits"), Facet("new", path="reply.new"))
    wanted = {"hits": [1], "new": [2], "rest": 0}

    assert replies(facets, wanted, {**wanted, "new": [3]}) == [("new", "[3]")]
    assert replies(facets, wanted, None) == [("reply", "null")]


def test_a_case_that_names_what_is_not_there_is_an_error_in_words() -> None:
    """Of whoever wrote the case, who gets no traceback."""
    model = PlainModel(Trace(operations=()), oracle=lambda _: Shelf(), calls=_CALLS, facets=())

    with pytest.raises(CannotGoOn, match=r"something that is not there .*AttributeError.* in engine.py:\d+"):
        model.apply(Operation(name="give", arguments=((7,),)))


def replies(facets: tuple[Facet, ...], wanted: object, actual: object, call: str = "admit") -> list[tuple[str, str]]:
    """The facets that differ in two replies, with what came; null is a refusal."""
    records: list[dict[str, Any]] = [{"reply": {"returned": value}, "state": {}} for value in (wanted, actual)]
    mine, theirs = (Reply(text="", refused=value is None) for value in (wanted, actual))
    model = PlainModel(Trace(operations=()), oracle=lambda _: Shelf(), calls=_CALLS, facets=facets)
    return [(one.facet, one.actual) for one in model._differences(_Seen(call, records[0], records[1], mine, theirs))]
