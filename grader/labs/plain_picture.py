"""The picture of a state of plain values, by the facets of a lab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grader.core.picture import PanelShape, StatePart
from grader.core.plain import ABSENT, UNREADABLE, at, entries, is_unreadable
from grader.core.rubric import Facet
from reference.oracle import text_of


def picture(facets: Sequence[Facet], record: dict[str, Any]) -> Iterator[StatePart]:
    """Draw a decoded record: entries of one kind as a grid, lists as chains, sentences, other values by name."""
    state = record["state"]
    values = {facet: at(state, facet.steps[1:]) for facet in facets if facet.steps[0] == "state"}
    alone = {
        (0, facet.heading): (_cell(value),)
        for facet, value in values.items()
        if not facet.per and not isinstance(value, list)
    }
    if alone:
        yield StatePart(title="values", shape=PanelShape.VALUES, lines=alone)
    for per in dict.fromkeys(facet.per for facet in values if facet.per):
        yield _grid(per, {facet: value for facet, value in values.items() if facet.per == per})
    for facet, value in values.items():
        if facet.per or not isinstance(value, list):
            continue
        if not facet.sentences:
            yield StatePart(title=facet.heading, shape=PanelShape.CHAIN, lines={(0, ""): tuple(map(_cell, value))})
        elif value:
            lines = {(0, str(number)): (str(sentence),) for number, sentence in enumerate(value)}
            yield StatePart(title=facet.heading, shape=PanelShape.SENTENCES, lines=lines)


def _grid(per: str, values: Mapping[Facet, Any]) -> StatePart:
    """The entries of facets as rows, a column for each facet."""
    columns = {facet: entries(value) for facet, value in values.items()}
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    return StatePart(
        title=f"by {per}",
        shape=PanelShape.GRID,
        columns=tuple(facet.heading for facet in columns),
        lines={
            (0, f"{per} {key}"): tuple(_cell(column[key]) if key in column else "" for column in columns.values())
            for key in keys
        },
    )


def _cell(value: Any) -> str:
    if is_unreadable(value):
        return f"unreadable ({value[UNREADABLE]})"
    return text_of(None if value is ABSENT else value)
