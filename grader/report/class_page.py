"""A whole class on one web page, led by why submissions fail; then points, rules, cases and a table of students.

This page has the names of all students, a report only those of its own. So reports are in a folder apart (`STUDENTS`),
which can be handed on as it is. The caller that writes this page in the folder `CLASS` also writes the reports there,
under the names from `page_names`.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Outcome
from grader.report.document import Document, View, web_page
from grader.report.phrases import NOT_RUN, counted, decisions_of, kept_from, needs_person, points_lost, result_of
from grader.report.released import released

SUSPECT = 0.3
"""A case that more than this share of the class fails may itself be wrong, or require what the handout does not say."""

CLASS, STUDENTS = "class", "students"
"""The folders of the page and of the reports, side by side."""
SIMILAR = "similar"
"""The folder in that of the page with the pairs of submissions that are alike."""

_STEP = 5
"""The points for which the chart has a bar."""
_BAR, _GAP, _HEIGHT, _LEFT, _TOP = 30, 4, 140, 20, 24
_MOST_NAME = 60
_MOST_CAUSES = 8
"""The number of causes listed at once."""
_MOST_CASES = 12
"""The number of cases listed at once. Suspect cases are always listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassNote:
    """What another page has about the class, and the address of that page."""

    text: str
    page: str


def class_page(records: Iterable[Record], view: View, *, run: str = "", similar: ClassNote | None = None) -> Document:
    """Return the page for these records of a `run`, one record for each submission.

    Students see no more of hidden cases than in their own report. Only one row is stored for each record, because all
    records together would be large. `similar` says which submissions are alike, where they were compared.
    """
    seen = _Tally(view.audience)
    rows = [seen.row(record) for record in records]
    scores = [row.record.score for row in rows if row.record.score is not None]
    cases, rules, causes = seen.cases(), _rules(rows), seen.causes()
    suspects = sum(case.suspect for case in cases)
    labs = dict.fromkeys(row.record.lab for row in rows)
    fails = {(kind, name): place for place, (kind, name) in enumerate(_keys(causes, cases, rules))}
    pages = _pages(rows)
    return web_page(
        "class",
        title=" · ".join(filter(None, [*labs, run, counted(len(rows), "submission")])),
        count=len(rows),
        chart=_chart([row.record for row in rows]),
        figures=list(_figures(rows, scores)),
        causes=[(cause, fails["cause", cause.name], rows[cause.example], pages[cause.example]) for cause in causes],
        causes_at_once=_MOST_CAUSES,
        folder=f"../{STUDENTS}",
        cases=[(case, fails["case", case.name]) for case in cases if case.failing],
        shown=max(_MOST_CASES, suspects),
        passed=sum(not case.failing for case in cases),
        rules=[(rule, fails["rule", rule.name]) for rule in rules],
        suspects=suspects,
        students=[_student(row, page, fails) for row, page in zip(rows, pages, strict=True)],
        verdicts=sorted({row.verdict for row in rows}),
        similar=similar,
    )


def page_names(submissions: Iterable[str]) -> tuple[str, ...]:
    """Return a file name for each report, none of them that of the class's own page."""
    return tuple(f"{stem}.html" for stem in file_stems(submissions, taken={"index"}))


