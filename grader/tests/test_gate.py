"""The gate: what the student's own code may not ask of the kernel, and what his cases may not tell each other."""

from __future__ import annotations

import platform

import pytest

from grader.tests.programs import POSIX, around, attempted, findings, first_case, graded_text, made, second_case
from grader.verdict import Verdict

RAW = (
    POSIX
    + """#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
enum { GETPID = 39 };
SECTION static long raw(long number, long a, long b)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return answer;
}
#else
enum { GETPID = 172 };
SECTION static long raw(long number, long a, long b)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
    return x0;
}
#endif
"""
)


@pytest.mark.parametrize(
    "section",
    ["", "hot", "cold", 'section("own")', 'section(".text.startup")', 'section(".text.z")', 'section(".fini.own")'],
)
def test_a_system_call_of_ones_own_is_refused(section: str) -> None:
    """Wherever the function that makes it lies; inlined or not. Functions of libc work."""
    top = RAW.replace("SECTION", f"__attribute__((noinline, {section}))" if section else "")
    source = around("append_kv", "    if (raw(GETPID, 0, 0) != -EPERM || getpid() <= 0) return -7;", top=top)
    record = graded_text(source, first_case(), second_case())

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction is x86's")
def test_the_old_way_into_the_kernel_is_refused_too() -> None:
    """`int $0x80` has other numbers: where the kernel knows it the program is ended."""
    top = RAW.replace("SECTION", "__attribute__((unused))")
    statement = 'long n = 20; __asm__ volatile("int $0x80" : "+a"(n) :: "memory");'
    record = graded_text(around("append_kv", f"    {statement}", top=top), first_case())

    assert record.verdict is Verdict.RUN_TIME_ERROR


@pytest.mark.usefixtures("whole_libc")
@pytest.mark.parametrize(
    "asked",
    [
        "mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED",
        "mprotect((void *)((uintptr_t)kept & ~4095ul), 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0",
    ],
)
def test_nobody_gets_pages_to_run(asked: str) -> None:
    """Code that is made at run time would lie elsewhere; other pages are given."""
    top = RAW.replace("SECTION", "__attribute__((unused))") + "static char kept[8192];\n"
    plain = asked.replace(" | PROT_EXEC", "").replace("!= MAP", "== MAP").replace("== 0", "!= 0")
    text = f"    kept[0] = 1; if ({asked} || {plain}) return -7;"
    record = graded_text(around("append_kv", text, top=top), first_case())

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


def test_a_case_does_not_find_the_others_in_its_memory() -> None:
    """Only its own operations are there: every page that a word on the stack leads to is looked through."""
    cases = [made(f"number{n}", f"create_sequence {7700 + n} 5 -> seq; append_kv {7700 + n} 1 -> 0") for n in range(9)]
    top = (
        RAW.replace("SECTION", "__attribute__((unused))")
        + """
static int seen(const int *page)
{
    int count = 0;
    for (int i = 0; i < 1024; i++)
        for (int n = 7700; n < 7709; n++)
            count += page[i] == n;
    return count;
}
static unsigned char there;
"""
    )
    body = """
    int others = 0, own = 0;
    for (uintptr_t *at = (uintptr_t *)__builtin_frame_address(0), *end = at + 200; at < end; at++) {
        int *page = (int *)(*at & ~4095ul);
        if (page != NULL && mincore(page, 4096, &there) == 0) {
            int count = seen(page);
            own += count == 2;
            others += count > 4;
        }
    }
    if (others || own == 0) return -7;
"""
    attempt = attempted(around("append_kv", body, top=top + "int mincore(void *, size_t, unsigned char *);\n"), *cases)

    assert findings(attempt) == []
