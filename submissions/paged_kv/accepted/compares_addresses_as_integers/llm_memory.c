/*
 * llm_memory.c
 *
 * Rules in this file:
 *   - variables at the top of the block
 *   - one way out of each function
 *   - memory first, changes of the engine second: if malloc says no,
 *     nothing has happened yet and only the memory is given back
 */

#include "llm_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_BYTES	(sizeof(int) * L2_PT_SIZE)

struct position {
	int	l1, l2, offset;
};

static Sequence	*node_owner(struct list_node *);
static Sequence	*by_id(LLMEngine *, int);
static int	 lowest_free(const LLMEngine *);
static int	*table_new(void);
static void	 shell_free(Sequence *);
static Sequence	*shell_new(int, int);
static int	 position_of(int, struct position *);

static Sequence *
node_owner(struct list_node *n)
{
	return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *
by_id(LLMEngine *eng, int id)
{
	struct list_node *n, *first = eng->active_seqs.next, *last = eng->active_seqs.prev;
	int upwards = (uintptr_t)first <= (uintptr_t)last;
	Sequence *result = NULL;

	/* from low addresses to high ones, roughly; ids are unique, so both directions find the same */
	for (n = upwards ? first : last; n != &eng->active_seqs; n = upwards ? n->next : n->prev) {
		result = node_owner(n);
		if (result->seq_id == id)
			goto out;
	}
	result = NULL;
out:
	return result;
}

static int
lowest_free(const LLMEngine *eng)
{
	int i;

	for (i = 0; i < eng->total_local_blocks; i++) {
		if (eng->ref_count[i] == 0)
			return i;
	}
	return -1;
}

static int *
table_new(void)
{
	int *t;

	t = malloc(TABLE_BYTES);
	if (t != NULL)
		memset(t, -1, TABLE_BYTES);
	return t;
}

/* Give back the memory of a sequence; reference counts are not looked at. */
static void
shell_free(Sequence *s)
{
	int i;

	if (s == NULL)
		return;
	if (s->block_table != NULL) {
		for (i = 0; i < L1_PT_SIZE; i++)
			free(s->block_table[i]);
	}
	free(s->block_table);
	free(s);
}

/* A sequence with an empty L1 table, in no list. */
static Sequence *
shell_new(int id, int count)
{
	Sequence *s;
	int i;

	if ((s = malloc(sizeof(*s))) == NULL)
		goto out;
	s->seq_id = id;
	s->kv_count = count;
	if ((s->block_table = malloc(L1_PT_SIZE * sizeof(*s->block_table))) == NULL)
		goto no_table;
	for (i = 0; i < L1_PT_SIZE; i++)
		s->block_table[i] = NULL;
	goto out;

no_table:
	free(s);
	s = NULL;
out:
	return s;
}

static int
position_of(int count, struct position *pos)
{
	int logical = count / KV_PER_BLOCK;

	if (logical >= L1_PT_SIZE * L2_PT_SIZE)
		return -1;
	pos->l1 = logical / L2_PT_SIZE;
	pos->l2 = logical % L2_PT_SIZE;
	pos->offset = count % KV_PER_BLOCK;
	return 0;
}

static void
link_tail(LLMEngine *eng, Sequence *s)
{
	s->node.next = &eng->active_seqs;
	s->node.prev = eng->active_seqs.prev;
	eng->active_seqs.prev->next = &s->node;
	eng->active_seqs.prev = &s->node;
}

LLMEngine *
llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *eng = NULL;

	if (pool_addr == NULL || pool_size < BLOCK_SIZE)
		goto out;
	if ((eng = malloc(sizeof(*eng))) == NULL)
		goto out;
	memset(eng, 0, sizeof(*eng));

	eng->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
	eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof(int));
	if (eng->ref_count == NULL)
		goto no_counts;

	eng->free_local_blocks = eng->total_local_blocks;
	eng->pool_base_ptr = pool_addr;
	eng->active_seqs.next = &eng->active_seqs;
	eng->active_seqs.prev = &eng->active_seqs;
	goto out;

no_counts:
	free(eng);
	eng = NULL;
out:
	return eng;
}

