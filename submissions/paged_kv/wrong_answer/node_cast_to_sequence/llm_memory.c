// CS110 HW3
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define seq_entry(it) ((Sequence *)(it))
#define list_each(it, m) for (struct list_node *it = (m)->active_seqs.next; it != &(m)->active_seqs; it = it->next)

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
        if (!pool_addr || pool_size < BLOCK_SIZE)
                return NULL;
        LLMEngine *m = malloc(sizeof *m);
        if (!m)
                return NULL;
        m->pool_base_ptr = pool_addr;
        m->total_local_blocks = m->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
        m->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int));
        m->active_seqs.next = m->active_seqs.prev = &m->active_seqs;
        return m;
}

/* drop one reference */
static void unclaim(LLMEngine *m, int bid)
{
        if (--m->ref_count[bid] == 0)
                m->free_local_blocks++;
}

/* unlink and free everything the sequence owns */
static void remove_sequence(LLMEngine *m, Sequence *s)
{
        s->node.prev->next = s->node.next;
        s->node.next->prev = s->node.prev;
        for (int i = 0; i < L1_PT_SIZE; i++) {
                int *t = s->block_table[i];
                for (int j = 0; t && j < L2_PT_SIZE; j++)
                        if (t[j] != -1)
                                unclaim(m, t[j]);
                free(t);
        }
        free(s->block_table);
        free(s);
}

int llm_destroy(LLMEngine *m)
{
        if (!m)
                return -1;
        while (m->active_seqs.next != &m->active_seqs)
                remove_sequence(m, seq_entry(m->active_seqs.next));
        free(m->ref_count);
        free(m);
        return 0;
}

static Sequence *by_id(LLMEngine *m, int id)
{
        list_each(it, m)
                if (seq_entry(it)->seq_id == id)
                        return seq_entry(it);
        return NULL;
}

/* take the lowest free block, caller made sure there is one */
static int claim(LLMEngine *m)
{
        int bid = 0;
        while (bid < m->total_local_blocks && m->ref_count[bid] != 0)
                bid++;
        m->ref_count[bid] = 1;
        m->free_local_blocks--;
        return bid;
}

static int *fresh_l2(void)
{
        int *t = malloc(sizeof(int[L2_PT_SIZE]));
        if (t)
                memset(t, -1, sizeof(int[L2_PT_SIZE]));
        return t;
}

static void append_seq(LLMEngine *m, Sequence *s)
{
        struct list_node *head = &m->active_seqs;
        s->node.next = head;
        s->node.prev = head->prev;
        head->prev->next = &s->node;
        head->prev = &s->node;
}

static Sequence *alloc_sequence(int id, int kv)
{
        Sequence *s = malloc(sizeof *s);
        s->seq_id = id;
        s->kv_count = kv;
        s->block_table = calloc(L1_PT_SIZE, sizeof(int *));
        return s;
}

Sequence *create_sequence(LLMEngine *m, int seq_id, int initial_kv_len)
{
        if (!m || initial_kv_len <= 0)
                return NULL;
        if (by_id(m, seq_id))
                return NULL;
        int cnt = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
        if (cnt > L1_PT_SIZE * L2_PT_SIZE || cnt > m->free_local_blocks)
                return NULL;

        Sequence *s = alloc_sequence(seq_id, initial_kv_len);
        for (int i = 0; i < cnt; i++) {
                int **t = &s->block_table[i / L2_PT_SIZE];
                if (!*t)
                        *t = fresh_l2();
                (*t)[i % L2_PT_SIZE] = claim(m);
        }
        append_seq(m, s);
        return s;
}

int free_sequence(LLMEngine *m, int seq_id)
{
        if (!m)
                return -1;
        Sequence *s = by_id(m, seq_id);
        if (!s)
                return -1;
        remove_sequence(m, s);
        return 0;
}

Sequence *fork_sequence(LLMEngine *m, int parent_seq_id, int new_seq_id)
{
        if (!m)
                return NULL;
        Sequence *p = by_id(m, parent_seq_id);
        if (!p || by_id(m, new_seq_id))
                return NULL;

        Sequence *c = alloc_sequence(new_seq_id, p->kv_count);
        for (int i = 0; i < L1_PT_SIZE; i++) {
                if (!p->block_table[i])
                        continue;
                c->block_table[i] = fresh_l2();
                memcpy(c->block_table[i], p->block_table[i], sizeof(int[L2_PT_SIZE]));
                for (int j = 0; j < L2_PT_SIZE; j++)
                        if (c->block_table[i][j] != -1)
                                m->ref_count[c->block_table[i][j]]++;
        }
        append_seq(m, c);
        return c;
}

static int *phys(LLMEngine *m, int bid)
{
        return (int *)((char *)m->pool_base_ptr + (size_t)bid * BLOCK_SIZE);
}

int append_kv(LLMEngine *m, int seq_id, int kv_data)
{
        if (!m)
                return -1;
        Sequence *s = by_id(m, seq_id);
        if (!s)
                return -1;
        int idx = s->kv_count / KV_PER_BLOCK, off = s->kv_count % KV_PER_BLOCK;
        if (idx >= L1_PT_SIZE * L2_PT_SIZE)
                return -1;

        int **t = &s->block_table[idx / L2_PT_SIZE];
        int bid = *t ? (*t)[idx % L2_PT_SIZE] : -1;
        int shared = bid != -1 && m->ref_count[bid] > 1;
        if ((bid == -1 || shared) && m->free_local_blocks == 0)
                return -1;

        if (!*t)
                *t = fresh_l2();
        if (bid == -1) {
                bid = claim(m);
        } else if (shared) {
                int fresh = claim(m);
                memcpy(phys(m, fresh), phys(m, bid), BLOCK_SIZE);
                unclaim(m, bid);
                bid = fresh;
        }
        (*t)[idx % L2_PT_SIZE] = bid;
        phys(m, bid)[off] = kv_data;
        s->kv_count++;
        return 0;
}
