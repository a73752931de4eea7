"""The gate: what the student's own code may not ask of the kernel, and what his cases may not tell each other."""

from __future__ import annotations

import platform
from collections.abc import Callable

import pytest

from grader.core.verdict import Verdict
from grader.tests.support.programs import POSIX, around, attempted, findings, first_case, graded_text, made
from grader.tests.support.scanned import graded

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
    record = graded(source, "own", ".fini.own")  # a human has allowed these

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction is x86's")
def test_the_old_way_into_the_kernel_is_refused_too() -> None:
    """`int $0x80` has other numbers: where the kernel knows it the program is ended."""
    top = RAW.replace("SECTION", "__attribute__((unused))")
    statement = 'long n = 20; __asm__ volatile("int $0x80" : "+a"(n) :: "memory");'
    record = graded_text(around("append_kv", f"    {statement}", top=top), first_case())

    assert record.verdict is Verdict.RUN_TIME_ERROR


THROUGH_LIBC = (
    POSIX
    + """#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
enum { PLAIN = PROT_READ | PROT_WRITE, ALONE = MAP_PRIVATE | MAP_ANONYMOUS };
static long pair[2];
#if defined(__x86_64__)
static long through(long number, long a, long b, long c, long d)
{
    const unsigned char *at = (const unsigned char *)(uintptr_t)getppid;
    while (at[0] != 0x0f || at[1] != 0x05)
        at++;
    long answer;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
    __asm__ volatile("sub $128, %%rsp; call *%%rbx; add $128, %%rsp"
                     : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), "b"(at)
                     : "rcx", "r11", "memory");
    return answer;
}
#else
static long through(long number, long a, long b, long c, long d)
{
    const uint32_t *at = (const uint32_t *)(uintptr_t)getppid;
    while (*at != 0xd4000001)
        at++;
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = -1, x5 __asm__("x5") = 0;
    __asm__ volatile("blr %[at]" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), [at] "r"(at)
                     : "x30", "memory");
    return x0;
}
#endif
"""
)
"""A call by the instruction that libc has for its own."""

_REFUSED = [
    *('openat, -100, (long)"/etc/hostname", 0, 0', 'newfstatat, -100, (long)"/", (long)pair, 0', "dup, 1, 0, 0, 0"),
    *(
        "pipe2, (long)pair, 0, 0, 0",
        'memfd_create, (long)"a", 0, 0, 0',
        "close, 1, 0, 0, 0",
        "read, 9, (long)pair, 1, 0",
    ),
    *(
        "fcntl, 1, 1031, 65536, 0",
        "fcntl, 1, 4, 2048, 0",
        "ioctl, 1, 21531, (long)pair, 0",
        "write, 9, (long)pair, 8, 0",
    ),
    *("tee, 1, 1, 1, 0", "splice, 0, 0, 1, 0", "vmsplice, 1, (long)pair, 0, 0", "sendfile, 1, 0, 0, 1"),
    *(
        "mremap, 0, 4096, 8192, 1",
        "mprotect, 0, 0, 0, 0",
        "munmap, (long)pair & ~4095l, 4096, 0, 0",
        "mincore, 0, 0, 0, 0",
    ),
    *("mmap, 0, 4096, PLAIN | PROT_EXEC, ALONE", "mmap, (long)pair & ~4095l, 4096, PLAIN, ALONE | MAP_FIXED"),
    *('prctl, 15, (long)"a", 0, 0', "personality, -1, 0, 0, 0", "nanosleep, (long)pair, 0, 0, 0", "uname, 0, 0, 0, 0"),
    *("setitimer, 0, 0, 0, 0", "timer_create, 0, 0, (long)pair, 0", "shmget, 1, 4096, 950, 0", "shmat, 0, 0, 0, 0"),
]
"""As name and arguments. Each did what it is for, or failed for another reason, when only some calls were refused."""


@pytest.mark.usefixtures("whole_libc")
def test_what_neither_harness_nor_libc_needs_is_refused() -> None:
    """From wherever it is asked, and the case goes on: what libc asks in the same way is answered."""
    tried = [f"if (through(SYS_{asked}) != -EPERM) return {-100 - place};" for place, asked in enumerate(_REFUSED)]
    answered = ("through(SYS_getpid, 0, 0, 0, 0) == getpid()", "through(SYS_mmap, 0, 4096, PLAIN, ALONE) > 0")
    tried += [f"if (!({one})) return -7;" for one in answered]
    record = graded_text(around("append_kv", "    pair[0] = 0;\n" + "\n".join(tried), top=THROUGH_LIBC), first_case())

    assert (record.verdict, record.findings) == (Verdict.ACCEPTED, ())


@pytest.mark.usefixtures("whole_libc")
@pytest.mark.parametrize("missing", [(), ("seccomp", "landlock", "bubblewrap")], ids=["all", "limits"])
def test_there_is_no_further_descriptor(bare: Callable[..., None], missing: tuple[str, ...]) -> None:
    """Natively, also where no system call can be refused; those that are open work on."""
    bare(*missing)
    body = '    if (open("/etc/ld.so.cache", O_RDONLY) != -1 || dup(1) != -1 || write(1, "on", 2) != 2) return -7;'
    attempt = attempted(around("append_kv", body), first_case())

    assert findings(attempt) == []
    assert attempt.replayed.output.startswith(b"on")


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
"""
    )
    body = """
    int others = 0, own = 0;
    for (uintptr_t *at = (uintptr_t *)__builtin_frame_address(0), *end = at + 200; at < end; at++) {
        int *page = (int *)(*at & ~4095ul);
        if (page != NULL && write(1, page, 1) == 1) { /* one can read there */
            int count = seen(page);
            own += count == 2;
            others += count > 4;
        }
    }
    if (others || own == 0) return -7;
"""
    attempt = attempted(around("append_kv", body, top=top), *cases)

    assert findings(attempt) == []
