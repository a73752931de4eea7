"""Everything that a record depends on except the submission: an assignment, how it is graded, and with what.

Two gradings with the same fingerprint give the same result, so a submission that was graded once need not be graded
again.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from grader.assignment.case_selection import select_cases
from grader.assignment.lab import Lab, Settings
from grader.assignment.rubric import RUBRIC_FILE
from grader.assignment.source import Source
from grader.core.case import Case
from grader.judge.score import most_points
from grader.labs import open_lab
from grader.system import resources

_ROOT = Path(__file__).parents[2]
_CODE = ("reference/**/*.py", "reference/**/*.h", "grader/**/*.py", "grader/**/*.[chS]", "grader/**/*.jinja")
_NO_MATTER = frozenset({"tests", "cli", "report", "bench", "bundles"})
"""Packages on which no record depends."""
_HASHED = ("grader", "cases")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingPlan:
    """A loaded assignment with its cases."""

    settings: Settings
    lab: Lab
    cases: tuple[Case, ...]
    hidden: Mapping[str, int] | None = None
    """The weight of the cases that are not run, by rule; None: no case is left out for being hidden."""
    made_of: Mapping[str, str]
    """What its records depend on besides settings and submission, by name: grader code, cases, tools, machine."""
    fingerprint: str
    judged: str
    """The fingerprint of all but what `rescored` (grader.result.assemble) may change: points, titles and places of
    rules, and what students see, which may depend on the time. With the same one, a record needs no second grading."""

    @property
    def max_score(self) -> int:
        """The points of a right program; rules for which no case was chosen have none."""
        return most_points(self.lab.rubric, self.cases, self.hidden)

    def key(self, source: str) -> str:
        """Return the key of the record of a source (see `source_id`)."""
        return _digest([self.fingerprint, source])

    def require_tools(self) -> None:
        """Raise `ToolMissing` when a tool that this plan needs is not installed on this machine."""
        resources.require(*self.lab.runtime.tools(self.settings))


@cache
def grading_plan(settings: Settings) -> GradingPlan:
    """Load the plan. Raises `UsageError` when no case matches, `CaseFileError`, `RubricError`."""
    lab = open_lab(settings.lab)
    seed = lab.rubric.seed if settings.seed is None else settings.seed
    selection = select_cases(lab, seed=seed, pattern=settings.case, public_only=settings.public_only)
    settings = replace(settings, public_only=selection.hidden is not None)
    of_cases = repr(selection.hidden), *_files(lab, selection.cases)
    made_of = {
        "grader": grader_hash(),
        "cases": _digest([*of_cases, (lab.cases / RUBRIC_FILE).read_bytes()]),
        **{tool.short_name: resources.version(tool.name) for tool in lab.runtime.tools(settings)},
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }
    return GradingPlan(
        settings=settings,
        lab=lab,
        cases=selection.cases,
        hidden=selection.hidden,
        made_of=made_of,
        fingerprint=_fingerprint(settings, made_of | {"feedback": lab.rubric.feedback_at(datetime.now(UTC))}),
        judged=_fingerprint(settings, made_of | {"cases": _digest([*of_cases, repr(lab.rubric.judging)])}),
    )


def differences(here: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Return in words how two values of `GradingPlan.made_of` differ."""
    words = []
    for name in sorted(here.keys() | wanted.keys()):
        actual, expected = here.get(name, ""), wanted.get(name, "")
        if actual != expected:
            words.append(f"other {name}" if name in _HASHED else f"{name} '{actual or 'missing'}', not '{expected}'")
    return "; ".join(words)


@cache
def grader_hash() -> str:
    """Return a hash of the grader's code, as far as records depend on it."""
    return _digest(part for path in code() for part in (str(path.relative_to(_ROOT)), path.read_bytes()))


def code() -> list[Path]:
    """Return the files of the grader's code on which records depend."""
    paths = sorted({path for pattern in _CODE for path in _ROOT.glob(pattern)})
    return [path for path in paths if not _NO_MATTER & set(path.relative_to(_ROOT).parts)]


def source_id(source: Source) -> str:
    """Return a hash of what was submitted: the source, its own headers that it mentions, or why there is no source."""
    failure = source.finding.message if source.finding is not None else ""
    headers = meant_headers(source)
    return _digest([source.content, failure, *(part for name in headers for part in (name, headers[name]))])


def meant_headers(source: Source) -> Mapping[str, bytes]:
    """Return the headers beside a source whose names the source, or another of these headers, mentions."""
    meant: dict[str, bytes] = {}
    texts = [source.content]
    while texts:
        text = texts.pop()
        for name, content in source.own_headers.items():
            if name not in meant and re.search(rb"\b" + re.escape(name.encode()), text):
                meant[name] = content
                texts.append(content)
    return dict(sorted(meant.items()))


def _files(lab: Lab, cases: Iterable[Case]) -> Iterator[str | bytes]:
    """Yield path and content of the chosen cases and of the files beside them, such as the clauses; not the rubric."""
    for path in [*sorted(lab.cases.glob("*.toml")), *(case.path for case in cases)]:
        if path != lab.cases / RUBRIC_FILE:
            yield str(path.relative_to(lab.cases))
            yield path.read_bytes()


def _fingerprint(settings: Settings, made_of: Mapping[str, str]) -> str:
    return _digest([repr(asdict(settings)), *(part for pair in made_of.items() for part in pair)])


def _digest(parts: Iterable[str | bytes]) -> str:
    """Return a hash of the parts that also depends on where each part ends."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
