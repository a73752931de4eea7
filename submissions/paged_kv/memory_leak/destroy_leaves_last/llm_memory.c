#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define SELF(n)      container_of(n, Sequence, node)
#define BLK_PTR(e,i) ((int32_t *)(e)->pool_base_ptr + (i) * KV_PER_BLOCK)

enum hit { FULL = -1, OWN, NEW, COW };

typedef struct {
	size_t i, j, off;
	int id;
} Pos;

static Sequence *get(LLMEngine *e, int id)
{
	struct list_node *stop = &e->active_seqs, *n = stop->next;

	while (n != stop && SELF(n)->seq_id != id)
		n = n->next;
	return n == stop ? NULL : SELF(n);
}

static int *table_new(void)
{
	int *t = malloc(sizeof(int) * L2_PT_SIZE), *q = t;

	while (q < t + L2_PT_SIZE)
		*q++ = -1;
	return t;
}

static Sequence *attach(LLMEngine *e, Sequence *s)
{
	struct list_node *h = &e->active_seqs;

	s->node.next = h;
	s->node.prev = h->prev;
	h->prev = h->prev->next = &s->node;
	return s;
}

static Sequence *shell(int id, int kv)
{
	Sequence *s = malloc(sizeof(Sequence));
	size_t i = 0;

	s->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
	while (i < L1_PT_SIZE)
		s->block_table[i++] = NULL;
	s->seq_id = id;
	s->kv_count = kv;
	return s;
}

static int claim(LLMEngine *e, Sequence *s, size_t i, size_t j)
{
	for (int id = 0; id <= e->total_local_blocks - 1; id++) {
		if (e->ref_count[id] != 0)
			continue;
		if (!s->block_table[i])
			s->block_table[i] = table_new();
		e->ref_count[id] = 1;
		e->free_local_blocks -= 1;
		return s->block_table[i][j] = id;
	}
	return -1;
}

static void put(LLMEngine *e, int id)
{
	e->ref_count[id]--;
	e->free_local_blocks += !e->ref_count[id];
}

static int *dup_table(LLMEngine *e, const int *from)
{
	int *t = table_new();
	size_t j = 0;

	while (j < L2_PT_SIZE) {
		if (from[j] != -1) {
			t[j] = from[j];
			e->ref_count[t[j]]++;
		}
		j++;
	}
	return t;
}

static void reap(LLMEngine *e, struct list_node *n)
{
	Sequence *s = SELF(n);
	size_t i, j;

	n->prev->next = n->next;
	n->next->prev = n->prev;
	for (i = 0; i < L1_PT_SIZE; i++) {
		for (j = 0; s->block_table[i] && j < L2_PT_SIZE; j++)
			if (s->block_table[i][j] >= 0)
				put(e, s->block_table[i][j]);
		free(s->block_table[i]);
	}
	free(s->block_table);
	free(s);
}

static enum hit probe(LLMEngine *e, Sequence *s, Pos *at)
{
	size_t b = (size_t)s->kv_count / KV_PER_BLOCK;

	if (b >= MAX_LOGICAL_BLOCKS)
		return FULL;
	at->i = b / L2_PT_SIZE;
	at->j = b % L2_PT_SIZE;
	at->off = (size_t)s->kv_count % KV_PER_BLOCK;
	at->id = s->block_table[at->i] ? s->block_table[at->i][at->j] : -1;
	if (at->id == -1)
		return e->free_local_blocks ? NEW : FULL;
	if (e->ref_count[at->id] > 1)
		return e->free_local_blocks ? COW : FULL;
	return OWN;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *e;

	if (pool_addr == NULL || pool_size < BLOCK_SIZE || !(e = malloc(sizeof *e)))
		return NULL;
	e->pool_base_ptr = pool_addr;
	e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	e->free_local_blocks = e->total_local_blocks;
	e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
	e->active_seqs.prev = &e->active_seqs;
	e->active_seqs.next = &e->active_seqs;
	return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (engine == NULL)
		return NULL;
	if (initial_kv_len <= 0 || get(engine, seq_id))
		return NULL;
	size_t b = 0, n = ((size_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;

	if (n > MAX_LOGICAL_BLOCKS || n > (size_t)engine->free_local_blocks)
		return NULL;
	Sequence *s = shell(seq_id, initial_kv_len);

	while (b < n) {
		claim(engine, s, b / L2_PT_SIZE, b % L2_PT_SIZE);
		b++;
	}
	return attach(engine, s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	if (engine == NULL)
		return -1;
	Sequence *s = get(engine, seq_id);

	if (s == NULL)
		return -1;
	reap(engine, &s->node);
	return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (engine == NULL)
		return NULL;
	Sequence *old = get(engine, parent_seq_id), *s;
	size_t i = 0;

	if (!old || get(engine, new_seq_id))
		return NULL;
	s = shell(new_seq_id, old->kv_count);
	while (i < L1_PT_SIZE) {
		if (old->block_table[i])
			s->block_table[i] = dup_table(engine, old->block_table[i]);
		i++;
	}
	return attach(engine, s);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (engine == NULL)
		return -1;
	Sequence *s = get(engine, seq_id);
	Pos at;
	int id;

	if (!s)
		return -1;
	switch (probe(engine, s, &at)) {
	case OWN:
		id = at.id;
		break;
	case NEW:
		id = claim(engine, s, at.i, at.j);
		break;
	case COW:
		id = claim(engine, s, at.i, at.j);
		memcpy(BLK_PTR(engine, id), BLK_PTR(engine, at.id), BLOCK_SIZE);
		put(engine, at.id);
		break;
	default:
		return -1;
	}
	BLK_PTR(engine, id)[at.off] = kv_data;
	s->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
		return -1;
	struct list_node *h = &engine->active_seqs;

	while (h->next != h->prev)
		reap(engine, h->next);
	free(engine->ref_count);
	free(engine);
	return 0;
}
