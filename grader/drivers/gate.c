/* System calls of the student's own. What a decent program wants of the system it asks of libc, in whose place there
 * are failing functions where it needs nothing (needless.py); only an attack brings the instruction itself. So the
 * kernel is told where the student's code lies, and refuses every call from there with EPERM; and from anywhere it
 * refuses pages that could be run, which would be code of his elsewhere. A jump into the middle of libc's or our own
 * functions is not seen here: what that may do is left to rights.c and the launcher. That the kernel can do it was found
 * out before the plan asked for it.
 *
 * Not under Valgrind: there all calls come from Valgrind's code. */
#define _GNU_SOURCE
#include "inside.h"

#ifndef UNDER_VALGRIND

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* objcopy gave all sections of his code this name. */
__attribute__((section("student_text"), used)) static void no_text(void)
{
}
extern const char __start_student_text[], __stop_student_text[];

enum { INSTRUCTION = offsetof(struct seccomp_data, instruction_pointer), HIGH = sizeof(uint32_t) };
enum { PROTECTION = offsetof(struct seccomp_data, args) + 2 * sizeof(uint64_t) }; /* of mmap and mprotect */

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)
#define IF_ABOVE(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, value, yes, no)
#define IF(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)

void shut_gate(void)
{
    uint64_t start = (uintptr_t)__start_student_text, stop = (uintptr_t)__stop_student_text;
    struct sock_filter rules[] = {
        LOAD(INSTRUCTION + HIGH),
        IF((uint32_t)(start >> 32), 0, 3),
        LOAD(INSTRUCTION), /* the address behind the instruction that makes the call */
        IF_ABOVE((uint32_t)stop, 1, 0),
        IF_ABOVE((uint32_t)start, 7, 0),
        LOAD(offsetof(struct seccomp_data, nr)),
        IF(__NR_mmap, 2, 0),
        IF(__NR_mprotect, 1, 0),
        IF(__NR_pkey_mprotect, 0, 2),
        LOAD(PROTECTION),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    no_text();
}

#else

void shut_gate(void)
{
}

#endif
