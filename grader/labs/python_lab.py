"""What all labs with Python submissions share: a lab of a table of calls, facets and an oracle.

A lab's module needs nothing else of the grader: it defines the names in capitals that `python_lab` lists.
Facets give the names in rubrics, the differences, the pictures and `grade explain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from grader.assignment.lab import Charts, Lab
from grader.core.case import EVERY, Signature
from grader.core.errors import ToolMissing
from grader.core.facet import Facet
from grader.core.picture import PanelShape, StatePart
from grader.judge.plain_judge import UNREADABLE, Invariants
from grader.labs.load_lab import load_lab
from grader.labs.python_reproduction import COMMAND, reproduce
from grader.runtime.python.derived import Derived
from grader.runtime.python.runtime import PythonRuntime
from grader.runtime.python.table import CallTable
from reference.operation import Operation
from reference.oracle import text_of

_CASES = Path(__file__).parents[2] / "cases"
_NO_FILES: Mapping[str, Path] = {}


def python_lab(
    table: Mapping[str, Any],
    name: str,
    title: str,
    oracle: str,
    *,
    cases: Path | None = None,
    starter: Path | None = None,
    given: Mapping[str, Path] = _NO_FILES,
    invariants: Invariants | None = None,
    charts: Charts | None = None,
    derive: str = "",
) -> Lab:
    """Return the lab whose table is in a module: `table` is its `globals()`.

    The module defines OPERATIONS (a `Signature` for each operation), SETUP, CALLS, READS, FACETS, and where it needs
    them TAKES, GIVES and DEFINES (see `CallTable`). `oracle` is "module:factory", `cases` the folder of cases (default:
    `cases/NAME`), `starter` the file that students begin with (default: `starter.py` beside the module), `given` maps
    the names of modules that submissions may import to their files, `charts` draws a whole run. `derive` is
    "module:function" of a `Derive`, which makes the states of FACETS of what READS reads, imported when it is needed.

    Raises `ValueError` for a table that does not fit together, `RubricError` for wrong files.
    """
    operations: dict[str, Signature] = table["OPERATIONS"]
    facets: tuple[Facet, ...] = table["FACETS"]
    calls = CallTable(
        setup=table["SETUP"],
        calls=table["CALLS"],
        parameters={key: tuple(argument.name for argument in call.arguments) for key, call in operations.items()},
        takes=table.get("TAKES", {}),
        gives=table.get("GIVES", {}),
        reads=table["READS"],
        parts={facet.name: facet.steps[1] for facet in facets if facet.steps[0] == "state"},
        defines=table.get("DEFINES", ""),
        every=1 if derive else EVERY,
        errors=tuple(sorted({word for call in operations.values() for word in call.refusals if word[:1].isupper()})),
    )
    _check(calls, operations, is_derived=bool(derive))
    module = Path(table["__file__"])
    files = {calls.module: starter or module.with_name("starter.py"), **given}
    return load_lab(
        name=name,
        title=title,
        cases=cases or _CASES / name,
        calls=operations,
        facets=facets,
        oracle=oracle,
        runtime=PythonRuntime(table=calls, given=given, derive=partial(_derived, derive) if derive else None),
        every=calls.every,
        invariants=invariants,
        picture=partial(picture, facets),
        charts=charts,
        reproduce=partial(reproduce, calls),
        reproduce_command=COMMAND,
        derived=frozenset(name for name, part in calls.parts.items() if part not in calls.reads),
        starter={f"{key}.py": path for key, path in files.items()},
        code=(module,),
    )


def _derived(derive: str, operations: Sequence[Operation], records: Sequence[Mapping[str, Any]]) -> Derived:
    """Call what derives states. Raises `ToolMissing` where a package that it needs is not installed."""
    module, _, function = derive.partition(":")
    try:
        derived: Derived = getattr(import_module(module), function)(operations, records)
    except ModuleNotFoundError as error:
        raise ToolMissing(f"{error.name} (for this lab)", f"scripts/setup --{error.name}") from error
    return derived


def _check(table: CallTable, operations: Mapping[str, Signature], *, is_derived: bool) -> None:
    """Raise `ValueError` where the parts of a table do not name the same things, or an argument hides a function."""
    pairs: Iterable[tuple[str, Iterable[str], Iterable[str]]] = (
        ("CALLS and OPERATIONS name the same operations", table.calls, operations),
        (
            "READS have what FACETS show of the state",
            set(table.reads) & set(table.parts.values()),
            set(table.parts.values()) & set(table.reads) if is_derived else table.parts.values(),
        ),
        ("GIVES names only operations", table.gives, set(table.gives) & set(operations)),
    )
    for wanted, some, others in pairs:
        if set(some) != set(others):
            raise ValueError(f"{wanted}; only one side has {', '.join(sorted(set(some) ^ set(others)))}")
    hidden = table.defined & {name for names in table.parameters.values() for name in names}
    if hidden:
        raise ValueError(f"an argument hides a function of DEFINES: {', '.join(sorted(hidden))}; rename one of them")


def picture(facets: Sequence[Facet], record: dict[str, Any]) -> Iterator[StatePart]:
    """Draw a decoded record: entries of one kind as a grid, lists as chains, sentences, other values by name."""
    state = record["state"]
    values = {facet: _at(state, facet.steps[1:]) for facet in facets if facet.steps[0] == "state"}
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


def _at(state: Any, steps: Sequence[str]) -> Any:
    """What stands at a path; below a star a mapping of what stands there for each key."""
    for number, step in enumerate(steps):
        if step == "*":
            entries = state if isinstance(state, dict) else {}
            return {key: _at(value, steps[number + 1 :]) for key, value in entries.items()}
        state = _child(state, step)
    return state


def _child(value: Any, step: str) -> Any:
    if isinstance(value, list) and step.isdecimal():
        return value[int(step)] if int(step) < len(value) else None
    return value.get(step) if isinstance(value, dict) else None


def _grid(per: str, values: Mapping[Facet, Any]) -> StatePart:
    """The entries of facets as rows, a column for each facet."""
    columns = {facet: _entries(value) for facet, value in values.items()}
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


def _entries(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {str(number): entry for number, entry in enumerate(value)}
    return value if isinstance(value, dict) and value.keys() != {UNREADABLE} else {}


def _cell(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {UNREADABLE}:
        return f"unreadable ({value[UNREADABLE]})"
    return text_of(value)
