"""The one result record. Every report is a pure function of it, so that their numbers cannot disagree."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.core.picture import Picture
from grader.core.sanitize import plain_parts
from grader.core.verdict import Advice, CallStage, Diagnosis, Finding, Outcome, RuleScore, Verdict

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "SCHEMA",
    "Environment",
    "Override",
    "Protection",
    "Record",
    "Student",
    "Submission",
    "from_json",
    "schema",
    "to_json",
    "ungraded",
    "write",
]

SCHEMA = "paged-kv-grader/record/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """Whose submission it is, as far as a roster or an export says."""

    name: str
    sid: str = ""
    email: str = ""
    section: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What was graded: a name to show, and the SHA-256 of the source file ("" when there was none).

    A report shows findings beside the source, and may be made when the file is long gone: so its lines are here, but
    no more than anybody would read.
    """

    name: str
    sha256: str = ""
    file: str = ""
    """Where that lies in the folder of this name; empty when the name is the file's own, or there is none."""
    notes: tuple[str, ...] = ()
    source_file: str = ""
    """What findings call the source file."""
    source: tuple[str, ...] = ()
    """Its lines, bounded."""
    students: tuple[Student, ...] = ()
    """Several for the submission of a group, none where nobody said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What a person decided about one rule of one submission, after it was graded."""

    submission: str
    rule: str
    points: int
    reason: str
    by: str
    was: int = 0
    """The points that the rule had earned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What really stood between the student's code and the machine."""

    level: str = "none"
    active: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The tools that a result depends on."""

    compiler: str = ""
    command: str = ""
    valgrind: str = ""
    kernel: str = ""
    grader: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One submission, graded (design: the result record). Points are whole numbers, every text is plain.

    Nothing in it steers a terminal, hides, or cannot be written in XML; see `grader.core.sanitize`.
    """

    schema: str = SCHEMA
    complete: bool = True
    """Did the grading come to its end? Without that there is no score."""
    lab: str
    submission: Submission
    verdict: Verdict
    score: int | None
    max_score: int
    public_only: bool = False
    """Hidden cases were not run. Their weight counts all the same: the score is certain whatever they show, and the
    most that can be had here is less than all points."""
    would_score: int | None = None
    """For a `compile_error`: the score had it been built without -Werror or with stubs. Never counts."""
    diagnosis: Diagnosis | None = None
    stages: tuple[CallStage, ...] = ()
    """How far each demanded call is, where something goes wrong."""
    rules: tuple[RuleScore, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    findings: tuple[Finding, ...] = ()
    advice: tuple[Advice, ...] = ()
    """Worth knowing; never costs a point."""
    allowed: tuple[str, ...] = ()
    """Symbols that somebody has looked at and let pass (`--allow`); without that it were rejected."""
    pictures: tuple[Picture, ...] = ()
    """The failing cases that a report shows, drawn, where that was asked for."""
    overrides: tuple[Override, ...] = ()
    """Points that a person changed; rules, score and verdict are those after it."""
    notation: dict[str, str] = field(default_factory=dict)
    """What the short words in the shown operations mean."""
    output: str = ""
    """What the program printed, bounded. Shown, never parsed."""
    memcheck: bool = True
    """Did Valgrind run?"""
    instructions: int | None = None
    """What the demanded functions executed over the public cases that ran to their end, where it was counted."""
    seed: int = 0
    protection: Protection = Protection()
    environment: Environment = Environment()
    cpu_seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Whatever came from the student, and through whichever field: what a record holds is plain and bounded."""
        for name, value in plain_parts(self).items():
            object.__setattr__(self, name, value)

    def same_result(self, other: Record) -> bool:
        """Do both say the same, whatever machine and time they come from?"""
        return _comparable(self) == _comparable(other)


def _comparable(record: Record) -> Record:
    """Without what depends on machine and time: also where in its loop a call was that never returns."""
    hangs = {one.case for one in record.findings if one.verdict is Verdict.TIME_LIMIT_EXCEEDED}
    diagnosis = record.diagnosis
    if diagnosis is not None and diagnosis.case in hangs:
        diagnosis = replace(diagnosis, source_line=None, hint="")
    return replace(
        record,
        findings=tuple(replace(one, source=()) if one.case in hangs else one for one in record.findings),
        outcomes=tuple(replace(one, cause="", hint="") if one.case in hangs else one for one in record.outcomes),
        diagnosis=diagnosis,
        cpu_seconds={},
        environment=Environment(),
        protection=Protection(),
        instructions=None,
        pictures=(),
    )


def ungraded(lab: str, submission: Submission, max_score: int, why: str) -> Record:
    """The record of what has no score, which costs nobody a point."""
    finding = Finding(rule="", verdict=Verdict.JUDGE_ERROR, kind="not-graded", message=why)
    return Record(
        complete=False,
        lab=lab,
        submission=submission,
        verdict=Verdict.JUDGE_ERROR,
        score=None,
        max_score=max_score,
        findings=(finding,),
    )


@cache
def _adapter() -> TypeAdapter[Record]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow to import, and only files need it

    return TypeAdapter(Record)


def to_json(record: Record, *, one_line: bool = False) -> str:
    """The record as a JSON object, with a line end."""
    return _adapter().dump_json(record, indent=None if one_line else 1).decode() + "\n"


def from_json(text: str | bytes) -> Record:
    """Read a record back. Raises `ValueError` when the text is none."""
    return _adapter().validate_json(text)


def schema() -> dict[str, Any]:
    """The JSON schema that every record obeys."""
    published = _adapter().json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **published}


def write(path: Path, text: str | Iterable[str]) -> None:
    """Put a text, or its parts, at `path` in one step: whoever looks sees the old file or the new one, never half.

    Raises `OSError` that names the path.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # a name that is known whenever an interrupt comes
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
