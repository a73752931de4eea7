"""What all labs with Python submissions share: a lab of a table of calls, facets and an oracle.

A lab's module needs nothing else of the grader: it defines the names in capitals that `python_lab` lists.
Facets give the names in rubrics, the differences, the pictures and `grade explain`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from grader.assignment.lab import Charts, Lab
from grader.core.case import EVERY, Case, JsonValue, Number, Signature, Word
from grader.core.errors import ToolMissing
from grader.core.rubric import Facet
from grader.judge.plain_judge import Invariants
from grader.labs.lab_files import load_lab
from grader.labs.plain_picture import picture
from grader.labs.small_plain import small_engines
from grader.runtime.python.runtime import PythonRuntime
from grader.runtime.python.table import CallTable, Derived
from reference.operation import Operation

_CASES = Path(__file__).parents[2] / "cases"
_REPLY = JsonValue("reply", "JSON without spaces")
_NO_FILES: Mapping[str, Path] = {}


def call(*arguments: Number | JsonValue | Word, task: str, refusals: tuple[str, ...] = ()) -> Signature:
    """Return the signature of a call that returns any JSON value."""
    return Signature(arguments=arguments, returns=_REPLY, refusals=refusals, task=task)


def python_lab(
    table: Mapping[str, Any],
    name: str,
    title: str,
    oracle: str,
    *,
    cases: Path | None = None,
    given: Mapping[str, Path] = _NO_FILES,
    invariants: Invariants | None = None,
    charts: Charts | None = None,
    derive: str = "",
    smalls: str = "",
    **others: Any,
) -> Lab:
    """Return the lab whose table is in a module: `table` is its `globals()`.

    The module defines OPERATIONS (a `Signature` for each operation), SETUP, CALLS, READS, FACETS, and where it needs
    them TAKES, GIVES and DEFINES (see `CallTable`), and MENDING, the operations that `mend` uses. `oracle` is
    "module:factory", `cases` the folder of cases (default: `cases/NAME`), `given` maps the names of modules that
    submissions may import to their files, `charts` draws a whole run. `derive` is "module:function" of a `Derive`,
    `smalls` "module:name" of a `grader.labs.small_plain.SmallLines`; `others` are those of `load_lab`, such as `mend`.

    Raises `ValueError` for a table that does not fit together, `RubricError` for wrong files.
    """
    operations: dict[str, Signature] = table["OPERATIONS"]
    facets: tuple[Facet, ...] = table["FACETS"]
    calls = CallTable(
        setup=table["SETUP"],
        calls=table["CALLS"],
        parameters={key: tuple(argument.name for argument in call.arguments) for key, call in _all(table).items()},
        takes=table.get("TAKES", {}),
        gives=table.get("GIVES", {}),
        reads=table["READS"],
        parts={facet.name: facet.steps[1] for facet in facets if facet.steps[0] == "state"},
        defines=table.get("DEFINES", ""),
        every=1 if derive else EVERY,
        errors=tuple(sorted({word for call in operations.values() for word in call.refusals if word[:1].isupper()})),
    )
    _check(calls, _all(table), is_derived=bool(derive))
    module = Path(table["__file__"])
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
        smalls=partial(small_engines, smalls, operations, oracle) if smalls else tuple,
        reproduce=partial(reproduce, calls),
        reproduce_command=COMMAND,
        derived=frozenset(name for name, part in calls.parts.items() if part not in calls.reads),
        starter={f"{calls.module}.py": module.with_name("starter.py"), **{f"{key}.py": given[key] for key in given}},
        code=(module,),
        **others,
    )


def _all(table: Mapping[str, Any]) -> dict[str, Signature]:
    """The operations of case files, and those by which a case is mended."""
    return {**table["OPERATIONS"], **table.get("MENDING", {})}


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


def stand_in(path: Path) -> str:
    """The text of a module that the harness puts in the place of a submission's part, without annotations and imports.

    "" where copies of the grader for students do not have it.
    """
    if not path.exists():
        return ""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
    return ast.unparse(tree)


COMMAND = "python3 -m pytest repro.py"
"""Run beside the submission."""

_SECONDS = 10
_MAIN = """

if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
"""
_HELPERS = (
    f"""

def does_not_come_back(*_):
    pytest.fail("this call does not come back within {_SECONDS} s")
"""
    '''

def place_of(item, among):
    """Where this very object is: its place in a list, or its key in a dict."""
    pairs = among.items() if isinstance(among, dict) else enumerate(among)
    return None if item is None else next((place for place, other in pairs if other is item), "a stranger")


def places_of(items, among):
    return [place_of(item, among) for item in items]


def plain(value):
    """Tuples as lists, keys as texts: how the expected values below are written."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
