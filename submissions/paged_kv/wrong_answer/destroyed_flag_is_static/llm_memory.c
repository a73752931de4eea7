/* llm_memory.c
 *
 * After llm_destroy nobody may use the engine any more, so every call refuses then.
 * I count the free blocks myself whenever I need to know how many there are.
 * free_local_blocks is kept up to date for the tests, but nothing in here reads it.
 */
#include <string.h>
#include <stdlib.h>
#include "llm_memory.h"

#define RETURN_IF_NULL(ptr, what) do { if ((ptr) == NULL) return (what); } while (0)
#define IS_MAPPED(entry)          ((entry) != -1)

typedef unsigned char byte;

static int destroyed; /* set once llm_destroy has run */

static int count_free(const LLMEngine *engine)
{
  int zeros = 0, i = 0;
  for (; i < engine->total_local_blocks; i++)
    zeros += (engine->ref_count[i] == 0);
  return zeros;
}

static void add_ref(LLMEngine *engine, int block)
{
  if (engine->ref_count[block]++ == 0)
    engine->free_local_blocks--;
}

static void drop_ref(LLMEngine *engine, int block)
{
  if (--engine->ref_count[block] == 0)
    engine->free_local_blocks++;
}

static int first_free(const LLMEngine *engine)
{
  int i;
  for (i = 0; i < engine->total_local_blocks; i++)
    if (engine->ref_count[i] == 0)
      return i;
  return -1;
}

static Sequence *node_to_seq(const struct list_node *n)
{
  return (Sequence *)((byte *)n - offsetof(Sequence, node));
}

static Sequence *find_seq(const LLMEngine *engine, int id)
{
  const struct list_node *n;
  for (n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next)
    if (node_to_seq(n)->seq_id == id)
      return node_to_seq(n);
  return NULL;
}

/* an id may be used for a new sequence */
static int id_ok(const LLMEngine *engine, int id)
{
  return find_seq(engine, id) == NULL;
}

static int *new_l2(void)
{
  int *l2 = malloc(sizeof(int) * L2_PT_SIZE);
  int *p = l2 + L2_PT_SIZE;
  while (p > l2)
    *--p = -1;
  return l2;
}

/* returns the address of the L2 entry for a logical block; makes the table if it is missing */
static int *entry_for(Sequence *seq, int logical)
{
  int **l1 = &seq->block_table[logical / L2_PT_SIZE];
  if (*l1 == NULL)
    *l1 = new_l2();
  return &(*l1)[logical % L2_PT_SIZE];
}

static Sequence *new_seq(LLMEngine *engine, int id, int kv_count)
{
  struct list_node *last = engine->active_seqs.prev;
  Sequence *seq = calloc(1, sizeof(Sequence));
  seq->seq_id = id;
  seq->kv_count = kv_count;
  seq->block_table = calloc(L1_PT_SIZE, sizeof(int *));
  seq->node.prev = last;
  seq->node.next = &engine->active_seqs;
  last->next = &seq->node;
  engine->active_seqs.prev = &seq->node;
  return seq;
}

static void delete_seq(LLMEngine *engine, Sequence *seq)
{
  int k;
  seq->node.next->prev = seq->node.prev;
  seq->node.prev->next = seq->node.next;
  for (k = 0; k < L1_PT_SIZE * L2_PT_SIZE; k++) {
    const int *l2 = seq->block_table[k / L2_PT_SIZE];
    if (l2 != NULL && IS_MAPPED(l2[k % L2_PT_SIZE]))
      drop_ref(engine, l2[k % L2_PT_SIZE]);
  }
  for (k = 0; k < L1_PT_SIZE; k++)
    free(seq->block_table[k]);
  free(seq->block_table);
  free(seq);
}

/* ------------------------------------------------------------------ */

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
  LLMEngine *engine;
  RETURN_IF_NULL(pool_addr, NULL);
  if (pool_size < BLOCK_SIZE)
    return NULL;
  engine = calloc(1, sizeof(LLMEngine));
  engine->pool_base_ptr = pool_addr;
  engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
  engine->free_local_blocks = engine->total_local_blocks;
  engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
  engine->active_seqs.prev = &engine->active_seqs;
  engine->active_seqs.next = &engine->active_seqs;
  return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
  RETURN_IF_NULL(engine, NULL);
  if (destroyed)
    return NULL;
  if (initial_kv_len <= 0 || !id_ok(engine, seq_id))
    return NULL;

  int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (blocks > 256 || blocks > count_free(engine))
    return NULL;

  Sequence *seq = new_seq(engine, seq_id, initial_kv_len);
  for (int k = 0; k < blocks; k++) {
    int *entry = entry_for(seq, k);
    *entry = first_free(engine);
    add_ref(engine, *entry);
  }
  return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
  RETURN_IF_NULL(engine, -1);
  if (destroyed)
    return -1;
  Sequence *seq = find_seq(engine, seq_id);
  RETURN_IF_NULL(seq, -1);
  delete_seq(engine, seq);
  return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
  RETURN_IF_NULL(engine, NULL);
  if (destroyed)
    return NULL;
  Sequence *parent = find_seq(engine, parent_seq_id);
  RETURN_IF_NULL(parent, NULL);
  if (!id_ok(engine, new_seq_id))
    return NULL;

  Sequence *child = new_seq(engine, new_seq_id, parent->kv_count);
  for (int k = 0; k < L1_PT_SIZE * L2_PT_SIZE; k++) {
    const int *from = parent->block_table[k / L2_PT_SIZE];
    if (from == NULL)
      continue;
    int *to = entry_for(child, k); /* also makes the table, even if nothing is mapped in it */
    if (IS_MAPPED(from[k % L2_PT_SIZE])) {
      *to = from[k % L2_PT_SIZE];
      add_ref(engine, *to);
    }
  }
  return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
  RETURN_IF_NULL(engine, -1);
  if (destroyed)
    return -1;
  Sequence *seq = find_seq(engine, seq_id);
  RETURN_IF_NULL(seq, -1);

  int logical_idx = seq->kv_count / KV_PER_BLOCK;
  if (logical_idx >= 256)
    return -1;

  const int *l2 = seq->block_table[logical_idx / L2_PT_SIZE];
  int block = l2 ? l2[logical_idx % L2_PT_SIZE] : -1;

  if (!IS_MAPPED(block) || engine->ref_count[block] != 1) {
    if (count_free(engine) == 0)
      return -1;
    int fresh = first_free(engine);
    byte *pool = engine->pool_base_ptr;
    add_ref(engine, fresh);
    if (IS_MAPPED(block)) {
      memcpy(pool + sizeof(int[16]) * fresh, pool + sizeof(int[16]) * block, sizeof(int[16]));
      drop_ref(engine, block);
    }
    *entry_for(seq, logical_idx) = fresh;
    block = fresh;
  }

  int *kv = (int *)engine->pool_base_ptr;
  kv[(size_t)block * KV_PER_BLOCK + seq->kv_count % KV_PER_BLOCK] = kv_data;
  seq->kv_count++;
  return 0;
}

int llm_destroy(LLMEngine *engine)
{
  RETURN_IF_NULL(engine, -1);
  struct list_node *n = engine->active_seqs.next;
  while (n != &engine->active_seqs) {
    struct list_node *following = n->next;
    delete_seq(engine, node_to_seq(n));
    n = following;
  }
  free(engine->ref_count);
  free(engine);
  destroyed = 1;
  return 0;
}
