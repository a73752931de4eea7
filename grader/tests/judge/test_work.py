"""Points are earned by showing: what a program never did anywhere earns nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.core.rubric import Facet
from grader.judge.case_findings import NEVER_SHOWN
from grader.judge.work import is_something, work
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded as sample_graded
from grader.tests.support.toy_lab import edited, graded


@pytest.mark.parametrize("value", [None, True, False, 0, 0.0, "", [], {}, [[], [], [], [], 0], {"a": [], "b": 0}])
def test_empty_values_say_nothing(value: object) -> None:
    """A structure is empty if all of it is."""
    assert not is_something(value)


@pytest.mark.parametrize("value", [1, -1, "x", [0], [[0]], [[], ["a"], 0], {"a": [0]}])
def test_anything_else_says_something(value: object) -> None:
    """Block 0 in a list is a block."""
    assert is_something(value)


_FACETS = (
    Facet("hits", path="reply.0", calls=("find",)),
    Facet("reply", path="reply"),
    Facet("free"),
    Facet("log", of_call=True),
)


@pytest.mark.parametrize(
    ("call", "reply", "states", "facets"),
    [
        ("find", [[1], 4], ({"free": []}, {"free": []}), {"hits", "reply"}),
        ("find", [[1], 0], ({"free": []}, {"free": []}), {"hits"}),
        ("find", [[], 0], ({"free": [1]}, {"free": []}), {"free"}),
        ("take", None, ({"free": [1]}, {"free": [1]}), set()),
        ("take", [1], ({"log": ["a"]}, {"log": []}), {"reply"}),
        ("take", None, ({"log": ["a"]}, {"log": ["a"]}), {"log"}),
    ],
)
def test_work_is_a_reply_or_a_change(
    call: str, reply: object, states: tuple[dict[str, object], dict[str, object]], facets: set[str]
) -> None:
    """A log of one call is no change of the state, and its end is none either."""
    assert work(_FACETS, call, reply, states) == facets


def test_a_case_says_what_was_never_shown(tmp_path: Path) -> None:
    """Under the cause that led away from it; it is no cause of its own."""
    record = graded(tmp_path, edited(("taken = [self.free.pop(0) for _ in range(count)]", "taken = []")))
    messages = [finding.message for finding in record.findings if finding.kind == NEVER_SHOWN]

    assert messages
    assert all(
        message.startswith("It is about what your program did in none of the cases that were run: ")
        for message in messages
    )
    assert not any(cause.sentence in messages for cause in record.causes)


@pytest.mark.parametrize("name", ["scheduler", "block_pool", "hybrid", "offload", "paged_kv"])
def test_plausible_empty_values_earn_next_to_nothing(name: str) -> None:
    """Of the real labs: what can be imported, and what a constructor makes."""
    record = sample_graded(name, SAMPLES.parent / name / "wrong_answer" / "plausible_empty_values")

    assert record.score is not None
    assert record.score <= 6
