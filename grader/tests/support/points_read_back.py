"""The points in a report, read back from it: all formats must report the same points."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from markdown_it import MarkdownIt

from grader.core.record import Record, from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The score and the points by rule; None where the format does not report a value."""

    score: int
    full: int | None
    passed: bool
    rules: dict[str, tuple[int, int]] | None = None
    lost: dict[str, int] | None = None
    """Points that rules lost, where the format reports only these."""

    @property
    def earning(self) -> dict[str, tuple[int, int]] | None:
        """The rules that are worth something."""
        return None if self.rules is None else {rule: points for rule, points in self.rules.items() if points[1]}

    def agrees(self, other: Told) -> bool:
        """Whether both have the same values, in everything that both report; rules of no points may be left out."""
        mine, theirs = ((one.full, one.earning, one.lost) for one in (self, other))
        pairs = zip(mine, theirs, strict=True)
        return (self.score, self.passed) == (other.score, other.passed) and all(
            None in pair or pair[0] == pair[1] for pair in pairs
        )


def of_record(record: Record) -> Told:
    """Return the points of the record itself."""
    assert record.score is not None
    return Told(
        score=record.score,
        full=record.max_score,
        passed=record.verdict.passed,
        rules={one.rule: (one.points, one.max_points) for one in record.rules},
        lost={one.rule: one.max_points - one.points for one in record.rules if one.points < one.max_points},
    )


def _text(report: str) -> Told:
    head = " ".join(report.partition("\n\n")[0].split())
    points = re.search(r"(accepted|[a-z])(?:,| public part:) (\d+) of (\d+) points", head)
    assert points is not None
    section = report.partition("\nPoints, rule by rule ─")[2].partition("\n\n")[0]
    rows = re.findall(r"^ +(?:-\d+)? +(\d+)/(\d+) +(\S+)", section, re.MULTILINE)
    return Told(
        score=int(points[2]),
        full=int(points[3]),
        passed=points[1] == "accepted",
        rules={rule: (int(got), int(full)) for got, full, rule in rows} or None,
        lost=_lost(report) or None,
    )


def _lost(report: str) -> dict[str, int]:
    """Read the report on one screen: it has a line for each rule that lost points, or one line for all of them."""
    section = report.partition("\nPoints ─")[2].partition("\n\n")[0]
    rows = re.findall(r"^ +-(\d+) +\d+/\d+ +(\S+)", section, re.MULTILINE)
    together = re.split("full marks|nothing lost", section.partition("\n  lost  ")[2])[0]
    return {rule: int(points) for points, rule in rows} | {
        rule: int(points) for rule, points in re.findall(r"(\S+)\s+-(\d+)", together)
    }


def _gradescope(report: str) -> Told:
    results = json.loads(report)
    tests = results["tests"]
    assert results["score"] == sum(test["score"] for test in tests)
    assert all((test["status"] == "passed") == (test["score"] == test["max_score"]) for test in tests)
    return Told(
        score=results["score"],
        full=sum(test["max_score"] for test in tests),
        passed=all(test["status"] == "passed" for test in tests),
        rules={test["tags"][0]: (test["score"], test["max_score"]) for test in tests},
    )


def _classroom50(report: str) -> Told:
    result = json.loads(report)
    tests = result["tests"]
    assert result["score"] == sum(test["score"] for test in tests)
    return Told(
        score=result["score"],
        full=result["max-score"],
        passed=all(test["passed"] for test in tests),
        rules={test["test-name"].partition(":")[0]: (test["score"], test["max-score"]) for test in tests},
    )


def _junit(report: str) -> Told:
    """A suite is green exactly when its rule has all points; with people's decisions it may have skipped cases."""
    rules: dict[str, tuple[int, int]] = {}
    for suite in ET.fromstring(report.encode()):
        values = {one.get("name"): one.get("value", "") for one in suite.iter("property")}
        points, full = int(values["points"]), int(values["max_points"])
        rules[suite.get("name", "")] = points, full
        counted = ("failures", "errors") if "decided" in values else ("failures", "errors", "skipped")
        assert ({suite.get(bad) for bad in counted} == {"0"}) == (points == full)
    score, full = (sum(one[place] for one in rules.values()) for place in (0, 1))
    return Told(score=score, full=full, passed=score == full, rules=rules)


