/*
 * Homework 3 - PagedAttention memory manager
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

// Task 1
LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL) {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine *eng = (LLMEngine *)malloc(sizeof(LLMEngine));
    if (eng == NULL) {
        return NULL;
    }
    int total = (int)(pool_size / BLOCK_SIZE);
    eng->ref_count = (int *)calloc((size_t)total, sizeof(int));
    if (eng->ref_count == NULL) {
        free(eng);
        return NULL;
    }
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = total;
    eng->free_local_blocks = total;

    // empty list: the head points to itself
    eng->active_seqs.prev = &eng->active_seqs;
    eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

// Task 2.1
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (NULL == engine) {
        return NULL;
    }

    // Phase 1: basic validity
    if (initial_kv_len <= 0) {
        return NULL;
    }

    // Phase 2: is this id already used?
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        Sequence *temp = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (temp->seq_id == seq_id) {
            return NULL;
        }
        cur = cur->next;
    }

    // Phase 3: are there enough blocks?
    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > 16 * 16) {
        return NULL;
    }
    if (required > engine->free_local_blocks) {
        return NULL;
    }

    // now build the sequence
    Sequence *seq = (Sequence *)malloc(sizeof(Sequence));
    int **table = (int **)malloc(sizeof(int *) * 16);
    for (int i = 0; i < 16; i++) {
        table[i] = NULL;
    }

    for (int k = 0; k < required; k++) {
        int l1_idx = k / 16;
        int l2_idx = k % 16;

        // new L2 table
        if (table[l1_idx] == NULL) {
            table[l1_idx] = (int *)malloc(sizeof(int) * 16);
            for (int j = 0; j < 16; j++) {
                table[l1_idx][j] = -1;
            }
        }

        // search a block from 0
        for (int b = 0; b < engine->total_local_blocks; b++) {
            if (engine->ref_count[b] == 0) {
                engine->ref_count[b] = 1;
                engine->free_local_blocks--;
                table[l1_idx][l2_idx] = b;
                break;
            }
        }
    }

    seq->seq_id = seq_id;
    seq->block_table = table;
    seq->kv_count = initial_kv_len;

    // insert at the tail
    struct list_node *tail = engine->active_seqs.prev;
    seq->node.prev = tail;
    seq->node.next = &engine->active_seqs;
    tail->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;
}

// Task 2.2
int free_sequence(LLMEngine *engine, int seq_id) {
    if (NULL == engine) {
        return -1;
    }

    // find it
    Sequence *seq = NULL;
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        Sequence *temp = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (temp->seq_id == seq_id) {
            seq = temp;
            break;
        }
        cur = cur->next;
    }
    if (seq == NULL) {
        return -1;
    }

    // detach
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;

    // release the blocks
    for (int i = 0; i < 16; i++) {
        if (seq->block_table[i] != NULL) {
            for (int j = 0; j < 16; j++) {
                int blockId = seq->block_table[i][j];
                if (blockId != -1) {
                    engine->ref_count[blockId]--;
                    if (engine->ref_count[blockId] == 0) {
                        engine->free_local_blocks++;
                    }
                }
            }
            free(seq->block_table[i]);
        }
    }

    // release the memory
    free(seq->block_table);
    free(seq);
    return 0;
}

// Task 3
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (NULL == engine) {
        return NULL;
    }

    // find the parent and check the new id in one walk
    Sequence *parent = NULL;
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        Sequence *temp = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (temp->seq_id == new_seq_id) {
            return NULL;
        }
        if (temp->seq_id == parent_seq_id) {
            parent = temp;
        }
        cur = cur->next;
    }
    if (parent == NULL) {
        return NULL;
    }

    Sequence *child = (Sequence *)malloc(sizeof(Sequence));
    child->block_table = (int **)malloc(sizeof(int *) * 16);
    for (int i = 0; i < 16; i++) {
        child->block_table[i] = NULL;
    }

    // copy the tables
    for (int i = 0; i < 16; i++) {
        if (parent->block_table[i] != NULL) {
            int *newL2 = (int *)malloc(sizeof(int) * 16);
            for (int j = 0; j < 16; j++) {
                newL2[j] = -1;
            }
            for (int j = 0; j < 16; j++) {
                int blockId = parent->block_table[i][j];
                if (blockId != -1) {
                    newL2[j] = blockId;
                    engine->ref_count[blockId]++;
                }
            }
            child->block_table[i] = newL2;
        }
    }
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    // insert at the tail
    struct list_node *tail = engine->active_seqs.prev;
    child->node.prev = tail;
    child->node.next = &engine->active_seqs;
    tail->next = &child->node;
    engine->active_seqs.prev = &child->node;
    return child;
}

// Task 4
int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (NULL == engine) {
        return -1;
    }

    // find the sequence
    Sequence *seq = NULL;
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs) {
        Sequence *temp = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (temp->seq_id == seq_id) {
            seq = temp;
            break;
        }
        cur = cur->next;
    }
    if (seq == NULL) {
        return -1;
    }

    // translate the address
    int logicalIdx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logicalIdx >= 16 * 16) {
        return -1;
    }
    int l1_idx = logicalIdx / 16;
    int l2_idx = logicalIdx % 16;

    // what do we have to do?
    int needNewPage = 0;
    int needCow = 0;
    if (seq->block_table[l1_idx] == NULL || seq->block_table[l1_idx][l2_idx] == -1) {
        needNewPage = 1;
    } else if (engine->ref_count[seq->block_table[l1_idx][l2_idx]] > 1) {
        needCow = 1;
    }

    // find a block for it
    int freeBlock = -1;
    if (needNewPage || needCow) {
        if (engine->free_local_blocks == 0) {
            return -1;
        }
        for (int b = 0; b < engine->total_local_blocks; b++) {
            if (engine->ref_count[b] == 0) {
                freeBlock = b;
                break;
            }
        }
    }

    if (needNewPage) {
        if (seq->block_table[l1_idx] == NULL) {
            seq->block_table[l1_idx] = (int *)malloc(sizeof(int) * 16);
            for (int j = 0; j < 16; j++) {
                seq->block_table[l1_idx][j] = -1;
            }
        }
        seq->block_table[l1_idx][l2_idx] = freeBlock;
        engine->ref_count[freeBlock] = 1;
        engine->free_local_blocks--;
    }

    if (needCow) {
        int oldBlock = seq->block_table[l1_idx][l2_idx];
        char *src = (char *)engine->pool_base_ptr + (long)oldBlock * BLOCK_SIZE;
        char *dst = (char *)engine->pool_base_ptr + (long)freeBlock * BLOCK_SIZE;
        memcpy(dst, src, BLOCK_SIZE);
        engine->ref_count[oldBlock]--;
        engine->ref_count[freeBlock] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1_idx][l2_idx] = freeBlock;
    }

    // write the record
    int blockId = seq->block_table[l1_idx][l2_idx];
    int *addr = (int *)((char *)engine->pool_base_ptr + (long)blockId * BLOCK_SIZE);
    addr[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

// Task 5
int llm_destroy(LLMEngine *engine) {
    if (NULL == engine) {
        return -1;
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
