#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

#define PTE_NONE	(-1)

#define list_entry(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))
#define list_for_each(p, head) \
	for ((p) = (head)->next; (p) != (head); (p) = (p)->next)
#define to_seq(ptr)	list_entry(ptr, Sequence, node)

static void INIT_LIST_HEAD(struct list_node *head)
{
	head->next = head->prev = head;
}

static void list_add_tail(struct list_node *item, struct list_node *head)
{
	item->next = head;
	item->prev = head->prev;
	head->prev->next = item;
	head->prev = item;
}

static void list_del(struct list_node *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
}

static struct list_node *lookup(LLMEngine *eng, int id)
{
	struct list_node *p;

	list_for_each(p, &eng->active_seqs) {
		if (to_seq(p)->seq_id == id)
			return p;
	}
	return NULL;
}

static int alloc_page(LLMEngine *eng)
{
	int i;

	for (i = 0; i < eng->total_local_blocks; i++) {
		if (eng->ref_count[i] == 0) {
			eng->ref_count[i] = 1;
			eng->free_local_blocks--;
			return i;
		}
	}
	return PTE_NONE;
}

static void put_page(LLMEngine *eng, int page)
{
	eng->ref_count[page]--;
	if (eng->ref_count[page] == 0)
		eng->free_local_blocks++;
}

static void *page_address(LLMEngine *eng, int page)
{
	return (char *)eng->pool_base_ptr + (size_t)page * BLOCK_SIZE;
}

/* the entry of logical block idx, NULL while its table does not exist */
static int *pte_offset(Sequence *seq, int idx)
{
	int *table = seq->block_table[idx / L2_PT_SIZE];

	return table ? table + idx % L2_PT_SIZE : NULL;
}

/* the same, but makes the table on the way */
static int *pte_alloc(Sequence *seq, int idx)
{
	int **slot = seq->block_table + idx / L2_PT_SIZE;

	if (*slot == NULL) {
		*slot = malloc(sizeof(int) * L2_PT_SIZE);
		if (*slot == NULL)
			return NULL;
		memset(*slot, PTE_NONE, sizeof(int) * L2_PT_SIZE);
	}
	return *slot + idx % L2_PT_SIZE;
}

static void exit_mm(LLMEngine *eng, Sequence *seq)
{
	int i, j;

	for (i = 0; i < L1_PT_SIZE; i++) {
		int *table = seq->block_table[i];

		if (table == NULL)
			continue;
		for (j = 0; j < L2_PT_SIZE; j++)
			if (table[j] != PTE_NONE)
				put_page(eng, table[j]);
		free(table);
	}
	free(seq->block_table);
	free(seq);
}

static Sequence *alloc_mm(int id)
{
	Sequence *seq = malloc(sizeof(*seq));

	if (seq == NULL)
		goto out;
	memset(seq, 0, sizeof(*seq));
	seq->seq_id = id;
	seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
	if (seq->block_table == NULL)
		goto out_free;
	memset(seq->block_table, 0, sizeof(int *) * L1_PT_SIZE);
	return seq;

out_free:
	free(seq);
out:
	return NULL;
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *eng = NULL;

	if (pool_addr == NULL || pool_size < BLOCK_SIZE)
		goto out;

	eng = malloc(sizeof(*eng));
	if (eng == NULL)
		goto out;
	eng->pool_base_ptr = pool_addr;
	eng->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	eng->free_local_blocks = eng->total_local_blocks;
	INIT_LIST_HEAD(&eng->active_seqs);
	eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof(int));
	if (eng->ref_count == NULL) {
		free(eng);
		eng = NULL;
	}
out:
	return eng;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *seq;
	int idx, nr;

	if (engine == NULL)
		return NULL;
	if (initial_kv_len <= 0 || lookup(engine, seq_id))
		return NULL;

	nr = (initial_kv_len - 1) / KV_PER_BLOCK + 1;
	if (nr > MAX_LOGICAL_BLOCKS || nr > engine->free_local_blocks)
		return NULL;

	seq = alloc_mm(seq_id);
	if (seq == NULL)
		return NULL;

	for (idx = 0; idx < nr; idx++) {
		int *pte = pte_alloc(seq, idx);

		if (pte == NULL) {
			exit_mm(engine, seq);
			return NULL;
		}
		*pte = alloc_page(engine);
	}

	seq->kv_count = initial_kv_len;
	list_add_tail(&seq->node, &engine->active_seqs);
	return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	struct list_node *p;

	if (engine == NULL)
		return -1;
	p = lookup(engine, seq_id);
	if (p == NULL)
		return -1;
	list_del(p);
	exit_mm(engine, to_seq(p));
	return 0;
}

static int dup_mm(LLMEngine *eng, Sequence *dst, Sequence *src)
{
	int idx;

	for (idx = 0; idx < MAX_LOGICAL_BLOCKS; idx++) {
		int *from = pte_offset(src, idx);
		int *to;

		if (from == NULL)
			continue;
		to = pte_alloc(dst, idx);
		if (to == NULL)
			return -1;
		*to = *from;
		if (*to != PTE_NONE)
			eng->ref_count[*to]++;
	}
	dst->kv_count = src->kv_count;
	return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	struct list_node *p;
	Sequence *child;

	if (engine == NULL)
		return NULL;
	p = lookup(engine, parent_seq_id);
	if (p == NULL || lookup(engine, new_seq_id) != NULL)
		return NULL;

	child = alloc_mm(new_seq_id);
	if (child == NULL)
		return NULL;
	if (dup_mm(engine, child, to_seq(p)) < 0)
		goto out_exit;
	list_add_tail(&child->node, &engine->active_seqs);
	return child;

out_exit:
	exit_mm(engine, child);
	return NULL;
}

static void do_wp_page(LLMEngine *eng, int *pte)
{
	int old = *pte;
	int new = alloc_page(eng);

	memcpy(page_address(eng, new), page_address(eng, old), BLOCK_SIZE);
	put_page(eng, old);
	*pte = new;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	struct list_node *p;
	Sequence *seq;
	int logical_idx, offset;
	int *pte, *data;

	if (engine == NULL)
		return -1;
	p = lookup(engine, seq_id);
	if (p == NULL)
		return -1;
	seq = to_seq(p);

	logical_idx = seq->kv_count / KV_PER_BLOCK;
	offset = seq->kv_count % KV_PER_BLOCK;
	if (logical_idx >= MAX_LOGICAL_BLOCKS)
		return -1;

	pte = pte_offset(seq, logical_idx);
	if (pte == NULL || *pte == PTE_NONE || engine->ref_count[*pte] > 1) {
		if (engine->free_local_blocks == 0)
			return -1;
	}
	pte = pte_alloc(seq, logical_idx);
	if (pte == NULL)
		return -1;

	if (*pte == PTE_NONE)
		*pte = alloc_page(engine);
	else if (engine->ref_count[*pte] > 1)
		do_wp_page(engine, pte);

	data = page_address(engine, *pte);
	data[offset] = kv_data;
	seq->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	struct list_node *p;

	if (engine == NULL)
		return -1;
	list_for_each(p, &engine->active_seqs)
		exit_mm(engine, to_seq(p));
	free(engine->ref_count);
	free(engine);
	return 0;
}
