#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define container_of(p, T, m) ((T *)((char *)(p) - offsetof(T, m)))
#define OWNER(n)    container_of(n, Sequence, node)
#define END(e)      (&(e)->active_seqs)
#define IX1(kv)     ((size_t)(kv) / (KV_PER_BLOCK * L2_PT_SIZE))
#define IX2(kv)     ((size_t)(kv) / KV_PER_BLOCK % L2_PT_SIZE)
#define PHYS(e, p)  ((char *)(e)->pool_base_ptr + (size_t)(p) * BLOCK_SIZE)

static struct list_node *seek(LLMEngine *e, int id)
{
	struct list_node *n = END(e)->next;

	while (n != END(e) && OWNER(n)->seq_id != id)
		n = n->next;
	return n;
}

static void splice(struct list_node *n, struct list_node *after)
{
	n->prev = after;
	n->next = after->next;
	after->next->prev = n;
	after->next = n;
}

static void unsplice(struct list_node *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
}

static int *row(void)
{
	int *r = malloc(L2_PT_SIZE * sizeof(int));
	size_t j = 0;

	while (j < L2_PT_SIZE)
		r[j++] = -1;
	return r;
}

static Sequence *blank(int id, int kv)
{
	Sequence *s = malloc(sizeof *s);
	int **t = malloc(L1_PT_SIZE * sizeof *t), **q = t + L1_PT_SIZE;

	while (q > t)
		*--q = NULL;
	s->seq_id = id;
	s->kv_count = kv;
	s->block_table = t;
	return s;
}

static void ref(LLMEngine *e, int p, int d)
{
	int was = e->ref_count[p];

	e->ref_count[p] = was + d;
	if (was == 0)
		e->free_local_blocks--;
	if (was + d == 0)
		e->free_local_blocks++;
}

static int pick(LLMEngine *e)
{
	int p;

	for (p = 0; p < e->total_local_blocks; p++)
		if (e->ref_count[p] == 0)
			break;
	return p;
}

static void walk(LLMEngine *e, Sequence *s, Sequence *kid, int d)
{
	size_t i = 0, j;

	for (; i < L1_PT_SIZE; i++) {
		int *r = s->block_table[i];

		if (r == NULL)
			continue;
		j = 0;
		while (j < L2_PT_SIZE) {
			if (r[j] != -1)
				ref(e, r[j], d);
			j++;
		}
		if (kid)
			kid->block_table[i] = memcpy(row(), r, L2_PT_SIZE * sizeof *r);
		else
			free(r);
	}
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	if (pool_addr == NULL || pool_size < BLOCK_SIZE)
		return NULL;
	size_t n = pool_size / BLOCK_SIZE;
	LLMEngine *e = malloc(sizeof *e), tmpl = {
		.pool_base_ptr = pool_addr,
		.total_local_blocks = (int)n,
		.free_local_blocks = (int)n,
		.ref_count = calloc(n, sizeof(int)),
	};

	*e = tmpl;
	END(e)->prev = END(e)->next = END(e);
	return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (engine == NULL)
		return NULL;
	size_t need, kv = 0;
	Sequence *s;

	if (initial_kv_len <= 0 || seek(engine, seq_id) != END(engine))
		return NULL;
	need = ((size_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (need > MAX_LOGICAL_BLOCKS || (size_t)engine->free_local_blocks < need)
		return NULL;
	s = blank(seq_id, initial_kv_len);
	while (need--) {
		int p = pick(engine);

		if (!s->block_table[IX1(kv)])
			s->block_table[IX1(kv)] = row();
		s->block_table[IX1(kv)][IX2(kv)] = p;
		ref(engine, p, 1);
		kv += KV_PER_BLOCK;
	}
	splice(&s->node, END(engine)->prev);
	return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	if (engine == NULL)
		return -1;
	struct list_node *n = seek(engine, seq_id);
	Sequence *s = OWNER(n);

	if (n == END(engine))
		return -1;
	unsplice(n);
	walk(engine, s, NULL, -1);
	free(s->block_table);
	free(s);
	return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (engine == NULL)
		return NULL;
	struct list_node *n = seek(engine, parent_seq_id);
	Sequence *p, *c;

	if (n == NULL || seek(engine, new_seq_id) != END(engine))
		return NULL;
	p = OWNER(n);
	c = blank(new_seq_id, p->kv_count);
	walk(engine, p, c, 1);
	splice(&c->node, END(engine)->prev);
	return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (engine == NULL)
		return -1;
	struct list_node *n = seek(engine, seq_id);
	Sequence *s;
	int **r, *ent, p;
	size_t kv;

	if (n == END(engine))
		return -1;
	s = OWNER(n);
	kv = (size_t)s->kv_count;
	if (kv / KV_PER_BLOCK >= MAX_LOGICAL_BLOCKS)
		return -1;
	r = s->block_table + IX1(kv);
	if (!*r || (*r)[IX2(kv)] == -1 || engine->ref_count[(*r)[IX2(kv)]] > 1) {
		if (!engine->free_local_blocks)
			return -1;
		if (!*r)
			*r = row();
		ent = *r + IX2(kv);
		p = pick(engine);
		ref(engine, p, 1);
		if (*ent != -1) {
			memcpy(PHYS(engine, p), PHYS(engine, *ent), BLOCK_SIZE);
			ref(engine, *ent, -1);
		}
		*ent = p;
	}
	*((int *)PHYS(engine, (*r)[IX2(kv)]) + kv % KV_PER_BLOCK) = kv_data;
	s->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
		return -1;
	struct list_node *n = END(engine)->next;

	while (n != END(engine)) {
		Sequence *s = OWNER(n);

		n = n->next;
		walk(engine, s, NULL, -1);
		free(s->block_table);
		free(s);
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
