// SPDX-License-Identifier: GPL-2.0
/*
 * llm_memory.c - paged KV cache with copy-on-write
 *
 * Locking: none, the caller is single threaded.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

#define unlikely(x)	__builtin_expect(!!(x), 0)

#define seq_container_of(ptr, type, member) __extension__ ({		\
	const __typeof__(((type *)0)->member) *__mptr = (ptr);		\
	(type *)((char *)__mptr - offsetof(type, member)); })

#define lst_entry(ptr, type, member) seq_container_of(ptr, type, member)

#define lst_for_each_entry(pos, head, member)					\
	for (pos = lst_entry((head)->next, __typeof__(*pos), member);		\
	     &pos->member != (head);						\
	     pos = lst_entry(pos->member.next, __typeof__(*pos), member))

#define lst_for_each_entry_safe(pos, n, head, member)				\
	for (pos = lst_entry((head)->next, __typeof__(*pos), member),		\
	     n = lst_entry(pos->member.next, __typeof__(*pos), member);		\
	     &pos->member != (head);						\
	     pos = n, n = lst_entry(n->member.next, __typeof__(*n), member))

static inline void lst_init(struct list_node *head)
{
	head->next = head;
	head->prev = head;
}

static inline void __lst_add(struct list_node *new, struct list_node *prev,
			     struct list_node *next)
{
	next->prev = new;
	new->next = next;
	new->prev = prev;
	prev->next = new;
}

static inline void lst_add_tail(struct list_node *new, struct list_node *head)
{
	__lst_add(new, head->prev, head);
}

static inline void lst_del_init(struct list_node *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
	lst_init(entry);
}

static Sequence *seq_lookup(LLMEngine *eng, int id)
{
	Sequence *seq;

	lst_for_each_entry(seq, &eng->active_seqs, node)
		if (seq->seq_id == id)
			return seq;
	return NULL;
}

static int find_page_plain(const LLMEngine *eng)
{
	int pfn;

	for (pfn = 0; pfn < eng->total_local_blocks; pfn++)
		if (!eng->ref_count[pfn])
			break;
	return pfn;
}

typedef int find_page_fn(const LLMEngine *);

/* one day there may be a vectorised one; the loader asks here which to take */
static find_page_fn *resolve_find_page(void)
{
	return find_page_plain;
}

int find_page(const LLMEngine *eng) __attribute__((ifunc("resolve_find_page")));

/* get_page - grab the lowest free page; caller has probed that one exists */
static int get_page(LLMEngine *eng)
{
	int pfn = find_page(eng);

	if (unlikely(pfn == eng->total_local_blocks))
		return -1;

	eng->ref_count[pfn] = 1;
	eng->free_local_blocks--;
	return pfn;
}

static void put_page(LLMEngine *eng, int pfn)
{
	if (!--eng->ref_count[pfn])
		eng->free_local_blocks++;
}

static inline void *page_address(const LLMEngine *eng, int pfn)
{
	return (char *)eng->pool_base_ptr + (size_t)pfn * BLOCK_SIZE;
}

static int *pte_alloc(void)
{
	int *pte = malloc(L2_PT_SIZE * sizeof(*pte));

	if (pte)
		memset(pte, 0xff, L2_PT_SIZE * sizeof(*pte));
	return pte;
}

static Sequence *seq_alloc(int id, int count)
{
	Sequence *seq = malloc(sizeof(*seq));

	if (unlikely(!seq))
		return NULL;

	seq->block_table = calloc(L1_PT_SIZE, sizeof(*seq->block_table));
	if (unlikely(!seq->block_table)) {
		free(seq);
		return NULL;
	}
	seq->seq_id = id;
	seq->kv_count = count;
	lst_init(&seq->node);
	return seq;
}

