"""Read a program's values defensively: what comes out is plain JSON, whatever the program's objects pretend to be.

Types are compared by identity, so that a subclass of int is no int. Every walk is bounded.
"""

import json

UNREADABLE = "!"
MOST_DEPTH = 16
MOST_VALUES = 20_000
MOST_CHARACTERS = 1 << 16
MOST_BITS = 256
_SMALL = 1 << 60
"""Ints below it, of which most lists consist, need no closer look."""

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)
_BUILT_IN = {
    id(value): value.__name__
    for value in vars(__import__("builtins")).values()
    if isinstance(value, type) and issubclass(value, BaseException)
}
"""By identity: a class of the program may be hashed and compared as it likes."""


class Unreadable(Exception):
    """A value that has no place in a record."""


def encoded(value):
    """Return a plain value as canonical JSON."""
    return _encoder.encode(value)


def plain(value):
    """Return a value of lists, tuples, dicts, texts, numbers and None as JSON has them. Raises `Unreadable`."""
    return _plain(value, [MOST_VALUES], MOST_DEPTH)


def _plain(value, room, depth):
    kind = type(value)
    if kind is list or kind is tuple:
        _enter(value, room, depth)
        return [
            item if type(item) is int and -_SMALL < item < _SMALL else _plain(item, room, depth - 1)
            for item in list(value)
        ]
    if kind is int:
        if int.bit_length(value) > MOST_BITS:
            raise Unreadable("an int of very many digits")
        return value
    if value is None or kind is bool:
        return value
    if kind is str:
        if len(value) > MOST_CHARACTERS:
            raise Unreadable("a very long text")
        return value
    if kind is dict:
        _enter(value, room, depth)
        return {_key(key): _plain(item, room, depth - 1) for key, item in list(dict.items(value))}
    if kind is float:
        if value - value != 0.0:
            raise Unreadable("a float that is no number")
        return value
    raise Unreadable(class_name(kind))


def _enter(value, room, depth):
    """Count the values of a container, and see that it is neither too deep nor too large."""
    if depth == 0:
        raise Unreadable("very deep")
    room[0] -= len(value)
    if room[0] < 0:
        raise Unreadable("very many values")


def _key(key):
    if type(key) is str and len(key) <= MOST_CHARACTERS:
        return key
    if type(key) is int and int.bit_length(key) <= MOST_BITS:
        return str(key)
    raise Unreadable("a dict with keys of another type")


def class_name(kind):
    """Return the name of a class of the program, as an article and a word."""
    name = type.__dict__["__name__"].__get__(kind)
    return f"an object of class {name[:80]}"


def error_name(error):
    """Return the name of the first built-in class of an error: a class of the program may have any name."""
    for kind in type.__dict__["__mro__"].__get__(type(error)):
        if id(kind) in _BUILT_IN:
            return _BUILT_IN[id(kind)]
    return "BaseException"


def message(error):
    """Return the text of an error of a built-in class; "" for others, whose methods are the program's."""
    if id(type(error)) not in _BUILT_IN:
        return ""
    arguments = BaseException.__dict__["args"].__get__(error)
    if type(arguments) is tuple and len(arguments) == 1 and type(arguments[0]) is str:
        return arguments[0][:200]
    return ""


def place_of(item, among):
    """Return where this very object is in a list, or under which key of a dict; None for None, "?" for a stranger."""
    if item is None:
        return None
    pairs = dict.items(among) if isinstance(among, dict) else enumerate(list(among)) if isinstance(among, list) else ()
    for place, other in pairs:
        if other is item:
            return place
    return "?"


def places_of(items, among):
    """Return the places of several objects, in their order; what is no list or tuple is unreadable."""
    if type(items) is not list and type(items) is not tuple:
        raise Unreadable(class_name(type(items)))
    if len(items) > MOST_VALUES:
        raise Unreadable("very many values")
    return [place_of(item, among) for item in items]
