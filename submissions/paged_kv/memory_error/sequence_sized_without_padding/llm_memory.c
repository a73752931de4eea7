/* llm_memory.c -- paged KV cache: engine, sequences, block tables. */

#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define TABLE_SPAN (16 * 16)
#define node_to_seq(n) ((Sequence *)(void *)((unsigned char *)(n) - offsetof(Sequence, node)))
#define for_each_node(n, e) \
  for (struct list_node *n = (e)->active_seqs.next; n != &(e)->active_seqs; n = n->next)

/* position of a logical block in the two table levels */
struct pt_pos {
  int l1;
  int l2;
};

static struct pt_pos locate(int logical) {
  struct pt_pos pos = { logical / 16, logical % 16 };
  return pos;
}

static Sequence *seq_find(LLMEngine *e, int id) {
  for_each_node(n, e) {
    if (node_to_seq(n)->seq_id == id)
      return node_to_seq(n);
  }
  return NULL;
}

static void seq_link(LLMEngine *e, Sequence *seq) {
  struct list_node *head = &e->active_seqs;
  struct list_node *last = head->prev;

  seq->node.next = head;
  seq->node.prev = last;
  last->next = &seq->node;
  head->prev = &seq->node;
}

static void seq_unlink(Sequence *seq) {
  struct list_node *before = seq->node.prev;
  struct list_node *after = seq->node.next;

  before->next = after;
  after->prev = before;
}

static int *l2_alloc(void) {
  int *table = malloc(sizeof(int) * 16);

  if (table)
    memset(table, 0xff, sizeof(int) * 16);
  return table;
}

/* bytes of a Sequence, set up by llm_init */
static size_t pm_seq_bytes;

static Sequence *seq_alloc(int id) {
  Sequence *seq = calloc(1, pm_seq_bytes);

  seq->seq_id = id;
  seq->block_table = calloc(16, sizeof *seq->block_table);
  return seq;
}

static int block_search(const LLMEngine *e) {
  for (int b = 0; b < e->total_local_blocks; ++b)
    if (!e->ref_count[b])
      return b;
  return -1;
}

static int block_get(LLMEngine *e) {
  int b = block_search(e);

  e->ref_count[b] = 1;
  e->free_local_blocks -= 1;
  return b;
}

static void block_put(LLMEngine *e, int b) {
  if (--e->ref_count[b] == 0)
    e->free_local_blocks += 1;
}

static void *block_ptr(const LLMEngine *e, int b) {
  return (unsigned char *)e->pool_base_ptr + (size_t)BLOCK_SIZE * (size_t)b;
}

/* gives back everything a sequence owns */
static void seq_free(LLMEngine *e, Sequence *seq) {
  seq_unlink(seq);
  for (int i = 0; i < 16; ++i) {
    int *table = seq->block_table[i];

    if (!table)
      continue;
    for (int j = 0; j < 16; ++j) {
      if (table[j] != -1)
        block_put(e, table[j]);
    }
    free(table);
  }
  free(seq->block_table);
  free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
  LLMEngine *e;

  if (!pool_addr || pool_size < BLOCK_SIZE)
    return NULL;

  /* seq_id, block_table, kv_count, node */
  pm_seq_bytes = sizeof(int) + sizeof(int **) + sizeof(int) + sizeof(struct list_node);

  e = calloc(1, sizeof *e);
  e->pool_base_ptr = pool_addr;
  e->total_local_blocks = e->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
  e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count);
  e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
  return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
  Sequence *seq;
  int count;

  if (!engine)
    return NULL;
  if (initial_kv_len <= 0 || seq_find(engine, seq_id))
    return NULL;
  count = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (count > TABLE_SPAN || count > engine->free_local_blocks)
    return NULL;

  seq = seq_alloc(seq_id);
  for (int logical = 0; logical < count; logical++) {
    struct pt_pos pos = locate(logical);

    if (!seq->block_table[pos.l1])
      seq->block_table[pos.l1] = l2_alloc();
    seq->block_table[pos.l1][pos.l2] = block_get(engine);
  }
  seq->kv_count = initial_kv_len;
  seq_link(engine, seq);
  return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
  Sequence *seq;

  if (!engine)
    return -1;
  seq = seq_find(engine, seq_id);
  if (!seq)
    return -1;
  seq_free(engine, seq);
  return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
  Sequence *parent, *child;

  if (!engine)
    return NULL;
  parent = seq_find(engine, parent_seq_id);
  if (!parent || seq_find(engine, new_seq_id))
    return NULL;

  child = seq_alloc(new_seq_id);
  child->kv_count = parent->kv_count;
  for (int i = 0; i < 16; ++i) {
    if (!parent->block_table[i])
      continue;
    child->block_table[i] = l2_alloc();
    for (int j = 0; j < 16; ++j) {
      int b = parent->block_table[i][j];

      if (b == -1)
        continue;
      child->block_table[i][j] = b;
      engine->ref_count[b] += 1;
    }
  }
  seq_link(engine, child);
  return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
  Sequence *seq;
  struct pt_pos pos;
  int logical, offset, old, fresh;

  if (!engine)
    return -1;
  seq = seq_find(engine, seq_id);
  if (!seq)
    return -1;

  logical = seq->kv_count / KV_PER_BLOCK;
  offset = seq->kv_count % KV_PER_BLOCK;
  if (logical >= TABLE_SPAN)
    return -1;
  pos = locate(logical);

  old = seq->block_table[pos.l1] ? seq->block_table[pos.l1][pos.l2] : -1;
  if (old == -1 || engine->ref_count[old] > 1) {
    if (engine->free_local_blocks == 0)
      return -1;
    if (!seq->block_table[pos.l1])
      seq->block_table[pos.l1] = l2_alloc();
    fresh = block_get(engine);
    seq->block_table[pos.l1][pos.l2] = fresh;
    if (old != -1) {
      memcpy(block_ptr(engine, fresh), block_ptr(engine, old), BLOCK_SIZE);
      block_put(engine, old);
    }
  }

  int *cell = (int *)block_ptr(engine, seq->block_table[pos.l1][pos.l2]) + offset;
    *cell = kv_data;
  seq->kv_count += 1;
  return 0;
}

int llm_destroy(LLMEngine *engine) {
  if (!engine)
    return -1;
  while (engine->active_seqs.next != &engine->active_seqs)
    seq_free(engine, node_to_seq(engine->active_seqs.next));
  free(engine->ref_count);
  free(engine);
  return 0;
}
