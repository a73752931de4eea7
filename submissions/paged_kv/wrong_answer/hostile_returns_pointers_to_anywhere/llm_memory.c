/* Corrupting: no call does anything; what comes back are addresses of anything: code, stack, pool, kernel, nobody's.
   */
#include "llm_memory.h"

#include <stddef.h>

static unsigned turn;

static void *anywhere(const void *near)
{
    switch (turn++ % 7) {
    case 0: return (void *)(size_t)0x4141414141414141;
    case 1: return (void *)(size_t)0xffffffffffffff80;
    case 2: return (void *)(size_t)anywhere;
    case 3: return (void *)(size_t)near;
    case 4: return (void *)(size_t)3;
    case 5: return __builtin_frame_address(0);
    default: return &turn;
    }
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    return anywhere(pool_addr);
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    return anywhere(engine);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    (void)engine, (void)seq_id;
    return 0x7fffffff;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    (void)engine, (void)parent_seq_id, (void)new_seq_id;
    return anywhere(engine);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    (void)engine, (void)seq_id, (void)kv_data;
    return -0x7fffffff - 1;
}

int llm_destroy(LLMEngine *engine)
{
    (void)engine;
    return 77;
}
