#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

/* goes from the list node back to the sequence around it */
#define GET_SEQUENCE(pointer_to_node) ((Sequence *)((uintptr_t)(pointer_to_node) - offsetof(Sequence, node)))

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    LLMEngine *result = NULL;
    if (pool_addr != NULL) {
        if (pool_size >= 64) {
            result = (LLMEngine *)malloc(sizeof(LLMEngine));
            if (result != NULL) {
                int how_many = (int)(pool_size / 64);
                result->pool_base_ptr = pool_addr;
                result->total_local_blocks = how_many;
                result->free_local_blocks = how_many;
                result->ref_count = (int *)calloc(how_many, sizeof(int));
                struct list_node *dummy = &(result->active_seqs);
                dummy->next = dummy;
                dummy->prev = dummy;
            }
        }
    }
    return result;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;

    struct list_node *dummy = &(engine->active_seqs);
    int taken = 0;
    for (struct list_node *step = dummy->next; step != dummy; step = step->next) {
        if (GET_SEQUENCE(step)->seq_id == seq_id) {
            taken = 1;
        }
    }
    if (taken) return NULL;

    int full_blocks = initial_kv_len / 16;
    int rest = initial_kv_len - full_blocks * 16;
    int blocks_wanted = full_blocks;
    if (rest > 0) {
        blocks_wanted = blocks_wanted + 1;
    }
    if (blocks_wanted > 256) return NULL;
    if (blocks_wanted > engine->free_local_blocks) return NULL;

    Sequence *brand_new = (Sequence *)malloc(sizeof(Sequence));
    brand_new->block_table = (int **)calloc(16, sizeof(int *));

    int index_one = 0;
    int index_two = 0;
    int blocks_done = 0;
    while (blocks_done < blocks_wanted) {
        if (index_two == 0) {
            brand_new->block_table[index_one] = (int *)malloc(16 * sizeof(int));
            for (int k = 0; k < 16; k++) {
                brand_new->block_table[index_one][k] = -1;
            }
        }
        for (int k = 0; k < engine->total_local_blocks; k++) {
            if (engine->ref_count[k] == 0) {
                engine->ref_count[k] = 1;
                engine->free_local_blocks -= 1;
                brand_new->block_table[index_one][index_two] = k;
                break;
            }
        }
        index_two = index_two + 1;
        if (index_two == 16) {
            index_two = 0;
            index_one = index_one + 1;
        }
        blocks_done = blocks_done + 1;
    }

    brand_new->seq_id = seq_id;
    brand_new->kv_count = initial_kv_len;

    brand_new->node.next = dummy;
    brand_new->node.prev = dummy->prev;
    dummy->prev->next = &(brand_new->node);
    dummy->prev = &(brand_new->node);
    return brand_new;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;

    struct list_node *dummy = &(engine->active_seqs);
    struct list_node *step = dummy->next;
    while (step != dummy) {
        Sequence *victim = GET_SEQUENCE(step);
        if (victim->seq_id == seq_id) {
            step->next->prev = step->prev;
            step->prev->next = step->next;
            for (int index_one = 0; index_one < 16; index_one++) {
                int *inner_table = victim->block_table[index_one];
                if (inner_table == NULL) {
                    continue;
                }
                for (int index_two = 0; index_two < 16; index_two++) {
                    int block = inner_table[index_two];
                    if (block == -1) {
                        continue;
                    }
                    engine->ref_count[block] -= 1;
                    if (engine->ref_count[block] == 0) {
                        engine->free_local_blocks += 1;
                    }
                }
                free(inner_table);
            }
            free(victim->block_table);
            free(victim);
            return 0;
        }
        step = step->next;
    }
    return -1;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;

    struct list_node *dummy = &(engine->active_seqs);
    Sequence *parent_seq = NULL;
    int taken = 0;
    for (struct list_node *step = dummy->next; step != dummy; step = step->next) {
        Sequence *look = GET_SEQUENCE(step);
        if (look->seq_id == parent_seq_id) {
            parent_seq = look;
        }
        if (look->seq_id == new_seq_id) {
            taken = 1;
        }
    }
    if (parent_seq == NULL) return NULL;
    if (taken) return NULL;
    if (engine->free_local_blocks == 0) return NULL;

    Sequence *child_seq = (Sequence *)malloc(sizeof(Sequence));
    child_seq->seq_id = new_seq_id;
    child_seq->kv_count = parent_seq->kv_count;
    child_seq->block_table = (int **)calloc(16, sizeof(int *));
    for (int index_one = 0; index_one < 16; index_one++) {
        if (parent_seq->block_table[index_one] != NULL) {
            child_seq->block_table[index_one] = (int *)malloc(16 * sizeof(int));
            for (int index_two = 0; index_two < 16; index_two++) {
                int block = parent_seq->block_table[index_one][index_two];
                child_seq->block_table[index_one][index_two] = block;
                if (block >= 0) {
                    engine->ref_count[block] += 1;
                }
            }
        }
    }

    child_seq->node.next = dummy;
    child_seq->node.prev = dummy->prev;
    dummy->prev->next = &(child_seq->node);
    dummy->prev = &(child_seq->node);
    return child_seq;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;

    struct list_node *dummy = &(engine->active_seqs);
    Sequence *wanted = NULL;
    for (struct list_node *step = dummy->next; step != dummy; step = step->next) {
        if (GET_SEQUENCE(step)->seq_id == seq_id) {
            wanted = GET_SEQUENCE(step);
        }
    }
    if (wanted == NULL) return -1;
    if (wanted->kv_count / 16 >= 256) return -1;

    int index_one = wanted->kv_count / 256;
    int index_two = (wanted->kv_count - index_one * 256) / 16;
    int place = wanted->kv_count - index_one * 256 - index_two * 16;

    int block;
    if (wanted->block_table[index_one] == NULL) {
        block = -1;
    } else {
        block = wanted->block_table[index_one][index_two];
    }

    if (block == -1) {
        /* nothing there: new page */
        if (engine->free_local_blocks == 0) return -1;
        if (wanted->block_table[index_one] == NULL) {
            wanted->block_table[index_one] = (int *)malloc(16 * sizeof(int));
            for (int k = 0; k < 16; k++) {
                wanted->block_table[index_one][k] = -1;
            }
        }
        for (int k = 0; k < engine->total_local_blocks; k++) {
            if (engine->ref_count[k] == 0) {
                block = k;
                break;
            }
        }
        engine->ref_count[block] = 1;
        engine->free_local_blocks -= 1;
        wanted->block_table[index_one][index_two] = block;
    } else if (engine->ref_count[block] > 1) {
        /* shared: copy on write */
        if (engine->free_local_blocks == 0) return -1;
        int shared_block = block;
        for (int k = 0; k < engine->total_local_blocks; k++) {
            if (engine->ref_count[k] == 0) {
                block = k;
                break;
            }
        }
        memcpy((char *)engine->pool_base_ptr + 64 * block, (char *)engine->pool_base_ptr + 64 * shared_block, 64);
        engine->ref_count[shared_block] -= 1;
        engine->ref_count[block] = 1;
        engine->free_local_blocks -= 1;
        wanted->block_table[index_one][index_two] = block;
    }

    int *write_here = (int *)engine->pool_base_ptr + block * 16 + place;
    *write_here = kv_data;
    wanted->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;

    while (engine->active_seqs.next != &(engine->active_seqs)) {
        Sequence *first_one = GET_SEQUENCE(engine->active_seqs.next);
        free_sequence(engine, first_one->seq_id);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
