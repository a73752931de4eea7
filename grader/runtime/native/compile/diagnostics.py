"""Parse gcc's machine-readable diagnostics, and say in one sentence what each means in this homework."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

_MOST_ERRORS = 20
"""The most errors that gcc is told to report; a student who fixes these sees the next ones."""

_FIRST_WITH_SARIF = 13
_NOWHERE = ("", 0, 0)
_MOST, _MOST_FAILURES, _MOST_LINE = 1000, 20, 10_000_000
"""Limits: messages read; brackets that open no JSON, each of which costs a scan of all text behind it; line numbers."""
_FOR_PEOPLE = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d{1,8}):(?P<column>\d{1,8}): (?P<kind>fatal error|error|internal compiler error): "
    r"(?P<message>.*?)(?: \[(?P<option>-W[\w=+-]+)\])?$",
    re.MULTILINE,
)
_OPENING = re.compile(r"^[\[{]", re.MULTILINE)

_MEANINGS = {
    "-Werror=unused-variable": "A variable is declared but never used; delete it, or use it.",
    "-Werror=unused-parameter": "A parameter is never used; use it, or write (void)name; in the function.",
    "-Werror=unused-function": "A static function is never called; delete it, or call it.",
    "-Werror=unused-but-set-variable": "A variable gets a value that nobody reads; delete it.",
    "-Werror=sign-compare": "An int is compared with an unsigned number (size_t, sizeof); make both the same type.",
    "-Werror=implicit-function-declaration": "A function is called that no header declares; include its header, or "
    "declare it before its first use.",
    "-Werror=int-conversion": "An int is used as a pointer or the other way round.",
    "-Werror=incompatible-pointer-types": "A pointer of one type is used where another type is wanted.",
    "-Werror=return-type": "A function that promises a value can end without returning one.",
    "-Werror=maybe-uninitialized": "gcc sees a way on which this variable is used before it gets a value.",
    "-Werror=uninitialized": "This variable is used before it gets a value.",
    "-Werror=pedantic": "This is a GNU extension; -std=c11 -Wpedantic allows standard C only.",
    "-Werror=missing-field-initializers": "An initialiser leaves fields out; name them all.",
    "-Werror=format=": "The format string of printf does not fit its arguments.",
    "-Werror=array-bounds": "gcc sees an access outside an array.",
    "-Werror=stringop-overflow=": "gcc sees a write past the end of an allocation; is the size in malloc right?",
    "-Werror=alloc-size-larger-than=": "gcc sees an allocation of an impossible size.",
    "-Werror=alloc-size": "Less is allocated than the type needs to which the pointer points; is the size right?",
    "-Werror=calloc-transposed-args": "calloc takes the number first, then the size of one: calloc(n, sizeof(int)).",
    "-Werror=use-after-free": "gcc sees memory used after it was freed.",
    "-Werror=free-nonheap-object": "gcc sees free() called on something that malloc did not return.",
    "-Werror=parentheses": "Put parentheses around this part, so that its meaning is plain.",
    "-Werror=pointer-arith": "Standard C has no arithmetic on void *; convert it to char * first, which counts bytes.",
    "-Werror=vla": "An array's length must be a constant here.",
    "-Werror=comment": "A comment starts inside a comment.",
    "-Werror=implicit-fallthrough=": "A case runs on into the next one; write break, or say it in a comment.",
    "-Werror=unused-label": "A label is never jumped to.",
    "-Werror=unused-value": "The value of this expression is thrown away.",
    "-Werror=type-limits": "This comparison is always true or always false.",
    "-Werror=unused-result": "The result of this call must be used.",
    "-Werror=overflow": "A number does not fit its type.",
    "-Werror=char-subscripts": "A char is used as an index.",
    "-Werror=strict-prototypes": "Write (void) for a function without parameters.",
}


_BY_MESSAGE = (
    (re.compile("multi-line comment"), "The line ends in a backslash, so the comment goes on in the next line."),
    (re.compile("empty translation unit"), "There is no code in the file; was it saved, and is it the right one?"),
    (re.compile("null character"), "There are null bytes in it, which are no text; save the file again, as UTF-8."),
)
"""What messages mean whose option is that of others too, or none."""
_UNKNOWN = re.compile(
    r"(?:unknown type name|implicit declaration of function) ['\u2018](?P<used>\w+)"
    r"|['\u2018](?P<undeclared>\w+)['\u2019] undeclared"
)
_DECLARED = {
    **dict.fromkeys(("bool", "true", "false"), "stdbool.h"),
    **dict.fromkeys(("size_t", "NULL", "offsetof", "ptrdiff_t"), "stddef.h"),
    **dict.fromkeys(("uintptr_t", "intptr_t", "uint8_t", "int32_t", "uint32_t", "int64_t", "uint64_t"), "stdint.h"),
    **dict.fromkeys(("malloc", "calloc", "realloc", "free", "abort", "exit", "abs"), "stdlib.h"),
    **dict.fromkeys(("memset", "memcpy", "memmove", "memcmp", "strlen", "strcmp"), "string.h"),
    **dict.fromkeys(("printf", "fprintf", "puts", "FILE", "stderr", "stdout"), "stdio.h"),
    **dict.fromkeys(("assert",), "assert.h"),
    **dict.fromkeys(("INT_MAX", "INT_MIN"), "limits.h"),
}
"""Where names of the standard library are declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One message of gcc.

    `option` is the option that made it an error, such as "-Werror=unused-variable"; "" where there is none.
    """

    kind: str
    message: str
    option: str
    file: str
    line: int
    """0 where gcc reports none; the same holds for `column`."""
    column: int

    @property
    def is_error(self) -> bool:
        """Whether it stops the build."""
        return self.kind in ("error", "fatal error")


def diagnostics_options(gcc_major: int) -> tuple[str, str]:
    """Return the options that make this gcc write its first messages for machines: SARIF from 13 on, JSON before.

    The number of messages is limited because gcc would write 40 MB of SARIF for a file that includes itself.
    """
    form = "sarif-stderr" if gcc_major >= _FIRST_WITH_SARIF else "json"
    return f"-fdiagnostics-format={form}", f"-fmax-errors={_MOST_ERRORS}"


def meaning(diagnostic: Diagnostic, header: str = "") -> str:
    """Return one sentence on what the message means in this homework, whose header has this name."""
    for pattern, sentence in _BY_MESSAGE:
        if pattern.search(diagnostic.message):
            return sentence
    if header and diagnostic.message.startswith(f"{header}: "):
        return f'Write #include "{header}" with quotes: between < and > gcc looks in its own folders only.'
    unknown = _UNKNOWN.search(diagnostic.message)
    name = (unknown["used"] or unknown["undeclared"]) if unknown is not None else ""
    if name in _DECLARED:
        return f"{name} is declared in <{_DECLARED[name]}>; include it."
    option = re.sub("^-W(?!error=)", "-Werror=", diagnostic.option)  # some are errors without -Werror from gcc 14 on
    if option in _MEANINGS:
        return _MEANINGS[option]
    if option.startswith("-Werror="):
        return "The strict flags make every warning an error (-Werror)."
    if diagnostic.kind == "fatal error":
        return (
            "Only this file, the official header and the headers of C on Linux are there; "
            "other files of yours and headers of Windows are not."
        )
    return "This is not valid C; gcc cannot go on here."


def parse(stderr: bytes) -> list[Diagnostic]:
    """Parse what gcc wrote; text that is no diagnostic (such as the closing line) is skipped."""
    diagnostics: list[Diagnostic] = []
    with contextlib.suppress(RecursionError):  # gcc never nests that deep
        for value in _values(stderr.decode(errors="replace")):
            diagnostics += islice(_from_json(value) if isinstance(value, list) else _from_sarif(value), _MOST)
    return diagnostics[:_MOST]


def parse_text(stderr: bytes) -> list[Diagnostic]:
    """Parse what gcc wrote for people: gcc 12 writes nothing for machines when it stops at `_MOST_ERRORS` errors."""
    return [
        _diagnostic(kind, message, option, (file, int(line), int(column)))
        for file, line, column, kind, message, option in islice(
            (match.groups("") for match in _FOR_PEOPLE.finditer(stderr.decode(errors="replace"))), _MOST
        )
    ]


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON lists and objects that begin at the start of a line; from gcc 14 on, each takes many lines."""
    decoder = json.JSONDecoder(strict=False)  # gcc leaves control characters of a message as they are
    end = failed = 0
    while failed < _MOST_FAILURES and (opening := _OPENING.search(text, end)):
        try:
            value, end = decoder.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            end, failed = opening.end(), failed + 1
        else:
            yield value


