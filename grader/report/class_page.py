"""A whole class on one web page: the points drawn, what fails most, a table to sort and filter, a link to each report.

Who writes it writes the reports beside it, under the names that `page_names` gives them.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.record import Record
from grader.report.decided import decisions_of
from grader.report.document import Document
from grader.report.groups import Audience, is_hidden
from grader.report.view import View
from grader.report.web import web_page
from grader.report.words import NOT_RUN, result_of
from grader.verdict import Outcome

__all__ = ["class_page", "page_names"]

SUSPECT = 0.3
"""A case that more than this share of the class fails may itself be wrong, or ask what the handout does not say."""

_BARS = 10
_BAR, _GAP, _HEIGHT, _LEFT, _TOP = 56, 6, 160, 34, 20
_MOST_NAME = 60
_MOST_CASES = 12
"""Cases that are listed at once; the suspect ones always are."""


def class_page(records: Sequence[Record], view: View) -> Document:
    """The page for these records, one for each submission. Students see no more of hidden cases than in their own."""
    scores = [record.score for record in records if record.score is not None]
    cases = _cases(records, view.audience)
    rules = _rules(records)
    suspects = sum(case.suspect for case in cases)
    fails = {(kind, name): place for place, (kind, name) in enumerate(_keys(cases, rules))}
    return web_page(
        "class",
        title=f"{len(records)} submissions",
        count=len(records),
        chart=_chart(records),
        figures=list(_figures(records, scores)),
        cases=[(case, fails["case", case.name]) for case in cases if case.failing],
        shown=max(_MOST_CASES, suspects),
        passed=sum(not case.failing for case in cases),
        rules=[(rule, fails["rule", rule.name]) for rule in rules],
        suspects=suspects,
        students=[_student(record, page, fails) for record, page in zip(records, page_names(records), strict=True)],
        verdicts=sorted({result_of(record) for record in records}),
    )


def page_names(records: Sequence[Record]) -> tuple[str, ...]:
    """A file name for each report, no two of them equal on any file system, and none that leads elsewhere."""
    names: list[str] = []
    taken = {"index"}
    for record in records:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "_", record.submission.name).strip("_")[-_MOST_NAME:] or "submission"
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(f"{name}.html")
    return tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A case or a rule, and how many of those that were judged by it did not do it."""

    name: str
    title: str
    rule: str = ""
    hidden: bool = False
    failing: int
    judged: int
    lost: float = 0.0
    """Points that a submission lost by it in the mean."""

    @property
    def share(self) -> float:
        """Of those that were judged."""
        return self.failing / self.judged if self.judged else 0.0

    @property
    def suspect(self) -> bool:
        """Is it to be looked at before results go out?"""
        return self.share > SUSPECT


def _cases(records: Sequence[Record], audience: Audience) -> list[Failing]:
    """By how many fail in what the case is about; a leak that shows in all of them makes no case suspect."""
    judged: Counter[str] = Counter()
    failing: Counter[str] = Counter()
    known: dict[str, Outcome] = {}
    for record in records:
        for outcome in record.outcomes if record.score is not None else ():
            known.setdefault(outcome.case, outcome)
            judged[outcome.case] += 1
            failing[outcome.case] += not outcome.passed
    cases = [
        Failing(
            name=name,
            title=outcome.title,
            rule=outcome.rule,
            hidden=is_hidden(outcome, audience),
            failing=failing[name],
            judged=judged[name],
        )
        for name, outcome in known.items()
    ]
    return sorted(cases, key=lambda case: (-case.share, case.name))


def _rules(records: Sequence[Record]) -> list[Failing]:
    """By how many lost points of the rule; where nothing could be run that says nothing of it."""
    scores = [score for record in records if record.outcomes and record.score is not None for score in record.rules]
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


def _keys(cases: Sequence[Failing], rules: Sequence[Failing]) -> Iterator[tuple[str, str]]:
    yield from (("case", case.name) for case in cases)
    yield from (("rule", rule.name) for rule in rules)


def _figures(records: Sequence[Record], scores: Sequence[int]) -> Iterator[tuple[str, str]]:
    """What is said of a class in a few words."""
    if any(record.public_only for record in records):
        yield "public part", NOT_RUN
    if scores:
        yield "median", f"{statistics.median(scores):g}"
        yield "mean", f"{statistics.fmean(scores):.1f}"
        yield "lowest to highest", f"{min(scores)} to {max(scores)}"
    yield "all points", str(sum(record.verdict.passed for record in records))
    yield "could not be run", str(sum(not record.outcomes for record in records))
    for label, number in (
        ("without a score", sum(record.score is None for record in records)),
        ("incomplete", sum(not record.complete for record in records)),
    ):
        if number:
            yield label, str(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    """One bar of the chart, in its units."""

    label: str
    count: int
    x: int
    y: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chart:
    """How many have how many points."""

    width: int
    height: int
    base: int
    bar: int
    bars: tuple[_Bar, ...]
    median: float | None
    words: str


def _chart(records: Sequence[Record]) -> _Chart:
    """Ten bars of a tenth each, the last with all points in it; the median across."""
    shares = [record.score / record.max_score for record in records if record.score is not None and record.max_score]
    most = max((record.max_score for record in records), default=100)
    counts = Counter(min(int(share * _BARS), _BARS - 1) for share in shares)
    unit = _HEIGHT / max(counts.values(), default=1)
    bars = []
    for place in range(_BARS):
        low, high = place * most // _BARS, (place + 1) * most // _BARS - (place < _BARS - 1)
        height = round(counts[place] * unit)
        bars.append(
            _Bar(
                label=f"{low}–{high}",
                count=counts[place],
                x=_LEFT + place * (_BAR + _GAP),
                y=_TOP + _HEIGHT - height,
                height=height,
            )
        )
    width = _BARS * (_BAR + _GAP)
    return _Chart(
        width=_LEFT + width,
        height=_TOP + _HEIGHT + 26,
        base=_TOP + _HEIGHT,
        bar=_BAR,
        bars=tuple(bars),
        median=round(_LEFT + statistics.median(shares) * (width - _GAP), 1) if shares else None,
        words="; ".join(f"{bar.label} points: {bar.count}" for bar in bars if bar.count),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Student:
    """A row of the table."""

    record: Record
    page: str
    verdict: str
    lost: tuple[tuple[str, int], ...]
    """Rules with the points that are missing, dearest first."""
    decided: tuple[str, ...]
    """By people, after the grading."""
    fails: str
    """The numbers of all cases and rules that fail, for the filter."""


def _student(record: Record, page: str, fails: dict[tuple[str, str], int]) -> _Student:
    lost = {score.rule: score.max_points - score.points for score in record.rules if score.points < score.max_points}
    failing = [("case", outcome.case) for outcome in record.outcomes if not outcome.passed]
    failing += [("rule", rule) for rule in lost]
    return _Student(
        record=record,
        page=page,
        verdict=result_of(record),
        lost=tuple(sorted(lost.items(), key=lambda item: -item[1])) if record.outcomes else (),
        decided=tuple(decisions_of(record)),
        fails=" ".join(str(fails[key]) for key in failing if key in fails) if record.outcomes else "",
    )
