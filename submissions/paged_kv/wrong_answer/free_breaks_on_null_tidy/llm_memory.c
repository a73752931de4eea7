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

static void list_unlink(struct list_node *n)
{
    struct list_node *before = n->prev;
    struct list_node *after = n->next;

    before->next = after;
    after->prev = before;
}

static Sequence *seq_by_id(const LLMEngine *e, int id)
{
    struct list_node *cur = e->active_seqs.next;

    while (cur != &e->active_seqs) {
        if (node_to_seq(cur)->seq_id == id)
            return node_to_seq(cur);
        cur = cur->next;
    }
    return NULL;
}

/* first-fit */
static int find_free_block(const LLMEngine *e)
{
    int id;

    for (id = 0; id < e->total_local_blocks; id++)
        if (e->ref_count[id] == 0)
            break;
    return id < e->total_local_blocks ? id : -1;
}

static int alloc_block(LLMEngine *e)
{
    int id = find_free_block(e);

    e->ref_count[id]++;
    e->free_local_blocks--;
    return id;
}

static void unref_block(LLMEngine *e, int id)
{
    if (--e->ref_count[id] == 0)
        e->free_local_blocks++;
}

static int *kv_slot(const LLMEngine *e, int id, int offset)
{
    char *base = e->pool_base_ptr;

    return (int *)(base + id * BLOCK_SIZE + offset * KV_SIZE);
}

static Sequence *alloc_sequence(int id)
{
    Sequence *sq = calloc(1, sizeof(*sq));

    sq->seq_id = id;
    sq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    for (int i = 0; i < L1_PT_SIZE; i++)
        sq->block_table[i] = NULL;
    return sq;
}

/* Pointer to the table entry of a logical block; makes the L2 table if needed. */
static int *entry_for(Sequence *sq, int logical)
{
    int **l1_slot = &sq->block_table[logical / L2_PT_SIZE];

    if (*l1_slot == NULL) {
        *l1_slot = malloc(sizeof(int) * L2_PT_SIZE);
        for (int i = 0; i < L2_PT_SIZE; i++)
            (*l1_slot)[i] = -1;
    }
    return &(*l1_slot)[logical % L2_PT_SIZE];
}

static int mapped_block(const Sequence *sq, int logical)
{
    const int *l2 = sq->block_table[logical / L2_PT_SIZE];

    return l2 ? l2[logical % L2_PT_SIZE] : -1;
}

static void release_all(LLMEngine *e, Sequence *sq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (sq->block_table[i] == NULL)
            break;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int id = sq->block_table[i][j];
            if (id != -1)
                unref_block(e, id);
        }
        free(sq->block_table[i]);
    }
    free(sq->block_table);
    free(sq);
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *e;
    size_t blocks = pool_size / BLOCK_SIZE;

    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;

    e = malloc(sizeof(*e));
    e->pool_base_ptr = pool_addr;
    e->total_local_blocks = (int)blocks;
    e->free_local_blocks = (int)blocks;
    e->ref_count = calloc(blocks, sizeof(int));
    e->active_seqs.prev = &e->active_seqs;
    e->active_seqs.next = &e->active_seqs;
    return e;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
        return NULL;
    if (seq_by_id(engine, seq_id))
        return NULL;

    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > engine->free_local_blocks)
        return NULL;

    Sequence *sq = alloc_sequence(seq_id);
    for (int k = 0; k < need; k++)
        *entry_for(sq, k) = alloc_block(engine);
    sq->kv_count = initial_kv_len;
    list_add_tail(&sq->node, &engine->active_seqs);
    return sq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;

    Sequence *sq = seq_by_id(engine, seq_id);
    if (!sq)
        return -1;
    list_unlink(&sq->node);
    release_all(engine, sq);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;

    Sequence *parent = seq_by_id(engine, parent_seq_id);
    if (!parent || seq_by_id(engine, new_seq_id))
        return NULL;

    Sequence *child = alloc_sequence(new_seq_id);
    for (int k = 0; k < MAX_LOGICAL_BLOCKS; k++) {
        if (!parent->block_table[k / L2_PT_SIZE])
            continue;
        int id = mapped_block(parent, k);
        *entry_for(child, k) = id;
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

    Sequence *sq = seq_by_id(engine, seq_id);
    if (!sq)
        return -1;

    int logical = sq->kv_count / KV_PER_BLOCK;
    int offset = sq->kv_count % KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS)
        return -1;

    int old = mapped_block(sq, logical);
    int exclusive = old != -1 && engine->ref_count[old] == 1;
    if (!exclusive && engine->free_local_blocks == 0)
        return -1;

    int *entry = entry_for(sq, logical);
    if (!exclusive) {
        *entry = alloc_block(engine);
        if (old != -1) {
            memcpy(kv_slot(engine, *entry, 0), kv_slot(engine, old, 0), BLOCK_SIZE);
            unref_block(engine, old);
        }
    }
    *kv_slot(engine, *entry, offset) = kv_data;
    sq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;

    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *sq = node_to_seq(engine->active_seqs.next);
        list_unlink(&sq->node);
        release_all(engine, sq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
