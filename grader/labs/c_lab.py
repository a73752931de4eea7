"""What all labs with submissions in C share: a lab of a header, a driver, a table of operations, facets and an oracle.

The driver says the state in named values (harness/values.c), by the names of the oracle's `state()`. So a lab needs no
judging, no decoding and no pictures of its own: labs/README.md says how one is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import Case, JsonValue, Number, Signature, Word
from grader.core.model import ModelFactory
from grader.core.plain import EACH
from grader.core.rubric import Facet
from grader.judge.plain_judge import Codec
from grader.labs.lab_files import load_lab
from grader.labs.plain_picture import picture
from grader.labs.small_plain import small_engines
from grader.runtime.native import values
from grader.runtime.native.project import CProject, Driver, functions_of
from grader.runtime.native.runtime import NativeRuntime
from reference.operation import Argument, Trace
from reference.oracle import CannotGoOn

_TEMPLATE = Path(__file__).with_name("repro.c.jinja")
_REPLY = JsonValue("reply", 'a number, null, or a name such as "ring"')
_NO_SETTINGS: Mapping[str, Number] = {}
_CODEC = Codec(encode=values.encode, decode=values.decode)
_INTS = range(-(2**31), 2**31)
HARNESS = Facet("heap", path="heap"), Facet("failing", path="failing")
"""What the harness says of a call: what it does with memory that is not its own, and what a refused call keeps."""


def ints(name: str, wanted: str = "a list of ints such as [1,2]") -> JsonValue:
    """Return an argument that is a list of ints (`harness_ints` in the driver)."""

    def fits(value: Argument) -> bool:
        return isinstance(value, tuple) and all(type(item) is int and item in _INTS for item in value)

    return JsonValue(name, wanted, fits)


def call(
    *arguments: Number | JsonValue | Word, task: str, refusals: tuple[str, ...] = (), closes: bool = False
) -> Signature:
    """Return the signature of a call that returns a number, null, or the name of what a pointer points to.

    With `closes` it frees everything, and is added to cases that do not end with it.
    """
    return Signature(arguments=arguments, returns=_REPLY, refusals=refusals, closes=closes, task=task)


def c_lab(
    name: str,
    title: str,
    folder: Path,
    header: str,
    *,
    operations: Mapping[str, Signature],
    facets: Sequence[Facet],
    oracle: str,
    cases: Path,
    settings: Mapping[str, Number] = _NO_SETTINGS,
    smalls: str = "",
    **others: Any,
) -> Lab:
    """Return the lab whose header, driver.c and starter are in a folder: FOLDER/HEADER.h, FOLDER/starter.c.

    Submissions are called HEADER.c. `operations` are in the order of the driver's codes; those with a task are the
    functions that students write, which the header declares with names for all parameters. `oracle` is
    "module:factory", `smalls` "module:name" of a `grader.labs.small_plain.SmallLines`, `others` are those of
    `load_lab`. Raises `RubricError` for wrong files.
    """
    refusing = {call: each.refusals[0].replace("null", "NULL") for call, each in operations.items() if each.refusals}
    project = CProject(
        source_name=f"{header}.c",
        header=folder / f"{header}.h",
        driver=folder / "driver.c",
        functions=functions_of(folder / f"{header}.h", refusing),
    )

    numbers = partial(_settings, settings)

    def runtime(model: ModelFactory) -> NativeRuntime:
        driver = Driver(operations=operations, settings=numbers, places=partial(_places, facets), model=model)
        return NativeRuntime(project=project, driver=driver)

    return load_lab(
        name=name,
        title=title,
        cases=cases,
        calls=operations,
        settings=settings,
        facets=facets,
        oracle=oracle,
        runtime=runtime,
        codec=_CODEC,
        smalls=partial(small_engines, smalls, operations, oracle, _CODEC) if smalls else tuple,
        picture=partial(picture, facets),
        reproduce=partial(_reproduce, project=project, codes=[*operations], settings=numbers),
        reproduce_command=f"{project.command_with('repro.c', 'repro')} && ./repro",
        starter={project.source_name: folder / "starter.c", project.header.name: project.header},
        code=(project.driver,),
        **others,
    )


def _settings(settings: Mapping[str, Number], trace: Trace) -> tuple[int, ...]:
    """The numbers that lab_start gets: those of the case, in the order of the lab; 0 for one that it does not have."""
    return tuple(trace.settings.get(name, 0) for name in settings)


def _places(facets: Sequence[Facet], record: bytes, _: int) -> dict[str, int]:
    """The words of a record by the names that differences have for them. Raises `ValueError` for no record."""
    try:
        offsets = values.offsets(record)
    except CannotGoOn as error:
        raise ValueError(str(error)) from error
    named = {}
    for path, word in offsets.items():
        for facet in facets:
            entry = _entry(facet, path)
            if entry is not None:
                named[f"{facet.per} {entry}: {facet.heading}" if entry else facet.heading] = word
    return named


def _entry(facet: Facet, path: tuple[str, ...]) -> str | None:
    """The entry of a facet that stands at a path; "" for the whole facet, None for another one's place."""
    steps = facet.steps
    if len(path) not in (len(steps), len(steps) + bool(facet.per)):
        return None
    entries = [there for step, there in zip(steps, path, strict=False) if step == EACH]
    if any(step not in (EACH, there) for step, there in zip(steps, path, strict=False)):
        return None
    return (entries + list(path[len(steps) :]) or [""])[0]


