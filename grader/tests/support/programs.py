"""Small programs for the tests of what runs them: a right one, and trouble put around one of its calls."""

from __future__ import annotations

import re
import tempfile
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from grader import pipeline
from grader.assignment import case_files
from grader.assignment.source import collect
from grader.attempt import Attempt, GradingStep, run
from grader.core.case import Case
from grader.core.model import play
from grader.core.record import Record
from grader.core.verdict import Cause, Finding, RuleScore
from grader.judge.case_findings import case_findings
from grader.judge.causes import diagnose
from grader.judge.compare import compare
from grader.judge.score import rule_scores
from grader.labs.paged_kv.lab import lab
from grader.pipeline import STEPS
from grader.runtime.native import values
from grader.runtime.native.native_played import NativePlayed, NativeStep
from grader.runtime.native.runtime import NativeObservations, NativeRuntime
from grader.runtime.native.symptoms import heap_use
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.runtime.protocol import Comparison, GradingOptions
from grader.system import sandbox
from grader.system.budget import TIME_LIMITS, Budget, TimeLimits
from grader.tests.support.command import SAMPLES
from grader.tests.support.raising import Raising

ACCEPTED = sorted(
    path for path in (SAMPLES / "accepted").iterdir() if path.is_dir() and not path.name.startswith("hostile_")
)
POSIX = """#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
"""

_SIGNATURES = {
    "llm_init": ("LLMEngine *", "void *pool_addr, size_t pool_size", "pool_addr, pool_size"),
    "create_sequence": ("Sequence *", "LLMEngine *engine, int seq_id, int kv_len", "engine, seq_id, kv_len"),
    "free_sequence": ("int ", "LLMEngine *engine, int seq_id", "engine, seq_id"),
    "fork_sequence": ("Sequence *", "LLMEngine *engine, int parent_id, int seq_id", "engine, parent_id, seq_id"),
    "append_kv": ("int ", "LLMEngine *engine, int seq_id, int kv_data", "engine, seq_id, kv_data"),
    "llm_destroy": ("int ", "LLMEngine *engine", "engine"),
}


TENTH = TimeLimits(
    replay=0.5, second_replay=0.2, operation=0.006, least_operation=0.0003, hangs=0.09, silent=0.2, checked_silent=0.03
)
"""A tenth of the time that a program may hang."""


@cache
def right() -> str:
    """A right program in plain C."""
    return (SAMPLES / "accepted" / "visitor_camel_case_allman" / "llm_memory.c").read_text(encoding="utf-8")


def changed(*replacements: tuple[str, str], text: str = "") -> str:
    """The right program with pieces of its text replaced, each of which stands there exactly once."""
    text = text or right()
    for old, new in replacements:
        if text.count(old) != 1:
            raise ValueError(f"{text.count(old)} times in the text: {old!r}")
        text = text.replace(old, new)
    return text


def around(call: str, before: str = "", after: str = "", *, top: str = POSIX, text: str = "") -> str:
    """The right program with C statements before and after one of its calls; `result` is what the call returned."""
    returns, parameters, names = _SIGNATURES[call]
    lines = [
        top,
        f"#define {call} right_{call}",
        text or right(),
        f"#undef {call}",
        f"{returns}{call}({parameters})",
        "{",
        before,
        f"    {returns}result = right_{call}({names});",
        after,
        "    return result;",
        "}",
    ]
    return "\n".join([*lines, ""])


def unwritten(call: str, *, refusal: str, text: str = "") -> str:
    """The right program, or this one, in which a call only returns."""
    returns, parameters, names = _SIGNATURES[call]
    unused = "".join(f"    (void){name};\n" for name in names.split(", "))
    stub = f"{returns}{call}({parameters})\n{{\n{unused}    return {refusal};  // not yet\n}}\n"
    return f"#define {call} right_{call}\n{text or right()}\n#undef {call}\n{stub}"


_FIRST_VARIANT = 100


def varied(statements: Iterable[str], *, top: str = POSIX) -> str:
    """The right program whose `append_kv` to sequence 2 does one of these first, each in a case of its own."""
    choice = [
        # no two branches end alike, so that gcc gives each lines of its own
        f'    case {number}: {{\n{statement}\n    __asm__ volatile("" : : "i"({number}));\n    break; }}'
        for number, statement in enumerate(statements, start=_FIRST_VARIANT)
    ]
    return around("append_kv", "\n".join(["    if (seq_id == 2) switch (kv_data) {", *choice, "    }"]), top=top)


def variants(count: int, *, header: str = "pool_blocks = 4") -> tuple[Case, ...]:
    """For each of so many statements of `varied`, the first case with the append that makes the program choose it."""
    numbers = range(_FIRST_VARIANT, _FIRST_VARIANT + count)
    return tuple(made(f"variant{number}", f"{_FIRST}append_kv 2 {number} -> 0", header=header) for number in numbers)


def line_of(text: str, marker: str = "/* HERE */") -> int:
    """The number of the one line with the marker."""
    (number,) = (number for number, line in enumerate(text.splitlines(), start=1) if marker in line)
    return number


