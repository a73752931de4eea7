#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define SEQ(n) ((Sequence *)((char *)(n) - offsetof(Sequence, node)))
#define EACH(n, e) for (struct list_node* n = (e)->active_seqs.next; n != &(e)->active_seqs; n = n->next)

static int take(LLMEngine* e) {
    int b = 0;
    while (b < e->total_local_blocks && e->ref_count[b] != 0)
        b++;
    e->ref_count[b] = 1;
    e->free_local_blocks--;
    return b;
}

static void drop(LLMEngine* e, int b) {
    if (--e->ref_count[b] == 0)
        e->free_local_blocks++;
}

static int* block_addr(LLMEngine* e, int b) {
    return (int *)((char *)e->pool_base_ptr + (size_t)b * BLOCK_SIZE);
}

static void push_back(LLMEngine* e, Sequence* s) {
    struct list_node* h = &e->active_seqs;
    s->node.next = h;
    s->node.prev = h->prev;
    h->prev->next = &s->node;
    h->prev = &s->node;
}

static int* l2_new(void) {
    int* t = malloc(sizeof(int[L2_PT_SIZE]));
    if (t)
        memset(t, -1, sizeof(int[L2_PT_SIZE]));
    return t;
}

static Sequence* seq_new(int id, int kv) {
    Sequence* s = malloc(sizeof *s);
    s->seq_id = id;
    s->kv_count = kv;
    s->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    return s;
}

static Sequence* lookup(LLMEngine* e, int id) {
    EACH(n, e)
        if (SEQ(n)->seq_id == id)
            return SEQ(n);
    return NULL;
}

static void seq_del(LLMEngine* e, Sequence* s) {
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int* t = s->block_table[i];
        for (int j = 0; t && j < L2_PT_SIZE; j++)
            if (t[j] != -1)
                drop(e, t[j]);
        free(t);
    }
    free(s->block_table);
    free(s);
}

LLMEngine* llm_init(void* pool_addr, size_t pool_size) {
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine* e = malloc(sizeof *e);
    if (!e)
        return NULL;
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = e->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int));
    e->active_seqs.next = e->active_seqs.prev = &e->active_seqs;
    return e;
}

int llm_destroy(LLMEngine* e) {
    if (!e)
        return -1;
    while (e->active_seqs.next != &e->active_seqs)
        seq_del(e, SEQ(e->active_seqs.next));
    free(e->ref_count);
    free(e);
    return 0;
}

Sequence* create_sequence(LLMEngine* e, int seq_id, int initial_kv_len) {
    if (!e || initial_kv_len <= 0)
        return NULL;
    if (lookup(e, seq_id))
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > L1_PT_SIZE * L2_PT_SIZE || need > e->free_local_blocks)
        return NULL;

    Sequence* s = seq_new(seq_id, initial_kv_len);
    for (int i = 0; i < need; i++) {
        int** t = &s->block_table[i / L2_PT_SIZE];
        if (!*t)
            *t = l2_new();
        (*t)[i % L2_PT_SIZE] = take(e);
    }
    push_back(e, s);
    return s;
}

int free_sequence(LLMEngine* e, int seq_id) {
    if (!e)
        return -1;
    Sequence* s = lookup(e, seq_id);
    if (!s)
        return -1;
    seq_del(e, s);
    return 0;
}

Sequence* fork_sequence(LLMEngine* e, int parent_seq_id, int new_seq_id) {
    if (!e)
        return NULL;
    Sequence* p = lookup(e, parent_seq_id);
    if (!p || lookup(e, new_seq_id))
        return NULL;

    Sequence* c = seq_new(new_seq_id, p->kv_count);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!p->block_table[i])
            continue;
        c->block_table[i] = l2_new();
        memcpy(c->block_table[i], p->block_table[i], sizeof(int[L2_PT_SIZE]));
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (c->block_table[i][j] != -1)
                e->ref_count[c->block_table[i][j]]++;
    }
    push_back(e, c);
    return c;
}

int append_kv(LLMEngine* e, int seq_id, int kv_data) {
    if (!e)
        return -1;
    Sequence* s = lookup(e, seq_id);
    if (!s)
        return -1;
    int idx = s->kv_count / KV_PER_BLOCK, off = s->kv_count % KV_PER_BLOCK;
    if (idx >= L1_PT_SIZE * L2_PT_SIZE - 1)
        return -1;

    int** t = &s->block_table[idx / L2_PT_SIZE];
    int b = *t ? (*t)[idx % L2_PT_SIZE] : -1;
    int shared = b != -1 && e->ref_count[b] > 1;
    if ((b == -1 || shared) && e->free_local_blocks == 0)
        return -1;

    if (!*t)
        *t = l2_new();
    if (b == -1) {
        b = take(e);
    } else if (shared) {
        int nb = take(e);
        memcpy(block_addr(e, nb), block_addr(e, b), BLOCK_SIZE);
        drop(e, b);
        b = nb;
    }
    (*t)[idx % L2_PT_SIZE] = b;
    block_addr(e, b)[off] = kv_data;
    s->kv_count++;
    return 0;
}
