"""Make a lab of what its author gives and of the files in its folder of cases.

`load_lab` needs seven things: name, title, folder of cases, calls, facets, oracle, runtime. Rubric (`rubric.toml`), the
handout's sentences (`handout.toml`) and the known mistakes (`mistakes.toml`) are read from the folder. The rest of a
`Lab` has defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from grader.assignment import mistakes as known_mistakes, rubric
from grader.assignment.lab import Lab, Predicate
from grader.assignment.mistakes import NamedMistake
from grader.core.case import EVERY, Grammar, Number, Signature
from grader.core.model import ModelFactory
from grader.core.rubric import Facet, Rubric
from grader.core.verdict import Judged
from grader.judge.recorded import FILE, RecordedOracle, recorded_traces
from grader.runtime.protocol import Runtime
from reference.operation import Operation, Trace
from reference.oracle import Generator, Oracle, OracleFactory

if TYPE_CHECKING:
    from grader.judge.plain_judge import Codec, Invariants

Complete = Callable[[dict[str, int], list[Operation]], Iterator[tuple[str, str]]]
_NO_SETTINGS: Mapping[str, Number] = {}
_NO_CONSTANTS: Mapping[str, int] = {}
_PREDICATES: Mapping[str, Predicate] = {
    "wrongly-refused": lambda judgement: judgement.actual.refused and not judgement.expected.refused,
}
"""What mistakes may name in `where`, in a lab that has no predicates of its own."""


def load_lab(
    *,
    name: str,
    cases: Path,
    calls: Mapping[str, Signature],
    facets: Sequence[Facet],
    oracle: str,
    runtime: Runtime | Callable[[ModelFactory], Runtime],
    model: ModelFactory | None = None,
    predicates: Mapping[str, Predicate] = _PREDICATES,
    invariants: Invariants | None = None,
    codec: Codec | None = None,
    settings: Mapping[str, Number] = _NO_SETTINGS,
    constants: Mapping[str, int] = _NO_CONSTANTS,
    example: str = "",
    most_targets: int = 1,
    complete: Complete | None = None,
    every: int = EVERY,
    code: Sequence[Path] = (),
    stand_ins: Sequence[Path] = (),
    **others: Any,
) -> Lab:
    """Return the lab. Raises `RubricError` with all mistakes of a file.

    `oracle` is "module:factory", `runtime` may be made of the model. `model` is a judging of its own, `predicates` are
    for its mistakes' `where`, `constants` are numbers that cases, sentences and hints name in braces, `invariants`
    tells what can never be so, `codec` is the form of records, `code` are files by which cases are read, `stand_ins`
    others that students must not have, `others` those of `Lab`, such as its title.
    """
    names = frozenset(facet.name for facet in facets) | {"reply"}
    rules, clauses, mistakes = _read(cases, names, calls, predicates, constants=constants)
    recorded = cases / FILE if model is None and (cases / FILE).exists() else None
    files = (recorded,) if recorded else _code(oracle)
    factory = model or _plain(oracle, recorded, calls=calls, facets=tuple(facets), invariants=invariants, codec=codec)
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
            complete=complete or _complete,
            model=factory,
            code=(*code, *files),
            generate=_traces(oracle, recorded) if model is None and codec is None else None,
            every=every,
            constants=constants,
        ),
        rubric=rules,
        read_rubric=partial(rubric.load, facets=names, calls=calls, constants=constants),
        model=factory,
        runtime=runtime(factory) if callable(runtime) else runtime,
        mistakes=known_mistakes.bound(mistakes, predicates),
        generator=_generator(oracle, recorded),
        oracle_files=(*files, *stand_ins) if model is None and not recorded else (),
        **others,
    )


def _read(
    cases: Path,
    facets: frozenset[str],
    calls: Collection[str],
    where: Collection[str],
    *,
    constants: Mapping[str, int],
) -> tuple[Rubric, Mapping[str, str], tuple[NamedMistake, ...]]:
    """Return rubric, sentences and known mistakes of a folder of cases."""
    rules = rubric.load(cases / rubric.RUBRIC_FILE, facets, calls, constants)
    clauses = rubric.load_clauses(cases / "handout.toml", constants)
    mistakes = known_mistakes.read(
        cases / "mistakes.toml",
        calls=calls,
        facets=facets,
        rules=rules.ids,
        clauses=clauses,
        where=where,
        constants=constants,
    )
    return rules, clauses, mistakes


def _engine(oracle: str, trace: Trace) -> Oracle:  # noqa: ARG001 - the operations say all that an engine must know
    """Make the oracle for a trace."""
    module, _, factory = oracle.partition(":")
    engine: Oracle = getattr(import_module(module), factory)()
    return engine


def _generate(oracle: str, *names: str) -> Generator | None:
    """Return what makes random traces by the first of these functions in the oracle's module; None: it has none."""
    module = import_module(oracle.partition(":")[0])
    generator = next((getattr(module, name) for name in names if hasattr(module, name)), None)
    return None if generator is None else lambda seed, length: tuple(generator(Random(seed), length))


def _plain(oracle: str, recorded: Path | None, **parts: Any) -> ModelFactory:
    from grader.judge.plain_judge import PlainModel  # noqa: PLC0415 - no lab with a judging of its own needs it

    engine: OracleFactory = partial(RecordedOracle, recorded) if recorded else partial(_engine, oracle)
    given = {name: part for name, part in parts.items() if part is not None}
    return partial(PlainModel, oracle=engine, **given)


def _generator(oracle: str, recorded: Path | None) -> Callable[[], Generator | None]:
    """Return what looks for the generator of a search; without the oracle there is none."""
    return partial(_generate, oracle, "explore", "generate") if recorded is None else lambda: None


def _traces(oracle: str, recorded: Path | None) -> Callable[[], Generator | None]:
    """Return what looks for the generator of random traces: in a file of recorded ones, or beside the oracle."""
    return partial(_generate, oracle, "generate") if recorded is None else partial(recorded_traces, recorded)


def _code(oracle: str) -> tuple[Path, ...]:
    """The files of the oracle: its module, and what lies beside it."""
    spec = find_spec(oracle.partition(":")[0])
    if spec is None or spec.origin is None:
        return ()
    return tuple(sorted(Path(spec.origin).parent.glob("*.py")))


def _complete(_: dict[str, int], __: list[Operation]) -> Iterator[tuple[str, str]]:
    """Nothing is added to a case."""
    yield from ()


def _example(calls: Mapping[str, Signature]) -> str:
    """An operation line for messages that say what to write."""
    name, call = next(iter(calls.items()))
    return " ".join([name, *(argument.name for argument in call.arguments), "-> REPLY"])
