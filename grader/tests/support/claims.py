"""What the first cause of a report claims, checked against what was observed of its case: a function for each kind.

Each takes a record and yields what is false. A claim that a function does not know is not checked by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from grader.core.record import Record
from grader.core.verdict import Cause, Outcome, StepShown, Visibility
from grader.labs import open_lab
from grader.runtime.native.project import CProject

_PLACE = re.compile(r"([\w.]+\.(?:c|h|py)):(\d+)")


def _first(record: Record) -> tuple[Cause, Outcome | None, StepShown | None]:
    cause = record.first_cause
    assert cause is not None
    outcome = record.outcome(cause.cases[0]) if cause.cases else None
    steps = outcome.steps if outcome is not None else ()
    return cause, outcome, next((step for step in steps if step.number == cause.operation), None)


def _text_of(record: Record, line: int) -> str:
    source = record.submission.source
    return source[line - 1] if 0 < line <= len(source) else ""


def _steps(record: Record) -> Iterator[StepShown]:
    """The operations that were played of all cases that a report shows."""
    for outcome in record.outcomes:
        yield from (step for step in outcome.steps if step.actual is not None)


def _name(step: StepShown) -> str:
    return next((word for word in step.call.split() if not word.startswith("@")), "")


def lines_exist(record: Record) -> Iterator[str]:
    """A line that is named is one of the file, and something stands there."""
    cause, *_ = _first(record)
    named = {int(line) for file, line in _PLACE.findall(cause.hint) if file == record.submission.source_file}
    for line in named | {place.line for place in cause.lines if place.file == record.submission.source_file}:
        if record.submission.source and not _text_of(record, line).strip():
            yield f"nothing stands in line {line}"


def returns_where_it_says(record: Record) -> Iterator[str]:
    """*Right before, F returned at FILE:N*: there is a return in that line or the one before it, below F's name."""
    cause, *_ = _first(record)
    for function, file, line in re.findall(r"Right before, (\w+) returned at ([\w.]+):(\d+)", cause.hint):
        if file != record.submission.source_file:
            continue
        above = record.submission.source[: int(line)]
        if not any("return" in text for text in above[-2:]):
            yield f"no return near line {line}"
        if not any(re.search(rf"\b{function}\b", text) for text in above):
            yield f"{function} does not begin above line {line}"


def stores_where_it_says(record: Record) -> Iterator[str]:
    """*stores to X, at FILE:N*: an assignment, a step or a call stands in that line or begins right above it."""
    cause, *_ = _first(record)
    for file, line in re.findall(r"stores? [^.;]*?,? at ([\w.]+):(\d+)", cause.hint):
        if file == record.submission.source_file:
            near = [_text_of(record, number) for number in range(max(1, int(line) - 2), int(line) + 1)]
            if not re.search(r"=|\+\+|--|\(", " ".join(near)):
                yield f"nothing is stored near line {line}"


def left_as_it_was(record: Record) -> Iterator[str]:
    """*This call never stores to X*: the sentence is about the value that is wrong, and no line is said to store it."""
    cause, outcome, _ = _first(record)
    claimed = re.search(r"This call never stores to ([^.;]*(?:\[\d+\])*[^.;]*)", cause.hint)
    first = record.first_finding(outcome) if outcome is not None else None
    if claimed is None or first is None:
        return
    words = set(re.findall(r"\w+", first.field))
    if not set(re.findall(r"\w+", claimed[1])) - {"of", "in", "engine"} <= words | {"sequence"}:
        yield f"it is about {claimed[1]}, and {first.field} is wrong"
    if f"stores to {claimed[1]}, at" in cause.hint:
        yield "it stores there all the same"


def counts_of_calls(record: Record) -> Iterator[str]:
    """*in all N such calls of C*: at least two, and no more than public cases go wrong in C."""
    cause, *_ = _first(record)
    for count, call in re.findall(r"in all (\d+) such calls of (\w+)", cause.hint):
        wrong = [
            outcome
            for outcome in record.outcomes
            if outcome.visibility is Visibility.PUBLIC
            for step in outcome.steps
            if step.number == record.bad_operation(outcome) and _name(step) == call
        ]
        if not 2 <= int(count) <= len(wrong):
            yield f"{count} calls of {call}, but {len(wrong)} public cases go wrong there"


