/*
 * Homework 3 - PagedAttention memory manager
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

// Task 1
LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL)
    {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE)
    {
        return NULL;
    }

    LLMEngine* e = (LLMEngine*)malloc(sizeof(LLMEngine));
    if (e == NULL)
    {
        return NULL;
    }
    int totalBlocks = (int)(pool_size / BLOCK_SIZE);
    e->ref_count = (int*)calloc((size_t)totalBlocks, sizeof(int));
    if (e->ref_count == NULL)
    {
        free(e);
        return NULL;
    }
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = totalBlocks;
    e->free_local_blocks = totalBlocks;

    // empty list: the head points to itself
    e->active_seqs.prev = &e->active_seqs;
    e->active_seqs.next = &e->active_seqs;
    return e;
}

// Task 2.1
Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
    {
        return NULL;
    }

    Sequence* newSeq = (Sequence*)malloc(sizeof(Sequence));

    // Phase 1: basic validity
    if (initial_kv_len <= 0)
    {
        return NULL;
    }

    // Phase 2: is this id already used?
    struct list_node* iter = engine->active_seqs.next;
    while (iter != &engine->active_seqs)
    {
        Sequence* now = (Sequence*)((char*)iter - offsetof(Sequence, node));
        if (now->seq_id == seq_id)
        {
            return NULL;
        }
        iter = iter->next;
    }

    // Phase 3: are there enough blocks?
    int num = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (num > 16 * 16)
    {
        return NULL;
    }
    if (num > engine->free_local_blocks)
    {
        return NULL;
    }

    // now build the sequence
    int** table = (int**)malloc(sizeof(int*) * 16);
    for (int i = 0; i < 16; i++)
    {
        table[i] = NULL;
    }

    for (int k = 0; k < num; k++)
    {
        int l1 = k / 16;
        int l2 = k % 16;

        // new L2 table
        if (table[l1] == NULL)
        {
            table[l1] = (int*)malloc(sizeof(int) * 16);
            for (int j = 0; j < 16; j++)
            {
                table[l1][j] = -1;
            }
        }

        // search a block
        for (int b = engine->total_local_blocks - 1; b >= 0; b--)
        {
            if (engine->ref_count[b] == 0)
            {
                engine->ref_count[b] = 1;
                engine->free_local_blocks--;
                table[l1][l2] = b;
                break;
            }
        }
    }

    newSeq->seq_id = seq_id;
    newSeq->block_table = table;
    newSeq->kv_count = initial_kv_len;

    // insert at the tail
    struct list_node* tail = engine->active_seqs.prev;
    newSeq->node.prev = tail;
    newSeq->node.next = &engine->active_seqs;
    tail->next = &newSeq->node;
    engine->active_seqs.prev = &newSeq->node;
    return newSeq;
}

// Task 2.2
int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
    {
        return -1;
    }

    // find it
    Sequence* found = NULL;
    struct list_node* iter = engine->active_seqs.next;
    while (iter != &engine->active_seqs)
    {
        Sequence* now = (Sequence*)((char*)iter - offsetof(Sequence, node));
        if (now->seq_id == seq_id)
        {
            found = now;
            break;
        }
        iter = iter->next;
    }
    if (found == NULL)
    {
        return -1;
    }

    // detach
    found->node.prev->next = found->node.next;
    found->node.next->prev = found->node.prev;

    // release the blocks
    for (int i = 0; i < 16; i++)
    {
        if (found->block_table[i] != NULL)
        {
            for (int j = 0; j < 16; j++)
            {
                int phys = found->block_table[i][j];
                if (phys != -1)
                {
                    engine->ref_count[phys]--;
                    if (engine->ref_count[phys] == 0)
                    {
                        engine->free_local_blocks++;
                    }
                }
            }
            free(found->block_table[i]);
        }
    }

    // release the memory
    free(found->block_table);
    free(found);
    return 0;
}

// Task 3
Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
    {
        return NULL;
    }

    // find the parent and check the new id in one walk
    Sequence* parent = NULL;
    struct list_node* iter = engine->active_seqs.next;
    while (iter != &engine->active_seqs)
    {
        Sequence* now = (Sequence*)((char*)iter - offsetof(Sequence, node));
        if (now->seq_id == new_seq_id)
        {
            return NULL;
        }
        if (now->seq_id == parent_seq_id)
        {
            parent = now;
        }
        iter = iter->next;
    }
    if (parent == NULL)
    {
        return NULL;
    }

    Sequence* child = (Sequence*)malloc(sizeof(Sequence));
    child->block_table = (int**)malloc(sizeof(int*) * 16);
    for (int i = 0; i < 16; i++)
    {
        child->block_table[i] = NULL;
    }

    // copy the tables
    for (int i = 0; i < 16; i++)
    {
        if (parent->block_table[i] != NULL)
        {
            int* newL2 = (int*)malloc(sizeof(int) * 16);
            for (int j = 0; j < 16; j++)
            {
                newL2[j] = -1;
            }
            for (int j = 0; j < 16; j++)
            {
                int phys = parent->block_table[i][j];
                if (phys != -1)
                {
                    newL2[j] = phys;
                    engine->ref_count[phys]++;
                }
            }
            child->block_table[i] = newL2;
        }
    }
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    // insert at the tail
    struct list_node* tail = engine->active_seqs.prev;
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

    // find the sequence
    Sequence* found = NULL;
    struct list_node* iter = engine->active_seqs.next;
    while (iter != &engine->active_seqs)
    {
        Sequence* now = (Sequence*)((char*)iter - offsetof(Sequence, node));
        if (now->seq_id == seq_id)
        {
            found = now;
            break;
        }
        iter = iter->next;
    }
    if (found == NULL)
    {
        return -1;
    }

    // translate the address
    int logic = found->kv_count / KV_PER_BLOCK;
    int offset = found->kv_count % KV_PER_BLOCK;
    if (logic >= 16 * 16)
    {
        return -1;
    }
    int l1 = logic / 16;
    int l2 = logic % 16;

    // what do we have to do?
    int needNewPage = 0;
    int needCow = 0;
    if (found->block_table[l1] == NULL || found->block_table[l1][l2] == -1)
    {
        needNewPage = 1;
    }
    else if (engine->ref_count[found->block_table[l1][l2]] > 1)
    {
        needCow = 1;
    }

    // find a block for it
    int newBlk = -1;
    if (needNewPage || needCow)
    {
        if (engine->free_local_blocks == 0)
        {
            return -1;
        }
        for (int b = engine->total_local_blocks - 1; b >= 0; b--)
        {
            if (engine->ref_count[b] == 0)
            {
                newBlk = b;
                break;
            }
        }
    }

    if (needNewPage)
    {
        if (found->block_table[l1] == NULL)
        {
            found->block_table[l1] = (int*)malloc(sizeof(int) * 16);
            for (int j = 0; j < 16; j++)
            {
                found->block_table[l1][j] = -1;
            }
        }
        found->block_table[l1][l2] = newBlk;
        engine->ref_count[newBlk] = 1;
        engine->free_local_blocks--;
    }

    if (needCow)
    {
        int oldBlk = found->block_table[l1][l2];
        char* src = (char*)engine->pool_base_ptr + (long)oldBlk * BLOCK_SIZE;
        char* dst = (char*)engine->pool_base_ptr + (long)newBlk * BLOCK_SIZE;
        memcpy(dst, src, BLOCK_SIZE);
        engine->ref_count[oldBlk]--;
        engine->ref_count[newBlk] = 1;
        engine->free_local_blocks--;
        found->block_table[l1][l2] = newBlk;
    }

    // write the record
    int phys = found->block_table[l1][l2];
    int* addr = (int*)((char*)engine->pool_base_ptr + (long)phys * BLOCK_SIZE);
    addr[offset] = kv_data;
    found->kv_count++;
    return 0;
}

// Task 5
int llm_destroy(LLMEngine *engine)
{
    if (!engine)
    {
        return -1;
    }

    struct list_node* iter = engine->active_seqs.next;
    while (iter != &engine->active_seqs)
    {
        struct list_node* nxt = iter->next;
        Sequence* now = (Sequence*)((char*)iter - offsetof(Sequence, node));
        for (int i = 0; i < 16; i++)
        {
            if (now->block_table[i] != NULL)
            {
                free(now->block_table[i]);
            }
        }
        free(now->block_table);
        free(now);
        iter = nxt;
    }

    free(engine->ref_count);
    free(engine);
    return 0;
}
