/* Exhaustion: each call sleeps for ever, each in another way. */
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
    NANOSLEEP = NR(35, 101), PSELECT = NR(270, 72), PPOLL = NR(271, 73), FUTEX = NR(202, 98), PIPE = NR(293, 59),
    READ = NR(0, 63), SUSPEND = NR(130, 133), KILL = NR(62, 129), GETPID = NR(39, 172), STOP = 19
};

static _Noreturn void sleep_in(int way)
{
    static const long hours[2] = {36000, 0};
    static const unsigned long all = ~0UL;
    static int word, ends[2];
    RAW(PIPE, ends, 0);
    for (;;) {
        switch (way) {
        case 0: RAW(NANOSLEEP, hours, NULL); break;
        case 1: RAW(PSELECT, 0, NULL, NULL, NULL, NULL, NULL); break;
        case 2: RAW(PPOLL, NULL, 0, NULL, NULL, 8); break;
        case 3: RAW(FUTEX, &word, 0, 0, NULL); break;
        case 4: RAW(KILL, RAW(GETPID), STOP); RAW(READ, ends[0], &word, 1); break;
        default: RAW(SUSPEND, &all, 8); break;
        }
    }
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    sleep_in((int)(pool_size / BLOCK_SIZE % 6));
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    sleep_in(1);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    (void)engine, (void)seq_id;
    sleep_in(2);
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    (void)engine, (void)parent_seq_id, (void)new_seq_id;
    sleep_in(3);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    (void)engine, (void)seq_id, (void)kv_data;
    sleep_in(4);
}

int llm_destroy(LLMEngine *engine)
{
    (void)engine;
    sleep_in(5);
}