def counted_lines(record: Record) -> Iterator[str]:
    """*In A calls that went wrong, and in B that were right, F:N ran*: that tells them apart, and N stands there."""
    cause, *_ = _first(record)
    counted = r"(all \d+|\w+ of the \d+|the one)"
    line = r"[\w.]+:(\d+) (?:ran|was followed by line (\d+))"
    claimed = rf"In {counted} calls? that went wrong, and in {counted} that were right, {line}\."
    for wrong, right, *lines in re.findall(claimed, cause.hint):
        if not _share(right) < _share(wrong) >= 0.5:
            yield f"{wrong} and {right} are no difference"
        if not all(_text_of(record, int(line)).strip() for line in lines if line):
            yield f"nothing stands in {lines}"


def _share(counted: str) -> float:
    count, *rest = counted.replace("none", "0").split()
    return int(count) / int(rest[-1]) if count.isdigit() else 1.0


def never_found(record: Record) -> Iterator[str]:
    """*A, B and C refuse in every case*: none of them was accepted anywhere."""
    cause, *_ = _first(record)
    claimed = re.search(r"([\w, ]+) refuse in every case", cause.hint)
    calls = set(re.split(r", | and ", claimed[1])) if claimed is not None else set()
    for step in _steps(record):
        if _name(step) in calls and step.actual == step.expected and step.actual in ("0", "seq"):
            yield f"{step.call} was accepted"


def never_worked(record: Record) -> Iterator[str]:
    """*C returns R in every case*: it returned nothing else where a report shows it."""
    cause, *_ = _first(record)
    for call, reply in re.findall(r"(\w+) returns (NULL|-1) in every case", cause.hint):
        others = {step.actual for step in _steps(record) if _name(step) == call} - {reply}
        if others:
            yield f"{call} returned {sorted(map(str, others))} too"


def replies(record: Record) -> Iterator[str]:
    """*C returned A, expected B*: that is what the steps of the case show."""
    cause, _, step = _first(record)
    claimed = re.search(r"^(\w+) returned (.+), expected (.+)$", cause.sentence)
    if claimed is None or step is None or step.actual is None:
        return
    call, actual, expected = claimed.groups()
    if _name(step) != call:
        yield f"the operation is {step.call}"
    for claim, shown in ((actual, step.actual), (expected, step.expected)):
        if re.fullmatch(r"-?\d+|NULL", claim) and claim != shown:
            yield f"{claim} is shown as {shown}"


def values(record: Record) -> Iterator[str]:
    """*X must be A, and is B*, *X is B and must be A*: these are the values of what is wrong first in the case."""
    cause, outcome, _ = _first(record)
    first = record.first_finding(outcome) if outcome is not None else None
    claimed = re.search(r"must be (-?\d+), and is (-?\d+)\b", cause.hint)
    if claimed is not None and first is not None and claimed.groups() != (first.expected, first.actual):
        yield f"{claimed[0]}, but {first.field} is {first.actual}, expected {first.expected}"


def unwritten(record: Record) -> Iterator[str]:
    """*C is not written yet*: its body does nothing but return."""
    cause, *_ = _first(record)
    project = getattr(open_lab(record.lab).runtime, "project", None)
    claimed = re.search(r"(\w+) is not written yet", cause.hint)
    if claimed is not None and isinstance(project, CProject):
        source = "\n".join(record.submission.source).encode()
        if claimed[1] not in project.unwritten(source):
            yield f"{claimed[1]} has a body"


CLAIMS: tuple[Callable[[Record], Iterator[str]], ...] = (
    lines_exist,
    returns_where_it_says,
    stores_where_it_says,
    left_as_it_was,
    counts_of_calls,
    counted_lines,
    never_found,
    never_worked,
    replies,
    values,
    unwritten,
)


def false_claims(record: Record) -> list[str]:
    """Return what the first cause claims and the observations of the record do not show."""
    if record.first_cause is None:
        return []
    return [f"{claim.__name__}: {problem}" for claim in CLAIMS for problem in claim(record)]