/* seq_release - drop every page and table; @seq must not be on a list */
static void seq_release(LLMEngine *eng, Sequence *seq)
{
	int i, j;

	for (i = 0; i < L1_PT_SIZE; i++) {
		int *pte = seq->block_table[i];

		if (!pte)
			continue;
		for (j = 0; j < L2_PT_SIZE; j++)
			if (pte[j] != -1)
				put_page(eng, pte[j]);
		free(pte);
	}
	free(seq->block_table);
	free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *eng;

	if (!pool_addr || pool_size < BLOCK_SIZE)
		return NULL;

	eng = malloc(sizeof(*eng));
	if (unlikely(!eng))
		return NULL;

	eng->total_local_blocks = pool_size / BLOCK_SIZE;
	eng->ref_count = calloc(eng->total_local_blocks,
				sizeof(*eng->ref_count));
	if (unlikely(!eng->ref_count)) {
		free(eng);
		return NULL;
	}
	eng->free_local_blocks = eng->total_local_blocks;
	eng->pool_base_ptr = pool_addr;
	lst_init(&eng->active_seqs);
	return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *seq;
	int nr, i;

	if (!engine)
		return NULL;
	if (initial_kv_len <= 0 || seq_lookup(engine, seq_id))
		return NULL;

	nr = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (nr > L1_PT_SIZE * L2_PT_SIZE || nr > engine->free_local_blocks)
		return NULL;

	seq = seq_alloc(seq_id, initial_kv_len);
	if (unlikely(!seq))
		return NULL;

	for (i = 0; i < nr; i++) {
		int **pmd = &seq->block_table[i / L2_PT_SIZE];

		if (!*pmd) {
			*pmd = pte_alloc();
			if (unlikely(!*pmd))
				goto err_release;
		}
		(*pmd)[i % L2_PT_SIZE] = get_page(engine);
	}

	lst_add_tail(&seq->node, &engine->active_seqs);
	return seq;

err_release:
	seq_release(engine, seq);
	return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	Sequence *seq;

	if (!engine)
		return -1;

	seq = seq_lookup(engine, seq_id);
	if (!seq)
		return -1;

	lst_del_init(&seq->node);
	seq_release(engine, seq);
	return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	Sequence *parent, *child;
	int i, j;

	if (!engine)
		return NULL;

	parent = seq_lookup(engine, parent_seq_id);
	if (!parent || seq_lookup(engine, new_seq_id))
		return NULL;

	child = seq_alloc(new_seq_id, parent->kv_count);
	if (unlikely(!child))
		return NULL;

	for (i = 0; i < L1_PT_SIZE; i++) {
		const int *src = parent->block_table[i];
		int *dst;

		if (!src)
			continue;
		dst = pte_alloc();
		if (unlikely(!dst))
			goto err_release;
		child->block_table[i] = dst;
		for (j = 0; j < L2_PT_SIZE; j++) {
			if (src[j] == -1)
				continue;
			dst[j] = src[j];
			engine->ref_count[src[j]]++;
		}
	}

	lst_add_tail(&child->node, &engine->active_seqs);
	return child;

err_release:
	seq_release(engine, child);
	return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	Sequence *seq;
	int **pmd, idx, slot, pfn, fresh;

	if (!engine)
		return -1;

	seq = seq_lookup(engine, seq_id);
	if (!seq)
		return -1;

	idx = seq->kv_count / KV_PER_BLOCK;
	if (idx >= L1_PT_SIZE * L2_PT_SIZE)
		return -1;

	pmd = &seq->block_table[idx / L2_PT_SIZE];
	slot = idx % L2_PT_SIZE;
	pfn = *pmd ? (*pmd)[slot] : -1;

	if (pfn == -1 || engine->ref_count[pfn] > 1) {
		if (engine->free_local_blocks <= 0)
			return -1;
		if (!*pmd) {
			*pmd = pte_alloc();
			if (unlikely(!*pmd))
				return -1;
		}
		fresh = get_page(engine);
		if (pfn != -1) {
			/* break COW */
			memcpy(page_address(engine, fresh),
			       page_address(engine, pfn), BLOCK_SIZE);
			put_page(engine, pfn);
		}
		(*pmd)[slot] = fresh;
		pfn = fresh;
	}

	((int *)page_address(engine, pfn))[seq->kv_count % KV_PER_BLOCK] = kv_data;
	seq->kv_count++;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	Sequence *seq, *tmp;

	if (!engine)
		return -1;

	lst_for_each_entry_safe(seq, tmp, &engine->active_seqs, node) {
		lst_del_init(&seq->node);
		seq_release(engine, seq);
	}
	free(engine->ref_count);
	free(engine);
	return 0;
}
