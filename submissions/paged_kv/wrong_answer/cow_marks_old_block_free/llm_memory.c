#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

/* state shared by the helpers */
static struct {
    LLMEngine *eng;
    struct list_node *head;
    char *pool;
    int *ref;
    int nblocks;
} mem;

static void set_engine(LLMEngine *engine)
{
    mem.eng = engine;
    mem.head = &engine->active_seqs;
    mem.pool = engine->pool_base_ptr;
    mem.ref = engine->ref_count;
    mem.nblocks = engine->total_local_blocks;
}

static Sequence *seq_at(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static Sequence *seq_by_id(int id)
{
    struct list_node *n;

    for (n = mem.head->next; n != mem.head; n = n->next) {
        if (seq_at(n)->seq_id == id)
            return seq_at(n);
    }
    return NULL;
}

static void add_seq(Sequence *s)
{
    struct list_node *last = mem.head->prev;

    s->node.prev = last;
    s->node.next = mem.head;
    last->next = &s->node;
    mem.head->prev = &s->node;
}

static void unlink_seq(Sequence *s)
{
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
}

/* first fit */
static int get_free_block(void)
{
    int b;

    for (b = 0; b < mem.nblocks; b++) {
        if (mem.ref[b] == 0) {
            mem.ref[b] = 1;
            mem.eng->free_local_blocks--;
            return b;
        }
    }
    return -1;
}

static void dec_ref(int b)
{
    mem.ref[b]--;
    if (mem.ref[b] == 0)
        mem.eng->free_local_blocks++;
}

static char *block_addr(int b)
{
    return mem.pool + (size_t)b * BLOCK_SIZE;
}

static int *new_l2(void)
{
    int *l2 = malloc(L2_PT_SIZE * sizeof(int));
    int i;

    if (l2 == NULL)
        return NULL;
    for (i = 0; i < L2_PT_SIZE; i++)
        l2[i] = -1;
    return l2;
}

static Sequence *seq_alloc(int id)
{
    Sequence *s = malloc(sizeof(Sequence));
    int i;

    if (s == NULL)
        return NULL;
    s->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    for (i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    s->seq_id = id;
    s->kv_count = 0;
    return s;
}

/* gives back the blocks and the heap memory of a sequence that is in no list */
static void seq_free(Sequence *s)
{
    int i, j;

    for (i = 0; i < L1_PT_SIZE; i++) {
        int *l2 = s->block_table[i];
        if (l2 == NULL)
            continue;
        for (j = 0; j < L2_PT_SIZE; j++) {
            if (l2[j] != -1)
                dec_ref(l2[j]);
        }
        free(l2);
    }
    free(s->block_table);
    free(s);
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *e = NULL;
    LLMEngine *result = NULL;

    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        goto out;
    e = malloc(sizeof(LLMEngine));
    if (e == NULL)
        goto out;
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->free_local_blocks = e->total_local_blocks;
    e->active_seqs.prev = &e->active_seqs;
    e->active_seqs.next = &e->active_seqs;
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof(int));
    if (e->ref_count == NULL)
        goto out;
    result = e;
out:
    if (result == NULL)
        free(e);
    return result;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    Sequence *s = NULL;
    Sequence *result = NULL;
    int nblk, i;

    set_engine(engine);
    if (initial_kv_len <= 0)
        goto out;
    if (seq_by_id(seq_id) != NULL)
        goto out;
    nblk = initial_kv_len / KV_PER_BLOCK + (initial_kv_len % KV_PER_BLOCK != 0);
    if (nblk > MAX_LOGICAL_BLOCKS || nblk > engine->free_local_blocks)
        goto out;

    s = seq_alloc(seq_id);
    if (s == NULL)
        goto out;
    for (i = 0; i < nblk; i++) {
        int **l2 = &s->block_table[i / 16];
        if (*l2 == NULL)
            *l2 = new_l2();
        if (*l2 == NULL)
            goto out;
        (*l2)[i % 16] = get_free_block();
    }
    s->kv_count = initial_kv_len;
    add_seq(s);
    result = s;
out:
    if (result == NULL && s != NULL)
        seq_free(s);
    return result;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;
    Sequence *s;

    set_engine(engine);
    s = seq_by_id(seq_id);
    if (s == NULL)
        return -1;
    unlink_seq(s);
    seq_free(s);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;
    Sequence *parent;
    Sequence *s = NULL;
    Sequence *result = NULL;
    int i;

    set_engine(engine);
    parent = seq_by_id(parent_seq_id);
    if (parent == NULL || seq_by_id(new_seq_id) != NULL)
        goto out;
    s = seq_alloc(new_seq_id);
    if (s == NULL)
        goto out;
    for (i = 0; i < MAX_LOGICAL_BLOCKS; i++) {
        int *from = parent->block_table[i / 16];
        int **to = &s->block_table[i / 16];
        if (from == NULL)
            continue;
        if (*to == NULL)
            *to = new_l2();
        if (*to == NULL)
            goto out;
        if (from[i % 16] != -1) {
            (*to)[i % 16] = from[i % 16];
            mem.ref[from[i % 16]]++;
        }
    }
    s->kv_count = parent->kv_count;
    add_seq(s);
    result = s;
out:
    if (result == NULL && s != NULL)
        seq_free(s);
    return result;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    Sequence *s;
    int **l2;
    int i, off, b, nb;
    int result = -1;

    set_engine(engine);
    s = seq_by_id(seq_id);
    if (s == NULL)
        goto out;
    i = s->kv_count / KV_PER_BLOCK;
    off = s->kv_count % KV_PER_BLOCK;
    if (i >= MAX_LOGICAL_BLOCKS)
        goto out;

    l2 = &s->block_table[i / 16];
    b = (*l2 == NULL) ? -1 : (*l2)[i % 16];
    if (b == -1 || mem.ref[b] > 1) {
        if (engine->free_local_blocks == 0)
            goto out;
        if (*l2 == NULL)
            *l2 = new_l2();
        if (*l2 == NULL)
            goto out;
        nb = get_free_block();
        if (b != -1) {
            memcpy(block_addr(nb), block_addr(b), BLOCK_SIZE);
            mem.ref[b]--;
            engine->free_local_blocks++;
        }
        (*l2)[i % 16] = nb;
        b = nb;
    }
    ((int *)block_addr(b))[off] = kv_data;
    s->kv_count++;
    result = 0;
out:
    return result;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    struct list_node *n, *next;

    set_engine(engine);
    for (n = mem.head->next; n != mem.head; n = next) {
        next = n->next;
        seq_free(seq_at(n));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
