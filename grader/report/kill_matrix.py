"""A web page that shows which program fails which case: a row for each program, a column for each case, and sums.

It is for instructors: it names hidden cases. There may be a thousand programs and some hundred cases, so a cell is a
few pixels; the page names program and case under the pointer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from grader.core.case import Case
from grader.report.document import Document, web_page
from grader.report.phrases import counted

_LEFT, _TOP, _BAR = 230, 230, 50
"""Pixels: the width of groups' names, the height of rules' names with their bars, the length of the longest bar."""
_WIDTH = 1060
"""The width that all cells share, in pixels."""
_SMALLEST, _LARGEST = 4, 9
"""The smallest and the largest side of a cell, in pixels."""
_NARROWEST, _GAP = 15, 4
"""The least size of a group, so that its name fits, and the space after the group, in pixels."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProgram:
    """A program on which all cases were played."""

    name: str
    group: str
    """For a sample the rule or verdict in its label, for a mutant the program from which it was made."""
    mutant: bool
    fails: frozenset[str]
    """The names of the cases that the program fails."""
    trace: tuple[str, ...] = ()
    """For a mutant that passes every case: calls on which it differs from a right program, if a search found any."""


def kill_matrix(
    lab: str,
    cases: Sequence[Case],
    programs: Sequence[MatrixProgram],
    *,
    sole: Mapping[str, str],
    redundant: Collection[str],
) -> Document:
    """Return the page of an assignment.

    `sole` maps each rule that only one case guards to this case. Without the `redundant` cases, the remaining cases of
    every rule would still catch all programs that its cases catch now.
    """
    kills = Counter(name for program in programs for name in program.fails)
    of_rule = _grouped(cases, (case.rule or case.title for case in cases))
    cell = max(_SMALLEST, min(_LARGEST, (_WIDTH - _GAP * len(of_rule)) // max(1, len(cases))))
    columns = list(_bands(of_rule, cell, _LEFT))
    samples, mutants = ([program for program in programs if program.mutant is kind] for kind in (False, True))
    labels = _grouped(samples, (program.group for program in samples))
    sample_groups = {**{rule: labels[rule] for rule in of_rule if rule in labels}, **labels}
    sample_rows = list(_bands(sample_groups, cell, _TOP))
    below = sample_rows[-1].end + _GAP + _NARROWEST if sample_rows else _TOP
    mutant_rows = list(_bands(_grouped(mutants, (program.group for program in mutants)), cell, below))
    rows = [*sample_rows, *mutant_rows]
    right = columns[-1].end + _GAP if columns else _LEFT
    passing = [program for program in programs if not program.fails]
    return web_page(
        "kills",
        title=f"{lab} · {counted(len(programs), 'wrong program')} · {counted(len(cases), 'case')}",
        figures=[
            ("fail a case", len(programs) - len(passing)),
            ("mutants that pass every case, but not a search", sum(bool(program.trace) for program in passing)),
            ("mutants that count as right", sum(program.mutant and not program.trace for program in passing)),
        ],
        left=_LEFT,
        top=_TOP,
        side=cell,
        right=right,
        bottom=rows[-1].end + _GAP if rows else _TOP,
        width=max(right, _LEFT + _WIDTH) + _BAR + 20,
        longest=_BAR,
        columns=columns,
        rows=rows,
        headings=[("samples of", _TOP)] * bool(sample_rows) + [("mutants of", below)] * bool(mutant_rows),
        kills=kills,
        most=max(kills.values(), default=1),
        widest=max((len(program.fails) for program in programs), default=1) or 1,
        paths={program.name: _path(program, columns, cell) for program in programs if program.fails},
        guards={band.name: _guarded(band, programs) for band in columns},
        own=[(column, row) for row in sample_rows for column in columns if column.name == row.name],
        sole=sole,
        nobody=[case for case in cases if not kills[case.name]],
        redundant=[case for case in cases if case.name in redundant and kills[case.name]],
        passing=passing,
    )


class _Band(NamedTuple):
    """A group of cases or programs along an edge of the matrix: each item, and the place where its cells begin."""

    name: str
    start: int
    end: int
    places: list[tuple[Any, int]]


def _grouped(items: Iterable[_Item], names: Iterable[str]) -> dict[str, list[_Item]]:
    groups: dict[str, list[_Item]] = {}
    for item, name in zip(items, names, strict=True):
        groups.setdefault(name, []).append(item)
    return groups


def _bands(groups: Mapping[str, Sequence[object]], cell: int, start: int) -> Iterator[_Band]:
    for name, items in groups.items():
        end = start + max(_NARROWEST, cell * len(items))
        yield _Band(name, start, end, [(item, start + place * cell) for place, item in enumerate(items)])
        start = end + _GAP


def _path(program: MatrixProgram, columns: Sequence[_Band], cell: int) -> str:
    """Return the cells of a program's row as an SVG path of horizontal lines, from the first column on."""
    pieces, pen = [], 0
    for column in columns:
        for failed, run in groupby(column.places, key=lambda place: place[0].name in program.fails):
            starts = [x - _LEFT for _, x in run]
            if failed:
                pieces.append(f"m{starts[0] - pen} 0h{cell * len(starts)}")
                pen = starts[0] + cell * len(starts)
    return "".join(pieces)


def _guarded(column: _Band, programs: Sequence[MatrixProgram]) -> tuple[int, int, int]:
    """Return how many programs fail a case of a rule, how many samples of the rule do, and how many samples it has."""
    fails = [(program, any(case.name in program.fails for case, _ in column.places)) for program in programs]
    labelled = [failed for program, failed in fails if not program.mutant and program.group == column.name]
    return sum(failed for _, failed in fails), sum(labelled), len(labelled)
