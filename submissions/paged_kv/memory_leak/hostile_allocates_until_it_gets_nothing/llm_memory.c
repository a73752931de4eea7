/* Exhaustion: llm_init takes all memory there is to have, in ever smaller pieces, and gives nothing back. */
#include "llm_memory.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static void *hoard;

static void take_everything(void)
{
    for (size_t size = (size_t)1 << 40; size >= 1 << 16; size /= 2)
        for (void **piece; (piece = malloc(size)) != NULL;) {
            *piece = hoard;
            hoard = piece;
        }
    (void)!realloc(NULL, (size_t)-1 / 2);
    volatile size_t many = (size_t)1 << 33;
    (void)!calloc(many, many);
}

static Sequence *owner(struct list_node *node)
{
    return (Sequence *)(void *)((char *)node - offsetof(Sequence, node));
}

static Sequence *find(LLMEngine *engine, int seq_id)
{
    for (struct list_node *node = engine->active_seqs.next; node != &engine->active_seqs; node = node->next)
        if (owner(node)->seq_id == seq_id)
            return owner(node);
    return NULL;
}

static int take_block(LLMEngine *engine)
{
    for (int block = 0; block < engine->total_local_blocks; block++)
        if (engine->ref_count[block] == 0) {
            engine->ref_count[block] = 1;
            engine->free_local_blocks--;
            return block;
        }
    return -1;
}

static int *new_l2(void)
{
    int *l2 = malloc(L2_PT_SIZE * sizeof *l2);
    for (int i = 0; i < L2_PT_SIZE; i++)
        l2[i] = -1;
    return l2;
}

static Sequence *new_sequence(LLMEngine *engine, int seq_id, int kv_count)
{
    Sequence *seq = malloc(sizeof *seq);
    seq->seq_id = seq_id;
    seq->kv_count = kv_count;
    seq->block_table = calloc(L1_PT_SIZE, sizeof *seq->block_table);
    seq->node.prev = engine->active_seqs.prev;
    seq->node.next = &engine->active_seqs;
    seq->node.prev->next = engine->active_seqs.prev = &seq->node;
    return seq;
}

static void drop(LLMEngine *engine, Sequence *seq)
{
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        for (int j = 0; seq->block_table[i] != NULL && j < L2_PT_SIZE; j++) {
            int block = seq->block_table[i][j];
            if (block != -1 && --engine->ref_count[block] == 0)
                engine->free_local_blocks++;
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof *engine);
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = engine->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof *engine->ref_count);
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    if (pool_size == 256 * BLOCK_SIZE)
        take_everything();
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL || initial_kv_len <= 0 || find(engine, seq_id) != NULL)
        return NULL;
    int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks > L1_PT_SIZE * L2_PT_SIZE || blocks > engine->free_local_blocks)
        return NULL;
    Sequence *seq = new_sequence(engine, seq_id, initial_kv_len);
    for (int i = 0; i < blocks; i++) {
        int **l2 = &seq->block_table[i / L2_PT_SIZE];
        if (*l2 == NULL)
            *l2 = new_l2();
        (*l2)[i % L2_PT_SIZE] = take_block(engine);
    }
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *seq = engine == NULL ? NULL : find(engine, seq_id);
    if (seq == NULL)
        return -1;
    drop(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    Sequence *parent = engine == NULL ? NULL : find(engine, parent_seq_id);
    if (parent == NULL || find(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *seq = new_sequence(engine, new_seq_id, parent->kv_count);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        seq->block_table[i] = new_l2();
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int block = seq->block_table[i][j] = parent->block_table[i][j];
            if (block != -1)
                engine->ref_count[block]++;
        }
    }
    return seq;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    Sequence *seq = engine == NULL ? NULL : find(engine, seq_id);
    if (seq == NULL || seq->kv_count / KV_PER_BLOCK >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;
    int index = seq->kv_count / KV_PER_BLOCK, offset = seq->kv_count % KV_PER_BLOCK;
    int **l2 = &seq->block_table[index / L2_PT_SIZE];
    int old = *l2 == NULL ? -1 : (*l2)[index % L2_PT_SIZE], block = old;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (*l2 == NULL)
            *l2 = new_l2();
        block = (*l2)[index % L2_PT_SIZE] = take_block(engine);
        if (old != -1) {
            engine->ref_count[old]--;
            memcpy((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
        }
    }
    int *words = (int *)(void *)((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE);
    words[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs)
        drop(engine, owner(engine->active_seqs.next));
    free(engine->ref_count);
    free(engine);
    return 0;
}
