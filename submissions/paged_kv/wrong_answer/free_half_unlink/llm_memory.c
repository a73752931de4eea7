#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL) {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine *new_engine = malloc(sizeof(LLMEngine));
    if (new_engine == NULL) {
        return NULL;
    }

    int number_of_blocks = (int)(pool_size / BLOCK_SIZE);
    new_engine->pool_base_ptr = pool_addr;
    new_engine->total_local_blocks = number_of_blocks;
    new_engine->free_local_blocks = number_of_blocks;

    new_engine->ref_count = calloc((size_t)number_of_blocks, sizeof(int));
    if (new_engine->ref_count == NULL) {
        free(new_engine);
        return NULL;
    }

    /* empty list: the head points to itself */
    new_engine->active_seqs.prev = &new_engine->active_seqs;
    new_engine->active_seqs.next = &new_engine->active_seqs;

    return new_engine;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }

    /* look if the id is already used */
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == seq_id) {
            return NULL;
        }
        current_node = current_node->next;
    }

    /* how many blocks do we need */
    long number_of_needed_blocks = ((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (number_of_needed_blocks > 256) {
        return NULL;
    }
    if (number_of_needed_blocks > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *new_sequence = malloc(sizeof(Sequence));
    if (new_sequence == NULL) {
        return NULL;
    }
    new_sequence->block_table = malloc(16 * sizeof(int *));
    if (new_sequence->block_table == NULL) {
        free(new_sequence);
        return NULL;
    }
    int l1_counter = 0;
    while (l1_counter < 16) {
        new_sequence->block_table[l1_counter] = NULL;
        l1_counter = l1_counter + 1;
    }

    int logical_block_number = 0;
    while (logical_block_number < number_of_needed_blocks) {
        int first_level_index = logical_block_number / 16;
        int second_level_index = logical_block_number - first_level_index * 16;

        if (new_sequence->block_table[first_level_index] == NULL) {
            int *new_second_level_table = malloc(16 * sizeof(int));
            int l2_counter = 0;
            while (l2_counter < 16) {
                new_second_level_table[l2_counter] = -1;
                l2_counter = l2_counter + 1;
            }
            new_sequence->block_table[first_level_index] = new_second_level_table;
        }

        /* first fit */
        int found_block_number = -1;
        for (int block_counter = 0; block_counter < engine->total_local_blocks; block_counter++) {
            if (engine->ref_count[block_counter] == 0) {
                found_block_number = block_counter;
                break;
            }
        }

        new_sequence->block_table[first_level_index][second_level_index] = found_block_number;
        engine->ref_count[found_block_number] = 1;
        engine->free_local_blocks = engine->free_local_blocks - 1;

        logical_block_number = logical_block_number + 1;
    }

    new_sequence->seq_id = seq_id;
    new_sequence->kv_count = initial_kv_len;

    /* put it at the end of the list */
    struct list_node *old_last_node = engine->active_seqs.prev;
    new_sequence->node.prev = old_last_node;
    new_sequence->node.next = &engine->active_seqs;
    old_last_node->next = &new_sequence->node;
    engine->active_seqs.prev = &new_sequence->node;

    return new_sequence;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }

    /* find the sequence */
    Sequence *sequence_to_free = NULL;
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == seq_id) {
            sequence_to_free = current_sequence;
            break;
        }
        current_node = current_node->next;
    }
    if (sequence_to_free == NULL) {
        return -1;
    }

    /* take it out of the list */
    struct list_node *node_before = sequence_to_free->node.prev;
    struct list_node *node_after = sequence_to_free->node.next;
    node_before->next = node_after;

    /* give back the blocks */
    int first_level_index = 0;
    while (first_level_index < 16) {
        int *second_level_table = sequence_to_free->block_table[first_level_index];
        if (second_level_table != NULL) {
            int second_level_index = 0;
            while (second_level_index < 16) {
                int physical_block_number = second_level_table[second_level_index];
                if (physical_block_number != -1) {
                    engine->ref_count[physical_block_number] = engine->ref_count[physical_block_number] - 1;
                    if (engine->ref_count[physical_block_number] == 0) {
                        engine->free_local_blocks = engine->free_local_blocks + 1;
                    }
                }
                second_level_index = second_level_index + 1;
            }
            free(second_level_table);
        }
        first_level_index = first_level_index + 1;
    }

    free(sequence_to_free->block_table);
    free(sequence_to_free);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }

    /* find the parent */
    Sequence *parent_sequence = NULL;
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == parent_seq_id) {
            parent_sequence = current_sequence;
            break;
        }
        current_node = current_node->next;
    }
    if (parent_sequence == NULL) {
        return NULL;
    }

    /* look if the new id is already used */
    current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == new_seq_id) {
            return NULL;
        }
        current_node = current_node->next;
    }

    Sequence *child_sequence = malloc(sizeof(Sequence));
    if (child_sequence == NULL) {
        return NULL;
    }
    child_sequence->block_table = malloc(16 * sizeof(int *));
    if (child_sequence->block_table == NULL) {
        free(child_sequence);
        return NULL;
    }
    int l1_counter = 0;
    while (l1_counter < 16) {
        child_sequence->block_table[l1_counter] = NULL;
        l1_counter = l1_counter + 1;
    }

    /* copy the tables of the parent */
    int first_level_index = 0;
    while (first_level_index < 16) {
        int *parent_second_level_table = parent_sequence->block_table[first_level_index];
        if (parent_second_level_table != NULL) {
            int *child_second_level_table = malloc(16 * sizeof(int));
            int l2_counter = 0;
            while (l2_counter < 16) {
                child_second_level_table[l2_counter] = -1;
                l2_counter = l2_counter + 1;
            }
            int second_level_index = 0;
            while (second_level_index < 16) {
                int physical_block_number = parent_second_level_table[second_level_index];
                if (physical_block_number != -1) {
                    child_second_level_table[second_level_index] = physical_block_number;
                    engine->ref_count[physical_block_number] = engine->ref_count[physical_block_number] + 1;
                }
                second_level_index = second_level_index + 1;
            }
            child_sequence->block_table[first_level_index] = child_second_level_table;
        }
        first_level_index = first_level_index + 1;
    }

    child_sequence->seq_id = new_seq_id;
    child_sequence->kv_count = parent_sequence->kv_count;

    /* put it at the end of the list */
    struct list_node *old_last_node = engine->active_seqs.prev;
    child_sequence->node.prev = old_last_node;
    child_sequence->node.next = &engine->active_seqs;
    old_last_node->next = &child_sequence->node;
    engine->active_seqs.prev = &child_sequence->node;

    return child_sequence;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }

    /* find the sequence */
    Sequence *target_sequence = NULL;
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == seq_id) {
            target_sequence = current_sequence;
            break;
        }
        current_node = current_node->next;
    }
    if (target_sequence == NULL) {
        return -1;
    }

    int logical_block_number = target_sequence->kv_count / 16;
    int place_inside_block = target_sequence->kv_count - logical_block_number * 16;
    if (logical_block_number >= 256) {
        return -1;
    }
    int first_level_index = logical_block_number / 16;
    int second_level_index = logical_block_number - first_level_index * 16;

    /* which block is there now, -1 means nothing */
    int old_block_number = -1;
    if (target_sequence->block_table[first_level_index] != NULL) {
        old_block_number = target_sequence->block_table[first_level_index][second_level_index];
    }

    /* do we need a new block */
    int need_new_page = 0;
    int need_copy_on_write = 0;
    if (old_block_number == -1) {
        need_new_page = 1;
    } else {
        if (engine->ref_count[old_block_number] > 1) {
            need_copy_on_write = 1;
        }
    }
    if (need_new_page == 1 || need_copy_on_write == 1) {
        if (engine->free_local_blocks == 0) {
            return -1;
        }
    }

    if (target_sequence->block_table[first_level_index] == NULL) {
        int *new_second_level_table = malloc(16 * sizeof(int));
        if (new_second_level_table == NULL) {
            return -1;
        }
        int l2_counter = 0;
        while (l2_counter < 16) {
            new_second_level_table[l2_counter] = -1;
            l2_counter = l2_counter + 1;
        }
        target_sequence->block_table[first_level_index] = new_second_level_table;
    }

    int block_number_to_write = old_block_number;

    if (need_new_page == 1) {
        /* first fit */
        int found_block_number = -1;
        for (int block_counter = 0; block_counter < engine->total_local_blocks; block_counter++) {
            if (engine->ref_count[block_counter] == 0) {
                found_block_number = block_counter;
                break;
            }
        }
        target_sequence->block_table[first_level_index][second_level_index] = found_block_number;
        engine->ref_count[found_block_number] = 1;
        engine->free_local_blocks = engine->free_local_blocks - 1;
        block_number_to_write = found_block_number;
    }

    if (need_copy_on_write == 1) {
        /* first fit */
        int found_block_number = -1;
        for (int block_counter = 0; block_counter < engine->total_local_blocks; block_counter++) {
            if (engine->ref_count[block_counter] == 0) {
                found_block_number = block_counter;
                break;
            }
        }
        char *address_of_old_block = (char *)engine->pool_base_ptr + old_block_number * 64;
        char *address_of_new_block = (char *)engine->pool_base_ptr + found_block_number * 64;
        memcpy(address_of_new_block, address_of_old_block, 64);
        engine->ref_count[old_block_number] = engine->ref_count[old_block_number] - 1;
        engine->ref_count[found_block_number] = 1;
        target_sequence->block_table[first_level_index][second_level_index] = found_block_number;
        engine->free_local_blocks = engine->free_local_blocks - 1;
        block_number_to_write = found_block_number;
    }

    int *address_of_block = (int *)((char *)engine->pool_base_ptr + block_number_to_write * 64);
    address_of_block[place_inside_block] = kv_data;
    target_sequence->kv_count = target_sequence->kv_count + 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }

    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        struct list_node *next_node = current_node->next;
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        int first_level_index = 0;
        while (first_level_index < 16) {
            if (current_sequence->block_table[first_level_index] != NULL) {
                free(current_sequence->block_table[first_level_index]);
            }
            first_level_index = first_level_index + 1;
        }
        free(current_sequence->block_table);
        free(current_sequence);
        current_node = next_node;
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
