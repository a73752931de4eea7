#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

typedef struct list_node list_head;

#define seq_of(n) ((Sequence *)(void *)((char *)(n) - offsetof(Sequence, node)))
#define for_each_seq(n, eng) \
	for (list_head *n = (eng)->active_seqs.next; \
	     n != &(eng)->active_seqs; n = n->next)
#define for_each_slot(i, size) \
	for (int i = 0; i < (size); i++)
#define block_ptr(eng, b) \
	((char *)(eng)->pool_base_ptr + (ptrdiff_t)(b) * BLOCK_SIZE)

static void INIT_LIST_HEAD(list_head *l)
{
	l->prev = l;
	l->next = l;
}

static void __list_del(list_head *prev, list_head *next)
{
	next->prev = prev;
	prev->next = next;
}

static void seq_attach(LLMEngine *eng, Sequence *seq)
{
	list_head *head = &eng->active_seqs;
	list_head *tail = head->prev;

	seq->node.prev = tail;
	seq->node.next = head;
	tail->next = &seq->node;
	head->prev = &seq->node;
}

static Sequence *get_seq(LLMEngine *eng, int id)
{
	Sequence *found = NULL;

	for_each_seq(n, eng) {
		if (seq_of(n)->seq_id != id)
			continue;
		found = seq_of(n);
		break;
	}
	return found;
}

static int block_get_free(LLMEngine *eng)
{
	int b;

	for (b = 0; b < eng->total_local_blocks; b++)
		if (!eng->ref_count[b])
			break;
	if (b == eng->total_local_blocks)
		return -1;
	eng->ref_count[b]++;
	eng->free_local_blocks--;
	return b;
}

static void block_put(LLMEngine *eng, int b)
{
	if (b == -1)
		return;
	if (--eng->ref_count[b] > 0)
		return;
	eng->free_local_blocks++;
}

static int *new_l2(void)
{
	int *l2 = malloc(sizeof(int[L2_PT_SIZE]));

	if (l2)
		for_each_slot(j, L2_PT_SIZE)
			l2[j] = -1;
	return l2;
}

static Sequence *new_seq(int id)
{
	Sequence *seq = malloc(sizeof(Sequence));
	int **l1 = malloc(sizeof(int *[L1_PT_SIZE]));

	if (!seq || !l1)
		goto nomem;
	for_each_slot(i, L1_PT_SIZE)
		l1[i] = NULL;
	seq->seq_id = id;
	seq->block_table = l1;
	seq->kv_count = 0;
	INIT_LIST_HEAD(&seq->node);
	return seq;
nomem:
	free(l1);
	free(seq);
	return NULL;
}

static void drop_seq(LLMEngine *eng, Sequence *seq)
{
	int **l1 = seq->block_table;

	__list_del(seq->node.prev, seq->node.next);
	for_each_slot(i, L1_PT_SIZE) {
		if (!l1[i])
			continue;
		for_each_slot(j, L2_PT_SIZE)
			block_put(eng, l1[i][j]);
		free(l1[i]);
	}
	free(l1);
	free(seq);
}

/* map one logical block of seq to a fresh physical block */
static int map_block(LLMEngine *eng, Sequence *seq, int logical)
{
	int **l2 = &seq->block_table[logical / L2_PT_SIZE];

	if (!*l2)
		*l2 = new_l2();
	if (!*l2)
		return -1;
	(*l2)[logical % L2_PT_SIZE] = block_get_free(eng);
	return 0;
}

/* give seq its own copy of a shared block */
static void unshare_block(LLMEngine *eng, int *entry)
{
	int from = *entry;
	int to = block_get_free(eng);

	memcpy(block_ptr(eng, to), block_ptr(eng, from), KV_PER_BLOCK);
	block_put(eng, from);
	*entry = to;
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
	size_t n = pool_size / BLOCK_SIZE;
	LLMEngine *eng;
	int *refs;

	if (!pool_addr || n == 0)
		return NULL;

	eng = malloc(sizeof(*eng));
	refs = calloc(n, sizeof(*refs));
	if (!eng || !refs)
		goto nomem;
	*eng = (LLMEngine) {
		.pool_base_ptr = pool_addr,
		.total_local_blocks = (int)n,
		.free_local_blocks = (int)n,
		.ref_count = refs,
	};
	INIT_LIST_HEAD(&eng->active_seqs);
	return eng;
nomem:
	free(refs);
	free(eng);
	return NULL;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *seq = NULL;
	int required;

	if (!engine)
		return NULL;
	if (initial_kv_len <= 0)
		goto out;
	if (get_seq(engine, seq_id))
		goto out;

	required = initial_kv_len / KV_PER_BLOCK;
	if (initial_kv_len % KV_PER_BLOCK)
		required++;
	if (required > MAX_LOGICAL_BLOCKS)
		goto out;
	if (required > engine->free_local_blocks)
		goto out;

	seq = new_seq(seq_id);
	if (!seq)
		goto out;
	for_each_slot(i, required)
		if (map_block(engine, seq, i))
			goto err;
	seq->kv_count = initial_kv_len;
	seq_attach(engine, seq);
	goto out;
err:
	drop_seq(engine, seq);
	seq = NULL;
out:
	return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	Sequence *seq;

	if (!engine)
		return -1;
	seq = get_seq(engine, seq_id);
	if (!seq)
		return -1;
	drop_seq(engine, seq);
	return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	Sequence *parent, *child = NULL;

	if (!engine)
		return NULL;
	parent = get_seq(engine, parent_seq_id);
	if (!parent)
		goto out;
	if (get_seq(engine, new_seq_id))
		goto out;

	child = new_seq(new_seq_id);
	if (!child)
		goto out;
	for_each_slot(i, L1_PT_SIZE) {
		int *src = parent->block_table[i];
		int *dst;

		if (!src)
			continue;
		dst = new_l2();
		if (!dst)
			goto err;
		child->block_table[i] = dst;
		for_each_slot(j, L2_PT_SIZE) {
			if (src[j] == -1)
				continue;
			dst[j] = src[j];
			engine->ref_count[src[j]]++;
		}
	}
	child->kv_count = parent->kv_count;
	seq_attach(engine, child);
	goto out;
err:
	drop_seq(engine, child);
	child = NULL;
out:
	return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	Sequence *seq;
	int logical_idx, offset, *l2, *entry;

	if (!engine)
		return -1;
	seq = get_seq(engine, seq_id);
	if (!seq)
		return -1;

	logical_idx = seq->kv_count / KV_PER_BLOCK;
	offset = seq->kv_count % KV_PER_BLOCK;
	if (logical_idx >= MAX_LOGICAL_BLOCKS)
		return -1;

	l2 = seq->block_table[logical_idx / L2_PT_SIZE];
	entry = l2 ? &l2[logical_idx % L2_PT_SIZE] : NULL;

	if (!entry || *entry == -1) {
		if (engine->free_local_blocks == 0)
			return -1;
		if (map_block(engine, seq, logical_idx))
			return -1;
		l2 = seq->block_table[logical_idx / L2_PT_SIZE];
		entry = &l2[logical_idx % L2_PT_SIZE];
	} else if (engine->ref_count[*entry] > 1) {
		if (engine->free_local_blocks == 0)
			return -1;
		unshare_block(engine, entry);
	}

	memcpy(block_ptr(engine, *entry) + offset * KV_SIZE, &kv_data, KV_SIZE);
	seq->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	list_head *head;

	if (!engine)
		return -1;
	head = &engine->active_seqs;
	while (head->next != head)
		drop_seq(engine, seq_of(head->next));
	free(engine->ref_count);
	free(engine);
	return 0;
}