def _reproduce(
    case: Case,
    operation: int,
    *,
    project: CProject,
    codes: Sequence[str],
    settings: Callable[[Trace], tuple[int, ...]],
) -> str:
    """Return a program of the case up to that operation (counted from 0): the driver, the calls, what must be there."""
    from grader.runtime.native.c_program import c_string, render  # noqa: PLC0415 - few gradings make one

    text = project.driver.read_text(encoding="utf-8")
    calls, lists, count = [], [], 0
    for each in case.trace.operations[: operation + 1]:
        arguments = []
        for argument in each.arguments:
            content = argument.encode() if isinstance(argument, str) else argument
            if isinstance(content, int):
                arguments.append(f"{{1, {content}, NULL}}")
            elif content is None or argument == "NULL":
                arguments.append("{0, 0, NULL}")
            elif isinstance(content, bytes):
                arguments.append(f"{{2, {len(content)}, {c_string(str(argument))}}}")
            else:
                assert isinstance(content, tuple)
                lists.append(", ".join(map(str, content)) or "0")
                arguments.append(f"{{2, {len(content)}, repro_list_{len(lists)}}}")
        calls.append((codes.index(each.name), each.target or 0, count, arguments, str(each)))
        count += len(arguments)
    expected = values.decode(case.expected.records[operation])
    return render(
        _TEMPLATE,
        title=case.title,
        name=case.name,
        command=project.command_with("repro.c", "repro"),
        header=project.header.name,
        driver=text,
        starts="lab_start" in text,
        settings=[*settings(case.trace), 0],
        interface=(Path(values.__file__).parent / "harness" / "harness.h").read_text(encoding="utf-8"),
        lists=lists,
        calls=calls,
        expected=[(path, c_string(text)) for path, text in _flat("", expected)],
    )


def _flat(path: str, value: object) -> list[tuple[str, str]]:
    """The values of a record by their paths, as repro.c.jinja writes them."""
    inside = f"{path}." if path else ""
    if isinstance(value, dict):
        return [pair for name, item in value.items() for pair in _flat(f"{inside}{name}", item)]
    if isinstance(value, list):
        length = (f"{inside}length", str(len(value)))
        return [length, *(pair for place, item in enumerate(value) for pair in _flat(f"{inside}{place}", item))]
    return [(path, "null" if value is None else str(value))]
