#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

// Helper: walk through the linked list and look for the id
Sequence* find_sequence(LLMEngine* engine, int id);

Sequence* find_sequence(LLMEngine* engine, int id)
{
    struct list_node* cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs)
    {
        // the node is inside the Sequence, so subtract the offset
        Sequence* s = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (s->seq_id == id)
        {
            return s;
        }
        cur = cur->next;
    }
    return NULL;
}

// Task 1
LLMEngine* llm_init(void* pool_addr, size_t pool_size)
{
    if (pool_addr == NULL)
    {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE)
    {
        return NULL;
    }

    LLMEngine* engine = malloc(sizeof(LLMEngine));
    if (engine == NULL)
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

// Task 2: create
Sequence* create_sequence(LLMEngine* engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
    {
        return NULL;
    }

    // Phase 1
    if (initial_kv_len <= 0)
    {
        return NULL;
    }
    if (find_sequence(engine, seq_id) != NULL)
    {
        return NULL;
    }

    // Phase 2: how many blocks do we need?
    int required_blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required_blocks > MAX_LOGICAL_BLOCKS)
    {
        return NULL;
    }
    if (required_blocks > engine->free_local_blocks)
    {
        return NULL;
    }

    Sequence* new_seq = malloc(sizeof(struct Sequence));
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
            // first fit
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
    struct list_node* tail = engine->active_seqs.prev;
    new_seq->node.prev = tail;
    new_seq->node.next = &engine->active_seqs;
    tail->next = &new_seq->node;
    engine->active_seqs.prev = &new_seq->node;

    return new_seq;
}

// Task 2: delete
int free_sequence(LLMEngine* engine, int seq_id)
{
    if (engine == NULL)
    {
        return (-1);
    }

    Sequence* seq = find_sequence(engine, seq_id);
    if (seq == NULL)
    {
        return (-1);
    }

    // take it out of the list
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;

    // look at every slot, there may be holes
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
Sequence* fork_sequence(LLMEngine* engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
    {
        return NULL;
    }

    Sequence* parent = find_sequence(engine, parent_seq_id);
    if (parent == NULL)
    {
        return NULL;
    }
    if (find_sequence(engine, new_seq_id) != NULL)
    {
        return NULL;
    }

    Sequence* child = malloc(sizeof(struct Sequence));
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
                    // one more user of this block
                    engine->ref_count[block_id]++;
                }
            }
        }
    }

    // insert into the list
    struct list_node* first = engine->active_seqs.next;
    child->node.next = first;
    child->node.prev = &engine->active_seqs;
    first->prev = &child->node;
    engine->active_seqs.next = &child->node;

    return child;
}

// Task 4
int append_kv(LLMEngine* engine, int seq_id, int kv_data)
{
    if (engine == NULL)
    {
        return (-1);
    }

    Sequence* seq = find_sequence(engine, seq_id);
    if (seq == NULL)
    {
        return (-1);
    }

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
    {
        return (-1);
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
        return (-1);
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
               BLOCK_SIZE);
        engine->ref_count[old_block]--;
        engine->ref_count[new_block] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1_idx][l2_idx] = new_block;
    }

    // write the data
    int physical = seq->block_table[l1_idx][l2_idx];
    int* addr = (int *)((char *)engine->pool_base_ptr + (size_t)physical * BLOCK_SIZE);
    addr[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

// Task 5
int llm_destroy(LLMEngine* engine)
{
    if (engine == NULL)
    {
        return (-1);
    }

    // free_sequence unlinks the first one each time
    while (engine->active_seqs.next != &engine->active_seqs)
    {
        Sequence* s = (Sequence *)((char *)engine->active_seqs.next - offsetof(Sequence, node));
        free_sequence(engine, s->seq_id);
    }

    // the pool belongs to the framework
    free(engine->ref_count);
    free(engine);
    return 0;
}
