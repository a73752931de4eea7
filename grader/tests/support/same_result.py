"""When two records are the same but for what depends on the machine and the moment."""

from __future__ import annotations

from dataclasses import replace

from grader.core.record import Environment, Protection, Record
from grader.core.verdict import Feedback, Verdict


def same_result(first: Record, second: Record) -> bool:
    """Whether both records have the same result, apart from what depends on machine and time."""
    return _comparable(first) == _comparable(second)


def _comparable(record: Record) -> Record:
    """Return the record without what depends on machine and time, such as the line at which a hanging call was."""
    hangs = {finding.case for finding in record.findings if finding.verdict is Verdict.TIME_LIMIT_EXCEEDED}
    return replace(
        record,
        findings=tuple(
            replace(finding, source=(), hint="") if finding.case in hangs else finding for finding in record.findings
        ),
        causes=tuple(
            replace(cause, lines=(), hint="") if hangs.intersection(cause.cases) else cause for cause in record.causes
        ),
        cpu_seconds={},
        feedback=Feedback.FULL,
        environment=Environment(),
        protection=Protection(),
        pictures=(),
    )
