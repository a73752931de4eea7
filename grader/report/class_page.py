"""A whole class on one web page: first why submissions fail, then points, rules, cases and a table of students.

This page has the names of all students; a report has only the names of the students of its submission. So the reports
are in another folder (`STUDENTS`), which can be handed on as it is. The caller writes this page in the folder `CLASS`
and the reports in `STUDENTS`, under the names from `page_names`.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Outcome, RuleScore
from grader.report.document import Document, View, released, web_page
from grader.report.phrases import NOT_RUN, counted, decisions_of, kept_from, needs_person, points_lost, result_of

SUSPECT = 0.3
"""A case that more than this share of the class fails may itself be wrong, or require what the handout does not say."""

CLASS, STUDENTS = "class", "students"
"""The folder of the class page and, next to it, the folder of the reports."""
SIMILAR = "similar"
"""The folder, inside the folder of the class page, with the pages of pairs of similar submissions."""

_STEP = 5
"""The range of points that one bar of the chart covers."""
_BAR, _GAP, _HEIGHT, _LEFT, _TOP = 30, 4, 140, 20, 24
_MOST_NAME = 60
_MOST_CAUSES = 8
"""The number of causes listed at once."""
_MOST_CASES = 12
"""The number of cases listed at once. Suspect cases are always listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassNote:
    """A summary of another page about the class, and the address of that page."""

    text: str
    page: str


def class_page(
    records: Iterable[Record], view: View, *, run: str = "", similar: ClassNote | None = None, distance: str = ""
) -> Document:
    """Return the page for these records of a `run`, one record for each submission.

    A page for students shows no more of hidden cases than their reports do. Only one row is stored for each record: all
    records together would be large. `similar` summarizes which submissions are similar, if they were
    compared. `distance` says how many failing submissions need only one change to be right, if this was searched for.
    """
    seen = _Tally(view.audience)
    for record in records:
        seen.add(record)
    rows, listed = seen.rows, [*seen.causes(), *seen.cases(), *seen.rules()]
    keys = {(failing.kind, failing.name): place for place, failing in enumerate(listed)}
    for row, page in zip(rows, page_names(row["record"].submission.name for row in rows), strict=True):
        row |= {"page": page, "fails": " ".join(str(keys[key]) for key in row["failed"] if key in keys)}
    causes, cases, rules = (
        [(failing, key) for key, failing in enumerate(listed) if failing.kind == kind]
        for kind in ("cause", "case", "rule")
    )
    suspects = sum(case.share > SUSPECT for case, _ in cases)
    labs = dict.fromkeys(row["record"].lab for row in rows)
    return web_page(
        "class",
        title=" · ".join(filter(None, [*labs, run, counted(len(rows), "submission")])),
        chart=_chart([row["record"] for row in rows]),
        figures=list(_figures(rows)),
        causes=causes,
        causes_at_once=_MOST_CAUSES,
        points_lost=points_lost,
        folder=f"../{STUDENTS}",
        cases=[(case, key) for case, key in cases if case.failing],
        audience=view.audience,
        suspect=SUSPECT,
        shown=max(_MOST_CASES, suspects),
        passed=sum(not case.failing for case, _ in cases),
        rules=rules,
        suspects=suspects,
        students=rows,
        verdicts=sorted({row["verdict"] for row in rows}),
        similar=similar,
        distance=distance,
    )


def page_names(submissions: Iterable[str]) -> tuple[str, ...]:
    """Return a file name for each report; none of them is the name of the class page."""
    return tuple(f"{stem}.html" for stem in file_stems(submissions, taken={"index"}))


