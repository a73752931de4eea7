/*
 * Homework 3 - PagedAttention memory manager
 *
 * This is my solution. I wrote many comments so that I remember
 * later what every line is doing.
 */

// this is the header that was given to us, with the structs
#include "llm_memory.h"
// stdlib is for malloc, calloc and free
#include <stdlib.h>
// string is for memcpy
#include <string.h>
// stddef is for offsetof
#include <stddef.h>

// ---------------------------------------------------------------
// Task 1: make a new engine
// ---------------------------------------------------------------
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    // first check the pool: if it is NULL we can not use it
    if (pool_addr == NULL) {
        return NULL;
    }
    // the pool must have space for at least one block
    if (pool_size < BLOCK_SIZE) {
        return NULL;
    }

    // get memory for the engine
    LLMEngine *engine = (LLMEngine *)malloc(sizeof(LLMEngine));

    // number of blocks (integer division rounds down, that is what we want)
    int number_of_blocks = (int)(pool_size / BLOCK_SIZE);

    // save the values into the engine
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = number_of_blocks;
    engine->free_local_blocks = number_of_blocks; // in the beginning all are free

    // calloc makes everything 0, so nobody uses a block yet
    engine->ref_count = (int *)calloc((size_t)number_of_blocks, sizeof(int));

    // empty list: the dummy head points to itself in both directions
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;

    // done!
    return engine;
}

// ---------------------------------------------------------------
// Task 2 a): make a new sequence
// ---------------------------------------------------------------
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    // first line: check the pointer
    if (engine == NULL) {
        return NULL;
    }

    // Phase 1: the length must be positive
    if (initial_kv_len <= 0) {
        return NULL;
    }

    // Phase 1 also: the id must be new.
    // We walk over the list until we are back at the dummy head.
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        // DANGER ZONE: the node is inside of the sequence, so go back by the offset
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == seq_id) {
            // somebody has this id already
            return NULL;
        }
        // go to the next one
        current_node = current_node->next;
    }

    // Phase 2: how many blocks do we need? (ceiling division from the handout)
    int required_blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;

    // not more than 16 * 16 = 256
    if (required_blocks > 256) {
        return NULL;
    }
    // not more than we have
    if (required_blocks > engine->free_local_blocks) {
        return NULL;
    }

    // now nothing can go wrong any more, so we can use malloc
    Sequence *new_sequence = (Sequence *)malloc(sizeof(Sequence));
    new_sequence->seq_id = seq_id;

    // the L1 table has 16 pointers
    new_sequence->block_table = (int **)malloc(16 * sizeof(int *));
    // all of them are NULL in the beginning
    for (int i = 0; i < 16; i++) {
        new_sequence->block_table[i] = NULL;
    }

    // map all the blocks one after another
    for (int logical_block = 0; logical_block < required_blocks; logical_block++) {
        // where does this block go in the tables?
        int l1_index = logical_block / 16;
        int l2_index = logical_block % 16;

        // is there an L2 table already? if not, make one
        if (new_sequence->block_table[l1_index] == NULL) {
            new_sequence->block_table[l1_index] = (int *)malloc(16 * sizeof(int));
            // -1 means "not mapped"
            for (int i = 0; i < 16; i++) {
                new_sequence->block_table[l1_index][i] = -1;
            }
        }

        // First-Fit: look at all blocks from 0 and take the first free one
        for (int block = 0; block < engine->total_local_blocks; block++) {
            if (engine->ref_count[block] == 0) {
                // found a free one! take it
                new_sequence->block_table[l1_index][l2_index] = block;
                // now one sequence uses it
                engine->ref_count[block] = 1;
                // and there is one free block less
                engine->free_local_blocks = engine->free_local_blocks - 1;
                // stop searching
                break;
            }
        }
        // (no memset on the block here! it is forbidden)
    }

    // remember how many records there are
    new_sequence->kv_count = initial_kv_len;

    // put it at the end of the list. the last one is head->prev
    struct list_node *last_node = engine->active_seqs.prev;
    // the old last one points forward to us
    last_node->next = &new_sequence->node;
    // we point back to the old last one
    new_sequence->node.prev = last_node;
    // we point forward to the head, because the list is a circle
    new_sequence->node.next = &engine->active_seqs;
    // the head points back to us
    engine->active_seqs.prev = &new_sequence->node;

    // give it to the caller
    return new_sequence;
}

