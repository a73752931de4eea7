#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include "llm_memory.h"

// Helper: walk through the linked list and look for the id
Sequence* searchSequence(LLMEngine* engine, int seqId);

Sequence* searchSequence(LLMEngine* engine, int seqId)
{
  struct list_node* node_ptr = engine->active_seqs.next;
  while (node_ptr != &engine->active_seqs)
  {
    // the node is inside the Sequence, so subtract the offset
    Sequence* s = (Sequence *)((char *)node_ptr - offsetof(Sequence, node));
    if (s->seq_id == seqId)
    {
      return s;
    }
    node_ptr = node_ptr->next;
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
  if (searchSequence(engine, seq_id) != NULL)
  {
    return NULL;
  }

  // Phase 2: how many blocks do we need?
  int blocksRequired = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (blocksRequired > 256)
  {
    return NULL;
  }
  if (blocksRequired > engine->free_local_blocks)
  {
    return NULL;
  }

  Sequence* sequence = malloc(sizeof(Sequence));
  sequence->block_table = malloc(L1_PT_SIZE * sizeof(int *));
  sequence->seq_id = seq_id;
  for (int i = 0; i < L1_PT_SIZE; i++)
  {
    sequence->block_table[i] = NULL;
  }

  // map the blocks one after another
  int assigned = 0;
  for (int i = 0; i < L1_PT_SIZE && assigned < blocksRequired; i++)
  {
    sequence->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
    for (int j = 0; j < L2_PT_SIZE; j++)
    {
      sequence->block_table[i][j] = -1;
    }

    for (int j = 0; j < L2_PT_SIZE && assigned < blocksRequired; j++)
    {
      // first fit
      int physId = -1;
      for (int k = 0; k < engine->total_local_blocks; k++)
      {
        if (engine->ref_count[k] == 0)
        {
          physId = k;
          break;
        }
      }
      sequence->block_table[i][j] = physId;
      engine->ref_count[physId] = 1;
      engine->free_local_blocks--;
      memset((char *)engine->pool_base_ptr + (size_t)physId * BLOCK_SIZE, 0, BLOCK_SIZE);
      assigned++;
    }
  }

  sequence->kv_count = initial_kv_len;

  // insert at the tail of the list
  struct list_node* lastNode = engine->active_seqs.prev;
  sequence->node.prev = lastNode;
  sequence->node.next = &engine->active_seqs;
  lastNode->next = &sequence->node;
  engine->active_seqs.prev = &sequence->node;

  return sequence;
}

// Task 2: delete
int free_sequence(LLMEngine* engine, int seq_id)
{
  if (engine == NULL)
  {
    return -1;
  }

  Sequence* seq = searchSequence(engine, seq_id);
  if (seq == NULL)
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
        int physId = seq->block_table[i][j];
        if (physId != -1)
        {
          engine->ref_count[physId]--;
          if (engine->ref_count[physId] == 0)
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

  Sequence* parentSeq = searchSequence(engine, parent_seq_id);
  if (parentSeq == NULL)
  {
    return NULL;
  }
  if (searchSequence(engine, new_seq_id) != NULL)
  {
    return NULL;
  }

  Sequence* childSeq = malloc(sizeof(Sequence));
  childSeq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
  childSeq->seq_id = new_seq_id;
  childSeq->kv_count = parentSeq->kv_count;

  for (int i = 0; i < L1_PT_SIZE; i++)
  {
    if (parentSeq->block_table[i] == NULL)
    {
      childSeq->block_table[i] = NULL;
    }
    else
    {
      childSeq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
      for (int j = 0; j < L2_PT_SIZE; j++)
      {
        childSeq->block_table[i][j] = -1;
      }
      for (int j = 0; j < L2_PT_SIZE; j++)
      {
        int physId = parentSeq->block_table[i][j];
        if (physId != -1)
        {
          childSeq->block_table[i][j] = physId;
          // one more user of this block
          engine->ref_count[physId]++;
        }
      }
    }
  }

  // insert at the tail of the list
  struct list_node* lastNode = engine->active_seqs.prev;
  childSeq->node.prev = lastNode;
  childSeq->node.next = &engine->active_seqs;
  lastNode->next = &childSeq->node;
  engine->active_seqs.prev = &childSeq->node;

  return childSeq;
}

// Task 4
int append_kv(LLMEngine* engine, int seq_id, int kv_data)
{
  if (engine == NULL)
  {
    return -1;
  }

  Sequence* seq = searchSequence(engine, seq_id);
  if (seq == NULL)
  {
    return -1;
  }

  int logicalIdx = seq->kv_count / KV_PER_BLOCK;
  int offset = seq->kv_count % KV_PER_BLOCK;
  if (logicalIdx >= 256)
  {
    return -1;
  }
  int l1Idx = logicalIdx / L2_PT_SIZE;
  int l2Idx = logicalIdx % L2_PT_SIZE;

  // do we need a new block?
  int isNewPage = 0;
  int isCow = 0;
  if (seq->block_table[l1Idx] == NULL || seq->block_table[l1Idx][l2Idx] == -1)
  {
    isNewPage = 1;
  }
  else if (engine->ref_count[seq->block_table[l1Idx][l2Idx]] > 1)
  {
    isCow = 1;
  }
  if ((isNewPage || isCow) && engine->free_local_blocks == 0)
  {
    return -1;
  }

  if (isNewPage)
  {
    if (seq->block_table[l1Idx] == NULL)
    {
      seq->block_table[l1Idx] = malloc(L2_PT_SIZE * sizeof(int));
      for (int j = 0; j < L2_PT_SIZE; j++)
      {
        seq->block_table[l1Idx][j] = -1;
      }
    }
    int newPhys = -1;
    for (int k = 0; k < engine->total_local_blocks; k++)
    {
      if (engine->ref_count[k] == 0)
      {
        newPhys = k;
        break;
      }
    }
    engine->ref_count[newPhys] = 1;
    engine->free_local_blocks--;
    seq->block_table[l1Idx][l2Idx] = newPhys;
  }

  if (isCow)
  {
    int oldPhys = seq->block_table[l1Idx][l2Idx];
    int newPhys = -1;
    for (int k = 0; k < engine->total_local_blocks; k++)
    {
      if (engine->ref_count[k] == 0)
      {
        newPhys = k;
        break;
      }
    }
    memcpy((char *)engine->pool_base_ptr + (size_t)newPhys * BLOCK_SIZE,
         (char *)engine->pool_base_ptr + (size_t)oldPhys * BLOCK_SIZE,
         64);
    engine->ref_count[oldPhys]--;
    engine->ref_count[newPhys] = 1;
    engine->free_local_blocks--;
    seq->block_table[l1Idx][l2Idx] = newPhys;
  }

  // write the data
  int physBlock = seq->block_table[l1Idx][l2Idx];
  int* target = (int *)((char *)engine->pool_base_ptr + (size_t)physBlock * BLOCK_SIZE);
  target[offset] = kv_data;
  seq->kv_count++;
  return 0;
}

// Task 5
int llm_destroy(LLMEngine* engine)
{
  if (engine == NULL)
  {
    return -1;
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
