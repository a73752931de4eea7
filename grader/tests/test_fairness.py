"""Fairness: what may never cost a student points, each item with the sample or the test that keeps it true."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from grader.assignment import case_files
from grader.core.case import Case, Number
from grader.core.verdict import Verdict, Visibility
from grader.labs.paged_kv.lab import lab
from grader.runtime.native.project import FLAGS
from grader.tests.support.command import SAMPLES
from grader.tests.support.conforming import VARIANTS, programs
from grader.tests.support.programs import ACCEPTED, graded_text
from reference.operation import Operation
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, MAX_LOGICAL_BLOCKS
from reference.paged_kv.oracle import PagedKV

_LONGEST = KV_PER_BLOCK * MAX_LOGICAL_BLOCKS
_INT_MAX = 2**31 - 1
_CASES = Path(__file__).parents[2] / "cases" / "paged_kv"

SAMPLES_SHOW: tuple[tuple[int, str, str], ...] = (
    (1, "scratch_array_one_pass", r"\(int64_t\)initial_kv_len \+ KV_PER_BLOCK"),
    (1, "beginner_overcommented", r"\(initial_kv_len \+ KV_PER_BLOCK - 1\)"),
    (2, "counts_zeros_rejects_negative", r"return id >= 0 &&"),
    (2, "yoda_crlf", r"if \(0 > seq_id\)"),
    (4, "terse_no_final_newline", r"\(B\*\)e->pool_base_ptr"),
    (5, "goto_cleanup_rollback", r"goto rollback;"),
    (5, "beginner_overcommented", r"\(LLMEngine \*\)malloc\(sizeof\(LLMEngine\)\);\n\n"),
    (6, "counts_zeros_rejects_negative", r"if \(count_free\(engine\) == 0\)"),
    (6, "kernel_list_macros", r"free_local_blocks <= 0"),
    (6, "visitor_camel_case_allman", r"free_local_blocks == 0"),
    (10, "scratch_array_one_pass", r"int \*notes = malloc\("),
    (10, "chinese_comments_roomy_tables", r"#define L2_ROOM \(2 \* L2_PT_SIZE\)"),
    (10, "goto_cleanup_rollback", r"/\* memory \*/[^}]+table_new\(\)"),
    (10, "yoda_crlf", r"\(int \*\)calloc\(L2_PT_SIZE, sizeof\(int\)\)"),
    (11, "printf_debugging_many_headers", r"#define TRACE\(\.\.\.\) printf\(__VA_ARGS__\)"),
    (12, "goto_cleanup_rollback", r"malloc\(sizeof\(\*eng\)\)\) == NULL\)[^;]+;\s+memset\(eng, 0"),
    (13, "visitor_camel_case_allman", r"item->prev = NULL;\s+item->next = NULL;"),
    (13, "kernel_list_macros", r"lst_init\(entry\);"),
    (13, "statistics_counters_macros", r"from the tail to the front"),
    (13, "goto_cleanup_rollback", r"reference counts are not looked at"),
    (14, "yoda_crlf", r"0 > new_seq_id \|\| NULL != seq_by_id\(engine, new_seq_id\)"),
    (14, "beginner_overcommented", r"// the parent must exist"),
    (16, "kernel_list_macros", r"if \(!engine\)"),
    (16, "yoda_crlf", r"if \(NULL == engine\)"),
    (16, "statistics_counters_macros", r"#define CHECK_ENGINE"),
    (16, "statistics_counters_macros", r"#define FIRST_FIT\(b\)"),
    (16, "goto_cleanup_rollback", r"int need, i, b;\n\n\tif \(engine == NULL\)"),
    (16, "scratch_array_one_pass", r"memset\(t, -1, "),
    (16, "kernel_list_macros", r"memset\(pte, 0xff, "),
    (16, "c11_showcase", r"static const int empty_table\[L2_PT_SIZE\]"),
    (16, "terse_no_final_newline", r"#define SZ sizeof\(int\[16\]\)"),
    (18, "yoda_crlf", r"\A[^\n]+\r\n"),
    (18, "chinese_comments_roomy_tables", r"[\u4e00-\u9fff]"),
    (18, "terse_no_final_newline", r"[^\n]\Z"),
    (18, "kernel_list_macros", r"__typeof__"),
    (18, "c11_showcase", r"_Generic\("),
    (18, "statistics_counters_macros", r"static unsigned long stat_created"),
    (19, "printf_debugging_many_headers", r"fprintf\(stderr, __VA_ARGS__\)"),
)
"""(item of the list, accepted sample, what in its source shows it)."""

TESTS_SHOW: dict[int, tuple[str, ...]] = {
    1: ("test_no_case_asks_what_the_handout_leaves_open",),
    2: ("test_no_case_asks_what_the_handout_leaves_open", "negative ids refused"),
    3: ("test_the_same_id_in_two_engines_is_asked_for",),
    4: ("test_no_case_asks_what_the_handout_leaves_open",),
    5: ("test_no_point_depends_on_a_failing_malloc",),
    6: ("test_only_three_pokes_exist", "free blocks <= 0", "counter recomputed"),
    7: ("test_every_case_keeps_the_engines_invariants",),
    8: ("test_only_three_pokes_exist",),
    9: ("test_kv_count_is_poked_within_its_range",),
    10: ("calloc for everything", "scratch arrays", "more memory than needed", "sequence and L1 table in one block"),
    11: ("printf in every call", "unbuffered output"),
    12: ("malloc and a loop of zeros", "malloc and memset"),
    13: ("garbage in the padding", "wipes what it frees", "frees in another order", "destroy gives blocks back first"),
    14: ("checks in another order",),
    15: ("tables move in every append",),
    16: ("!engine", "NULL == engine", "malloc and memset", "own macros for the sizes"),
    17: ("test_the_analyzer_decides_nothing",),
    18: ("CRLF", "no final newline, tabs, UTF-8", "counters and time"),
    19: ("printf in every call", "unbuffered output"),
}
"""Tests of this module and variants of conforming.py."""


@cache
def every_case() -> tuple[Case, ...]:
    """All cases of the lab."""
    chosen = lab()
    return tuple(case_files.load_folder(chosen.cases, chosen.grammar, seed=chosen.rubric.seed))


def numbers(case: Case, call: str, place: int) -> list[int]:
    """The arguments at one place of all calls of that name."""
    found = [operation.arguments[place] for operation in case.trace.operations if operation.name == call]
    return [number for number in found if isinstance(number, int)]


def test_each_item_has_something_that_keeps_it_true() -> None:
    """All nineteen, by names that exist."""
    shown = {item for item, _, _ in SAMPLES_SHOW} | set(TESTS_SHOW)
    named = {name for names in TESTS_SHOW.values() for name in names}

    assert shown == set(range(1, 20))
    assert {name for name in named if name not in globals() and name not in VARIANTS} == set()


@pytest.mark.parametrize(("item", "sample", "shows"), SAMPLES_SHOW)
def test_the_sample_is_what_the_table_says(item: int, sample: str, shows: str) -> None:
    """Whoever changes a sample must not lose what it stood for."""
    source = (SAMPLES / "accepted" / sample / "llm_memory.c").read_bytes().decode()

    assert re.search(shows, source), f"item {item}"


def test_there_are_a_dozen_accepted_samples_in_their_own_styles() -> None:
    """Each with a source of its own; all are items that must be accepted."""
    sources = {(path / "llm_memory.c").read_bytes() for path in ACCEPTED}

    assert len(sources) == len(ACCEPTED) >= 12


@pytest.mark.parametrize("names", programs(), ids=", ".join)
def test_conforming_variants_keep_every_point(names: tuple[str, ...]) -> None:
    """In all cases, with Valgrind; several in one program."""
    record = graded_text(programs()[names], *every_case(), valgrind=True)
    why = record.first_cause.summary if record.first_cause is not None else ""

    assert (record.score, record.verdict, why) == (100, Verdict.ACCEPTED, "")
    assert record.findings == ()


def test_every_variant_is_in_a_program() -> None:
    """Once."""
    assert sorted(name for names in programs() for name in names) == sorted(VARIANTS)


def test_no_case_asks_what_the_handout_leaves_open() -> None:
    """Lengths at which the formula overflows, negative ids, pools that are not aligned or too large for an int."""
    for case in every_case():
        ids = [
            *numbers(case, "create_sequence", 0), *numbers(case, "free_sequence", 0), *numbers(case, "append_kv", 0),
            *numbers(case, "fork_sequence", 0), *numbers(case, "fork_sequence", 1),
        ]  # fmt: skip

        assert max(numbers(case, "create_sequence", 1), default=0) <= _INT_MAX - (KV_PER_BLOCK - 1), case.name
        assert min(ids, default=0) >= 0, case.name
        assert case.trace.settings.get("pool_align", BLOCK_SIZE) % KV_SIZE == 0, case.name
        assert case.trace.settings.get("pool_align", BLOCK_SIZE) >= KV_SIZE, case.name
        assert max(numbers(case, "llm_init", -1), default=0) < 2**31, case.name


def test_the_same_id_in_two_engines_is_asked_for() -> None:
    """Unique means within one engine; more than one case has it, so that nobody loses points by chance."""
    both = 0
    for case in every_case():
        ids = [
            {operation.arguments[0] for operation in case.trace.operations if _creates(operation, target)}
            for target in (1, 2)
        ]
        both += bool(ids[0] & ids[1])

    assert both >= 2


def _creates(operation: Operation, target: int) -> bool:
    return (operation.name, operation.claim, operation.target) == ("create_sequence", "seq", target)


def test_no_point_depends_on_a_failing_malloc() -> None:
    """There is no operation that makes one fail, and no rule about it."""
    words = " ".join([*lab().grammar.operations, *lab().grammar.settings, *(rule.id for rule in lab().rubric.rules)])

    assert not re.search("fail_|inject|malloc|exhaust", words)


def test_only_three_pokes_exist() -> None:
    """No poke for free_local_blocks, slots, counts or ids alone; tables are moved, never put in.

    What builds a whole state is no poke of a case: a program is only given more points for what it does with it.
    """
    pokes = {name for name, signature in lab().grammar.operations.items() if signature.is_poke}
    driver = (_CASES.parents[1] / "grader" / "labs" / "paged_kv" / "driver.c").read_text(encoding="utf-8")

    driver, _, building = driver.partition("/* The following pokes build a state")

    assert pokes == {"move_l2", "unmap", "set_kv_count"}
    assert building
    assert "harness_malloc" not in driver
    assert len(re.findall(r"free_local_blocks\s*(?:=[^=]|\+\+|--|[+-]=)", driver)) == 1


def test_kv_count_is_poked_within_its_range() -> None:
    """From 0 to the longest sequence, over mapped blocks and over holes."""
    (_, count) = lab().grammar.operations["set_kv_count"].arguments
    poked = [number for case in every_case() for number in numbers(case, "set_kv_count", 1)]

    assert isinstance(count, Number)
    assert (count.least, count.most) == (0, _LONGEST)
    assert _LONGEST in poked or _LONGEST - 1 in poked
    assert len(poked) > 10


def test_every_case_keeps_the_engines_invariants() -> None:
    """After every operation of the reference run: counts, entries, lengths and ids are what a program may rely on."""
    for case in every_case():
        oracle = PagedKV(case.trace)
        for operation in case.trace.operations:
            oracle.apply(operation)
            assert_invariants(oracle, f"{case.name}: {operation}")


def assert_invariants(oracle: PagedKV, where: str) -> None:
    """What pokes must not break."""
    for engine in oracle.engines.values():
        used = [block for sequence in engine.active_seqs for block in sequence.mapped_blocks()]

        assert engine.free_local_blocks == engine.ref_count.count(0), where
        assert all(engine.ref_count[block] >= 1 for block in used), where
        assert [used.count(block) for block in set(used)] == [engine.ref_count[block] for block in set(used)], where
        assert all(0 <= sequence.kv_count <= _LONGEST for sequence in engine.active_seqs), where


def test_the_analyzer_decides_nothing() -> None:
    """The flags are the handout's, no more and no less."""
    assert FLAGS == ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-ggdb")


def test_every_case_asks_for_work_that_must_succeed() -> None:
    """So that a program that refuses everything earns nothing."""
    for case in every_case():
        accepted = [operation for operation in case.trace.operations if operation.claim not in (None, "NULL", "-1")]

        assert accepted, case.name


def test_every_hidden_case_has_a_public_sibling() -> None:
    """Of the same rule: a student can see what is asked of him."""
    public = {case.rule for case in every_case() if case.visibility is Visibility.PUBLIC}
    hidden = {case.rule for case in every_case() if case.visibility is Visibility.HIDDEN}

    assert hidden <= public
    assert {rule.id for rule in lab().rubric.rules if rule.facets} <= public
