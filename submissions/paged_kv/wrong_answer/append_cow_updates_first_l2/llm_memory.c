#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;

    struct list_node *it = engine->active_seqs.next;
    struct list_node *nx = NULL;
    for (; it != &engine->active_seqs; it = nx) {
        nx = it->next;
        Sequence *victim = (Sequence *)((uint8_t *)it - offsetof(Sequence, node));
        for (int i = 0; i < L1_PT_SIZE; i++) {
            free(victim->block_table[i]);
        }
        free(victim->block_table);
        free(victim);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL) return NULL;
    if (pool_size < BLOCK_SIZE) return NULL;

    LLMEngine *result = malloc(sizeof(LLMEngine));
    if (result == NULL) return NULL;

    /* fill in the fields */
    LLMEngine fields;
    fields.pool_base_ptr = pool_addr;
    fields.total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    fields.free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    fields.ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int));
    if (fields.ref_count == NULL) {
        free(result);
        return NULL;
    }
    *result = fields;
    result->active_seqs.prev = &result->active_seqs;
    result->active_seqs.next = &result->active_seqs;
    return result;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;

    Sequence *mine = NULL;
    for (struct list_node *it = engine->active_seqs.next; it != &engine->active_seqs; it = it->next) {
        Sequence *candidate = (Sequence *)((uint8_t *)it - offsetof(Sequence, node));
        if (candidate->seq_id == seq_id) {
            mine = candidate;
        }
    }
    if (mine == NULL) return -1;

    int logical_idx = mine->kv_count / KV_PER_BLOCK;
    int offset = mine->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) return -1;

    int first = logical_idx / L2_PT_SIZE;
    int second = logical_idx % L2_PT_SIZE;
    uint8_t *base = (uint8_t *)engine->pool_base_ptr;

    /* exclusive block: just write */
    if (mine->block_table[first] != NULL && mine->block_table[first][second] != -1) {
        int id = mine->block_table[first][second];
        if (engine->ref_count[id] == 1) {
            int *cells = (int *)(base + (size_t)id * BLOCK_SIZE);
            cells[offset] = kv_data;
            mine->kv_count = mine->kv_count + 1;
            return 0;
        }
    }

    /* every other case needs a block from the pool */
    if (engine->free_local_blocks == 0) return -1;
    int target = 0;
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            target = i;
            break;
        }
    }

    if (mine->block_table[first] == NULL) {
        int *level2 = malloc(sizeof(int) * L2_PT_SIZE);
        if (level2 == NULL) return -1;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            level2[j] = -1;
        }
        mine->block_table[first] = level2;
    }

    int *cells = (int *)(base + (size_t)target * BLOCK_SIZE);
    int previous = mine->block_table[first][second];
    if (previous == -1) {
        /* new page */
        mine->block_table[first][second] = target;
    } else {
        /* copy on write */
        memcpy(cells, base + (size_t)previous * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[previous] = engine->ref_count[previous] - 1;
        mine->block_table[0][second] = target;
    }
    engine->ref_count[target] = 1;
    engine->free_local_blocks = engine->free_local_blocks - 1;

    cells[offset] = kv_data;
    mine->kv_count = mine->kv_count + 1;
    return 0;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;

    for (struct list_node *it = engine->active_seqs.next; it != &engine->active_seqs; it = it->next) {
        Sequence *candidate = (Sequence *)((uint8_t *)it - offsetof(Sequence, node));
        if (candidate->seq_id == seq_id) return NULL;
    }

    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) return NULL;
    int want = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (want > engine->free_local_blocks) return NULL;

    Sequence *fresh = malloc(sizeof(Sequence));
    if (fresh == NULL) return NULL;
    fresh->seq_id = seq_id;
    fresh->kv_count = initial_kv_len;
    fresh->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (fresh->block_table == NULL) {
        free(fresh);
        return NULL;
    }

    /* one L2 table for every 16 blocks, the other slots stay NULL */
    for (int i = 0; i < L1_PT_SIZE; i++) {
        fresh->block_table[i] = NULL;
        if (i * L2_PT_SIZE < want) {
            fresh->block_table[i] = malloc(sizeof(int) * L2_PT_SIZE);
            if (fresh->block_table[i] == NULL) {
                for (int j = 0; j < i; j++) {
                    free(fresh->block_table[j]);
                }
                free(fresh->block_table);
                free(fresh);
                return NULL;
            }
            for (int j = 0; j < L2_PT_SIZE; j++) {
                fresh->block_table[i][j] = -1;
            }
        }
    }

    /* one pass over the pool takes the lowest free blocks in order */
    int done = 0;
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (done < want && engine->ref_count[i] == 0) {
            fresh->block_table[done / L2_PT_SIZE][done % L2_PT_SIZE] = i;
            engine->ref_count[i] = 1;
            engine->free_local_blocks = engine->free_local_blocks - 1;
            done = done + 1;
        }
    }

    fresh->node.next = &engine->active_seqs;
    fresh->node.prev = engine->active_seqs.prev;
    fresh->node.prev->next = &fresh->node;
    fresh->node.next->prev = &fresh->node;
    return fresh;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;

    Sequence *origin = NULL;
    int taken = 0;
    for (struct list_node *it = engine->active_seqs.next; it != &engine->active_seqs; it = it->next) {
        Sequence *candidate = (Sequence *)((uint8_t *)it - offsetof(Sequence, node));
        if (candidate->seq_id == parent_seq_id) {
            origin = candidate;
        }
        if (candidate->seq_id == new_seq_id) {
            taken = 1;
        }
    }
    if (origin == NULL || taken) return NULL;

    Sequence *branch = malloc(sizeof(Sequence));
    if (branch == NULL) return NULL;
    branch->seq_id = new_seq_id;
    branch->kv_count = origin->kv_count;
    branch->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    if (branch->block_table == NULL) {
        free(branch);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (origin->block_table[i] != NULL) {
            branch->block_table[i] = malloc(sizeof(int) * L2_PT_SIZE);
            if (branch->block_table[i] == NULL) {
                for (int j = 0; j < i; j++) {
                    free(branch->block_table[j]);
                }
                free(branch->block_table);
                free(branch);
                return NULL;
            }
        }
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (origin->block_table[i] != NULL) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                branch->block_table[i][j] = -1;
                if (origin->block_table[i][j] != -1) {
                    branch->block_table[i][j] = origin->block_table[i][j];
                    engine->ref_count[branch->block_table[i][j]]++;
                }
            }
        }
    }

    branch->node.next = &engine->active_seqs;
    branch->node.prev = engine->active_seqs.prev;
    branch->node.prev->next = &branch->node;
    branch->node.next->prev = &branch->node;
    return branch;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;

    for (struct list_node *it = engine->active_seqs.next; it != &engine->active_seqs; it = it->next) {
        Sequence *victim = (Sequence *)((uint8_t *)it - offsetof(Sequence, node));
        if (victim->seq_id == seq_id) {
            it->prev->next = it->next;
            it->next->prev = it->prev;
            for (int i = 0; i < L1_PT_SIZE; i++) {
                if (victim->block_table[i] == NULL) continue;
                for (int j = 0; j < L2_PT_SIZE; j++) {
                    int id = victim->block_table[i][j];
                    if (id == -1) continue;
                    engine->ref_count[id]--;
                    if (engine->ref_count[id] == 0) engine->free_local_blocks++;
                }
                free(victim->block_table[i]);
            }
            free(victim->block_table);
            free(victim);
            return 0;
        }
    }
    return -1;
}
