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

static int find_and_take_block(LLMEngine *engine) {
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

static int *block_address(LLMEngine *engine, int block_id) {
    char *base = engine->pool_base_ptr;
    return (int *)(base + block_id * BLOCK_SIZE);
}

static void throw_away_sequence(LLMEngine *engine, Sequence *old_sequence) {
    int i1 = 0;
    while (i1 < L1_PT_SIZE) {
        if (old_sequence->block_table[i1] != NULL) {
            int i2 = 0;
            while (i2 < L2_PT_SIZE) {
                int block_id = old_sequence->block_table[i1][i2];
                if (block_id != -1) {
                    engine->ref_count[block_id]--;
                    if (engine->ref_count[block_id] == 0) {
                        engine->free_local_blocks++;
                    }
                }
                i2++;
            }
            free(old_sequence->block_table[i1]);
        }
        i1++;
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
    int blocks_needed = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks_needed > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *fresh = make_empty_sequence(seq_id, initial_kv_len);
    int logical_block = 0;
    while (logical_block < blocks_needed) {
        int i1 = logical_block / L2_PT_SIZE;
        int i2 = logical_block % L2_PT_SIZE;
        if (fresh->block_table[i1] == NULL) {
            fresh->block_table[i1] = make_second_level_table();
        }
        fresh->block_table[i1][i2] = find_and_take_block(engine);
        logical_block++;
    }
    put_at_tail(engine, fresh);
    return fresh;
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
    throw_away_sequence(engine, old_sequence);
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
    int i1 = 0;
    while (i1 < L1_PT_SIZE) {
        if (parent->block_table[i1] != NULL) {
            child->block_table[i1] = make_second_level_table();
            int i2 = 0;
            while (i2 < L2_PT_SIZE) {
                int block_id = parent->block_table[i1][i2];
                if (block_id != -1) {
                    child->block_table[i1][i2] = block_id;
                    engine->ref_count[block_id]++;
                }
                i2++;
            }
        }
        i1++;
    }
    put_at_tail(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }
    Sequence *my_sequence = look_up_sequence(engine, seq_id);
    if (my_sequence == NULL) {
        return -1;
    }
    int logical_block = my_sequence->kv_count / KV_PER_BLOCK;
    int slot = my_sequence->kv_count % KV_PER_BLOCK;
    if (logical_block >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int i1 = logical_block / L2_PT_SIZE;
    int i2 = logical_block % L2_PT_SIZE;

    int block_id = -1;
    if (my_sequence->block_table[i1] != NULL) {
        block_id = my_sequence->block_table[i1][i2];
    }

    if (block_id != -1 && engine->ref_count[block_id] == 1) {
        block_address(engine, block_id)[slot] = kv_data;
        my_sequence->kv_count++;
        return 0;
    }

    if (engine->free_local_blocks == 0) {
        return -1;
    }

    if (my_sequence->block_table[i1] == NULL) {
        my_sequence->block_table[i1] = make_second_level_table();
    }
    int copy_id = find_and_take_block(engine);
    if (block_id != -1) {
        int *source = block_address(engine, block_id);
        int *target = block_address(engine, copy_id);
        memcpy(target, source, slot * KV_SIZE);
        engine->ref_count[block_id]--;
    }
    my_sequence->block_table[i1][i2] = copy_id;
    block_address(engine, copy_id)[slot] = kv_data;
    my_sequence->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }
    struct list_node *walking_node = engine->active_seqs.next;
    while (walking_node != &engine->active_seqs) {
        struct list_node *node_to_remove = walking_node;
        walking_node = walking_node->next;
        char *start_address = (char *)node_to_remove - offsetof(struct Sequence, node);
        throw_away_sequence(engine, (Sequence *)start_address);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