def _from_json(values: list[Any]) -> Iterator[Diagnostic]:
    """Read the format of gcc 9 to 14: a list of objects; `option` is left out where there is none.

    Notes are children and are skipped. After an error of the preprocessor, other errors are children too; they count.
    """
    for value in values:
        match value:
            case {"kind": str(kind), "message": str(message), **rest}:
                inner = rest.get("children")
                match rest.get("locations"):
                    case [{"caret": {"file": str(file), "line": int(line), "column": int(column)}}, *_]:
                        place = (file, line, column)
                    case _:
                        place = _NOWHERE
                yield _diagnostic(kind, message, str(rest.get("option", "")), place)
                if isinstance(inner, list):
                    yield from (child for child in _from_json(inner) if child.is_error)


def _from_sarif(value: dict[str, Any]) -> Iterator[Diagnostic]:
    """Read the format of gcc 13 and later: one SARIF object.

    `ruleId` is the option or, where there is none, the kind. A fatal error has no `level`, or that of an error. From
    gcc 16 on, braces in a message are doubled, as SARIF requires.
    """
    match value.get("runs"):
        case [{"results": list(results)}, *_]:
            for result in results:
                match result:
                    case {"ruleId": str(rule), "message": {"text": str(text)}, **rest}:
                        option = rule if rule.startswith("-") else ""
                        kind = rule if rule == "fatal error" else str(rest.get("level", rule))
                        message = text.replace("{{", "{").replace("}}", "}")
                        yield _diagnostic(kind, message, option, _sarif_place(rest))


def _sarif_place(result: Mapping[Any, Any]) -> tuple[str, int, int]:
    match result.get("locations"):
        case [{"physicalLocation": {"artifactLocation": {"uri": str(file)}, "region": dict(region)}}, *_]:
            match region.get("startLine", 0), region.get("startColumn", 0):
                case (int(line), int(column)):
                    return file, line, column
    return _NOWHERE


def _diagnostic(kind: str, message: str, option: str, place: tuple[str, int, int]) -> Diagnostic:
    file, line, column = place
    if not 0 <= line <= _MOST_LINE or column > _MOST_LINE:
        line = column = 0
    # where gcc knows no column, its JSON has column -1 and its SARIF has none
    return Diagnostic(kind=kind, message=message, option=option, file=Path(file).name, line=line, column=max(column, 0))
