"""What all labs with submissions in C share: a lab of a header, a driver, a table of operations, facets and an oracle.

The driver says the state in named values (harness/values.c), by the names of the oracle's `state()`. So a lab needs no
judging, no decoding and no pictures of its own: labs/README.md says how one is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.assignment.lab import Lab, Predicate
from grader.assignment.rubric import load_clauses
from grader.core.case import Case, JsonValue, Number, Signature, Word
from grader.core.model import ModelFactory
from grader.core.plain import EACH, Codec, at, is_unreadable
from grader.core.rubric import Facet
from grader.labs.lab_files import load_lab
from grader.runtime.native import values
from grader.runtime.native.project import CProject, Driver, functions_of
from grader.runtime.native.runtime import NativeRuntime
from reference.operation import Argument, Trace
from reference.oracle import CannotGoOn

if TYPE_CHECKING:
    from grader.core.closure import SmallEngine
    from grader.core.picture import StatePart

_REPLY = JsonValue("reply", 'a number, null, or a name such as "ring"')
_NO_SETTINGS: Mapping[str, Number] = {}
_NO_CALLS: Mapping[str, Signature] = {}
_NO_CONSTANTS: Mapping[str, int] = {}
_NO_PREDICATES: Mapping[str, Predicate] = {}
_NEVER_SET = str(int.from_bytes(b"\xa5" * 4, "little", signed=True))  # memory as the harness hands it out
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
    numbers: Callable[[Trace], tuple[int, ...]] | None = None,
    places: Callable[[bytes, int], Mapping[str, int]] | None = None,
    building: Mapping[str, Signature] = _NO_CALLS,
    constants: Mapping[str, int] = _NO_CONSTANTS,
    smalls: str | Callable[[], Sequence[SmallEngine]] = "",
    predicates: Mapping[str, Predicate] = _NO_PREDICATES,
    **others: Any,
) -> Lab:
    """Return the lab whose header, driver.c and starter are in a folder: FOLDER/HEADER.h, FOLDER/starter.c.

    A header may have an absolute path, without its suffix. Submissions are called HEADER.c. `operations` are in the
    order of the driver's codes; those with a task are the functions that students write, which the header declares with
    names for all parameters. `oracle` is "module:factory", `smalls` makes small engines, or is "module:name" of a
    `grader.labs.small_plain.SmallLines`. `numbers` are what lab_start gets (omitted: the settings of the case),
    `places` the words of a record by the names of differences (omitted: by facets), `building` operations that no case
    file uses, `predicates` and `others` those of `load_lab`; mistakes may name "never-set" too. Raises `RubricError`
    for wrong files.
    """
    project = _project(folder, header, operations)
    calls, numbers = {**operations, **building}, numbers or partial(_settings, settings)
    sentences = partial(load_clauses, cases / "handout.toml", constants)

    def runtime(model: ModelFactory) -> NativeRuntime:
        driver = Driver(operations=calls, settings=numbers, places=places or partial(_places, facets), model=model)
        return NativeRuntime(project=project, driver=driver)

    mine: dict[str, Any] = {
        "codec": _CODEC,
        "picture": partial(_picture, facets),
        "code": (project.driver,),
        "smalls": partial(_small_engines, smalls, operations, oracle, _CODEC) if smalls else tuple,
        "starter": {project.source_name: folder / "starter.c", project.header.name: project.header},
    }
    return load_lab(
        name=name,
        title=title,
        cases=cases,
        calls=operations,
        settings=settings,
        constants=constants,
        facets=facets,
        oracle=oracle,
        predicates={"never-set": lambda judgement: judgement.actual.text == _NEVER_SET, **predicates},
        runtime=runtime,
        reproduce=partial(_reproduce, project=project, calls=calls, settings=numbers, sentences=sentences),
        reproduce_command=f"{project.command_with('repro.c', 'repro')} && ./repro",
        **mine | others,
    )


# What few gradings need is imported when it is called.


def _reproduce(case: Case, operation: int, **parts: Any) -> str:
    from grader.labs.c_program import reproduce  # noqa: PLC0415

    return reproduce(case, operation, **parts)


def _picture(facets: Sequence[Facet], record: dict[str, Any]) -> Iterator[StatePart]:
    from grader.labs.plain_picture import picture  # noqa: PLC0415

    return picture(facets, record)


def _small_engines(smalls: str | Callable[[], Sequence[SmallEngine]], *parts: Any) -> Sequence[SmallEngine]:
    from grader.labs.small_plain import small_engines  # noqa: PLC0415

    return smalls() if callable(smalls) else small_engines(smalls, *parts)


def _project(folder: Path, header: str, operations: Mapping[str, Signature]) -> CProject:
    refusing = {call: each.refusals[0].replace("null", "NULL") for call, each in operations.items() if each.refusals}
    return CProject(
        source_name=f"{Path(header).name}.c",
        header=folder / f"{header}.h",
        driver=folder / "driver.c",
        functions=functions_of(folder / f"{header}.h", refusing),
    )


def _settings(settings: Mapping[str, Number], trace: Trace) -> tuple[int, ...]:
    """The numbers that lab_start gets: those of the case, in the order of the lab; 0 for one that it does not have."""
    return tuple(trace.settings.get(name, 0) for name in settings)


def _places(facets: Sequence[Facet], record: bytes, _: int) -> dict[str, int]:
    """The words of a record by the names that differences have for them. Raises `ValueError` for no record."""
    try:
        whole, offsets = values.decode(record), values.offsets(record)
    except CannotGoOn as error:
        raise ValueError(str(error)) from error
    named = {}
    for path, word in offsets.items():
        value = at(whole, path)
        if isinstance(value, list | dict) and not is_unreadable(value):
            continue  # many words: that none of them was stored to says nothing
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
