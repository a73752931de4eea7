#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define MAX_PAGES (L1_PT_SIZE * L2_PT_SIZE)
#define SEQ_ENTRY(n) ((Sequence *)(void *)((unsigned char *)(n) - offsetof(Sequence, node)))
#define FOR_EACH(n, eng) \
	for (struct list_node *n = (eng)->active_seqs.next; n != &(eng)->active_seqs; n = n->next)

struct pt_pos {
	int l1;
	int l2;
};

static inline struct pt_pos split(int page)
{
	struct pt_pos pos = { page / L2_PT_SIZE, page % L2_PT_SIZE };
	return pos;
}

static inline Sequence *findSequence(LLMEngine *eng, int id)
{
	FOR_EACH(n, eng) {
		if (SEQ_ENTRY(n)->seq_id == id)
			return SEQ_ENTRY(n);
	}
	return NULL;
}

static inline void linkTail(LLMEngine *eng, Sequence *seq)
{
	struct list_node *head = &eng->active_seqs;
	struct list_node *last = head->prev;

	seq->node.next = head;
	seq->node.prev = last;
	last->next = &seq->node;
	head->prev = &seq->node;
}

static inline void unlinkSequence(Sequence *seq)
{
	struct list_node *before = seq->node.prev;
	struct list_node *after = seq->node.next;

	before->next = after;
	after->prev = before;
}

static inline int *newL2Table(void)
{
	int *table = malloc(sizeof(int) * L2_PT_SIZE);

	if (table)
		memset(table, 0xff, sizeof(int) * L2_PT_SIZE);
	return table;
}

static inline Sequence *newSequence(int id)
{
	Sequence *seq = calloc(1, sizeof *seq);

	seq->seq_id = id;
	seq->block_table = calloc(L1_PT_SIZE, sizeof *seq->block_table);
	return seq;
}

static inline int firstFit(const LLMEngine *eng)
{
	for (int b = 0; b < eng->total_local_blocks; b++)
		if (!eng->ref_count[b])
			return b;
	return -1;
}

static inline int allocBlock(LLMEngine *eng)
{
	int b = firstFit(eng);

	eng->ref_count[b] = 1;
	eng->free_local_blocks -= 1;
	return b;
}

static inline void releaseBlock(LLMEngine *eng, int b)
{
	if (--eng->ref_count[b] == 0)
		eng->free_local_blocks += 1;
}

static inline void *blockAddress(const LLMEngine *eng, int b)
{
	return (unsigned char *)eng->pool_base_ptr + (size_t)BLOCK_SIZE * (size_t)b;
}

static inline void deleteSequence(LLMEngine *eng, Sequence *seq)
{
	unlinkSequence(seq);
	for (int i = 0; i < L1_PT_SIZE; i++) {
		int *table = seq->block_table[i];

		if (!table)
			break;
		for (int j = 0; j < L2_PT_SIZE; j++) {
			if (table[j] != -1)
				releaseBlock(eng, table[j]);
		}
		free(table);
	}
	free(seq->block_table);
	free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	LLMEngine *eng;

	if (!pool_addr || pool_size < BLOCK_SIZE)
		return NULL;

	eng = calloc(1, sizeof *eng);
	eng->pool_base_ptr = pool_addr;
	eng->total_local_blocks = eng->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
	eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof *eng->ref_count);
	eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
	return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	Sequence *seq;
	int count;

	if (!engine)
		return NULL;
	if (initial_kv_len <= 0 || findSequence(engine, seq_id))
		return NULL;
	count = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (count > MAX_PAGES || count > engine->free_local_blocks)
		return NULL;

	seq = newSequence(seq_id);
	for (int page = 0; page < count; page++) {
		struct pt_pos pos = split(page);

		if (!seq->block_table[pos.l1])
			seq->block_table[pos.l1] = newL2Table();
		seq->block_table[pos.l1][pos.l2] = allocBlock(engine);
	}
	seq->kv_count = initial_kv_len;
	linkTail(engine, seq);
	return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
	Sequence *seq;

	if (!engine)
		return -1;
	seq = findSequence(engine, seq_id);
	if (!seq)
		return -1;
	deleteSequence(engine, seq);
	return 1;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	Sequence *parent, *child;

	if (!engine)
		return NULL;
	parent = findSequence(engine, parent_seq_id);
	if (!parent || findSequence(engine, new_seq_id))
		return NULL;

	child = newSequence(new_seq_id);
	child->kv_count = parent->kv_count;
	for (int i = 0; i < L1_PT_SIZE; i++) {
		if (!parent->block_table[i])
			continue;
		child->block_table[i] = newL2Table();
		for (int j = 0; j < L2_PT_SIZE; j++) {
			int b = parent->block_table[i][j];

			if (b == -1)
				continue;
			child->block_table[i][j] = b;
			engine->ref_count[b] += 1;
		}
	}
	linkTail(engine, child);
	return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	Sequence *seq;
	struct pt_pos pos;
	int page, offset, oldPage, newPage;

	if (!engine)
		return -1;
	seq = findSequence(engine, seq_id);
	if (!seq)
		return -1;

	page = seq->kv_count / KV_PER_BLOCK;
	offset = seq->kv_count % KV_PER_BLOCK;
	if (page >= MAX_PAGES)
		return -1;
	pos = split(page);

	oldPage = seq->block_table[pos.l1] ? seq->block_table[pos.l1][pos.l2] : -1;
	if (oldPage == -1 || engine->ref_count[oldPage] > 1) {
		if (engine->free_local_blocks == 0)
			return -1;
		if (!seq->block_table[pos.l1])
			seq->block_table[pos.l1] = newL2Table();
		newPage = allocBlock(engine);
		seq->block_table[pos.l1][pos.l2] = newPage;
		if (oldPage != -1) {
			memcpy(blockAddress(engine, newPage), blockAddress(engine, oldPage), BLOCK_SIZE);
			releaseBlock(engine, oldPage);
		}
	}

	int *dest = (int *)blockAddress(engine, seq->block_table[pos.l1][pos.l2]) + offset;
    *dest = kv_data;
	seq->kv_count += 1;
	return 0;
}

int llm_destroy(LLMEngine *engine)
{
	if (!engine)
		return -1;
	while (engine->active_seqs.next != &engine->active_seqs)
		deleteSequence(engine, SEQ_ENTRY(engine->active_seqs.next));
	free(engine);
	return 0;
}
