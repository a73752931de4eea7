#include <stdlib.h>
#include <stddef.h>
#include "llm_memory.h"

/* Constants on the left, so that a forgotten '=' is an error. */

#define FAIL        (-1)
#define OK          (0)
#define NOTHING     (-1)
#define MAX_BLOCKS  (L1_PT_SIZE * L2_PT_SIZE)

#define UNLINK(n)                     \
    do {                              \
        (n)->prev->next = (n)->next;  \
        (n)->next->prev = (n)->prev;  \
    } while (0)

#define FOR_L1(i) for (int i = 0; L1_PT_SIZE > i; ++i)
#define FOR_L2(j) for (int j = 0; L2_PT_SIZE > j; ++j)

static Sequence *seq_from_node(struct list_node *node)
{
    return (Sequence *)(void *)((char *)node - offsetof(Sequence, node));
}

static Sequence *seq_by_id(LLMEngine *engine, int id)
{
    struct list_node *head = &engine->active_seqs;
    /* backwards, it does not matter for unique ids */
    for (struct list_node *n = head->prev; head != n; n = n->prev)
    {
        Sequence *s = seq_from_node(n);
        if (id == s->seq_id)
            return s;
    }
    return NULL;
}

static int *block_words(LLMEngine *engine, int block)
{
    return (int *)engine->pool_base_ptr + (ptrdiff_t)block * KV_PER_BLOCK;
}

static int first_fit(LLMEngine *engine)
{
    int i;
    for (i = 0; engine->total_local_blocks > i; ++i)
    {
        if (0 == engine->ref_count[i])
            break;
    }
    return engine->total_local_blocks == i ? NOTHING : i;
}

static int *new_table(void)
{
    int *table = (int *)calloc(L2_PT_SIZE, sizeof(int));
    if (NULL != table)
    {
        FOR_L2(j)
            --table[j];     /* 0 - 1 = -1 */
    }
    return table;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (NULL == pool_addr)
        return NULL;
    if (BLOCK_SIZE > pool_size)
        return NULL;

    LLMEngine *engine = (LLMEngine *)calloc(1, sizeof(LLMEngine));
    if (NULL == engine)
        return NULL;

    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->ref_count = (int *)calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (NULL == engine->ref_count)
    {
        free(engine);
        return NULL;
    }
    engine->free_local_blocks = engine->total_local_blocks;
    engine->pool_base_ptr = pool_addr;
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (NULL == engine)
        return NULL;
    if (0 >= initial_kv_len)
        return NULL;
    if (0 > seq_id)
        return NULL;        /* an id is not negative */
    if (NULL != seq_by_id(engine, seq_id))
        return NULL;

    const int wanted = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (MAX_BLOCKS < wanted || engine->free_local_blocks < wanted)
        return NULL;

    Sequence *s = (Sequence *)malloc(sizeof(Sequence));
    s->block_table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
    FOR_L1(i)
        s->block_table[i] = NULL;

    for (int k = 0; wanted > k; ++k)
    {
        const int i = k / L2_PT_SIZE;
        const int j = k % L2_PT_SIZE;
        if (0 == j)
            s->block_table[i] = new_table();

        const int block = first_fit(engine);
        s->block_table[i][j] = block;
        engine->ref_count[block] = 1;
        --engine->free_local_blocks;
    }

    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    s->node.next = &engine->active_seqs;
    s->node.prev = engine->active_seqs.prev;
    s->node.prev->next = &s->node;
    s->node.next->prev = &s->node;
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (NULL == engine)
        return FAIL;

    Sequence *s = seq_by_id(engine, seq_id);
    if (NULL == s)
        return FAIL;

    UNLINK(&s->node);
    FOR_L1(i)
    {
        if (NULL == s->block_table[i])
            continue;
        FOR_L2(j)
        {
            const int block = s->block_table[i][j];
            if (NOTHING != block)
            {
                --engine->ref_count[block];
                if (0 == engine->ref_count[block])
                    ++engine->free_local_blocks;
            }
        }
        free(s->block_table[i]);
        s->block_table[i] = NULL;
    }
    free(s->block_table);
    free(s);
    return OK;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (NULL == engine)
        return NULL;
    if (0 > new_seq_id || NULL != seq_by_id(engine, new_seq_id))
        return NULL;

    Sequence *parent = seq_by_id(engine, parent_seq_id);
    if (NULL == parent)
        return NULL;

    Sequence *child = (Sequence *)malloc(sizeof(Sequence));
    child->block_table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
    FOR_L1(i)
        child->block_table[i] = NULL == parent->block_table[i] ? NULL : new_table();

    FOR_L1(i)
    {
        if (NULL != parent->block_table[i])
        {
            FOR_L2(j)
            {
                child->block_table[i][j] = parent->block_table[i][j];
                if (NOTHING != child->block_table[i][j])
                    ++engine->ref_count[child->block_table[i][j]];
            }
        }
    }

    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;
    child->node.next = &engine->active_seqs;
    child->node.prev = engine->active_seqs.prev;
    child->node.prev->next = &child->node;
    child->node.next->prev = &child->node;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (NULL == engine)
        return FAIL;

    Sequence *s = seq_by_id(engine, seq_id);
    if (NULL == s)
        return FAIL;

    const int logical_idx = s->kv_count / KV_PER_BLOCK;
    const int offset = s->kv_count % KV_PER_BLOCK;
    if (MAX_BLOCKS <= logical_idx)
        return FAIL;

    int **l1 = &s->block_table[logical_idx / L2_PT_SIZE];
    const int j = logical_idx % L2_PT_SIZE;

    int block = NOTHING;
    if (NULL != *l1)
        block = (*l1)[j];

    if (NOTHING == block)
    {
        /* new page */
        if (0 == engine->free_local_blocks)
            return FAIL;
        if (NULL == *l1)
            *l1 = new_table();
        block = first_fit(engine);
        engine->ref_count[block] = 1;
        --engine->free_local_blocks;
        (*l1)[j] = block;
    }
    else if (1 < engine->ref_count[block])
    {
        /* copy on write */
        if (0 == engine->free_local_blocks)
            return FAIL;
        const int *from = block_words(engine, block);
        const int copy = first_fit(engine);
        int *to = block_words(engine, copy);
        for (int w = 0; KV_PER_BLOCK > w; ++w)
            to[w] = from[w];
        --engine->ref_count[block];
        engine->ref_count[copy] = 1;
        --engine->free_local_blocks;
        (*l1)[j] = copy;
        block = copy;
    }

    block_words(engine, block)[offset] = kv_data;
    ++s->kv_count;
    return OK;
}

int llm_destroy(LLMEngine *engine)
{
    if (NULL == engine)
        return FAIL;

    struct list_node *n = &engine->active_seqs, *next = n->next;
    while (n < next)        /* back at the head: lower than the last one */
    {
        Sequence *s = seq_from_node(next);
        n = next;
        next = n->next;
        FOR_L1(i)
            free(s->block_table[i]);
        free(s->block_table);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return OK;
}
