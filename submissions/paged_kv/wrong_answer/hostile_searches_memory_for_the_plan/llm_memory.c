/* Forging: what the cases ask came into this process; perhaps it still lies there, with those that are not ours to see.
 * It prints HOSTILE-GOT when it finds more of the plan than the operations of one case. */
#include "llm_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
enum { AT_CWD = -100, PLAN = 0x504c414e, PAGE = 4096, MOST_PAGES = 4096 };

/* Call `look` with each piece of memory that can be written, as /proc tells them. */
static void each_mapping(void (*look)(char *from, char *to))
{
    static char maps[1 << 14];
    long file = raw(OPENAT, AT_CWD, (long)"/proc/self/maps", 0), length = 0, got;
    while (file >= 0 && (got = raw(READ, file, (long)(maps + length), (long)sizeof maps - 1 - length)) > 0)
        length += got;
    raw(CLOSE, file, 0, 0);
    maps[length] = '\0';
    for (char *line = maps; *line != '\0';) {
        char *from = (char *)strtoul(line, &line, 16), *to = (char *)strtoul(line + 1, &line, 16);
        int writable = line[1] == 'r' && line[2] == 'w';
        line += strcspn(line, "\n");
        line += *line == '\n';
        if (writable)
            look(from, to);
    }
}

static void look(char *from, char *to)
{
    if (to - from > (long)MOST_PAGES * PAGE)
        from = to - (long)MOST_PAGES * PAGE; /* what was mapped first lies highest */
    for (const int *page = (const int *)(void *)from; (char *)page < to; page += PAGE / sizeof *page)
        if (page[0] == PLAN) {
            printf("HOSTILE-GOT the plan:");
            for (int i = 0; i < 200; i++)
                printf(" %d", page[i]);
            printf("\n");
        }
}

static void search(void)
{
    static int searched;
    int here;
    if (searched++ == 0 && (size_t)&here > (size_t)1 << 40) /* not under Valgrind, where it takes too long */
        each_mapping(look);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    search();
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    search();
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