def made(name: str, operations: str, *, header: str = "pool_blocks = 4", rule: str = "address") -> Case:
    """A case written for one test; `;` may stand for a line end."""
    lines = [line.strip() for line in re.split(r"[;\n]", operations) if line.strip()]
    text = [
        'title = "made for a test"',
        'handout = "Task 4/count-returns"',
        f'rule = "{rule}"',
        *([] if "visibility" in header else ['visibility = "public"']),
        *header.split("; "),
        "operations = '''",
        *lines,
        "'''",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made" / f"{name}.toml"
        path.parent.mkdir()
        path.write_text("\n".join([*text, ""]), encoding="utf-8")
        return case_files.load(path, lab().grammar, seed=lab().rubric.seed)


_FIRST = "create_sequence 1 5 -> seq; append_kv 1 11 -> 0; append_kv 1 12 -> 0; fork_sequence 1 2 -> seq;"


@cache
def first_case() -> Case:
    """Seven operations: init, create, two appends, fork, a copying append, destroy."""
    return made("first", f"{_FIRST}append_kv 2 13 -> 0")


@cache
def second_case() -> Case:
    """Another story: init, create, free, create, append, destroy."""
    return made(
        "second",
        "create_sequence 7 20 -> seq; free_sequence 7 -> 0; create_sequence 8 3 -> seq; append_kv 8 21 -> 0",
    )


def native() -> NativeRuntime:
    """The runtime of the lab, whose submissions are in C."""
    runtime = lab().runtime
    assert isinstance(runtime, NativeRuntime)
    return runtime


_pace_now = lab().runtime.pace_now  # a test may put something else in its place


def seconds_here(usual: float) -> float:
    """How many CPU seconds of this machine, as fast as it is now, are so many of a usual one."""
    return usual * _pace_now()


def attempted(
    source: str | bytes,
    *cases: Case,
    valgrind: bool = False,
    advise: bool = False,
    limits: TimeLimits = TIME_LIMITS,
    steps: Sequence[GradingStep] = STEPS,
) -> Attempt:
    """All steps of the grader on this source, or the first ones, with everything that they leave behind."""
    with tempfile.TemporaryDirectory() as folder, sandbox.workspace(Budget(limits)) as work:
        attempt = Attempt(
            lab=lab(),
            source=collect(_written(folder, source), lab().source_name, rule=""),
            cases=cases,
            work=work,
            options=GradingOptions(memory_checker=valgrind, advise=advise),
        )
        attempt = run(attempt, steps)
    assert attempt.optional.failures == []
    assert attempt.can_run, attempt.built.findings
    return attempt


def graded_text(source: str | bytes, *cases: Case, valgrind: bool = False) -> Record:
    """The record of this source. No stage may fail."""
    with tempfile.TemporaryDirectory() as folder:
        record = pipeline.grade(_written(folder, source), lab(), cases, GradingOptions(memory_checker=valgrind))
    assert record.failed_stages == ()
    return record


def played(source: str | bytes, *cases: Case) -> list[NativePlayed]:
    """What the harness reported of each case, natively."""
    attempt = attempted(source, *cases)
    return [one for one in attempt.replayed.played if isinstance(one, NativePlayed)]


def comparisons(source: str | bytes, *cases: Case) -> tuple[Comparison, ...]:
    """Each case, compared; no instrument has looked at it."""
    return attempted(source, *cases, steps=STEPS[: STEPS.index(pipeline._compare) + 1]).comparisons


def findings(attempt: Attempt) -> list[Finding]:
    """All findings of all cases."""
    return [finding for one in attempt.case_findings for finding in one.findings]


def expected_records(case: Case) -> list[bytes]:
    """The reference's record after each operation."""
    return [step.record for step in play(lab().model(case.trace), case.trace)]


FREE_COUNT = "state.1.engine.free_local_blocks"
"""Where it stands in a record."""


def places_of(record: bytes) -> dict[str, int]:
    """The word of each value of a record by its path."""
    return {".".join(path): word for path, word in values.offsets(record).items()}


def by_hand(case: Case, *edits: tuple[int, str | int, int]) -> NativePlayed:
    """A case played right, but for words of records: (operation, path of a value or its number among them, word)."""
    records = expected_records(case)
    for step, value, word in edits:
        words, places = array("i", records[step]), places_of(expected_records(case)[step])
        words[places[value] if isinstance(value, str) else list(places.values())[value]] = word
        records[step] = words.tobytes()
    return NativePlayed(case, steps=told(records), ended=True)


def told(records: Sequence[bytes], *, allocations: int = 0, frees: int = 0) -> list[NativeStep]:
    """Operations that left these records, and did this to the heap, each."""
    return [NativeStep(record=record, allocations=allocations, frees=frees) for record in records]


def observed(*compared: Comparison) -> NativeObservations:
    """What the harness alone saw of these cases; no line is known."""
    uses = [heap_use(one) for one in compared]
    return NativeObservations(comparisons=compared, uses=uses).completed()


def natively(attempt: Attempt) -> NativeObservations:
    """What was observed of a C program, also what only its runtime knows."""
    assert isinstance(attempt.observed, NativeObservations)
    return attempt.observed


def memcheck_of(attempt: Attempt) -> Checked:
    """What Valgrind reported; it has to have been run."""
    checked = natively(attempt).checked
    assert checked is not None
    return checked


def judged(
    *cases: NativePlayed, builds: bool = True, hidden: Mapping[str, int] | None = None
) -> tuple[tuple[Cause, ...], dict[str, RuleScore]]:
    """Causes and points of what was played by hand."""
    chosen = lab()
    found, by_call = case_findings(observed(*(compare(one, chosen.model) for one in cases)), chosen, optional=Raising())
    causes = diagnose(found, by_call, chosen)
    rule = causes[0].rule if causes else None
    scores = rule_scores(
        found, chosen.rubric, [one.case for one in cases], builds=builds, diagnosed=rule, hidden=hidden
    )
    return causes, {score.rule: score for score in scores}


def _written(folder: str, source: str | bytes) -> Path:
    path = Path(folder) / lab().source_name
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path
