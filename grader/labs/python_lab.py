"""What labs with Python submissions share: they have a driver, facets and an oracle.

A lab's folder has `driver.py` (see `grader.runtime.python.driver`), `starter.py`, and in `given` the modules that
submissions may import. Rubrics, differences, pictures and `grade explain` use the names of the facets.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grader.assignment.lab import Charts, Lab
from grader.core.case import EVERY, Case
from grader.core.errors import ToolMissing
from grader.core.rubric import Facet
from grader.judge.plain_judge import Invariants
from grader.labs.lab_files import call_at, load_lab
from grader.labs.plain_lab import picture, small_engines
from grader.runtime.python.driver import Objects, PythonDriver
from grader.runtime.python.play import Derived
from grader.runtime.python.runtime import PythonRuntime
from reference.operation import Operation

_CASES = Path(__file__).parents[2] / "cases"


def python_lab(
    folder: Path,
    title: str,
    oracle: str,
    facets: tuple[Facet, ...],
    *,
    cases: Path | None = None,
    invariants: Invariants | None = None,
    charts: Charts | None = None,
    derive: str = "",
    smalls: str = "",
    **others: Any,
) -> Lab:
    """Return the lab of a folder. Its name is the folder's name.

    `oracle` is "module:factory", `cases` the folder of cases (default: `cases/NAME`), `charts` draws a whole run.
    `derive` is "module:function" of a `Derive`, `smalls` "module:name" of a sequence of
    `grader.labs.plain_lab.SmallLines`; `others` go to `load_lab`, such as `mend`.

    Raises `ValueError` for a facet that the driver does not read, `RubricError` for wrong files.
    """
    given = {path.stem: path for path in sorted(folder.glob("given/*.py"))}
    driver = PythonDriver.of(
        (folder / "driver.py").read_text(encoding="utf-8"),
        given={name: path.read_text(encoding="utf-8") for name, path in given.items()},
        parts={facet.name: facet.steps[1] for facet in facets if facet.steps[0] == "state"},
        every=1 if derive else EVERY,
    )
    derived = {facet: part for facet, part in driver.parts.items() if part not in driver.reads}
    if derived and not derive:
        raise ValueError(f"the driver does not read {', '.join(sorted(derived.values()))}, which a facet shows")
    return load_lab(
        name=folder.name,
        title=title,
        cases=cases or _CASES / folder.name,
        calls=driver.operations,
        facets=facets,
        oracle=oracle,
        runtime=PythonRuntime(driver=driver, derive=partial(_derived, derive) if derive else None),
        every=driver.every,
        invariants=invariants,
        picture=partial(picture, facets),
        charts=charts,
        smalls=partial(small_engines, smalls, driver.operations, oracle) if smalls else tuple,
        reproduce=partial(reproduce, driver),
        reproduce_command=COMMAND,
        derived=frozenset(derived),
        starter={driver.file: folder / "starter.py", **{path.name: path for path in given.values()}},
        code=(folder / "driver.py", folder / "lab.py"),
        **others,
    )


def _derived(derive: str, operations: Sequence[Operation], records: Sequence[Mapping[str, Any]]) -> Derived:
    """Call the function that derives states. Raises `ToolMissing` if a package that it needs is not installed."""
    try:
        derived: Derived = call_at(derive, operations, records)
    except ModuleNotFoundError as error:
        raise ToolMissing(f"{error.name} (for this lab)", f"scripts/setup --{error.name}") from error
    return derived


def stand_in(path: Path, *classes: str) -> str:
    """Return the source of classes of a module, without annotations: they replace the submission's classes.

    Returns "" if the module does not exist: copies of the grader for students do not have it.
    """
    if not path.exists():
        return ""
    module = ast.parse(path.read_text(encoding="utf-8"))
    nodes: list[ast.stmt] = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name in classes]
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
    return ast.unparse(ast.Module(nodes, []))


COMMAND = "python3 -m pytest repro.py"
"""The command to run next to the submission."""

_SECONDS = 10
_HELPERS = f'''
def does_not_come_back(*_):
    pytest.fail("this call does not come back within {_SECONDS} s")


def plain(value):
    """Tuples as lists, keys as texts: how the expected values below are written."""
    if isinstance(value, dict):
        return {{str(key): plain(item) for key, item in value.items()}}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
'''
_MAIN = """

if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
"""


def reproduce(driver: PythonDriver, case: Case, operation: int) -> str:
    """Return the case up to and including operation `operation` (counted from 0) as a pytest file."""
    operations, name = case.trace.operations[: operation + 1], re.sub(r"\W", "_", case.name)
    record = json.loads(case.expected.records[operation])
    head = [
        f'"""{case.title}',
        "",
        f"Case {case.name}. Put this file next to {driver.file} and type: {COMMAND}",
        '"""',
        "from __future__ import annotations",
        "",
        "import signal",
        "",
        "import pytest",
        "",
    ]
    body = [
        'if hasattr(signal, "SIGALRM"):  # Windows has none',
        "    signal.signal(signal.SIGALRM, does_not_come_back)",
        f"    signal.alarm({_SECONDS})",
        "world = World()",
    ]
    for number, each in enumerate(operations):
        body += _call(driver, each, json.loads(case.expected.records[number])["reply"], checked=number == operation)
    shown = set(driver.parts.values())
    body += ["state = read(world)"]
    body += [f'assert plain(state["{part}"]()) == {record["state"][part]!r}' for part in driver.reads if part in shown]
    body += ['if hasattr(signal, "SIGALRM"):', "    signal.alarm(0)"]
    used = {each.name for each in operations}
    functions = driver.excerpt({"World", "read", *used, *(driver.gives.get(each, "read") for each in used)})
    test = f"\n\ndef test_{name}():\n" + "".join(f"    {line}\n" for line in body)
    return "\n".join(head) + functions + "\n" + _HELPERS + test + _MAIN


def _call(driver: PythonDriver, operation: Operation, reply: Mapping[str, Any], *, checked: bool) -> Iterator[str]:
    """Yield the statements of one operation, with a check of its reply."""
    name, comment = operation.name, f"  # {operation}"
    arguments = map(_argument, driver.takes[name], operation.arguments)
    text = f"{name}({', '.join(['world', *arguments])})"
    if "raised" in reply:
        yield f"with pytest.raises({reply['raised']}):{comment}"
        yield f"    {text}"
    elif checked:
        value = f"{driver.gives[name]}(world, {text})" if name in driver.gives else text
        yield f"assert plain({value}) == {reply['returned']!r}{comment}"
    else:
        yield f"{text}{comment}"


def _argument(objects: Objects | None, value: Any) -> str:
    """Return an argument as Python: [world.blocks[3], world.blocks[1]] for [3,1]."""
    if objects is None:
        return repr(list(value) if isinstance(value, tuple) else value)
    attribute, several = objects
    if several:
        return f"[{', '.join(_argument((attribute, False), each) for each in value)}]"
    return f"world.{attribute}[{value!r}]"


Described = Mapping[str, Any]
"""A decoded record of a program or of the reference."""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a dict, or {} for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a list, or [] for any other value."""
    return value if isinstance(value, list) else []


def state_of(record: Described, name: str) -> object:
    """Return a part of the state of a record, or None."""
    return as_mapping(record.get("state")).get(name)


def reply_of(record: Described) -> object:
    """Return what the call returned; None if it raised."""
    return as_mapping(record.get("reply")).get("returned")
