"""Advice: undefined behaviour, allocations that fail, scratch memory. Each with its line, and never a point."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment import load
from grader.core.case import Case
from grader.core.errors import DriverError
from grader.core.optional_stages import OptionalStage
from grader.core.record import Record
from grader.core.verdict import Advice
from grader.labs.paged_kv.lab import lab
from grader.runtime.native import runtime
from grader.runtime.native.advice import ALLOCATION_FAILURE, NEEDLESS_ALLOCATION, UNDEFINED_BEHAVIOUR
from grader.runtime.native.compile.project import CProject
from grader.runtime.options import GradingOptions
from grader.runtime.program import Built
from grader.system.sandbox import Workspace
from grader.tests.support.programs import (
    ACCEPTED,
    POSIX,
    SAMPLES,
    around,
    attempted,
    changed,
    first_case,
    line_of,
    made,
    right,
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


@cache
def undefined_source() -> str:
    """A right program whose `append_kv` to sequence 2 does all of that, a line each."""
    lines = [f"    {statement} /* {words} */" for words, statement in _UNDEFINED.items()]
    body = "\n".join(["    if (seq_id == 2) {", "    (void)give(none);", *lines, "    }"])
    return around("append_kv", body, top=_TOP)


@cache
def undefined_advice() -> tuple[Advice, ...]:
    """What is said about it."""
    return attempted(undefined_source(), second_case(), first_case(), advise=True).advice


@pytest.mark.parametrize("words", [*_UNDEFINED, "NULL is returned"])
def test_undefined_behaviour_is_told_with_its_line(words: str) -> None:
    """Each kind at its place; the program goes on behind it, so one does not hide the others."""
    (said,) = [one for one in undefined_advice() if one.source[0].line == line_of(undefined_source(), f"/* {words} */")]

    assert said.kind == UNDEFINED_BEHAVIOUR
    assert words.rsplit(maxsplit=1)[-1] in said.message
    assert "in append_kv: " in said.message
    assert (said.case, said.operation) == (first_case().name, 6)
    assert said.source[0].column > 0


def test_a_place_is_told_of_once() -> None:
    """However often and in however many cases the program comes there."""
    source = around("create_sequence", "    largest = INT_MAX;\n    largest = largest + 1; /* HERE */", top=_TOP)
    kinds = [one.kind for one in attempted(source, first_case(), second_case(), advise=True).advice]

    assert kinds.count(UNDEFINED_BEHAVIOUR) == 1


@pytest.mark.parametrize("sample", ACCEPTED, ids=lambda path: path.name)
def test_a_conforming_program_has_no_undefined_behaviour(sample: Path) -> None:
    """In none of the public cases; and whoever looks at what malloc returns is told nothing of that either."""
    built = graded(sample, advise=False).advice  # what the object scan says of it, asked or not
    given = [one for one in graded(sample, advise=True).advice if one not in built]

    assert [one for one in given if one.kind not in (ALLOCATION_FAILURE, NEEDLESS_ALLOCATION)] == []
    if sample.name in ("goto_cleanup_rollback", "kernel_list_macros"):
        assert given == []
    else:
        assert all(one.source and one.case for one in given)


@cache
def graded(path: Path, *, advise: bool) -> Record:
    """The record over all cases."""
    chosen = lab()
    cases = load.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed)
    return pipeline.grade(path, chosen, cases, GradingOptions(memory_checker=False, advise=advise))


_SAMPLES = (
    "accepted/scratch_array_one_pass",
    "accepted/visitor_camel_case_allman",
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


def test_hidden_cases_give_no_advice() -> None:
    """A line that only a hidden case reaches would tell what it asks."""
    operations = "create_sequence 1 5 -> seq; fork_sequence 1 2 -> seq; append_kv 2 1 -> 0"
    hidden = made("secret", operations, header='pool_blocks = 4; visibility = "hidden"')

    assert attempted(undefined_source(), hidden, advise=True).advice == ()
    assert undefined_advice() != ()


def test_nobody_who_does_not_ask_is_advised() -> None:
    """It costs the time of another compilation."""
    assert attempted(undefined_source(), first_case()).advice == ()


# ---------------------------------------------------------------- allocations that fail


def careful(*replacements: tuple[str, str]) -> str:
    """A program that looks at every allocation and undoes what it has done, changed."""
    text = (SAMPLES / "accepted" / "goto_cleanup_rollback" / "llm_memory.c").read_text(encoding="utf-8")
    return changed(("#include <string.h>\n", "#include <string.h>\n#include <stdlib.h>\n"), *replacements, text=text)


@cache
def failing_case() -> Case:
    """Every call that allocates, the append too."""
    return made(
        "allocates",
        "create_sequence 1 256 -> seq; append_kv 1 5 -> 0; fork_sequence 1 2 -> seq; free_sequence 1 -> 0",
        header="pool_blocks = 20",
    )


_TABLE = "if ((table = table_new()) == NULL)\n\t\t\tgoto out;"
_FAILURES = {
    "append_kv crashes": (_TABLE, "table = table_new(); /* THERE */ table[0] = -1; /* HERE */"),
    "append_kv ends the whole program": (_TABLE, "if ((table = table_new()) == NULL)\n\t\t\texit(1); /* HERE */"),
    "append_kv does not come back": (
        _TABLE,
        "if ((table = table_new()) == NULL)\n\t\t\tfor (volatile int on = 1; on;) ; /* HERE */",
    ),
    "append_kv returns -1 when the allocation at line {} fails, but leaves its work half done": (
        _TABLE,
        "if ((table = table_new()) == NULL) {\n\t\t\tengine->free_local_blocks--;\n\t\t\tgoto out;\n\t\t}",
    ),
    "create_sequence does not notice that the allocation at line {} fails": (
        "if ((s->block_table[i] = table_new()) == NULL)\n\t\t\tgoto rollback;",
        "s->block_table[i] = table_new();\n\t\tif (!s->block_table[i] && (need = i * 16) < 0)\n\t\t\tgoto rollback;",
    ),
    "create_sequence returns NULL when the allocation at line {} fails, but loses": (
        "rollback:\n\tshell_free(s);\n",
        "rollback:\n",
    ),
}


@pytest.mark.parametrize("words", _FAILURES)
def test_what_comes_of_a_failing_allocation(words: str) -> None:
    """One advice, at the line of the crash where there is one, with the line of the allocation."""
    old, new = _FAILURES[words]
    source = careful((old, new), ("t = malloc(TABLE_BYTES);", "t = malloc(TABLE_BYTES); /* MADE */"))
    if words == "append_kv crashes":  # table_new itself looks
        source = changed(("if (t != NULL)", "if (t != NULL) /* it does */"), text=source)
    (said,) = attempted(source, failing_case(), advise=True).advice
    allocation = line_of(source, "/* MADE */")

    assert said.kind == ALLOCATION_FAILURE
    assert said.message.startswith(words.format(allocation))
    assert f"at line {allocation} fails" in said.message
    assert said.source[0].line == (line_of(source) if "/* HERE */" in source else allocation)
    assert said.case == failing_case().name


_FINE: dict[str, tuple[str, str]] = {
    "as it is": ("", ""),
    "tries again": (_TABLE, "while ((table = table_new()) == NULL)\n\t\t\t;"),
}


@pytest.mark.parametrize("change", _FINE.values(), ids=_FINE)
def test_who_looks_at_what_malloc_returns_is_told_nothing(change: tuple[str, str]) -> None:
    """To refuse is right, and so is to find another way."""
    assert attempted(careful(*[change] if change[0] else []), failing_case(), advise=True).advice == ()


def test_a_program_that_never_looks_is_told_so_call_by_call() -> None:
    """One advice for each call that crashes, with all lines that can fail there."""
    given = attempted(right(), failing_case(), advise=True).advice
    crashes = [one.message for one in given if " crashes when the allocation at line " in one.message]

    assert sorted(message.split()[0] for message in crashes) == [
        "append_kv",
        "create_sequence",
        "fork_sequence",
        "llm_init",
    ]
    assert {one.kind for one in given} == {ALLOCATION_FAILURE}
    lines = [number for number, line in enumerate(right().splitlines(), 1) if "malloc(" in line][:-1]
    assert all(str(number) in next(message for message in crashes if "create" in message) for number in lines)


# ---------------------------------------------------------------- scratch memory


def test_memory_that_goes_back_in_the_same_call_is_told_of() -> None:
    """Once for a call and a line; what is kept is not."""
    source = around(
        "append_kv",
        "    char *volatile copy = malloc(40); /* HERE */\n    if (copy == NULL)\n        return -1;\n    free(copy);",
        text=careful(),
        top=_TOP,
    )
    given = attempted(source, failing_case(), first_case(), advise=True).advice
    (said,) = [one for one in given if one.kind == NEEDLESS_ALLOCATION]

    assert said.message.startswith("append_kv allocates memory here (40 bytes)")
    assert said.source[0].line == line_of(source)
    assert said.source[0].function == "append_kv"


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record says that something was not looked at, or what failed; all else is as it was."""
    monkeypatch.setattr(runtime, "build_sanitized", build)
    path = tmp_path / "llm_memory.c"
    path.write_text(careful(), encoding="utf-8")
    record = pipeline.grade(path, lab(), [failing_case()], GradingOptions(seed=1, memory_checker=False, advise=True))

    assert [one.kind for one in record.advice] == given
    assert len(record.failed_stages) == len(failed)
    for failure, (stage, words) in zip(record.failed_stages, failed, strict=True):
        assert failure.stage is stage
        assert words in failure.error
    assert record.score == record.max_score
