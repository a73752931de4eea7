"""Cases and labelled submissions as pytest items (see grader.pytest_plugin)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.assignment.lab import Lab
from grader.assignment.samples import PATCH, covering_samples, label_of
from grader.core.case import Case
from grader.core.errors import GraderError
from grader.core.record import Record
from grader.core.verdict import Outcome, Verdict
from grader.labs import open_lab, present

_NOT_CASES = ("rubric.toml", "handout.toml", "mistakes.toml")
_CASE_DEPTH = 4  # cases/LAB/FOLDER/CASE.toml
_SAMPLE_DEPTH = 5  # submissions/LAB/VERDICT/NAME/SOURCE
_ROOT = Path(__file__).parents[2]
SHARE = 20
"""A sample plays only the first 1/SHARE of the random traces of a case. With --all-samples, and for the first accepted
sample of a lab, all traces are played. Playing all takes much time, and written cases or few traces must find every
known mistake."""


def collector(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the collector of a file below `cases/` or `submissions/`; None for a file that is not an item."""
    place = path.relative_to(_ROOT)
    top, name = place.parts[:2]
    if name not in present() or path.name in _NOT_CASES:
        return None
    lab = open_lab(name)
    if top == "cases" and path.suffix == ".toml" and len(place.parts) == _CASE_DEPTH:
        return OneItemFile.from_parent(parent, path=path, lab=lab, item=CaseItem, label=path.stem)
    program = path.name in (lab.source_name, PATCH)
    sample = top == "submissions" and program and len(place.parts) == _SAMPLE_DEPTH
    if sample and parent.config.getoption("--submission") is None and _is_graded(lab, path.parent, parent.config):
        return OneItemFile.from_parent(parent, path=path, lab=lab, item=SampleItem, label=path.parent.name)
    return None


def _is_graded(lab: Lab, sample: Path, config: pytest.Config) -> bool:
    """Whether to grade a sample: it is in the covering set or below a path of the command line, or all are graded."""
    if config.getoption("--all-samples") or sample in _covering(lab.name):
        return True
    given = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.invocation_params.args)
    return any(sample.is_relative_to(path) or sample == path.parent for path in given)


@cache
def _covering(lab: str) -> frozenset[Path]:
    return frozenset(covering_samples(_ROOT / "submissions" / lab, open_lab(lab).source_name))


