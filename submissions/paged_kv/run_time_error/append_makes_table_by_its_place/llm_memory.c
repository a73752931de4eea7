#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

static Sequence *seq_of(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *find_seq(LLMEngine *engine, int seq_id)
{
    struct list_node *n;
    for (n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next) {
        Sequence *s = seq_of(n);
        if (s->seq_id == seq_id)
            return s;
    }
    return NULL;
}

static void push_tail(LLMEngine *engine, Sequence *s)
{
    struct list_node *head = &engine->active_seqs;
    s->node.prev = head->prev;
    s->node.next = head;
    head->prev->next = &s->node;
    head->prev = &s->node;
}

static int take_block(LLMEngine *engine)
{
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

static int *new_l2(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof(int));
    for (int j = 0; j < L2_PT_SIZE; j++)
        t[j] = -1;
    return t;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *e = malloc(sizeof(LLMEngine));
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->free_local_blocks = e->total_local_blocks;
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
    e->active_seqs.prev = &e->active_seqs;
    e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (find_seq(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;
    Sequence *s = malloc(sizeof(Sequence));
    s->seq_id = seq_id;
    s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    for (int i = 0; i < need; i++) {
        if (s->block_table[i / L2_PT_SIZE] == NULL)
            s->block_table[i / L2_PT_SIZE] = new_l2();
        s->block_table[i / L2_PT_SIZE][i % L2_PT_SIZE] = take_block(engine);
    }
    s->kv_count = initial_kv_len;
    push_tail(engine, s);
    return s;
}

static void drop(LLMEngine *engine, Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = s->block_table[i][j];
            if (b == -1)
                continue;
            engine->ref_count[b]--;
            if (engine->ref_count[b] == 0)
                engine->free_local_blocks++;
        }
        free(s->block_table[i]);
    }
    free(s->block_table);
    free(s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find_seq(engine, seq_id);
    if (s == NULL)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    drop(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *p = find_seq(engine, parent_seq_id);
    if (p == NULL)
        return NULL;
    if (find_seq(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *c = malloc(sizeof(Sequence));
    c->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++) {
        c->block_table[i] = NULL;
        if (p->block_table[i] == NULL)
            continue;
        c->block_table[i] = new_l2();
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = p->block_table[i][j];
            c->block_table[i][j] = b;
            if (b != -1)
                engine->ref_count[b]++;
        }
    }
    c->kv_count = p->kv_count;
    c->seq_id = new_seq_id;
    push_tail(engine, c);
    return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s = find_seq(engine, seq_id);
    if (s == NULL)
        return -1;
    int logical = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS)
        return -1;
    int l1 = logical / L2_PT_SIZE;
    int l2 = logical % L2_PT_SIZE;
    int b = s->block_table[l1] == NULL ? -1 : s->block_table[l1][l2];
    int fresh = b == -1;
    int shared = !fresh && engine->ref_count[b] > 1;
    if ((fresh || shared) && engine->free_local_blocks == 0)
        return -1;
    if (l2 == 0 && l1 > 0) {
        s->block_table[l1] = new_l2();   /* new page of the table */
    }
    if (fresh) {
        b = take_block(engine);
        s->block_table[l1][l2] = b;
    } else if (shared) {
        int nb = take_block(engine);
        memcpy((char *)engine->pool_base_ptr + (size_t)nb * BLOCK_SIZE,
               (char *)engine->pool_base_ptr + (size_t)b * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[b]--;
        s->block_table[l1][l2] = nb;
        b = nb;
    }
    ((int *)((char *)engine->pool_base_ptr + (size_t)b * BLOCK_SIZE))[offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct list_node *next = n->next;
        drop(engine, seq_of(n));
        n = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
