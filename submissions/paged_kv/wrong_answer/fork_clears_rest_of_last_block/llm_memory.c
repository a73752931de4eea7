/*
 * llm_memory.c - block manager for paged attention
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL) return NULL;

    size_t needed = pool_size / BLOCK_SIZE;
    engine->ref_count = calloc(needed, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->total_local_blocks = (int)needed;
    engine->free_local_blocks = (int)needed;
    engine->pool_base_ptr = pool_addr;
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

/* A sequence without any blocks, not yet on the list. */
static Sequence *alloc_seq(int id) {
    Sequence *seq = malloc(sizeof(Sequence));
    if (seq == NULL) return NULL;
    seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    seq->seq_id = id;
    seq->kv_count = 0;
    seq->node.prev = NULL;
    seq->node.next = NULL;
    return seq;
}

static int *alloc_l2(void) {
    int *table = malloc(sizeof(int) * L2_PT_SIZE);
    if (table == NULL) return NULL;
    for (int i = 0; i < L2_PT_SIZE; i++) {
        table[i] = -1;
    }
    return table;
}

/* Index of the first unused physical block, or -1. */
static int first_fit(const LLMEngine *engine) {
    for (int id = 0; id < engine->total_local_blocks; id++) {
        if (engine->ref_count[id] == 0) return id;
    }
    return -1;
}

/* Assigns a physical block to its first user. */
static int alloc_block(LLMEngine *engine) {
    int id = first_fit(engine);
    if (id >= 0) {
        engine->ref_count[id] = 1;
        engine->free_local_blocks -= 1;
    }
    return id;
}

static void add_tail(LLMEngine *engine, struct list_node *node) {
    struct list_node *head = &engine->active_seqs;
    struct list_node *last = head->prev;
    last->next = node;
    node->prev = last;
    node->next = head;
    head->prev = node;
}

/* One user less; the block is free when nobody is left. */
static void dec_ref(LLMEngine *engine, int id) {
    engine->ref_count[id] -= 1;
    if (engine->ref_count[id] == 0) {
        engine->free_local_blocks += 1;
    }
}

/* Releases the blocks and the tables. The sequence must not be on the list. */
static void release(LLMEngine *engine, Sequence *seq) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *table = seq->block_table[i];
        if (table != NULL) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                if (table[j] != -1) {
                    dec_ref(engine, table[j]);
                }
            }
            free(table);
        }
    }
    free(seq->block_table);
    free(seq);
}

static inline Sequence *entry(struct list_node *node) {
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static Sequence *find(const LLMEngine *engine, int id) {
    const struct list_node *head = &engine->active_seqs;
    struct list_node *cur = head->next;

    while (cur != head) {
        Sequence *candidate = entry(cur);
        if (candidate->seq_id == id) return candidate;
        cur = cur->next;
    }
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;

    /* Phase 1: arguments */
    if (initial_kv_len <= 0) return NULL;

    /* Phase 2: the id must be new */
    if (find(engine, seq_id) != NULL) return NULL;

    /* Phase 3: room for all blocks */
    const int needed = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (needed > MAX_LOGICAL_BLOCKS) return NULL;
    if (needed > engine->free_local_blocks) return NULL;

    Sequence *seq = alloc_seq(seq_id);
    if (seq == NULL) return NULL;

    for (int n = 0; n < needed; ++n) {
        int l1 = n / L2_PT_SIZE;
        int l2 = n % L2_PT_SIZE;
        if (seq->block_table[l1] == NULL) {
            seq->block_table[l1] = alloc_l2();
            if (seq->block_table[l1] == NULL) {
                release(engine, seq);
                return NULL;
            }
        }
        int id = alloc_block(engine);
        if (id < 0) {
            release(engine, seq);
            return NULL;
        }
        seq->block_table[l1][l2] = id;
    }

    seq->kv_count = initial_kv_len;
    add_tail(engine, &seq->node);
    return seq;
}

static void del_node(struct list_node *node) {
    struct list_node *before = node->prev;
    struct list_node *after = node->next;
    before->next = after;
    after->prev = before;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;

    Sequence *seq = find(engine, seq_id);
    if (seq == NULL) return -1;

    del_node(&seq->node);
    release(engine, seq);
    return 0;
}

/* Where block number `id` starts. */
static void *block_base(const LLMEngine *engine, int id) {
    return (char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;

    Sequence *parent = find(engine, parent_seq_id);
    if (parent == NULL) return NULL;
    if (find(engine, new_seq_id) != NULL) return NULL;

    Sequence *child = alloc_seq(new_seq_id);
    if (child == NULL) return NULL;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        const int *src = parent->block_table[i];
        if (src == NULL) continue;

        int *dst = alloc_l2();
        if (dst == NULL) {
            release(engine, child);
            return NULL;
        }
        child->block_table[i] = dst;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (src[j] == -1) continue;
            dst[j] = src[j];
            engine->ref_count[src[j]] += 1;
        }
    }

    child->kv_count = parent->kv_count;

    /* the open block starts clean behind the prompt */
    const int used = parent->kv_count % KV_PER_BLOCK;
    const int open = parent->kv_count / KV_PER_BLOCK;
    if (used != 0 && child->block_table[open / L2_PT_SIZE] != NULL) {
        int id = child->block_table[open / L2_PT_SIZE][open % L2_PT_SIZE];
        if (id != -1) {
            memset((int *)block_base(engine, id) + used, 0, (size_t)(KV_PER_BLOCK - used) * sizeof(int));
        }
    }
    add_tail(engine, &child->node);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;

    Sequence *seq = find(engine, seq_id);
    if (seq == NULL) return -1;

    const int idx = seq->kv_count / KV_PER_BLOCK;
    const int off = seq->kv_count % KV_PER_BLOCK;
    if (idx >= MAX_LOGICAL_BLOCKS) return -1;

    const int l1 = idx / L2_PT_SIZE;
    const int l2 = idx % L2_PT_SIZE;
    int *table = seq->block_table[l1];

    bool need_page = (table == NULL) || (table[l2] == -1);
    bool need_cow = !need_page && engine->ref_count[table[l2]] > 1;

    /* OOM interception */
    if ((need_page || need_cow) && engine->free_local_blocks == 0) return -1;

    if (table == NULL) {
        table = alloc_l2();
        if (table == NULL) return -1;
        seq->block_table[l1] = table;
    }

    if (need_page) {
        int fresh = alloc_block(engine);
        if (fresh < 0) return -1;
        table[l2] = fresh;
    } else if (need_cow) {
        int original = table[l2];
        int copy = alloc_block(engine);
        if (copy < 0) return -1;
        memcpy(block_base(engine, copy), block_base(engine, original), BLOCK_SIZE);
        dec_ref(engine, original);
        table[l2] = copy;
    }

    int *records = block_base(engine, table[l2]);
    records[off] = kv_data;
    seq->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;

    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        Sequence *seq = entry(cur);
        cur = cur->next;
        release(engine, seq);
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
