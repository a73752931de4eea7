"""Where memory was lost: the operation that let go of the last pointer, or the end, where something still led there."""

from __future__ import annotations

from grader.core.case import Case
from grader.core.verdict import Finding, Verdict
from grader.tests.support.programs import POSIX, around, attempted, findings, first_case, line_of

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


def test_lost_where_the_last_pointer_is_overwritten() -> None:
    """Made in one call, lost in a later one: the later one is named, the line is that of the allocation."""
    finding = lost_in(
        "if (kv_data == 11) kept = malloc(40); /* HERE */\n    if (kv_data == 12) kept = NULL;",
        top="void *volatile kept;",
    )

    assert finding.operation == 4
    assert "made by append_kv (operation 3)" in finding.message
    assert "lost by append_kv (operation 4)" in finding.message


def test_lost_by_the_clean_up() -> None:
    """The engine led there until llm_destroy freed it."""
    top = "static LLMEngine *mine;"
    text = "if (kv_data == 11) engine->ref_count = realloc(engine->ref_count, 64); /* HERE */"
    finding = lost_in(text, top="", destroy="if (engine != NULL) engine->ref_count = NULL;")

    assert finding.operation == _LAST, top
    assert "lost by llm_destroy" in finding.message


def test_a_second_run_that_goes_another_way_is_not_believed() -> None:
    """Then the leak stands where it always did, at the end, and no operation is blamed. Stacks begin anywhere."""
    source = around(
        "append_kv", "    if (kv_data == 12) same(malloc((size_t)&engine >> 4 & 0xffff)); /* HERE */", top=_TOP
    )
    (finding,) = findings(attempted(source, first_case()))

    assert finding.operation == _LAST
    assert finding.message.endswith("never freed")
