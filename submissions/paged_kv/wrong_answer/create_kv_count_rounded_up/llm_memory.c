/*
 * CS110 Homework 3
 * Block allocator with a two level block table
 */
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

// Helper: walk through the linked list and look for the id
Sequence *getSeq(LLMEngine *engine, int seqId);

Sequence *getSeq(LLMEngine *engine, int seqId)
{
  struct list_node *p = engine->active_seqs.next;
  while (p != &engine->active_seqs)
  {
    // the node is inside the Sequence, so subtract the offset
    Sequence *s = (Sequence *)((char *)p - offsetof(Sequence, node));
    if (s->seq_id == seqId)
    {
      return s;
    }
    p = p->next;
  }
  return NULL;
}

// Task 1
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
  if (pool_addr == NULL)
  {
    return NULL;
  }
  if (pool_size < BLOCK_SIZE)
  {
    return NULL;
  }

  LLMEngine *engine = malloc(sizeof(LLMEngine));
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

// Task 5
int llm_destroy(LLMEngine *engine)
{
  if (engine == NULL)
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

// Task 2: create
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
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
  if (getSeq(engine, seq_id) != NULL)
  {
    return NULL;
  }

  // Phase 2: how many blocks do we need?
  int nBlocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (nBlocks > MAX_LOGICAL_BLOCKS)
  {
    return NULL;
  }
  if (nBlocks > engine->free_local_blocks)
  {
    return NULL;
  }

  Sequence *seq = malloc(sizeof(struct Sequence));
  seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
  seq->seq_id = seq_id;
  for (int i = 0; i < L1_PT_SIZE; ++i)
  {
    seq->block_table[i] = NULL;
  }

  // map the blocks one after another
  int count = 0;
  for (int i = 0; i < L1_PT_SIZE && count < nBlocks; ++i)
  {
    seq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
    for (int j = 0; j < L2_PT_SIZE; ++j)
    {
      seq->block_table[i][j] = -1;
    }

    for (int j = 0; j < L2_PT_SIZE && count < nBlocks; ++j)
    {
      // first fit
      int b = -1;
      for (int k = 0; k < engine->total_local_blocks; k++)
      {
        if (engine->ref_count[k] == 0)
        {
          b = k;
          break;
        }
      }
      seq->block_table[i][j] = b;
      engine->ref_count[b] = 1;
      engine->free_local_blocks--;
      count++;
    }
  }

  seq->kv_count = nBlocks * KV_PER_BLOCK;

  // insert at the tail of the list
  struct list_node *last = engine->active_seqs.prev;
  seq->node.prev = last;
  seq->node.next = &engine->active_seqs;
  last->next = &seq->node;
  engine->active_seqs.prev = &seq->node;

  return seq;
}

// Task 2: delete
int free_sequence(LLMEngine *engine, int seq_id)
{
  if (engine == NULL)
  {
    return -1;
  }

  Sequence *seq = getSeq(engine, seq_id);
  if (seq == NULL)
  {
    return -1;
  }

  // take it out of the list
  seq->node.prev->next = seq->node.next;
  seq->node.next->prev = seq->node.prev;

  // look at every slot, there may be holes
  for (int i = 0; i < L1_PT_SIZE; ++i)
  {
    if (seq->block_table[i] != NULL)
    {
      for (int j = 0; j < L2_PT_SIZE; ++j)
      {
        int b = seq->block_table[i][j];
        if (b != -1)
        {
          engine->ref_count[b]--;
          if (engine->ref_count[b] == 0)
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
  if (engine == NULL)
  {
    return NULL;
  }

  Sequence *parent = getSeq(engine, parent_seq_id);
  if (parent == NULL)
  {
    return NULL;
  }
  if (getSeq(engine, new_seq_id) != NULL)
  {
    return NULL;
  }

  Sequence *child = malloc(sizeof(struct Sequence));
  child->block_table = malloc(L1_PT_SIZE * sizeof(int *));
  child->seq_id = new_seq_id;
  child->kv_count = parent->kv_count;

  for (int i = 0; i < L1_PT_SIZE; ++i)
  {
    if (parent->block_table[i] == NULL)
    {
      child->block_table[i] = NULL;
    }
    else
    {
      child->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
      for (int j = 0; j < L2_PT_SIZE; ++j)
      {
        child->block_table[i][j] = -1;
      }
      for (int j = 0; j < L2_PT_SIZE; ++j)
      {
        int b = parent->block_table[i][j];
        if (b != -1)
        {
          child->block_table[i][j] = b;
          // one more user of this block
          engine->ref_count[b]++;
        }
      }
    }
  }

  // insert at the tail of the list
  struct list_node *last = engine->active_seqs.prev;
  child->node.prev = last;
  child->node.next = &engine->active_seqs;
  last->next = &child->node;
  engine->active_seqs.prev = &child->node;

  return child;
}

// Task 4
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
  if (engine == NULL)
  {
    return -1;
  }

  Sequence *seq = getSeq(engine, seq_id);
  if (seq == NULL)
  {
    return -1;
  }

  int logical = seq->kv_count / KV_PER_BLOCK;
  int offset = seq->kv_count % KV_PER_BLOCK;
  if (logical >= MAX_LOGICAL_BLOCKS)
  {
    return -1;
  }
  int i1 = logical / L2_PT_SIZE;
  int i2 = logical % L2_PT_SIZE;

  // do we need a new block?
  int unmapped = 0;
  int shared = 0;
  if (seq->block_table[i1] == NULL || seq->block_table[i1][i2] == -1)
  {
    unmapped = 1;
  }
  else if (engine->ref_count[seq->block_table[i1][i2]] > 1)
  {
    shared = 1;
  }
  if ((unmapped || shared) && engine->free_local_blocks == 0)
  {
    return -1;
  }

  if (unmapped)
  {
    if (seq->block_table[i1] == NULL)
    {
      seq->block_table[i1] = malloc(L2_PT_SIZE * sizeof(int));
      for (int j = 0; j < L2_PT_SIZE; ++j)
      {
        seq->block_table[i1][j] = -1;
      }
    }
    int nb = -1;
    for (int k = 0; k < engine->total_local_blocks; k++)
    {
      if (engine->ref_count[k] == 0)
      {
        nb = k;
        break;
      }
    }
    engine->ref_count[nb] = 1;
    engine->free_local_blocks--;
    seq->block_table[i1][i2] = nb;
  }

  if (shared)
  {
    int ob = seq->block_table[i1][i2];
    int nb = -1;
    for (int k = 0; k < engine->total_local_blocks; k++)
    {
      if (engine->ref_count[k] == 0)
      {
        nb = k;
        break;
      }
    }
    memcpy((char *)engine->pool_base_ptr + (size_t)nb * BLOCK_SIZE,
         (char *)engine->pool_base_ptr + (size_t)ob * BLOCK_SIZE,
         BLOCK_SIZE);
    engine->ref_count[ob]--;
    engine->ref_count[nb] = 1;
    engine->free_local_blocks--;
    seq->block_table[i1][i2] = nb;
  }

  // write the data
  int block = seq->block_table[i1][i2];
  int *address = (int *)((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE);
  address[offset] = kv_data;
  seq->kv_count++;
  return 0;
}
