/**
 * @file llm_memory.c
 * @brief Memory manager of homework 3.
 */
#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

// get the struct back from its embedded node
#define container_of(ptr, type, member) \
    ((type *)((char *)(ptr) - offsetof(type, member)))

LLMEngine* llm_init(void* pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
    {
        return NULL;
    }

    LLMEngine* engine = malloc(sizeof(LLMEngine));
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

// first fit
static int first_fit(LLMEngine* engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++)
    {
        if (engine->ref_count[i] == 0)
        {
            return i;
        }
    }
    return -1;
}

static int* alloc_l2(void)
{
    int* l2 = malloc(L2_PT_SIZE * sizeof(int));

    for (int i = 0; i < L2_PT_SIZE; i++)
    {
        l2[i] = -1;
    }
    return l2;
}

// linear search over the active list, NULL if there is no such id
static Sequence* lookup_sequence(LLMEngine* engine, int seq_id)
{
    struct list_node* cur;

    for (cur = engine->active_seqs.next; cur != &engine->active_seqs; cur = cur->next)
    {
        Sequence* seq = container_of(cur, Sequence, node);
        if (seq->seq_id == seq_id)
        {
            return seq;
        }
    }
    return NULL;
}

static void list_add_tail(struct list_node* node, struct list_node* head)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

Sequence* create_sequence(LLMEngine* engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
    {
        return NULL;
    }
    if (initial_kv_len <= 0)
    {
        return NULL;
    }
    if (lookup_sequence(engine, seq_id) != NULL)
    {
        return NULL;
    }

    // capacity check before anything is allocated
    int num_blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (num_blocks > MAX_LOGICAL_BLOCKS || num_blocks > engine->free_local_blocks)
    {
        return NULL;
    }

    Sequence* seq = malloc(sizeof(Sequence));
    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        seq->block_table[i] = NULL;
    }

    for (int i = 0; i < num_blocks; i++)
    {
        int l1_idx = i / L2_PT_SIZE;
        int l2_idx = i % L2_PT_SIZE;
        if (seq->block_table[l1_idx] == NULL)
        {
            seq->block_table[l1_idx] = alloc_l2();
        }
        int block = first_fit(engine);
        seq->block_table[l1_idx][l2_idx] = block;
        engine->ref_count[block] = 1;
        engine->free_local_blocks--;
    }

    list_add_tail(&seq->node, &engine->active_seqs);
    return seq;
}

// give back all blocks and all memory of a sequence (already unlinked)
static void destroy_sequence(LLMEngine* engine, Sequence* seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        int* l2 = seq->block_table[i];
        if (l2 == NULL)
        {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++)
        {
            int block = l2[j];
            if (block != -1)
            {
                engine->ref_count[block]--;
                if (engine->ref_count[block] == 0)
                {
                    engine->free_local_blocks++;
                }
            }
        }
        free(l2);
    }
    free(seq->block_table);
    free(seq);
}

static void list_del(struct list_node* node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
}

int free_sequence(LLMEngine* engine, int seq_id)
{
    if (engine == NULL)
    {
        return -1;
    }
    Sequence* seq = lookup_sequence(engine, seq_id);
    if (seq == NULL)
    {
        return -1;
    }
    list_del(&seq->node);
    destroy_sequence(engine, seq);
    return 0;
}

Sequence* fork_sequence(LLMEngine* engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
    {
        return NULL;
    }
    Sequence* parent = lookup_sequence(engine, parent_seq_id);
    if (parent == NULL)
    {
        return NULL;
    }
    if (lookup_sequence(engine, new_seq_id) != NULL)
    {
        return NULL;
    }

    Sequence* child = malloc(sizeof(Sequence));
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;
    child->block_table = malloc(L1_PT_SIZE * sizeof(int *));

    for (int i = 0; i < L1_PT_SIZE; i++)
    {
        child->block_table[i] = NULL;
        if (parent->block_table[i] == NULL)
        {
            continue;
        }
        child->block_table[i] = alloc_l2();
        for (int j = 0; j < L2_PT_SIZE; j++)
        {
            int block = parent->block_table[i][j];
            if (block != -1)
            {
                child->block_table[i][j] = block;
                engine->ref_count[block]++;
            }
        }
    }

    list_add_tail(&child->node, &engine->active_seqs);
    return child;
}

int append_kv(LLMEngine* engine, int seq_id, int kv_data)
{
    if (engine == NULL)
    {
        return -1;
    }
    Sequence* seq = lookup_sequence(engine, seq_id);
    if (seq == NULL)
    {
        return -1;
    }

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
    {
        return -1;
    }

    int l1_idx = logical_idx / L2_PT_SIZE;
    int l2_idx = logical_idx % L2_PT_SIZE;
    int old = -1;
    if (seq->block_table[l1_idx] != NULL)
    {
        old = seq->block_table[l1_idx][l2_idx];
    }

    int needs_alloc = (old == -1 || engine->ref_count[old] > 1);
    if (needs_alloc && engine->free_local_blocks == 0)
    {
        return -1;
    }

    if (seq->block_table[l1_idx] == NULL)
    {
        seq->block_table[l1_idx] = alloc_l2();
    }

    char* pool = engine->pool_base_ptr;
    int block = old;
    if (needs_alloc)
    {
        block = first_fit(engine);
        if (old != -1)
        {
            // copy on write
            memcpy(pool + (size_t)block * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
        engine->ref_count[block] = 1;
        engine->free_local_blocks--;
        seq->block_table[l1_idx][l2_idx] = block;
    }

    int* slot = (int *)(pool + (size_t)block * BLOCK_SIZE);
    slot[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine* engine)
{
    struct list_node* cur = engine->active_seqs.next;
    while (cur != &engine->active_seqs)
    {
        struct list_node* next = cur->next;
        destroy_sequence(engine, container_of(cur, Sequence, node));
        cur = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
