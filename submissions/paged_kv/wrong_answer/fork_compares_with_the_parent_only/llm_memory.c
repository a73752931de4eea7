#include "llm_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// What one append is going to do. Filled in first, carried out afterwards.
struct append_plan {
    int l1;
    int l2;
    int offset;
    int current;      // physical block mapped now, -1 if none
    bool needs_table; // L2 table is missing
    bool needs_block; // new page or copy on write
    bool is_cow;
};

static Sequence *seq_from_node(struct list_node *n) {
    uint8_t *raw = (uint8_t *)n;
    return (Sequence *)(raw - offsetof(Sequence, node));
}

static bool find_seq(LLMEngine *engine, int id, Sequence **out) {
    struct list_node *head = &engine->active_seqs;
    for (struct list_node *n = head->next; n != head; n = n->next) {
        Sequence *s = seq_from_node(n);
        if (s->seq_id == id) {
            if (out != NULL) *out = s;
            return true;
        }
    }
    return false;
}

static void link_between(struct list_node *n, struct list_node *before, struct list_node *after) {
    before->next = n;
    n->prev = before;
    n->next = after;
    after->prev = n;
}

static void unlink_node(struct list_node *n) {
    struct list_node *before = n->prev;
    struct list_node *after = n->next;
    before->next = after;
    after->prev = before;
}

static int take_free_block(LLMEngine *engine) {
    int id = -1;
    for (int i = 0; i < engine->total_local_blocks; ++i) {
        if (engine->ref_count[i] == 0) {
            id = i;
            break;
        }
    }
    if (id != -1) {
        engine->ref_count[id] = 1;
        engine->free_local_blocks -= 1;
    }
    return id;
}

static void drop_block(LLMEngine *engine, int id) {
    engine->ref_count[id] -= 1;
    if (engine->ref_count[id] == 0)
        engine->free_local_blocks += 1;
}

static void *block_ptr(LLMEngine *engine, int id) {
    uint8_t *base = engine->pool_base_ptr;
    return base + (size_t)BLOCK_SIZE * (size_t)id;
}

static int *make_l2(void) {
    int *l2 = malloc(sizeof(int) * L2_PT_SIZE);
    if (l2 == NULL) return NULL;
    for (int k = 0; k < L2_PT_SIZE; ++k)
        l2[k] = -1;
    return l2;
}

static int **make_l1(void) {
    int **l1 = malloc(sizeof(int *) * L1_PT_SIZE);
    if (l1 == NULL) return NULL;
    for (int k = 0; k < L1_PT_SIZE; ++k)
        l1[k] = NULL;
    return l1;
}

