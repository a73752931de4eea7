"""Look for the smallest change that makes a wrong submission right: how far is it from right?

Small changes of the submission (`grader.search.repairs`) are played on one short case that fails, and on a few more.
The best changes are played on all cases, with the tool for wrong uses of memory, and then on random traces. A change
that passes everything is right as far as the grader can tell. Clara and Refactory repair a student's program with right
programs of other students, and GenProg takes hours; one of our cases takes milliseconds. The result is for instructors
only; no report for students contains it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher, unified_diff
from functools import partial
from itertools import islice
from pathlib import Path

from grader import pipeline
from grader.assignment.lab import Lab
from grader.assignment.source import Source
from grader.attempt import Attempt, run
from grader.classroom.batch import source_in
from grader.classroom.database import DAMAGE, checked
from grader.classroom.store import Store
from grader.classroom.stored_result import Result
from grader.classroom.workers import ProcessPool
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.judge.compare import compare
from grader.labs import open_lab
from grader.runtime.protocol import End, Program
from grader.search.hunt import hunt
from grader.search.mutants import Edit, unwritten
from grader.search.repairs import chosen, repairs, together
from grader.system.budget import IMPATIENT

_MOST_BUILDS = 6
"""The most builds of one group of changes. After each build, the changes that gcc rejects are left out."""
_TOGETHER = 48
"""The number of changes that are tried in one program or process."""
_FAILING, _PASSING = 4, 12
"""The most other cases, failing and passing, on which a change is tried after it has passed the first case."""
_SEARCHED = 4.0
"""Seconds of random traces for a change with which every case passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """The result for one submission."""

    before: int
    """The points of the submission."""
    after: int
    """The points with the change in `diff`; all points if the change makes the program right."""
    distance: int | None = None
    """How many changes make the program right; None if no such change was found."""
    diff: tuple[str, ...] = ()
    """The change as a unified diff: the right one, or the one that wins most points."""
    lines: tuple[int, ...] = ()
    """The lines of the submission that are changed."""
    most: int = 100
    """The points of a right program."""
    clause: str = ""
    """The sentence of the handout that was broken in the first cause."""
    tried: int = 0
    """The number of changes that were tried."""
    why_not: str = ""
    """Why no change was looked for; "" if one was."""

    @property
    def in_words(self) -> str:
        """The distance for a table: "0", "1", "2", "none found", or "" if no change was looked for."""
        if self.before == self.most:
            return "0"
        return "" if self.why_not else str(self.distance or "none found")


def mended(
    source: Source,
    lab: Lab,
    cases: Sequence[Case],
    *,
    seconds: float,
    changes: int = 1,
    jobs: int = 2,
    progress: Callable[[int], None] = lambda _: None,
) -> Mending:
    """Grade a submission, and look for at most `seconds` for a right program that is at most `changes` changes away.

    `progress` is called with the number of changes that were tried. Raises `GraderError`, and `ImportError` if
    tree-sitter is not installed.
    """
    record = _graded(source, lab, cases)
    end = time.monotonic() + seconds
    score = record.score or 0
    mending = Mending(before=score, after=score, most=record.max_score, why_not=_why_not(record, source, lab))
    if mending.why_not:
        return mending
    mending = replace(mending, clause=record.causes[0].clause)
    now, tried = source, 0
    with ProcessPool(jobs) as pool:
        for distance in range(1, changes + 1):
            share = (end - time.monotonic()) / (changes - distance + 1)  # else the first change would take all the time
            search = _Search(now, lab, cases, record, end=time.monotonic() + share)
            for count in search.run(pool, jobs):
                progress(tried + count)
            tried += search.tried
            if search.best is None:
                break
            record = _graded(search.best, lab, cases)
            if (record.score or 0) <= mending.after:
                break
            now = search.best
            mending = replace(mending, after=record.score or 0)
            if search.is_right and record.verdict is Verdict.ACCEPTED:
                mending = replace(mending, distance=distance)
                break
    if now is source:
        return replace(mending, tried=tried)
    old, new = (each.content.decode(errors="replace").splitlines() for each in (source, now))
    diff = tuple(unified_diff(old, new, lab.source_name, f"{lab.source_name}, mended", lineterm=""))
    return replace(mending, diff=diff, lines=tuple(_changed(old, new)), tried=tried)


