"""gcc's messages for machines: JSON up to gcc 12, SARIF from 13 on, and both say the same.

The SARIF here is written as gcc writes it (gcc/diagnostic-format-sarif.cc, SARIF 2.1.0): `ruleId` is the option as
gcc spells it, or the kind of the message where there is none; `level` is left out for a fatal error; `region` begins
at the underlined text; from gcc 14 on the object is spread over many lines.
"""

from __future__ import annotations

import json

import pytest

from grader.runtime.native.compile.diagnostics import Diagnostic, meaning, parse

FILE = "llm_memory.c"

MESSAGES = (
    ("error", "unused variable 'block'", "-Werror=unused-variable", 31, 9),
    ("error", "expected ';' before 'return'", "", 40, 5),
    ("error", "extra tokens at end of #include directive", "-Werror", 52, 1),
    ("error", "format '%d' expects argument of type 'int'", "-Werror=format=", 60, 14),
    ("warning", "unused parameter 'engine'", "-Wunused-parameter", 61, 20),
    ("fatal error", "mine.h: No such file or directory", "", 1, 10),
)
"""Kind, text, option, line and column of messages as gcc gives them."""

DIAGNOSTICS = [
    Diagnostic(kind=kind, message=text, option=option, file=FILE, line=line, column=column)
    for kind, text, option, line, column in MESSAGES
]

NOTE = "each undeclared identifier is reported only once"


def location(line: int, column: int) -> dict[str, object]:
    """A SARIF location (section 3.28)."""
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": FILE, "uriBaseId": "PWD"},
            "region": {"startLine": line, "startColumn": column, "endColumn": column + 5},
            "contextRegion": {"startLine": line, "snippet": {"text": "    int block;\n"}},
        },
        "logicalLocations": [{"name": "append_kv", "fullyQualifiedName": "append_kv", "kind": "function"}],
    }


def sarif(results: list[dict[str, object]]) -> dict[str, object]:
    """A whole SARIF log (section 3.13)."""
    driver = {"name": "GNU C11", "version": "14.2.0", "informationUri": "https://gcc.gnu.org/gcc-14/"}
    rules = [{"id": option, "helpUri": "https://gcc.gnu.org"} for _, _, option, _, _ in MESSAGES if option]
    return {
        "$schema": "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {**driver, "rules": rules}},
                "invocations": [{"executionSuccessful": False, "toolExecutionNotifications": []}],
                "originalUriBaseIds": {"PWD": {"uri": "file:///tmp/grade-x/"}},
                "artifacts": [{"location": {"uri": FILE, "uriBaseId": "PWD"}, "contents": {"text": "[\n{\n"}}],
                "results": results,
            }
        ],
    }


def results() -> list[dict[str, object]]:
    """The messages as SARIF results (section 3.27)."""
    found = []
    for kind, text, option, line, column in MESSAGES:
        one: dict[str, object] = {"ruleId": option or kind}
        if kind != "fatal error":
            one["level"] = kind
        one |= {"message": {"text": text}, "locations": [location(line, column)]}
        one["relatedLocations"] = [{**location(line, column), "message": {"text": NOTE}}]
        found.append(one)
    return found


@pytest.mark.parametrize("indent", [None, 2], ids=["gcc 13", "gcc 14"])
def test_sarif_says_the_same_as_json(indent: int | None) -> None:
    """On one line or on many, before gcc's closing words."""
    text = json.dumps(sarif(results()), indent=indent)

    assert parse(f"{text}\ncompilation terminated.\n".encode()) == DIAGNOSTICS


def test_a_sarif_message_without_a_place() -> None:
    """Such as gcc's own complaint that it has no memory; the other messages stay."""
    nowhere: dict[str, object] = {
        "ruleId": "error",
        "level": "error",
        "message": {"text": "too big"},
        "locations": [{}],
    }
    found = parse(json.dumps(sarif([nowhere, *results()])).encode())

    assert [one.message for one in found] == ["too big", *(text for _, text, _, _, _ in MESSAGES)]
    assert (found[0].line, found[0].column) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "message", "option", "sentence"),
    [
        ("error", "multi-line comment", "-Werror=comment", "The line ends in a backslash"),
        ("error", "'/*' within comment", "-Werror=comment", "A comment starts inside a comment"),
        ("error", "ISO C forbids an empty translation unit", "-Werror=pedantic", "There is no code in the file"),
        ("fatal error", "hw.h: No such file or directory", "", 'Write #include "hw.h" with quotes'),
        ("fatal error", "mine.h: No such file or directory", "", "Only this file, the official header and the headers"),
        ("error", "null character(s) ignored", "-Werror", "There are null bytes in it"),
        ("error", "unknown type name 'bool'", "", "bool is declared in <stdbool.h>"),
        ("error", "'NULL' undeclared (first use in this function)", "", "NULL is declared in <stddef.h>"),
        ("error", "'seq' undeclared (first use in this function)", "", "This is not valid C"),
    ],
)
def test_a_message_is_explained_by_what_it_says(kind: str, message: str, option: str, sentence: str) -> None:
    """Where its option is that of other messages too, or where it has none."""
    diagnostic = Diagnostic(kind=kind, message=message, option=option, file=FILE, line=1, column=1)

    assert meaning(diagnostic, "hw.h").startswith(sentence)


def test_each_message_has_a_sentence_on_what_it_means() -> None:
    """An option that we know, one that we do not, a missing header, plain bad C."""
    sentences = [meaning(one) for one in DIAGNOSTICS]

    assert "never used" in sentences[0]
    assert "not valid C" in sentences[1]
    assert "every warning an error" in sentences[2]
    assert "printf" in sentences[3]
    assert "official header" in sentences[5]
