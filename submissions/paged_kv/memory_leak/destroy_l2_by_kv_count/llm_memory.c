#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

/* Task 1: build the management structures around the given pool. */
LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL) {
        return NULL;
    } else if (pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL) {
        return NULL;
    }

    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;

    /* one counter per physical block */
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }

    /* empty circular list */
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;

    return engine;
}

/* Task 2: create a sequence that already holds initial_kv_len records. */
Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }

    /* look whether the id is already in use */
    struct list_node *dummy = &engine->active_seqs;
    struct list_node *it;
    for (it = dummy->next; it != dummy; it = it->next) {
        Sequence *item = (Sequence *)((char *)it - offsetof(Sequence, node));
        if (item->seq_id == seq_id) {
            return NULL;
        }
    }

    /* number of blocks, then capacity checks */
    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) {
        return NULL;
    }
    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > MAX_LOGICAL_BLOCKS) {
        return NULL;
    } else if (required > engine->free_local_blocks) {
        return NULL;
    }

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

    /* map every required logical block */
    for (int i = 0; i < required; i++) {
        int l1_index = i / L2_PT_SIZE;
        int l2_index = i % L2_PT_SIZE;

        if (seq->block_table[l1_index] == NULL) {
            seq->block_table[l1_index] = malloc(L2_PT_SIZE * sizeof(int));
            if (seq->block_table[l1_index] == NULL) {
                /* undo what was mapped so far */
                for (int j = 0; j < i; j++) {
                    int mapped = seq->block_table[j / L2_PT_SIZE][j % L2_PT_SIZE];
                    engine->ref_count[mapped] = 0;
                    engine->free_local_blocks++;
                }
                for (int j = 0; j < L1_PT_SIZE; j++) {
                    free(seq->block_table[j]);
                }
                free(seq->block_table);
                free(seq);
                return NULL;
            }
            for (int j = 0; j < L2_PT_SIZE; j++) {
                seq->block_table[l1_index][j] = -1;
            }
        }

        /* first block that nobody uses */
        int physical = -1;
        for (int j = 0; j < engine->total_local_blocks; j++) {
            if (engine->ref_count[j] == 0) {
                physical = j;
                break;
            }
        }

        seq->block_table[l1_index][l2_index] = physical;
        engine->ref_count[physical] = 1;
        engine->free_local_blocks--;
    }

    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;

    /* link the node in front of the dummy head */
    seq->node.prev = dummy->prev;
    seq->node.next = dummy;
    dummy->prev->next = &seq->node;
    dummy->prev = &seq->node;

    return seq;
}

/* Task 2: delete a sequence and give its blocks back. */
int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }

    /* search the target */
    struct list_node *dummy = &engine->active_seqs;
    struct list_node *it;
    Sequence *seq = NULL;
    for (it = dummy->next; it != dummy; it = it->next) {
        Sequence *item = (Sequence *)((char *)it - offsetof(Sequence, node));
        if (item->seq_id == seq_id) {
            seq = item;
            break;
        }
    }
    if (seq == NULL) {
        return -1;
    }

    /* take the node out of the list */
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;

    /* go through all slots of both levels */
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] != NULL) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                int physical = seq->block_table[i][j];
                if (physical != -1) {
                    engine->ref_count[physical]--;
                    if (engine->ref_count[physical] == 0) {
                        engine->free_local_blocks++;
                    }
                }
            }
            free(seq->block_table[i]);
        }
    }

    free(seq->block_table);
    free(seq);
    return 0;
}

