/**
 * @file llm_memory.c
 * @brief Memory manager of homework 3.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

// Helper: walk through the linked list and look for the id
Sequence *findSequence(LLMEngine *engine, int seqId);

Sequence *findSequence(LLMEngine *engine, int seqId)
{
    struct list_node *cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs)
    {
        // the node is inside the Sequence, so subtract the offset
        Sequence *s = (Sequence *)((char *)cur - offsetof(Sequence, node));
        if (s->seq_id == seqId)
        {
            return s;
        }
        cur = cur->next;
    }
    return NULL;
}

// Task 1
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

// Task 2: create
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
    if (findSequence(engine, seq_id) != NULL)
    {
        return NULL;
    }

    // Phase 2: how many blocks do we need?
    int requiredBlocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (requiredBlocks > MAX_LOGICAL_BLOCKS)
    {
        return NULL;
    }
    if (requiredBlocks > engine->free_local_blocks)
    {
        return NULL;
    }

    Sequence *newSeq = malloc(sizeof(struct Sequence));
    newSeq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    newSeq->seq_id = seq_id;
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        newSeq->block_table[i] = NULL;
    }

    // map the blocks one after another
    int mapped = 0;
    for (int i = 0; i < L1_PT_SIZE && mapped < requiredBlocks; i++)
    {
        newSeq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        for (int j = 0; j < L2_PT_SIZE; j++)
        {
            newSeq->block_table[i][j] = -1;
        }

        for (int j = 0; j < L2_PT_SIZE && mapped < requiredBlocks; j++)
        {
            // first fit
            int blockId = -1;
            for (int k = 0; k < engine->total_local_blocks; k++)
            {
                if (engine->ref_count[k] == 0)
                {
                    blockId = k;
                    break;
                }
            }
            newSeq->block_table[i][j] = blockId;
            engine->ref_count[blockId] = 1;
            engine->free_local_blocks--;
            mapped++;
        }
    }

    newSeq->kv_count = initial_kv_len;

    // insert at the tail of the list
    struct list_node *tail = engine->active_seqs.prev;
    newSeq->node.prev = tail;
    newSeq->node.next = &engine->active_seqs;
    tail->next = &newSeq->node;
    engine->active_seqs.prev = &newSeq->node;

    return newSeq;
}

// Task 2: delete
int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
    {
        return -1;
    }

    Sequence *seq = findSequence(engine, seq_id);
    if (!seq)
    {
        return -1;
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
                int blockId = seq->block_table[i][j];
                if (blockId != -1)
                {
                    memset((char *)engine->pool_base_ptr + (size_t)blockId * BLOCK_SIZE, 0, BLOCK_SIZE);
                    engine->ref_count[blockId]--;
                    if (engine->ref_count[blockId] == 0)
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

    Sequence *parent = findSequence(engine, parent_seq_id);
    if (!parent)
    {
        return NULL;
    }
    if (findSequence(engine, new_seq_id) != NULL)
    {
        return NULL;
    }

    Sequence *child = malloc(sizeof(struct Sequence));
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
                int blockId = parent->block_table[i][j];
                if (blockId != -1)
                {
                    child->block_table[i][j] = blockId;
                    // one more user of this block
                    engine->ref_count[blockId]++;
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

// Task 4
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
    {
        return -1;
    }

    Sequence *seq = findSequence(engine, seq_id);
    if (!seq)
    {
        return -1;
    }

    int logicalIdx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logicalIdx >= MAX_LOGICAL_BLOCKS)
    {
        return -1;
    }
    int l1Idx = logicalIdx / L2_PT_SIZE;
    int l2Idx = logicalIdx % L2_PT_SIZE;

    // do we need a new block?
    int newPage = 0;
    int doCow = 0;
    if (seq->block_table[l1Idx] == NULL || seq->block_table[l1Idx][l2Idx] == -1)
    {
        newPage = 1;
    }
    else if (engine->ref_count[seq->block_table[l1Idx][l2Idx]] > 1)
    {
        doCow = 1;
    }
    if ((newPage || doCow) && engine->free_local_blocks == 0)
    {
        return -1;
    }

    if (newPage)
    {
        if (seq->block_table[l1Idx] == NULL)
        {
            seq->block_table[l1Idx] = malloc(L2_PT_SIZE * sizeof(int));
            for (int j = 0; j < L2_PT_SIZE; j++)
            {
                seq->block_table[l1Idx][j] = -1;
            }
        }
        int newBlock = -1;
        for (int k = 0; k < engine->total_local_blocks; k++)
        {
            if (engine->ref_count[k] == 0)
            {
                newBlock = k;
                break;
            }
        }
        engine->ref_count[newBlock] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1Idx][l2Idx] = newBlock;
    }

    if (doCow)
    {
        int oldBlock = seq->block_table[l1Idx][l2Idx];
        int newBlock = -1;
        for (int k = 0; k < engine->total_local_blocks; k++)
        {
            if (engine->ref_count[k] == 0)
            {
                newBlock = k;
                break;
            }
        }
        memcpy((char *)engine->pool_base_ptr + (size_t)newBlock * BLOCK_SIZE,
               (char *)engine->pool_base_ptr + (size_t)oldBlock * BLOCK_SIZE,
               BLOCK_SIZE);
        engine->ref_count[oldBlock]--;
        engine->ref_count[newBlock] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1Idx][l2Idx] = newBlock;
    }

    // write the data
    int physical = seq->block_table[l1Idx][l2Idx];
    int *address = (int *)((char *)engine->pool_base_ptr + (size_t)physical * BLOCK_SIZE);
    address[offset] = kv_data;
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

    // free_sequence unlinks the first one each time
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
