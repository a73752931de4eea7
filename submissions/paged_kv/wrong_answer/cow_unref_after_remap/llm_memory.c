#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define container_of(p, T, m) ((T *)((char *)(p) - offsetof(T, m)))
#define SEQ(n)    container_of(n, Sequence, node)
#define HEAD(e)   (&(e)->active_seqs)
#define RC(e, p)  ((e)->ref_count[p])
#define BLK(e, p) ((char *)(e)->pool_base_ptr + (size_t)(p) * BLOCK_SIZE)
#define LBI(kv)   ((size_t)(kv) / KV_PER_BLOCK)
#define OFF(kv)   ((size_t)(kv) % KV_PER_BLOCK)
#define NBLK(kv)  (((size_t)(kv) + KV_PER_BLOCK - 1) / KV_PER_BLOCK)
#define I1(b)     ((b) / L2_PT_SIZE)
#define I2(b)     ((b) % L2_PT_SIZE)

enum { W_COPY = 1, W_REF = 2, W_UNREF = 4, W_FREE = 8 };

static Sequence *find(LLMEngine *e, int id)
{
	struct list_node *n = HEAD(e);

	while ((n = n->next) != HEAD(e))
		if (SEQ(n)->seq_id == id)
			return SEQ(n);
	return NULL;
}

static int grab(LLMEngine *e)
{
	for (int p = 0; p < e->total_local_blocks; p++)
		if (!RC(e, p)) {
			RC(e, p) = 1;
			e->free_local_blocks--;
			return p;
		}
	return -1;
}

static void unref(LLMEngine *e, int p)
{
	if (--RC(e, p) == 0)
		e->free_local_blocks++;
}

static int *l2_new(void)
{
	int *t = malloc(L2_PT_SIZE * sizeof *t);
	size_t j = L2_PT_SIZE;

	while (j--)
		t[j] = -1;
	return t;
}

static int *slot(Sequence *s, size_t b)
{
	int **t = &s->block_table[I1(b)];

	if (!*t)
		*t = l2_new();
	return &(*t)[I2(b)];
}

static void walk(LLMEngine *e, int **src, int **dst, int mode)
{
	size_t i = L1_PT_SIZE, j;

	while (i--) {
		int *t = src[i];

		if (!t)
			continue;
		if (mode & W_COPY)
			dst[i] = l2_new();
		j = 0;
		while (j < L2_PT_SIZE) {
			int p = t[j];

			if (mode & W_COPY)
				dst[i][j] = p;
			if ((mode & W_REF) && p != -1)
				RC(e, p)++;
			if ((mode & W_UNREF) && p != -1)
				unref(e, p);
			j++;
		}
		if (mode & W_FREE)
			free(t);
	}
}

static Sequence *mkseq(int id, int kv)
{
	Sequence *s = malloc(sizeof *s);
	size_t i = L1_PT_SIZE;

	s->seq_id = id;
	s->kv_count = kv;
	s->block_table = malloc(L1_PT_SIZE * sizeof *s->block_table);
	while (i--)
		s->block_table[i] = NULL;
	return s;
}

static Sequence *push(LLMEngine *e, Sequence *s)
{
	struct list_node *n = &s->node;

	n->next = HEAD(e);
	n->prev = HEAD(e)->prev;
	n->prev->next = n;
	n->next->prev = n;
	return s;
}

static void reap(LLMEngine *e, Sequence *s)
{
	struct list_node *n = &s->node;

	n->prev->next = n->next;
	n->next->prev = n->prev;
	walk(e, s->block_table, NULL, W_UNREF | W_FREE);
	free(s->block_table);
	free(s);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *e;

	if (pool_addr == NULL || pool_size < BLOCK_SIZE)
		return NULL;
	e = malloc(sizeof *e);
	e->pool_base_ptr = pool_addr;
	e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	e->free_local_blocks = e->total_local_blocks;
	e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count);
	HEAD(e)->prev = HEAD(e)->next = HEAD(e);
	return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (engine == NULL)
		return NULL;
	Sequence *s;
	size_t b = 0, need;

	if (initial_kv_len <= 0 || find(engine, seq_id))
		return NULL;
	need = NBLK(initial_kv_len);
	if (need > MAX_LOGICAL_BLOCKS || need > (size_t)engine->free_local_blocks)
		return NULL;
	s = mkseq(seq_id, initial_kv_len);
	while (b < need) {
		*slot(s, b) = grab(engine);
		b++;
	}
	return push(engine, s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	if (engine == NULL)
		return -1;
	Sequence *s = find(engine, seq_id);

	if (!s)
		return -1;
	reap(engine, s);
	return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (engine == NULL)
		return NULL;
	Sequence *p = find(engine, parent_seq_id), *c;

	if (!p || find(engine, new_seq_id))
		return NULL;
	c = mkseq(new_seq_id, p->kv_count);
	walk(engine, p->block_table, c->block_table, W_COPY | W_REF);
	return push(engine, c);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (engine == NULL)
		return -1;
	Sequence *s = find(engine, seq_id);
	size_t b, off;
	int *t, old, p;

	if (!s)
		return -1;
	b = LBI(s->kv_count);
	off = OFF(s->kv_count);
	if (b >= MAX_LOGICAL_BLOCKS)
		return -1;
	t = s->block_table[I1(b)];
	old = t ? t[I2(b)] : -1;
	if (old == -1 || RC(engine, old) > 1) {
		if (!engine->free_local_blocks)
			return -1;
		p = grab(engine);
		if (old == -1) {
			*slot(s, b) = p;
		} else {
			memcpy(BLK(engine, p), BLK(engine, old), BLOCK_SIZE);
			t[I2(b)] = p;
			unref(engine, t[I2(b)]);
		}
	}
	((int *)BLK(engine, *slot(s, b)))[off] = kv_data;
	s->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
		return -1;
	while (HEAD(engine)->next != HEAD(engine))
		reap(engine, SEQ(HEAD(engine)->next));
	free(engine->ref_count);
	free(engine);
	return 0;
}