Sequence *
create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *s = NULL;
	int need, i, b;

	if (engine == NULL)
		goto out;
	if (initial_kv_len <= 0 || by_id(engine, seq_id) != NULL)
		goto out;
	need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (need > L1_PT_SIZE * L2_PT_SIZE || need > engine->free_local_blocks)
		goto out;

	/* memory */
	if ((s = shell_new(seq_id, initial_kv_len)) == NULL)
		goto out;
	for (i = 0; i * L2_PT_SIZE < need; i++) {
		if ((s->block_table[i] = table_new()) == NULL)
			goto rollback;
	}

	/* changes */
	for (i = 0; i < need; i++) {
		b = lowest_free(engine);
		engine->ref_count[b] = 1;
		engine->free_local_blocks--;
		s->block_table[i / L2_PT_SIZE][i % L2_PT_SIZE] = b;
	}
	link_tail(engine, s);
	goto out;

rollback:
	shell_free(s);
	s = NULL;
out:
	return s;
}

int
free_sequence(LLMEngine *engine, int seq_id)
{
	Sequence *s;
	int i, j, b, ret = -1;

	if (engine == NULL)
		goto out;
	if ((s = by_id(engine, seq_id)) == NULL)
		goto out;

	s->node.prev->next = s->node.next;
	s->node.next->prev = s->node.prev;
	for (i = 0; i < L1_PT_SIZE; i++) {
		if (s->block_table[i] == NULL)
			goto next_table;
		for (j = 0; j < L2_PT_SIZE; j++) {
			b = s->block_table[i][j];
			if (b != -1 && --engine->ref_count[b] == 0)
				engine->free_local_blocks++;
		}
next_table:
		;
	}
	shell_free(s);
	ret = 0;
out:
	return ret;
}

Sequence *
fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	Sequence *parent, *child = NULL;
	int i, j;

	if (engine == NULL)
		goto out;
	if ((parent = by_id(engine, parent_seq_id)) == NULL)
		goto out;
	if (by_id(engine, new_seq_id) != NULL)
		goto out;

	/* memory */
	if ((child = shell_new(new_seq_id, parent->kv_count)) == NULL)
		goto out;
	for (i = 0; i < L1_PT_SIZE; i++) {
		if (parent->block_table[i] == NULL)
			continue;
		if ((child->block_table[i] = table_new()) == NULL)
			goto rollback;
	}

	/* changes */
	for (i = 0; i < L1_PT_SIZE; i++) {
		if (parent->block_table[i] == NULL)
			continue;
		memcpy(child->block_table[i], parent->block_table[i], TABLE_BYTES);
		for (j = 0; j < L2_PT_SIZE; j++) {
			if (child->block_table[i][j] != -1)
				engine->ref_count[child->block_table[i][j]]++;
		}
	}
	link_tail(engine, child);
	goto out;

rollback:
	shell_free(child);
	child = NULL;
out:
	return child;
}

int
append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	struct position pos;
	Sequence *s;
	char *pool;
	int *table, old, block, ret = -1;

	if (engine == NULL)
		goto out;
	if ((s = by_id(engine, seq_id)) == NULL)
		goto out;
	if (position_of(s->kv_count, &pos) != 0)
		goto out;

	pool = engine->pool_base_ptr;
	table = s->block_table[pos.l1];
	old = (table == NULL) ? -1 : table[pos.l2];
	block = old;
	if (old != -1 && engine->ref_count[old] == 1)
		goto store;

	if (engine->free_local_blocks == 0)
		goto out;
	if (table == NULL) {
		if ((table = table_new()) == NULL)
			goto out;
		s->block_table[pos.l1] = table;
	}
	block = lowest_free(engine);
	if (old != -1) {
		memcpy(pool + (size_t)block * BLOCK_SIZE,
		    pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
		engine->ref_count[old]--;
	}
	engine->ref_count[block] = 1;
	engine->free_local_blocks--;
	table[pos.l2] = block;

store:
	memcpy(pool + (size_t)block * BLOCK_SIZE + (size_t)pos.offset * sizeof(int),
	    &kv_data, sizeof(kv_data));
	s->kv_count++;
	ret = 0;
out:
	return ret;
}

int
llm_destroy(LLMEngine *engine)
{
	struct list_node *n, *next;
	int ret = -1;

	if (engine == NULL)
		goto out;
	for (n = engine->active_seqs.next; n != &engine->active_seqs; n = next) {
		next = n->next;
		shell_free(node_owner(n));
	}
	free(engine->ref_count);
	free(engine);
	ret = 0;
out:
	return ret;
}
