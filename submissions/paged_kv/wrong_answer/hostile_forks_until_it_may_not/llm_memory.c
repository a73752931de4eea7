/* Exhaustion: no call does anything; each starts processes that hide: in sessions of their own, orphaned, as
   siblings, nameless. */
#include "llm_memory.h"

#include <stddef.h>

#if defined(__x86_64__)
#define NR(x86, arm) (x86)
#else
#define NR(x86, arm) (arm)
#endif

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long answer;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
    (void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    return -1;
#endif
}

/* A system call with the arguments that it needs; the others are zeros. */
#define RAW(...) RAW_(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define RAW_(number, a, b, c, d, e, f, ...) \
    raw((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

enum {
    CLONE = NR(56, 220), CHILD = 17, SIBLING = 0x8000 | CHILD, SETSID = NR(112, 157), SETPGID = NR(109, 154),
    EXIT = NR(231, 94),
    NANOSLEEP = NR(35, 101), PRCTL = NR(157, 167), CLOSE = NR(3, 57), MASK = NR(14, 135), MOST = 8
};

/* Nothing tells whose child it is: not its session, its group, its parent, its descriptors or its environment. */
static _Noreturn void hide(int way)
{
    static const long one_second[2] = {1, 0};
    static const unsigned long all = ~0UL;
    RAW(SETPGID, 0, 0);
    if (way % 2)
        RAW(SETSID);
    if (way % 3 == 0 && RAW(CLONE, CHILD, 0, 0, 0, 0) != 0)
        RAW(EXIT, 0);
    RAW(MASK, 0, &all, NULL, 8);
    RAW(PRCTL, 4, 0); /* not dumpable: /proc shows nothing of it to others */
    RAW(PRCTL, 15, "kworker/0:0");
    RAW(PRCTL, 35, 10, 0, 0, 0);
    for (int descriptor = 0; descriptor < 64; descriptor++)
        RAW(CLOSE, descriptor);
    RAW(NANOSLEEP, one_second, NULL);
    for (;;)
        RAW(EXIT, 0);
}

static void start_many(void)
{
    static int tried;
    for (int i = 0; !tried && i < MOST; i++)
        if (RAW(CLONE, i % 4 == 3 ? SIBLING : CHILD, 0, 0, 0, 0) == 0)
            hide(i);
    tried = 1;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    start_many();
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