def file_stems(submissions: Iterable[str], *, taken: Collection[str] = ()) -> tuple[str, ...]:
    """Return a name for the file of each: unique on every file system, and never a path to another folder.

    A name that says too little has a digest at its end, not a number: in a later class a number could be another's.
    """
    given = list(submissions)
    shortened = [re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_") for name in given]
    stems = [name[-_MOST_NAME:] or "submission" for name in shortened]
    count = Counter(map(str.casefold, [*stems, *taken]))
    names: list[str] = []
    used = set(taken)
    for name, whole, stem in zip(given, shortened, stems, strict=True):
        lost = whole != stem or any(letter.isalnum() and not letter.isascii() for letter in name)
        digest = sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]
        own = f"{stem}-{digest}" if lost or count[stem.casefold()] > 1 else stem
        unique, number = own, 1
        while unique.casefold() in used:  # the same name twice
            number += 1
            unique = f"{own}-{number}"
        used.add(unique.casefold())
        names.append(unique)
    return tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A case or a rule: how many submissions were judged by it, and how many of them failed it."""

    name: str
    title: str
    rule: str = ""
    hidden: bool = False
    failing: int
    judged: int
    lost: float = 0.0
    """The mean number of points that a submission lost by it."""

    @property
    def share(self) -> float:
        """The failing share of the judged submissions, 0 to 1."""
        return self.failing / self.judged if self.judged else 0.0

    @property
    def suspect(self) -> bool:
        """Whether a person should check it before results are published."""
        return self.share > SUSPECT


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCause:
    """A cause of several submissions (see `Cause.identity`), as one of them shows it."""

    cause: Cause
    failing: int
    """The number of submissions that have it."""
    judged: int
    """The number of submissions with a score."""
    lost: float
    """The points that all of them together lost by it, approximately."""
    example: int
    """The row of the submission that shows it: its first cause if possible, beside as few others as possible."""

    @property
    def name(self) -> str:
        """What the submissions have in common, in one text."""
        return name_of(self.cause)

    @property
    def share(self) -> float:
        """The share of the graded submissions that have it, 0 to 1."""
        return self.failing / self.judged

    @property
    def each(self) -> str:
        """What it costs a submission that has it, in words."""
        return f"about {points_lost(self.lost / self.failing)}"

    @property
    def mean(self) -> float:
        """The mean number of points that a submission of the class lost by it."""
        return self.lost / self.judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassRow:
    """The parts of one record that the page needs."""

    record: Record
    """The record without its cases and everything about them."""
    verdict: str
    ran: bool
    """Whether any case was run."""
    failing: tuple[str, ...]
    """The names of the failing cases."""
    causes: tuple[str, ...]
    """The names of its causes."""
    remarks: tuple[str, ...]
    """What people decided after the grading, why a person has to look at it, and from which run it is kept."""


def name_of(cause: Cause) -> str:
    """Return the identity of a cause as one text."""
    return " | ".join(cause.identity)


class _Tally:
    """The causes and cases of all records so far, with the number of submissions that have or failed each."""

    def __init__(self, audience: Audience) -> None:
        self._audience: Audience = audience
        self._judged: Counter[str] = Counter()
        self._failing: Counter[str] = Counter()
        self._known: dict[str, Outcome] = {}
        self._rows = self._graded = 0
        self._lost: dict[str, list[float]] = {}
        """The points lost by each cause, for each submission that has it."""
        self._examples: dict[str, tuple[tuple[bool, int, int], Cause]] = {}
        """For each cause the best example: how good it is (its row comes last), and its words."""

    def row(self, record: Record) -> _ClassRow:
        """Add a record to the counts and return its row."""
        record = released(record, self._audience)
        failing = tuple(outcome.case for outcome in record.outcomes if not outcome.passed)
        causes = self._add_causes(record) if record.score is not None else ()
        self._rows += 1
        if record.score is not None:
            self._graded += 1
            for outcome in record.outcomes:
                self._known.setdefault(outcome.case, replace(outcome, steps=(), findings=()))
                self._judged[outcome.case] += 1
            self._failing.update(failing)
        submission = replace(record.submission, source=(), notes=())
        small = replace(
            record, submission=submission, outcomes=(), findings=(), advice=(), pictures=(), causes=(), output=""
        )
        remarks = tuple(filter(None, [*decisions_of(record), needs_person(record), kept_from(record)]))
        verdict, ran = result_of(record), bool(record.outcomes)
        return _ClassRow(record=small, verdict=verdict, ran=ran, failing=failing, causes=causes, remarks=remarks)

    def _add_causes(self, record: Record) -> tuple[str, ...]:
        """Count the causes that the reader may see, and return their names."""
        seen = record.all_causes_for(self._audience)
        points: dict[str, float] = {}
        for place, cause in enumerate(seen):
            example = (place > 0, len(seen), self._rows), replace(cause, cases=(), lines=())
            name = name_of(cause)
            best = self._examples.get(name)
            if best is None or example[0] < best[0]:
                self._examples[name] = example
            points[name] = points.get(name, 0.0) + cause.points
        for name, total in points.items():
            self._lost.setdefault(name, []).append(total)
        return tuple(points)

    def causes(self) -> list[SharedCause]:
        """Return the causes, those that most submissions have first."""
        shared = [
            SharedCause(
                cause=cause,
                failing=len(self._lost[name]),
                judged=self._graded,
                lost=sum(self._lost[name]),
                example=rank[-1],
            )
            for name, (rank, cause) in self._examples.items()
        ]
        return sorted(shared, key=lambda cause: (-cause.failing, -cause.lost, cause.name))

    def cases(self) -> list[Failing]:
        """Return the cases, those with the largest failing share first.

        Only the case's own rule counts, so a leak that is seen in every case makes no case suspect.
        """
        cases = [
            Failing(
                name=name,
                title=outcome.title,
                rule=outcome.rule,
                hidden=outcome.hidden_from(self._audience),
                failing=self._failing[name],
                judged=self._judged[name],
            )
            for name, outcome in self._known.items()
        ]
        return sorted(cases, key=lambda case: (-case.share, case.name))


def _pages(rows: Iterable[_ClassRow]) -> tuple[str, ...]:
    return page_names(row.record.submission.name for row in rows)


def _rules(rows: Sequence[_ClassRow]) -> list[Failing]:
    """Return the rules, sorted by the share of submissions that lost points of them.

    A submission counts only when it has a score and a case was run: otherwise its points say nothing of a rule.
    """
    scores = [score for row in rows if row.ran and row.record.score is not None for score in row.record.rules]
    rules = []
    for name in dict.fromkeys(score.rule for score in scores):
        own = [score for score in scores if score.rule == name]
        rules.append(
            Failing(
                name=name,
                title=own[0].title,
                failing=sum(score.points < score.max_points for score in own),
                judged=len(own),
                lost=sum(score.max_points - score.points for score in own) / len(own),
            )
        )
    return sorted(rules, key=lambda rule: (-rule.share, -rule.lost, rule.name))


def _keys(
    causes: Sequence[SharedCause], cases: Sequence[Failing], rules: Sequence[Failing]
) -> Iterator[tuple[str, str]]:
    yield from (("cause", cause.name) for cause in causes)
    yield from (("case", case.name) for case in cases)
    yield from (("rule", rule.name) for rule in rules)


def _figures(rows: Sequence[_ClassRow], scores: Sequence[int]) -> Iterator[tuple[str, str]]:
    """The key figures of the class, each with its label."""
    records = [row.record for row in rows]
    if any(record.public_only for record in records):
        yield "public part", NOT_RUN
    if scores:
        yield "median", f"{statistics.median(scores):g}"
        yield "mean", f"{statistics.fmean(scores):.1f}"
        yield "lowest to highest", f"{min(scores)} to {max(scores)}"
    yield "all points", str(sum(record.verdict.passed for record in records))
    yield "could not be run", str(sum(not row.ran for row in rows))
    for label, number in (
        ("without a score", sum(record.score is None for record in records)),
        ("incomplete", sum(not record.complete for record in records)),
    ):
        if number:
            yield label, str(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """One bar of the chart, in the chart's units."""

    low: int
    label: str
    count: int
    x: int
    y: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Histogram:
    """The distribution of points."""

    width: int
    height: int
    base: int
    bar: int
    bars: tuple[_Bar, ...]
    median: float | None
    words: str


