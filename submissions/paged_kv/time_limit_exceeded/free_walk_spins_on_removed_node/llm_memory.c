/*
 * Homework 3 - PagedAttention memory manager
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

// Task 1
LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
	if (pool_addr == NULL)
	{
		return NULL;
	}
	if (pool_size < BLOCK_SIZE)
	{
		return NULL;
	}

	LLMEngine* res = (LLMEngine*)malloc(sizeof(LLMEngine));
	if (res == NULL)
	{
		return NULL;
	}
	int totalBlocks = (int)(pool_size / BLOCK_SIZE);
	res->ref_count = (int*)calloc((size_t)totalBlocks, sizeof(int));
	if (res->ref_count == NULL)
	{
		free(res);
		return NULL;
	}
	res->pool_base_ptr = pool_addr;
	res->total_local_blocks = totalBlocks;
	res->free_local_blocks = totalBlocks;

	// empty list: the head points to itself
	res->active_seqs.prev = &res->active_seqs;
	res->active_seqs.next = &res->active_seqs;
	return res;
}

// Task 2.1
Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
	if (engine == NULL)
	{
		return NULL;
	}

	// Phase 1: basic validity
	if (initial_kv_len <= 0)
	{
		return NULL;
	}

	// Phase 2: is this id already used?
	struct list_node* walk = engine->active_seqs.next;
	while (walk != &engine->active_seqs)
	{
		Sequence* q = (Sequence*)((char*)walk - offsetof(Sequence, node));
		if (q->seq_id == seq_id)
		{
			return NULL;
		}
		walk = walk->next;
	}

	// Phase 3: are there enough blocks?
	int cnt = (initial_kv_len + 16 - 1) / 16;
	if (cnt > L1_PT_SIZE * L2_PT_SIZE)
	{
		return NULL;
	}
	if (cnt > engine->free_local_blocks)
	{
		return NULL;
	}

	// now build the sequence
	Sequence* ns = (Sequence*)malloc(sizeof(Sequence));
	int** bt = (int**)malloc(sizeof(int*) * L1_PT_SIZE);
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		bt[i] = NULL;
	}

	for (int k = 0; k < cnt; k++)
	{
		int i1 = k / L2_PT_SIZE;
		int i2 = k % L2_PT_SIZE;

		// new L2 table
		if (bt[i1] == NULL)
		{
			bt[i1] = (int*)malloc(sizeof(int) * L2_PT_SIZE);
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				bt[i1][j] = -1;
			}
		}

		// search a block from 0
		for (int b = 0; b < engine->total_local_blocks; b++)
		{
			if (engine->ref_count[b] == 0)
			{
				engine->ref_count[b] = 1;
				engine->free_local_blocks--;
				bt[i1][i2] = b;
				break;
			}
		}
	}

	ns->seq_id = seq_id;
	ns->block_table = bt;
	ns->kv_count = initial_kv_len;

	// insert at the tail
	struct list_node* tail = engine->active_seqs.prev;
	ns->node.prev = tail;
	ns->node.next = &engine->active_seqs;
	tail->next = &ns->node;
	engine->active_seqs.prev = &ns->node;
	return ns;
}

// Task 2.2
int free_sequence(LLMEngine *engine, int seq_id)
{
	if (engine == NULL)
	{
		return -1;
	}

	// find it
	Sequence* me = NULL;
	struct list_node* walk = engine->active_seqs.next;
	while (walk != &engine->active_seqs)
	{
		Sequence* q = (Sequence*)((char*)walk - offsetof(Sequence, node));
		if (q->seq_id == seq_id)
		{
			// detach
			me = q;
			walk->prev->next = walk->next;
			walk->next->prev = walk->prev;
			walk->prev = walk;
			walk->next = walk;
		}
		walk = walk->next;
	}
	if (me == NULL)
	{
		return -1;
	}

	// release the blocks
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		if (me->block_table[i] != NULL)
		{
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				int bid = me->block_table[i][j];
				if (bid != -1)
				{
					engine->ref_count[bid]--;
					if (engine->ref_count[bid] == 0)
					{
						engine->free_local_blocks++;
					}
				}
			}
			free(me->block_table[i]);
		}
	}

	// release the memory
	free(me->block_table);
	free(me);
	return 0;
}

// Task 3
Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
	if (engine == NULL)
	{
		return NULL;
	}

	// find the parent and check the new id in one walk
	Sequence* parent = NULL;
	struct list_node* walk = engine->active_seqs.next;
	while (walk != &engine->active_seqs)
	{
		Sequence* q = (Sequence*)((char*)walk - offsetof(Sequence, node));
		if (q->seq_id == new_seq_id)
		{
			return NULL;
		}
		if (q->seq_id == parent_seq_id)
		{
			parent = q;
		}
		walk = walk->next;
	}
	if (parent == NULL)
	{
		return NULL;
	}

	Sequence* child = (Sequence*)malloc(sizeof(Sequence));
	child->block_table = (int**)malloc(sizeof(int*) * L1_PT_SIZE);
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		child->block_table[i] = NULL;
	}

	// copy the tables
	for (int i = 0; i < L1_PT_SIZE; i++)
	{
		if (parent->block_table[i] != NULL)
		{
			int* newL2 = (int*)malloc(sizeof(int) * L2_PT_SIZE);
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				newL2[j] = -1;
			}
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				int bid = parent->block_table[i][j];
				if (bid != -1)
				{
					newL2[j] = bid;
					engine->ref_count[bid]++;
				}
			}
			child->block_table[i] = newL2;
		}
	}
	child->seq_id = new_seq_id;
	child->kv_count = parent->kv_count;

	// insert at the tail
	struct list_node* tail = engine->active_seqs.prev;
	child->node.prev = tail;
	child->node.next = &engine->active_seqs;
	tail->next = &child->node;
	engine->active_seqs.prev = &child->node;
	return child;
}

// Task 4
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
	if (engine == NULL)
	{
		return -1;
	}

	// find the sequence
	Sequence* me = NULL;
	struct list_node* walk = engine->active_seqs.next;
	while (walk != &engine->active_seqs)
	{
		Sequence* q = (Sequence*)((char*)walk - offsetof(Sequence, node));
		if (q->seq_id == seq_id)
		{
			me = q;
			break;
		}
		walk = walk->next;
	}
	if (me == NULL)
	{
		return -1;
	}

	// translate the address
	int logicalIdx = me->kv_count / 16;
	int offset = me->kv_count % 16;
	if (logicalIdx >= L1_PT_SIZE * L2_PT_SIZE)
	{
		return -1;
	}
	int i1 = logicalIdx / L2_PT_SIZE;
	int i2 = logicalIdx % L2_PT_SIZE;

	// what do we have to do?
	int needNewPage = 0;
	int needCow = 0;
	if (me->block_table[i1] == NULL || me->block_table[i1][i2] == -1)
	{
		needNewPage = 1;
	}
	else if (engine->ref_count[me->block_table[i1][i2]] > 1)
	{
		needCow = 1;
	}

	// find a block for it
	int fb = -1;
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
				fb = b;
				break;
			}
		}
	}

	if (needNewPage)
	{
		if (me->block_table[i1] == NULL)
		{
			me->block_table[i1] = (int*)malloc(sizeof(int) * L2_PT_SIZE);
			for (int j = 0; j < L2_PT_SIZE; j++)
			{
				me->block_table[i1][j] = -1;
			}
		}
		me->block_table[i1][i2] = fb;
		engine->ref_count[fb] = 1;
		engine->free_local_blocks--;
	}

	if (needCow)
	{
		int oldBlock = me->block_table[i1][i2];
		char* src = (char*)engine->pool_base_ptr + (long)oldBlock * BLOCK_SIZE;
		char* dst = (char*)engine->pool_base_ptr + (long)fb * BLOCK_SIZE;
		memcpy(dst, src, BLOCK_SIZE);
		engine->ref_count[oldBlock]--;
		engine->ref_count[fb] = 1;
		engine->free_local_blocks--;
		me->block_table[i1][i2] = fb;
	}

	// write the record
	int bid = me->block_table[i1][i2];
	int* addr = (int*)((char*)engine->pool_base_ptr + (long)bid * BLOCK_SIZE);
	addr[offset] = kv_data;
	me->kv_count++;
	return 0;
}

// Task 5
int llm_destroy(LLMEngine *engine)
{
	if (engine == NULL)
	{
		return -1;
	}

	struct list_node* walk = engine->active_seqs.next;
	while (walk != &engine->active_seqs)
	{
		struct list_node* nextNode = walk->next;
		Sequence* q = (Sequence*)((char*)walk - offsetof(Sequence, node));
		for (int i = 0; i < L1_PT_SIZE; i++)
		{
			if (q->block_table[i] != NULL)
			{
				free(q->block_table[i]);
			}
		}
		free(q->block_table);
		free(q);
		walk = nextNode;
	}

	free(engine->ref_count);
	free(engine);
	return 0;
}
