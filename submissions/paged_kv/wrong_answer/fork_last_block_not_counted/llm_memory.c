#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define container_of(ptr, type, member) \
    ((type *)((char *)(ptr) - offsetof(type, member)))

/* ---- list helpers ---- */

static void list_init(struct list_node *head)
{
    head->prev = head;
    head->next = head;
}

static void list_add_tail(struct list_node *node, struct list_node *head)
{
    struct list_node *tail = head->prev;

    node->prev = tail;
    node->next = head;
    tail->next = node;
    head->prev = node;
}

static void list_del(struct list_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
}

/* ---- engine helpers ---- */

static Sequence *find_sequence(LLMEngine *engine, int seq_id)
{
    struct list_node *head = &engine->active_seqs;

    for (struct list_node *pos = head->next; pos != head; pos = pos->next) {
        Sequence *seq = container_of(pos, Sequence, node);
        if (seq->seq_id == seq_id)
            return seq;
    }
    return NULL;
}

static int find_free_block(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0)
            return i;
    }
    return -1;
}

/* Take a free block and account for it. */
static int take_block(LLMEngine *engine)
{
    int block = find_free_block(engine);

    engine->ref_count[block] = 1;
    engine->free_local_blocks--;
    return block;
}

static char *block_addr(LLMEngine *engine, int block)
{
    return (char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE;
}

static int *new_l2_table(void)
{
    int *l2 = malloc(L2_PT_SIZE * sizeof(int));

    if (l2 == NULL)
        return NULL;
    for (int i = 0; i < L2_PT_SIZE; i++)
        l2[i] = -1;
    return l2;
}

static Sequence *new_sequence(int seq_id)
{
    Sequence *seq = malloc(sizeof(Sequence));

    if (seq == NULL)
        return NULL;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    seq->seq_id = seq_id;
    seq->kv_count = 0;
    return seq;
}

/* Give up the blocks of a sequence and free its memory. */
static void release_sequence(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *l2 = seq->block_table[i];

        if (l2 == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (l2[j] == -1)
                continue;
            engine->ref_count[l2[j]]--;
            if (engine->ref_count[l2[j]] == 0)
                engine->free_local_blocks++;
        }
        free(l2);
    }
    free(seq->block_table);
    free(seq);
}

/* ---- Task 1 ---- */

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL)
        return NULL;

    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    list_init(&engine->active_seqs);
    return engine;
}

/* ---- Task 2 ---- */

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (find_sequence(engine, seq_id) != NULL)
        return NULL;

    long required = ((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > MAX_LOGICAL_BLOCKS)
        return NULL;
    if (required > engine->free_local_blocks)
        return NULL;

    Sequence *seq = new_sequence(seq_id);
    if (seq == NULL)
        return NULL;

    for (int i = 0; i < required; i++) {
        int l1_idx = i / L2_PT_SIZE;
        int l2_idx = i % L2_PT_SIZE;

        if (seq->block_table[l1_idx] == NULL) {
            seq->block_table[l1_idx] = new_l2_table();
            if (seq->block_table[l1_idx] == NULL) {
                release_sequence(engine, seq);
                return NULL;
            }
        }
        seq->block_table[l1_idx][l2_idx] = take_block(engine);
    }

    seq->kv_count = initial_kv_len;
    list_add_tail(&seq->node, &engine->active_seqs);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;

    Sequence *seq = find_sequence(engine, seq_id);
    if (seq == NULL)
        return -1;

    list_del(&seq->node);
    release_sequence(engine, seq);
    return 0;
}

/* ---- Task 3 ---- */

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;

    Sequence *parent = find_sequence(engine, parent_seq_id);
    if (parent == NULL)
        return NULL;
    if (find_sequence(engine, new_seq_id) != NULL)
        return NULL;

    Sequence *child = new_sequence(new_seq_id);
    if (child == NULL)
        return NULL;

    int shared = parent->kv_count / KV_PER_BLOCK;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        child->block_table[i] = new_l2_table();
        if (child->block_table[i] == NULL) {
            release_sequence(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int block = parent->block_table[i][j];

            child->block_table[i][j] = block;
            if (block != -1 && i * L2_PT_SIZE + j < shared)
                engine->ref_count[block]++;
        }
    }

    child->kv_count = parent->kv_count;
    list_add_tail(&child->node, &engine->active_seqs);
    return child;
}

/* ---- Task 4 ---- */

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;

    Sequence *seq = find_sequence(engine, seq_id);
    if (seq == NULL)
        return -1;

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
        return -1;

    int l1_idx = logical_idx / L2_PT_SIZE;
    int l2_idx = logical_idx % L2_PT_SIZE;
    int *l2 = seq->block_table[l1_idx];
    int block = (l2 == NULL) ? -1 : l2[l2_idx];
    int need_new = (block == -1);
    int need_cow = (!need_new && engine->ref_count[block] > 1);

    if ((need_new || need_cow) && engine->free_local_blocks == 0)
        return -1;

    if (l2 == NULL) {
        l2 = new_l2_table();
        if (l2 == NULL)
            return -1;
        seq->block_table[l1_idx] = l2;
    }

    if (need_new) {
        block = take_block(engine);
        l2[l2_idx] = block;
    } else if (need_cow) {
        int old = block;

        block = take_block(engine);
        memcpy(block_addr(engine, block), block_addr(engine, old), BLOCK_SIZE);
        engine->ref_count[old]--;
        l2[l2_idx] = block;
    }

    int *slot = (int *)block_addr(engine, block);
    slot[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

/* ---- Task 5 ---- */

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;

    struct list_node *head = &engine->active_seqs;
    struct list_node *pos = head->next;

    while (pos != head) {
        struct list_node *next = pos->next;

        release_sequence(engine, container_of(pos, Sequence, node));
        pos = next;
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
