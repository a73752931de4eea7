"""Named values in a record of a C program, as harness/values.c writes them: words of 32 bits, little-endian.

    value  := 1 | 2 int | 3 int int | 4 count int... | 5 text | 6 {text value} 0 | 7 {value} 0 | 8 pointer
    text   := length, then its bytes, with zeros up to a whole word

So a value is null, an int, an int of 64 bits, a list of ints, a text, an object, a list, or a pointer that cannot be
followed. Such a pointer is an unreadable part of the state, as in a record of a Python program.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from grader.core.model import UNREADABLE
from reference.oracle import CannotGoOn

_CLOSE, _NULL, _INT, _LONG, _INTS, _TEXT, _OBJECT, _LIST, _UNREADABLE = range(9)
_POINTERS = {
    2: "a pointer to memory that was never allocated",
    3: "a pointer to an allocation that is too small",
    4: "a pointer to freed memory",
    5: "a pointer to what is already used elsewhere",
}
"""Pointers whose target cannot be read, in words, by the values of `enum pointer` in harness.h."""
_KINDS = dict(zip(_POINTERS.values(), ("stray", "small", "freed", "shared"), strict=True))
_WORD = 4
_MOST_DEPTH = 32
_INT_RANGE = range(-(2**31), 2**31)
_LONG_RANGE = range(-(2**63), 2**63)


def encode(value: object) -> bytes:
    """Return a record of plain values: objects, lists, texts, ints and null. Raises `CannotGoOn` for others."""
    words = array("i")
    _put(words, value)
    return words.tobytes()


def decode(record: bytes) -> Any:
    """Return the plain values of a record. Raises `CannotGoOn` for bytes that are not a record."""
    return _Reader(record).whole()


def offsets(record: bytes) -> dict[tuple[str, ...], int]:
    """Map the path of each value to the index of a word of the record: an int's own word, else the word with the kind.

    Raises `CannotGoOn` for bytes that are not a record.
    """
    reader = _PlacesReader(record)
    reader.whole()
    return reader.places


def is_pointer(value: object) -> bool:
    """Return whether a value is NULL, or a pointer whose target cannot be read."""
    return value is None or value in [{UNREADABLE: text} for text in _KINDS]


def pointer_kind(unreadable: Mapping[str, str]) -> str:
    """Return why the target of a pointer cannot be read: it is "stray", too "small", "freed" or "shared"."""
    return _KINDS[unreadable[UNREADABLE]]


def _put(words: array[int], value: object) -> None:
    if value is None:
        words.append(_NULL)
    elif isinstance(value, int) and value in _INT_RANGE:
        words.extend((_INT, value))
    elif isinstance(value, int) and value in _LONG_RANGE:
        words.append(_LONG)
        words.frombytes(struct.pack("<q", value))
    elif isinstance(value, str):
        words.append(_TEXT)
        words.extend(_text_words(value))
    elif isinstance(value, Mapping):
        words.append(_OBJECT)
        for name, item in value.items():
            words.extend(_text_words(name))
            _put(words, item)
        words.append(_CLOSE)
    elif isinstance(value, Sequence):
        _put_list(words, value)
    else:
        raise CannotGoOn(f"a state has a {type(value).__name__}, which no record of a C program has")


def _put_list(words: array[int], items: Sequence[Any]) -> None:
    try:
        ints = array("i", items)
    except (OverflowError, TypeError):  # not all of them are ints of 32 bits
        words.append(_LIST)
        for item in items:
            _put(words, item)
        words.append(_CLOSE)
    else:
        words.extend((_INTS, len(ints)))
        words.extend(ints)


@lru_cache(maxsize=1024)
def _text_words(text: str) -> array[int]:
    content = text.encode()
    words = array("i", [len(content)])
    words.frombytes(content + bytes(-len(content) % _WORD))
    return words


class _Reader:
    """Reads the values of a record."""

    def __init__(self, record: bytes) -> None:
        self.words = memoryview(record)
        self.at = 0

    def whole(self) -> object:
        try:
            self.words = self.words.cast("i")
            value = self._value((), self._next())
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CannotGoOn("its state could not be read") from error
        if self.at != len(self.words):
            raise CannotGoOn("its state has something left over")
        return value

    def _next(self) -> int:
        self.at += 1
        return self.words[self.at - 1]

    def _run(self, count: int) -> memoryview:
        if not 0 <= count <= len(self.words) - self.at:
            raise ValueError(count)
        self.at += count
        return self.words[self.at - count : self.at]

    def _text(self, length: int) -> str:
        content = self._run(-(-length // _WORD)).tobytes()
        if any(content[length:]):
            raise ValueError("a text is followed by other bytes than zeros")
        return content[:length].decode()

    def _value(self, path: tuple[str, ...], kind: int) -> object:
        if kind == _NULL:
            return None
        if kind == _INT:
            return self._next()
        if kind == _INTS:
            return self._run(self._next()).tolist()
        if kind == _LIST:
            return list(self._items(path))
        if kind == _OBJECT:
            members: dict[str, object] = {}
            for name, value in self._members(path):
                members.setdefault(name, value)  # if a name occurs twice, the first value counts
            return members
        if kind == _TEXT:
            return self._text(self._next())
        if kind == _LONG:
            return struct.unpack("<q", self._run(2).tobytes())[0]
        if kind == _UNREADABLE:
            return {UNREADABLE: _POINTERS[self._next()]}
        raise ValueError(kind)

    def _members(self, path: tuple[str, ...]) -> Iterator[tuple[str, object]]:
        self._check_depth(path)
        while length := self._next():
            name = self._text(length)
            yield name, self._value((*path, name), self._next())

    def _items(self, path: tuple[str, ...]) -> Iterator[object]:
        self._check_depth(path)
        for place in count():
            kind = self._next()
            if kind == _CLOSE:
                return
            yield self._value((*path, str(place)), kind)

    def _check_depth(self, path: tuple[str, ...]) -> None:
        if len(path) > _MOST_DEPTH:
            raise ValueError("it is nested too deep")


class _PlacesReader(_Reader):
    """Reads the values of a record, and notes their places."""

    def __init__(self, record: bytes) -> None:
        super().__init__(record)
        self.places: dict[tuple[str, ...], int] = {}

    def _value(self, path: tuple[str, ...], kind: int) -> object:
        first = self.at
        self.places.setdefault(path, first if kind == _INT else first - 1)
        value = super()._value(path, kind)
        if kind == _INTS:
            for place in range(self.words[first]):
                self.places.setdefault((*path, str(place)), first + 1 + place)
        return value
