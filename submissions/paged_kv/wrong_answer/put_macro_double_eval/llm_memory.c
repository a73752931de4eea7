#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

#define member_of(ptr, type, field) ((type *)(void *)((char *)(ptr) - offsetof(type, field)))
#define owner(n)       member_of(n, Sequence, node)
#define KV_BLK(n)      ((n) / KV_PER_BLOCK)
#define KV_OFF(n)      ((n) % KV_PER_BLOCK)
#define L1_OF(b)       ((b) / L2_PT_SIZE)
#define L2_OF(b)       ((b) % L2_PT_SIZE)
#define BASE(e, b)     ((uint8_t *)(e)->pool_base_ptr + (b) * (size_t)BLOCK_SIZE)
#define DROP(e, b)     do { (e)->ref_count[b]--; if (!(e)->ref_count[b]) (e)->free_local_blocks++; } while (0)

typedef void (*visit_fn)(LLMEngine *, Sequence *, size_t, int *);

static void walk(LLMEngine *eng, Sequence *from, Sequence *to, visit_fn f)
{
	size_t i = 0;

	while (i < L1_PT_SIZE) {
		if (from->block_table[i])
			f(eng, to, i, from->block_table[i]);
		i++;
	}
}

static int *fresh_l2(void)
{
	return memset(malloc(L2_PT_SIZE * sizeof(int)), 0xff, L2_PT_SIZE * sizeof(int));
}

static void on_share(LLMEngine *eng, Sequence *to, size_t i, int *l2)
{
	int *mine = to->block_table[i] = fresh_l2();
	size_t j = 0;

	while (j < L2_PT_SIZE) {
		if ((mine[j] = l2[j]) != -1)
			eng->ref_count[l2[j]]++;
		j++;
	}
}

static void on_drop(LLMEngine *eng, Sequence *to, size_t i, int *l2)
{
	size_t j = 0;

	while (j < L2_PT_SIZE) {
		if (l2[j] == -1) {
			j++;
			continue;
		}
		DROP(eng, l2[j++]);
	}
	to->block_table[i] = NULL;
	free(l2);
}

static Sequence *by_id(LLMEngine *eng, int id)
{
	struct list_node *end = &eng->active_seqs, *n = end->next;

	while (n != end) {
		Sequence *s = owner(n);

		if (s->seq_id == id)
			return s;
		n = n->next;
	}
	return NULL;
}

static Sequence *enlist(LLMEngine *eng, int id, int count)
{
	Sequence *s = malloc(sizeof(Sequence));
	struct list_node *end = &eng->active_seqs, *last = end->prev;
	size_t i = 0;

	s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
	while (i < L1_PT_SIZE)
		s->block_table[i++] = NULL;
	s->seq_id = id;
	s->kv_count = count;
	s->node.prev = last;
	s->node.next = end;
	last->next = end->prev = &s->node;
	return s;
}

static void delist(LLMEngine *eng, Sequence *s)
{
	s->node.prev->next = s->node.next;
	s->node.next->prev = s->node.prev;
	walk(eng, s, s, on_drop);
	free(s->block_table);
	free(s);
}

static int back(LLMEngine *eng, Sequence *s, int lb)
{
	int **l2 = s->block_table + L1_OF(lb), id;

	for (id = 0; id < eng->total_local_blocks; id++)
		if (eng->ref_count[id] == 0)
			break;
	if (*l2 == NULL)
		*l2 = fresh_l2();
	eng->ref_count[id] = 1;
	eng->free_local_blocks--;
	return (*l2)[L2_OF(lb)] = id;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	if (pool_addr == NULL || pool_size < BLOCK_SIZE)
		return NULL;

	LLMEngine *eng = malloc(sizeof(LLMEngine));
	size_t n = pool_size / BLOCK_SIZE;

	eng->pool_base_ptr = pool_addr;
	eng->total_local_blocks = eng->free_local_blocks = (int)n;
	eng->ref_count = calloc(n, sizeof(int));
	eng->active_seqs.next = &eng->active_seqs;
	eng->active_seqs.prev = &eng->active_seqs;
	return eng;
}

Sequence *create_sequence(LLMEngine *eng, int seq_id, int initial_kv_len)
{
	if (eng == NULL)
		return NULL;
	if (initial_kv_len <= 0 || by_id(eng, seq_id))
		return NULL;
	if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
		return NULL;

	int lb = 0, want = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;

	if (want > eng->free_local_blocks)
		return NULL;

	Sequence *s = enlist(eng, seq_id, initial_kv_len);

	while (lb < want)
		back(eng, s, lb++);
	return s;
}

int free_sequence(LLMEngine *eng, int seq_id)
{
	if (eng == NULL)
		return -1;

	Sequence *s = by_id(eng, seq_id);

	if (s == NULL)
		return -1;
	delist(eng, s);
	return 0;
}

Sequence *fork_sequence(LLMEngine *eng, int parent_seq_id, int new_seq_id)
{
	if (eng == NULL)
		return NULL;

	Sequence *from = by_id(eng, parent_seq_id), *to;

	if (from == NULL || by_id(eng, new_seq_id) != NULL)
		return NULL;
	to = enlist(eng, new_seq_id, from->kv_count);
	walk(eng, from, to, on_share);
	return to;
}

int append_kv(LLMEngine *eng, int seq_id, int kv_data)
{
	if (eng == NULL)
		return -1;

	Sequence *s = by_id(eng, seq_id);
	int lb, *l2, cur, was;
	uint8_t *at;

	if (s == NULL || (lb = KV_BLK(s->kv_count)) >= MAX_LOGICAL_BLOCKS)
		return -1;
	l2 = s->block_table[L1_OF(lb)];
	was = cur = l2 ? l2[L2_OF(lb)] : -1;
	if (was == -1 || eng->ref_count[was] > 1) {
		if (eng->free_local_blocks == 0)
			return -1;
		cur = back(eng, s, lb);
		if (was != -1) {
			memcpy(BASE(eng, cur), BASE(eng, was), BLOCK_SIZE);
			DROP(eng, was);
		}
	}
	at = BASE(eng, cur) + KV_SIZE * KV_OFF(s->kv_count);
	*(int *)(void *)at = kv_data;
	s->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *eng)
{
	if (eng == NULL)
		return -1;
	while (eng->active_seqs.next != &eng->active_seqs)
		delist(eng, owner(eng->active_seqs.next));
	free(eng->ref_count);
	free(eng);
	return 0;
}
