"""SARIF 2.1.0: one run for each tool that was used, with its findings and their lines.

A tool that found nothing has a run without results, which closes what an earlier run reported. Advice and decisions of
people have runs of their own. A problem that costs no point is never reported as an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from grader.core.record import Record
from grader.core.verdict import RuleScore, SourceLine, Tool
from grader.report.document import Document, View, as_sarif
from grader.report.phrases import counted, part_of, said_of
from grader.report.problems import Problem, advised, decided, each_found, file_of

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"


def render(record: Record, view: View) -> Document:
    """Return the whole log."""
    problems = list(each_found(record, view.audience))
    runs = [
        _run(record, name, version, [problem for problem in problems if problem.tool is tool])
        for tool, name, version in _tools(record, problems)
    ]
    if record.outcomes or record.advice:
        runs.append(_run(record, "advice", record.environment.grader, list(advised(record))))
    if record.overrides:
        runs.append(_run(record, "people", "", list(decided(record))))
    return as_sarif({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs})


_ORDER = (Tool.BUILD, Tool.SCAN, Tool.REPLAY, Tool.MEMORY_CHECKER)


def _tools(record: Record, problems: list[Problem]) -> Iterator[tuple[Tool, str, str]]:
    """Yield the tools that looked for faults, each with its name and version, even if they found nothing."""
    environment = record.environment
    used = {used_tool.tool: used_tool for used_tool in environment.tools}
    wanted = {problem.tool for problem in problems}
    if record.submission.sha256:
        wanted.add(Tool.BUILD)
    if record.outcomes:
        wanted |= {Tool.SCAN, Tool.REPLAY} | (used.keys() & {Tool.MEMORY_CHECKER})
    for tool in _ORDER:
        if tool in wanted and tool in used:
            yield tool, used[tool].name.lower(), used[tool].version
        elif tool in wanted:
            yield tool, tool.value, "" if tool is Tool.BUILD else environment.grader


def _run(record: Record, tool: str, version: str, problems: list[Problem]) -> dict[str, Any]:
    named = dict.fromkeys(problem.rule for problem in problems)
    rules = [_rule(rule) for rule in record.rules if rule.rule in named]
    if tool == "advice":
        rules = [_kind(kind) for kind in named]
    places = {rule["id"]: place for place, rule in enumerate(rules)}
    driver = {"name": tool, "rules": rules} | ({"version": version} if version else {})
    return {
        "tool": {"driver": driver},
        "originalUriBaseIds": {_ROOT: {"description": {"text": "The top of the repository."}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(record, tool, problem, places) for problem in problems],
        "properties": {
            "verdict": record.verdict,
            "score": record.score,
            "maxScore": record.max_score,
            **({"part": part_of(record)} if record.public_only else {}),
        },
    }


def _rule(rule: RuleScore) -> dict[str, Any]:
    return {
        "id": rule.rule,
        "name": rule.rule,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.title} (handout: {rule.handout})"},
        "help": {"text": f"Read the handout: {rule.handout}."},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": [rule.rule], "points": rule.points, "maxPoints": rule.max_points},
    }


def _kind(kind: str) -> dict[str, Any]:
    """Return the entry for a kind of advice in the log's list of rules."""
    what = kind.replace("-", " ")
    return {
        "id": kind,
        "name": kind,
        "shortDescription": {"text": f"Advice: {what}"},
        "fullDescription": {"text": f"Advice, which costs no point: {what}"},
        "help": {"text": "It costs no point; the handout does not ask for it."},
        "defaultConfiguration": {"level": "note"},
        "properties": {"tags": ["advice"]},
    }


def _result(record: Record, tool: str, problem: Problem, places: dict[str, int]) -> dict[str, Any]:
    times = len(problem.cases)
    seen = f" Seen in {counted(times, 'case')}." if times > 1 and problem.kind != "hidden" else ""
    result: dict[str, Any] = {
        "ruleId": problem.rule,
        "level": "note" if problem.is_note else "error",
        "message": {"text": problem.message + seen},
        "locations": [_location(record, problem.source[0] if problem.source else None)],
        "partialFingerprints": {"cause/v1": _fingerprint(tool, problem)},
        "occurrenceCount": max(1, times),
    }
    if record.overrides:  # on all results or on none (SARIF 2.1.0, 3.27.23)
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": said_of(override)}
            for override in problem.settled_by
        ]
    if problem.rule in places:
        result["ruleIndex"] = places[problem.rule]
    if len(problem.source) > 1:
        steps = [{"location": _location(record, line)} for line in reversed(problem.source)]
        result["codeFlows"] = [{"threadFlows": [{"locations": steps}]}]
    return result


def _location(record: Record, line: SourceLine | None) -> dict[str, Any]:
    """Return the location of a line of the student's file, or of the file."""
    place: dict[str, Any] = {"artifactLocation": _artifact(file_of(record))}
    location: dict[str, Any] = {"physicalLocation": place}
    if line is not None:
        place["region"] = {"startLine": max(1, line.line)} | ({"startColumn": line.column} if line.column > 0 else {})
        if line.function:
            location["logicalLocations"] = [{"name": line.function, "kind": "function"}]
    return location


def _artifact(path: str) -> dict[str, str]:
    """Return a path from the top of the repository, where the grader is called; an absolute path stays absolute."""
    if PurePosixPath(path).is_absolute():
        return {"uri": f"file://{quote(path)}"}
    return {"uri": quote(path), "uriBaseId": _ROOT}


def _fingerprint(tool: str, problem: Problem) -> str:
    """Return a hash of a problem without its lines, so that the same cause on another line is not reported as new."""
    functions = [line.function for line in problem.source if line.function]
    known = "\0".join([tool, problem.rule, problem.kind, *(functions or [problem.message])])
    return hashlib.sha256(known.encode()).hexdigest()[:16]