// ---------------------------------------------------------------
// Task 2 b): delete a sequence
// ---------------------------------------------------------------
int free_sequence(LLMEngine *engine, int seq_id)
{
    // first line: check the pointer
    if (engine == NULL) {
        return -1;
    }

    // search the sequence
    Sequence *target = NULL; // NULL means: not found yet
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == seq_id) {
            // this is the one
            target = current_sequence;
            break;
        }
        current_node = current_node->next;
    }

    // not found -> error
    if (target == NULL) {
        return -1;
    }

    // take it out of the list: the neighbours point to each other now
    target->node.prev->next = target->node.next;
    target->node.next->prev = target->node.prev;

    // CRITICAL: all 16 slots, no break on NULL!
    for (int i = 0; i < 16; i++) {
        if (target->block_table[i] != NULL) {
            // look at every entry of the L2 table
            for (int j = 0; j < 16; j++) {
                int block = target->block_table[i][j];
                if (block != -1) {
                    // one user less
                    engine->ref_count[block] = engine->ref_count[block] - 1;
                    // nobody uses it any more -> it is free again
                    if (engine->ref_count[block] == 0) {
                        engine->free_local_blocks = engine->free_local_blocks + 1;
                    }
                }
            }
            // the L2 table was malloc'ed, so free it
            free(target->block_table[i]);
        }
    }
    // free the L1 table (after the L2 tables, not before!)
    free(target->block_table);
    // free the sequence itself
    free(target);

    // 0 means everything is okay
    return 0;
}

// ---------------------------------------------------------------
// Task 3: copy a sequence
// ---------------------------------------------------------------
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    // first line: check the pointer
    if (engine == NULL) {
        return NULL;
    }

    // search the parent, and at the same time look if the new id is taken
    Sequence *parent = NULL;
    int new_id_is_taken = 0; // 0 = no, 1 = yes
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == parent_seq_id) {
            parent = current_sequence;
        }
        if (current_sequence->seq_id == new_seq_id) {
            new_id_is_taken = 1;
        }
        current_node = current_node->next;
    }

    // the parent must exist
    if (parent == NULL) {
        return NULL;
    }
    // the child's id must be new
    if (new_id_is_taken == 1) {
        return NULL;
    }

    // make the child
    Sequence *child = (Sequence *)malloc(sizeof(Sequence));
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    // the child needs its own L1 table
    child->block_table = (int **)malloc(16 * sizeof(int *));
    for (int i = 0; i < 16; i++) {
        child->block_table[i] = NULL;
    }

    // copy the tables
    for (int i = 0; i < 16; i++) {
        // only when the parent has a table here
        if (parent->block_table[i] != NULL) {
            // make an L2 table for the child
            child->block_table[i] = (int *)malloc(16 * sizeof(int));
            // set it to -1
            for (int j = 0; j < 16; j++) {
                child->block_table[i][j] = -1;
            }
            // copy the entries
            for (int j = 0; j < 16; j++) {
                if (parent->block_table[i][j] != -1) {
                    child->block_table[i][j] = parent->block_table[i][j];
                    // now the child uses this block too
                    engine->ref_count[parent->block_table[i][j]]++;
                }
            }
        }
    }

    // put the child at the end of the list (same as in create_sequence)
    struct list_node *last_node = engine->active_seqs.prev;
    last_node->next = &child->node;
    child->node.prev = last_node;
    child->node.next = &engine->active_seqs;
    engine->active_seqs.prev = &child->node;

    return child;
}

