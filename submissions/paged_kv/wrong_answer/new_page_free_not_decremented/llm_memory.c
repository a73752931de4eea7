#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define container_of(ptr, type, member) \
  ((type *)((char *)(ptr) - offsetof(type, member)))

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
  if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
    return NULL;
  }

  LLMEngine *engine = malloc(sizeof(LLMEngine));
  engine->pool_base_ptr = pool_addr;
  engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
  engine->free_local_blocks = engine->total_local_blocks;
  engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
  engine->active_seqs.prev = &engine->active_seqs;
  engine->active_seqs.next = &engine->active_seqs;
  return engine;
}

/* give back all blocks and all memory of a sequence (already unlinked) */
static void free_seq_memory(LLMEngine *engine, Sequence *seq) {
  for (int i = 0; i < L1_PT_SIZE; i++) {
    int *l2 = seq->block_table[i];
    if (l2 == NULL) {
      continue;
    }
    for (int j = 0; j < L2_PT_SIZE; j++) {
      int blk = l2[j];
      if (blk != -1) {
        engine->ref_count[blk]--;
        if (engine->ref_count[blk] == 0) {
          engine->free_local_blocks++;
        }
      }
    }
    free(l2);
  }
  free(seq->block_table);
  free(seq);
}

int llm_destroy(LLMEngine *engine) {
  if (engine == NULL) {
    return -1;
  }
  struct list_node *p = engine->active_seqs.next;
  while (p != &engine->active_seqs) {
    struct list_node *next = p->next;
    free_seq_memory(engine, container_of(p, Sequence, node));
    p = next;
  }
  free(engine->ref_count);
  free(engine);
  return 0;
}

static int *create_l2(void) {
  int *l2 = malloc(L2_PT_SIZE * sizeof(int));

  for (int i = 0; i < L2_PT_SIZE; i++) {
    l2[i] = -1;
  }
  return l2;
}

static int get_free_block_id(LLMEngine *engine) {
  for (int i = 0; i < engine->total_local_blocks; i++) {
    if (engine->ref_count[i] == 0) {
      return i;
    }
  }
  return -1;
}

/* linear search over the active list, NULL if there is no such id */
static Sequence *seq_search(LLMEngine *engine, int seq_id) {
  struct list_node *p;

  for (p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
    Sequence *seq = container_of(p, Sequence, node);
    if (seq->seq_id == seq_id) {
      return seq;
    }
  }
  return NULL;
}

static void list_add_tail(struct list_node *node, struct list_node *head) {
  node->prev = head->prev;
  node->next = head;
  head->prev->next = node;
  head->prev = node;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
  if (engine == NULL) {
    return NULL;
  }
  if (initial_kv_len <= 0) {
    return NULL;
  }
  if (seq_search(engine, seq_id) != NULL) {
    return NULL;
  }

  int nblk = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (nblk > MAX_LOGICAL_BLOCKS || nblk > engine->free_local_blocks) {
    return NULL;
  }

  Sequence *seq = malloc(sizeof(Sequence));
  seq->seq_id = seq_id;
  seq->kv_count = initial_kv_len;
  seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
  for (int i = 0; i < L1_PT_SIZE; i++) {
    seq->block_table[i] = NULL;
  }

  for (int i = 0; i < nblk; i++) {
    int l1 = i / L2_PT_SIZE;
    int l2i = i % L2_PT_SIZE;
    if (seq->block_table[l1] == NULL) {
      seq->block_table[l1] = create_l2();
    }
    int blk = get_free_block_id(engine);
    seq->block_table[l1][l2i] = blk;
    engine->ref_count[blk] = 1;
    engine->free_local_blocks--;
  }

  list_add_tail(&seq->node, &engine->active_seqs);
  return seq;
}

static void list_del(struct list_node *node) {
  node->prev->next = node->next;
  node->next->prev = node->prev;
}

int free_sequence(LLMEngine *engine, int seq_id) {
  if (engine == NULL) {
    return -1;
  }
  Sequence *seq = seq_search(engine, seq_id);
  if (seq == NULL) {
    return -1;
  }
  list_del(&seq->node);
  free_seq_memory(engine, seq);
  return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
  if (engine == NULL) {
    return NULL;
  }
  Sequence *src = seq_search(engine, parent_seq_id);
  if (src == NULL) {
    return NULL;
  }
  if (seq_search(engine, new_seq_id) != NULL) {
    return NULL;
  }

  Sequence *copy = malloc(sizeof(Sequence));
  copy->seq_id = new_seq_id;
  copy->kv_count = src->kv_count;
  copy->block_table = malloc(L1_PT_SIZE * sizeof(int *));

  for (int i = 0; i < L1_PT_SIZE; i++) {
    copy->block_table[i] = NULL;
    if (src->block_table[i] == NULL) {
      continue;
    }
    copy->block_table[i] = create_l2();
    for (int j = 0; j < L2_PT_SIZE; j++) {
      int blk = src->block_table[i][j];
      if (blk != -1) {
        copy->block_table[i][j] = blk;
        engine->ref_count[blk]++;
      }
    }
  }

  list_add_tail(&copy->node, &engine->active_seqs);
  return copy;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
  if (engine == NULL) {
    return -1;
  }
  Sequence *seq = seq_search(engine, seq_id);
  if (seq == NULL) {
    return -1;
  }

  int lidx = seq->kv_count / KV_PER_BLOCK;
  int offset = seq->kv_count % KV_PER_BLOCK;
  if (lidx >= MAX_LOGICAL_BLOCKS) {
    return -1;
  }

  int l1 = lidx / L2_PT_SIZE;
  int l2i = lidx % L2_PT_SIZE;
  int old = -1;
  if (seq->block_table[l1] != NULL) {
    old = seq->block_table[l1][l2i];
  }

  int alloc_needed = (old == -1 || engine->ref_count[old] > 1);
  if (alloc_needed && engine->free_local_blocks == 0) {
    return -1;
  }

  if (seq->block_table[l1] == NULL) {
    seq->block_table[l1] = create_l2();
  }

  char *base = engine->pool_base_ptr;
  int blk = old;
  if (alloc_needed) {
    blk = get_free_block_id(engine);
    if (old != -1) {
      /* copy on write */
      memcpy(base + (size_t)blk * BLOCK_SIZE, base + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
      engine->ref_count[old]--;
      engine->free_local_blocks--;
    }
    engine->ref_count[blk] = 1;
    seq->block_table[l1][l2i] = blk;
  }

  int *dst = (int *)(base + (size_t)blk * BLOCK_SIZE);
  dst[offset] = kv_data;
  seq->kv_count++;
  return 0;
}
