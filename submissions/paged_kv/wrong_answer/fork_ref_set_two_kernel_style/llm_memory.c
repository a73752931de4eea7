#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

/* ---- list helpers, as in include/linux/list.h ---- */

#define list_entry(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

#define list_for_each(pos, head) \
	for (pos = (head)->next; pos != (head); pos = pos->next)

#define list_for_each_safe(pos, n, head) \
	for (pos = (head)->next, n = pos->next; pos != (head); \
	     pos = n, n = pos->next)

static inline void INIT_LIST_HEAD(struct list_node *list)
{
	list->next = list;
	list->prev = list;
}

static inline void __list_add(struct list_node *new,
			      struct list_node *prev,
			      struct list_node *next)
{
	next->prev = new;
	new->next = next;
	new->prev = prev;
	prev->next = new;
}

static inline void list_add_tail(struct list_node *new, struct list_node *head)
{
	__list_add(new, head->prev, head);
}

static inline void list_del(struct list_node *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
}

/* ---- internal helpers ---- */

static Sequence *find_sequence(LLMEngine *engine, int seq_id)
{
	struct list_node *pos;

	list_for_each(pos, &engine->active_seqs) {
		Sequence *seq = list_entry(pos, Sequence, node);

		if (seq->seq_id == seq_id)
			return seq;
	}
	return NULL;
}

