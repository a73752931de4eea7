#include "llm_memory.h"
#include <string.h>
#include <stdlib.h>

#define container_of(p, t, f) ((t *)((char *)(p) - offsetof(t, f)))
#define SEQ_OF(n)   container_of((n), Sequence, node)
#define TAB(s, k)   ((s)->block_table[(k) / L2_PT_SIZE])
#define ENT(s, k)   (TAB(s, k)[(k) % L2_PT_SIZE])
#define CEIL(n)     (((size_t)(n) + KV_PER_BLOCK - 1) / KV_PER_BLOCK)
#define ADDR(e, p)  ((int *)(e)->pool_base_ptr + (size_t)(p) * KV_PER_BLOCK)

static Sequence *lookup(LLMEngine *e, int id)
{
	struct list_node *h = &e->active_seqs, *n = h;

	while ((n = n->next) != h)
		if (SEQ_OF(n)->seq_id == id)
			return SEQ_OF(n);
	return NULL;
}

static int admit(LLMEngine *e, int id, size_t need)
{
	struct list_node *h = &e->active_seqs, *n = h->next;

	while (n != h) {
		if (SEQ_OF(n)->seq_id == id)
			return 0;
		n = n->next;
	}
	return need <= MAX_LOGICAL_BLOCKS && need <= (size_t)e->free_local_blocks;
}

static int spare;

static int take(LLMEngine *e)
{
	for (int k = 0; k < e->total_local_blocks; k++) {
		int p = (spare + k) % e->total_local_blocks;

		if (e->ref_count[p])
			continue;
		e->ref_count[p]++;
		e->free_local_blocks--;
		return p;
	}
	return -1;
}

static void release(LLMEngine *e, int p)
{
	if (--e->ref_count[p])
		return;
	spare = p;
	e->free_local_blocks++;
}

static void map(Sequence *s, size_t k, int p)
{
	size_t j = 0;

	if (TAB(s, k) == NULL) {
		TAB(s, k) = malloc(sizeof(int) * L2_PT_SIZE);
		while (j < L2_PT_SIZE)
			TAB(s, k)[j++] = -1;
	}
	ENT(s, k) = p;
}

static Sequence *born(LLMEngine *e, int id, int kv)
{
	struct list_node *h = &e->active_seqs;
	Sequence *s = malloc(sizeof *s);
	size_t i = 0;

	s->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
	while (i < L1_PT_SIZE)
		s->block_table[i++] = NULL;
	s->seq_id = id;
	s->kv_count = kv;
	s->node = (struct list_node){ .prev = h->prev, .next = h };
	h->prev->next = &s->node;
	h->prev = &s->node;
	return s;
}

static void walk(LLMEngine *e, Sequence *s, Sequence *into)
{
	size_t k = 0;

	while (k < MAX_LOGICAL_BLOCKS) {
		if (TAB(s, k) && into) {
			map(into, k, ENT(s, k));
			if (ENT(s, k) != -1)
				e->ref_count[ENT(s, k)]++;
		} else if (TAB(s, k)) {
			if (ENT(s, k) != -1)
				release(e, ENT(s, k));
			if (k % L2_PT_SIZE == L2_PT_SIZE - 1)
				free(TAB(s, k));
		}
		k++;
	}
}

static void die(LLMEngine *e, Sequence *s)
{
	s->node.next->prev = s->node.prev;
	s->node.prev->next = s->node.next;
	walk(e, s, NULL);
	free(s->block_table);
	free(s);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *e = NULL;

	if (pool_addr != NULL && pool_size >= BLOCK_SIZE) {
		e = malloc(sizeof *e);
		e->pool_base_ptr = pool_addr;
		e->free_local_blocks = e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
		e->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof *e->ref_count);
		e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
		spare = 0;
	}
	return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (engine == NULL)
		return NULL;
	size_t k = 0, need;
	Sequence *s;

	if (initial_kv_len <= 0)
		return NULL;
	need = CEIL(initial_kv_len);
	if (!admit(engine, seq_id, need))
		return NULL;
	s = born(engine, seq_id, initial_kv_len);
	while (k < need)
		map(s, k++, take(engine));
	return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	if (engine == NULL)
		return -1;
	Sequence *s = lookup(engine, seq_id);

	if (s)
		die(engine, s);
	return s ? 0 : -1;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (engine == NULL)
		return NULL;
	Sequence *dad = lookup(engine, parent_seq_id), *kid = NULL;

	if (dad && admit(engine, new_seq_id, 0)) {
		kid = born(engine, new_seq_id, dad->kv_count);
		walk(engine, dad, kid);
	}
	return kid;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (engine == NULL)
		return -1;
	Sequence *s = lookup(engine, seq_id);
	size_t k;
	int old, now;

	if (!s)
		return -1;
	k = (size_t)s->kv_count / KV_PER_BLOCK;
	if (k >= MAX_LOGICAL_BLOCKS)
		return -1;
	now = old = TAB(s, k) ? ENT(s, k) : -1;
	if (old < 0 || engine->ref_count[old] > 1) {
		if (engine->free_local_blocks < 1)
			return -1;
		now = take(engine);
		if (old >= 0) {
			memcpy(ADDR(engine, now), ADDR(engine, old), BLOCK_SIZE);
			release(engine, old);
		}
		map(s, k, now);
	}
	ADDR(engine, now)[s->kv_count++ % KV_PER_BLOCK] = kv_data;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
		return -1;
	struct list_node *n = engine->active_seqs.next, *nx;

	while (n != &engine->active_seqs) {
		nx = n->next;
		die(engine, SEQ_OF(n));
		n = nx;
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