// Gives back all blocks and all tables.
static void tear_down_tables(LLMEngine *engine, int **l1) {
    for (int a = 0; a < L1_PT_SIZE; ++a) {
        int *l2 = l1[a];
        if (l2 != NULL) {
            for (int b = 0; b < L2_PT_SIZE; ++b) {
                if (l2[b] != -1)
                    drop_block(engine, l2[b]);
            }
            free(l2);
        }
    }
    free(l1);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;

    int count = (int)(pool_size / BLOCK_SIZE);
    int *refs = calloc((size_t)count, sizeof(int));
    LLMEngine *engine = malloc(sizeof *engine);
    if (refs == NULL || engine == NULL) {
        free(refs);
        free(engine);
        return NULL;
    }

    *engine = (LLMEngine){
        .pool_base_ptr = pool_addr,
        .total_local_blocks = count,
        .free_local_blocks = count,
        .ref_count = refs,
    };
    struct list_node *head = &engine->active_seqs;
    head->prev = head;
    head->next = head;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (find_seq(engine, seq_id, NULL)) return NULL;

    // round up without adding first
    int blocks = initial_kv_len / KV_PER_BLOCK;
    if (initial_kv_len % KV_PER_BLOCK != 0)
        blocks++;
    if (blocks > MAX_LOGICAL_BLOCKS) return NULL;
    if (blocks > engine->free_local_blocks) return NULL;

    Sequence *seq = malloc(sizeof *seq);
    if (seq == NULL) return NULL;
    int **l1 = make_l1();
    if (l1 == NULL) {
        free(seq);
        return NULL;
    }

    int mapped = 0;
    for (int a = 0; a < L1_PT_SIZE && mapped < blocks; ++a) {
        l1[a] = make_l2();
        if (l1[a] == NULL) goto fail;
        for (int b = 0; b < L2_PT_SIZE && mapped < blocks; ++b) {
            int id = take_free_block(engine);
            if (id == -1) goto fail;
            l1[a][b] = id;
            mapped++;
        }
    }

    seq->seq_id = seq_id;
    seq->block_table = l1;
    seq->kv_count = initial_kv_len;
    link_between(&seq->node, engine->active_seqs.prev, &engine->active_seqs);
    return seq;

fail:
    tear_down_tables(engine, l1);
    free(seq);
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;

    Sequence *seq = NULL;
    if (!find_seq(engine, seq_id, &seq)) return -1;

    unlink_node(&seq->node);
    tear_down_tables(engine, seq->block_table);
    free(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;

    Sequence *parent = NULL;
    if (!find_seq(engine, parent_seq_id, &parent)) return NULL;
    if (new_seq_id == parent->seq_id) return NULL;

    Sequence *child = malloc(sizeof *child);
    if (child == NULL) return NULL;
    int **l1 = make_l1();
    if (l1 == NULL) {
        free(child);
        return NULL;
    }

    // first get all the tables, then share the blocks
    for (int a = 0; a < L1_PT_SIZE; ++a) {
        if (parent->block_table[a] == NULL) continue;
        l1[a] = make_l2();
        if (l1[a] == NULL) {
            tear_down_tables(engine, l1);
            free(child);
            return NULL;
        }
    }
    for (int a = 0; a < L1_PT_SIZE; ++a) {
        if (l1[a] == NULL) continue;
        for (int b = 0; b < L2_PT_SIZE; ++b) {
            int id = parent->block_table[a][b];
            l1[a][b] = id;
            if (id != -1)
                engine->ref_count[id] += 1;
        }
    }

    child->seq_id = new_seq_id;
    child->block_table = l1;
    child->kv_count = parent->kv_count;
    link_between(&child->node, engine->active_seqs.prev, &engine->active_seqs);
    return child;
}

// Looks only, changes nothing. False if the append cannot be done.
static bool plan_append(const LLMEngine *engine, const Sequence *seq, struct append_plan *plan) {
    int logical = seq->kv_count / KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS) return false;

    plan->l1 = logical / L2_PT_SIZE;
    plan->l2 = logical % L2_PT_SIZE;
    plan->offset = seq->kv_count % KV_PER_BLOCK;

    const int *table = seq->block_table[plan->l1];
    plan->needs_table = (table == NULL);
    plan->current = (table == NULL) ? -1 : table[plan->l2];
    plan->is_cow = plan->current != -1 && engine->ref_count[plan->current] > 1;
    plan->needs_block = plan->current == -1 || plan->is_cow;

    if (plan->needs_block && engine->free_local_blocks == 0) return false;
    return true;
}

// Carries the plan out. False only if the machine has no memory left for a table.
static bool commit_append(LLMEngine *engine, Sequence *seq, const struct append_plan *plan, int value) {
    if (plan->needs_table) {
        int *fresh = make_l2();
        if (fresh == NULL) return false;
        seq->block_table[plan->l1] = fresh;
    }

    int target = plan->current;
    if (plan->needs_block) {
        target = take_free_block(engine);
        if (target == -1) return false;
        if (plan->is_cow) {
            memcpy(block_ptr(engine, target), block_ptr(engine, plan->current), BLOCK_SIZE);
            drop_block(engine, plan->current);
        }
        seq->block_table[plan->l1][plan->l2] = target;
    }

    int *record = (int *)block_ptr(engine, target);
    record[plan->offset] = value;
    seq->kv_count += 1;
    return true;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;

    Sequence *seq = NULL;
    if (!find_seq(engine, seq_id, &seq)) return -1;

    struct append_plan plan;
    if (!plan_append(engine, seq, &plan)) return -1;
    return commit_append(engine, seq, &plan, kv_data) ? 0 : -1;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;

    struct list_node *head = &engine->active_seqs;
    while (head->next != head) {
        Sequence *seq = seq_from_node(head->next);
        unlink_node(&seq->node);
        tear_down_tables(engine, seq->block_table);
        free(seq);
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
