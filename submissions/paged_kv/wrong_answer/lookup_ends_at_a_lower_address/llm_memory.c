/*
 * CS110 Homework 3 - PagedAttention memory manager
 *
 * Layout of this file:
 *   1. small helpers (list, lookup, block allocation)
 *   2. the six API functions in the order of the handout
 */
#include "llm_memory.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ */
/* Helpers                                                            */
/* ------------------------------------------------------------------ */

/* Recover the Sequence that contains this list node. */
static Sequence *node_to_seq(struct list_node *node)
{
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

/* Walk over the active list and look for seq_id. NULL if it is not there. */
static Sequence *find_sequence(LLMEngine *engine, int seq_id)
{
    struct list_node *cur = engine->active_seqs.next;

    /* the dummy head lies before all nodes, because it is in the engine */
    while (cur > &engine->active_seqs) {
        Sequence *seq = node_to_seq(cur);
        if (seq->seq_id == seq_id) {
            return seq;
        }
        cur = cur->next;
    }
    return NULL;
}

/* Put a node at the tail of the list (just before the dummy head). */
static void list_add_tail(struct list_node *head, struct list_node *node)
{
    struct list_node *last = head->prev;

    node->prev = last;
    node->next = head;
    last->next = node;
    head->prev = node;
}

/* Take a node out of the list it is in. */
static void list_remove(struct list_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = NULL;
    node->next = NULL;
}

/* First fit: take the first block nobody uses. Returns -1 if all are used. */
static int alloc_block(LLMEngine *engine)
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

/* Give up one reference to a block. */
static void put_block(LLMEngine *engine, int block_id)
{
    if (block_id < 0 || block_id >= engine->total_local_blocks) {
        return;
    }
    engine->ref_count[block_id]--;
    if (engine->ref_count[block_id] == 0) {
        engine->free_local_blocks++;
    }
}

/* Address of the first byte of a physical block. */
static char *block_address(LLMEngine *engine, int block_id)
{
    return (char *)engine->pool_base_ptr + (size_t)block_id * BLOCK_SIZE;
}

/* A fresh L2 table in which every entry is "not mapped". */
static int *new_l2_table(void)
{
    int *table = malloc(L2_PT_SIZE * sizeof(int));

    if (table == NULL) {
        return NULL;
    }
    for (int i = 0; i < L2_PT_SIZE; i++) {
        table[i] = -1;
    }
    return table;
}

/* A fresh sequence with an empty L1 table; not yet in any list. */
static Sequence *new_sequence(int seq_id)
{
    Sequence *seq = malloc(sizeof(Sequence));

    if (seq == NULL) {
        return NULL;
    }
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    seq->seq_id = seq_id;
    seq->kv_count = 0;
    seq->node.prev = NULL;
    seq->node.next = NULL;
    return seq;
}

/* Release everything that a (detached) sequence holds. */
static void release_sequence(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL) {
            continue; /* there may be more tables after an empty slot */
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (seq->block_table[i][j] != -1) {
                put_block(engine, seq->block_table[i][j]);
            }
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

/* ------------------------------------------------------------------ */
/* Task 1: engine initialization                                      */
/* ------------------------------------------------------------------ */
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL) {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL) {
        return NULL;
    }

    size_t blocks = pool_size / BLOCK_SIZE;
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)blocks;
    engine->free_local_blocks = engine->total_local_blocks;

    engine->ref_count = calloc(blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }

    /* empty list: the dummy head points to itself */
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

/* ------------------------------------------------------------------ */
/* Task 2: creation and deletion                                      */
/* ------------------------------------------------------------------ */
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    /* Phase 1: basic validity */
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }

    /* Phase 2: the id must be new */
    if (find_sequence(engine, seq_id) != NULL) {
        return NULL;
    }

    /* Phase 3: are there enough blocks? */
    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) {
        return NULL;
    }
    int needed = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (needed > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *seq = new_sequence(seq_id);
    if (seq == NULL) {
        return NULL;
    }

    /* Map the logical blocks one after another. */
    for (int logical = 0; logical < needed; logical++) {
        int l1 = logical / L2_PT_SIZE;
        int l2 = logical % L2_PT_SIZE;

        if (seq->block_table[l1] == NULL) {
            seq->block_table[l1] = new_l2_table();
            if (seq->block_table[l1] == NULL) {
                release_sequence(engine, seq);
                return NULL;
            }
        }

        int block = alloc_block(engine);
        if (block < 0) {
            release_sequence(engine, seq);
            return NULL;
        }
        seq->block_table[l1][l2] = block;
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

    Sequence *seq = find_sequence(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }

    list_remove(&seq->node);
    release_sequence(engine, seq);
    return 0;
}

/* ------------------------------------------------------------------ */
/* Task 3: fork                                                       */
/* ------------------------------------------------------------------ */
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) {
        return NULL;
    }

    Sequence *parent = find_sequence(engine, parent_seq_id);
    if (parent == NULL) {
        return NULL;
    }
    if (find_sequence(engine, new_seq_id) != NULL) {
        return NULL;
    }

    Sequence *child = new_sequence(new_seq_id);
    if (child == NULL) {
        return NULL;
    }

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = new_l2_table();
        if (child->block_table[i] == NULL) {
            release_sequence(engine, child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int block = parent->block_table[i][j];
            if (block != -1) {
                child->block_table[i][j] = block;
                engine->ref_count[block]++;
            }
        }
    }

    child->kv_count = parent->kv_count;
    list_add_tail(&engine->active_seqs, &child->node);
    return child;
}

/* ------------------------------------------------------------------ */
/* Task 4: append                                                     */
/* ------------------------------------------------------------------ */
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) {
        return -1;
    }

    Sequence *seq = find_sequence(engine, seq_id);
    if (seq == NULL) {
        return -1;
    }

    /* Address translation */
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int l1 = logical_idx / L2_PT_SIZE;
    int l2 = logical_idx % L2_PT_SIZE;

    /* What is mapped there at the moment? */
    int old_block = -1;
    if (seq->block_table[l1] != NULL) {
        old_block = seq->block_table[l1][l2];
    }

    /* OOM interception */
    int need_block = 0;
    if (old_block == -1) {
        need_block = 1;
    } else if (engine->ref_count[old_block] > 1) {
        need_block = 1;
    }
    if (need_block && engine->free_local_blocks == 0) {
        return -1;
    }

    if (seq->block_table[l1] == NULL) {
        seq->block_table[l1] = new_l2_table();
        if (seq->block_table[l1] == NULL) {
            return -1;
        }
    }

    int target = old_block;
    if (need_block) {
        target = alloc_block(engine);
        if (target < 0) {
            return -1;
        }
        if (old_block != -1) {
            /* copy-on-write */
            memcpy(block_address(engine, target), block_address(engine, old_block), BLOCK_SIZE);
            put_block(engine, old_block);
        }
        seq->block_table[l1][l2] = target;
    }

    int *slots = (int *)block_address(engine, target);
    slots[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

/* ------------------------------------------------------------------ */
/* Task 5: destruction                                                */
/* ------------------------------------------------------------------ */
int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) {
        return -1;
    }

    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        struct list_node *next = cur->next; /* save it, cur is going away */
        Sequence *seq = node_to_seq(cur);
        list_remove(cur);
        release_sequence(engine, seq);
        cur = next;
    }

    /* the pool belongs to the caller */
    free(engine->ref_count);
    free(engine);
    return 0;
}
