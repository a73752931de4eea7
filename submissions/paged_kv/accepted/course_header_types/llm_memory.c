#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

/* uint8_t, uintptr_t, int64_t and INT32_MAX come with llm_memory.h, as in the course. */

#define OWNER(link) ((Sequence *)((uintptr_t)(link) - offsetof(Sequence, node)))

static uint8_t *block_at(const LLMEngine *engine, int32_t block)
{
    return (uint8_t *)engine->pool_base_ptr + (uintptr_t)block * BLOCK_SIZE;
}

static Sequence *lookup(const LLMEngine *engine, int32_t id)
{
    const struct list_node *link;

    for (link = engine->active_seqs.next; link != &engine->active_seqs; link = link->next) {
        if (OWNER(link)->seq_id == id) {
            return OWNER(link);
        }
    }
    return NULL;
}

static int32_t grab(LLMEngine *engine)
{
    int32_t block = 0;

    while (block < engine->total_local_blocks && engine->ref_count[block] != 0) {
        block++;
    }
    if (block == engine->total_local_blocks) {
        return -1;
    }
    engine->ref_count[block] = 1;
    engine->free_local_blocks--;
    return block;
}

static void release(LLMEngine *engine, int32_t block)
{
    if (--engine->ref_count[block] == 0) {
        engine->free_local_blocks++;
    }
}

static int *empty_table(void)
{
    int *table = malloc(L2_PT_SIZE * sizeof(int));

    memset(table, UINT8_MAX, L2_PT_SIZE * sizeof(int));
    return table;
}

static Sequence *insert_sequence(LLMEngine *engine, int32_t id, int32_t count)
{
    Sequence *seq = malloc(sizeof *seq);

    seq->seq_id = id;
    seq->kv_count = count;
    seq->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    seq->node.next = &engine->active_seqs;
    seq->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *engine;

    if (pool_addr == NULL || pool_size < BLOCK_SIZE || pool_size / BLOCK_SIZE > (size_t)INT32_MAX) {
        return NULL;
    }
    engine = malloc(sizeof *engine);
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int32_t)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int32_t));
    engine->active_seqs.next = &engine->active_seqs;
    engine->active_seqs.prev = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    int64_t needed = ((int64_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    Sequence *seq;

    if (engine == NULL || initial_kv_len <= 0 || needed > MAX_LOGICAL_BLOCKS) {
        return NULL;
    }
    if (needed > engine->free_local_blocks || lookup(engine, seq_id) != NULL) {
        return NULL;
    }
    seq = insert_sequence(engine, seq_id, initial_kv_len);
    for (int32_t i = 0; i < needed; i++) {
        if (i % L2_PT_SIZE == 0) {
            seq->block_table[i / L2_PT_SIZE] = empty_table();
        }
        seq->block_table[i / L2_PT_SIZE][i % L2_PT_SIZE] = grab(engine);
    }
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *seq = engine == NULL ? NULL : lookup(engine, seq_id);

    if (seq == NULL) {
        return -1;
    }
    for (uint8_t i = 0; i < L1_PT_SIZE; i++) {
        for (uint8_t j = 0; seq->block_table[i] != NULL && j < L2_PT_SIZE; j++) {
            if (seq->block_table[i][j] != -1) {
                release(engine, seq->block_table[i][j]);
            }
        }
        free(seq->block_table[i]);
    }
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    Sequence *parent = engine == NULL ? NULL : lookup(engine, parent_seq_id);
    Sequence *child;

    if (parent == NULL || lookup(engine, new_seq_id) != NULL) {
        return NULL;
    }
    child = insert_sequence(engine, new_seq_id, parent->kv_count);
    for (uint8_t i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = empty_table();
        memcpy(child->block_table[i], parent->block_table[i], L2_PT_SIZE * sizeof(int));
        for (uint8_t j = 0; j < L2_PT_SIZE; j++) {
            if (child->block_table[i][j] != -1) {
                engine->ref_count[child->block_table[i][j]]++;
            }
        }
    }
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    Sequence *seq = engine == NULL ? NULL : lookup(engine, seq_id);
    int32_t index, slot, block;
    int **table;

    if (seq == NULL || seq->kv_count >= MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) {
        return -1;
    }
    index = seq->kv_count / KV_PER_BLOCK;
    slot = index % L2_PT_SIZE;
    table = &seq->block_table[index / L2_PT_SIZE];
    block = *table == NULL ? -1 : (*table)[slot];
    if (block == -1 || engine->ref_count[block] > 1) {
        if (engine->free_local_blocks == 0) {
            return -1;
        }
        if (*table == NULL) {
            *table = empty_table();
        }
        (*table)[slot] = grab(engine);
        if (block != -1) {
            memcpy(block_at(engine, (*table)[slot]), block_at(engine, block), BLOCK_SIZE);
            release(engine, block);
        }
        block = (*table)[slot];
    }
    memcpy(block_at(engine, block) + (uintptr_t)(seq->kv_count % KV_PER_BLOCK) * KV_SIZE, &kv_data, KV_SIZE);
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) {
        return -1;
    }
    while (engine->active_seqs.next != &engine->active_seqs) {
        free_sequence(engine, OWNER(engine->active_seqs.next)->seq_id);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
