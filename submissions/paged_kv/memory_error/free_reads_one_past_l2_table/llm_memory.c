#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
  if (pool_addr == NULL) {
    return NULL;
  }
  if (pool_size < BLOCK_SIZE) {
    return NULL;
  }

  LLMEngine* engine_ptr = (LLMEngine*)malloc(sizeof(LLMEngine));
  if (engine_ptr == NULL) {
    return NULL;
  }
  int blocks = (int)(pool_size / BLOCK_SIZE);
  engine_ptr->ref_count = (int*)calloc((size_t)blocks, sizeof(int));
  if (engine_ptr->ref_count == NULL) {
    free(engine_ptr);
    return NULL;
  }
  engine_ptr->pool_base_ptr = pool_addr;
  engine_ptr->total_local_blocks = blocks;
  engine_ptr->free_local_blocks = blocks;

  engine_ptr->active_seqs.prev = &engine_ptr->active_seqs;
  engine_ptr->active_seqs.next = &engine_ptr->active_seqs;
  return engine_ptr;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
  if (!engine) {
    return NULL;
  }

  if (initial_kv_len <= 0) {
    return NULL;
  }

  struct list_node* node_ptr = engine->active_seqs.next;
  while (node_ptr != &engine->active_seqs) {
    Sequence* seq = (Sequence*)((char*)node_ptr - offsetof(Sequence, node));
    if (seq->seq_id == seq_id) {
      return NULL;
    }
    node_ptr = node_ptr->next;
  }

  int required_blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
  if (required_blocks > L1_PT_SIZE * L2_PT_SIZE) {
    return NULL;
  }
  if (required_blocks > engine->free_local_blocks) {
    return NULL;
  }

  Sequence* new_seq = (Sequence*)malloc(sizeof(Sequence));
  int** table = (int**)malloc(sizeof(int*) * L1_PT_SIZE);
  for (int i = 0; i < L1_PT_SIZE; i++) {
    table[i] = NULL;
  }

  for (int k = 0; k < required_blocks; k++) {
    int l1 = k / L2_PT_SIZE;
    int l2 = k % L2_PT_SIZE;

    if (table[l1] == NULL) {
      table[l1] = (int*)malloc(sizeof(int) * L2_PT_SIZE);
      for (int j = 0; j < L2_PT_SIZE; j++) {
        table[l1][j] = -1;
      }
    }

    for (int b = 0; b < engine->total_local_blocks; b++) {
      if (engine->ref_count[b] == 0) {
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
        table[l1][l2] = b;
        break;
      }
    }
  }

  new_seq->seq_id = seq_id;
  new_seq->block_table = table;
  new_seq->kv_count = initial_kv_len;

  struct list_node* tail = engine->active_seqs.prev;
  new_seq->node.prev = tail;
  new_seq->node.next = &engine->active_seqs;
  tail->next = &new_seq->node;
  engine->active_seqs.prev = &new_seq->node;
  return new_seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
  if (!engine) {
    return -1;
  }

  Sequence* cur_seq = NULL;
  struct list_node* node_ptr = engine->active_seqs.next;
  while (node_ptr != &engine->active_seqs) {
    Sequence* seq = (Sequence*)((char*)node_ptr - offsetof(Sequence, node));
    if (seq->seq_id == seq_id) {
      cur_seq = seq;
      break;
    }
    node_ptr = node_ptr->next;
  }
  if (cur_seq == NULL) {
    return -1;
  }

  cur_seq->node.prev->next = cur_seq->node.next;
  cur_seq->node.next->prev = cur_seq->node.prev;

  for (int i = 0; i < L1_PT_SIZE; i++) {
    if (cur_seq->block_table[i] != NULL) {
      for (int j = 0; j <= L2_PT_SIZE; j++) {
        int block_id = cur_seq->block_table[i][j];
        if (block_id >= 0 && block_id < engine->total_local_blocks) {
          engine->ref_count[block_id]--;
          if (engine->ref_count[block_id] == 0) {
            engine->free_local_blocks++;
          }
        }
      }
      free(cur_seq->block_table[i]);
    }
  }

  free(cur_seq->block_table);
  free(cur_seq);
  return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
  if (!engine) {
    return NULL;
  }

  Sequence* parent = NULL;
  struct list_node* node_ptr = engine->active_seqs.next;
  while (node_ptr != &engine->active_seqs) {
    Sequence* seq = (Sequence*)((char*)node_ptr - offsetof(Sequence, node));
    if (seq->seq_id == new_seq_id) {
      return NULL;
    }
    if (seq->seq_id == parent_seq_id) {
      parent = seq;
    }
    node_ptr = node_ptr->next;
  }
  if (parent == NULL) {
    return NULL;
  }

  Sequence* child = (Sequence*)malloc(sizeof(Sequence));
  child->block_table = (int**)malloc(sizeof(int*) * L1_PT_SIZE);
  for (int i = 0; i < L1_PT_SIZE; i++) {
    child->block_table[i] = NULL;
  }

  for (int i = 0; i < L1_PT_SIZE; i++) {
    if (parent->block_table[i] != NULL) {
      int* child_l2 = (int*)malloc(sizeof(int) * L2_PT_SIZE);
      for (int j = 0; j < L2_PT_SIZE; j++) {
        child_l2[j] = -1;
      }
      for (int j = 0; j < L2_PT_SIZE; j++) {
        int block_id = parent->block_table[i][j];
        if (block_id != -1) {
          child_l2[j] = block_id;
          engine->ref_count[block_id]++;
        }
      }
      child->block_table[i] = child_l2;
    }
  }
  child->seq_id = new_seq_id;
  child->kv_count = parent->kv_count;

  struct list_node* tail = engine->active_seqs.prev;
  child->node.prev = tail;
  child->node.next = &engine->active_seqs;
  tail->next = &child->node;
  engine->active_seqs.prev = &child->node;
  return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
  if (!engine) {
    return -1;
  }

  Sequence* cur_seq = NULL;
  struct list_node* node_ptr = engine->active_seqs.next;
  while (node_ptr != &engine->active_seqs) {
    Sequence* seq = (Sequence*)((char*)node_ptr - offsetof(Sequence, node));
    if (seq->seq_id == seq_id) {
      cur_seq = seq;
      break;
    }
    node_ptr = node_ptr->next;
  }
  if (cur_seq == NULL) {
    return -1;
  }

  int logical_idx = cur_seq->kv_count / KV_PER_BLOCK;
  int offset = cur_seq->kv_count % KV_PER_BLOCK;
  if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE) {
    return -1;
  }
  int l1 = logical_idx / L2_PT_SIZE;
  int l2 = logical_idx % L2_PT_SIZE;

  int is_new_page = 0;
  int is_cow = 0;
  if (cur_seq->block_table[l1] == NULL || cur_seq->block_table[l1][l2] == -1) {
    is_new_page = 1;
  } else if (engine->ref_count[cur_seq->block_table[l1][l2]] > 1) {
    is_cow = 1;
  }

  int new_block = -1;
  if (is_new_page || is_cow) {
    if (engine->free_local_blocks == 0) {
      return -1;
    }
    for (int b = 0; b < engine->total_local_blocks; b++) {
      if (engine->ref_count[b] == 0) {
        new_block = b;
        break;
      }
    }
  }

  if (is_new_page) {
    if (cur_seq->block_table[l1] == NULL) {
      cur_seq->block_table[l1] = (int*)malloc(sizeof(int) * L2_PT_SIZE);
      for (int j = 0; j < L2_PT_SIZE; j++) {
        cur_seq->block_table[l1][j] = -1;
      }
    }
    cur_seq->block_table[l1][l2] = new_block;
    engine->ref_count[new_block] = 1;
    engine->free_local_blocks--;
  }

  if (is_cow) {
    int old_block = cur_seq->block_table[l1][l2];
    char* src = (char*)engine->pool_base_ptr + (long)old_block * BLOCK_SIZE;
    char* dst = (char*)engine->pool_base_ptr + (long)new_block * BLOCK_SIZE;
    memcpy(dst, src, BLOCK_SIZE);
    engine->ref_count[old_block]--;
    engine->ref_count[new_block] = 1;
    engine->free_local_blocks--;
    cur_seq->block_table[l1][l2] = new_block;
  }

  int block_id = cur_seq->block_table[l1][l2];
  int* addr = (int*)((char*)engine->pool_base_ptr + (long)block_id * BLOCK_SIZE);
  addr[offset] = kv_data;
  cur_seq->kv_count++;
  return 0;
}

int llm_destroy(LLMEngine *engine) {
  if (!engine) {
    return -1;
  }

  struct list_node* node_ptr = engine->active_seqs.next;
  while (node_ptr != &engine->active_seqs) {
    struct list_node* next_ptr = node_ptr->next;
    Sequence* seq = (Sequence*)((char*)node_ptr - offsetof(Sequence, node));
    for (int i = 0; i < L1_PT_SIZE; i++) {
      if (seq->block_table[i] != NULL) {
        free(seq->block_table[i]);
      }
    }
    free(seq->block_table);
    free(seq);
    node_ptr = next_ptr;
  }

  free(engine->ref_count);
  free(engine);
  return 0;
}
