"""What gcc makes of C is accepted; sections and symbols made by hand are rejected, before anything of them is run."""

from __future__ import annotations

import pytest

from grader.core.verdict import Verdict
from grader.tests.support.scanned import accepted, assembly, below, graded, rejected

_HOOK = ("static void hook(void) { }", "static void (*const start)(void) __attribute__((section({}), used)) = hook;")


def hook(section: str) -> str:
    """A pointer to a function in a section of that name."""
    return below(_HOOK[0], _HOOK[1].format(f'"{section}"'))


SECTIONS = {
    "a name that objcopy reads as two": (hook(".foo=.init_array.x"), ".foo=.init_array.x"),
    "relocations for the loader": (
        assembly(".section .rela.got,\\\"a\\\",@progbits", ".quad 0,37,0x401000"), ".rela.got",
    ),
    "relocations by their type": (assembly(".section .rela.got,\\\"a\\\",@4", ".quad 0,37,0x401000"), ".rela.got"),
    "another table of symbols": (assembly(".section .symtab,\\\"\\\",@2", ".quad 1,2,3,4,5,6"), ".symtab"),
    "what is called like one": (assembly(".section .symtab,\\\"\\\",@progbits", ".quad 1,2,3"), ".symtab"),
    "another table of names": (assembly(".section .strtab,\\\"\\\",@3", ".quad 1,2,3"), ".strtab"),
    "symbols for the loader": (assembly(".section .dynsym,\\\"a\\\",@11", ".quad 1,2,3"), ".dynsym"),
    "flags that nobody knows": (assembly(".section .data.x,\\\"0xfffff003\\\"", ".quad 1"), ".data.x"),
    "data that is called code": (assembly(".section .text.x,\\\"aw\\\"", ".quad 1"), ".text.x"),
    "code that is linked to other": (assembly(".section .text.x,\\\"axo\\\",@progbits,.text", "nop"), ".text.x"),
    "a group of code": (assembly(".section .text.x,\\\"axG\\\",@progbits,writev,comdat", "nop"), ".text.x"),
    "an old kind of compression": (
        assembly(".section .zdebug_line,\\\"\\\"", ".ascii \\\"ZLIB\\\"", ".quad -1"), ".zdebug_line",
    ),
    "a blank in a name": (assembly(".section \\\".data.a b\\\",\\\"aw\\\"", ".quad 1"), ".data.a b"),
    "no name": (assembly(".section \\\"\\\",\\\"aw\\\"", ".quad 1"), "without a name"),
    "a name as long as a line": (
        assembly(f".section .data.{'x' * 150_000},\\\"aw\\\"", ".quad 1"), f".data.{'x' * 194}",
    ),
    "a variable's own": (below('__attribute__((section("mydata"))) int mine = 4;'), "mydata"),
    "an empty one": (assembly(".section mydata,\\\"aw\\\""), "mydata"),
}  # fmt: skip
"""Programs with a section that gcc does not make of C, and its name."""


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_made_by_hand_is_rejected(name: str) -> None:
    """By name, type, flags or links; nothing of the object is handed to linkers."""
    source, section = SECTIONS[name]
    (finding,) = rejected(source)

    assert (finding.kind, finding.field) == ("odd-section", section)


def test_a_section_that_somebody_allowed_is_linked_as_it_is() -> None:
    """Its name is handed to no tool where it is none that a tool takes for a name."""
    assert graded(SECTIONS["a variable's own"][0], "mydata").verdict is Verdict.ACCEPTED
    assert graded(SECTIONS["a blank in a name"][0], ".data.a b").verdict is Verdict.ACCEPTED


ORDINARY = {
    "threads' data": "_Thread_local int depth = 3; static _Thread_local char room[200];\n"
    "char *in(void); char *in(void) { return room + depth; }",
    "tables": 'static const char *const names[] = {"a", "bb"}; const double steps[] = {1.5, 2.5};\n'
    "const char *name(int i); const char *name(int i) { return names[i]; }",
    "inline": "static inline int twice(int x) { return 2 * x; } int four(void); int four(void) { return twice(2); }",
    "switch": "int way(int x); int way(int x) { switch (x) { case 0: return 4; case 1: return 9; case 2: return 1;"
    " case 3: return 7; case 4: return 6; case 5: return 44; case 6: return 3; } return 0; }",
    "computed goto": "int jump(int i); int jump(int i) { __extension__ static void *const to[] = {&&a, &&b};\n"
    "__extension__ ({ goto *to[i]; }); a: return 1; b: return 2; }",
    "numbers": "long double wide = 3.0L; _Atomic int count; _Atomic long double both; double _Complex z;\n"
    "long double more(long double x); long double more(long double x) { count++; return x * wide; }",
    "room on the stack": "int fill(int n); int fill(int n) { char row[n], *p = __builtin_alloca((size_t)n);\n"
    "memset(row, 1, (size_t)n); memset(p, 2, (size_t)n); return row[n / 2] + p[n / 3]; }",
    "attributes": "__attribute__((hot)) int hot(int a); int hot(int a) { return a; }\n"
    "__attribute__((cold)) int cold(void); int cold(void) { abort(); }\n"
    "__attribute__((weak)) int weak(void); int weak(void) { return 1; }\n"
    '__attribute__((visibility("hidden"))) int hidden(void); int hidden(void) { return cold(); }\n'
    "__attribute__((common)) int common; __attribute__((used)) static int used = 4;\n"
    '__attribute__((alias("weak"))) int also(void); __attribute__((aligned(4096))) char page[4096];\n'
    '__attribute__((section(".data.mine"))) int mine = 3; _Alignas(64) int apart = 1;',
    "assembly": 'int idle(void); int idle(void) { __asm__ volatile("nop"); return 0; }\n__asm__(".text\\nnop");',
    "another name": 'extern int named __asm__("your.own$name"); int named = 3; int größe(void);\n'
    "int größe(void) { return 1; }",
    "the processor": 'int fast(void); int fast(void) { return __builtin_cpu_supports("avx2"); }',
    "libc": "int by(const void *, const void *);\n"
    "int by(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }\n"
    'int much(char *t); int much(char *t) { int x[] = {2, 1}; qsort(x, 2, sizeof *x, by); t = strtok(t, "a"); '
    'return printf("%s %zu %f %s %d", t, strspn(t, "b"), strtod(t, NULL), strstr(t, "cc"), x[0]) + (int)time(NULL); }',
}
"""Lines of C below a right program that needs them not."""
_HEADERS = "".join(f"#include <{name}.h>\n" for name in ("stdio", "stdlib", "string", "time"))


def test_what_gcc_makes_of_c_is_accepted() -> None:
    """Whatever C has, and what many extensions of gcc's become, in one file: a finding names its section or symbol."""
    accepted(_HEADERS + below(*ORDINARY.values()))
