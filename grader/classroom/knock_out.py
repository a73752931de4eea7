"""What a right program is worth without one of its calls: a grade in proportion to what is there.

The table of a lab (submissions/LAB/knock_outs.toml) names a right program and one that returns plausible, empty values
everywhere. One call after the other gets its body, and the result is graded as any submission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grader import pipeline
from grader.assignment.lab import Lab
from grader.assignment.samples import knock_outs_of
from grader.assignment.source import Source, collect
from grader.classroom.workers import ProcessPool
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.labs import open_lab
from grader.search.mutants import knock_outs


@dataclass(frozen=True, slots=True, kw_only=True)
class KnockedOut:
    """A right program in which one call does nothing."""

    call: str
    source: Source
    teacher: int
    """The points of a fair teacher."""


def knocked_out(lab: Lab) -> list[KnockedOut]:
    """Return the programs of a lab's table, none where it has none.

    Raises `UsageError` where the table names other calls than the two programs have, or tree-sitter is not installed.
    """
    folder = lab.cases.parents[1] / "submissions" / lab.name
    table = knock_outs_of(folder)
    if table is None:
        return []
    right, empty = (collect(sample, lab.source_name, rule="") for sample in (table.right, table.empty))
    try:
        programs = dict(knock_outs(right.content, empty.content, lab.runtime.language))
    except ImportError as error:
        raise UsageError("programs are parsed by tree-sitter; run scripts/setup --mutants") from error
    if programs.keys() != table.teacher.keys():
        others = ", ".join(sorted(programs.keys() ^ table.teacher.keys()))
        raise UsageError(f"{folder / 'knock_outs.toml'}: only the table or only the two programs have {others}")
    return [
        KnockedOut(call=call, source=replace(right, content=programs[call]), teacher=points)
        for call, points in table.teacher.items()
    ]


def scores(lab: Lab, cases: Sequence[Case], programs: Sequence[KnockedOut], *, jobs: int) -> Iterator[int]:
    """Yield the points of each program."""
    with ProcessPool(jobs) as pool:
        yield from pool.map(partial(_score, lab.name, tuple(cases)), (program.source for program in programs))


def _score(lab_name: str, cases: tuple[Case, ...], source: Source) -> int:
    record = pipeline.grade(Path(source.name), open_lab(lab_name), cases, source=source)
    assert record.score is not None
    return record.score
