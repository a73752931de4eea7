"""Find the line of a fault: the one that set or returned a wrong value, or one that runs mostly in calls that go wrong.

The operations that went wrong are played again, traced: after which line did the wrong part of the state change last,
and which `return` was taken?

Then all calls of many cases are traced, each with its steps from the line that ran to the line that ran next. Ochiai's
coefficient says how well a line or a step tells calls that went wrong from right calls: it is 1 if the line or step is
in all calls that went wrong and in no right call. The line with the highest coefficient is reported, with the numbers
of calls, because it need not be the mistake (Abreu, Zoeteweij, van Gemund: On the accuracy of spectrum-based fault
localization, 2007). In C this was tried and found no more mistakes than the lines of stores and returns
(grader.tests.trials.lines_by_mending).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from grader.core.judgement import Difference, Symptom
from grader.core.verdict import SourceLine, Visibility
from grader.runtime.protocol import Comparison, Observations, Origin, Place, Unplaced
from grader.runtime.python.driver import PythonDriver
from grader.runtime.python.play import line_of
from grader.runtime.python.process import PythonProgram, decoded, frames, lines_of, run
from grader.runtime.runs import by_visibility
from grader.system.sandbox import Workspace

_MOST, _MOST_RIGHT = 40, 80
"""The most wrong operations whose lines are searched for, and the most right cases that they are compared with."""
_MOST_RAN = 2_000
"""The most lines of a call, or steps from line to line."""
_SPAN = 2
"""The most lines between a line and those that a report shows with it."""
_CLEARER = 2
"""A step is reported only if it is more than this many times as frequent in calls that went wrong as in right ones."""

_Step = tuple[int, int]
"""The number of a line that ran, and of the line that ran next in the call; the second is 0 for the line alone."""


@dataclass(frozen=True, slots=True)
class _Tracing:
    """What the harness traces in a case, which it plays up to the operation `last`."""

    last: int
    watched: Mapping[str, object]
    """The operation to trace (None: all operations), and the part of the state to read after each line."""


def find_lines(
    work: Workspace,
    program: PythonProgram,
    observed: Observations,
    unplaced: Sequence[Unplaced],
    *,
    driver: PythonDriver,
    compares: bool = True,
) -> Observations:
    """Play cases again, traced, and return the observations with the lines that were found.

    `compares`: compare the calls that went wrong with others, which takes about as long as playing all cases.
    """
    compared = observed.comparisons
    wanted = {case: cause for case, cause in unplaced[:_MOST] if not isinstance(cause, Symptom)}
    play = partial(_traced_again, work, program, compared, driver=driver)
    watched, seconds = play({case: _watched(each, driver) for case, each in wanted.items() if _is_read(each, driver)})
    all_calls = {
        case: _Tracing(compared[case].first_wrong, {"operation": None}) for case in [*wanted, *_right(compared)]
    }
    traced, more = play(all_calls if wanted and compares else {})
    spectrum = _Spectrum(compared, traced, driver.file)
    searched = {}
    for case, difference in wanted.items():
        place = case, difference.operation
        seen = watched.get(place, {})
        origin = _origin(difference, seen, driver, compared[case])
        if not seen.get("raised"):  # the line that raised is better than one that is counted
            origin = spectrum.improved(origin, place, difference)
        if origin != Origin():
            searched[place] = origin
    return replace(observed, searched=searched, spent={**observed.spent, "find lines": seconds + more})


def _right(compared: Sequence[Comparison]) -> Iterable[int]:
    """Return the numbers of at most `_MOST_RIGHT` cases in which nothing went wrong, sampled evenly."""
    right = [
        number
        for number, each in enumerate(compared)
        if each.case.generated is None and each.first_wrong == len(each.case.trace.operations)
    ]
    return right[:: -(-len(right) // _MOST_RIGHT) or 1]


def _traced_again(
    work: Workspace,
    program: PythonProgram,
    compared: Sequence[Comparison],
    plan: Mapping[int, _Tracing],
    *,
    driver: PythonDriver,
) -> tuple[dict[Place, dict[str, Any]], float]:
    """Play these cases, traced. Return what was seen of each traced operation, and the CPU seconds used.

    Public and hidden cases are played in different processes.
    """
    seen: dict[Place, dict[str, Any]] = {}
    spent = 0.0
    for numbers in by_visibility([each.case for each in compared], plan):
        lines = [
            {
                **line_of(number, compared[number].case.trace.operations[: plan[number].last + 1]),
                "watched": plan[number].watched,
            }
            for number in numbers
        ]
        total = max(0.1, min(work.budget.limits.second_replay - spent, work.budget.cpu))
        done = run(work, program, driver, lines, total=total)
        spent += done.cpu_seconds
        seen |= _seen(done.channels[0], plan)
    return seen, spent


def _seen(content: bytes, plan: Mapping[int, _Tracing]) -> dict[Place, dict[str, Any]]:
    """Return the reports on traced operations; under "raised", where a refusal was raised."""
    seen: dict[Place, dict[str, Any]] = {}
    done: Counter[int] = Counter()
    for frame in frames(content):
        if frame.case not in plan:
            continue
        place = frame.case, done[frame.case]
        if frame.kind == "B":
            seen = {(case, at): each for (case, at), each in seen.items() if case != frame.case}
            done[frame.case] = 0
        elif frame.kind == "S":
            done[frame.case] += 1
        elif frame.kind == "L":
            seen.setdefault(place, {}).update(decoded(frame.body))
        elif frame.kind == "R":
            seen.setdefault(place, {})["raised"] = decoded(frame.body).get("lines")
    return seen


def _part(difference: Difference, driver: PythonDriver) -> str:
    """Return the name of the part of the state that holds the wrong facet; "" for a reply."""
    return driver.parts.get(difference.place or difference.facet, "")


def _is_read(difference: Difference, driver: PythonDriver) -> bool:
    """Return whether the wrong value is read from the program; a part that is derived cannot be traced."""
    part = _part(difference, driver)
    return not part or part in driver.reads


def _watched(difference: Difference, driver: PythonDriver) -> _Tracing:
    """Return what makes the harness play a case up to the wrong operation, and trace that operation."""
    at = difference.operation
    entry = difference.entry or _cell(difference)
    return _Tracing(at, {"operation": at, "read": _part(difference, driver), "entry": entry})


def _cell(difference: Difference) -> str:
    """Return the first index at which two lists differ; "" if one of them has no such index, or there are no lists."""
    try:
        wanted, actual = json.loads(difference.expected), json.loads(difference.actual)
    except ValueError:  # it is cut because it is too long, or it is described in words
        return ""
    if not isinstance(wanted, list) or not isinstance(actual, list):
        return ""
    pairs = enumerate(zip(wanted, actual, strict=False))
    return next((str(place) for place, (one, other) in pairs if one != other), "")


def _origin(difference: Difference, seen: Mapping[str, Any], driver: PythonDriver, comparison: Comparison) -> Origin:
    """Return the lines that set a wrong value or returned it, as far as they are known."""
    file, part = driver.file, _part(difference, driver)
    if not _is_read(difference, driver):  # the lab's `Derive` gave the lines
        numbers = comparison.played.steps[difference.operation].lines.get(part, ())
        return Origin(lines=tuple(SourceLine(file=file, line=number) for number in numbers if number))
    if not part:
        return Origin(lines=lines_of(seen.get("raised") or seen.get("returned"), file))
    changed = seen.get("changed")
    if changed == []:
        call = comparison.case.trace.operations[difference.operation].name
        return Origin(sentence=f"{call} never changed {difference.in_words}.")
    stored = lines_of(changed, file)
    return Origin(lines=stored, stored=bool(stored))


class _Spectrum:
    """The steps of all traced calls, counted in those that went wrong and in those that were right."""

    def __init__(self, compared: Sequence[Comparison], traced: Mapping[Place, Mapping[str, Any]], file: str) -> None:
        ran = (lines_of(seen.get("ran"), file, most=_MOST_RAN) for seen in traced.values())
        self.lines = {line.line: line for lines in ran for line in lines}
        self.steps = {place: frozenset(_steps(seen)) for place, seen in traced.items()}
        self.compared = compared
        wrong = {place for place in traced if place[1] in compared[place[0]].wrong}
        self.places = wrong, traced.keys() - wrong
        self.wrong, self.right = (Counter(step for place in part for step in self.steps[place]) for part in self.places)

    def improved(self, origin: Origin, place: Place, difference: Difference) -> Origin:
        """Return the origin of a fault at this place, with the most suspicious line if it tells calls apart clearly.

        At least half of the calls that went wrong must have it. The origin's own line stays if it is as suspicious.
        """
        known = [line.line for line in origin.lines[:1]]
        step = self._most_suspicious(self.steps.get(place, frozenset()), known)
        if step is None or step[0] not in self.lines:
            return origin
        (wrong, all_wrong), (right, all_right) = self._counts(step, self.compared[place[0]].case.visibility)
        if 2 * wrong < all_wrong or wrong * all_right <= _CLEARER * right * all_wrong:
            return origin  # several mistakes, or a mistake that no single line shows
        line, then = step
        lines, also = origin.lines, origin.sentence
        if line not in known:
            lines = (self.lines[line],)
            also = f"{origin.lines[0]} set {difference.in_words} last." if origin.stored else also
        what = f"{self.lines[line]} {f'was followed by line {then}' if then else 'ran'}"
        calls = "the one call" if all_wrong == 1 else f"{_of(wrong, all_wrong)} calls"
        told = f"In {calls} that went wrong, and in {_of(right, all_right)} that were right, {what}."
        return replace(origin, lines=lines, sentence=" ".join(filter(None, [also, told])))

    def _counts(self, step: _Step, visibility: Visibility) -> Iterator[tuple[int, int]]:
        """Yield the numbers of calls with this step and of all calls: of those that went wrong, then of the right ones.

        Only cases with this visibility count: the report on a public case must not use hidden cases.
        """
        for part in self.places:
            places = [place for place in part if self.compared[place[0]].case.visibility is visibility]
            yield sum(step in self.steps[place] for place in places), len(places)

    def _most_suspicious(self, steps: Iterable[_Step], known: Sequence[int]) -> _Step | None:
        """Return the most suspicious of these steps; None if no call that went wrong has any of them.

        Of equally suspicious lines, a line of `known` is taken, or else the line with the most of the others near it.
        """
        scores = {step: self._ochiai(step) for step in steps}
        most = max(scores.values(), default=0.0)
        first = {line: then for (line, then), score in sorted(scores.items(), reverse=True) if score == most > 0}
        if not first:
            return None
        line = max(first, key=lambda line: (line in known, sum(abs(line - other) <= _SPAN for other in first), line))
        return line, first[line]

    def _ochiai(self, step: _Step) -> float:
        wrong = self.wrong[step]
        return wrong / math.sqrt(len(self.places[0]) * (wrong + self.right[step])) if wrong else 0.0


def _steps(seen: Mapping[str, Any]) -> Iterator[_Step]:
    """Yield the steps of a traced call; malformed entries of a forged report are skipped."""
    steps = seen.get("steps")
    for pair in steps[:_MOST_RAN] if isinstance(steps, list) else ():
        if isinstance(pair, list) and [*map(type, pair)] == [int, int]:
            yield pair[0], pair[1]


def _of(count: int, everything: int) -> str:
    return f"all {everything}" if count == everything else f"{count or 'none'} of the {everything}"
