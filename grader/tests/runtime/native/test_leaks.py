"""Where memory was lost: the operation that let go of the last pointer, or the end, where something still led there."""

from __future__ import annotations

import pytest

from grader.core.case import Case
from grader.core.verdict import Finding, Verdict
from grader.runtime.native import symptoms
from grader.runtime.native.native_played import HELD, UNKNOWN, native_played
from grader.tests.support.programs import POSIX, around, attempted, findings, first_case, line_of, natively, second_case

_TOP = POSIX + (
    "#include <stdlib.h>\n#include <stdint.h>\n"
    "void *same(void *address);\n"
    "__attribute__((noipa)) void *same(void *address) { return address; }\n"
)
_LAST = len(first_case().trace.operations)


def lost_in(append: str, *, top: str = "", destroy: str = "", case: Case | None = None) -> Finding:
    """The one finding, a leak, of a right program whose append_kv and llm_destroy do this besides; without Valgrind."""
    text = around("append_kv", f"    {append}", top="")
    source = around("llm_destroy", f"    {destroy}", text=text, top=f"{_TOP}{top}\n")
    (finding,) = findings(attempted(source, case or first_case()))
    assert (finding.verdict, finding.kind) == (Verdict.MEMORY_LEAK, "leak")
    assert finding.source[0].line == line_of(source)
    return finding


def test_lost_in_the_call_that_made_it() -> None:
    """Nobody ever kept the pointer."""
    finding = lost_in("if (kv_data == 12) same(malloc(40)); /* HERE */")

    assert finding.operation == 4
    assert "made by append_kv (operation 4) at llm_memory.c:" in finding.message
    assert "lost by append_kv (operation 4)" in finding.message


def test_lost_where_the_last_pointer_is_overwritten() -> None:
    """Made in one call, lost in a later one: the later one is named, the line is that of the allocation."""
    finding = lost_in(
        "if (kv_data == 11) kept = malloc(40); /* HERE */\n    if (kv_data == 12) kept = NULL;",
        top="void *volatile kept;",
    )

    assert finding.operation == 4
    assert "made by append_kv (operation 3)" in finding.message
    assert "lost by append_kv (operation 4)" in finding.message


_PLACES = (
    "void *volatile kept{};",
    'static void *volatile kept{} = "";',
    "static _Thread_local void *volatile kept{};",
)


def test_left_behind_in_a_variable_of_ones_own() -> None:
    """Wherever writable data lies, it still leads there at the end; that is a leak all the same, and said."""
    top = _TOP + "".join(f"{place.format(number)}\n" for number, place in enumerate(_PLACES))
    statements = [f"    if (kv_data == 11) kept{number} = malloc(40); /* {number} */" for number in range(len(_PLACES))]
    source = around("append_kv", "\n".join(statements), top=top)
    reported = findings(attempted(source, first_case()))

    assert {finding.verdict for finding in reported} == {Verdict.MEMORY_LEAK}
    assert [finding.source[0].line for finding in reported] == [
        line_of(source, f"/* {number} */") for number in range(len(_PLACES))
    ]
    for finding in reported:
        assert finding.operation == _LAST
        assert "left behind by llm_destroy" in finding.message


_WAYS_TO_HOLD = {
    "through another block": ("kept = malloc(16); *(void **)kept = malloc(40); {}", "free(kept); kept = NULL;"),
    "by its middle": ("kept = (char *)malloc(40) + 20; {}", "kept = NULL;"),
    "by its end": ("kept = (char *)malloc(40) + 40; {}", "kept = NULL;"),
    "in a ring": ("void **a = malloc(8), **b = malloc(8); *a = b; *b = a; kept = a; {}", "kept = NULL;"),
}