def mended_once(store: Store, result: Result, lab: Lab, cases: Sequence[Case], *, seconds: int, jobs: int) -> Mending:
    """Return the stored result of a search for one change that makes a submission right, or search and store it.

    If the stored search found no such change, search again only if `seconds` is larger. Raises what `mended` raises,
    and `StoreFailure`.
    """
    searched, known = store.mending(result.entry.key) or (0, "{}")
    with suppress(*DAMAGE):  # a damaged row is replaced
        fields = json.loads(known)
        kept = checked(Mending, fields | {name: tuple(fields[name]) for name in ("diff", "lines")})
        if kept.distance is not None or kept.why_not or seconds <= searched:
            return kept
    assert result.entry.source is not None
    source = source_in(store, lab, result.entry.source)
    mending = mended(source, lab, cases, seconds=seconds, jobs=jobs)
    store.add_mending(result.entry.key, seconds, json.dumps(asdict(mending)))
    return mending


def _graded(source: Source, lab: Lab, cases: Sequence[Case]) -> Record:
    return pipeline.grade(Path(source.name), lab, cases, source=source)


def _why_not(record: Record, source: Source, lab: Lab) -> str:
    if record.verdict is Verdict.ACCEPTED:
        return "it has all points: there is nothing to mend"
    if record.build_findings or not record.outcomes or not record.causes:
        return "it cannot be built as the handout demands; its report says why"
    starter = lab.starter[lab.source_name].read_bytes()
    if missing := [*unwritten(source.content, starter, lab.runtime.language)]:
        return f"a part of it is not written yet ({', '.join(missing)}): no small change helps"
    return ""


