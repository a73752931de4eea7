"""One line of a run: a submission, its students, its record if there is one, and the decisions of people about it.

An override is a decision after the grading about the points of one rule of one submission, with reason and name. A TOML
file has one table [[override]] for each: submission, rule, points (what the rule counts now), reason, by.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Row

from grader.assignment.input_file import TomlTable, cut, short
from grader.classroom.database import DAMAGE, checked, packed, unpacked
from grader.core.case import Number
from grader.core.errors import ClassFileError, StoreFailure
from grader.core.record import Override, Record, Student, Submission, from_json, to_json, ungraded, with_costs
from grader.core.rubric import Rubric
from grader.core.verdict import Cause, Feedback, Judged, RuleScore, Verdict
from grader.judge.score import lose_alike, rescored, total
from grader.result.assemble import by_points, with_rules

_TABLE = "override"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A submission in a run."""

    submission: str
    students: tuple[Student, ...] = ()
    notes: tuple[str, ...] = ()
    source: str | None
    """The id of the source; None if the submission could not be read."""
    key: str
    """The key of the submission's record."""
    failure: str = ""
    """Why the submission could not be graded and has no score; "" otherwise."""
    needs_person: bool = False
    """Whether a person has to look at the submission: it could not be read, or its grading broke twice."""
    since: int | None = None
    """The earlier run to which the submission was handed in; None if it was handed in to this run."""

    @classmethod
    def of_row(cls, row: Row) -> Entry | None:
        """Return the entry of a row of `results` joined with `kept` and `given_up`; None if it is damaged."""
        try:
            values = {
                "submission": row["submission"],
                "students": tuple(checked(Student, student) for student in json.loads(row["students"])),
                "notes": tuple(json.loads(row["notes"])),
                "source": row["source"],
                "key": row["key"],
                "failure": row["failure"] if row["reason"] is None else row["reason"],
                "needs_person": row["source"] is None or row["reason"] is not None,
                "since": row["since"],
            }
            return checked(cls, values)
        except DAMAGE:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as the store holds it: without overrides, and with the values that tables and queries need."""

    key: str
    packed: bytes
    verdict: str
    score: int
    max_score: int
    rule: str | None
    """The rule of the first cause."""
    complete: int
    public_only: int
    points: str
    """JSON: for each rule its points and its maximum."""
    counted: str
    """JSON, by the rubric of this record: what students see, the scores of the rules, and those of `would_score`. After
    `rescored` the values in `packed` are older."""

    @classmethod
    def of(cls, key: str, record: Record) -> StoredRecord:
        """Return the stored form of a record that has a score."""
        assert record.score is not None
        return cls(
            key=key,
            packed=packed(to_json(record, one_line=True)),
            verdict=record.verdict,
            score=record.score,
            max_score=record.max_score,
            rule=record.first_cause.rule if record.first_cause is not None else None,
            complete=record.complete,
            public_only=record.public_only,
            points=_points(record.rules),
            counted=_dumped(record.feedback, record.rules, record.would_rules),
        )

    def rescored(self, key: str, rubric: Rubric) -> StoredRecord:
        """Return the record as another rubric scores it, under this key (grader.result.assemble).

        The record is seldom unpacked: its scores are stored next to it and replace those inside it when it is read.
        Its causes are right only if `loses_alike` is True for the two versions.
        """
        feedback = rubric.feedback_at(datetime.now(UTC))
        rules, would = (rescored(scores, rubric) for scores in self.scores)
        points, most = total(rules), sum(rule.max_points for rule in rules)
        verdict = Verdict(self.verdict)
        if verdict not in (Verdict.COMPILE_ERROR, Verdict.REJECTED):
            if verdict is Verdict.ACCEPTED and points < most:  # rare: a rule that had no points has points now
                record = replace(from_json(self.json), feedback=feedback)
                return StoredRecord.of(key, with_rules(record, rules, would))
            verdict = by_points(points, most, verdict)
        return replace(
            self,
            key=key,
            verdict=verdict,
            score=points,
            max_score=most,
            points=_points(rules),
            counted=_dumped(feedback, rules, would),
        )

    def loses_alike(self, other: StoredRecord) -> bool:
        """Whether the same rules lose points in both records."""
        return lose_alike(self.scores[0], other.scores[0])

    @classmethod
    def of_row(cls, row: Row) -> StoredRecord | None:
        """Return the record of a row of `records`; None if there is no record or it is damaged."""
        if row["packed"] is None:
            return None
        stored = cls(**{field.name: row[field.name] for field in fields(cls)})
        try:
            return stored if stored.checksum == row["checksum"] else None
        except DAMAGE:
            return None

    @property
    def checksum(self) -> int:
        """The checksum that shows damage. Raises `TypeError` or `ValueError` if a value is of another type."""
        result = (self.verdict, self.score, self.max_score, self.rule, int(self.complete), int(self.public_only))
        beside = json.dumps((self.key, *result, self.points, self.counted))
        return zlib.crc32(self.packed, zlib.crc32(beside.encode()))

    @property
    def json(self) -> str:
        """The record as JSON. It may be large and is seldom needed, so it is unpacked only here."""
        return unpacked(self.packed)

    @property
    def scores(self) -> tuple[tuple[RuleScore, ...], tuple[RuleScore, ...]]:
        """The scores of the rules, and the scores of `would_score`. The record is not unpacked for them."""
        rules, would = (
            tuple(RuleScore(**{**values, "judged": Judged(values["judged"])}) for values in scores)
            for scores in json.loads(self.counted)[1:]
        )
        return rules, would

    @property
    def feedback(self) -> Feedback:
        """What students see of the record."""
        return Feedback(json.loads(self.counted)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A submission of a run: graded, not graded yet, or waiting for a person."""

    entry: Entry
    lab: str
    full: int
    """The points of a right program."""
    overrides: tuple[Override, ...] = ()
    stored: StoredRecord | None = None

    @property
    def name(self) -> str:
        """The name of the submission."""
        return self.entry.submission

    @property
    def is_graded(self) -> bool:
        """Whether the submission has a score."""
        return self.stored is not None

    @property
    def needs_person(self) -> bool:
        """Whether the submission gets no score until a person has looked at it."""
        return self.stored is None and self.entry.needs_person

    @property
    def is_final(self) -> bool:
        """Whether the submission can be exported now: it has a score, or only a person can decide."""
        return self.is_graded or self.needs_person

    @property
    def verdict(self) -> Verdict | None:
        """The verdict after overrides; None if the submission is not graded yet."""
        if self.stored is None:
            return Verdict.JUDGE_ERROR if self.entry.failure else None
        return self.brief.verdict if self.overrides else Verdict(self.stored.verdict)

    @property
    def score(self) -> int | None:
        """The score after overrides; None without a record."""
        return self.brief.score if self.overrides else self.stored.score if self.stored is not None else None

    @property
    def record(self) -> Record:
        """The record after overrides. If no record is stored, this is a record without a score that says why."""
        if self.stored is None:
            why = self.entry.failure or "it has not been graded yet"
            return ungraded(self.lab, self._named(Submission(name="")), self.full, why, needs_person=self.needs_person)
        try:
            record = from_json(self.stored.json)
        except ValueError as error:
            raise StoreFailure(
                f"the record of {self.name} cannot be read by this grader; to grade it again: "
                f"grade batch FOLDER --again {self.name}\n({error})"
            ) from None
        rules, would = self.stored.scores
        if (rules, would) != (record.rules, record.would_rules):
            record = with_rules(record, rules, would)
        return self._of_its_own(replace(record, feedback=self.stored.feedback))

    @property
    def brief(self) -> Record:
        """The part of the record that tables show: unpacking the whole record would take a hundred times as long.

        This part has the rule of the first cause and the points of the rules, but no outcomes and no findings.
        """
        stored = self.stored
        if stored is None:
            return self.record
        verdict = Verdict(stored.verdict)
        record = Record(
            complete=bool(stored.complete),
            lab=self.lab,
            submission=Submission(name=self.name),
            verdict=verdict,
            score=stored.score,
            max_score=stored.max_score,
            public_only=bool(stored.public_only),
            causes=(Cause(rule=stored.rule, verdict=verdict, sentence=""),) if stored.rule is not None else (),
            rules=stored.scores[0],
        )
        return self._of_its_own(record)

    def _of_its_own(self, record: Record) -> Record:
        """Return the record with the name, notes and students of the submission in this run, and with the overrides."""
        return applied(replace(record, submission=self._named(record.submission)), self.overrides)

    def _named(self, submission: Submission) -> Submission:
        entry = self.entry
        return replace(
            submission, name=entry.submission, notes=entry.notes, students=entry.students, kept_from=entry.since
        )