class OneItemFile(pytest.File):
    """A case file or the file of a labelled submission. It has one item."""

    def __init__(self, *, lab: Lab, item: type[CaseItem], label: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.lab, self.item, self.label = lab, item, label

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the item."""
        yield self.item.from_parent(self, name=self.label, lab=self.lab)


class CaseItem(pytest.Item):
    """One case: played by the submission of --submission, else by the accepted samples."""

    def __init__(self, *, lab: Lab, **rest: Any) -> None:
        super().__init__(**rest)
        self.lab = lab
        self.share = 1 if self.config.getoption("--all-samples") else SHARE

    def runtest(self) -> None:
        """Grade the submission or the accepted samples, and check the result of this case."""
        case = case_files.load(self.path, self.lab.grammar, seed=self.lab.rubric.seed)
        submission = self.config.getoption("--submission")
        if submission is None:
            for sample in accepted_samples(self.lab.name):
                if self.config.getoption("--all-samples") or sample in _covering(self.lab.name):
                    _demand(graded(self.lab.name, sample, share=self.share), case)
        else:
            _demand(graded(self.lab.name, Path(submission)), case)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return only the message of an error. The line of this plugin that raised it does not help a reader."""
        if isinstance(excinfo.value, CaseFailed | GraderError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the item's file and name."""
        return self.path, 0, f"case {self.path.parent.name}/{self.path.stem}"


class SampleItem(CaseItem):
    """A labelled submission: its verdict, points and the rule that loses points must be right. No stage may fail."""

    def runtest(self) -> None:
        """Grade the sample and compare with its label."""
        folder = self.path.parent
        record = graded(self.lab.name, folder, share=self.share)
        expected = Verdict(folder.parent.name)
        label = label_of(folder)
        if record.failed_stages:
            failures = [f"{failure.stage}: {failure.error}" for failure in record.failed_stages]
            raise CaseFailed("\n".join([f"{folder.name}: a stage of the grader failed", *failures]))
        if expected is Verdict.ACCEPTED and "elsewhere" not in label:
            if record.score != record.max_score or record.verdict is not expected:
                raise CaseFailed(f"{folder.name} must be accepted: {_result(record)}")
            return
        problems = list(_label_problems(self.lab, record, label, expected))
        if problems:
            raise CaseFailed("\n".join([f"{folder.name}: {_result(record)}", *problems]))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the item's file and name."""
        return self.path, 0, f"submission {self.path.parent.parent.name}/{self.path.parent.name}"


class CaseFailed(Exception):
    """A submission does not have the result that the item demands."""


@cache
def graded(lab: str, path: Path, *, share: int = SHARE) -> Record:
    """Grade a submission once per process. Samples but the first accepted one play 1/`share` of the random traces."""
    opened_lab = open_lab(lab)
    selected = _part(lab)
    shortens = path.is_relative_to(_ROOT / "submissions") and path != accepted_samples(lab)[0]
    cases = tuple(_shortened(case, share) for case in selected.cases) if shortens else selected.cases
    return pipeline.grade(path, opened_lab, cases, hidden=selected.hidden)


@cache
def _part(lab: str) -> case_files.CaseSelection:
    opened_lab = open_lab(lab)
    return case_files.select_cases(opened_lab, seed=opened_lab.rubric.seed)


def _shortened(case: Case, share: int) -> Case:
    """Return the case with the first 1/`share` of its random traces, rounded up."""
    if case.generated is None:
        return case
    return replace(case, generated=case.generated.first(-(-len(case.generated.traces) // share)))


def accepted_samples(lab: str) -> list[Path]:
    """Return the accepted samples, without those that are accepted only with the tools of some machines."""
    samples = sorted((_ROOT / "submissions" / lab / Verdict.ACCEPTED).iterdir())
    return [sample for sample in samples if "elsewhere" not in label_of(sample)]


def may_get(lab: Lab, label: dict[str, Any], expected: Verdict) -> dict[Verdict, tuple[int, int]]:
    """Return the verdicts that a sample may get, each with its lowest and highest allowed points.

    These are its folder's verdict and, if its label is for other tools than this machine has, those in `elsewhere`.
    """
    verdicts = {expected: tuple(label["keeps"])}
    if not lab.labels_hold():
        verdicts |= {Verdict(name): tuple(keeps) for name, keeps in label.get("elsewhere", {}).items()}
    return verdicts


def _demand(record: Record, case: Case) -> None:
    """Raise `CaseFailed` unless the case passed without a leak or a memory error."""
    outcome = next((outcome for outcome in record.outcomes if outcome.case == case.name), None)
    if outcome is None:
        raise CaseFailed(f"{record.submission.name}: {_result(record)}")
    if not (outcome.passed and outcome.clean):
        raise CaseFailed("\n".join([f"{record.submission.name}: {case.title}", *_why(record, outcome)]))


def _why(record: Record, outcome: Outcome) -> Iterator[str]:
    for finding in record.findings_of(outcome):
        values = f": expected {finding.expected}, actual {finding.actual}" if finding.expected else ""
        at = f"operation {finding.operation}: " if finding.operation is not None else ""
        where = f" ({finding.source[0]})" if finding.source else ""
        yield f"  {at}{finding.field}{values} {finding.message}{where}"


def _label_problems(lab: Lab, record: Record, label: dict[str, Any], expected: Verdict) -> Iterable[str]:
    if label["verdict"] != expected:
        yield f"expect.toml says verdict {label['verdict']}, the folder {expected}"
    if "keeps" not in label:
        yield "keeps.toml has no range of points for it: run scripts/golden"
        return
    verdicts = may_get(lab, label, expected)
    if record.verdict not in verdicts:
        yield f"verdict {record.verdict}, expected {' or '.join(verdicts)}"
    least, most = verdicts.get(record.verdict, verdicts[expected])
    if record.score is None or not least <= record.score <= most:
        yield f"keeps {record.score} points, may keep {least} to {most}"
    if record.verdict is not expected or not label["rules"]:
        return
    main = label["rules"][0]
    if not any(rule.rule == main and rule.points < rule.max_points for rule in record.rules):
        yield f"loses no point of {main}"


def _result(record: Record) -> str:
    summary = f": {record.first_cause.rule}: {record.first_cause.summary}" if record.first_cause is not None else ""
    return f"{record.verdict}, {record.score}/{record.max_score}{summary}"
