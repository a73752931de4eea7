#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define TO_SEQ(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))

static void list_init(struct list_node *head)
{
    head->prev = head;
    head->next = head;
}

static void list_add_tail(struct list_node *head, struct list_node *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static void list_del(struct list_node *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
}

static Sequence *get_seq_by_id(LLMEngine *engine, int seq_id)
{
    struct list_node *pos;

    for (pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = pos->next) {
        Sequence *seq = TO_SEQ(pos);
        if (seq->seq_id == seq_id) {
            return seq;
        }
    }
    return NULL;
}

static int first_fit(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

static void release_block(LLMEngine *engine, int block)
{
    engine->ref_count[block]--;
    if (engine->ref_count[block] == 0) {
        engine->free_local_blocks++;
    }
}

static int *new_l2(void)
{
    int *l2 = malloc(16 * sizeof(int));
    for (int i = 0; i < 16; i++) {
        l2[i] = -1;
    }
    return l2;
}

static Sequence *new_seq(int seq_id)
{
    Sequence *seq = malloc(sizeof(Sequence));
    seq->seq_id = seq_id;
    seq->kv_count = 0;
    seq->block_table = malloc(16 * sizeof(int *));
    for (int i = 0; i < 16; i++) {
        seq->block_table[i] = NULL;
    }
    return seq;
}

static int *addr_of(LLMEngine *engine, int block)
{
    return (int *)((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
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
    if (engine == NULL) {
        return -1;
    }

    struct list_node *pos = engine->active_seqs.next;
    while (pos != &engine->active_seqs) {
        struct list_node *next = pos->next;
        free_sequence(engine, TO_SEQ(pos)->seq_id);
        pos = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }
    if (get_seq_by_id(engine, seq_id) != NULL) {
        return NULL;
    }

    int n_blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (n_blocks > MAX_LOGICAL_BLOCKS || n_blocks > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *seq = new_seq(seq_id);
    int last_block = -1;
    for (int i = 0; i < n_blocks; i++) {
        int dir = i / 16;
        int ent = i % 16;
        if (seq->block_table[dir] == NULL) {
            seq->block_table[dir] = new_l2();
        }
        seq->block_table[dir][ent] = first_fit(engine);
    }
    seq->kv_count = initial_kv_len;
    list_add_tail(&engine->active_seqs, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) {
        return -1;
    }

    Sequence *seq = get_seq_by_id(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }

    list_del(&seq->node);
    for (int i = 0; i < 16; i++) {
        int *l2 = seq->block_table[i];
        if (l2 == NULL) {
            continue;
        }
        for (int j = 0; j < 16; j++) {
            if (l2[j] != -1) {
                release_block(engine, l2[j]);
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
    if (engine == NULL) {
        return NULL;
    }

    Sequence *dad = get_seq_by_id(engine, parent_seq_id);
    if (dad == NULL || get_seq_by_id(engine, new_seq_id) != NULL) {
        return NULL;
    }

    Sequence *kid = new_seq(new_seq_id);
    for (int i = 0; i < 16; i++) {
        int *from = dad->block_table[i];
        if (from == NULL) {
            continue;
        }
        int *to = new_l2();
        for (int j = 0; j < 16; j++) {
            if (from[j] != -1) {
                to[j] = from[j];
                engine->ref_count[from[j]]++;
            }
        }
        kid->block_table[i] = to;
    }
    kid->kv_count = dad->kv_count;
    list_add_tail(&engine->active_seqs, &kid->node);
    return kid;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) {
        return -1;
    }

    Sequence *seq = get_seq_by_id(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }

    int dir = logical_idx / 16;
    int ent = logical_idx % 16;
    int block = -1;
    if (seq->block_table[dir] != NULL) {
        block = seq->block_table[dir][ent];
    }

    int shared = block != -1 && engine->ref_count[block] > 1;
    if ((block == -1 || shared) && engine->free_local_blocks == 0) {
        return -1;
    }

    if (seq->block_table[dir] == NULL) {
        seq->block_table[dir] = new_l2();
    }
    if (block == -1) {
        block = first_fit(engine);
        seq->block_table[dir][ent] = block;
    } else if (shared) {
        int copy = first_fit(engine);
        memcpy(addr_of(engine, copy), addr_of(engine, block), BLOCK_SIZE);
        engine->ref_count[block]--;
        seq->block_table[dir][ent] = copy;
        block = copy;
    }

    addr_of(engine, block)[offset] = kv_data;
    seq->kv_count++;
    return 0;
}