static char *block_addr(LLMEngine *engine, int block)
{
	return (char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE;
}

/* first fit, -1 if there is none */
static int find_free_block(LLMEngine *engine)
{
	int i;

	for (i = 0; i < engine->total_local_blocks; i++) {
		if (engine->ref_count[i] == 0)
			return i;
	}
	return -1;
}

static int claim_block(LLMEngine *engine)
{
	int block = find_free_block(engine);

	if (block < 0)
		return -1;
	engine->ref_count[block] = 1;
	engine->free_local_blocks--;
	return block;
}

static void put_block(LLMEngine *engine, int block)
{
	if (--engine->ref_count[block] == 0)
		engine->free_local_blocks++;
}

static int *alloc_l2(void)
{
	int *l2 = malloc(L2_PT_SIZE * sizeof(*l2));

	if (!l2)
		return NULL;
	memset(l2, -1, L2_PT_SIZE * sizeof(*l2));
	return l2;
}

static Sequence *alloc_sequence(int seq_id)
{
	Sequence *seq;

	seq = malloc(sizeof(*seq));
	if (!seq)
		return NULL;

	seq->block_table = malloc(L1_PT_SIZE * sizeof(*seq->block_table));
	if (!seq->block_table)
		goto err_seq;

	memset(seq->block_table, 0, L1_PT_SIZE * sizeof(*seq->block_table));
	seq->seq_id = seq_id;
	seq->kv_count = 0;
	INIT_LIST_HEAD(&seq->node);
	return seq;

err_seq:
	free(seq);
	return NULL;
}

/* give back all blocks and all tables, the sequence must be off the list */
static void release_sequence(LLMEngine *engine, Sequence *seq)
{
	int i, j;

	for (i = 0; i < L1_PT_SIZE; i++) {
		int *l2 = seq->block_table[i];

		if (!l2)
			continue;
		for (j = 0; j < L2_PT_SIZE; j++) {
			if (l2[j] != -1)
				put_block(engine, l2[j]);
		}
		free(l2);
	}
	free(seq->block_table);
	free(seq);
}

/* ---- API ---- */

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *engine;

	if (!pool_addr || pool_size < BLOCK_SIZE)
		return NULL;

	engine = malloc(sizeof(*engine));
	if (!engine)
		return NULL;

	engine->pool_base_ptr = pool_addr;
	engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	engine->free_local_blocks = engine->total_local_blocks;
	engine->ref_count = calloc((size_t)engine->total_local_blocks,
				   sizeof(*engine->ref_count));
	if (!engine->ref_count)
		goto err_engine;

	INIT_LIST_HEAD(&engine->active_seqs);
	return engine;

err_engine:
	free(engine);
	return NULL;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *seq;
	long required;
	int i;

	if (!engine)
		return NULL;
	if (initial_kv_len <= 0)
		return NULL;
	if (find_sequence(engine, seq_id))
		return NULL;

	required = ((long)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (required > MAX_LOGICAL_BLOCKS)
		return NULL;
	if (required > engine->free_local_blocks)
		return NULL;

	seq = alloc_sequence(seq_id);
	if (!seq)
		return NULL;

	for (i = 0; i < required; i++) {
		int l1_idx = i / L2_PT_SIZE;
		int l2_idx = i % L2_PT_SIZE;
		int block;

		if (!seq->block_table[l1_idx]) {
			seq->block_table[l1_idx] = alloc_l2();
			if (!seq->block_table[l1_idx])
				goto err_release;
		}
		block = claim_block(engine);
		if (block < 0)
			goto err_release;
		seq->block_table[l1_idx][l2_idx] = block;
	}

	seq->kv_count = initial_kv_len;
	list_add_tail(&seq->node, &engine->active_seqs);
	return seq;

err_release:
	release_sequence(engine, seq);
	return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	Sequence *seq;

	if (!engine)
		return -1;

	seq = find_sequence(engine, seq_id);
	if (!seq)
		return -1;

	list_del(&seq->node);
	release_sequence(engine, seq);
	return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	Sequence *parent, *child;
	int i, j;

	if (!engine)
		return NULL;

	parent = find_sequence(engine, parent_seq_id);
	if (!parent)
		return NULL;
	if (find_sequence(engine, new_seq_id))
		return NULL;

	child = alloc_sequence(new_seq_id);
	if (!child)
		return NULL;

	for (i = 0; i < L1_PT_SIZE; i++) {
		int *src = parent->block_table[i];
		int *dst;

		if (!src)
			continue;
		dst = alloc_l2();
		if (!dst)
			goto err_release;
		child->block_table[i] = dst;

		memcpy(dst, src, L2_PT_SIZE * sizeof(*dst));
		for (j = 0; j < L2_PT_SIZE; j++) {
			if (dst[j] != -1)
				engine->ref_count[dst[j]] = 2;
		}
	}

	child->kv_count = parent->kv_count;
	list_add_tail(&child->node, &engine->active_seqs);
	return child;

err_release:
	release_sequence(engine, child);
	return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	Sequence *seq;
	int logical_idx, offset, l1_idx, l2_idx;
	int old, block;
	int *l2, *kv;

	if (!engine)
		return -1;

	seq = find_sequence(engine, seq_id);
	if (!seq)
		return -1;

	logical_idx = seq->kv_count / KV_PER_BLOCK;
	offset = seq->kv_count % KV_PER_BLOCK;
	if (logical_idx >= MAX_LOGICAL_BLOCKS)
		return -1;

	l1_idx = logical_idx / L2_PT_SIZE;
	l2_idx = logical_idx % L2_PT_SIZE;
	l2 = seq->block_table[l1_idx];
	old = l2 ? l2[l2_idx] : -1;

	if (old == -1 || engine->ref_count[old] > 1) {
		if (engine->free_local_blocks == 0)
			return -1;
	}

	if (!l2) {
		l2 = alloc_l2();
		if (!l2)
			return -1;
		seq->block_table[l1_idx] = l2;
	}

	if (old == -1) {
		block = claim_block(engine);
		if (block < 0)
			return -1;
		l2[l2_idx] = block;
	} else if (engine->ref_count[old] > 1) {
		block = find_free_block(engine);
		if (block < 0)
			return -1;
		memcpy(block_addr(engine, block), block_addr(engine, old),
		       BLOCK_SIZE);
		engine->ref_count[old]--;
		engine->ref_count[block] = 1;
		engine->free_local_blocks--;
		l2[l2_idx] = block;
	}

	kv = (int *)block_addr(engine, l2[l2_idx]);
	kv[offset] = kv_data;
	seq->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	struct list_node *pos, *n;

	if (!engine)
		return -1;

	list_for_each_safe(pos, n, &engine->active_seqs) {
		Sequence *seq = list_entry(pos, Sequence, node);

		list_del(pos);
		release_sequence(engine, seq);
	}

	free(engine->ref_count);
	free(engine);
	return 0;
}
