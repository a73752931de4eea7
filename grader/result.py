"""One line of a run: a submission, who handed it in, and the record, when there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grader.migrations import unpacked
from grader.overrides import applied
from grader.record import Override, Record, Student, Submission, from_json
from grader.verdict import Finding, Verdict

__all__ = ["Entry", "Kept", "Result"]


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
class Kept:
    """A record as the store holds it: before overrides, and with what queries need beside it."""

    key: str
    packed: bytes
    verdict: str
    score: int
    max_score: int
    rule: str | None

    @property
    def json(self) -> str:
        """The record. It may be large, and most questions are answered without it: so it is unpacked here."""
        return unpacked(self.packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A submission of a run, graded, not graded yet, or not to be graded."""

    entry: Entry
    lab: str
    full: int
    """The points of a right program."""
    overrides: tuple[Override, ...] = ()
    kept: Kept | None = None

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
        return self.record.verdict if self.overrides else Verdict(self.kept.verdict)

    @property
    def score(self) -> int | None:
        """After overrides."""
        return self.record.score if self.overrides else self.kept.score if self.kept is not None else None

    @property
    def record(self) -> Record:
        """The record, after overrides. Without one it says that there is no score, and why."""
        entry = self.entry
        if self.kept is None:
            why = entry.trouble or "it has not been graded yet"
            return Record(
                complete=False,
                lab=self.lab,
                submission=Submission(name=entry.submission, notes=entry.notes, students=entry.students),
                verdict=Verdict.JUDGE_ERROR,
                score=None,
                max_score=self.full,
                findings=(Finding(rule="", verdict=Verdict.JUDGE_ERROR, kind="not-graded", message=why),),
            )
        record = from_json(self.kept.json)
        submission = replace(record.submission, name=entry.submission, notes=entry.notes, students=entry.students)
        return applied(replace(record, submission=submission), self.overrides)
