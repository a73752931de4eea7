#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

/* ---------- list helpers ---------- */

static Sequence *node_to_seq(struct list_node *node) {
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static void list_insert(struct list_node *node, struct list_node *prev, struct list_node *next) {
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

/* Keeps the list in order of address: a new node is the highest, so it goes to the tail. */
static void list_add_tail(struct list_node *head, struct list_node *node) {
    struct list_node *prev = head->prev;

    while (prev != head && prev > node)
        prev = prev->prev;
    list_insert(node, prev, prev->next);
}

static void list_remove(struct list_node *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node;
    node->prev = node;
}

static Sequence *find_seq(LLMEngine *engine, int seq_id) {
    struct list_node *head = &engine->active_seqs;

    for (struct list_node *cur = head->next; cur != head; cur = cur->next) {
        Sequence *seq = node_to_seq(cur);
        if (seq->seq_id == seq_id)
            return seq;
    }
    return NULL;
}

/* ---------- block helpers ---------- */

static char *block_addr(LLMEngine *engine, int block) {
    return (char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE;
}

/* First free block, now owned by one sequence; -1 if the pool is full. */
static int take_block(LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

static void drop_block(LLMEngine *engine, int block) {
    engine->ref_count[block]--;
    if (engine->ref_count[block] == 0)
        engine->free_local_blocks++;
}

static int blocks_needed(int kv_len) {
    return kv_len / KV_PER_BLOCK + (kv_len % KV_PER_BLOCK != 0);
}

/* ---------- table helpers ---------- */

static int *new_l2_table(void) {
    int *table = malloc(L2_PT_SIZE * sizeof(int));

    if (table == NULL)
        return NULL;
    for (int i = 0; i < L2_PT_SIZE; i++)
        table[i] = -1;
    return table;
}

static Sequence *new_seq(int seq_id) {
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

/* Gives back everything a detached sequence holds. */
static void release_seq(LLMEngine *engine, Sequence *seq) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *l2 = seq->block_table[i];
        if (l2 == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (l2[j] != -1)
                drop_block(engine, l2[j]);
        }
        free(l2);
    }
    free(seq->block_table);
    free(seq);
}

static int map_new_block(LLMEngine *engine, Sequence *seq, int logical_idx) {
    int l1 = logical_idx / L2_PT_SIZE;
    int l2 = logical_idx % L2_PT_SIZE;

    if (seq->block_table[l1] == NULL) {
        seq->block_table[l1] = new_l2_table();
        if (seq->block_table[l1] == NULL)
            return -1;
    }
    seq->block_table[l1][l2] = take_block(engine);
    return seq->block_table[l1][l2];
}

static int copy_on_write(LLMEngine *engine, int *slot) {
    int old = *slot;
    int fresh = take_block(engine);

    memcpy(block_addr(engine, fresh), block_addr(engine, old), BLOCK_SIZE);
    drop_block(engine, old);
    *slot = fresh;
    return fresh;
}

/* ---------- API ---------- */

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
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
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (find_seq(engine, seq_id) != NULL)
        return NULL;

    int needed = blocks_needed(initial_kv_len);
    if (needed > MAX_LOGICAL_BLOCKS || needed > engine->free_local_blocks)
        return NULL;

    Sequence *seq = new_seq(seq_id);
    if (seq == NULL)
        return NULL;

    for (int i = 0; i < needed; i++) {
        if (map_new_block(engine, seq, i) == -1) {
            release_seq(engine, seq);
            return NULL;
        }
    }
    seq->kv_count = initial_kv_len;
    list_add_tail(&engine->active_seqs, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL)
        return -1;

    Sequence *seq = find_seq(engine, seq_id);
    if (seq == NULL)
        return -1;

    list_remove(&seq->node);
    release_seq(engine, seq);
    return 0;
}

/* Copies one table of the parent and counts the child as a user of its blocks. */
static int *share_l2_table(LLMEngine *engine, const int *parent) {
    int *child = new_l2_table();

    if (child == NULL)
        return NULL;
    for (int i = 0; i < L2_PT_SIZE; i++) {
        if (parent[i] == -1)
            continue;
        child[i] = parent[i];
        engine->ref_count[child[i]]++;
    }
    return child;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL)
        return NULL;

    Sequence *parent = find_seq(engine, parent_seq_id);
    if (parent == NULL || find_seq(engine, new_seq_id) != NULL)
        return NULL;

    Sequence *child = new_seq(new_seq_id);
    if (child == NULL)
        return NULL;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        child->block_table[i] = share_l2_table(engine, parent->block_table[i]);
        if (child->block_table[i] == NULL) {
            release_seq(engine, child);
            return NULL;
        }
    }
    child->kv_count = parent->kv_count;
    list_add_tail(&engine->active_seqs, &child->node);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL)
        return -1;

    Sequence *seq = find_seq(engine, seq_id);
    if (seq == NULL)
        return -1;

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
        return -1;

    int *table = seq->block_table[logical_idx / L2_PT_SIZE];
    int block = table == NULL ? -1 : table[logical_idx % L2_PT_SIZE];
    int unmapped = block == -1;
    int shared = !unmapped && engine->ref_count[block] > 1;

    if ((unmapped || shared) && engine->free_local_blocks == 0)
        return -1;

    if (unmapped) {
        block = map_new_block(engine, seq, logical_idx);
        if (block == -1)
            return -1;
    } else if (shared) {
        block = copy_on_write(engine, &table[logical_idx % L2_PT_SIZE]);
    }

    int *records = (int *)block_addr(engine, block);
    records[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL)
        return -1;

    struct list_node *head = &engine->active_seqs;
    struct list_node *cur = head->next;
    while (cur != head) {
        struct list_node *next = cur->next;
        free_sequence(engine, node_to_seq(cur)->seq_id);
        cur = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
