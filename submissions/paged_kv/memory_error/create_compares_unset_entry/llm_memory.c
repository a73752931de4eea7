/* CS110 Homework 3 */

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

// Task 1
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
	if (pool_addr == NULL)
	{
		return NULL;
	}
	if (pool_size < BLOCK_SIZE)
	{
		return NULL;
	}

	LLMEngine *e = (LLMEngine *)malloc(sizeof(LLMEngine));
	if (e == NULL)
	{
		return NULL;
	}
	int totalBlocks = (int)(pool_size / BLOCK_SIZE);
	e->ref_count = (int *)calloc((size_t)totalBlocks, sizeof(int));
	if (e->ref_count == NULL)
	{
		free(e);
		return NULL;
	}
	e->pool_base_ptr = pool_addr;
	e->total_local_blocks = totalBlocks;
	e->free_local_blocks = totalBlocks;

	// empty list: the head points to itself
	e->active_seqs.prev = &e->active_seqs;
	e->active_seqs.next = &e->active_seqs;
	return e;
}

// Task 2.1
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (engine == NULL)
	{
		return NULL;
	}

	if (initial_kv_len <= 0)
	{
		return NULL;
	}

	struct list_node *iter = engine->active_seqs.next;
	while (iter != &engine->active_seqs)
	{
		Sequence *now = (Sequence *)((char *)iter - offsetof(Sequence, node));
		if (now->seq_id == seq_id)
		{
			return NULL;
		}
		iter = iter->next;
	}

	// Phase 3: are there enough blocks?
	int num = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
	if (num > L1_PT_SIZE * L2_PT_SIZE)
	{
		return NULL;
	}
	if (num > engine->free_local_blocks)
	{
		return NULL;
	}

	// now build the sequence
	Sequence *newSeq = (Sequence *)malloc(sizeof(Sequence));
	int **table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		table[i] = NULL;
	}

	// collect the blocks, no block twice
	int *chosen = (int *)malloc(sizeof(int) * (size_t)num);
	int got = 0;
	for (int b = 0; b < engine->total_local_blocks && got < num; b++)
	{
		int taken = engine->ref_count[b] != 0;
		for (int j = 0; j <= got; j++)
		{
			if (chosen[j] == b)
			{
				taken = 1;
			}
		}
		if (!taken)
		{
			chosen[got] = b;
			got++;
		}
	}

	for (int k = 0; k < num; k++)
	{
		int l1 = k / L2_PT_SIZE;
		int l2 = k % L2_PT_SIZE;

		if (table[l1] == NULL)
		{
			table[l1] = (int *)malloc(sizeof(int) * L2_PT_SIZE);
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				table[l1][j] = -1;
			}
		}

		engine->ref_count[chosen[k]] = 1;
		engine->free_local_blocks--;
		table[l1][l2] = chosen[k];
	}

	free(chosen);

	newSeq->seq_id = seq_id;
	newSeq->block_table = table;
	newSeq->kv_count = initial_kv_len;

	// insert at the tail
	struct list_node *tail = engine->active_seqs.prev;
	newSeq->node.prev = tail;
	newSeq->node.next = &engine->active_seqs;
	tail->next = &newSeq->node;
	engine->active_seqs.prev = &newSeq->node;
	return newSeq;
}

// Task 2.2
int free_sequence(LLMEngine *engine, int seq_id)
{
	if (engine == NULL)
	{
		return -1;
	}

	// find it
	Sequence *found = NULL;
	struct list_node *iter = engine->active_seqs.next;
	while (iter != &engine->active_seqs)
	{
		Sequence *now = (Sequence *)((char *)iter - offsetof(Sequence, node));
		if (now->seq_id == seq_id)
		{
			found = now;
			break;
		}
		iter = iter->next;
	}
	if (found == NULL)
	{
		return -1;
	}

	found->node.prev->next = found->node.next;
	found->node.next->prev = found->node.prev;

	// release the blocks
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		if (found->block_table[i] != NULL)
		{
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				int phys = found->block_table[i][j];
				if (phys != -1)
				{
					engine->ref_count[phys]--;
					if (engine->ref_count[phys] == 0)
					{
						engine->free_local_blocks++;
					}
				}
			}
			free(found->block_table[i]);
		}
	}

	// release the memory
	free(found->block_table);
	free(found);
	return 0;
}

