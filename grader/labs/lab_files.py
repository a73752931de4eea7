"""Make a lab from what its author gives and from the files in its folder of cases.

`load_lab` needs seven things: name, title, folder of cases, calls, facets, oracle, runtime. Rubric (`rubric.toml`), the
handout's sentences (`handout.toml`) and the known mistakes (`mistakes.toml`) are read from the folder. The rest of a
`Lab` has defaults. The place of an object in a module, which is imported when needed, is written "module:name".

`oracle` is the place of a factory. `traces` is a module with `generate` and, for searches, `explore` (default: the
oracle's module). `circumstances` is the place of a `Circumstances`. `runtime` may be a function of the model. `model`
replaces the default judging. `predicates` are for the `where` of mistakes, `constants` are numbers that texts name in
braces, `code` are the files on which the reading of cases depends, and `others` are fields of `Lab`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from grader.assignment import rubric
from grader.assignment.lab import Lab, Predicate
from grader.assignment.rubric import KnownWords, NamedMistake
from grader.assignment.stored import stored
from grader.core.case import EVERY, Case, Grammar, Number, Signature
from grader.core.model import ModelFactory
from grader.core.rubric import Facet, Rubric
from grader.core.verdict import Judged
from grader.judge.recorded import FILE, RecordedOracle, recorded_traces
from grader.runtime.protocol import Runtime
from reference.operation import Operation, Trace
from reference.oracle import Generator, Oracle, OracleFactory

if TYPE_CHECKING:
    from grader.core.model import Codec
    from grader.judge.plain_judge import Invariants

Complete = Callable[[dict[str, int], list[Operation]], Iterator[tuple[str, str]]]
_REFERENCE = Path(__file__).parents[2] / "reference"
NOTHING: Mapping[str, Any] = {}


def load_lab(
    *,
    name: str,
    cases: Path,
    calls: Mapping[str, Signature],
    facets: Sequence[Facet],
    oracle: str,
    traces: str = "",
    circumstances: str = "",
    runtime: Runtime | Callable[[ModelFactory], Runtime],
    model: ModelFactory | None = None,
    predicates: Mapping[str, Predicate] = NOTHING,
    invariants: Invariants | None = None,
    codec: Codec | None = None,
    settings: Mapping[str, Number] = NOTHING,
    constants: Mapping[str, int] = NOTHING,
    example: str = "",
    most_targets: int = 1,
    complete: Complete | None = None,
    every: int = EVERY,
    code: Sequence[Path] = (),
    **others: Any,
) -> Lab:
    """Return the lab. Raises `RubricError` if a file is wrong, with all mistakes of that file."""
    names = frozenset(facet.name for facet in facets) | {"reply"}
    predicates = {**rubric.PREDICATES, **predicates}
    rules, clauses, situations, mistakes = _read(cases, names, calls, predicates, constants=constants)
    recorded = cases / FILE if model is None and (cases / FILE).exists() else None
    files = (recorded,) if recorded else _code(name, oracle, traces, circumstances)
    parts = {"calls": calls, "facets": tuple(facets), "invariants": invariants, "codec": codec}
    factory = model or _plain(oracle, circumstances, recorded, **parts)
    return Lab(
        name=name,
        cases=cases,
        grammar=Grammar(
            operations=calls,
            settings=settings,
            example=example or _example(calls),
            most_targets=most_targets,
            clauses=clauses,
            rules=tuple(rule.id for rule in rules.rules if rule.judged is Judged.CASES),
            complete=complete or partial(_complete, calls),
            model=factory,
            code=(*code, *files),
            generate=_traces(traces or oracle, recorded) if model is None and codec is None else None,
            every=every,
            constants=constants,
            check=partial(_problems, factory, tuple(facets)) if model is None and not recorded else lambda _: (),
        ),
        rubric=rules,
        read_rubric=partial(rubric.load, facets=names, calls=calls, constants=constants),
        model=factory,
        runtime=runtime(factory) if callable(runtime) else runtime,
        mistakes=rubric.with_predicates(mistakes, predicates),
        generator=_generator(traces or oracle, recorded),
        situation_words=situations,
        oracle_files=files if model is None and not recorded else (),
        **others,
    )


_Texts = tuple[Rubric, Mapping[str, str], Mapping[str, str], tuple[NamedMistake, ...]]
"""Rubric, sentences of the handout, sentences for situations, and known mistakes."""


def _read(
    cases: Path, facets: frozenset[str], calls: Collection[str], where: Collection[str], *, constants: Mapping[str, int]
) -> _Texts:
    """Return the texts of a folder of cases. They are stored, because reading them takes 1.5 % of a short grading."""
    rubric_file, handout, known = cases / rubric.RUBRIC_FILE, cases / "handout.toml", cases / "mistakes.toml"

    def read() -> _Texts:
        rules = rubric.load(rubric_file, facets, calls, constants)
        clauses, situations = (rubric.load_sentences(handout, name, constants) for name in ("clauses", "situations"))
        words = KnownWords(calls=calls, facets=facets, rules=rules.ids, clauses=clauses, where=where)
        return rules, clauses, situations, rubric.load_mistakes(known, words, constants)

    of = str(cases), sorted(facets), list(calls), list(where), sorted(constants.items())
    return stored("labs", of, lambda: [path for path in (rubric_file, handout, known) if path.exists()], read)


def call_at(place: str, *arguments: Any, **named: Any) -> Any:
    """Call the function at "module:name". The module is imported now: few gradings need it."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(*arguments, **named)


