#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

/* Index of the first unused physical block, or -1. */
static int first_free(const LLMEngine* engine)
{
  for (int id = 0; id < engine->total_local_blocks; ++id)
  {
    if (engine->ref_count[id] == 0) return id;
  }
  return -1;
}

/* Assigns a physical block to its first user. */
static int assign_block(LLMEngine* engine)
{
  int id = first_free(engine);
  if (id >= 0)
  {
    engine->ref_count[id] = 1;
    engine->free_local_blocks -= 1;
  }
  return id;
}

static void unlink_node(struct list_node* node)
{
  struct list_node* before = node->prev;
  struct list_node* after = node->next;
  before->next = after;
  after->prev = before;
}

static inline Sequence* seq_from_node(struct list_node* node)
{
  return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static Sequence* seq_by_id(const LLMEngine* engine, int id)
{
  const struct list_node* head = &engine->active_seqs;
  struct list_node* it = head->next;

  while (it != head)
  {
    Sequence* candidate = seq_from_node(it);
    if (candidate->seq_id == id) return candidate;
    it = it->next;
  }
  return NULL;
}

/* One user less; the block is free when nobody is left. */
static void unref_block(LLMEngine* engine, int id)
{
  engine->ref_count[id] -= 1;
  if (engine->ref_count[id] == 0)
  {
    engine->free_local_blocks += 1;
  }
}

/* Releases the blocks and the tables. The sequence must not be on the list. */
static void dispose(LLMEngine* engine, Sequence* seq)
{
  for (int i = 0; i < L1_PT_SIZE; ++i)
  {
    int* table = seq->block_table[i];
    if (table != NULL)
    {
      for (int j = 0; j < L2_PT_SIZE; ++j)
      {
        if (table[j] != -1)
        {
          unref_block(engine, table[j]);
        }
      }
      free(table);
    }
  }
  free(seq->block_table);
  free(seq);
}

/* Where block number `id` starts. */
static void* block_start(const LLMEngine* engine, int id)
{
  return (char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE;
}

static void link_tail(LLMEngine* engine, struct list_node* node)
{
  struct list_node* head = &engine->active_seqs;
  struct list_node* last = head->prev;
  last->next = node;
  node->prev = last;
  node->next = head;
  head->prev = node;
}

/* A sequence without any blocks, not yet on the list. */
static Sequence* make_sequence(int id)
{
  Sequence* seq = malloc(sizeof(Sequence));
  if (!seq) return NULL;
  seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
  if (seq->block_table == NULL)
  {
    free(seq);
    return NULL;
  }
  for (int i = 0; i < L1_PT_SIZE; ++i)
  {
    seq->block_table[i] = NULL;
  }
  seq->seq_id = id;
  seq->kv_count = 0;
  seq->node.prev = NULL;
  seq->node.next = NULL;
  return seq;
}

static int* make_l2(void)
{
  int* table = malloc(sizeof(int) * L2_PT_SIZE);
  if (!table) return NULL;
  for (int i = 0; i < L2_PT_SIZE; ++i)
  {
    table[i] = -1;
  }
  return table;
}

LLMEngine* llm_init(void* pool_addr, size_t pool_size)
{
  if (pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;

  LLMEngine* engine = malloc(sizeof(LLMEngine));
  if (!engine) return NULL;

  size_t blocks = pool_size / BLOCK_SIZE;
  engine->ref_count = calloc(blocks, sizeof(int));
  if (engine->ref_count == NULL)
  {
    free(engine);
    return NULL;
  }
  engine->total_local_blocks = (int)blocks;
  engine->free_local_blocks = (int)blocks - 1;
  engine->pool_base_ptr = pool_addr;
  engine->active_seqs.prev = &engine->active_seqs;
  engine->active_seqs.next = &engine->active_seqs;
  return engine;
}

Sequence* create_sequence(LLMEngine* engine, int seq_id, int initial_kv_len)
{
  if (!engine) return NULL;

  /* Phase 1: arguments */
  if (initial_kv_len <= 0) return NULL;

  /* Phase 2: the id must be new */
  if (seq_by_id(engine, seq_id) != NULL) return NULL;

  /* Phase 3: room for all blocks */
  const int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (blocks > MAX_LOGICAL_BLOCKS) return NULL;
  if (blocks > engine->free_local_blocks) return NULL;

  Sequence* seq = make_sequence(seq_id);
  if (!seq) return NULL;

  for (int logical = 0; logical < blocks; ++logical)
  {
    int l1 = logical / L2_PT_SIZE;
    int l2 = logical % L2_PT_SIZE;
    if (seq->block_table[l1] == NULL)
    {
      seq->block_table[l1] = make_l2();
      if (seq->block_table[l1] == NULL)
      {
        dispose(engine, seq);
        return NULL;
      }
    }
    int id = assign_block(engine);
    if (id < 0)
    {
      dispose(engine, seq);
      return NULL;
    }
    seq->block_table[l1][l2] = id;
  }

  seq->kv_count = initial_kv_len;
  link_tail(engine, &seq->node);
  return seq;
}

int free_sequence(LLMEngine* engine, int seq_id)
{
  if (!engine) return -1;

  Sequence* seq = seq_by_id(engine, seq_id);
  if (!seq) return -1;

  unlink_node(&seq->node);
  dispose(engine, seq);
  return 0;
}

Sequence* fork_sequence(LLMEngine* engine, int parent_seq_id, int new_seq_id)
{
  if (!engine) return NULL;

  Sequence* parent = seq_by_id(engine, parent_seq_id);
  if (!parent) return NULL;
  if (seq_by_id(engine, new_seq_id) != NULL) return NULL;

  Sequence* child = make_sequence(new_seq_id);
  if (!child) return NULL;

  for (int i = 0; i < L1_PT_SIZE; ++i)
  {
    const int* from = parent->block_table[i];
    if (!from) continue;

    int* to = make_l2();
    if (!to)
    {
      dispose(engine, child);
      return NULL;
    }
    child->block_table[i] = to;
    for (int j = 0; j < L2_PT_SIZE; ++j)
    {
      if (from[j] == -1) continue;
      to[j] = from[j];
      engine->ref_count[from[j]] += 1;
    }
  }

  child->kv_count = parent->kv_count;
  link_tail(engine, &child->node);
  return child;
}

int append_kv(LLMEngine* engine, int seq_id, int kv_data)
{
  if (!engine) return -1;

  Sequence* seq = seq_by_id(engine, seq_id);
  if (!seq) return -1;

  const int logical_idx = seq->kv_count / KV_PER_BLOCK;
  const int offset = seq->kv_count % KV_PER_BLOCK;
  if (logical_idx >= MAX_LOGICAL_BLOCKS) return -1;

  const int l1 = logical_idx / L2_PT_SIZE;
  const int l2 = logical_idx % L2_PT_SIZE;
  int* table = seq->block_table[l1];

  bool unmapped = (table == NULL) || (table[l2] == -1);
  bool shared = !unmapped && engine->ref_count[table[l2]] > 1;

  /* OOM interception */
  if ((unmapped || shared) && engine->free_local_blocks == 0) return -1;

  if (!table)
  {
    table = make_l2();
    if (!table) return -1;
    seq->block_table[l1] = table;
  }

  if (unmapped)
  {
    int fresh = assign_block(engine);
    if (fresh < 0) return -1;
    table[l2] = fresh;
  }
  else if (shared)
  {
    int original = table[l2];
    int copy = assign_block(engine);
    if (copy < 0) return -1;
    memcpy(block_start(engine, copy), block_start(engine, original), BLOCK_SIZE);
    unref_block(engine, original);
    table[l2] = copy;
  }

  int* records = block_start(engine, table[l2]);
  records[offset] = kv_data;
  seq->kv_count += 1;
  return 0;
}

int llm_destroy(LLMEngine* engine)
{
  if (!engine) return -1;

  struct list_node* it = engine->active_seqs.next;
  while (it != &engine->active_seqs)
  {
    Sequence* seq = seq_from_node(it);
    it = it->next;
    dispose(engine, seq);
  }

  free(engine->ref_count);
  free(engine);
  return 0;
}
