"""Messages in the format of GNU compilers, for editors: `file:line:column: error: text [rule]`.

A problem without a known line is written without one, like a compiler's own messages that belong to no line. Editors
skip such messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from grader.core.record import Record
from grader.report.document import Document, View, as_gnu_message, as_log, joined
from grader.report.phrases import no_points_of, points_of, result_of
from grader.report.problems import advised, causes, decided, file_of


def render(record: Record, view: View) -> Document:
    """Return errors in the order of `causes`, notes for what costs no point (any more), and a note with the points."""
    messages = joined(_messages(record, view))
    return as_log(messages) if view.workflow else messages


def _messages(record: Record, view: View) -> Iterator[Document]:
    file = file_of(record) if record.submission.sha256 else record.submission.name
    for problem in chain(decided(record), causes(record, view.audience), advised(record)):
        place = (problem.source[0].line, problem.source[0].column) if problem.source else ()
        kind = "note" if problem.is_note else "error"
        yield as_gnu_message(kind, f"{problem.message} [{problem.rule}]", file, *place)
    points = no_points_of(record) if record.verdict.is_ours else points_of(record)
    yield as_gnu_message("note", f"{result_of(record)}, {points[0].lower()}{points[1:]}", file)