def _engine(oracle: str, trace: Trace) -> Oracle:  # noqa: ARG001 - the operations say all that an engine must know
    """Make the oracle for a trace."""
    engine: Oracle = call_at(oracle)
    return engine


def _generate(place: str, *names: str) -> Generator | None:
    """Return a generator that calls the first function in `names` that the module has; None if it has none of them."""
    module = import_module(place.partition(":")[0])
    generator = next((getattr(module, name) for name in names if hasattr(module, name)), None)
    return None if generator is None else lambda seed, length: tuple(generator(Random(seed), length))


def _plain(oracle: str, circumstances: str, recorded: Path | None, **parts: Any) -> ModelFactory:
    from grader.judge.plain_judge import PlainModel  # noqa: PLC0415 - a lab with its own model does not need it

    engine: OracleFactory = partial(RecordedOracle, recorded) if recorded else partial(_engine, oracle)
    if circumstances and not recorded:
        parts["circumstances"] = partial(call_at, circumstances)
    given = {name: part for name, part in parts.items() if part is not None}
    return partial(PlainModel, oracle=engine, **given)


def _problems(model: ModelFactory, facets: Sequence[Facet], cases: Sequence[Case]) -> Iterator[str]:
    from grader.judge.plain_judge import table_problems  # noqa: PLC0415 - stored cases were checked

    return table_problems(model, facets, cases)


def _generator(place: str, recorded: Path | None) -> Callable[[], Generator | None]:
    """Return a function that finds the generator for searches, or returns None if the oracle is missing."""
    return partial(_generate, place, "explore", "generate") if recorded is None else lambda: None


def _traces(place: str, recorded: Path | None) -> Callable[[], Generator | None]:
    """Return a function that finds the generator of random traces, in a file of recorded traces or in a module."""
    return partial(_generate, place, "generate") if recorded is None else partial(recorded_traces, recorded)


def _code(name: str, *places: str) -> tuple[Path, ...]:
    """Return the files that define what is right: those of `reference/NAME`, and the modules of these places."""
    specs = [find_spec(place.partition(":")[0]) for place in places if place]
    modules = {Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None}
    return tuple(sorted({*(_REFERENCE / name).glob("*.py"), *modules}))


def _complete(
    calls: Mapping[str, Signature], _: dict[str, int], operations: list[Operation]
) -> Iterator[tuple[str, str]]:
    """Add the lab's closing call, if it has one, to a case that does not end with it."""
    closing = next((name for name, call in calls.items() if call.closes), "")
    if closing and operations and operations[-1].name != closing:
        operations.append(Operation(name=closing, implicit=True))
    yield from ()


def _example(calls: Mapping[str, Signature]) -> str:
    """Return an operation line for messages that say what to write."""
    name, call = next(iter(calls.items()))
    return " ".join([name, *(argument.name for argument in call.arguments), "-> REPLY"])
