/* llm_memory.c */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
  if (pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;

  LLMEngine *engine = malloc(sizeof(LLMEngine));
  if (!engine) return NULL;

  size_t blocks = pool_size / BLOCK_SIZE;
  engine->ref_count = calloc(blocks, sizeof(int));
  if (engine->ref_count == NULL) {
    free(engine);
    return NULL;
  }
  engine->total_local_blocks = (int)blocks;
  engine->free_local_blocks = (int)blocks;
  engine->pool_base_ptr = pool_addr;
  engine->active_seqs.prev = &engine->active_seqs;
  engine->active_seqs.next = &engine->active_seqs;
  return engine;
}

static inline Sequence *node_to_seq(struct list_node *node) {
  return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static Sequence *search_id(const LLMEngine *engine, int id) {
  const struct list_node *head = &engine->active_seqs;
  struct list_node *iter = head->next;

  while (iter != head) {
    Sequence *candidate = node_to_seq(iter);
    if (candidate->seq_id == id) return candidate;
    iter = iter->next;
  }
  return NULL;
}

static int find_free(const LLMEngine *engine) {
  for (int id = 0; id < engine->total_local_blocks; ++id) {
    if (engine->ref_count[id] == 0) return id;
  }
  return -1;
}

/* Assigns a physical block to its first user. */
static int get_block(LLMEngine *engine) {
  int id = find_free(engine);
  if (id >= 0) {
    engine->ref_count[id] = 1;
    engine->free_local_blocks -= 1;
  }
  return id;
}

static int *l2_create(void) {
  int *table = malloc(sizeof(int) * L2_PT_SIZE);
  if (!table) return NULL;
  for (int i = 0; i < L2_PT_SIZE; ++i) {
    table[i] = -1;
  }
  return table;
}

static void list_append(LLMEngine *engine, struct list_node *node) {
  struct list_node *head = &engine->active_seqs;
  struct list_node *last = head->prev;
  last->next = node;
  node->prev = last;
  node->next = head;
  head->prev = node;
}

static Sequence *new_sequence(int id) {
  Sequence *seq = malloc(sizeof(Sequence));
  if (!seq) return NULL;
  seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
  if (seq->block_table == NULL) {
    free(seq);
    return NULL;
  }
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    seq->block_table[i] = NULL;
  }
  seq->seq_id = id;
  seq->kv_count = 0;
  seq->node.prev = NULL;
  seq->node.next = NULL;
  return seq;
}

/* One user less; the block is free when nobody is left. */
static void release_block(LLMEngine *engine, int id) {
  engine->ref_count[id] -= 1;
  if (engine->ref_count[id] == 0) {
    engine->free_local_blocks += 1;
  }
}

static void cleanup_sequence(LLMEngine *engine, Sequence *seq) {
  for (int i = 0; i < L1_PT_SIZE; ++i) {
    int *table = seq->block_table[i];
    if (table != NULL) {
      for (int j = 0; j < L2_PT_SIZE; ++j) {
        if (table[j] != -1) {
          release_block(engine, table[j]);
        }
      }
      free(table);
    }
  }
  free(seq->block_table);
  free(seq);
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
  if (!engine) return NULL;

  /* Phase 1: arguments */
  if (initial_kv_len <= 0) return NULL;

  if (search_id(engine, seq_id) != NULL) return NULL;

  /* Phase 3: room for all blocks */
  const int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (blocks > MAX_LOGICAL_BLOCKS) return NULL;
  if (blocks >= engine->free_local_blocks) return NULL;

  Sequence *seq = new_sequence(seq_id);
  if (!seq) return NULL;

  for (int logical = 0; logical < blocks; ++logical) {
    int l1 = logical / L2_PT_SIZE;
    int l2 = logical % L2_PT_SIZE;
    if (seq->block_table[l1] == NULL) {
      seq->block_table[l1] = l2_create();
      if (seq->block_table[l1] == NULL) {
        cleanup_sequence(engine, seq);
        return NULL;
      }
    }
    int id = get_block(engine);
    if (id < 0) {
      cleanup_sequence(engine, seq);
      return NULL;
    }
    seq->block_table[l1][l2] = id;
  }

  seq->kv_count = initial_kv_len;
  list_append(engine, &seq->node);
  return seq;
}

static void list_remove(struct list_node *node) {
  struct list_node *before = node->prev;
  struct list_node *after = node->next;
  before->next = after;
  after->prev = before;
}

int free_sequence(LLMEngine *engine, int seq_id) {
  if (!engine) return -1;

  Sequence *seq = search_id(engine, seq_id);
  if (!seq) return -1;

  list_remove(&seq->node);
  cleanup_sequence(engine, seq);
  return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
  if (!engine) return NULL;

  Sequence *parent = search_id(engine, parent_seq_id);
  if (!parent) return NULL;
  if (search_id(engine, new_seq_id) != NULL) return NULL;

  Sequence *child = new_sequence(new_seq_id);
  if (!child) return NULL;

  for (int i = 0; i < L1_PT_SIZE; ++i) {
    const int *from = parent->block_table[i];
    if (!from) continue;

    int *to = l2_create();
    if (!to) {
      cleanup_sequence(engine, child);
      return NULL;
    }
    child->block_table[i] = to;
    for (int j = 0; j < L2_PT_SIZE; ++j) {
      if (from[j] == -1) continue;
      to[j] = from[j];
      engine->ref_count[from[j]] += 1;
    }
  }

  child->kv_count = parent->kv_count;
  list_append(engine, &child->node);
  return child;
}

static void *block_address(const LLMEngine *engine, int id) {
  return (char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
  if (!engine) return -1;

  Sequence *seq = search_id(engine, seq_id);
  if (!seq) return -1;

  const int logical_idx = seq->kv_count / KV_PER_BLOCK;
  const int offset = seq->kv_count % KV_PER_BLOCK;
  if (logical_idx >= MAX_LOGICAL_BLOCKS) return -1;

  const int l1 = logical_idx / L2_PT_SIZE;
  const int l2 = logical_idx % L2_PT_SIZE;
  int *table = seq->block_table[l1];

  bool unmapped = (table == NULL) || (table[l2] == -1);
  bool shared = !unmapped && engine->ref_count[table[l2]] > 1;

  /* OOM interception */
  if ((unmapped || shared) && engine->free_local_blocks == 0) return -1;

  if (!table) {
    table = l2_create();
    if (!table) return -1;
    seq->block_table[l1] = table;
  }

  if (unmapped) {
    int fresh = get_block(engine);
    if (fresh < 0) return -1;
    table[l2] = fresh;
  } else if (shared) {
    int original = table[l2];
    int copy = get_block(engine);
    if (copy < 0) return -1;
    memcpy(block_address(engine, copy), block_address(engine, original), BLOCK_SIZE);
    release_block(engine, original);
    table[l2] = copy;
  }

  int *records = block_address(engine, table[l2]);
  records[offset] = kv_data;
  seq->kv_count += 1;
  return 0;
}

int llm_destroy(LLMEngine *engine) {
  if (!engine) return -1;

  struct list_node *iter = engine->active_seqs.next;
  while (iter != &engine->active_seqs) {
    Sequence *seq = node_to_seq(iter);
    iter = iter->next;
    cleanup_sequence(engine, seq);
  }

  free(engine->ref_count);
  free(engine);
  return 0;
}