def _sarif(report: str) -> Told:
    """The report has an error exactly when something is wrong; notes cost no points."""
    runs = json.loads(report)["runs"]
    errors = [one for run in runs for one in run["results"] if one["level"] != "note"]
    (points,) = {(run["properties"]["score"], run["properties"]["maxScore"]) for run in runs}
    return Told(score=points[0], full=points[1], passed=not errors)


def _annotations(report: str) -> Told:
    points = re.search(r"^::notice [^:]*::(?:public part: )?(\d+) of (\d+) points", report.splitlines()[-1])
    assert points is not None
    return Told(score=int(points[1]), full=int(points[2]), passed="::error" not in report)


def _gnu(report: str) -> Told:
    points = re.search(r": note: .*?, (?:public part: )?(\d+) of (\d+) points(?:; [a-z ]+)?$", report.splitlines()[-1])
    assert points is not None
    return Told(score=int(points[1]), full=int(points[2]), passed=": error: " not in report)


class _Cells(HTMLParser):
    """The rows of the only table, and the heading."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self.heading = ""
        self.open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self.open = tag if tag in ("td", "th", "h2") else self.open

    def handle_endtag(self, tag: str) -> None:
        self.open = "" if tag == self.open else self.open

    def handle_data(self, data: str) -> None:
        if self.open == "h2":
            self.heading += data
        elif self.open:
            self.rows[-1][-1] += data


def _summary(report: str) -> Told:
    page = _Cells(MarkdownIt("commonmark", {"html": True}).enable("table").render(report))
    points = re.search(r": ([^:]+), (?:public part: )?(\d+) of (\d+) points(?:; [a-z ]+)?$", page.heading)
    assert points is not None
    rules = {}
    for mark, rule, got, *_ in page.rows[1:]:
        earned, full = map(int, got.split(" / "))
        rules[rule] = earned, full
        assert (mark == "✓") == (earned == full)
    return Told(score=int(points[2]), full=int(points[3]), passed=points[1].strip() == "accepted", rules=rules)


def _html(report: str) -> Told:
    head = re.search(
        r'<span class="(good|bad)">.*?</span>\n<span class="points">(?:public part: )?(\d+) of (\d+) points', report
    )
    assert head is not None
    table = report.partition('<h2 id="points">')[2].partition("</table>")[0]
    rows = re.findall(r"</span> (\d+) of (\d+)</td>.*?<td class=\"word\">(?:<strong>)?([\w-]+)", table)
    return Told(
        score=int(head[2]),
        full=int(head[3]),
        passed=head[1] == "good",
        rules={rule: (int(got), int(full)) for got, full, rule in rows} or None,
    )


TOLD: dict[str, Callable[[str], Told]] = {
    "text": _text,
    "json": lambda report: of_record(from_json(report)),
    "gradescope": _gradescope,
    "classroom50": _classroom50,
    "junit": _junit,
    "sarif": _sarif,
    "annotations": _annotations,
    "gnu": _gnu,
    "summary": _summary,
    "html": _html,
}
"""For each format the function that reads its points."""


def _rows(report: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report)))


def _own(report: str) -> dict[str, Told]:
    return {
        row["submission"]: Told(
            score=int(row["score"]), full=int(row["max_score"]), passed=row["verdict"] == "accepted"
        )
        for row in _rows(report)
    }


def _gradescope_export(report: str) -> dict[str, Told]:
    told = {}
    for row in _rows(report):
        titles = [re.fullmatch(r"\d+: (\S+) \((\d+)\.0 pts\)", name) for name in row]
        rules = {one[1]: (int(row[one[0]]), int(one[2])) for one in titles if one is not None and row[one[0]]}
        score, full = int(row["Total Score"]), int(row["Max Points"])
        told[row["Submission ID"]] = Told(score=score, full=full, passed=score == full, rules=rules)
    return told


def _canvas(report: str) -> dict[str, Told]:
    maxima, *rows = csv.reader(io.StringIO(report.partition("\n")[2]))
    return {row[0]: Told(score=int(row[5]), full=int(maxima[5]), passed=row[5] == maxima[5]) for row in rows}


def _json_lines(report: str) -> dict[str, Told]:
    records = [from_json(line) for line in report.splitlines()]
    return {record.submission.name: of_record(record) for record in records}


BOOKS: dict[str, Callable[[str], dict[str, Told]]] = {
    "csv": _own,
    "gradescope-csv": _gradescope_export,
    "canvas-csv": _canvas,
    "jsonl": _json_lines,
}
"""For each table the function that reads its points, by the name of the submission."""
