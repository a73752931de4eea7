/* Homework 3: paged KV memory manager */
#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

// get the struct back from its embedded node
#define list_entry(ptr, type, member) \
    ((type *)((char *)(ptr) - offsetof(type, member)))

static void unlink_node(struct list_node *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
}

// linear search over the active list, NULL if there is no such id
static Sequence *get_sequence_by_id(LLMEngine *engine, int seq_id) {
    struct list_node *pos;

    for (pos = engine->active_seqs.next; pos != &engine->active_seqs; pos = pos->next) {
        Sequence *s = list_entry(pos, Sequence, node);
        if (s->seq_id == seq_id) {
            return s;
        }
    }
    return NULL;
}

static void add_to_tail(struct list_node *node, struct list_node *head) {
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

// first fit
static int pick_free_block(LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; ++i) {
        if (engine->ref_count[i] == 0) {
            return i;
        }
    }
    return -1;
}

// give back all blocks and all memory of a sequence (already unlinked)
static void drop_sequence(LLMEngine *engine, Sequence *s) {
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        int *l2 = s->block_table[i];
        if (!l2) {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            int phys = l2[j];
            if (phys != -1) {
                engine->ref_count[phys]--;
                if (engine->ref_count[phys] == 0) {
                    engine->free_local_blocks++;
                }
            }
        }
        free(l2);
    }
    free(s->block_table);
    free(s);
}

static int *make_l2_table(void) {
    int *l2 = malloc(L2_PT_SIZE * sizeof(int));

    for (int i = 0; i < L2_PT_SIZE; ++i) {
        l2[i] = -1;
    }
    return l2;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (!engine) {
        return NULL;
    }
    if (initial_kv_len == 0) {
        return NULL;
    }
    if (get_sequence_by_id(engine, seq_id) != NULL) {
        return NULL;
    }

    // capacity check before anything is allocated
    int blocks_needed = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks_needed > MAX_LOGICAL_BLOCKS || blocks_needed > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *s = malloc(sizeof(Sequence));
    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        s->block_table[i] = NULL;
    }

    for (int i = 0; i < blocks_needed; ++i) {
        int l1_idx = i / L2_PT_SIZE;
        int l2_idx = i % L2_PT_SIZE;
        if (s->block_table[l1_idx] == NULL) {
            s->block_table[l1_idx] = make_l2_table();
        }
        int phys = pick_free_block(engine);
        s->block_table[l1_idx][l2_idx] = phys;
        engine->ref_count[phys] = 1;
        engine->free_local_blocks--;
    }

    add_to_tail(&s->node, &engine->active_seqs);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (!engine) {
        return -1;
    }
    Sequence *s = get_sequence_by_id(engine, seq_id);
    if (!s) {
        return -1;
    }
    unlink_node(&s->node);
    drop_sequence(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (!engine) {
        return NULL;
    }
    Sequence *parent = get_sequence_by_id(engine, parent_seq_id);
    if (!parent) {
        return NULL;
    }
    if (get_sequence_by_id(engine, new_seq_id) != NULL) {
        return NULL;
    }

    Sequence *child = malloc(sizeof(Sequence));
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;
    child->block_table = malloc(L1_PT_SIZE * sizeof(int *));

    for (int i = 0; i < L1_PT_SIZE; ++i) {
        child->block_table[i] = NULL;
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = make_l2_table();
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            int phys = parent->block_table[i][j];
            if (phys != -1) {
                child->block_table[i][j] = phys;
                engine->ref_count[phys]++;
            }
        }
    }

    add_to_tail(&child->node, &engine->active_seqs);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (!engine) {
        return -1;
    }
    Sequence *s = get_sequence_by_id(engine, seq_id);
    if (!s) {
        return -1;
    }

    int logical_idx = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }

    int l1_idx = logical_idx / L2_PT_SIZE;
    int l2_idx = logical_idx % L2_PT_SIZE;
    int old_phys = -1;
    if (s->block_table[l1_idx] != NULL) {
        old_phys = s->block_table[l1_idx][l2_idx];
    }

    int need_new = (old_phys == -1 || engine->ref_count[old_phys] > 1);
    if (need_new && engine->free_local_blocks == 0) {
        return -1;
    }

    if (s->block_table[l1_idx] == NULL) {
        s->block_table[l1_idx] = make_l2_table();
    }

    char *pool = engine->pool_base_ptr;
    int phys = old_phys;
    if (need_new) {
        phys = pick_free_block(engine);
        if (old_phys != -1) {
            // copy on write
            memcpy(pool + (size_t)phys * BLOCK_SIZE, pool + (size_t)old_phys * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old_phys]--;
        }
        engine->ref_count[phys] = 1;
        engine->free_local_blocks--;
        s->block_table[l1_idx][l2_idx] = phys;
    }

    int *dst = (int *)(pool + (size_t)phys * BLOCK_SIZE);
    dst[offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (!engine) {
        return -1;
    }
    struct list_node *pos = engine->active_seqs.next;
    while (pos != &engine->active_seqs) {
        struct list_node *next = pos->next;
        drop_sequence(engine, list_entry(pos, Sequence, node));
        pos = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
