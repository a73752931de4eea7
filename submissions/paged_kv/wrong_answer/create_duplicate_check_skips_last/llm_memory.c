/*
 * CS110 Homework 3
 * Block allocator with a two level block table
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

Sequence *find_sequence(LLMEngine *engine, int id);

Sequence *find_sequence(LLMEngine *engine, int id)
{
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs)
    {
        // the node is inside the Sequence, so subtract the offset
        Sequence *s = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (s->seq_id == id)
        {
            return s;
        }
        cur = cur->next;
    }
    return NULL;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (!pool_addr)
    {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE)
    {
        return NULL;
    }

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (!engine)
    {
        return NULL;
    }

    engine->total_local_blocks = pool_size / BLOCK_SIZE;
    engine->free_local_blocks = engine->total_local_blocks;
    engine->pool_base_ptr = pool_addr;

    engine->ref_count = calloc(engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL)
    {
        free(engine);
        return NULL;
    }

    // empty list: the head points to itself
    engine->active_seqs.next = &engine->active_seqs;
    engine->active_seqs.prev = &engine->active_seqs;

    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
    {
        return NULL;
    }

    // Phase 1
    if (initial_kv_len <= 0)
    {
        return NULL;
    }
    struct list_node *cur = engine->active_seqs.next;
    while (cur->next != &engine->active_seqs)
    {
        Sequence *other = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (other->seq_id == seq_id)
        {
            return NULL;
        }
        cur = cur->next;
    }

    int required_blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required_blocks > 256)
    {
        return NULL;
    }
    if (required_blocks > engine->free_local_blocks)
    {
        return NULL;
    }

    Sequence *new_seq = malloc(sizeof(Sequence));
    new_seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    new_seq->seq_id = seq_id;
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        new_seq->block_table[i] = NULL;
    }

    // map the blocks one after another
    int done = 0;
    for (int i = 0; i < L1_PT_SIZE && done < required_blocks; i++)
    {
        new_seq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        for (int j = 0; j < L2_PT_SIZE; j++)
        {
            new_seq->block_table[i][j] = -1;
        }

        for (int j = 0; j < L2_PT_SIZE && done < required_blocks; j++)
        {
            int block_id = -1;
            for (int k = 0; k < engine->total_local_blocks; k++)
            {
                if (engine->ref_count[k] == 0)
                {
                    block_id = k;
                    break;
                }
            }
            new_seq->block_table[i][j] = block_id;
            engine->ref_count[block_id] = 1;
            engine->free_local_blocks--;
            done++;
        }
    }

    new_seq->kv_count = initial_kv_len;

    // insert at the tail of the list
    struct list_node *tail = engine->active_seqs.prev;
    new_seq->node.prev = tail;
    new_seq->node.next = &engine->active_seqs;
    tail->next = &new_seq->node;
    engine->active_seqs.prev = &new_seq->node;

    return new_seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
    {
        return -1;
    }

    Sequence *seq = find_sequence(engine, seq_id);
    if (!seq)
    {
        return -1;
    }

    // take it out of the list
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;

    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        if (seq->block_table[i] != NULL)
        {
            for (int j = 0; j < L2_PT_SIZE; j++)
            {
                int block_id = seq->block_table[i][j];
                if (block_id != -1)
                {
                    engine->ref_count[block_id]--;
                    if (engine->ref_count[block_id] == 0)
                    {
                        engine->free_local_blocks++;
                    }
                }
            }
            free(seq->block_table[i]);
            seq->block_table[i] = NULL;
        }
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

// Task 3
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
    {
        return NULL;
    }

    Sequence *parent = find_sequence(engine, parent_seq_id);
    if (!parent)
    {
        return NULL;
    }
    if (find_sequence(engine, new_seq_id) != NULL)
    {
        return NULL;
    }

    Sequence *child = malloc(sizeof(Sequence));
    child->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        if (parent->block_table[i] == NULL)
        {
            child->block_table[i] = NULL;
        }
        else
        {
            child->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
            for (int j = 0; j < L2_PT_SIZE; j++)
            {
                child->block_table[i][j] = -1;
            }
            for (int j = 0; j < L2_PT_SIZE; j++)
            {
                int block_id = parent->block_table[i][j];
                if (block_id != -1)
                {
                    child->block_table[i][j] = block_id;
                    engine->ref_count[block_id]++;
                }
            }
        }
    }

    // insert at the tail of the list
    struct list_node *tail = engine->active_seqs.prev;
    child->node.prev = tail;
    child->node.next = &engine->active_seqs;
    tail->next = &child->node;
    engine->active_seqs.prev = &child->node;

    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
    {
        return -1;
    }

    Sequence *seq = find_sequence(engine, seq_id);
    if (!seq)
    {
        return -1;
    }

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256)
    {
        return -1;
    }
    int l1_idx = logical_idx / L2_PT_SIZE;
    int l2_idx = logical_idx % L2_PT_SIZE;

    // do we need a new block?
    int need_page = 0;
    int need_cow = 0;
    if (seq->block_table[l1_idx] == NULL || seq->block_table[l1_idx][l2_idx] == -1)
    {
        need_page = 1;
    }
    else if (engine->ref_count[seq->block_table[l1_idx][l2_idx]] > 1)
    {
        need_cow = 1;
    }
    if ((need_page || need_cow) && engine->free_local_blocks == 0)
    {
        return -1;
    }

    if (need_page)
    {
        if (seq->block_table[l1_idx] == NULL)
        {
            seq->block_table[l1_idx] = malloc(L2_PT_SIZE * sizeof(int));
            for (int j = 0; j < L2_PT_SIZE; j++)
            {
                seq->block_table[l1_idx][j] = -1;
            }
        }
        int new_block = -1;
        for (int k = 0; k < engine->total_local_blocks; k++)
        {
            if (engine->ref_count[k] == 0)
            {
                new_block = k;
                break;
            }
        }
        engine->ref_count[new_block] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1_idx][l2_idx] = new_block;
    }

    if (need_cow)
    {
        int old_block = seq->block_table[l1_idx][l2_idx];
        int new_block = -1;
        for (int k = 0; k < engine->total_local_blocks; k++)
        {
            if (engine->ref_count[k] == 0)
            {
                new_block = k;
                break;
            }
        }
        memcpy((char *)engine->pool_base_ptr + (size_t)new_block * BLOCK_SIZE,
               (char *)engine->pool_base_ptr + (size_t)old_block * BLOCK_SIZE,
               64);
        engine->ref_count[old_block]--;
        engine->ref_count[new_block] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1_idx][l2_idx] = new_block;
    }

    int physical = seq->block_table[l1_idx][l2_idx];
    int *addr = (int *)((char *)engine->pool_base_ptr + (size_t)physical * BLOCK_SIZE);
    addr[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

// Task 5
int llm_destroy(LLMEngine *engine)
{
    if (!engine)
    {
        return -1;
    }

    while (engine->active_seqs.next != &engine->active_seqs)
    {
        Sequence *s = (Sequence *)((char *)engine->active_seqs.next - offsetof(Sequence, node));
        free_sequence(engine, s->seq_id);
    }

    // the pool belongs to the framework
    free(engine->ref_count);
    free(engine);
    return 0;
}
