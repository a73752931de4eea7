#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

static Sequence *look_up_sequence(LLMEngine *engine, int wanted_id) {
    struct list_node *node_pointer = engine->active_seqs.next;
    while (node_pointer != &engine->active_seqs) {
        char *start_address = (char *)node_pointer - offsetof(struct Sequence, node);
        Sequence *sequence_here = (Sequence *)start_address;
        if (sequence_here->seq_id == wanted_id) {
            return sequence_here;
        }
        node_pointer = node_pointer->next;
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

static Sequence *new_sequence_with(int id, int count) {
    Sequence *fresh = malloc(sizeof(Sequence));
    fresh->seq_id = id;
    fresh->kv_count = count;
    fresh->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    int position = 0;
    while (position < L1_PT_SIZE) {
        fresh->block_table[position] = NULL;
        position++;
    }
    return fresh;
}

static void put_at_tail(LLMEngine *engine, Sequence *fresh) {
    struct list_node *head = &engine->active_seqs;
    struct list_node *tail = head->prev;
    fresh->node.next = head;
    fresh->node.prev = tail;
    tail->next = &fresh->node;
    head->prev = &fresh->node;
}

static int *where_is_block(LLMEngine *engine, int block_id) {
    char *base = engine->pool_base_ptr;
    return (int *)(base + block_id * BLOCK_SIZE);
}

static void release_everything(LLMEngine *engine, Sequence *finished_sequence) {
    int row = 0;
    while (row < L1_PT_SIZE) {
        if (finished_sequence->block_table[row] != NULL) {
            int column = 0;
            while (column < L2_PT_SIZE) {
                int block_id = finished_sequence->block_table[row][column];
                if (block_id != -1) {
                    engine->ref_count[block_id]--;
                    if (engine->ref_count[block_id] == 0) {
                        engine->free_local_blocks++;
                    }
                }
                column++;
            }
            free(finished_sequence->block_table[row]);
        }
        row++;
    }
    free(finished_sequence->block_table);
    free(finished_sequence);
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
    int blocks_needed = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks_needed > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *fresh = new_sequence_with(seq_id, initial_kv_len);
    int logical_block = 0;
    while (logical_block < blocks_needed) {
        int row = logical_block / L2_PT_SIZE;
        int column = logical_block % L2_PT_SIZE;
        if (fresh->block_table[row] == NULL) {
            fresh->block_table[row] = make_second_level_table();
        }
        fresh->block_table[row][column] = take_first_free_block(engine);
        logical_block++;
    }
    put_at_tail(engine, fresh);
    return fresh;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *finished_sequence = look_up_sequence(engine, seq_id);
    if (finished_sequence == NULL) {
        return -1;
    }
    finished_sequence->node.prev->next = finished_sequence->node.next;
    finished_sequence->node.next->prev = finished_sequence->node.prev;
    release_everything(engine, finished_sequence);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }
    Sequence *origin = look_up_sequence(engine, parent_seq_id);
    if (origin == NULL) {
        return NULL;
    }
    if (look_up_sequence(engine, new_seq_id) != NULL) {
        return NULL;
    }
    Sequence *branch = new_sequence_with(new_seq_id, origin->kv_count);
    int row = 0;
    while (row < L1_PT_SIZE) {
        if (origin->block_table[row] != NULL) {
            branch->block_table[row] = make_second_level_table();
            int column = 0;
            while (column < L2_PT_SIZE) {
                int block_id = origin->block_table[row][column];
                if (block_id != -1) {
                    branch->block_table[row][column] = block_id;
                    engine->ref_count[block_id] = 2;
                }
                column++;
            }
        }
        row++;
    }
    put_at_tail(engine, branch);
    return branch;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *growing = look_up_sequence(engine, seq_id);
    if (growing == NULL) {
        return -1;
    }
    int logical_block = growing->kv_count / KV_PER_BLOCK;
    int slot = growing->kv_count % KV_PER_BLOCK;
    if (logical_block >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int row = logical_block / L2_PT_SIZE;
    int column = logical_block % L2_PT_SIZE;

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
    struct list_node *node_pointer = engine->active_seqs.next;
    while (node_pointer != &engine->active_seqs) {
        struct list_node *node_to_remove = node_pointer;
        node_pointer = node_pointer->next;
        char *start_address = (char *)node_to_remove - offsetof(struct Sequence, node);
        release_everything(engine, (Sequence *)start_address);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
