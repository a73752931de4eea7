// llm_memory.c -- paged KV cache: engine, sequences, block tables.

#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define TABLE_SPAN (L1_PT_SIZE * L2_PT_SIZE)
#define node_to_seq(n) ((Sequence *)(void *)((unsigned char *)(n) - offsetof(Sequence, node)))
#define for_each_node(n, eng) \
    for (struct list_node *n = (eng)->active_seqs.next; n != &(eng)->active_seqs; n = n->next)

// position of a logical block in the two table levels
struct pt_pos {
    int l1;
    int l2;
};

static inline struct pt_pos pm_pos(int logical) {
    struct pt_pos pos = { logical / L2_PT_SIZE, logical % L2_PT_SIZE };
    return pos;
}

static inline Sequence *pm_lookup(LLMEngine *eng, int id) {
    for_each_node(n, eng) {
        if (node_to_seq(n)->seq_id == id)
            return node_to_seq(n);
    }
    return NULL;
}

static inline void pm_link_tail(LLMEngine *eng, Sequence *seq) {
    struct list_node *head = &eng->active_seqs;
    struct list_node *last = head->prev;

    seq->node.next = head;
    seq->node.prev = last;
    last->next = &seq->node;
    head->prev = &seq->node;
}

static inline void pm_unlink(Sequence *seq) {
    struct list_node *before = seq->node.prev;
    struct list_node *after = seq->node.next;

    before->next = after;
    after->prev = before;
}

static inline int *pm_l2_new(void) {
    int *table = malloc(sizeof(int) * L2_PT_SIZE);

    if (table)
        memset(table, 0xff, sizeof(int) * L2_PT_SIZE);
    return table;
}

static inline Sequence *pm_seq_new(int id) {
    Sequence *seq = calloc(1, sizeof *seq);

    seq->seq_id = id;
    seq->block_table = calloc(L1_PT_SIZE, sizeof *seq->block_table);
    return seq;
}

static inline int pm_first_fit(const LLMEngine *eng) {
    for (int b = 0; b < eng->total_local_blocks; ++b)
        if (!eng->ref_count[b])
            return b;
    return -1;
}

static inline int pm_claim(LLMEngine *eng) {
    int b = pm_first_fit(eng);

    eng->ref_count[b] = 1;
    eng->free_local_blocks -= 1;
    return b;
}

static inline void pm_release(LLMEngine *eng, int b) {
    if (--eng->ref_count[b] == 0)
        eng->free_local_blocks += 1;
}

static inline void *pm_addr(const LLMEngine *eng, int b) {
    return (unsigned char *)eng->pool_base_ptr + (size_t)BLOCK_SIZE * (size_t)b;
}

// gives back everything a sequence owns
__attribute__((noinline)) static void pm_seq_delete(LLMEngine *eng, Sequence *seq) {
    pm_unlink(seq);
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        int *table = seq->block_table[i];

        if (!table)
            continue;
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            if (table[j] != -1)
                pm_release(eng, table[j]);
        }
        free(table);
    }
    free(seq->block_table);
    free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    LLMEngine *eng;

    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;

    eng = calloc(1, sizeof *eng);
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = eng->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof *eng->ref_count);
    eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs)
        pm_seq_delete(engine, node_to_seq(engine->active_seqs.next));
    free(engine->ref_count);
    free(engine);
    return 0;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    Sequence *seq;
    int count;

    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || pm_lookup(engine, seq_id))
        return NULL;
    count = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (count > TABLE_SPAN || count > engine->free_local_blocks)
        return NULL;

    seq = pm_seq_new(seq_id);
    for (int logical = 0; logical < count; logical++) {
        struct pt_pos pos = pm_pos(logical);

        if (!seq->block_table[pos.l1])
            seq->block_table[pos.l1] = pm_l2_new();
        seq->block_table[pos.l1][pos.l2] = pm_claim(engine);
    }
    seq->kv_count = initial_kv_len;
    pm_link_tail(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    Sequence *seq;

    if (engine == NULL)
        return -1;
    seq = pm_lookup(engine, seq_id);
    if (!seq)
        return -1;
    pm_seq_delete(engine, seq);
    seq->kv_count = 0;
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    Sequence *parent, *child;

    if (engine == NULL)
        return NULL;
    parent = pm_lookup(engine, parent_seq_id);
    if (!parent || pm_lookup(engine, new_seq_id))
        return NULL;

    child = pm_seq_new(new_seq_id);
    child->kv_count = parent->kv_count;
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (!parent->block_table[i])
            continue;
        child->block_table[i] = pm_l2_new();
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            int b = parent->block_table[i][j];

            if (b == -1)
                continue;
            child->block_table[i][j] = b;
            engine->ref_count[b] += 1;
        }
    }
    pm_link_tail(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    Sequence *seq;
    struct pt_pos pos;
    int logical, offset, old, fresh;

    if (engine == NULL)
        return -1;
    seq = pm_lookup(engine, seq_id);
    if (!seq)
        return -1;

    logical = seq->kv_count / KV_PER_BLOCK;
    offset = seq->kv_count % KV_PER_BLOCK;
    if (logical >= TABLE_SPAN)
        return -1;
    pos = pm_pos(logical);

    old = seq->block_table[pos.l1] ? seq->block_table[pos.l1][pos.l2] : -1;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (!seq->block_table[pos.l1])
            seq->block_table[pos.l1] = pm_l2_new();
        fresh = pm_claim(engine);
        seq->block_table[pos.l1][pos.l2] = fresh;
        if (old != -1) {
            memcpy(pm_addr(engine, fresh), pm_addr(engine, old), BLOCK_SIZE);
            pm_release(engine, old);
        }
    }

    int *cell = (int *)pm_addr(engine, seq->block_table[pos.l1][pos.l2]) + offset;
    *cell = kv_data;
    seq->kv_count += 1;
    return 0;
}
