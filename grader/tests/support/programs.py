"""Small programs for the tests of the code that runs them: a right one, and faults added around one of its calls."""

from __future__ import annotations

import re
import tempfile
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from grader import pipeline
from grader.assignment import load
from grader.assignment.settings import GradingOptions
from grader.attempt import Attempt
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Finding, RuleScore
from grader.judge.case_causes import case_findings
from grader.judge.compare import compare
from grader.judge.diagnose import Diagnosed, diagnose
from grader.judge.score import rule_scores
from grader.labs.paged_kv.lab import lab
from grader.pipeline import STEPS
from grader.runtime.comparison import Comparison
from grader.runtime.observation import Played, PlayedStep
from grader.system import sandbox
from grader.tests.support.command import SAMPLES
from reference.delta import whole
from reference.model import play

__all__ = [
    "ACCEPTED",
    "POSIX",
    "SAMPLES",
    "around",
    "attempted",
    "by_hand",
    "changed",
    "comparisons",
    "expected_records",
    "findings",
    "first_case",
    "graded_text",
    "judged",
    "line_of",
    "made",
    "played",
    "right",
    "second_case",
]

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


@cache
def right() -> str:
    """Return a right program in plain C."""
    return (SAMPLES / "accepted" / "visitor_camel_case_allman" / "llm_memory.c").read_text(encoding="utf-8")


def changed(*replacements: tuple[str, str], text: str = "") -> str:
    """Return the right program with pieces of text replaced. Raises `ValueError` unless each occurs exactly once."""
    text = text or right()
    for old, new in replacements:
        if text.count(old) != 1:
            raise ValueError(f"{text.count(old)} times in the text: {old!r}")
        text = text.replace(old, new)
    return text


def around(call: str, before: str = "", after: str = "", *, top: str = POSIX, text: str = "") -> str:
    """Return the right program with C statements before and after a call; `result` is what the call returned."""
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


def line_of(text: str, marker: str = "/* HERE */") -> int:
    """Return the number of the only line with the marker."""
    (number,) = (number for number, line in enumerate(text.splitlines(), start=1) if marker in line)
    return number


def made(name: str, operations: str, *, header: str = "pool_blocks = 4", rule: str = "address") -> Case:
    """Return a case written for one test; `;` may replace a line end."""
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
        return load.load(path, lab().grammar, seed=lab().rubric.seed)


@cache
def first_case() -> Case:
    """Seven operations: init, create, two appends, fork, a copying append, destroy."""
    return made(
        "first",
        "create_sequence 1 5 -> seq; append_kv 1 11 -> 0; append_kv 1 12 -> 0;"
        "fork_sequence 1 2 -> seq; append_kv 2 13 -> 0",
    )


@cache
def second_case() -> Case:
    """Another sequence of operations: init, create, free, create, append, destroy."""
    return made(
        "second",
        "create_sequence 7 20 -> seq; free_sequence 7 -> 0; create_sequence 8 3 -> seq; append_kv 8 21 -> 0",
    )


def attempted(source: str | bytes, *cases: Case, valgrind: bool = False, advise: bool = False) -> Attempt:
    """Run all steps of the grader on this source, and return the attempt with all their results."""
    with tempfile.TemporaryDirectory() as folder, sandbox.workspace() as work:
        attempt = Attempt(
            lab=lab(),
            path=_written(folder, source),
            cases=cases,
            work=work,
            options=GradingOptions(valgrind=valgrind, advise=advise),
        )
        for step in STEPS:
            attempt = step(attempt)
    assert attempt.built is not None
    assert attempt.can_run, attempt.built.findings
    return attempt


def graded_text(source: str | bytes, *cases: Case, valgrind: bool = False) -> Record:
    """Return the record of this source."""
    with tempfile.TemporaryDirectory() as folder:
        return pipeline.grade(_written(folder, source), lab(), cases, GradingOptions(valgrind=valgrind))


def played(source: str | bytes, *cases: Case) -> list[Played]:
    """Return what the harness reported of each case in a native run."""
    attempt = attempted(source, *cases)
    assert attempt.replayed is not None
    return list(attempt.replayed.played)


def comparisons(source: str | bytes, *cases: Case) -> tuple[Comparison, ...]:
    """Return the comparison of each case."""
    return attempted(source, *cases).comparisons


def findings(attempt: Attempt) -> list[Finding]:
    """Return all findings of all cases."""
    return [finding for one in attempt.found for finding in one.findings]


def expected_records(case: Case) -> list[bytes]:
    """Return the reference's record after each operation."""
    return [step.record for step in play(lab().model(case.trace), case.trace)]


def by_hand(case: Case, *edits: tuple[int, int, int]) -> Played:
    """Return a case that was played correctly, except for words of records: (operation, index of the word, value)."""
    records = expected_records(case)
    for step, place, value in edits:
        words = array("i", records[step])
        words[place] = value
        records[step] = words.tobytes()
    return Played(case, steps=told(records), ended=True)


def told(records: Sequence[bytes], *, allocations: int = 0, frees: int = 0) -> list[PlayedStep]:
    """Return operations that left these records; each of them made these numbers of allocations and frees."""
    steps: list[PlayedStep] = []
    for record in records:
        before = steps[-1] if steps else None
        steps.append(PlayedStep(whole(record), before, len(record), allocations, frees))
    return steps


def judged(
    *cases: Played, builds: bool = True, hidden: Mapping[str, int] | None = None
) -> tuple[Diagnosed, dict[str, RuleScore]]:
    """Return the diagnosis and the points of cases that were played by hand."""
    chosen = lab()
    found = case_findings([compare(one, chosen.model) for one in cases], {}, None, chosen)
    diagnosed = diagnose(found, chosen)
    rule = diagnosed.diagnosis.rule if diagnosed.diagnosis is not None else None
    scores = rule_scores(
        found, chosen.rubric, [one.case for one in cases], builds=builds, diagnosed=rule, hidden=hidden
    )
    return diagnosed, {score.rule: score for score in scores}


def _written(folder: str, source: str | bytes) -> Path:
    path = Path(folder) / lab().source_name
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path
