#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define SEQ_OF(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))
#define OUTER(idx) ((idx) % L1_PT_SIZE)
#define INNER(idx) ((idx) / L1_PT_SIZE)

static Sequence *lookup(LLMEngine *engine, int id) {
    struct list_node *head = &engine->active_seqs;
    for (struct list_node *cur = head->next; cur != head; cur = cur->next) {
        if (SEQ_OF(cur)->seq_id == id) {
            return SEQ_OF(cur);
        }
    }
    return NULL;
}

static int take_block(LLMEngine *engine) {
    for (int id = 0; id < engine->total_local_blocks; id++) {
        if (engine->ref_count[id] == 0) {
            engine->ref_count[id] = 1;
            engine->free_local_blocks--;
            return id;
        }
    }
    return -1;
}

static int *make_l2(void) {
    int *table = malloc(sizeof(int) * L2_PT_SIZE);
    if (table != NULL) {
        for (int i = 0; i < L2_PT_SIZE; i++) {
            table[i] = -1;
        }
    }
    return table;
}

static Sequence *make_seq(int id, int count) {
    Sequence *seq = malloc(sizeof(*seq));
    if (seq == NULL) {
        return NULL;
    }
    seq->seq_id = id;
    seq->kv_count = count;
    seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    return seq;
}

static void push_back(LLMEngine *engine, Sequence *seq) {
    struct list_node *last = engine->active_seqs.prev;
    seq->node.prev = last;
    seq->node.next = &engine->active_seqs;
    last->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
}

static void drop_seq(LLMEngine *engine, Sequence *seq) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *table = seq->block_table[i];
        if (table == NULL) {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (table[j] != -1 && --engine->ref_count[table[j]] == 0) {
                engine->free_local_blocks++;
            }
        }
        free(table);
    }
    free(seq->block_table);
    free(seq);
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }
    int blocks = (int)(pool_size / BLOCK_SIZE);
    LLMEngine *engine = malloc(sizeof(*engine));
    int *refs = calloc((size_t)blocks, sizeof(int));
    if (engine == NULL || refs == NULL) {
        free(engine);
        free(refs);
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = blocks;
    engine->free_local_blocks = blocks;
    engine->ref_count = refs;
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0 || initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) {
        return NULL;
    }
    if (lookup(engine, seq_id) != NULL) {
        return NULL;
    }
    int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *seq = make_seq(seq_id, initial_kv_len);
    if (seq == NULL) {
        return NULL;
    }
    for (int idx = 0; idx < blocks; idx++) {
        if (seq->block_table[OUTER(idx)] == NULL) {
            seq->block_table[OUTER(idx)] = make_l2();
            if (seq->block_table[OUTER(idx)] == NULL) {
                drop_seq(engine, seq);
                return NULL;
            }
        }
        seq->block_table[OUTER(idx)][INNER(idx)] = take_block(engine);
    }
    push_back(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *seq = lookup(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }
    seq->node.next->prev = seq->node.prev;
    seq->node.prev->next = seq->node.next;
    drop_seq(engine, seq);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }
    Sequence *parent = lookup(engine, parent_seq_id);
    if (parent == NULL || lookup(engine, new_seq_id) != NULL) {
        return NULL;
    }
    Sequence *child = make_seq(new_seq_id, parent->kv_count);
    if (child == NULL) {
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = make_l2();
        if (child->block_table[i] == NULL) {
            drop_seq(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int id = parent->block_table[i][j];
            if (id != -1) {
                child->block_table[i][j] = id;
                engine->ref_count[id]++;
            }
        }
    }
    push_back(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *seq = lookup(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }
    int idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (idx >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }

    int *table = seq->block_table[OUTER(idx)];
    int current = (table == NULL) ? -1 : table[INNER(idx)];
    int shared = (current != -1 && engine->ref_count[current] > 1);
    if ((current == -1 || shared) && engine->free_local_blocks == 0) {
        return -1;
    }

    if (table == NULL) {
        table = make_l2();
        if (table == NULL) {
            return -1;
        }
        seq->block_table[OUTER(idx)] = table;
    }

    char *base = engine->pool_base_ptr;
    if (current == -1) {
        table[INNER(idx)] = take_block(engine);
    } else if (shared) {
        int fresh = take_block(engine);
        memcpy(base + (size_t)fresh * BLOCK_SIZE, base + (size_t)current * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[current]--;
        table[INNER(idx)] = fresh;
    }

    int *slot = (int *)(base + (size_t)table[INNER(idx)] * BLOCK_SIZE) + offset;
    *slot = kv_data;
    seq->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        Sequence *seq = SEQ_OF(cur);
        cur = cur->next;
        drop_seq(engine, seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
