/* Reading: what whoever started us left open. */
#include "llm_memory.h"

#include <stdio.h>

static long raw(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
    long answer;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return answer;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#else
    (void)number, (void)a, (void)b, (void)c, (void)d;
    return -1;
#endif
}

#if defined(__aarch64__)
enum { PREAD = 67, READLINKAT = 78 };
#else
enum { PREAD = 17, READLINKAT = 267 };
#endif

static void look(void)
{
    enum { AT_CWD = -100 };
    static int looked;
    static char text[500];
    for (int fd = 0; looked == 0 && fd < 64; fd++) {
        char path[40];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        long length = raw(READLINKAT, AT_CWD, (long)path, (long)text, sizeof text - 1);
        if (length > 0 && text[0] == '/' && (length < 5 || text[1] != 'd'))
            printf("HOSTILE-GOT descriptor %d of %.*s\n", fd, (int)length, text);
        length = raw(PREAD, fd, (long)text, sizeof text - 1, 0);
        if (length > 0)
            printf("HOSTILE-GOT from descriptor %d: %.*s\n", fd, (int)length, text);
    }
    looked = 1;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    look();
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
