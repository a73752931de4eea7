#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

#define container_of(p, type, field) \
    ((type *)((char *)(p) - offsetof(type, field)))

#define node_to_seq(n) container_of(n, Sequence, node)

static void insert_between(struct list_node *n, struct list_node *before,
                           struct list_node *after)
{
    n->prev = before;
    n->next = after;
    before->next = n;
    after->prev = n;
}

static void list_add_tail(struct list_node *n, struct list_node *head)
{
    insert_between(n, head->prev, head);
}

static void list_remove(struct list_node *n)
{
    struct list_node *before = n->prev;
    struct list_node *after = n->next;

    before->next = after;
    after->prev = before;
}

static Sequence *lookup(const LLMEngine *eng, int id)
{
    struct list_node *cur = eng->active_seqs.next;

    while (cur != &eng->active_seqs) {
        if (node_to_seq(cur)->seq_id == id)
            return node_to_seq(cur);
        cur = cur->next;
    }
    return NULL;
}

/* first-fit */
static int find_free_block(const LLMEngine *eng)
{
    int id;

    for (id = 0; id < eng->total_local_blocks; id++)
        if (eng->ref_count[id] == 0)
            break;
    return id < eng->total_local_blocks ? id : -1;
}

static int block_get_new(LLMEngine *eng)
{
    int id = find_free_block(eng);

    eng->ref_count[id]++;
    eng->free_local_blocks--;
    return id;
}

static void block_put(LLMEngine *eng, int id)
{
    if (--eng->ref_count[id] == 0)
        eng->free_local_blocks++;
}

static int *kv_address(const LLMEngine *eng, int id, int offset)
{
    char *base = eng->pool_base_ptr;

    return (int *)(base + id * BLOCK_SIZE + offset * KV_SIZE);
}

static Sequence *alloc_sequence(int id)
{
    Sequence *s = calloc(1, sizeof(*s));

    s->seq_id = id;
    s->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    for (int i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    return s;
}

/* Pointer to the table entry of a logical block; makes the L2 table if needed. */
static int *table_entry(Sequence *s, int logical)
{
    int **l1_slot = &s->block_table[logical / L2_PT_SIZE];

    if (*l1_slot == NULL) {
        *l1_slot = malloc(sizeof(int) * L2_PT_SIZE);
        for (int i = 0; i < L2_PT_SIZE; i++)
            (*l1_slot)[i] = -1;
    }
    return &(*l1_slot)[logical % L2_PT_SIZE];
}

static int table_peek(const Sequence *s, int logical)
{
    const int *l2 = s->block_table[logical / L2_PT_SIZE];

    return l2 ? l2[logical % L2_PT_SIZE] : -1;
}

static void drop_sequence(LLMEngine *eng, Sequence *s)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int id = s->block_table[i][j];
            if (id != -1)
                block_put(eng, id);
        }
        free(s->block_table[i]);
    }
    free(s->block_table);
    free(s);
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *eng;
    size_t blocks = pool_size / BLOCK_SIZE;

    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;

    eng = malloc(sizeof(*eng));
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = (int)blocks;
    eng->free_local_blocks = (int)blocks;
    eng->ref_count = calloc(1, blocks);
    eng->active_seqs.prev = &eng->active_seqs;
    eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
        return NULL;
    if (lookup(engine, seq_id))
        return NULL;

    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;

    Sequence *s = alloc_sequence(seq_id);
    for (int k = 0; k < need; k++)
        *table_entry(s, k) = block_get_new(engine);
    s->kv_count = initial_kv_len;
    list_add_tail(&s->node, &engine->active_seqs);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;

    Sequence *s = lookup(engine, seq_id);
    if (!s)
        return -1;
    list_remove(&s->node);
    drop_sequence(engine, s);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;

    Sequence *parent = lookup(engine, parent_seq_id);
    if (!parent || lookup(engine, new_seq_id))
        return NULL;

    Sequence *child = alloc_sequence(new_seq_id);
    for (int k = 0; k < MAX_LOGICAL_BLOCKS; k++) {
        if (!parent->block_table[k / L2_PT_SIZE])
            continue;
        int id = table_peek(parent, k);
        *table_entry(child, k) = id;
        if (id != -1)
            engine->ref_count[id]++;
    }
    child->kv_count = parent->kv_count;
    list_add_tail(&child->node, &engine->active_seqs);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;

    Sequence *s = lookup(engine, seq_id);
    if (!s)
        return -1;

    int logical = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS)
        return -1;

    int old = table_peek(s, logical);
    int exclusive = old != -1 && engine->ref_count[old] == 1;
    if (!exclusive && engine->free_local_blocks == 0)
        return -1;

    int *entry = table_entry(s, logical);
    if (!exclusive) {
        *entry = block_get_new(engine);
        if (old != -1) {
            memcpy(kv_address(engine, *entry, 0), kv_address(engine, old, 0), BLOCK_SIZE);
            block_put(engine, old);
        }
    }
    *kv_address(engine, *entry, offset) = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;

    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *s = node_to_seq(engine->active_seqs.next);
        list_remove(&s->node);
        drop_sequence(engine, s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
