// PagedAttention: blocks, block tables, copy-on-write

#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define SEQ_OF(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))

static void list_init(struct list_node *head)
{
  head->prev = head;
  head->next = head;
}

static void list_add_tail(struct list_node *head, struct list_node *item)
{
  item->prev = head->prev;
  item->next = head;
  head->prev->next = item;
  head->prev = item;
}

static void list_del(struct list_node *item)
{
  item->prev->next = item->next;
  item->next->prev = item->prev;
}

// ------------------------------------------------------------- helpers

static Sequence *find_seq(LLMEngine *engine, int seq_id)
{
  struct list_node *cur;

  for (cur = engine->active_seqs.next; cur != &engine->active_seqs; cur = cur->next) {
    Sequence *seq = SEQ_OF(cur);
    if (seq->seq_id == seq_id) {
      return seq;
    }
  }
  return NULL;
}

static int take_block(LLMEngine *engine)
{
  for (int i = 0; i < engine->total_local_blocks; ++i) {
    if (engine->ref_count[i] == 0) {
      engine->ref_count[i] = 1;
      engine->free_local_blocks--;
      return i;
    }
  }
  return -1;
}

static void drop_block(LLMEngine *engine, int block)
{
  engine->ref_count[block]--;
  if (engine->ref_count[block] == 0) {
    engine->free_local_blocks++;
  }
}

static int *new_l2(void)
{
  int *l2 = malloc(L2_PT_SIZE * sizeof(int));
  for (int i = 0; i < L2_PT_SIZE; ++i) {
    l2[i] = -1;
  }
  return l2;
}

// A sequence without any blocks, not on the list yet.
static Sequence *new_seq(int seq_id)
{
  Sequence *seq = malloc(sizeof(Sequence));
  seq->seq_id = seq_id;
  seq->kv_count = 0;
  seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    seq->block_table[i] = NULL;
  }
  return seq;
}

// Where a block starts in the pool.
static int *block_addr(LLMEngine *engine, int block)
{
  return (int *)((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE);
}

// -------------------------------------------------------------- task 1

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
  if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
    return NULL;
  }

  LLMEngine *engine = malloc(sizeof(LLMEngine));
  engine->pool_base_ptr = pool_addr;
  engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
  engine->free_local_blocks = engine->total_local_blocks;
  engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
  list_init(&engine->active_seqs);
  return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
  if (engine == NULL) {
    return NULL;
  }
  if (initial_kv_len <= 0) {
    return NULL;
  }
  if (find_seq(engine, seq_id) != NULL) {
    return NULL;
  }

  int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (blocks > MAX_LOGICAL_BLOCKS || blocks > engine->free_local_blocks) {
    return NULL;
  }

  Sequence *seq = new_seq(seq_id);
  for (int i = 0; i < blocks; ++i) {
    int hi = i / L2_PT_SIZE;
    int lo = i % L2_PT_SIZE;
    if (seq->block_table[hi] == NULL) {
      seq->block_table[hi] = new_l2();
    }
    seq->block_table[hi][lo] = take_block(engine);
  }
  seq->kv_count = initial_kv_len;
  list_add_tail(&engine->active_seqs, &seq->node);
  return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
  if (engine == NULL) {
    return -1;
  }

  Sequence *seq = find_seq(engine, seq_id);
  if (seq == NULL) {
    return -1;
  }

  list_del(&seq->node);
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    int *l2 = seq->block_table[i];
    if (l2 == NULL) {
      continue;
    }
    for (int j = 0; j < L2_PT_SIZE; ++j) {
      if (l2[j] != -1) {
        drop_block(engine, l2[j]);
      }
    }
  }
  free(seq->block_table);
  free(seq);
  return 0;
}

// -------------------------------------------------------------- task 3

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
  if (engine == NULL) {
    return NULL;
  }

  Sequence *parent = find_seq(engine, parent_seq_id);
  if (parent == NULL || find_seq(engine, new_seq_id) != NULL) {
    return NULL;
  }

  Sequence *child = new_seq(new_seq_id);
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    int *from = parent->block_table[i];
    if (from == NULL) {
      continue;
    }
    int *to = new_l2();
    for (int j = 0; j < L2_PT_SIZE; ++j) {
      if (from[j] != -1) {
        to[j] = from[j];
        engine->ref_count[from[j]]++;
      }
    }
    child->block_table[i] = to;
  }
  child->kv_count = parent->kv_count;
  list_add_tail(&engine->active_seqs, &child->node);
  return child;
}

// -------------------------------------------------------------- task 4

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
  if (engine == NULL) {
    return -1;
  }

  Sequence *seq = find_seq(engine, seq_id);
  if (seq == NULL) {
    return -1;
  }

  int logical_idx = seq->kv_count / KV_PER_BLOCK;
  int offset = seq->kv_count % KV_PER_BLOCK;
  if (logical_idx >= MAX_LOGICAL_BLOCKS) {
    return -1;
  }

  int hi = logical_idx / L2_PT_SIZE;
  int lo = logical_idx % L2_PT_SIZE;
  int block = -1;
  if (seq->block_table[hi] != NULL) {
    block = seq->block_table[hi][lo];
  }

  int shared = block != -1 && engine->ref_count[block] > 1;
  if ((block == -1 || shared) && engine->free_local_blocks == 0) {
    return -1;
  }

  if (seq->block_table[hi] == NULL) {
    seq->block_table[hi] = new_l2();
  }
  if (block == -1) {
    block = take_block(engine);
    seq->block_table[hi][lo] = block;
  } else if (shared) {
    int copy = take_block(engine);
    memcpy(block_addr(engine, copy), block_addr(engine, block), BLOCK_SIZE);
    engine->ref_count[block]--;
    seq->block_table[hi][lo] = copy;
    block = copy;
  }

  block_addr(engine, block)[offset] = kv_data;
  seq->kv_count++;
  return 0;
}

// -------------------------------------------------------------- task 5

int llm_destroy(LLMEngine *engine)
{
  if (engine == NULL) {
    return -1;
  }

  struct list_node *cur = engine->active_seqs.next;
  while (cur != &engine->active_seqs) {
    struct list_node *next = cur->next;
    free_sequence(engine, SEQ_OF(cur)->seq_id);
    cur = next;
  }
  free(engine->ref_count);
  free(engine);
  return 0;
}