def file_stems(submissions: Iterable[str], *, taken: Collection[str] = ()) -> tuple[str, ...]:
    """Return the stem of a file name for each submission: unique on every file system, and never a path.

    A shortened or repeated name gets a digest at its end. A number could belong to another submission next time.
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


@dataclass(frozen=True, slots=True)
class _Failing:
    """A cause, a case or a rule: how many submissions were judged by it, and how many of them failed it."""

    kind: str
    name: str
    of: Cause | Outcome | RuleScore
    failing: int
    judged: int
    lost: float = 0.0
    """The points that all failing submissions together lost by it, approximately."""
    example: int = 0
    """For a cause, the row of the best example: a submission with this as its first cause, and few other causes."""

    @property
    def share(self) -> float:
        """The failing share of the judged submissions, 0 to 1."""
        return self.failing / self.judged if self.judged else 0.0


class _Tally:
    """The rows of all records so far, and the number of submissions that have each cause or failed each case."""

    def __init__(self, audience: Audience) -> None:
        self.audience = audience
        self.rows: list[dict[str, Any]] = []
        """For each record, the row in the table of students."""
        self._graded = 0
        self._judged: Counter[str] = Counter()
        self._failing: Counter[str] = Counter()
        self._known: dict[str, Outcome] = {}
        self._lost: dict[str, list[float]] = {}
        """The points lost by each cause, for each submission that has it."""
        self._examples: dict[str, tuple[tuple[bool, int, int], Cause]] = {}
        """For each cause the best example: its rank, which ends with the example's row, and its cause."""

    def add(self, record: Record) -> None:
        """Add a record to the counts and the rows."""
        has_score, ran = record.score is not None, bool(record.outcomes)
        record = released(record, self.audience)
        failing = [outcome.case for outcome in record.outcomes if not outcome.passed]
        lost = {score.rule: score.max_points - score.points for score in record.rules if ran}
        lost = {rule: points for rule, points in lost.items() if points > 0}
        causes = self._add_causes(record) if has_score else ()
        if has_score:
            self._graded += 1
            for outcome in record.outcomes:
                self._known.setdefault(outcome.case, replace(outcome, steps=(), findings=()))
                self._judged[outcome.case] += 1
            self._failing.update(failing)
        submission = replace(record.submission, source=(), notes=())
        nothing: dict[str, Any] = dict.fromkeys(("outcomes", "findings", "advice", "pictures", "causes"), ())
        failed = (("cause", causes), ("case", failing), ("rule", lost))
        self.rows.append(
            {
                "record": replace(record, submission=submission, output="", **nothing),
                "verdict": result_of(record),
                "ran": ran,
                "sections": ", ".join(sorted({student.section for student in submission.students if student.section})),
                "failing": len(failing) if record.outcomes else None,  # released records have no outcomes
                "lost": sorted(lost.items(), key=lambda item: -item[1]),
                "remarks": [*decisions_of(record), *filter(None, [needs_person(record), kept_from(record)])],
                "failed": [(kind, name) for kind, names in failed for name in names],
            }
        )

    def _add_causes(self, record: Record) -> tuple[str, ...]:
        """Count the causes that the reader may see. Return their names: the parts of `Cause.identity`, joined."""
        seen = record.all_causes_for(self.audience)
        points: dict[str, float] = {}
        for place, cause in enumerate(seen):
            name, rank = " | ".join(cause.identity), (place > 0, len(seen), len(self.rows))
            if name not in self._examples or rank < self._examples[name][0]:
                self._examples[name] = rank, replace(cause, cases=(), lines=())
            points[name] = points.get(name, 0.0) + cause.points
        for name, total in points.items():
            self._lost.setdefault(name, []).append(total)
        return tuple(points)

    def causes(self) -> list[_Failing]:
        """Return the causes; a cause that more submissions have comes first."""
        causes = [
            _Failing("cause", name, cause, len(self._lost[name]), self._graded, sum(self._lost[name]), example)
            for name, ((*_, example), cause) in self._examples.items()
        ]
        return sorted(causes, key=lambda cause: (-cause.failing, -cause.lost, cause.name))

    def cases(self) -> list[_Failing]:
        """Return the cases; a case with a larger failing share comes first.

        Only the case's own rule counts, so a leak that is seen in every case makes no case suspect.
        """
        cases = [
            _Failing("case", name, outcome, self._failing[name], self._judged[name])
            for name, outcome in self._known.items()
        ]
        return sorted(cases, key=lambda case: (-case.share, case.name))

    def rules(self) -> list[_Failing]:
        """Return the rules, sorted by the share of submissions that lost points of them.

        A submission counts only if it has a score and a case was run: otherwise its points say nothing about a rule.
        """
        by_rule: dict[str, list[RuleScore]] = {}
        for record in (row["record"] for row in self.rows if row["ran"] and row["record"].score is not None):
            for score in record.rules:
                by_rule.setdefault(score.rule, []).append(score)
        rules = []
        for name, scores in by_rule.items():
            lost = [score.max_points - score.points for score in scores]
            rules.append(_Failing("rule", name, scores[0], sum(points > 0 for points in lost), len(lost), sum(lost)))
        return sorted(rules, key=lambda rule: (-rule.share, -rule.lost / rule.judged, rule.name))