def _chart(records: Sequence[Record]) -> _Histogram:
    """Return a bar for each `_STEP` points, and the median. The last bar includes full points."""
    shares = [record.score / record.max_score for record in records if record.score is not None and record.max_score]
    most = max((record.max_score for record in records), default=100)
    number = max(1, -(-most // _STEP))
    counts = Counter(min(int(share * most) // _STEP, number - 1) for share in shares)
    unit = _HEIGHT / max(counts.values(), default=1)
    bars = []
    for place in range(number):
        low, high = place * _STEP, min((place + 1) * _STEP - 1, most) if place < number - 1 else most
        height = round(counts[place] * unit)
        bars.append(
            _Bar(
                low=low,
                label=f"{low}–{high}",
                count=counts[place],
                x=_LEFT + place * (_BAR + _GAP),
                y=_TOP + _HEIGHT - height,
                height=height,
            )
        )
    width = number * (_BAR + _GAP)
    return _Histogram(
        width=_LEFT + width,
        height=_TOP + _HEIGHT + 26,
        base=_TOP + _HEIGHT,
        bar=_BAR,
        bars=tuple(bars),
        median=round(_LEFT + statistics.median(shares) * most / _STEP * (_BAR + _GAP), 1) if shares else None,
        words="; ".join(f"{bar.label} points: {bar.count}" for bar in bars if bar.count),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StudentRow:
    """A row of the table."""

    record: Record
    page: str
    sections: str
    verdict: str
    failing: int | None
    """The number of failing cases; None when no case was run."""
    lost: tuple[tuple[str, int], ...]
    """Rules with their lost points, most points first."""
    remarks: tuple[str, ...]
    """What people decided after the grading, why a person has to look at it, and from which run it is kept."""
    fails: str
    """The numbers of all failing cases and rules, for the filter."""


def _student(row: _ClassRow, page: str, fails: Mapping[tuple[str, str], int]) -> _StudentRow:
    rules = row.record.rules if row.ran else ()
    lost = {score.rule: score.max_points - score.points for score in rules if score.points < score.max_points}
    failing = [
        *(("cause", name) for name in row.causes),
        *(("case", name) for name in row.failing),
        *(("rule", rule) for rule in lost),
    ]
    return _StudentRow(
        record=row.record,
        page=page,
        sections=", ".join(sorted({student.section for student in row.record.submission.students if student.section})),
        verdict=row.verdict,
        failing=len(row.failing) if row.ran else None,
        lost=tuple(sorted(lost.items(), key=lambda item: -item[1])),
        remarks=row.remarks,
        fails=" ".join(str(fails[key]) for key in failing if key in fails),
    )
