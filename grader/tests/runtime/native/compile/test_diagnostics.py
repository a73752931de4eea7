"""gcc's messages for machines: JSON up to gcc 12, SARIF from 13 on, and both say the same.

The SARIF here is written as gcc writes it (gcc/diagnostic-format-sarif.cc, SARIF 2.1.0): `ruleId` is the option as
gcc spells it, or the kind of the message where there is none; `level` is left out for a fatal error; `region` begins
at the underlined text; from gcc 14 on the object is spread over many lines.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grader.runtime.native.compile.diagnostics import Diagnostic, diagnostics_options, meaning, parse
from grader.runtime.native.compile.toolchain import gcc_major
from grader.system import process
from grader.system.process import Patience

FILE = "llm_memory.c"

MESSAGES = (
    ("error", "unused variable 'block'", "-Werror=unused-variable", 31, 9),
    ("error", "expected ';' before 'return'", "", 40, 5),
    ("error", "null character(s) ignored", "-Werror", 52, 1),
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


def as_json() -> bytes:
    """The messages as gcc 9 to 12 writes them."""
    found = []
    for kind, text, option, line, column in MESSAGES:
        place = {"file": FILE, "line": line, "display-column": column, "byte-column": column, "column": column}
        note = {"kind": "note", "message": NOTE, "locations": [{"caret": place}], "children": []}
        one: dict[str, object] = {"kind": kind, "message": text, "column-origin": 1, "escape-source": False}
        one |= {"locations": [{"caret": place, "finish": place}], "children": [note]}
        if option:
            one |= {"option": option, "option_url": "https://gcc.gnu.org/onlinedocs/gcc/Warning-Options.html"}
        found.append(one)
    return f"{json.dumps(found)}\ncc1: all warnings being treated as errors\ncompilation terminated.\n".encode()


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


def test_json_is_read() -> None:
    """Kind, text, option and place of each message; notes belong to their message."""
    assert parse(as_json()) == DIAGNOSTICS


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


def test_a_column_that_gcc_does_not_know() -> None:
    """Its JSON says -1 then, its SARIF nothing; both are 0 here, and the line stays."""
    place = {"caret": {"file": FILE, "line": 3, "display-column": -1, "byte-column": -1, "column": -1}}
    in_json = [{"kind": "error", "message": "m", "locations": [place], "children": []}]
    physical = {"artifactLocation": {"uri": FILE}, "region": {"startLine": 3}}
    in_sarif: dict[str, object] = {"ruleId": "error", "level": "error", "message": {"text": "m"}}
    in_sarif["locations"] = [{"physicalLocation": physical}]
    found = parse(json.dumps(in_json).encode()) + parse(json.dumps(sarif([in_sarif])).encode())

    assert [(one.line, one.column) for one in found] == [(3, 0), (3, 0)]


@pytest.mark.parametrize(
    "stderr",
    [
        b"",
        b"compilation terminated.\n",
        b"[",
        b"{}",
        b"[1, null, {}]",
        b'[{"kind": "error", "message": "m", "locations": []',
        b"\xff\xfe[\n{",
        b'{"runs": 3}',
        b'{"runs": []}',
        b'{"runs": [{"results": [3, {}]}]}',
    ],
)
def test_what_is_no_diagnostic_is_passed_over(stderr: bytes) -> None:
    """A compiler that was killed leaves half of it; nothing is made up and nothing breaks."""
    assert parse(stderr) == []


def test_only_errors_fail_a_build() -> None:
    """A warning that -Werror does not reach is none."""
    assert [one.is_error for one in DIAGNOSTICS] == [True, True, True, True, False, True]


def test_each_message_has_a_sentence_on_what_it_means() -> None:
    """An option that we know, one that we do not, a missing header, plain bad C."""
    sentences = [meaning(one) for one in DIAGNOSTICS]

    assert "never used" in sentences[0]
    assert "not valid C" in sentences[1]
    assert "every warning an error" in sentences[2]
    assert "printf" in sentences[3]
    assert "official header" in sentences[5]


def test_the_option_fits_the_compiler() -> None:
    """gcc 15 has no JSON of its own any more, gcc 12 no SARIF."""
    assert [diagnostics_options(major)[0] for major in (9, 12)] == ["-fdiagnostics-format=json"] * 2
    assert [diagnostics_options(major)[0] for major in (13, 14, 15, 16)] == ["-fdiagnostics-format=sarif-stderr"] * 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "int f(void)\n{\n    int unused;\n    return g;\n}\n",
            {("error", "", 4, 12), ("error", "-Werror=unused-variable", 3, 9)},
        ),
        ('#include "mine.h"\n', {("fatal error", "", 1, 10)}),
    ],
)
def test_the_gcc_of_this_machine_is_understood(
    tmp_path: Path, text: str, expected: set[tuple[str, str, int, int]]
) -> None:
    """Whichever it is: a warning, an error and a missing header."""
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    done = process.run(
        ["gcc", "-std=c11", "-Wall", "-Werror", "-c", FILE, *diagnostics_options(gcc_major())],
        cwd=tmp_path,
        limits=Patience(wall_seconds=30),
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
    )
    found = parse(done.stderr)

    assert {(one.kind, one.option, one.line, one.column) for one in found} >= expected
    assert {one.file for one in found} == {FILE}


def test_a_fatal_error_and_braces_as_gcc_16_writes_them() -> None:
    """It gives a fatal error the level of an error and doubles braces, as SARIF wants it."""
    missing = "mine.h: No such file or directory"
    fatal: dict[str, object] = {"ruleId": "fatal error", "level": "error", "message": {"text": missing}}
    option = "-Wimplicit-function-declaration"
    typed: dict[str, object] = {"ruleId": option, "level": "error", "message": {"text": "int {{aka long}}"}}
    found = parse(json.dumps(sarif([fatal, typed])).encode())

    assert [(one.kind, one.message) for one in found] == [
        ("fatal error", missing),
        ("error", "int {aka long}"),
    ]
    assert all(one.is_error for one in found)
    assert "official header" in meaning(found[0])
    assert "no header declares" in meaning(found[1])
