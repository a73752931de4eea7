"""The short way to a value's text says what the long way says, which looks at every value by itself."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, strategies

from grader.runtime.python.process import _HARNESS


def _plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain", _HARNESS / "plain.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = _plain()


class _Number(int):
    """No int: a program's own class."""


_MOST = 1 << plain.MOST_BITS
_ATOMS = [None, True, False, 0, 1, -5, 107, 108, 123, 379, 1 << 31, 1 << 59, 1 << 62, _MOST - 1, _MOST, -_MOST, 1.5]
_ODD = [
    -0.0,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "l",
    "{i",
    "]]",
    "é\ud800",
    b"bytes",
    _Number(3),
    {1},
    1j,
    object(),
]
_KEYS = strategies.sampled_from(["a", "10", "2", "{i", 2, 10, -1, 0, _MOST, True, None, 1.0, _Number(1), (1,)])
_ATOM = strategies.sampled_from([*_ATOMS, *_ODD])
_VALUES = strategies.recursive(
    _ATOM,
    lambda inner: (
        strategies.lists(inner, max_size=4)
        | strategies.lists(inner, max_size=3).map(tuple)
        | strategies.dictionaries(_KEYS, inner, max_size=4)
        | strategies.dictionaries(strategies.sampled_from("abc"), inner, max_size=3)
        | strategies.just(OrderedDict(a=1))
    ),
    max_leaves=12,
)


def _outcome(function: Any, value: object) -> str:
    try:
        return str(function(value))
    except plain.Unreadable as error:
        return f"unreadable: {error}"


def _the_long_way(value: object) -> object:
    return plain.encoded(plain.plain(value))


@given(_VALUES)
@example({"2": [float("nan")], 2: None})
def test_both_ways_say_the_same(value: object) -> None:
    """Whatever a value is made of, also when it is read a second time."""
    assert _outcome(plain.text_of, value) == _outcome(_the_long_way, value)
    assert _outcome(plain.text_of, value) == _outcome(_the_long_way, value)


def test_no_value_of_a_dict_is_lost() -> None:
    """A record has texts as keys, so two keys may become one."""
    assert _outcome(plain.text_of, {2: "a", "2": "b"}).startswith("unreadable: a dict with keys that read the same")


@pytest.mark.parametrize("depth", [plain.MOST_DEPTH - 1, plain.MOST_DEPTH, plain.MOST_DEPTH + 1, 900, 5000])
@pytest.mark.parametrize("beside", [[], [[]] * 20, ["["], ["]]"]])
def test_a_value_may_only_be_so_deep(depth: int, beside: list[object]) -> None:
    """Brackets in texts, and many lists beside each other, change nothing about it."""
    value: object = [*beside]
    for number in range(depth - 1):
        value = [value] if number % 2 else {"a": value}

    assert _outcome(plain.text_of, value) == _outcome(_the_long_way, value)


@pytest.mark.parametrize("count", [plain.MOST_VALUES - 1, plain.MOST_VALUES, plain.MOST_VALUES + 1])
def test_a_value_may_only_be_so_large(count: int) -> None:
    """The number of values and the length of a text are limited."""
    assert _outcome(plain.text_of, [1] * count) == _outcome(_the_long_way, [1] * count)
    assert _outcome(plain.text_of, {"a": [[]] * count}) == _outcome(_the_long_way, {"a": [[]] * count})
    assert _outcome(plain.text_of, "x" * (4 * count)) == _outcome(_the_long_way, "x" * (4 * count))


def test_texts_are_forgotten_when_there_are_many() -> None:
    """What is remembered has a bound."""
    for number in range(2 * plain._MOST_TEXTS):
        assert plain.text_of([number]) == f"[{number}]"

    assert len(plain._texts) <= plain._MOST_TEXTS
