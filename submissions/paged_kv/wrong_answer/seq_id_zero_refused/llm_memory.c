#include "llm_memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

#define list_for_each_entry(pos, head, type, member)			\
	for (pos = container_of((head)->next, type, member);		\
	     &pos->member != (head);					\
	     pos = container_of(pos->member.next, type, member))

#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))

#define TABLE_BYTES	(L2_PT_SIZE * sizeof(int))
#define ROOT_BYTES	(L1_PT_SIZE * sizeof(int *))

struct kv_pos {
	int block;
	int l1;
	int l2;
	int off;
};

static void INIT_LIST_HEAD(struct list_node *h)
{
	h->prev = h;
	h->next = h;
}

static void list_add_tail(struct list_node *n, struct list_node *head)
{
	struct list_node *last = head->prev;

	n->prev = last;
	n->next = head;
	last->next = n;
	head->prev = n;
}

static void list_del(struct list_node *n)
{
	struct list_node *p = n->prev, *q = n->next;

	p->next = q;
	q->prev = p;
}

static bool list_empty(const struct list_node *head)
{
	return head->next == head;
}

static struct kv_pos kv_to_pos(int kv)
{
	struct kv_pos p;

	p.block = kv / KV_PER_BLOCK;
	p.off = kv % KV_PER_BLOCK;
	p.l1 = p.block / L2_PT_SIZE;
	p.l2 = p.block % L2_PT_SIZE;
	return p;
}

static Sequence *seq_lookup(LLMEngine *e, int id)
{
	Sequence *s;

	list_for_each_entry(s, &e->active_seqs, Sequence, node)
		if (s->seq_id == id)
			return s;
	return NULL;
}

static void *pfn_to_virt(LLMEngine *e, int pfn)
{
	return (unsigned char *)e->pool_base_ptr + (size_t)pfn * BLOCK_SIZE;
}

/* returns a block that belongs to the caller alone, or -1 */
static int grab_block(LLMEngine *e)
{
	for (int pfn = 0; pfn < e->total_local_blocks; pfn++) {
		if (e->ref_count[pfn] != 0)
			continue;
		e->ref_count[pfn] = 1;
		e->free_local_blocks--;
		return pfn;
	}
	return -1;
}

static int *table_new(void)
{
	int *t = malloc(TABLE_BYTES);

	if (t)
		memset(t, 0xff, TABLE_BYTES);
	return t;
}

static void table_put_blocks(LLMEngine *e, const int *t)
{
	for (int k = 0; k < L2_PT_SIZE; k++) {
		int pfn = t[k];

		if (pfn == -1)
			continue;
		e->ref_count[pfn]--;
		if (e->ref_count[pfn] == 0)
			e->free_local_blocks++;
	}
}

static void seq_get_blocks(LLMEngine *e, Sequence *s)
{
	for (int i = 0; i < L1_PT_SIZE; i++) {
		int *t = s->block_table[i];

		if (!t)
			continue;
		for (int k = 0; k < L2_PT_SIZE; k++) {
			if (t[k] != -1)
				e->ref_count[t[k]]++;
		}
	}
}

static void seq_free_tables(Sequence *s)
{
	for (int i = 0; i < L1_PT_SIZE; i++)
		free(s->block_table[i]);
	free(s->block_table);
	free(s);
}

static void seq_kill(LLMEngine *e, Sequence *s)
{
	for (int i = 0; i < L1_PT_SIZE; i++) {
		if (s->block_table[i])
			table_put_blocks(e, s->block_table[i]);
	}
	seq_free_tables(s);
}

static Sequence *seq_new(int id, int len)
{
	Sequence *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->block_table = calloc(1, ROOT_BYTES);
	if (!s->block_table) {
		free(s);
		return NULL;
	}
	s->seq_id = id;
	s->kv_count = len;
	return s;
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *e;

	if (pool_addr == NULL)
		return NULL;
	if (pool_size < BLOCK_SIZE)
		return NULL;

	e = malloc(sizeof(LLMEngine));
	if (!e)
		return NULL;
	memset(e, 0, sizeof(*e));

	e->pool_base_ptr = pool_addr;
	e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	e->free_local_blocks = e->total_local_blocks;
	INIT_LIST_HEAD(&e->active_seqs);

	e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
	if (!e->ref_count) {
		free(e);
		return NULL;
	}
	return e;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *s;
	int need;

	if (engine == NULL)
		return NULL;
	if (seq_id <= 0 || initial_kv_len <= 0)
		return NULL;
	if (seq_lookup(engine, seq_id))
		return NULL;
	if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
		return NULL;
	need = DIV_ROUND_UP(initial_kv_len, KV_PER_BLOCK);
	if (need > engine->free_local_blocks)
		return NULL;

	s = seq_new(seq_id, initial_kv_len);
	if (!s)
		return NULL;

	for (int kv = 0; kv < initial_kv_len; kv += KV_PER_BLOCK) {
		struct kv_pos p = kv_to_pos(kv);

		if (!s->block_table[p.l1])
			s->block_table[p.l1] = table_new();
		if (!s->block_table[p.l1])
			goto fail;
		s->block_table[p.l1][p.l2] = grab_block(engine);
	}

	list_add_tail(&s->node, &engine->active_seqs);
	return s;
fail:
	seq_kill(engine, s);
	return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	Sequence *s;

	if (engine == NULL)
		return -1;
	s = seq_lookup(engine, seq_id);
	if (!s)
		return -1;
	list_del(&s->node);
	seq_kill(engine, s);
	return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	Sequence *from, *to;

	if (engine == NULL)
		return NULL;
	from = seq_lookup(engine, parent_seq_id);
	if (!from || seq_lookup(engine, new_seq_id))
		return NULL;

	to = seq_new(new_seq_id, from->kv_count);
	if (!to)
		return NULL;
	for (int i = 0; i < L1_PT_SIZE; i++) {
		if (!from->block_table[i])
			continue;
		to->block_table[i] = table_new();
		if (!to->block_table[i])
			goto fail;
		memcpy(to->block_table[i], from->block_table[i], TABLE_BYTES);
	}
	seq_get_blocks(engine, to);
	list_add_tail(&to->node, &engine->active_seqs);
	return to;
fail:
	seq_free_tables(to);
	return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	Sequence *s;
	struct kv_pos p;
	int cur = -1;
	int pfn;

	if (engine == NULL)
		return -1;
	s = seq_lookup(engine, seq_id);
	if (!s)
		return -1;
	p = kv_to_pos(s->kv_count);
	if (p.block >= MAX_LOGICAL_BLOCKS)
		return -1;

	if (s->block_table[p.l1])
		cur = s->block_table[p.l1][p.l2];
	if (cur != -1 && engine->ref_count[cur] == 1) {
		pfn = cur;
		goto store;
	}

	/* from here on a new block is needed */
	if (engine->free_local_blocks == 0)
		return -1;
	if (!s->block_table[p.l1]) {
		s->block_table[p.l1] = table_new();
		if (!s->block_table[p.l1])
			return -1;
	}
	pfn = grab_block(engine);
	if (cur != -1) {
		memcpy(pfn_to_virt(engine, pfn), pfn_to_virt(engine, cur),
		       BLOCK_SIZE);
		engine->ref_count[cur]--;
	}
	s->block_table[p.l1][p.l2] = pfn;
store:
	((int *)pfn_to_virt(engine, pfn))[p.off] = kv_data;
	s->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
		return -1;

	while (!list_empty(&engine->active_seqs)) {
		struct list_node *first = engine->active_seqs.next;

		list_del(first);
		seq_kill(engine, container_of(first, Sequence, node));
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
