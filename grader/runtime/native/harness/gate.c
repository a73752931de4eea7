/* Refuses the student's own system calls. An ordinary program reaches the system through libc, and functions of libc
 * that no submission needs were replaced by ones that fail (libc_names.py); only an attack contains the
 * instruction for a system call itself. So the filter below tells the kernel where the student's code is, and the
 * kernel refuses every call from there with EPERM. The filter also has the only place from which the harness unmaps
 * pages and writes to descriptors other than stdout and stderr, which nobody else needs. From anywhere else, libc's
 * functions included, these calls are refused. A jump to that very place is not detected here. All other calls are the
 * business of rights.c and the launcher. The plan asks for this only where a trial showed that the kernel can do it.
 *
 * It is not used under Valgrind, where all calls come from Valgrind's code. */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UNDER_VALGRIND

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

/* objcopy gave this name to all sections of the student's code. */
__attribute__((section("student_text"), used)) static void no_text(void)
{
}
extern const char __start_student_text[], __stop_student_text[];

extern const char behind_our_call[];
#if defined(__x86_64__)
__asm__(".pushsection .text.ask_kernel, \"ax\"\n.globl ask_kernel\n.type ask_kernel, @function\nask_kernel:\n"
        "mov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rsi\nmov %rcx, %rdx\nsyscall\n"
        ".globl behind_our_call\nbehind_our_call: ret\n.size ask_kernel, . - ask_kernel\n.popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text.ask_kernel, \"ax\"\n.globl ask_kernel\n.type ask_kernel, %function\nask_kernel:\n"
        "mov x8, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\nsvc #0\n"
        ".globl behind_our_call\nbehind_our_call: ret\n.size ask_kernel, . - ask_kernel\n.popsection\n");
#else
#error "no system call can be made here: write its few instructions"
#endif

enum { INSTRUCTION = offsetof(struct seccomp_data, instruction_pointer), HIGH = sizeof(uint32_t) };

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)
#define IF_ABOVE(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, value, yes, no)
#define IF(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)

void shut_gate(void)
{
    uint64_t start = (uintptr_t)__start_student_text, stop = (uintptr_t)__stop_student_text;
    uint64_t ours = (uintptr_t)behind_our_call;
    struct sock_filter rules[] = {
        LOAD(INSTRUCTION + HIGH),
        IF((uint32_t)(start >> 32), 0, 3),
        LOAD(INSTRUCTION), /* the address after the instruction that makes the call */
        IF_ABOVE((uint32_t)stop, 1, 0),
        IF_ABOVE((uint32_t)start, 11, 0), /* refused */
        LOAD(offsetof(struct seccomp_data, nr)),
        IF(__NR_munmap, 4, 0), /* ours only */
        IF(__NR_writev, 1, 0),
        IF(__NR_write, 0, 6), /* any other: allowed */
        LOAD(offsetof(struct seccomp_data, args)),
        IF_ABOVE(STDERR_FILENO, 0, 4), /* what the student prints: allowed */
        LOAD(INSTRUCTION),
        IF((uint32_t)ours, 0, 3),
        LOAD(INSTRUCTION + HIGH),
        IF((uint32_t)(ours >> 32), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    no_text();
}

#else

#include <sys/mman.h>
#include <sys/uio.h>

long ask_kernel(long number, uintptr_t a, uintptr_t b, uintptr_t c)
{
    long done = number == SYS_writev ? (long)writev((int)a, (const struct iovec *)b, (int)c) : munmap((void *)a, b);
    return done < 0 ? -errno : done;
}

void shut_gate(void)
{
}

#endif
