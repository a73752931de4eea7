"""Readers of the reports: a real reader of each format, and the further demands of its publisher."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from jsonschema_rs import Draft4Validator, Draft202012Validator
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from grader.core import record as records
from grader.report.document import View
from grader.tests.support.injected import Page, obeyed
from grader.tests.support.web_reader import reads_page

RUNNER = {
    "CLASSROOM": "c",
    "ASSIGNMENT": "a",
    "SUBMISSION_TAG": "submit/1",
    "COMMIT_URL": "https://example.org/c",
    "RELEASE_URL": "https://example.org/r",
}
"""The variables that Classroom 50's runner puts into the environment."""

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\ud800-\udfff]")
_SCHEMAS = Path(__file__).parent / "schemas"


def _reads_text(report: str, view: View) -> None:
    """Read as a terminal and as a runner: no control sequence except the grader's own colours, no command."""
    assert not _STEERING.search(re.sub(r"\x1b\[[\d;]*m", "", report) if view.colour else report)
    assert report.encode("utf-8")
    if view.workflow:
        assert obeyed(report) == []


def reads_json(report: str, view: View) -> None:
    """Validate the record against its published schema."""
    _record_validator().validate(_json(report))


def _json(report: str) -> Any:
    """Read as any JSON reader does, as a runner whose log it is printed to, and as a browser in whose page it is."""
    page = Page(f"<script>{report}</script><p>")

    assert page.elements == ["script", "/script", "p"]
    assert json.loads(page.text) == json.loads(report)
    assert obeyed(report) == []
    assert not _STEERING.search(report)
    return json.loads(report)


@cache
def _record_validator() -> Draft202012Validator:
    return Draft202012Validator(records.schema())


def _object(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_TEXT, _NUMBER, _TRUTH = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
_NAME, _WHOLE = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
_GRADESCOPE = _object(
    {"output": _TEXT, "output_format": {"const": "text"}, "test_output_format": {"const": "text"}},
    {
        "score": _NUMBER,
        "test_name_format": {"const": "text"},
        "visibility": {"const": "visible"},
        "extra_data": {"type": "object"},
        "tests": {
            "type": "array",
            "items": _object(
                {
                    "score": _NUMBER,
                    "max_score": _NUMBER,
                    "status": {"enum": ["passed", "failed"]},
                    "name": _TEXT,
                    "number": {"type": "string", "pattern": r"^\d+$"},
                    "output": _TEXT,
                    "tags": {"type": "array", "items": _TEXT},
                    "visibility": {"const": "visible"},
                }
            ),
        },
    },
)
"""Gradescope publishes a page, no schema; this is that page as a schema. One hidden test would hide the total from
students."""

_CLASSROOM50 = _object(
    {
        "schema": {"const": "classroom50/result/v1"},
        "score": _WHOLE,
        "max-score": _WHOLE,
        "tests": {
            "type": "array",
            "items": _object(
                {"test-name": _NAME, "passed": _TRUTH, "score": _WHOLE, "max-score": _WHOLE}, {"message": _NAME}
            ),
        },
    },
    {
        "submission": {"type": "string", "pattern": "^submit/"},
        "datetime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ$"},
        **dict.fromkeys(("classroom", "assignment", "commit", "release", "review"), _NAME),
        "part": _NAME,
    },
)
"""What Classroom 50's runner demands of a result (foundation50/classroom50: schemas/result-v1.schema.json,
`validate_result` of its script runner.py), except for the fields that it sets itself before it validates: owner,
assignment_type, graded_at, submitted_by. The rules were read there, and reports of all samples were checked
against them."""


def _reads_gradescope(report: str, view: View) -> None:
    """Validate against the published description."""
    Draft202012Validator(_GRADESCOPE).validate(_json(report))


def _reads_classroom50(report: str, view: View) -> None:
    """Validate as Classroom 50's runner does; where its variables are set, all fields from them must be present."""
    result = _json(report)

    Draft202012Validator(_CLASSROOM50).validate(result)
    assert all(one["score"] <= one["max-score"] for one in (result, *result["tests"]))
    if view.variables:
        assert {*result, "part"} == _CLASSROOM50["properties"].keys()


_JUNIT = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "properties": set(),
    "property": {"name", "value"},
    "testcase": {"classname", "name"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"message"},
}
"""The elements and attributes that reports use. All of them are in junit-10.xsd, with which Jenkins' xUnit plugin
validates files (jenkinsci/xunit-plugin, org/jenkinsci/plugins/xunit/types/model/xsd), and are read by Jenkins itself,
GitLab and GitHub's actions. Reports of all samples were valid by this schema when this was written."""
_INSIDE = {"testsuites": "testsuite", "testsuite": "properties testcase", "properties": "property"}
_ENDS = "failure error skipped"


