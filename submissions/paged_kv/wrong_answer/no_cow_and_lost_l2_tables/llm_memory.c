/*
 * llm_memory.c
 * Physical block allocator with a two-level block table.
 */

#include "llm_memory.h"

#include <stdlib.h>

#define SEQ(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))

// ---------------------------------------------------------------- list

static void list_init(struct list_node *head) {
	head->prev = head;
	head->next = head;
}

static void list_add_tail(struct list_node *head, struct list_node *item) {
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}

static void list_del(struct list_node *item) {
	item->prev->next = item->next;
	item->next->prev = item->prev;
}

// ------------------------------------------------------------- helpers

// Look up a sequence by its id.
static Sequence *seq_by_id(LLMEngine *engine, int seq_id) {
	struct list_node *cur;

	for (cur = engine->active_seqs.next; cur != &engine->active_seqs; cur = cur->next) {
		Sequence *sq = SEQ(cur);
		if (sq->seq_id == seq_id) {
			return sq;
		}
	}
	return NULL;
}

// First-fit: hand out the first block nobody uses.
static int grab_block(LLMEngine *engine) {
	for (int i = 0; i < engine->total_local_blocks; i++) {
		if (engine->ref_count[i] == 0) {
			engine->ref_count[i] = 1;
			engine->free_local_blocks--;
			return i;
		}
	}
	return -1;
}

// One user less.
static void put_block(LLMEngine *engine, int id) {
	engine->ref_count[id]--;
	if (engine->ref_count[id] == 0) {
		engine->free_local_blocks++;
	}
}

// A fresh L2 table.
static int *alloc_l2(void) {
	int *l2 = malloc(L2_PT_SIZE * sizeof(int));
	for (int i = 0; i < L2_PT_SIZE; i++) {
		l2[i] = -1;
	}
	return l2;
}

// A sequence without any blocks, not on the list yet.
static Sequence *alloc_seq(int seq_id) {
	Sequence *sq = malloc(sizeof(Sequence));
	sq->seq_id = seq_id;
	sq->kv_count = 0;
	sq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
	for (int i = 0; i < L1_PT_SIZE; i++) {
		sq->block_table[i] = NULL;
	}
	return sq;
}

// Where a block starts in the pool.
static int *block_addr(LLMEngine *engine, int id) {
	return (int *)((char *)engine->pool_base_ptr + (size_t)id * BLOCK_SIZE);
}

// -------------------------------------------------------------- task 1

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
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

int llm_destroy(LLMEngine *engine) {
	if (engine == NULL) {
		return -1;
	}

	struct list_node *cur = engine->active_seqs.next;
	while (cur != &engine->active_seqs) {
		struct list_node *next = cur->next;
		free_sequence(engine, SEQ(cur)->seq_id);
		cur = next;
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}

// -------------------------------------------------------------- task 2

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
	if (engine == NULL) {
		return NULL;
	}
	if (initial_kv_len <= 0) {
		return NULL;
	}
	if (seq_by_id(engine, seq_id) != NULL) {
		return NULL;
	}

	int blocks = (initial_kv_len + 16 - 1) / 16;
	if (blocks > MAX_LOGICAL_BLOCKS || blocks > engine->free_local_blocks) {
		return NULL;
	}

	Sequence *sq = alloc_seq(seq_id);
	for (int i = 0; i < blocks; i++) {
		int a = i / L2_PT_SIZE;
		int b = i % L2_PT_SIZE;
		if (sq->block_table[a] == NULL) {
			sq->block_table[a] = alloc_l2();
		}
		sq->block_table[a][b] = grab_block(engine);
	}
	sq->kv_count = initial_kv_len;
	list_add_tail(&engine->active_seqs, &sq->node);
	return sq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
	if (engine == NULL) {
		return -1;
	}

	Sequence *sq = seq_by_id(engine, seq_id);
	if (sq == NULL) {
		return -1;
	}

	list_del(&sq->node);
	for (int i = 0; i < L1_PT_SIZE; i++) {
		int *l2 = sq->block_table[i];
		if (l2 == NULL) {
			continue;
		}
		for (int j = 0; j < L2_PT_SIZE; j++) {
			if (l2[j] != -1) {
				put_block(engine, l2[j]);
			}
		}
	}
	free(sq->block_table);
	free(sq);
	return 0;
}

// -------------------------------------------------------------- task 3

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
	if (engine == NULL) {
		return NULL;
	}

	Sequence *parent = seq_by_id(engine, parent_seq_id);
	if (parent == NULL || seq_by_id(engine, new_seq_id) != NULL) {
		return NULL;
	}

	Sequence *child = alloc_seq(new_seq_id);
	for (int i = 0; i < L1_PT_SIZE; i++) {
		int *from = parent->block_table[i];
		if (from == NULL) {
			continue;
		}
		int *to = alloc_l2();
		for (int j = 0; j < L2_PT_SIZE; j++) {
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

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
	if (engine == NULL) {
		return -1;
	}

	Sequence *sq = seq_by_id(engine, seq_id);
	if (sq == NULL) {
		return -1;
	}

	int logical_idx = sq->kv_count / 16;
	int offset = sq->kv_count % 16;
	if (logical_idx >= MAX_LOGICAL_BLOCKS) {
		return -1;
	}

	int a = logical_idx / L2_PT_SIZE;
	int b = logical_idx % L2_PT_SIZE;
	int id = -1;
	if (sq->block_table[a] != NULL) {
		id = sq->block_table[a][b];
	}

	if (id == -1 && engine->free_local_blocks == 0) {
		return -1;
	}

	if (sq->block_table[a] == NULL) {
		sq->block_table[a] = alloc_l2();
	}
	if (id == -1) {
		id = grab_block(engine);
		sq->block_table[a][b] = id;
	}

	block_addr(engine, id)[offset] = kv_data;
	sq->kv_count++;
	return 0;
}

// -------------------------------------------------------------- task 5
