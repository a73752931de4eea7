"""Advice: undefined behaviour, with its line; what of it a conforming program gets; and never a point."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.attempt import Attempt
from grader.core.case import Case
from grader.core.errors import DriverError, OptionalStage
from grader.core.record import Record
from grader.core.verdict import Advice, Visibility
from grader.labs.paged_kv.lab import lab
from grader.runtime.native import runtime
from grader.runtime.native.advice import UNDEFINED_BEHAVIOUR
from grader.runtime.native.project import CProject
from grader.runtime.protocol import Built, GradingOptions
from grader.system.sandbox import Workspace
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    first_case,
    line_of,
    made,
    second_case,
)

_TOP = POSIX + (
    "#include <limits.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "__attribute__((returns_nonnull, noipa)) void *give(void *what);\n"
    "void *give(void *what) { return what; /* NULL is returned */ }\n"
    "volatile int table[4], at = 4, many = 40, zero = 0, largest = INT_MAX, smallest = INT_MIN;\n"
    "void *volatile none = NULL;\n"
)
_UNDEFINED = {
    "signed numbers": "largest = largest + 1;",
    "signed numbers overflows": "smallest = -smallest;",
    "shift": "many = 1 << many;",
    "index": "table[0] = table[at];",
    "variable length": "{ int list[zero]; (void)list; }",
    "a bool": "{ volatile _Bool flag; *(volatile unsigned char *)&flag = 7; if (flag) zero = 0; }",
    "NULL is given": "memcpy(engine->pool_base_ptr, none, (size_t)zero);",
    "address space": "none = (char *)(size_t)-2 + at; none = NULL;",
    "NULL is used": "none = &((Sequence *)none)->kv_count; none = NULL;",
    "not aligned": "zero = 0 * *(volatile int *)(void *)((char *)engine->ref_count + 1);",
    "builtin": "at = __builtin_ctz((unsigned)zero);",
    "cannot be reached": "if (kv_data == 13) __builtin_unreachable();",
}
"""A piece of the advice, and a statement that gives it. The last one ends the case."""


_OFTEN, _HIDDEN = "/* in every case */", "/* in a hidden case */"


@cache
def undefined_source() -> str:
    """A right program whose `append_kv` to sequence 2 does all of that, a line each.

    Besides, `create_sequence` does something of it in every case, and `append_kv` only where 77 is appended.
    """
    lines = [f"    {statement} /* {words} */" for words, statement in _UNDEFINED.items()]
    hidden = f"    if (kv_data == 77) {{ largest = INT_MAX; largest = largest + 1; {_HIDDEN} }}"
    body = "\n".join([hidden, "    if (seq_id == 2 && kv_data != 77) {", "    (void)give(none);", *lines, "    }"])
    often = f"    largest = INT_MAX;\n    largest = largest + 1; {_OFTEN}\n    largest = INT_MAX;"
    return around("create_sequence", often, text=around("append_kv", body, top=""), top=_TOP)


@cache
def undefined_advice() -> tuple[Advice, ...]:
    """The advice on it, of two public cases and a hidden one."""
    operations = "create_sequence 1 5 -> seq; fork_sequence 1 2 -> seq; append_kv 2 77 -> 0"
    hidden = made("secret", operations, header='pool_blocks = 4; visibility = "hidden"')
    return attempted(undefined_source(), second_case(), first_case(), hidden, advise=True).advice


def undefined_at(marker: str) -> list[Advice]:
    """The advice with the line that has this marker."""
    return [item for item in undefined_advice() if item.source[0].line == line_of(undefined_source(), marker)]


@pytest.mark.parametrize("words", [*_UNDEFINED, "NULL is returned"])
def test_undefined_behaviour_is_told_with_its_line(words: str) -> None:
    """Each kind at its place; the program goes on behind it, so one does not hide the others."""
    (advice,) = undefined_at(f"/* {words} */")

    assert advice.kind == UNDEFINED_BEHAVIOUR
    assert words.rsplit(maxsplit=1)[-1] in advice.message
    assert "in append_kv: " in advice.message
    assert (advice.case, advice.operation) == (first_case().name, 6)
    assert advice.source[0].column > 0


@cache
def advised(sample: Path) -> Attempt:
    """The attempt over all public cases, with advice."""
    public = [case for case in all_cases() if case.visibility is Visibility.PUBLIC]
    return attempted((sample / "llm_memory.c").read_bytes(), *public, advise=True)


@cache
def all_cases() -> tuple[Case, ...]:
    """The cases that students are graded with."""
    return tuple(case_files.load_folder(lab().cases, lab().grammar, seed=lab().rubric.seed))


@cache
def graded(path: Path, *, advise: bool) -> Record:
    """The record over the first case of each rule, public and hidden."""
    firsts = {(case.rule, case.visibility): case for case in reversed(all_cases())}
    return pipeline.grade(path, lab(), list(firsts.values()), GradingOptions(memory_checker=False, advise=advise))


_SAMPLES = (
    "accepted/scratch_array_one_pass",
    "wrong_answer/four_common_mistakes",
    "run_time_error/l1_not_initialised",
    "time_limit_exceeded/lookup_never_leaves_ring",
    "memory_leak/free_keeps_l2_tables",
    "compile_error/main_with_test",
    "compile_error/sign_compare",
)


@pytest.mark.parametrize("name", _SAMPLES)
def test_advice_changes_no_result(name: str) -> None:
    """Verdict and points, rule by rule and case by case, are as without it."""
    plain, advised = graded(SAMPLES / name, advise=False), graded(SAMPLES / name, advise=True)

    assert not plain.advice
    assert (advised.verdict, advised.score, advised.rules) == (plain.verdict, plain.score, plain.rules)
    assert [(one.verdict, one.passed) for one in advised.outcomes] == [
        (one.verdict, one.passed) for one in plain.outcomes
    ]


# ---------------------------------------------------------------- when it does not work


def _no_program(_project: CProject, _work: Workspace, source: bytes) -> Built:
    assert source
    return Built(program=None)


def _breaks(_project: CProject, _work: Workspace, source: bytes) -> Built:
    assert source
    raise DriverError("the linker is gone")


@pytest.mark.parametrize(
    ("build", "given", "failed"),
    [(_no_program, ["not-looked"], []), (_breaks, [], [(OptionalStage.ADVICE, "the linker is gone")])],
    ids=["no program", "breaks"],
)
def test_advice_that_cannot_be_had_costs_no_result(
    *,
    build: Callable[..., Built],
    given: list[str],
    failed: list[tuple[OptionalStage, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record says that something was not looked at, or what failed; all else is as it was."""
    monkeypatch.setattr(runtime, "build_sanitized", build)
    careful = SAMPLES / "accepted" / "goto_cleanup_rollback"
    record = pipeline.grade(careful, lab(), [first_case()], GradingOptions(seed=1, memory_checker=False, advise=True))

    assert [one.kind for one in record.advice] == given
    assert len(record.failed_stages) == len(failed)
    for failure, (stage, words) in zip(record.failed_stages, failed, strict=True):
        assert failure.stage is stage
        assert words in failure.error
    assert record.score == record.max_score
