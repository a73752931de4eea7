// PagedAttention: blocks, block tables, copy-on-write

#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define SEQ_OF(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))

/* ---------------------------------------------------------------- list */

static inline void list_init(struct list_node *head)
{
    head->prev = head;
    head->next = head;
}

static inline void list_push(struct list_node *head, struct list_node *n)
{
    n->prev = head->prev;
    n->next = head;
    head->prev->next = n;
    head->prev = n;
}

static inline void list_remove(struct list_node *n)
{
    n->prev->next = n->next;
    n->next->prev = n->prev;
}

/* ------------------------------------------------------------- helpers */

/* Look up a sequence by its id. */
static inline Sequence *find_seq(LLMEngine *engine, int seq_id)
{
    struct list_node *cur;

    for (cur = engine->active_seqs.next; cur != &engine->active_seqs; cur = cur->next)
    {
        Sequence *seq = SEQ_OF(cur);
        if (seq->seq_id == seq_id)
        {
            return seq;
        }
    }
    return NULL;
}

/* First-fit: hand out the first block nobody uses. */
static inline int take_block(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++)
    {
        if (engine->ref_count[i] == 0)
        {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

static inline void unref_block(LLMEngine *engine, int blk)
{
    engine->ref_count[blk]--;
    if (engine->ref_count[blk] == 0)
    {
        engine->free_local_blocks++;
    }
}

static inline int *make_l2(void)
{
    int *l2 = malloc(L2_PT_SIZE * sizeof(int));
    for (int i = 0; i < L2_PT_SIZE; i++)
    {
        l2[i] = -1;
    }
    return l2;
}

static inline Sequence *new_seq(int seq_id)
{
    Sequence *seq = malloc(sizeof(Sequence));
    seq->seq_id = seq_id;
    seq->kv_count = 0;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        seq->block_table[i] = NULL;
    }
    return seq;
}

/* Where a block starts in the pool. */
static inline int *block_addr(LLMEngine *engine, int blk)
{
    return (int *)((char *)engine->pool_base_ptr + (size_t)blk * BLOCK_SIZE);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
    {
        return NULL;
    }

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    list_init(&engine->active_seqs);
    return engine;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
    {
        return -1;
    }

    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs)
    {
        struct list_node *next = cur->next;
        free_sequence(engine, SEQ_OF(cur)->seq_id);
        cur = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
    {
        return NULL;
    }
    if (initial_kv_len <= 0)
    {
        return NULL;
    }
    if (find_seq(engine, seq_id) != NULL)
    {
        return NULL;
    }

    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > MAX_LOGICAL_BLOCKS || need > engine->free_local_blocks)
    {
        return NULL;
    }

    Sequence *seq = new_seq(seq_id);
    for (int i = 0; i < need; i++)
    {
        int i1 = i / L2_PT_SIZE;
        int i2 = i % L2_PT_SIZE;
        if (seq->block_table[i1] == NULL)
        {
            seq->block_table[i1] = make_l2();
        }
        seq->block_table[i1][i2] = take_block(engine);
    }
    seq->kv_count = initial_kv_len;
    list_push(&engine->active_seqs, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
    {
        return -1;
    }

    Sequence *seq = find_seq(engine, seq_id);
    if (seq == NULL)
    {
        return -1;
    }

    list_remove(&seq->node);
    for (int i = 0; i < L1_PT_SIZE - 1; i++)
    {
        int *l2 = seq->block_table[i];
        if (l2 == NULL)
        {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++)
        {
            if (l2[j] != -1)
            {
                unref_block(engine, l2[j]);
            }
        }
        free(l2);
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
    {
        return NULL;
    }

    Sequence *parent = find_seq(engine, parent_seq_id);
    if (parent == NULL || find_seq(engine, new_seq_id) != NULL)
    {
        return NULL;
    }

    Sequence *child = new_seq(new_seq_id);
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        int *src_tbl = parent->block_table[i];
        if (src_tbl == NULL)
        {
            continue;
        }
        int *dst_tbl = make_l2();
        for (int j = 0; j < L2_PT_SIZE; j++)
        {
            if (src_tbl[j] != -1)
            {
                dst_tbl[j] = src_tbl[j];
                engine->ref_count[src_tbl[j]]++;
            }
        }
        child->block_table[i] = dst_tbl;
    }
    child->kv_count = parent->kv_count;
    list_push(&engine->active_seqs, &child->node);
    return child;
}

/* -------------------------------------------------------------- task 4 */

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
    {
        return -1;
    }

    Sequence *seq = find_seq(engine, seq_id);
    if (seq == NULL)
    {
        return -1;
    }

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
    {
        return -1;
    }

    int i1 = logical_idx / L2_PT_SIZE;
    int i2 = logical_idx % L2_PT_SIZE;
    int blk = -1;
    if (seq->block_table[i1] != NULL)
    {
        blk = seq->block_table[i1][i2];
    }

    int shared = blk != -1 && engine->ref_count[blk] > 1;
    if ((blk == -1 || shared) && engine->free_local_blocks == 0)
    {
        return -1;
    }

    if (seq->block_table[i1] == NULL)
    {
        seq->block_table[i1] = make_l2();
    }
    if (blk == -1)
    {
        blk = take_block(engine);
        seq->block_table[i1][i2] = blk;
    }
    else if (shared)
    {
        int copy = take_block(engine);
        memcpy(block_addr(engine, copy), block_addr(engine, blk), BLOCK_SIZE);
        engine->ref_count[blk]--;
        seq->block_table[i1][i2] = copy;
        blk = copy;
    }

    block_addr(engine, blk)[offset] = kv_data;
    seq->kv_count++;
    return 0;
}