'''
)


def reproduce(table: CallTable, case: Case, operation: int) -> str:
    """Return the case up to and including that operation (counted from 0) as a pytest file."""
    name = re.sub(r"\W", "_", case.name)
    lines = [
        f'"""{case.title}',
        "",
        f"Case {case.name}. Put this file beside {table.module}.py and type: {COMMAND}",
        '"""',
        "import signal",
        "",
        "import pytest",
        "",
        table.setup,
    ]
    names = sorted({name for text in table.calls.values() for name in _assigned(text)}) if table.defines else []
    body = [
        *([f"    global {', '.join(names)}"] if names else []),  # the functions above use them
        '    if hasattr(signal, "SIGALRM"):  # Windows has none',
        "        signal.signal(signal.SIGALRM, does_not_come_back)",
        f"        signal.alarm({_SECONDS})",
    ]
    for number, next_operation in enumerate(case.trace.operations[: operation + 1]):
        body += [f"    {line}" for line in _call(table, case, number, next_operation, checked=number == operation)]
    record = json.loads(case.expected.records[operation])
    shown = set(table.parts.values())
    for part, read in table.reads.items():
        if part not in shown or "calls_of(" in read:  # only the grader records calls on given modules
            continue
        body.append(f"    assert plain({read}) == {record['state'][part]!r}")
    body += ['    if hasattr(signal, "SIGALRM"):', "        signal.alarm(0)"]
    defines = f"\n\n{table.defines.strip()}\n" if table.defines else ""
    test = f"\n\ndef test_{name}():\n" + "\n".join(body) + "\n"
    return "\n".join(lines) + "\n" + _HELPERS + defines + test + _MAIN


def _assigned(text: str) -> Iterator[str]:
    """The names that statements assign."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _call(table: CallTable, case: Case, number: int, operation: Operation, *, checked: bool) -> Iterator[str]:
    """Yield the statements of one operation, with a check of its reply."""
    reply: dict[str, Any] = json.loads(case.expected.records[number])["reply"]
    tree = ast.parse(table.calls[operation.name])
    values = dict(zip(table.parameters[operation.name], operation.arguments, strict=True))
    tree = ast.fix_missing_locations(_Filled(table, values).visit(tree))
    last = tree.body[-1]
    comment = f"  # {operation}"
    if "raised" in reply:
        yield f"with pytest.raises({reply['raised']}):{comment}"
        yield from (f"    {ast.unparse(line)}" for line in tree.body)
        return
    yield from (ast.unparse(line) for line in tree.body[:-1])
    text = ast.unparse(last)
    if checked and isinstance(last, ast.Expr):
        yield f"assert plain({_read(table, operation.name, text)}) == {reply['returned']!r}{comment}"
    else:
        yield f"{text}{comment}"


def _read(table: CallTable, call: str, text: str) -> str:
    """The expression by which a reply is compared: by identity where the table says so."""
    reader = table.gives.get(call)
    if reader is None:
        return text
    taken = table.takes.get(reader)
    if taken is None:
        return f"{reader}({text})"
    several = taken.startswith("[")
    among = taken.strip("[]").partition("[")[0]
    return f"{'places_of' if several else 'place_of'}({text}, {among})"


class _Filled(ast.NodeTransformer):
    """Puts arguments in the place of parameters."""

    def __init__(self, table: CallTable, values: dict[str, Any]) -> None:
        self.table = table
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id not in self.values or not isinstance(node.ctx, ast.Load):
            return node
        return ast.parse(_argument(self.table.takes.get(node.id), self.values[node.id]), mode="eval").body


def _argument(taken: str | None, value: object) -> str:
    """An argument as Python: [block[3], block[1]] for [3, 1]."""
    if taken is None:
        return repr(list(value) if isinstance(value, tuple) else value)
    if taken.startswith("[") and isinstance(value, tuple):
        return "[" + ", ".join(taken[1:-1].format(repr(item)) for item in value) + "]"
    return taken.format(repr(value))


Described = Mapping[str, Any]
"""A decoded record, of a program or of the reference."""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a dict as it is, nothing for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a list as it is, nothing for anything else."""
    return value if isinstance(value, list) else []


def state_of(record: Described, name: str) -> object:
    """Return a part of the state of a record; None where there is none."""
    return as_mapping(record.get("state")).get(name)


def reply_of(record: Described) -> object:
    """Return what the call returned; None where it raised."""
    return as_mapping(record.get("reply")).get("returned")