def _figures(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the key figures of the class, each with its label."""
    records: list[Record] = [row["record"] for row in rows]
    scores = [record.score for record in records if record.score is not None]
    if any(record.public_only for record in records):
        yield "public part", NOT_RUN
    if scores:
        yield "median", f"{statistics.median(scores):g}"
        yield "mean", f"{statistics.fmean(scores):.1f}"
        yield "lowest to highest", f"{min(scores)} to {max(scores)}"
    yield "all points", str(sum(record.verdict.passed for record in records))
    yield "could not be run", str(sum(not row["ran"] for row in rows))
    if unscored := len(records) - len(scores):
        yield "without a score", str(unscored)
    if incomplete := sum(not record.complete for record in records):
        yield "incomplete", str(incomplete)


def _chart(records: Sequence[Record]) -> dict[str, Any]:
    """Return a bar for each `_STEP` points, and the median. The last bar includes full points."""
    shares = [record.score / record.max_score for record in records if record.score is not None and record.max_score]
    most = max((record.max_score for record in records), default=100)
    number = max(1, -(-most // _STEP))
    counts = Counter(min(int(share * most) // _STEP, number - 1) for share in shares)
    bars = []
    for place in range(number):
        low, high = place * _STEP, min((place + 1) * _STEP - 1, most) if place < number - 1 else most
        height = round(counts[place] * _HEIGHT / max(counts.values(), default=1))
        bar = {"low": low, "label": f"{low}–{high}", "number": counts[place], "height": height}
        bars.append(bar | {"x": _LEFT + place * (_BAR + _GAP), "y": _TOP + _HEIGHT - height})
    return {
        "width": _LEFT + number * (_BAR + _GAP),
        "height": _TOP + _HEIGHT + 26,
        "base": _TOP + _HEIGHT,
        "bar": _BAR,
        "bars": bars,
        "median": round(_LEFT + statistics.median(shares) * most / _STEP * (_BAR + _GAP), 1) if shares else None,
        "words": "; ".join(f"{bar['label']} points: {bar['number']}" for bar in bars if bar["number"]),
    }


INDEX = "index.html"
_MOST_LINES = 5_000
_MOST_COLUMNS = 500
"""The most lines and columns of a program on a page. The longest compared programs have hundreds of thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeProgram:
    """One program of a pair."""

    name: str
    students: tuple[str, ...]
    lines: tuple[str, ...]
    share: float
    """The share of this program that is also in the other program, 0 to 1."""
    equal: Mapping[int, int]
    """Maps the lines that are also in the other program to their lines there, both from 1."""


AlikePair = tuple[AlikeProgram, AlikeProgram]
"""The two programs of a pair, each with its share and lines that are also in the other program."""


def percent(share: float) -> str:
    """Return a share as whole percent, rounded down: only a program that is wholly in the other one has 100 %."""
    return f"{int(100 * share + 1e-9)} %"


def similar_pages(
    pairs: Sequence[AlikePair], *, title: str, summary: str, skipped: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, Document]]:
    """Yield (file name, page): first for the list of pairs, then for each pair.

    `summary` says how many pairs there are. `skipped` has (name, reason) of each submission that was not compared.
    """
    names = (f"{first.name}--{second.name}" for first, second in pairs)
    pages = [f"{stem}.html" for stem in file_stems(names, taken={"index"})]
    rows = list(zip(pairs, pages, strict=True))
    yield INDEX, web_page("similar", title=title, summary=summary, rows=rows, skipped=skipped, percent=percent)
    for (first, second), page in rows:
        yield (
            page,
            web_page(
                "pair",
                title=f"{first.name} and {second.name}",
                sides=[("L", "R", first), ("R", "L", second)],
                index=INDEX,
                percent=percent,
                shown=_shown,
                most=_MOST_LINES,
            ),
        )


def _shown(program: AlikeProgram) -> Iterator[tuple[int, str, int | None]]:
    """Yield (number, text, number in the other program or None) for each line of the program that is shown."""
    for number, line in enumerate(program.lines[:_MOST_LINES], start=1):
        text = line if len(line) <= _MOST_COLUMNS else f"{line[:_MOST_COLUMNS]} ... (cut here)"
        yield number, text, program.equal.get(number)
