"""GitHub annotations: workflow commands that put a message at a line of the student's file.

GitHub shows ten errors and ten notices of a step, so the most costly causes come first; the job's summary has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from grader.core.record import Record
from grader.core.verdict import SourceLine
from grader.report.document import Document, View, as_command, joined
from grader.report.phrases import no_points_of, points_of, result_of
from grader.report.problems import advised, causes, decided, file_of

_MOST = 10


def render(record: Record, view: View) -> Document:
    """Return an error for each cause, a notice for each problem that costs no point (any more), and the points last.

    The points are a notice. When the grader itself failed, an error that says so takes their place.
    """
    return joined(_commands(record, view))


def _commands(record: Record, view: View) -> Iterator[Document]:
    problems = list(causes(record, view.audience))
    decisions = list(decided(record))
    errors = [problem for problem in (*decisions, *problems) if not problem.is_note]
    notes = [("decided by people", decision) for decision in decisions if decision.is_note]
    notes += [(f"{problem.rule}, costs no point any more", problem) for problem in problems if problem.is_note]
    notes += [("advice, costs no point", advice) for advice in advised(record)]
    for problem in errors[:_MOST]:
        yield as_command("error", problem.message, **_place(record, problem.source), title=problem.rule)
    for title, note in notes[: _MOST - 1]:
        yield as_command("notice", note.message, **_place(record, note.source), title=title)
    more = f"; {len(errors) - _MOST} more causes are in the summary" if len(errors) > _MOST else ""
    title = f"{record.submission.name}: {result_of(record)}"
    if record.verdict.is_ours:
        yield as_command("error", f"{no_points_of(record)}.", title=title)
    else:
        yield as_command("notice", f"{points_of(record)}{more}", title=title)


def _place(record: Record, source: tuple[SourceLine, ...]) -> dict[str, str | int]:
    if not record.submission.sha256:
        return {}
    place: dict[str, str | int] = {"file": file_of(record)}
    if source:
        place["line"] = source[0].line
        if source[0].column:
            place["col"] = source[0].column
    return place
