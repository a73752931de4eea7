#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL) {
        return NULL;
    }
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

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }

    for (struct list_node *p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = (Sequence *)((char *)p - offsetof(Sequence, node));
        if (s->seq_id == seq_id) {
            return NULL;
        }
    }

    long needed = ((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (needed > MAX_LOGICAL_BLOCKS) {
        return NULL;
    }
    if (needed > engine->free_local_blocks) {
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

    for (int idx = 0; idx < needed; idx++) {
        int l1 = idx / L2_PT_SIZE;
        int l2 = idx % L2_PT_SIZE;

        if (seq->block_table[l1] == NULL) {
            seq->block_table[l1] = malloc(L2_PT_SIZE * sizeof(int));
            if (seq->block_table[l1] == NULL) {
                /* no heap left */
                for (int i = 0; i < l1; i++) {
                    for (int j = 0; j < L2_PT_SIZE; j++) {
                        engine->ref_count[seq->block_table[i][j]] = 0;
                        engine->free_local_blocks++;
                    }
                    free(seq->block_table[i]);
                }
                free(seq->block_table);
                free(seq);
                return NULL;
            }
            for (int j = 0; j < L2_PT_SIZE; j++) {
                seq->block_table[l1][j] = -1;
            }
        }

        for (int b = 0; b < engine->total_local_blocks; b++) {
            if (engine->ref_count[b] == 0) {
                seq->block_table[l1][l2] = b;
                engine->ref_count[b] = 1;
                engine->free_local_blocks--;
                break;
            }
        }
    }

    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;

    seq->node.next = &engine->active_seqs;
    seq->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &seq->node;
    engine->active_seqs.prev = &seq->node;
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }

    Sequence *seq = NULL;
    for (struct list_node *p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = (Sequence *)((char *)p - offsetof(Sequence, node));
        if (s->seq_id == seq_id) {
            seq = s;
            break;
        }
    }
    if (seq == NULL) {
        return -1;
    }

    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL) {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = seq->block_table[i][j];
            if (b != -1) {
                engine->ref_count[b]--;
                if (engine->ref_count[b] == 0) {
                    engine->free_local_blocks++;
                }
            }
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }

    Sequence *parent = NULL;
    for (struct list_node *p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = (Sequence *)((char *)p - offsetof(Sequence, node));
        if (s->seq_id == new_seq_id) {
            return NULL;
        }
        if (s->seq_id == parent_seq_id) {
            parent = s;
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

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        if (child->block_table[i] == NULL) {
            for (int k = 0; k < i; k++) {
                free(child->block_table[k]);
            }
            free(child->block_table);
            free(child);
            return NULL;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            child->block_table[i][j] = -1;
        }
    }

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL) {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = parent->block_table[i][j];
            if (b != -1) {
                child->block_table[i][j] = b;
                engine->ref_count[b]++;
            }
        }
    }

    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    child->node.next = &engine->active_seqs;
    child->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &child->node;
    engine->active_seqs.prev = &child->node;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }

    Sequence *seq = NULL;
    for (struct list_node *p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = (Sequence *)((char *)p - offsetof(Sequence, node));
        if (s->seq_id == seq_id) {
            seq = s;
            break;
        }
    }
    if (seq == NULL) {
        return -1;
    }

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx > MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int l1 = logical_idx / L2_PT_SIZE;
    int l2 = logical_idx % L2_PT_SIZE;

    int old_block = -1;
    if (seq->block_table[l1] != NULL) {
        old_block = seq->block_table[l1][l2];
    }

    int need_new = 0;
    if (old_block == -1) {
        need_new = 1;
    } else if (engine->ref_count[old_block] > 1) {
        need_new = 1;
    }
    if (need_new && engine->free_local_blocks == 0) {
        return -1;
    }

    if (seq->block_table[l1] == NULL) {
        int *table = malloc(L2_PT_SIZE * sizeof(int));
        if (table == NULL) {
            return -1;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            table[j] = -1;
        }
        seq->block_table[l1] = table;
    }

    int block = old_block;
    if (need_new) {
        for (int b = 0; b < engine->total_local_blocks; b++) {
            if (engine->ref_count[b] == 0) {
                block = b;
                break;
            }
        }
        if (old_block != -1) {
            char *from = (char *)engine->pool_base_ptr + (size_t)old_block * BLOCK_SIZE;
            char *to = (char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE;
            memcpy(to, from, BLOCK_SIZE);
            engine->ref_count[old_block]--;
        }
        engine->ref_count[block] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1][l2] = block;
    }

    int *slots = (int *)((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE);
    slots[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }

    struct list_node *p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        struct list_node *next = p->next;
        Sequence *seq = (Sequence *)((char *)p - offsetof(Sequence, node));
        for (int i = 0; i < L1_PT_SIZE; i++) {
            free(seq->block_table[i]);
        }
        free(seq->block_table);
        free(seq);
        p = next;
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
