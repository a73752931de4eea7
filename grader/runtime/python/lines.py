"""Find the lines behind wrong states and replies: each wrong operation is played once more and traced."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from grader.core.judgement import Difference
from grader.core.verdict import SourceLine
from grader.runtime.protocol import Named, Observations, Program, Unplaced
from grader.runtime.python.build import PythonProgram
from grader.runtime.python.driver import PythonDriver
from grader.runtime.python.play import line_of
from grader.runtime.python.process import decoded, frames, lines_of, run
from grader.runtime.runs import by_visibility
from grader.system.sandbox import Workspace

_MOST = 40
"""The most operations that are traced."""
_MOST_RAN = 200
_MOST_COMMAS = 3
"""More lines than a sentence can list are not listed."""


def find_lines(
    work: Workspace,
    program: Program,
    observed: Observations,
    unplaced: Sequence[Unplaced],
    *,
    driver: PythonDriver,
) -> Observations:
    """Return the observations with the lines that could be found; public and hidden cases in processes of their own."""
    wanted = {fault.case: fault for fault in unplaced[:_MOST] if fault.difference is not None}
    derived = {case: fault for case, fault in wanted.items() if _is_derived(fault, driver)}
    wanted = {case: fault for case, fault in wanted.items() if case not in derived}
    named = {
        (case, fault.operation): Named(lines=lines)
        for case, fault in derived.items()
        if (lines := _known(fault, driver))
    }
    spent = 0.0
    cases = [comparison.case for comparison in observed.comparisons]
    modules = program.modules if isinstance(program, PythonProgram) else ()
    for numbers in by_visibility(cases, wanted):
        plan = [_watched(wanted[number], driver) for number in numbers]
        total = max(0.1, min(work.budget.limits.second_replay - spent, work.budget.cpu))
        done = run(work, program.content, driver, plan, modules=modules, total=total)
        spent += done.cpu_seconds
        for number, heard in _heard(done.channels[0], wanted).items():
            lines_known = _named(wanted[number], heard, driver)
            if lines_known is not None:
                named[number, wanted[number].operation] = lines_known
    return replace(observed, named=named, spent={**observed.spent, "find lines": spent})


def _part(fault: Unplaced, driver: PythonDriver) -> str:
    """The name in the state that the wrong facet is in; "" for a reply."""
    difference = fault.difference
    return driver.parts.get(difference.place or difference.facet, "") if difference is not None else ""


def _is_derived(fault: Unplaced, driver: PythonDriver) -> bool:
    """Whether the wrong part of the state is none that is read of the program, so that nothing of it can be traced."""
    part = _part(fault, driver)
    return part != "" and part not in driver.reads


def _known(fault: Unplaced, driver: PythonDriver) -> tuple[SourceLine, ...]:
    """The lines that the lab itself knows of."""
    lines = fault.comparison.played.steps[fault.operation].lines.get(_part(fault, driver), ())
    return tuple(SourceLine(file=driver.file, line=line) for line in lines if line)


def _watched(fault: Unplaced, driver: PythonDriver) -> dict[str, object]:
    """The line of the plan for a case that is played up to the wrong operation, which is traced."""
    operations = fault.comparison.case.trace.operations[: fault.operation + 1]
    difference = fault.difference
    facet, entry = (difference.place or difference.facet, difference.entry) if difference is not None else ("", "")
    watched = {"operation": fault.operation, "read": driver.parts.get(facet), "entry": entry or _cell(difference)}
    return {**line_of(fault.case, operations), "watched": watched}


def _cell(difference: Difference | None) -> str:
    """The first entry in which two lists differ; "" where it is none that both have."""
    if difference is None:
        return ""
    try:
        wanted, actual = json.loads(difference.expected), json.loads(difference.actual)
    except ValueError:  # too long to be shown whole, or in words
        return ""
    if not isinstance(wanted, list) or not isinstance(actual, list):
        return ""
    pairs = enumerate(zip(wanted, actual, strict=False))
    return next((str(place) for place, (mine, theirs) in pairs if mine != theirs), "")


def _heard(content: bytes, wanted: Mapping[int, Unplaced]) -> dict[int, dict[str, Any]]:
    """What the traced operations reported, by case: lines of a refusal under "raised", besides what `Watch` saw."""
    heard: dict[int, dict[str, Any]] = {}
    done: Counter[int] = Counter()
    for frame in frames(content):
        if frame.kind == "B":
            heard.pop(frame.case, None)
            done[frame.case] = 0
        elif frame.kind == "S":
            done[frame.case] += 1
        elif frame.case in wanted and done[frame.case] == wanted[frame.case].operation:
            if frame.kind == "L":
                heard.setdefault(frame.case, {}).update(decoded(frame.body))
            elif frame.kind == "R":
                heard.setdefault(frame.case, {})["raised"] = decoded(frame.body).get("lines")
    return heard


def _named(fault: Unplaced, heard: Mapping[str, Any], driver: PythonDriver) -> Named | None:
    """Return the lines for a difference; None when nothing is known that helps."""
    difference, file = fault.difference, driver.file
    assert difference is not None
    if (difference.place or difference.facet) not in driver.parts:  # a reply
        lines = lines_of(heard.get("raised") or heard.get("returned"), file)
        return Named(lines=lines) if lines else None
    changed = lines_of(heard.get("changed"), file)
    if changed:
        return Named(lines=changed, stored=True)
    ran = lines_of(heard.get("ran"), file, most=_MOST_RAN)
    if not ran:
        return None
    ((function, _),) = Counter(line.function for line in sorted(ran, key=lambda line: line.line)).most_common(1)
    spans = _spans([line for line in ran if line.function == function])
    if spans.count(",") > _MOST_COMMAS:
        return Named(sentence=f"No line of {function} that ran changed {difference.in_words}.")
    it = "none of them" if spans.startswith("Lines") or heard.get("calls") else "it never"
    ran_too = ", with what they call" if heard.get("calls") else ""
    return Named(sentence=f"{spans} of {function} in {file} ran{ran_too}; {it} changed {difference.in_words}.")


def _spans(lines: Sequence[SourceLine]) -> str:
    """Lines in words: "Lines 7 to 9 and 12"."""
    spans: list[list[int]] = []
    for line in sorted({entry.line for entry in lines}):
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in spans]
    return ("Lines " if len(words) > 1 or " to " in words[0] else "Line ") + " and ".join(
        filter(None, [", ".join(words[:-1]), words[-1]])
    )