// Task 3
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (engine == NULL)
	{
		return NULL;
	}

	// find the parent and check the new id in one walk
	Sequence *parent = NULL;
	struct list_node *iter = engine->active_seqs.next;
	while (iter != &engine->active_seqs)
	{
		Sequence *now = (Sequence *)((char *)iter - offsetof(Sequence, node));
		if (now->seq_id == new_seq_id)
		{
			return NULL;
		}
		if (now->seq_id == parent_seq_id)
		{
			parent = now;
		}
		iter = iter->next;
	}
	if (parent == NULL)
	{
		return NULL;
	}

	Sequence *child = (Sequence *)malloc(sizeof(Sequence));
	child->block_table = (int **)malloc(sizeof(int *) * L1_PT_SIZE);
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		child->block_table[i] = NULL;
	}

	// copy the tables
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		if (parent->block_table[i] != NULL)
		{
			int *newL2 = (int *)malloc(sizeof(int) * L2_PT_SIZE);
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				newL2[j] = -1;
			}
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				int phys = parent->block_table[i][j];
				if (phys != -1)
				{
					newL2[j] = phys;
					engine->ref_count[phys]++;
				}
			}
			child->block_table[i] = newL2;
		}
	}
	child->seq_id = new_seq_id;
	child->kv_count = parent->kv_count;

	struct list_node *tail = engine->active_seqs.prev;
	child->node.prev = tail;
	child->node.next = &engine->active_seqs;
	tail->next = &child->node;
	engine->active_seqs.prev = &child->node;
	return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (engine == NULL)
	{
		return -1;
	}

	// find the sequence
	Sequence *found = NULL;
	struct list_node *iter = engine->active_seqs.next;
	while (iter != &engine->active_seqs)
	{
		Sequence *now = (Sequence *)((char *)iter - offsetof(Sequence, node));
		if (now->seq_id == seq_id)
		{
			found = now;
			break;
		}
		iter = iter->next;
	}
	if (found == NULL)
	{
		return -1;
	}

	// translate the address
	int logic = found->kv_count / KV_PER_BLOCK;
	int offset = found->kv_count % KV_PER_BLOCK;
	if (logic >= L1_PT_SIZE * L2_PT_SIZE)
	{
		return -1;
	}
	int l1 = logic / L2_PT_SIZE;
	int l2 = logic % L2_PT_SIZE;

	int needNewPage = 0;
	int needCow = 0;
	if (found->block_table[l1] == NULL || found->block_table[l1][l2] == -1)
	{
		needNewPage = 1;
	}
	else if (engine->ref_count[found->block_table[l1][l2]] > 1)
	{
		needCow = 1;
	}

	// find a block for it
	int newBlk = -1;
	if (needNewPage || needCow)
	{
		if (engine->free_local_blocks == 0)
		{
			return -1;
		}
		for (int b = 0; b < engine->total_local_blocks; b++)
		{
			if (engine->ref_count[b] == 0)
			{
				newBlk = b;
				break;
			}
		}
	}

	if (needNewPage)
	{
		if (found->block_table[l1] == NULL)
		{
			found->block_table[l1] = (int *)malloc(sizeof(int) * L2_PT_SIZE);
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				found->block_table[l1][j] = -1;
			}
		}
		found->block_table[l1][l2] = newBlk;
		engine->ref_count[newBlk] = 1;
		engine->free_local_blocks--;
	}

	if (needCow)
	{
		int oldBlk = found->block_table[l1][l2];
		char *src = (char *)engine->pool_base_ptr + (long)oldBlk * BLOCK_SIZE;
		char *dst = (char *)engine->pool_base_ptr + (long)newBlk * BLOCK_SIZE;
		memcpy(dst, src, BLOCK_SIZE);
		engine->ref_count[oldBlk]--;
		engine->ref_count[newBlk] = 1;
		engine->free_local_blocks--;
		found->block_table[l1][l2] = newBlk;
	}

	// write the record
	int phys = found->block_table[l1][l2];
	int *addr = (int *)((char *)engine->pool_base_ptr + (long)phys * BLOCK_SIZE);
	addr[offset] = kv_data;
	found->kv_count++;
	return 0;
}

// Task 5
int llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
	{
		return -1;
	}

	struct list_node *iter = engine->active_seqs.next;
	while (iter != &engine->active_seqs)
	{
		struct list_node *nxt = iter->next;
		Sequence *now = (Sequence *)((char *)iter - offsetof(Sequence, node));
		for (int i = 0; i < L1_PT_SIZE; i++)
		{
			if (now->block_table[i] != NULL)
			{
				free(now->block_table[i]);
			}
		}
		free(now->block_table);
		free(now);
		iter = nxt;
	}

	free(engine->ref_count);
	free(engine);
	return 0;
}
