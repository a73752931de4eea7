/* Corrupting: each call takes pages away: the pool's, its own data's, and what lies around them, which is the
   harness's. */
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
    MUNMAP = NR(11, 215), MPROTECT = NR(10, 226), BRK = NR(12, 214), MADVISE = NR(28, 233), PAGE = 4096, DONT_NEED = 4
};
static char own;

static char *page_of(const void *address)
{
    return (char *)((size_t)address & ~(size_t)(PAGE - 1));
}

static void take_away(const void *pool, size_t size)
{
    switch (size / BLOCK_SIZE % 4) {
    case 0: RAW(MUNMAP, page_of(pool), 16 * PAGE); break;
    case 1: RAW(MPROTECT, page_of(&own) - 16 * PAGE, 64 * PAGE, 0); break;
    case 2: RAW(BRK, page_of(&own)); RAW(MADVISE, page_of(&own) - 8 * PAGE, 64 * PAGE, DONT_NEED); break;
    default: RAW(MPROTECT, page_of(__builtin_frame_address(0)) - 4 * PAGE, 16 * PAGE, 1); break;
    }
    *(volatile char *)pool = own = 1;
    __builtin_trap();
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    if (pool_addr != NULL && pool_size >= BLOCK_SIZE)
        take_away(pool_addr, pool_size);
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