/* Task 3: create a child that shares the blocks of its parent. */
Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }

    /* find the parent and look for the new id in the list */
    struct list_node *dummy = &engine->active_seqs;
    struct list_node *it;
    Sequence *parent = NULL;
    for (it = dummy->next; it != dummy; it = it->next) {
        Sequence *item = (Sequence *)((char *)it - offsetof(Sequence, node));
        if (item->seq_id == new_seq_id) {
            return NULL;
        }
        if (item->seq_id == parent_seq_id) {
            parent = item;
        }
    }
    if (parent == NULL) {
        return NULL;
    }

    Sequence *child = malloc(sizeof(Sequence));
    if (child == NULL) {
        return NULL;
    }
    child->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (child->block_table == NULL) {
        free(child);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        child->block_table[i] = NULL;
    }

    /* allocate all L2 tables of the child */
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] != NULL) {
            child->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
            if (child->block_table[i] == NULL) {
                for (int j = 0; j < i; j++) {
                    free(child->block_table[j]);
                }
                free(child->block_table);
                free(child);
                return NULL;
            }
            for (int j = 0; j < L2_PT_SIZE; j++) {
                child->block_table[i][j] = -1;
            }
        }
    }

    /* copy the entries and count the new user of each block */
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] != NULL) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                int physical = parent->block_table[i][j];
                if (physical != -1) {
                    child->block_table[i][j] = physical;
                    engine->ref_count[physical]++;
                }
            }
        }
    }

    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    /* link the child into the list */
    child->node.prev = dummy->prev;
    child->node.next = dummy;
    dummy->prev->next = &child->node;
    dummy->prev = &child->node;

    return child;
}

/* Task 4: append one record to a sequence. */
int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }

    /* search the sequence */
    struct list_node *dummy = &engine->active_seqs;
    struct list_node *it;
    Sequence *seq = NULL;
    for (it = dummy->next; it != dummy; it = it->next) {
        Sequence *item = (Sequence *)((char *)it - offsetof(Sequence, node));
        if (item->seq_id == seq_id) {
            seq = item;
            break;
        }
    }
    if (seq == NULL) {
        return -1;
    }

    /* translate the position of the record */
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int l1_index = logical_idx / L2_PT_SIZE;
    int l2_index = logical_idx % L2_PT_SIZE;

    /* what is in the slot now */
    int physical = -1;
    if (seq->block_table[l1_index] != NULL) {
        physical = seq->block_table[l1_index][l2_index];
    }

    /* decide what this append has to do */
    int need_new_page = 0;
    int need_copy = 0;
    if (physical == -1) {
        need_new_page = 1;
    } else if (engine->ref_count[physical] > 1) {
        need_copy = 1;
    } else {
        need_new_page = 0;
        need_copy = 0;
    }

    if (need_new_page || need_copy) {
        if (engine->free_local_blocks == 0) {
            return -1;
        }
    }

    if (seq->block_table[l1_index] == NULL) {
        int *table = malloc(L2_PT_SIZE * sizeof(int));
        if (table == NULL) {
            return -1;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            table[j] = -1;
        }
        seq->block_table[l1_index] = table;
    }

    if (need_new_page) {
        /* map a fresh block */
        int fresh = -1;
        for (int i = 0; i < engine->total_local_blocks; i++) {
            if (engine->ref_count[i] == 0) {
                fresh = i;
                break;
            }
        }
        seq->block_table[l1_index][l2_index] = fresh;
        engine->ref_count[fresh] = 1;
        engine->free_local_blocks--;
        physical = fresh;
    } else if (need_copy) {
        /* copy the shared block into a private one */
        int fresh = -1;
        for (int i = 0; i < engine->total_local_blocks; i++) {
            if (engine->ref_count[i] == 0) {
                fresh = i;
                break;
            }
        }
        char *from = (char *)engine->pool_base_ptr + (size_t)physical * BLOCK_SIZE;
        char *to = (char *)engine->pool_base_ptr + (size_t)fresh * BLOCK_SIZE;
        memcpy(to, from, BLOCK_SIZE);
        engine->ref_count[physical]--;
        engine->ref_count[fresh] = 1;
        seq->block_table[l1_index][l2_index] = fresh;
        engine->free_local_blocks--;
        physical = fresh;
    }

    /* write the record */
    int *block = (int *)((char *)engine->pool_base_ptr + (size_t)physical * BLOCK_SIZE);
    block[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

/* Task 5: release everything except the pool. */
int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }

    struct list_node *dummy = &engine->active_seqs;
    struct list_node *it = dummy->next;
    while (it != dummy) {
        struct list_node *following = it->next;
        Sequence *seq = (Sequence *)((char *)it - offsetof(Sequence, node));
        int tables = seq->kv_count / (L2_PT_SIZE * KV_PER_BLOCK);
        for (int i = 0; i < tables; i++) {
            if (seq->block_table[i] != NULL) {
                free(seq->block_table[i]);
            }
        }
        free(seq->block_table);
        free(seq);
        it = following;
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
