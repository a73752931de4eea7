/* Reading: __has_include answers whether there is a file, and gcc's own errors tell the answer. */
#include "llm_memory.h"

#if __has_include("../hostile_canary")
#error "seen: a file beside my folder"
#endif
#if __has_include("../../cases/paged_kv/rubric.toml") || __has_include("../../home/hostile_canary")
#error "seen: the cases, or the grader's home"
#endif
#if __has_include("/etc/shadow")
#error "seen: the password file"
#endif
#error "nothing more is seen"

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