def _points(rules: Iterable[RuleScore]) -> str:
    return json.dumps({rule.rule: [rule.points, rule.max_points] for rule in rules})


def _dumped(feedback: Feedback, *scores: Iterable[RuleScore]) -> str:
    return json.dumps([feedback, *([asdict(score) for score in part] for part in scores)])


def load_overrides(path: Path, rubric: Rubric, submissions: Collection[str]) -> tuple[Override, ...]:
    """Load the overrides of a file, for these submissions. Raises `ClassFileError` with all mistakes."""
    file = TomlTable.read(path, ClassFileError)
    file.check_keys([_TABLE])
    overrides: dict[tuple[str, str], Override] = {}
    known = dict.fromkeys(submissions)
    for table in file.rows(_TABLE):
        override = _override(table, rubric, known)
        about = override.submission, override.rule
        if all(about) and about in overrides:
            table.complain("rule", f"{override.rule} of {cut(override.submission)} was decided above already")
        overrides[about] = override
    file.check()
    return tuple(overrides.values())


def applied(record: Record, overrides: Iterable[Override]) -> Record:
    """Return the record with its overrides. Overrides of other submissions, or of rules it lacks, are ignored.

    The verdict is accepted if and only if the record has all points, from the grading or from people.
    """
    decided = {override.rule: override for override in overrides if override.submission == record.submission.name}
    decided = {  # a rule is worth less if not all its cases were chosen
        rule.rule: replace(decided[rule.rule], points=min(decided[rule.rule].points, rule.max_points), was=rule.points)
        for rule in record.rules
        if rule.rule in decided
    }
    recorded = tuple(decided.values())
    if not recorded or record.score is None:
        return record
    rules = tuple(
        replace(rule, points=decided[rule.rule].points) if rule.rule in decided else rule
        for rule in record.rules  # a rule is worth nothing if no case was chosen for it
    )
    score = sum(rule.points for rule in rules)
    verdict = record.verdict
    if score == record.max_score:
        verdict = Verdict.ACCEPTED
    elif verdict is Verdict.ACCEPTED:
        verdict = Verdict.WRONG_ANSWER
    return with_costs(replace(record, rules=rules, score=score, verdict=verdict, overrides=recorded))


def _override(table: TomlTable, rubric: Rubric, submissions: Collection[str]) -> Override:
    table.check_keys([field.name for field in fields(Override) if field.name != "was"])
    rule = table.choice("rule", [rule.id for rule in rubric.rules])
    most = rubric.rule(rule).points if rule else rubric.max_score
    submission = table.string("submission", '"...", its name in the store')
    if submission and submission not in submissions:
        hint = table.hint(submission, submissions)
        table.complain("submission", f"there is no submission {short(submission)}{hint}")
    return Override(
        submission=submission,
        rule=rule,
        points=table.number("points", Number("points", 0, most), needed=True) or 0,
        reason=table.string("reason", '"...", which the student will read'),
        by=table.string("by", '"...", who decided it'),
    )
