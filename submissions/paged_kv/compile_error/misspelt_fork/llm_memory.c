#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define node_to_seq(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))

/* ---------------------------------------------------------------- list */

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

/* ------------------------------------------------------------- helpers */

/* Look up a sequence by its id. */
static Sequence *lookup(LLMEngine *engine, int seq_id) {
	struct list_node *it;

	for (it = engine->active_seqs.next; it != &engine->active_seqs; it = it->next) {
		Sequence *s = node_to_seq(it);
		if (s->seq_id == seq_id) {
			return s;
		}
	}
	return NULL;
}

/* First-fit: hand out the first block nobody uses. */
static int alloc_block(LLMEngine *engine) {
	for (int i = 0; i < engine->total_local_blocks; i++) {
		if (engine->ref_count[i] == 0) {
			engine->ref_count[i] = 1;
			engine->free_local_blocks--;
			return i;
		}
	}
	return -1;
}

/* One user less. */
static void drop_block(LLMEngine *engine, int block) {
	engine->ref_count[block]--;
	if (engine->ref_count[block] == 0) {
		engine->free_local_blocks++;
	}
}

/* A fresh L2 table. */
static int *new_l2(void) {
	int *l2 = malloc(L2_PT_SIZE * sizeof(int));
	for (int i = 0; i < L2_PT_SIZE; i++) {
		l2[i] = -1;
	}
	return l2;
}

/* A sequence without any blocks, not on the list yet. */
static Sequence *new_seq(int seq_id) {
	Sequence *s = malloc(sizeof(Sequence));
	s->seq_id = seq_id;
	s->kv_count = 0;
	s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
	for (int i = 0; i < L1_PT_SIZE; i++) {
		s->block_table[i] = NULL;
	}
	return s;
}

/* Where a block starts in the pool. */
static int *block_addr(LLMEngine *engine, int block) {
	return (int *)((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE);
}

/* -------------------------------------------------------------- task 1 */

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

/* -------------------------------------------------------------- task 2 */

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
	if (engine == NULL) {
		return NULL;
	}
	if (initial_kv_len <= 0) {
		return NULL;
	}
	if (lookup(engine, seq_id) != NULL) {
		return NULL;
	}

	int blocks = (initial_kv_len + 16 - 1) / 16;
	if (blocks > MAX_LOGICAL_BLOCKS || blocks > engine->free_local_blocks) {
		return NULL;
	}

	Sequence *s = new_seq(seq_id);
	for (int i = 0; i < blocks; i++) {
		int l1_idx = i / L2_PT_SIZE;
		int l2_idx = i % L2_PT_SIZE;
		if (s->block_table[l1_idx] == NULL) {
			s->block_table[l1_idx] = new_l2();
		}
		s->block_table[l1_idx][l2_idx] = alloc_block(engine);
	}
	s->kv_count = initial_kv_len;
	list_add_tail(&engine->active_seqs, &s->node);
	return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
	if (engine == NULL) {
		return -1;
	}

	Sequence *s = lookup(engine, seq_id);
	if (s == NULL) {
		return -1;
	}

	list_del(&s->node);
	for (int i = 0; i < L1_PT_SIZE; i++) {
		int *l2 = s->block_table[i];
		if (l2 == NULL) {
			continue;
		}
		for (int j = 0; j < L2_PT_SIZE; j++) {
			if (l2[j] != -1) {
				drop_block(engine, l2[j]);
			}
		}
		free(l2);
	}
	free(s->block_table);
	free(s);
	return 0;
}

/* -------------------------------------------------------------- task 3 */

Sequence *fork_sequnce(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
	if (engine == NULL) {
		return NULL;
	}

	Sequence *parent = lookup(engine, parent_seq_id);
	if (parent == NULL || lookup(engine, new_seq_id) != NULL) {
		return NULL;
	}

	Sequence *child = new_seq(new_seq_id);
	for (int i = 0; i < L1_PT_SIZE; i++) {
		int *from = parent->block_table[i];
		if (from == NULL) {
			continue;
		}
		int *to = new_l2();
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

/* -------------------------------------------------------------- task 4 */

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
	if (engine == NULL) {
		return -1;
	}

	Sequence *s = lookup(engine, seq_id);
	if (s == NULL) {
		return -1;
	}

	int logical_idx = s->kv_count / 16;
	int offset = s->kv_count % 16;
	if (logical_idx >= MAX_LOGICAL_BLOCKS) {
		return -1;
	}

	int l1_idx = logical_idx / L2_PT_SIZE;
	int l2_idx = logical_idx % L2_PT_SIZE;
	int block = -1;
	if (s->block_table[l1_idx] != NULL) {
		block = s->block_table[l1_idx][l2_idx];
	}

	int shared = block != -1 && engine->ref_count[block] > 1;
	if ((block == -1 || shared) && engine->free_local_blocks == 0) {
		return -1;
	}

	if (s->block_table[l1_idx] == NULL) {
		s->block_table[l1_idx] = new_l2();
	}
	if (block == -1) {
		block = alloc_block(engine);
		s->block_table[l1_idx][l2_idx] = block;
	} else if (shared) {
		int copy = alloc_block(engine);
		memcpy(block_addr(engine, copy), block_addr(engine, block), BLOCK_SIZE);
		engine->ref_count[block]--;
		s->block_table[l1_idx][l2_idx] = copy;
		block = copy;
	}

	block_addr(engine, block)[offset] = kv_data;
	s->kv_count++;
	return 0;
}

/* -------------------------------------------------------------- task 5 */

int llm_destroy(LLMEngine *engine) {
	if (engine == NULL) {
		return -1;
	}

	struct list_node *it = engine->active_seqs.next;
	while (it != &engine->active_seqs) {
		struct list_node *next = it->next;
		free_sequence(engine, node_to_seq(it)->seq_id);
		it = next;
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
