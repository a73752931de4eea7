#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

// get Sequence from its list node
static Sequence *get_seq(struct list_node *nd) {
    size_t off = offsetof(Sequence, node);
    return (Sequence *)((char *)nd - off);
}

static int id_exists(LLMEngine *e, int id, Sequence **out) {
    int found = 0;
    struct list_node *nd = e->active_seqs.next;
    while (nd != &e->active_seqs && !found) {
        Sequence *s = get_seq(nd);
        if (s->seq_id == id) {
            found = 1;
            if (out != NULL) *out = s;
        }
        nd = nd->next;
    }
    return found;
}

// index of the first 0 in array, -1 if there is none
int find_first_zero(const int *array, int n);

// returns the block number, -1 if pool is full
static int alloc_block(LLMEngine *e) {
    int i = find_first_zero(e->ref_count, e->total_local_blocks);
    if (i < 0) return -1;
    e->ref_count[i] = 1;
    e->free_local_blocks = e->free_local_blocks - 1;
    return i;
}

static void put_block(LLMEngine *e, int id) {
    e->ref_count[id] = e->ref_count[id] - 1;
    if (e->ref_count[id] == 0) e->free_local_blocks = e->free_local_blocks + 1;
}

// L2 table of -1
static int *make_table(void) {
    static const int empty[16] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    int *t = malloc(sizeof(empty));
    memcpy(t, empty, sizeof(empty));
    return t;
}

// alloc Sequence + L1 table
static Sequence *make_seq(int id, int len) {
    Sequence *s = malloc(sizeof(Sequence));
    int **l1 = malloc(sizeof(int *) * 16);
    int i;
    for (i = 0; i < 16; i++) l1[i] = NULL;
    s->seq_id = id;
    s->kv_count = len;
    s->block_table = l1;
    return s;
}

static void push_back(LLMEngine *e, Sequence *s) {
    s->node.next = &e->active_seqs;
    s->node.prev = e->active_seqs.prev;
    s->node.prev->next = &s->node;
    s->node.next->prev = &s->node;
}

static int *kv_ptr(LLMEngine *e, int block, int offset) {
    int *base = (int *)e->pool_base_ptr;
    return base + (long)block * KV_PER_BLOCK + offset;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    LLMEngine *e = NULL;
    if (pool_addr != NULL && pool_size >= BLOCK_SIZE) {
        int n = (int)(pool_size / BLOCK_SIZE);
        e = malloc(sizeof(LLMEngine));
        if (e == NULL) return NULL;
        e->ref_count = calloc((size_t)n, sizeof(int));
        e->pool_base_ptr = pool_addr;
        e->total_local_blocks = n;
        e->free_local_blocks = n;
        e->active_seqs.next = e->active_seqs.prev = &(e->active_seqs);
    }
    return e;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (NULL == engine) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (id_exists(engine, seq_id, NULL)) return NULL;

    // ceil(len / 16)
    int n = (initial_kv_len + 15) / 16;
    if (n > 256) return NULL;
    if (n > engine->free_local_blocks) return NULL;

    Sequence *s = make_seq(seq_id, initial_kv_len);
    int i, j, left = n;
    for (i = 0; i < 16 && left > 0; i++) {
        int *t = make_table();
        for (j = 0; j < 16 && left > 0; j++) {
            t[j] = alloc_block(engine);
            left--;
        }
        s->block_table[i] = t;
    }
    push_back(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (NULL == engine) return -1;
    Sequence *s = NULL;
    int i, j;
    if (!id_exists(engine, seq_id, &s)) return -1;

    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;

    for (i = 0; i < 16; i++) {
        int *t = s->block_table[i];
        for (j = 0; t != NULL && j < 16; j++) {
            if (t[j] != -1) put_block(engine, t[j]);
        }
        free(t);
    }
    free(s->block_table);
    free(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (NULL == engine) return NULL;
    Sequence *par = NULL;
    int i, j;
    if (!id_exists(engine, parent_seq_id, &par)) return NULL;
    if (id_exists(engine, new_seq_id, NULL)) return NULL;

    Sequence *s = make_seq(new_seq_id, par->kv_count);
    for (i = 0; i < 16; i++) {
        if (par->block_table[i] != NULL) {
            int *t = make_table();
            for (j = 0; j < 16; j++) {
                t[j] = par->block_table[i][j];
                if (t[j] != -1) engine->ref_count[t[j]]++;
            }
            s->block_table[i] = t;
        }
    }
    push_back(engine, s);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (NULL == engine) return -1;
    Sequence *s = NULL;
    if (!id_exists(engine, seq_id, &s)) return -1;

    int logical_idx = s->kv_count / 16, offset = s->kv_count % 16;
    if (logical_idx >= 256) return -1;

    int **slot = &s->block_table[logical_idx / 16];
    int k = logical_idx % 16;
    int cur = (*slot == NULL) ? -1 : (*slot)[k];

    if (cur == -1) {
        // new page
        if (engine->free_local_blocks == 0) return -1;
        if (*slot == NULL) *slot = make_table();
        cur = alloc_block(engine);
        (*slot)[k] = cur;
    } else if (engine->ref_count[cur] > 1) {
        // copy on write
        if (engine->free_local_blocks == 0) return -1;
        int nb = alloc_block(engine);
        memcpy(kv_ptr(engine, nb, 0), kv_ptr(engine, cur, 0), 64);
        put_block(engine, cur);
        (*slot)[k] = nb;
        cur = nb;
    }

    *kv_ptr(engine, cur, offset) = kv_data;
    s->kv_count = s->kv_count + 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (NULL == engine) return -1;
    struct list_node *nd = engine->active_seqs.next, *tmp;
    int i;
    for (; nd != &engine->active_seqs; nd = tmp) {
        tmp = nd->next;
        Sequence *s = get_seq(nd);
        for (i = 0; i < 16; i++) free(s->block_table[i]);
        free(s->block_table);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
