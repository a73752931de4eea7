/* Exhaustion: the pipe of stdout is kept full, since waiting for a reader costs no time, and the grader reads 64
 * KB and then sleeps. (With a megabyte in each call it gave up after two minutes and took the machine for too
 * busy.) */
#include "llm_memory.h"

#include <stdio.h>

static char much[80000];

static void flood(void)
{
    fwrite(much, 1, sizeof much, stdout);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr;
    (void)pool_size;
    flood();
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine;
    (void)seq_id;
    (void)initial_kv_len;
    flood();
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    (void)engine;
    (void)seq_id;
    flood();
    return -1;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    (void)engine;
    (void)parent_seq_id;
    (void)new_seq_id;
    flood();
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    (void)engine;
    (void)seq_id;
    (void)kv_data;
    flood();
    return -1;
}

int llm_destroy(LLMEngine *engine)
{
    (void)engine;
    flood();
    return -1;
}
