"""Read a program's values defensively: the result is plain JSON, whatever the program's objects pretend to be.

Types are compared by identity, so that a subclass of int is no int. Every walk is bounded.
"""

from _json import encode_basestring_ascii, make_encoder
from itertools import chain
from marshal import dumps

UNREADABLE = "!"
MOST_DEPTH = 16
MOST_VALUES = 20_000
MOST_CHARACTERS = 1 << 16
MOST_BITS = 256
_SMALL = 1 << 60
"""Ints below this number, of which most lists consist, need no closer look."""

_chunks = make_encoder(None, None, encode_basestring_ascii, None, ":", ",", True, False, False)
"""The function that `json` calls to write canonical JSON. To import `json` takes a fifth of the time of a start."""
_FLAT = 2
"""The version of marshal's format that writes a value each time it occurs. Later versions refer to the first time, so
that writing a value that is shared many times takes little time."""
_ODD_KEYS = tuple(b"{" + dumps(each, _FLAT)[:1] for each in (None, True, False, 1, _SMALL, 1.0))
"""The beginnings of dicts whose first key is not a text. Texts can be sorted only with texts, so one key is enough."""
_MOST_TEXTS, _MOST_BYTES = 4096, 4096
_texts = {}
"""The texts of values by their bytes in marshal's format, because most parts of a state do not change. Equal bytes mean
equal values; a value may have other bytes if there are more references to its parts."""
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NUMBERS = frozenset((int, bool, float, type(None)))
_CONTAINERS = frozenset((list, tuple, dict))
_are_numbers, _are_containers = _NUMBERS.issuperset, _CONTAINERS.issuperset
_BUILT_IN = {
    id(value): value.__name__
    for value in vars(__import__("builtins")).values()
    if isinstance(value, type) and issubclass(value, BaseException)
}
"""Names of built-in errors, by identity: a class of the program may have any methods for hashing and comparing."""


class Unreadable(Exception):
    """A value that has no place in a record."""


def encoded(value):
    """Return a plain value as canonical JSON."""
    return "".join(_chunks(value, 0))


def text_of(value):
    """Return a value as canonical JSON. Raises `Unreadable` for the values for which `plain` raises it."""
    if value is None:
        return "null"
    kind = type(value)
    if kind is int and -_SMALL < value < _SMALL:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind not in _CONTAINERS:
        return encoded(plain(value))
    if not value:
        return "{}" if kind is dict else "[]"
    try:
        seen = dumps(value)
    except Exception:  # `plain` reports what is wrong with it
        return encoded(plain(value))
    text = _texts.get(seen)
    if text is None:
        text = _text_in_c(value, seen) or encoded(plain(value))
        if len(_texts) == _MOST_TEXTS:
            _texts.clear()
        if len(seen) < _MOST_BYTES:
            _texts[seen] = text
    return text


def _is_bounded(value):
    """Return whether a list, tuple or dict has known types only, and few enough values, levels and characters.

    C code walks through shared parts again and again, so this is checked first.
    """
    level, room = value if type(value) is not dict else [*value, *dict.values(value)], MOST_VALUES
    for _ in range(MOST_DEPTH):
        room -= len(level)
        if room < 0:
            return False
        if _are_numbers(map(type, level)):
            return True
        level = [item for item in level if type(item) not in _NUMBERS]
        if not _are_containers(map(type, level)):
            room -= sum([len(item) for item in level if type(item) is str])
            level = [item for item in level if type(item) is not str]
            if not _are_containers(map(type, level)):
                return False
        if sum(map(len, level)) > room:
            return False
        values = [dict.values(item) for item in level if type(item) is dict]
        level = [*chain.from_iterable(level), *chain.from_iterable(values)]
    return False


def _text_in_c(value, seen):
    """Return the text of a value that `plain` accepts, without a walk in Python; "" if that is not possible.

    marshal accepts only values of exactly the built-in types. JSON accepts all values that a record may
    have, but also keys that a record may not have.
    """
    try:
        if (len(seen) >= MOST_VALUES or _may_share(seen)) and not _is_bounded(value):
            return ""
        seen = dumps(value, _FLAT)
        if type(value) is dict:
            named = {key if type(key) is str else _key(key): item for key, item in dict.items(value)}
            if len(named) < len(value):  # 2 and "2" become one key, and one of their values would be lost
                return ""
            value = named
        text = "".join(_chunks(value, 0))
    except Exception:  # `plain` reports what is wrong with it
        return ""
    if b"l" in seen and _may_be_long(seen):
        return ""
    has_dicts = seen.find(b"{", 1) > 0  # other than the value itself, whose keys are texts now
    if has_dicts and any(seen.find(key, 1) > 0 for key in _ODD_KEYS):
        return ""
    return "" if text.count("[") + text.count("{") > MOST_DEPTH and _is_deep(text) else text


def _may_share(seen):
    """Return whether a list, tuple or dict may occur twice in a value: then its mark in `seen` has a reference bit."""
    find = seen.find
    if find(b"\xdb", 1) > 0 or find(b"\xfb", 1) > 0 or find(b"\xa9", 1) > 0 or find(b"\xa8", 1) > 0:
        return True
    return b"r\0\0\0\0" in seen


def _is_deep(text):
    """Return whether brackets are nested too deeply."""
    left = text.encode().translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(MOST_DEPTH):
        left = left.replace(b"[]", b"")
    return bool(left)


def _may_be_long(seen):
    """Return whether there may be an int of many digits, by the mark of such ints and the number of their digits."""
    at = seen.find(b"l")
    while at >= 0:
        if seen[at + 2 : at + 5] in (b"\0\0\0", b"\xff\xff\xff") and not 3 <= seen[at + 1] <= 16:
            return True
        at = seen.find(b"l", at + 1)
    return False


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
        named = {_key(key): _plain(item, room, depth - 1) for key, item in list(dict.items(value))}
        if len(named) < len(value):
            raise Unreadable("a dict with keys that read the same, such as 2 and '2'")
        return named
    if kind is float:
        if value - value != 0.0:
            raise Unreadable("a float that is no number")
        return value
    if any(base is tuple for base in type.__dict__["__mro__"].__get__(kind)):  # such as a NamedTuple
        return _plain(tuple(tuple.__iter__(value)), room, depth)
    raise Unreadable(class_name(kind))


def _enter(value, room, depth):
    """Count the values of a container. Raises `Unreadable` if it is too deep or too large."""
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
    """Return the name of a class of the program in words: an article and a name."""
    name = type.__dict__["__name__"].__get__(kind)
    return f"an object of class {name[:80]}"


def error_name(error):
    """Return the name of the first built-in base class of an error: a class of the program may have any name."""
    return error_names(error)[0]


def error_names(error):
    """Return the names of all built-in base classes of an error, the nearest first; the last is BaseException."""
    kinds = type.__dict__["__mro__"].__get__(type(error))
    return [_BUILT_IN[id(kind)] for kind in kinds if id(kind) in _BUILT_IN] or ["BaseException"]


def message(error):
    """Return the text of an error of a built-in class; "" for another class, because its methods are the program's."""
    if id(type(error)) not in _BUILT_IN:
        return ""
    arguments = BaseException.__dict__["args"].__get__(error)
    if type(arguments) is tuple and len(arguments) == 1 and type(arguments[0]) is str:
        return arguments[0][:200]
    return ""
