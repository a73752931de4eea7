"""One line of a run: a submission, who handed it in, and the record, when there is one."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from grader.classroom.overrides import applied
from grader.classroom.schema import checksum, packed, unpacked
from grader.core.errors import StoreTrouble
from grader.core.record import Override, Record, Student, Submission, from_json, to_json, ungraded
from grader.core.verdict import Diagnosis, RuleScore, Verdict

__all__ = ["Entry", "Result", "StoredRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A submission in a run."""

    submission: str
    students: tuple[Student, ...] = ()
    notes: tuple[str, ...] = ()
    source: str | None
    """The id of what was handed in; None when that could not be read."""
    key: str
    """By which its record is known."""
    trouble: str = ""
    """Why it could not be graded. It has no score then, and is tried again next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as the store holds it: before overrides, and with what tables and queries need beside it."""

    key: str
    packed: bytes
    verdict: str
    score: int
    max_score: int
    rule: str | None
    """Of the diagnosis."""
    complete: int
    public_only: int
    points: str
    """JSON: by rule, its points and the most that it could earn."""

    @classmethod
    def of(cls, key: str, record: Record) -> StoredRecord:
        """What is to be kept of a record that has a score."""
        assert record.score is not None
        return cls(
            key=key,
            packed=packed(to_json(record, one_line=True)),
            verdict=record.verdict,
            score=record.score,
            max_score=record.max_score,
            rule=record.diagnosis.rule if record.diagnosis is not None else None,
            complete=record.complete,
            public_only=record.public_only,
            points=json.dumps({rule.rule: [rule.points, rule.max_points] for rule in record.rules}),
        )

    @property
    def checksum(self) -> int:
        """By which damage is seen. Raises `TypeError` or `ValueError` when values are of other kinds."""
        beside = (self.verdict, self.score, self.max_score, self.rule, int(self.complete), int(self.public_only))
        return checksum(self.packed, self.key, *beside, self.points)

    @property
    def json(self) -> str:
        """The record. It may be large, and most questions are answered without it: so it is unpacked here."""
        return unpacked(self.packed)

    @property
    def rules(self) -> tuple[RuleScore, ...]:
        """As far as they are known without it: points by rule."""
        return tuple(
            RuleScore(rule=rule, title="", handout="", points=points, max_points=most, cases=0, passed=0)
            for rule, (points, most) in json.loads(self.points).items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A submission of a run, graded, not graded yet, or not to be graded."""

    entry: Entry
    lab: str
    full: int
    """The points of a right program."""
    overrides: tuple[Override, ...] = ()
    kept: StoredRecord | None = None

    @property
    def name(self) -> str:
        """That of the submission."""
        return self.entry.submission

    @property
    def is_graded(self) -> bool:
        """Has it a score?"""
        return self.kept is not None

    @property
    def verdict(self) -> Verdict | None:
        """After overrides; None: not graded yet."""
        if self.kept is None:
            return Verdict.JUDGE_ERROR if self.entry.trouble else None
        return self.brief.verdict if self.overrides else Verdict(self.kept.verdict)

    @property
    def score(self) -> int | None:
        """After overrides."""
        return self.brief.score if self.overrides else self.kept.score if self.kept is not None else None

    @property
    def record(self) -> Record:
        """The record, after overrides. Without one it says that there is no score, and why."""
        entry = self.entry
        if self.kept is None:
            why = entry.trouble or "it has not been graded yet"
            submission = Submission(name=entry.submission, notes=entry.notes, students=entry.students)
            return ungraded(self.lab, submission, self.full, why)
        try:
            record = from_json(self.kept.json)
        except ValueError as error:
            raise StoreTrouble(
                f"the record of {self.name} cannot be read by this grader; to grade it anew: "
                f"grade batch FOLDER --again {self.name}\n({error})"
            ) from None
        return self._of_its_own(record)

    @property
    def brief(self) -> Record:
        """As much of the record as tables show. It is not unpacked for that, which would take a hundred times as long.

        Of the diagnosis it has the rule, of rules their points; outcomes and findings it has none.
        """
        kept = self.kept
        if kept is None:
            return self.record
        cause = (
            Diagnosis(
                rule=kept.rule, handout="", case=None, operation=None, line=None, source_line=None, summary="", hint=""
            )
            if kept.rule is not None
            else None
        )
        record = Record(
            complete=bool(kept.complete),
            lab=self.lab,
            submission=Submission(name=self.name),
            verdict=Verdict(kept.verdict),
            score=kept.score,
            max_score=kept.max_score,
            public_only=bool(kept.public_only),
            diagnosis=cause,
            rules=kept.rules,
        )
        return self._of_its_own(record)

    def _of_its_own(self, record: Record) -> Record:
        """With whose it is, and what people decided."""
        entry = self.entry
        submission = replace(record.submission, name=entry.submission, notes=entry.notes, students=entry.students)
        return applied(replace(record, submission=submission), self.overrides)
