/**
 * @file llm_memory.c
 * @brief Memory manager of homework 3.
 */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define NODE2SEQ(n) ((Sequence *)((char *)(n) - offsetof(Sequence, node)))
#define for_each_node(n, engine) for (struct list_node *n = (engine)->active_seqs.next; n != &(engine)->active_seqs; n = n->next)

// drop one reference
static void block_put(LLMEngine *engine, int blk)
{
	if (--engine->ref_count[blk] == 0)
		engine->free_local_blocks++;
}

static Sequence *seq_lookup(LLMEngine *engine, int id)
{
	for_each_node(n, engine)
		if (NODE2SEQ(n)->seq_id == id)
			return NODE2SEQ(n);
	return NULL;
}

static int *l2_alloc(void)
{
	int *t = malloc(sizeof(int[L2_PT_SIZE]));
	if (t)
		memset(t, -1, sizeof(int[L2_PT_SIZE]));
	return t;
}

// take the lowest free block, caller made sure there is one
static int block_get(LLMEngine *engine)
{
	int blk = 0;
	while (blk < engine->total_local_blocks && engine->ref_count[blk] != 0)
		blk++;
	engine->ref_count[blk] = 1;
	engine->free_local_blocks--;
	return blk;
}

static Sequence *seq_alloc(int id, int kv)
{
	Sequence *seq = malloc(sizeof *seq);
	seq->seq_id = id;
	seq->kv_count = kv;
	seq->block_table = calloc(L1_PT_SIZE, sizeof(int *));
	return seq;
}

static int *block_ptr(LLMEngine *engine, int blk)
{
	return (int *)((char *)engine->pool_base_ptr + (size_t)blk * BLOCK_SIZE);
}

static void seq_push(LLMEngine *engine, Sequence *seq)
{
	struct list_node *h = &engine->active_seqs;
	seq->node.next = h;
	seq->node.prev = h->prev;
	h->prev->next = &seq->node;
	h->prev = &seq->node;
}

// unlink and free everything the sequence owns
static void seq_free(LLMEngine *engine, Sequence *seq)
{
	seq->node.prev->next = seq->node.next;
	seq->node.next->prev = seq->node.prev;
	for (int i = 0; i < L1_PT_SIZE; ++i) {
		int *t = seq->block_table[i];
		for (int j = 0; t && j < L2_PT_SIZE; ++j)
			if (t[j] != -1)
				block_put(engine, t[j]);
		free(t);
	}
	free(seq->block_table);
	free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	if (!pool_addr || pool_size < BLOCK_SIZE)
		return NULL;
	LLMEngine *engine = malloc(sizeof *engine);
	if (!engine)
		return NULL;
	engine->pool_base_ptr = pool_addr;
	engine->total_local_blocks = engine->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
	engine->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int));
	engine->active_seqs.next = engine->active_seqs.prev = &engine->active_seqs;
	return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (!engine || initial_kv_len <= 0)
		return NULL;
	if (seq_lookup(engine, seq_id))
		return NULL;
	int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (need >= L1_PT_SIZE * L2_PT_SIZE || need > engine->free_local_blocks)
		return NULL;

	Sequence *seq = seq_alloc(seq_id, initial_kv_len);
	for (int i = 0; i < need; ++i) {
		int **t = &seq->block_table[i / L2_PT_SIZE];
		if (!*t)
			*t = l2_alloc();
		(*t)[i % L2_PT_SIZE] = block_get(engine);
	}
	seq_push(engine, seq);
	return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	if (!engine)
		return -1;
	Sequence *seq = seq_lookup(engine, seq_id);
	if (!seq)
		return -1;
	seq_free(engine, seq);
	return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (!engine)
		return NULL;
	Sequence *parent = seq_lookup(engine, parent_seq_id);
	if (!parent || seq_lookup(engine, new_seq_id))
		return NULL;

	Sequence *child = seq_alloc(new_seq_id, parent->kv_count);
	for (int i = 0; i < L1_PT_SIZE; ++i) {
		if (!parent->block_table[i])
			continue;
		child->block_table[i] = l2_alloc();
		memcpy(child->block_table[i], parent->block_table[i], sizeof(int[L2_PT_SIZE]));
		for (int j = 0; j < L2_PT_SIZE; ++j)
			if (child->block_table[i][j] != -1)
				engine->ref_count[child->block_table[i][j]]++;
	}
	seq_push(engine, child);
	return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (!engine)
		return -1;
	Sequence *seq = seq_lookup(engine, seq_id);
	if (!seq)
		return -1;
	int idx = seq->kv_count / KV_PER_BLOCK, off = seq->kv_count % KV_PER_BLOCK;
	if (idx >= L1_PT_SIZE * L2_PT_SIZE)
		return -1;

	int **t = &seq->block_table[idx / L2_PT_SIZE];
	int blk = *t ? (*t)[idx % L2_PT_SIZE] : -1;
	int shared = blk != -1 && engine->ref_count[blk] > 1;
	if ((blk == -1 || shared) && engine->free_local_blocks == 0)
		return -1;

	if (!*t)
		*t = l2_alloc();
	if (blk == -1) {
		blk = block_get(engine);
	} else if (shared) {
		int newblk = block_get(engine);
		memcpy(block_ptr(engine, newblk), block_ptr(engine, blk), BLOCK_SIZE);
		block_put(engine, blk);
		blk = newblk;
	}
	(*t)[idx % L2_PT_SIZE] = blk;
	block_ptr(engine, blk)[off] = kv_data;
	seq->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	if (!engine)
		return -1;
	while (engine->active_seqs.next != &engine->active_seqs)
		seq_free(engine, NODE2SEQ(engine->active_seqs.next));
	free(engine->ref_count);
	free(engine);
	return 0;
}
