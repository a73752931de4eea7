"""Make labs with submissions in C from a header, a driver, a table of operations, facets and an oracle.

The driver writes the state as named values (harness/values.c) with the names of the oracle's `state()`. So a lab needs
no judging, no decoding and no pictures of its own. labs/README.md says how a lab is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.assignment.lab import Lab, Predicate
from grader.assignment.rubric import load_sentences
from grader.core.case import JsonValue, Number, Signature, Word
from grader.core.model import EACH, Codec, ModelFactory, at, is_unreadable
from grader.core.rubric import Facet
from grader.labs.lab_files import NOTHING, call_at, load_lab
from grader.runtime.native import values
from grader.runtime.native.project import CProject, Driver, functions_of
from grader.runtime.native.runtime import NativeRuntime
from reference.operation import Argument, Trace
from reference.oracle import CannotGoOn

if TYPE_CHECKING:
    from grader.core.closure import SmallEngine

_REPRODUCE = "grader.labs.c_program:reproduce"
_SMALLS = "grader.labs.plain_lab:small_engines"
_REPLY = JsonValue("reply", 'a number, null, or a name such as "ring"')
_NEVER_SET = str(int.from_bytes(b"\xa5" * 4, "little", signed=True))  # memory as the harness hands it out
_CODEC = Codec(encode=values.encode, decode=values.decode)
_INTS = range(-(2**31), 2**31)
HARNESS = Facet("heap", path="heap"), Facet("failing", path="failing")
"""The facets that the harness reports of a call: misuse of memory, and memory that a refused call keeps."""


def ints(name: str, wanted: str = "a list of ints such as [1,2]") -> JsonValue:
    """Return an argument that is a list of ints (`harness_ints` in the driver)."""

    def fits(value: Argument) -> bool:
        return isinstance(value, tuple) and all(type(item) is int and item in _INTS for item in value)

    return JsonValue(name, wanted, fits)


def call(
    *arguments: Number | JsonValue | Word, task: str, refusals: tuple[str, ...] = (), closes: bool = False
) -> Signature:
    """Return the signature of a call that returns a number, null, or the name of what a pointer points to.

    A call with `closes` frees everything. A case that does not end with such a call gets one.
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
    settings: Mapping[str, Number] = NOTHING,
    numbers: Callable[[Trace], tuple[int, ...]] | None = None,
    places: Callable[[bytes, int], Mapping[str, int]] | None = None,
    building: Mapping[str, Signature] = NOTHING,
    constants: Mapping[str, int] = NOTHING,
    smalls: str | Callable[[], Sequence[SmallEngine]] = tuple,
    predicates: Mapping[str, Predicate] = NOTHING,
    **others: Any,
) -> Lab:
    """Return the lab whose header, driver.c and starter are in a folder: FOLDER/HEADER.h, FOLDER/starter.c.

    A header may have an absolute path, without its suffix. Submissions are called HEADER.c. `operations` are in the
    order of the driver's codes; those with a task are the functions that students write, which the header declares with
    names for all parameters. `oracle` is "module:factory", `smalls` makes small engines, or is "module:name" of several
    `grader.labs.plain_lab.SmallLines`. `numbers` makes the arguments of lab_start (default: the settings of the case),
    `places` maps names of differences to words of a record (default: by facets), `building` has operations that no case
    file uses; `predicates` (and "never-set") and `others` go to `load_lab`. Raises `RubricError` for wrong files.
    """
    project = _project(folder, header, operations)
    calls, numbers = {**operations, **building}, numbers or partial(_settings, settings)
    sentences = partial(load_sentences, cases / "handout.toml", "clauses", constants)

    def runtime(model: ModelFactory) -> NativeRuntime:
        driver = Driver(operations=calls, settings=numbers, places=places or partial(_places, facets), model=model)
        return NativeRuntime(project=project, driver=driver)

    mine: dict[str, Any] = {
        "codec": _CODEC,
        "picture": partial(call_at, "grader.labs.plain_lab:picture", facets),
        "code": (project.driver,),
        "smalls": partial(call_at, _SMALLS, smalls, operations, oracle, _CODEC) if isinstance(smalls, str) else smalls,
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
        reproduce=partial(call_at, _REPRODUCE, project=project, calls=calls, settings=numbers, sentences=sentences),
        reproduce_command=f"{project.command_with('repro.c', 'repro')} && ./repro",
        **mine | others,
    )


def _project(folder: Path, header: str, operations: Mapping[str, Signature]) -> CProject:
    refusing = {call: each.refusals[0].replace("null", "NULL") for call, each in operations.items() if each.refusals}
    return CProject(
        source_name=f"{Path(header).name}.c",
        header=folder / f"{header}.h",
        driver=folder / "driver.c",
        functions=functions_of(folder / f"{header}.h", refusing),
    )


def _settings(settings: Mapping[str, Number], trace: Trace) -> tuple[int, ...]:
    """Return the numbers for lab_start: the settings of the case in the lab's order, 0 for a setting without value."""
    return tuple(trace.settings.get(name, 0) for name in settings)


def _places(facets: Sequence[Facet], record: bytes, _: int) -> dict[str, int]:
    """Map the names of differences to the words of a record. Raises `ValueError` if `record` is not a record."""
    try:
        whole, offsets = values.decode(record), values.offsets(record)
    except CannotGoOn as error:
        raise ValueError(str(error)) from error
    named = {}
    for path, word in offsets.items():
        value = at(whole, path)
        if isinstance(value, list | dict) and not is_unreadable(value):
            continue  # many words: a missing store to one of them proves nothing
        for facet in facets:
            entry = _entry(facet, path)
            if entry is not None:
                named[f"{facet.per} {entry}: {facet.heading}" if entry else facet.heading] = word
    return named


def _entry(facet: Facet, path: tuple[str, ...]) -> str | None:
    """Return the name of the facet's entry at a path; "" for the whole facet, None if the path is not of this facet."""
    steps = facet.steps
    if len(path) not in (len(steps), len(steps) + bool(facet.per)):
        return None
    entries = [there for step, there in zip(steps, path, strict=False) if step == EACH]
    if any(step not in (EACH, there) for step, there in zip(steps, path, strict=False)):
        return None
    return (entries + list(path[len(steps) :]) or [""])[0]
