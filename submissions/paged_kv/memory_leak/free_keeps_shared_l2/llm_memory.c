#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

/* goes from the list node back to the sequence around it */
#define SEQ_OF_NODE(pointer_to_node) ((Sequence *)((uintptr_t)(pointer_to_node) - offsetof(Sequence, node)))

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
                struct list_node *head_node = &(result->active_seqs);
                head_node->next = head_node;
                head_node->prev = head_node;
            }
        }
    }
    return result;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;

    struct list_node *head_node = &(engine->active_seqs);
    int id_already_there = 0;
    for (struct list_node *list_position = head_node->next; list_position != head_node; list_position = list_position->next) {
        if (SEQ_OF_NODE(list_position)->seq_id == seq_id) {
            id_already_there = 1;
        }
    }
    if (id_already_there) return NULL;

    int full_blocks = initial_kv_len / 16;
    int rest = initial_kv_len - full_blocks * 16;
    int blocks_wanted = full_blocks;
    if (rest > 0) {
        blocks_wanted = blocks_wanted + 1;
    }
    if (blocks_wanted > 256) return NULL;
    if (blocks_wanted > engine->free_local_blocks) return NULL;

    Sequence *seq_new = (Sequence *)malloc(sizeof(Sequence));
    seq_new->block_table = (int **)calloc(16, sizeof(int *));

    int outer = 0;
    int inner = 0;
    int blocks_done = 0;
    while (blocks_done < blocks_wanted) {
        if (inner == 0) {
            seq_new->block_table[outer] = (int *)malloc(16 * sizeof(int));
            for (int k = 0; k < 16; k++) {
                seq_new->block_table[outer][k] = -1;
            }
        }
        for (int k = 0; k < engine->total_local_blocks; k++) {
            if (engine->ref_count[k] == 0) {
                engine->ref_count[k] = 1;
                engine->free_local_blocks -= 1;
                seq_new->block_table[outer][inner] = k;
                break;
            }
        }
        inner = inner + 1;
        if (inner == 16) {
            inner = 0;
            outer = outer + 1;
        }
        blocks_done = blocks_done + 1;
    }

    seq_new->seq_id = seq_id;
    seq_new->kv_count = initial_kv_len;

    seq_new->node.next = head_node;
    seq_new->node.prev = head_node->prev;
    head_node->prev->next = &(seq_new->node);
    head_node->prev = &(seq_new->node);
    return seq_new;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;

    struct list_node *head_node = &(engine->active_seqs);
    struct list_node *list_position = head_node->next;
    while (list_position != head_node) {
        Sequence *old_seq = SEQ_OF_NODE(list_position);
        if (old_seq->seq_id == seq_id) {
            list_position->next->prev = list_position->prev;
            list_position->prev->next = list_position->next;
            for (int outer = 0; outer < 16; outer++) {
                int *inner_table = old_seq->block_table[outer];
                if (inner_table == NULL) {
                    continue;
                }
                int still_used = 0;
                for (int inner = 0; inner < 16; inner++) {
                    int block = inner_table[inner];
                    if (block == -1) {
                        continue;
                    }
                    engine->ref_count[block] -= 1;
                    if (engine->ref_count[block] == 0) {
                        engine->free_local_blocks += 1;
                    } else {
                        still_used = 1;
                    }
                }
                if (still_used == 0) {
                    free(inner_table);
                }
            }
            free(old_seq->block_table);
            free(old_seq);
            return 0;
        }
        list_position = list_position->next;
    }
    return -1;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;

    struct list_node *head_node = &(engine->active_seqs);
    Sequence *mother = NULL;
    int id_already_there = 0;
    for (struct list_node *list_position = head_node->next; list_position != head_node; list_position = list_position->next) {
        Sequence *look = SEQ_OF_NODE(list_position);
        if (look->seq_id == parent_seq_id) {
            mother = look;
        }
        if (look->seq_id == new_seq_id) {
            id_already_there = 1;
        }
    }
    if (mother == NULL) return NULL;
    if (id_already_there) return NULL;

    Sequence *daughter = (Sequence *)malloc(sizeof(Sequence));
    daughter->seq_id = new_seq_id;
    daughter->kv_count = mother->kv_count;
    daughter->block_table = (int **)calloc(16, sizeof(int *));
    for (int outer = 0; outer < 16; outer++) {
        if (mother->block_table[outer] != NULL) {
            daughter->block_table[outer] = (int *)malloc(16 * sizeof(int));
            for (int inner = 0; inner < 16; inner++) {
                int block = mother->block_table[outer][inner];
                daughter->block_table[outer][inner] = block;
                if (block >= 0) {
                    engine->ref_count[block] += 1;
                }
            }
        }
    }

    daughter->node.next = head_node;
    daughter->node.prev = head_node->prev;
    head_node->prev->next = &(daughter->node);
    head_node->prev = &(daughter->node);
    return daughter;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;

    struct list_node *head_node = &(engine->active_seqs);
    Sequence *wanted = NULL;
    for (struct list_node *list_position = head_node->next; list_position != head_node; list_position = list_position->next) {
        if (SEQ_OF_NODE(list_position)->seq_id == seq_id) {
            wanted = SEQ_OF_NODE(list_position);
        }
    }
    if (wanted == NULL) return -1;
    if (wanted->kv_count / 16 >= 256) return -1;

    int outer = wanted->kv_count / 256;
    int inner = (wanted->kv_count - outer * 256) / 16;
    int place = wanted->kv_count - outer * 256 - inner * 16;

    int block;
    if (wanted->block_table[outer] == NULL) {
        block = -1;
    } else {
        block = wanted->block_table[outer][inner];
    }

    if (block == -1) {
        /* nothing there: new page */
        if (engine->free_local_blocks == 0) return -1;
        if (wanted->block_table[outer] == NULL) {
            wanted->block_table[outer] = (int *)malloc(16 * sizeof(int));
            for (int k = 0; k < 16; k++) {
                wanted->block_table[outer][k] = -1;
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
        wanted->block_table[outer][inner] = block;
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
        wanted->block_table[outer][inner] = block;
    }

    int *write_here = (int *)engine->pool_base_ptr + block * 16 + place;
    *write_here = kv_data;
    wanted->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;

    while (engine->active_seqs.next != &(engine->active_seqs)) {
        Sequence *first_one = SEQ_OF_NODE(engine->active_seqs.next);
        free_sequence(engine, first_one->seq_id);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