def _changed(old: Sequence[str], new: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the old lines that differ from the new ones, or before which lines were inserted."""
    for tag, start, end, _, _ in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield from range(start + 1, max(start + 1, end) + 1) if tag != "equal" else ()


class _Search:
    """Tries changes of one place of a program, the most likely first."""

    def __init__(self, source: Source, lab: Lab, cases: Sequence[Case], record: Record, *, end: float) -> None:
        self.source, self.lab, self.cases, self.end = source, lab, cases, end
        self.failed = [outcome.case for outcome in record.outcomes if not outcome.passed or not outcome.clean]
        lines = dict.fromkeys(line.line for cause in record.causes for line in cause.lines)
        self.edits = repairs(source.content, lab.runtime.language, list(lines))
        self.probes = self._probes(record)
        self.tried, self.is_right = 0, False
        self.best: Source | None = None
        self.least = len(self.failed)

    def _probes(self, record: Record) -> list[Case]:
        """Return the first cause's shortest failing case, then the shortest failing and passing cases of some rules."""
        own = [case for case in self.cases if case.generated is None]
        short = sorted(own, key=lambda case: len(case.trace.operations))
        failing = [case for case in short if case.name in self.failed]
        first = [case for case in failing if case.name in record.causes[0].cases] or failing or [*self.cases[:1]]
        by_rule = {case.rule: case for case in reversed(failing)} | {case.handout: case for case in reversed(failing)}
        passing = {case.rule: case for case in reversed(short) if case.name not in self.failed}
        probes = [first[0], *list(by_rule.values())[:_FAILING], *list(passing.values())[:_PASSING]]
        return list({case.name: case for case in probes}.values())

    def run(self, pool: ProcessPool, jobs: int) -> Iterator[int]:
        """Try changes until one is right, none is left or time is over. After each batch, yield the number tried."""
        try_batch = partial(_passing, self.lab.name, self.source, self.probes)
        while not self._is_over and (edits := list(islice(self.edits, jobs * _TOGETHER))):
            batches = [edits[first::jobs] for first in range(min(jobs, len(edits)))]
            self.tried += len(edits)
            tried = zip(batches, pool.map(try_batch, batches), strict=True)
            passed = {batch[number]: count for batch, counts in tried for number, count in counts.items()}
            whole = [edit for edit, count in passed.items() if count == len(self.probes)]
            self._check(pool, jobs, whole or sorted(passed, key=passed.__getitem__)[-1:])
            yield self.tried

    @property
    def _is_over(self) -> bool:
        return self.is_right or time.monotonic() > self.end

    def _check(self, pool: ProcessPool, jobs: int, edits: Sequence[Edit]) -> None:
        """Play all cases with these edits. Keep the best one if it fails fewer cases than the best so far."""
        first = [case for case in self.cases if case.name in self.failed and case.generated is None]
        check = partial(_still_failing, self.lab.name, first, self.cases)
        sources = [replace(self.source, content=edit.of(self.source.content)) for edit in edits]
        for place in range(0, len(sources), jobs):
            some = [] if self._is_over else sources[place : place + jobs]
            for source, count in zip(some, pool.map(check, some), strict=True):
                if count is not None and count < self.least:
                    self.best, self.least, self.is_right = source, count, count == 0


def _passing(lab_name: str, source: Source, probes: Sequence[Case], edits: Sequence[Edit]) -> dict[int, int]:
    """Map the number of each edit with which the program passes the first case to the number of cases that it passes.

    A case passes here if it is played to its end and no operation is wrong. Raises `GraderError`.
    """
    lab = open_lab(lab_name)
    passed: dict[int, int] = {}
    with pipeline.workspace(lab) as work:
        attempt = Attempt(lab=lab, source=source, cases=(), work=work)
        programs = dict(_built(attempt, edits) if lab.runtime.language == "c" else _written(attempt, edits))
        for case in probes:
            impatient = replace(work, budget=work.budget.renewed(IMPATIENT))
            played = lab.runtime.play_variants(impatient, [*programs.values()], case) if programs else ()
            compared = zip(programs, map(partial(compare, model=lab.model), played), strict=True)
            right = [number for number, each in compared if each.end is End.REACHED and not each.wrong]
            passed |= {number: passed.get(number, 0) + 1 for number in right}
            if case is probes[0]:
                programs = {number: programs[number] for number in right}
    return passed


def _written(attempt: Attempt, edits: Sequence[Edit]) -> Iterator[tuple[int, Program]]:
    """Yield the edited programs of a language that is not compiled."""
    attempt = run(attempt, pipeline.HUNTED)
    if attempt.can_run:
        for number, edit in enumerate(edits):
            yield number, replace(attempt.program, content=edit.of(attempt.source.content))


def _built(attempt: Attempt, edits: Sequence[Edit]) -> Iterator[tuple[int, Program]]:
    """Yield the edited programs that gcc accepts, built together. Edits that gcc rejects are left out."""
    left = [*range(len(edits))]
    for _ in range(_MOST_BUILDS):
        text, lines = together(attempt.source.content, [edits[number] for number in left])
        built = run(replace(attempt, source=replace(attempt.source, content=text)), pipeline.HUNTED)
        if built.can_run:
            for place, number in enumerate(left, 1):
                yield number, replace(built.program, content=chosen(built.program.content, place))
            return
        wrong = {line.line for finding in built.built.findings for line in finding.source[:1]}
        bad = {place for place, span in enumerate(lines) if any(line in span for line in wrong)}
        if not bad:
            break
        left = [number for place, number in enumerate(left) if place not in bad]
    if len(left) > 1:
        for part in (left[::2], left[1::2]):
            for place, program in _built(attempt, [edits[number] for number in part]):
                yield part[place], program


def _still_failing(lab_name: str, first: Sequence[Case], cases: Sequence[Case], source: Source) -> int | None:
    """Return how many cases a changed program fails; 1 if only a random trace fails; None if it cannot be built.

    If it goes wrong in any of the `first` cases, only these are counted. Hand-written cases come before random traces
    and the memory checker, because they take less time and most changes fail some of them.
    """
    lab = open_lab(lab_name)
    written = [*first, *(case for case in cases if case.generated is None and case not in first)]
    with pipeline.workspace(lab) as work:
        attempt = run(Attempt(lab=lab, source=source, cases=tuple(written), work=work), pipeline.COMPARED)
    if not attempt.can_run:
        return None
    wrong = [number for number, each in enumerate(attempt.comparisons) if each.end is not End.REACHED or each.wrong]
    if wrong:
        return sum(number < len(first) for number in wrong) or len(wrong)
    checks = "memory_checker" in lab.runtime.options
    failed = pipeline.failed_cases(source, lab, cases, memory_checker=checks)
    if failed or failed is None:
        return None if failed is None else len(failed)
    generate, end = lab.generator(), time.monotonic() + _SEARCHED
    if generate is None:
        return 0
    search = partial(hunt, generate=generate, seed=1, late=lambda: time.monotonic() > end, progress=lambda _: None)
    return int(pipeline.hunted(source, lab, generate, search, seconds=0.0) is not None)
