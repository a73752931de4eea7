#include <errno.h>
#include "llm_memory.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_OF(p)     ((Sequence *)((char *)(p) - offsetof(Sequence, node)))
#define FOR_EACH(p, h) for (struct list_node *p = (h)->next; p != (h); p = p->next)
#define L1(i)         ((i) / L2_PT_SIZE)
#define L2(i)         ((i) % L2_PT_SIZE)
#define BLK(e, b)     ((char *)(e)->pool_base_ptr + (size_t)(b) * BLOCK_SIZE)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

static Sequence *lookup(LLMEngine *e, int id) {
    FOR_EACH(p, &e->active_seqs)
        if (SEQ_OF(p)->seq_id == id)
            return SEQ_OF(p);
    return NULL;
}

static void push_back(LLMEngine *e, Sequence *s) {
    struct list_node *h = &e->active_seqs;
    s->node.next = h;
    s->node.prev = h->prev;
    h->prev->next = &s->node;
    h->prev = &s->node;
}

static int first_fit(const LLMEngine *e) {
    for (int b = 0; b < e->total_local_blocks; b++)
        if (!e->ref_count[b])
            return b;
    return -1;
}

static int *l2_new(void) {
    int *t = malloc(sizeof(*t) * L2_PT_SIZE);
    if (t)
        memset(t, 0xff, sizeof(*t) * L2_PT_SIZE);
    return t;
}

static Sequence *seq_new(int id, int len) {
    Sequence *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->block_table = calloc(L1_PT_SIZE, sizeof(*s->block_table));
    if (!s->block_table) {
        free(s);
        return NULL;
    }
    s->seq_id = id;
    s->kv_count = len;
    return s;
}

static void seq_del(LLMEngine *e, Sequence *s) {
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *t = s->block_table[i];
        for (int j = 0; t && j < L2_PT_SIZE; j++)
            if (t[j] != -1 && --e->ref_count[t[j]] == 0)
                e->free_local_blocks++;
        free(t);
    }
    free(s->block_table);
    free(s);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (!pool_addr || pool_size < BLOCK_SIZE || pool_size / BLOCK_SIZE > INT_MAX)
        return NULL;
    LLMEngine *e = malloc(sizeof(*e));
    if (!e)
        return NULL;
    e->total_local_blocks = e->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->pool_base_ptr = pool_addr;
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(*e->ref_count));
    if (!e->ref_count || errno != 0) {
        free(e->ref_count);
        free(e);
        return NULL;
    }
    e->active_seqs.prev = e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (!engine || initial_kv_len <= 0 || lookup(engine, seq_id))
        return NULL;
    long long need = CEIL_DIV((long long)initial_kv_len, KV_PER_BLOCK);
    if (need > MAX_LOGICAL_BLOCKS || need > engine->free_local_blocks)
        return NULL;
    Sequence *s = seq_new(seq_id, initial_kv_len);
    if (!s)
        return NULL;
    for (int i = 0; i < need; i++) {
        int **t = &s->block_table[L1(i)];
        if (!*t && !(*t = l2_new())) {
            seq_del(engine, s);
            return NULL;
        }
        int b = first_fit(engine);
        if (b < 0) {
            seq_del(engine, s);
            return NULL;
        }
        (*t)[L2(i)] = b;
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
    }
    push_back(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    Sequence *s = engine ? lookup(engine, seq_id) : NULL;
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    seq_del(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    Sequence *p = engine ? lookup(engine, parent_seq_id) : NULL;
    if (!p || lookup(engine, new_seq_id))
        return NULL;
    Sequence *c = seq_new(new_seq_id, p->kv_count);
    if (!c)
        return NULL;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!p->block_table[i])
            continue;
        if (!(c->block_table[i] = l2_new())) {
            seq_del(engine, c);
            return NULL;
        }
        memcpy(c->block_table[i], p->block_table[i], sizeof(int) * L2_PT_SIZE);
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (c->block_table[i][j] != -1)
                engine->ref_count[c->block_table[i][j]]++;
    }
    push_back(engine, c);
    return c;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    Sequence *s = engine ? lookup(engine, seq_id) : NULL;
    if (!s)
        return -1;
    int idx = s->kv_count / KV_PER_BLOCK, off = s->kv_count % KV_PER_BLOCK;
    if (idx >= MAX_LOGICAL_BLOCKS)
        return -1;
    int **t = &s->block_table[L1(idx)];
    int b = *t ? (*t)[L2(idx)] : -1;
    if (b == -1 || engine->ref_count[b] > 1) {
        int nb = engine->free_local_blocks > 0 ? first_fit(engine) : -1;
        if (nb < 0 || (!*t && !(*t = l2_new())))
            return -1;
        if (b != -1) {
            memcpy(BLK(engine, nb), BLK(engine, b), BLOCK_SIZE);
            engine->ref_count[b]--;
        }
        engine->ref_count[nb] = 1;
        engine->free_local_blocks--;
        (*t)[L2(idx)] = b = nb;
    }
    ((int *)BLK(engine, b))[off] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (!engine)
        return -1;
    for (struct list_node *p = engine->active_seqs.next, *n; p != &engine->active_seqs; p = n) {
        n = p->next;
        seq_del(engine, SEQ_OF(p));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
