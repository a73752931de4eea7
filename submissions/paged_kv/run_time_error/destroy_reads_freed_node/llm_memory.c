#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

static Sequence *look_up_sequence(LLMEngine *engine, int wanted_id) {
    struct list_node *walking_node = engine->active_seqs.next;
    while (walking_node != &engine->active_seqs) {
        char *start_address = (char *)walking_node - offsetof(struct Sequence, node);
        Sequence *sequence_here = (Sequence *)start_address;
        if (sequence_here->seq_id == wanted_id) {
            return sequence_here;
        }
        walking_node = walking_node->next;
    }
    return NULL;
}

static int take_first_free_block(LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

static int *make_second_level_table(void) {
    int *table = malloc(sizeof(int) * L2_PT_SIZE);
    int position = 0;
    while (position < L2_PT_SIZE) {
        table[position] = -1;
        position++;
    }
    return table;
}

static Sequence *make_empty_sequence(int id, int count) {
    Sequence *created = malloc(sizeof(Sequence));
    created->seq_id = id;
    created->kv_count = count;
    created->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    int position = 0;
    while (position < L1_PT_SIZE) {
        created->block_table[position] = NULL;
        position++;
    }
    return created;
}

static void insert_last(LLMEngine *engine, Sequence *created) {
    struct list_node *head = &engine->active_seqs;
    struct list_node *tail = head->prev;
    created->node.next = head;
    created->node.prev = tail;
    tail->next = &created->node;
    head->prev = &created->node;
}

static int *where_is_block(LLMEngine *engine, int block_id) {
    char *base = engine->pool_base_ptr;
    return (int *)(base + block_id * BLOCK_SIZE);
}

static void delete_sequence(LLMEngine *engine, Sequence *old_sequence) {
    int row = 0;
    while (row < L1_PT_SIZE) {
        if (old_sequence->block_table[row] != NULL) {
            int column = 0;
            while (column < L2_PT_SIZE) {
                int block_id = old_sequence->block_table[row][column];
                if (block_id != -1) {
                    engine->ref_count[block_id]--;
                    if (engine->ref_count[block_id] == 0) {
                        engine->free_local_blocks++;
                    }
                }
                column++;
            }
            free(old_sequence->block_table[row]);
        }
        row++;
    }
    free(old_sequence->block_table);
    free(old_sequence);
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = pool_size / BLOCK_SIZE;
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc(engine->total_local_blocks, sizeof(int));
    engine->active_seqs.next = &engine->active_seqs;
    engine->active_seqs.prev = &engine->active_seqs;
    return engine;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL || initial_kv_len <= 0) {
        return NULL;
    }
    if (look_up_sequence(engine, seq_id) != NULL) {
        return NULL;
    }
    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) {
        return NULL;
    }
    int block_total = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (block_total > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *created = make_empty_sequence(seq_id, initial_kv_len);
    int logical_number = 0;
    while (logical_number < block_total) {
        int row = logical_number / L2_PT_SIZE;
        int column = logical_number % L2_PT_SIZE;
        if (created->block_table[row] == NULL) {
            created->block_table[row] = make_second_level_table();
        }
        created->block_table[row][column] = take_first_free_block(engine);
        logical_number++;
    }
    insert_last(engine, created);
    return created;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *old_sequence = look_up_sequence(engine, seq_id);
    if (old_sequence == NULL) {
        return -1;
    }
    old_sequence->node.prev->next = old_sequence->node.next;
    old_sequence->node.next->prev = old_sequence->node.prev;
    delete_sequence(engine, old_sequence);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }
    Sequence *parent = look_up_sequence(engine, parent_seq_id);
    if (parent == NULL) {
        return NULL;
    }
    if (look_up_sequence(engine, new_seq_id) != NULL) {
        return NULL;
    }
    Sequence *child = make_empty_sequence(new_seq_id, parent->kv_count);
    int row = 0;
    while (row < L1_PT_SIZE) {
        if (parent->block_table[row] != NULL) {
            child->block_table[row] = make_second_level_table();
            int column = 0;
            while (column < L2_PT_SIZE) {
                int block_id = parent->block_table[row][column];
                if (block_id != -1) {
                    child->block_table[row][column] = block_id;
                    engine->ref_count[block_id]++;
                }
                column++;
            }
        }
        row++;
    }
    insert_last(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *growing = look_up_sequence(engine, seq_id);
    if (growing == NULL) {
        return -1;
    }
    int logical_number = growing->kv_count / KV_PER_BLOCK;
    int slot = growing->kv_count % KV_PER_BLOCK;
    if (logical_number >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int row = logical_number / L2_PT_SIZE;
    int column = logical_number % L2_PT_SIZE;

    int block_id = -1;
    if (growing->block_table[row] != NULL) {
        block_id = growing->block_table[row][column];
    }

    if (block_id != -1 && engine->ref_count[block_id] == 1) {
        where_is_block(engine, block_id)[slot] = kv_data;
        growing->kv_count++;
        return 0;
    }

    if (engine->free_local_blocks == 0) {
        return -1;
    }

    if (growing->block_table[row] == NULL) {
        growing->block_table[row] = make_second_level_table();
    }
    int new_block_id = take_first_free_block(engine);
    if (block_id != -1) {
        int *source = where_is_block(engine, block_id);
        int *target = where_is_block(engine, new_block_id);
        memcpy(target, source, BLOCK_SIZE);
        engine->ref_count[block_id]--;
    }
    growing->block_table[row][column] = new_block_id;
    where_is_block(engine, new_block_id)[slot] = kv_data;
    growing->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }
    struct list_node *walking_node = engine->active_seqs.next;
    while (walking_node != &engine->active_seqs) {
        char *start_address = (char *)walking_node - offsetof(struct Sequence, node);
        delete_sequence(engine, (Sequence *)start_address);
        walking_node = walking_node->next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