// ---------------------------------------------------------------
// Task 4: add one record
// ---------------------------------------------------------------
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    // first line: check the pointer
    if (engine == NULL) {
        return -1;
    }

    // search the sequence
    Sequence *sequence = NULL;
    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        Sequence *current_sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));
        if (current_sequence->seq_id == seq_id) {
            sequence = current_sequence;
            break;
        }
        current_node = current_node->next;
    }
    if (sequence == NULL) {
        return -1;
    }

    // like in the example with 613
    int logical_idx = sequence->kv_count / 16;
    int offset = sequence->kv_count % 16;
    // the sequence is full
    if (logical_idx >= 256) {
        return -1;
    }
    int l1_index = logical_idx / 16;
    int l2_index = logical_idx % 16;

    // which block is mapped there now? -1 if nothing
    int old_block = -1;
    if (sequence->block_table[l1_index] != NULL) {
        old_block = sequence->block_table[l1_index][l2_index];
    }

    // do we need a new block?
    int need_new_block = 0;
    if (old_block == -1) {
        // yes: not mapped
        need_new_block = 1;
    } else if (engine->ref_count[old_block] > 1) {
        // yes: other sequences use it too, copy on write
        need_new_block = 1;
    } else {
        // no: it is only ours
        need_new_block = 0;
    }

    // OOM interception
    if (need_new_block == 1 && engine->free_local_blocks == 0) {
        return -1;
    }

    // make the L2 table when it is missing
    if (sequence->block_table[l1_index] == NULL) {
        sequence->block_table[l1_index] = (int *)malloc(16 * sizeof(int));
        for (int j = 0; j < 16; j++) {
            sequence->block_table[l1_index][j] = -1;
        }
    }

    // this is the block we will write into
    int target_block = old_block;

    if (need_new_block == 1) {
        // First-Fit again
        for (int block = 0; block < engine->total_local_blocks; block++) {
            if (engine->ref_count[block] == 0) {
                target_block = block;
                break;
            }
        }

        // it is ours now
        engine->ref_count[target_block] = 1;
        engine->free_local_blocks = engine->free_local_blocks - 1;
        sequence->block_table[l1_index][l2_index] = target_block;

        // copy on write: only when there was an old block
        if (old_block != -1) {
            char *from = (char *)engine->pool_base_ptr + (size_t)old_block * 64;
            char *to = (char *)engine->pool_base_ptr + (size_t)target_block * 64;
            // exactly 64 bytes
            memcpy(to, from, 64);
            // we do not use the old one any more
            engine->ref_count[old_block] = engine->ref_count[old_block] - 1;
        }
    }

    // calculate the address of the block, then write the record
    int *address = (int *)((char *)engine->pool_base_ptr + (size_t)target_block * 64);
    address[offset] = kv_data;

    // one record more
    sequence->kv_count = sequence->kv_count + 1;
    return 0;
}

// ---------------------------------------------------------------
// Task 5: delete everything
// ---------------------------------------------------------------
int llm_destroy(LLMEngine *engine)
{
    // first line: check the pointer
    if (engine == NULL) {
        return -1;
    }

    struct list_node *current_node = engine->active_seqs.next;
    while (current_node != &engine->active_seqs) {
        // IMPORTANT: save the next one before we free this one
        struct list_node *next_node = current_node->next;
        Sequence *sequence = (Sequence *)((char *)current_node - offsetof(Sequence, node));

        // all 16 slots again
        for (int i = 0; i < 16; i++) {
            // free(NULL) would be okay too but I check to be sure
            if (sequence->block_table[i] != NULL) {
                free(sequence->block_table[i]);
            }
        }
        free(sequence->block_table);
        free(sequence);

        current_node = next_node;
    }

    // free the counters and the engine. NOT the pool!!!
    free(engine->ref_count);
    free(engine);
    return 0;
}