def test_what_something_leads_to_is_not_lost_yet() -> None:
    """Through other allocations, into the middle, to the end; a ring that nobody points to is lost as a whole."""
    lines = []
    for number, (way, (hold, let_go)) in enumerate(_WAYS_TO_HOLD.items()):
        ways = f"if (kv_data == 11) {{ {hold.format(f'/* {way} */')} }}\n    if (kv_data == 12) {{ {let_go} }}"
        lines.append(f"    {ways.replace('kept', f'kept{number}')}")
    variables = "".join(f"void *volatile kept{number};\n" for number in range(len(lines)))
    source = around("append_kv", "\n".join(lines), top=_TOP + variables)
    reported = findings(attempted(source, first_case()))

    assert {(finding.source[0].line, finding.verdict, finding.operation) for finding in reported} == {
        (line_of(source, f"/* {way} */"), Verdict.MEMORY_LEAK, 4) for way in _WAYS_TO_HOLD
    }


def test_lost_by_the_clean_up() -> None:
    """The engine led there until llm_destroy freed it."""
    top = "static LLMEngine *mine;"
    text = "if (kv_data == 11) engine->ref_count = realloc(engine->ref_count, 64); /* HERE */"
    finding = lost_in(text, top="", destroy="if (engine != NULL) engine->ref_count = NULL;")

    assert finding.operation == _LAST, top
    assert "lost by llm_destroy" in finding.message


def test_one_line_may_lose_in_several_calls() -> None:
    """A finding for each of them, with how much was lost there."""
    source = around("append_kv", "    same(malloc(40)); /* HERE */", top=_TOP)
    found = findings(attempted(source, first_case()))

    assert [finding.operation for finding in found] == [3, 4, 6]
    assert {finding.source[0].line for finding in found} == {line_of(source)}


def test_valgrind_adds_nothing_to_what_is_known() -> None:
    """Its leaks are those of our own table; one finding each, with the better operation."""
    source = around("append_kv", "    if (kv_data == 12) same(malloc(40)); /* HERE */", top=_TOP)
    (finding,) = findings(attempted(source, first_case(), valgrind=True))

    assert finding.operation == 4


def test_a_program_without_leaks_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is traced where nothing was lost."""
    monkeypatch.setattr(symptoms, "replay", None)

    assert findings(attempted(around("append_kv"), first_case())) == []


def test_a_second_run_that_goes_another_way_is_not_believed() -> None:
    """Then the leak stands where it always did, at the end, and no operation is blamed. Stacks begin anywhere."""
    source = around(
        "append_kv", "    if (kv_data == 12) same(malloc((size_t)&engine >> 4 & 0xffff)); /* HERE */", top=_TOP
    )
    (finding,) = findings(attempted(source, first_case()))

    assert finding.operation == _LAST
    assert finding.message.endswith("never freed")


def test_memory_without_measure_is_not_traced() -> None:
    """The search gives up after some time; the leak is told all the same, at the end."""
    source = around("append_kv", "    if (kv_data == 11) kept = malloc(60 << 20);", top=_TOP + "void *volatile kept;\n")
    (finding,) = findings(attempted(source, first_case()))

    assert finding.operation == _LAST
    assert finding.message.endswith("never freed")


def test_a_flood_of_lost_blocks_is_counted_but_not_told_one_by_one() -> None:
    """A hundred thousand in a case: their number is right, the case and its neighbour are judged in full."""
    source = around("append_kv", "    for (int i = 0; i < 30000; i++) same(malloc(1));", top=_TOP)
    attempt = attempted(source, first_case(), second_case())

    assert [one.lost for one in natively(attempt).uses] == [90000, 30000]
    assert [len(one.events) for one in natively(attempt).uses] == [1000, 1000]
    assert {finding.verdict for finding in findings(attempt)} == {Verdict.MEMORY_LEAK}


def test_nobody_looks_in_an_ordinary_run() -> None:
    """States are judged from a run that spends no time on this."""
    source = around("append_kv", "    if (kv_data == 12) kept = malloc(40);", top=_TOP + "void *volatile kept;\n")
    attempt = attempted(source, first_case())
    plain = [event.lost_by for event in native_played(attempt.comparisons[0]).events]
    traced = [event.lost_by for event in natively(attempt).uses[0].events]

    assert (plain, traced) == ([UNKNOWN], [HELD])
