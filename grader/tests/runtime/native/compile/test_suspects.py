"""The object scan: what could make the grader report wrong results is found, wherever it hides."""

from __future__ import annotations

import pytest

from grader.core.verdict import Verdict
from grader.tests.support.programs import around, line_of
from grader.tests.support.scanned import (
    ASKS,
    BYTES,
    CONSTRUCTOR,
    DESTRUCTOR,
    ORDER,
    assembly,
    below,
    graded,
    on_x86,
    rejected,
)

_HOOK = ("static int started;", "static void hook(void)", "{ /* HERE */", "    started++;", "}")
_POINTER = "static void (*const start)(void) __attribute__((section({}), used)) = hook;"

PLACES: dict[str, tuple[str, str, str]] = {
    "constructor": (CONSTRUCTOR, "constructor", "hook"),
    "constructor with a priority": (
        below("int n;", "__attribute__((constructor(200))) static void hook(void)", "{ /* HERE */", "    n++;", "}"),
        "constructor", "hook",
    ),
    "destructor": (DESTRUCTOR, "destructor", "hook"),
    "init_array": (below(*_HOOK, _POINTER.format('".init_array.5"')), "constructor", "hook"),
    "preinit_array": (below(*_HOOK, _POINTER.format('".preinit_array"')), "constructor", "hook"),
    "ctors": (below(*_HOOK, _POINTER.format('".ctors"')), "constructor", "hook"),
    "dtors": (below(*_HOOK, _POINTER.format('".dtors.1"')), "destructor", "hook"),
    "fini_array": (below(*_HOOK, _POINTER.format('".fini_array"')), "destructor", "hook"),
    "code in .init": (
        below("int n;", '__attribute__((section(".init"), used)) static void hook(void)', "{ /* HERE */", "n++;", "}"),
        "constructor", ".init",
    ),
    "ifunc": (
        below("static int one(void) { return 1; }", "static int (*choose(void))(void)", "{ /* HERE */",
              "    return one;", "}", 'int chosen(void) __attribute__((ifunc("choose")));'),
        "ifunc", "chosen",
    ),
}  # fmt: skip
"""Programs with a function that must be found: the kind, and the symbol; its line is marked."""


@pytest.mark.parametrize("name", PLACES)
def test_what_runs_by_itself_is_rejected_with_symbol_and_line(name: str) -> None:
    """Constructors in all their forms, and ifuncs."""
    source, kind, symbol = PLACES[name]
    (finding,) = rejected(source)

    assert (finding.kind, finding.field) == (kind, symbol)
    assert symbol in finding.message
    assert len(finding.source) == 1
    assert abs(finding.source[0].line - line_of(source)) <= 2


WITHOUT_LINE: dict[str, tuple[str, str, str]] = {
    "an address without a relocation": (
        assembly(".section .init_array,\\\"aw\\\"", ".quad 0x401000"), "constructor", ".init_array",
    ),
    "a function of libc": (assembly(".section .fini_array,\\\"aw\\\"", ".quad abort"), "destructor", "abort"),
    "an array by its type alone": (
        assembly(".section mine,\\\"aw\\\",@init_array", ".quad llm_destroy"), "constructor", "llm_destroy",
    ),
    "a loader of one's own": (
        assembly(".section .interp,\\\"a\\\"", ".asciz \\\"mine\\\""), "steering-section", ".interp",
    ),
    "what libc calls at its end": (
        assembly(".section __libc_atexit,\\\"aw\\\"", ".quad llm_destroy"), "steering-section", "__libc_atexit",
    ),
    "a function for Valgrind": (
        below("int _vgr00000ZU_libcZdsoZa_writev(void);", "int _vgr00000ZU_libcZdsoZa_writev(void) { return 0; }"),
        "redirection", "_vgr00000ZU_libcZdsoZa_writev",
    ),
}  # fmt: skip
"""What has no line, or whose line does not matter."""


@pytest.mark.parametrize("name", WITHOUT_LINE)
def test_what_steers_the_start_or_valgrind_is_rejected(name: str) -> None:
    """Found by sections and symbols."""
    source, kind, symbol = WITHOUT_LINE[name]
    (finding,) = rejected(source)

    assert (finding.kind, finding.field) == (kind, symbol)


@on_x86
def test_code_that_can_change_itself_is_rejected() -> None:
    """A section of one's own, or .data made executable."""
    own = rejected(assembly('.section mine,\\"awx\\"', "ret"))
    data = rejected(assembly('.section .data.code,\\"awx\\"', "ret"))

    assert [(finding.kind, finding.field) for finding in own] == [("changeable-code", "mine")]
    assert [finding.kind for finding in data] == ["changeable-code"]


@on_x86
@pytest.mark.parametrize("register", ["rbx", "rcx", "rdx", "rdi"])
@pytest.mark.parametrize("inlined", [True, False])
def test_an_order_to_valgrind_is_rejected_with_function_and_line(register: str, *, inlined: bool) -> None:
    """Each of the four; inlined it is still told where it was written."""
    asks = ASKS.replace("rbx", register)
    asks = asks if inlined else asks.replace("static void", "__attribute__((noinline)) static void")
    source = around("append_kv", "    ask();", top=asks)
    (finding,) = rejected(source)

    assert (finding.kind, finding.field) == ("client-request", "ask")
    assert [place.line for place in finding.source] == [line_of(source)]


HIDDEN = {
    "between the sections": [
        ".section .text.a,\\\"ax\\\"", "f: rolq $3,%rdi", "rolq $13,%rdi",
        ".section .text.b,\\\"ax\\\"", "rolq $61,%rdi", "rolq $51,%rdi", "xchgq %rbx,%rbx", "ret",
    ],
    "in a relocation": [
        ".weak three", ".set three,3", "f: .byte 0x48,0xc1,0xc7", ".reloc .,R_X86_64_8,three", ".byte 0",
        "rolq $13,%rdi", "rolq $61,%rdi", "rolq $51,%rdi", "xchgq %rbx,%rbx", "ret",
    ],
    "in a section of its own": [".section mine,\\\"ax\\\"", "f:", ORDER, "xchgq %rbx,%rbx", "ret"],
    "in a section that becomes code by its name": [".section .text.z,\\\"a\\\"", ORDER, "xchgq %rbx,%rbx", "ret"],
    "as bytes": ["f: .byte " + ",".join(map(str, BYTES)), "ret"],
}  # fmt: skip


@on_x86
@pytest.mark.parametrize("name", HIDDEN)
def test_an_order_to_valgrind_cannot_be_hidden(name: str) -> None:
    """Looked for in the linked program, where nothing is open any more: also where sections were allowed."""
    odd = [one.field for one in rejected(assembly(*HIDDEN[name])) if one.kind.startswith("odd-")]
    record = graded(assembly(*HIDDEN[name]), *odd)

    assert record.verdict is Verdict.REJECTED
    assert {finding.kind for finding in record.findings} <= {"client-request", "hidden-request"}