def _reads_junit(report: str, view: View) -> None:
    """Read as junitparser does; every count must be right, and names unique: in GitLab one case hides another."""
    read = JUnitXml.fromstring(report.encode())
    root = ET.fromstring(report.encode())
    suites = [(suite, list(suite)) for suite in read]
    names = [(case.classname, case.name) for _, cases in suites for case in cases]

    assert all(set(element.attrib) <= _JUNIT[element.tag] for element in root.iter())
    assert all({"name", "tests", "failures", "errors"} <= set(suite.attrib) for suite in root)
    assert all(
        part.tag in _INSIDE.get(element.tag, _ENDS if element.tag == "testcase" else "").split()
        for element in root.iter()
        for part in element
    )
    assert all(element.get("time") is None for element in root.iter())
    assert all(case.name and case.classname and len(case.result) <= 1 for _, cases in suites for case in cases)
    assert all(not case.is_failure or case.result[0].text for _, cases in suites for case in cases)
    assert len(set(names)) == len(names) > 0
    for suite, cases in suites:
        ends = [type(case.result[0]).__name__ for case in cases if case.result]
        assert (suite.tests, suite.failures) == (len(cases), ends.count("Failure"))
        assert (suite.errors, suite.skipped) == (ends.count("Error"), ends.count("Skipped"))
    for count in ("tests", "failures", "errors"):
        assert int(root.get(count, "")) == sum(getattr(suite, count) for suite, _ in suites)


_SARIF_LINK = re.compile(r"(?<!\\)(?:\\\\)*\[(?:[^\\\]]|\\.)*\]\(")


@cache
def _sarif_validator() -> Draft4Validator:
    published = (_SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8")
    return Draft4Validator(json.loads(published.replace("{2}]?$", r"{2}\\]?$")))  # this "]" is not valid ECMAScript


def _reads_sarif(report: str, view: View) -> None:
    """Validate against the published schema and GitHub's further demands; no message may have a link or an argument."""
    log = _json(report)
    _sarif_validator().validate(log)

    for run in log["runs"]:
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert all(len(rule["properties"]["tags"]) <= 20 for rule in run["tool"]["driver"]["rules"])
        assert len(run["results"]) <= 5000
        assert len({"suppressions" in result for result in run["results"]}) <= 1
        for result in run["results"]:
            assert rules[result["ruleIndex"]] == result["ruleId"]
            assert result["locations"]
            assert result["partialFingerprints"]
            assert urlsplit(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]).path
    for text in _texts(log):
        assert text
        assert not _SARIF_LINK.search(text)
        assert not re.search(r"[{}]", re.sub(r"\{\{|\}\}", "", text))
    assert len({run["tool"]["driver"]["name"] for run in log["runs"]}) == len(log["runs"]) <= 20


def _texts(value: Any) -> list[str]:
    """Return every message of a log."""
    if isinstance(value, dict):
        own = [value["text"]] if isinstance(value.get("text"), str) else []
        return own + [text for one in value.values() for text in _texts(one)]
    return [text for one in value for text in _texts(one)] if isinstance(value, list) else []


def _reads_annotations(report: str, view: View) -> None:
    """Read as a runner does: every line must be one of the grader's commands, and GitHub must show them all."""
    lines = report.splitlines()
    commands = [re.fullmatch(r"::(error|notice)((?: [a-z]+=[^,:]*)(?:,[a-z]+=[^,:]*)*)::(.+)", line) for line in lines]
    names = [command[1] for command in commands if command is not None]

    assert obeyed(report) == lines
    assert len(names) == len(lines)
    assert max(names.count("error"), names.count("notice")) <= 10
    for command in commands:
        assert command is not None
        assert {part.partition("=")[0] for part in command[2].strip().split(",")} <= {"file", "line", "col", "title"}
    assert not _STEERING.search(report)


def _reads_gnu(report: str, view: View) -> None:
    """Read as an editor's problem matcher does, line by line; the last line has the points."""
    if view.workflow:
        assert obeyed(report) == []
    lines = report.splitlines()[1:-1] if view.workflow else report.splitlines()
    matched = [re.fullmatch(r"(.+?)(?::([1-9]\d*))?(?::([1-9]\d*))?: (error|note): (.+)", line) for line in lines]

    assert all(matched)
    assert matched[-1] is not None
    assert matched[-1][4] == "note"
    assert len({one[1] for one in matched if one is not None}) == 1
    assert not _STEERING.search(report)


def _summary_page(report: str) -> Page:
    """Return the page that GitHub makes of a summary."""
    return Page(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(report))


def _reads_summary(report: str, view: View) -> None:
    """Read as GitHub does: a heading, a table and a text, without any link, picture or markup from outside."""
    page = _summary_page(report)
    table = {"table", "thead", "tbody", "tr", "th", "th style", "td", "td style", "code", "strong"}

    assert set(page.elements) <= {part for one in table | {"h2", "pre"} for part in (one, f"/{one.split()[0]}")}
    assert [page.elements.count(one) for one in ("h2", "pre", "/pre")] == [1, 1, 1]
    assert not re.search(r"@\w|#\d|://|:\w+:", page.text)
    assert len(report.encode()) < 1 << 20


READERS: dict[str, Callable[[str, View], None]] = {
    "text": _reads_text,
    "json": reads_json,
    "gradescope": _reads_gradescope,
    "classroom50": _reads_classroom50,
    "junit": _reads_junit,
    "sarif": _reads_sarif,
    "annotations": _reads_annotations,
    "gnu": _reads_gnu,
    "summary": _reads_summary,
    "html": reads_page,
}
"""A real reader for each format. A format without a reader is not finished."""
