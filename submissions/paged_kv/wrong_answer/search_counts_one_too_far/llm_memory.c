/* Homework 3: paged KV memory manager */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

static int firstFree(const LLMEngine *engine)
{
    int id = 0;
    while (id < engine->total_local_blocks - 1 && engine->ref_count[id++] != 0) { }
    return id;
}

/* One user less; the block is free when nobody is left. */
static void releaseBlock(LLMEngine *engine, int id)
{
    engine->ref_count[id] -= 1;
    if (engine->ref_count[id] == 0)
    {
        engine->free_local_blocks += 1;
    }
}

static inline Sequence *seqOf(struct list_node *node)
{
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static void destroySeq(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; ++i)
    {
        int *l2Table = seq->block_table[i];
        if (l2Table != NULL)
        {
            for (int j = 0; j < L2_PT_SIZE; ++j)
            {
                if (l2Table[j] != -1)
                {
                    releaseBlock(engine, l2Table[j]);
                }
            }
            free(l2Table);
        }
    }
    free(seq->block_table);
    free(seq);
}

static int *newL2(void)
{
    int *l2Table = malloc(sizeof(int) * L2_PT_SIZE);
    if (NULL == l2Table) return NULL;
    for (int i = 0; i < L2_PT_SIZE; ++i)
    {
        l2Table[i] = -1;
    }
    return l2Table;
}

/* A sequence without any blocks, not yet on the list. */
static Sequence *newSequence(int id)
{
    Sequence *seq = malloc(sizeof(Sequence));
    if (NULL == seq) return NULL;
    seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (seq->block_table == NULL)
    {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; ++i)
    {
        seq->block_table[i] = NULL;
    }
    seq->seq_id = id;
    seq->kv_count = 0;
    seq->node.prev = NULL;
    seq->node.next = NULL;
    return seq;
}

static void pushTail(LLMEngine *engine, struct list_node *node)
{
    struct list_node *head = &engine->active_seqs;
    struct list_node *last = head->prev;
    last->next = node;
    node->prev = last;
    node->next = head;
    head->prev = node;
}

static Sequence *findById(const LLMEngine *engine, int id)
{
    const struct list_node *head = &engine->active_seqs;
    struct list_node *it = head->next;

    while (it != head)
    {
        Sequence *s = seqOf(it);
        if (s->seq_id == id) return s;
        it = it->next;
    }
    return NULL;
}

static int acquireBlock(LLMEngine *engine)
{
    int id = firstFree(engine);
    if (id >= 0)
    {
        engine->ref_count[id] = 1;
        engine->free_local_blocks -= 1;
    }
    return id;
}

static void detach(struct list_node *node)
{
    struct list_node *before = node->prev;
    struct list_node *after = node->next;
    before->next = after;
    after->prev = before;
}

/* Where block number `id` starts. */
static void *blockPtr(const LLMEngine *engine, int id)
{
    return (char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (NULL == engine) return NULL;

    size_t required = pool_size / BLOCK_SIZE;
    engine->ref_count = calloc(required, sizeof(int));
    if (engine->ref_count == NULL)
    {
        free(engine);
        return NULL;
    }
    engine->total_local_blocks = (int)required;
    engine->free_local_blocks = (int)required;
    engine->pool_base_ptr = pool_addr;
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (NULL == engine) return NULL;

    if (initial_kv_len <= 0) return NULL;

    /* Phase 2: the id must be new */
    if (findById(engine, seq_id) != NULL) return NULL;

    const int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > MAX_LOGICAL_BLOCKS) return NULL;
    if (required > engine->free_local_blocks) return NULL;

    Sequence *seq = newSequence(seq_id);
    if (NULL == seq) return NULL;

    for (int logical = 0; logical < required; ++logical)
    {
        int l1 = logical / L2_PT_SIZE;
        int l2 = logical % L2_PT_SIZE;
        if (seq->block_table[l1] == NULL)
        {
            seq->block_table[l1] = newL2();
            if (seq->block_table[l1] == NULL)
            {
                destroySeq(engine, seq);
                return NULL;
            }
        }
        int id = acquireBlock(engine);
        if (id < 0)
        {
            destroySeq(engine, seq);
            return NULL;
        }
        seq->block_table[l1][l2] = id;
    }

    seq->kv_count = initial_kv_len;
    pushTail(engine, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (NULL == engine) return -1;

    Sequence *seq = findById(engine, seq_id);
    if (NULL == seq) return -1;

    detach(&seq->node);
    destroySeq(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (NULL == engine) return NULL;

    Sequence *parent = findById(engine, parent_seq_id);
    if (NULL == parent) return NULL;
    if (findById(engine, new_seq_id) != NULL) return NULL;

    Sequence *child = newSequence(new_seq_id);
    if (NULL == child) return NULL;

    for (int i = 0; i < L1_PT_SIZE; ++i)
    {
        const int *from = parent->block_table[i];
        if (NULL == from) continue;

        int *to = newL2();
        if (NULL == to)
        {
            destroySeq(engine, child);
            return NULL;
        }
        child->block_table[i] = to;
        for (int j = 0; j < L2_PT_SIZE; ++j)
        {
            if (from[j] == -1) continue;
            to[j] = from[j];
            engine->ref_count[from[j]] += 1;
        }
    }

    child->kv_count = parent->kv_count;
    pushTail(engine, &child->node);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (NULL == engine) return -1;

    Sequence *seq = findById(engine, seq_id);
    if (NULL == seq) return -1;

    const int logical_idx = seq->kv_count / KV_PER_BLOCK;
    const int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) return -1;

    const int l1 = logical_idx / L2_PT_SIZE;
    const int l2 = logical_idx % L2_PT_SIZE;
    int *l2Table = seq->block_table[l1];

    bool isUnmapped = (l2Table == NULL) || (l2Table[l2] == -1);
    bool isShared = !isUnmapped && engine->ref_count[l2Table[l2]] > 1;

    /* OOM interception */
    if ((isUnmapped || isShared) && engine->free_local_blocks == 0) return -1;

    if (NULL == l2Table)
    {
        l2Table = newL2();
        if (NULL == l2Table) return -1;
        seq->block_table[l1] = l2Table;
    }

    if (isUnmapped)
    {
        int newId = acquireBlock(engine);
        if (newId < 0) return -1;
        l2Table[l2] = newId;
    }
    else if (isShared)
    {
        int oldId = l2Table[l2];
        int newId = acquireBlock(engine);
        if (newId < 0) return -1;
        memcpy(blockPtr(engine, newId), blockPtr(engine, oldId), BLOCK_SIZE);
        releaseBlock(engine, oldId);
        l2Table[l2] = newId;
    }

    int *dst = blockPtr(engine, l2Table[l2]);
    dst[offset] = kv_data;
    seq->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (NULL == engine) return -1;

    struct list_node *it = engine->active_seqs.next;
    while (it != &engine->active_seqs)
    {
        Sequence *seq = seqOf(it);
        it = it->next;
        destroySeq(engine, seq);
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
