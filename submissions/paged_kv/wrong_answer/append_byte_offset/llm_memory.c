#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

#define container_of(p, type, field) \
    ((type *)((char *)(p) - offsetof(type, field)))

#define seq_of(n) container_of(n, Sequence, node)

static void list_insert(struct list_node *n, struct list_node *before,
                           struct list_node *after)
{
    n->prev = before;
    n->next = after;
    before->next = n;
    after->prev = n;
}

static void list_add_tail(struct list_node *n, struct list_node *head)
{
    list_insert(n, head->prev, head);
}

static void list_del(struct list_node *n)
{
    struct list_node *before = n->prev;
    struct list_node *after = n->next;

    before->next = after;
    after->prev = before;
}

static Sequence *find_sequence(const LLMEngine *mgr, int id)
{
    struct list_node *cur = mgr->active_seqs.next;

    while (cur != &mgr->active_seqs) {
        if (seq_of(cur)->seq_id == id)
            return seq_of(cur);
        cur = cur->next;
    }
    return NULL;
}

/* first-fit */
static int find_free_block(const LLMEngine *mgr)
{
    int id;

    for (id = 0; id < mgr->total_local_blocks; id++)
        if (mgr->ref_count[id] == 0)
            break;
    return id < mgr->total_local_blocks ? id : -1;
}

static int new_block(LLMEngine *mgr)
{
    int id = find_free_block(mgr);

    mgr->ref_count[id]++;
    mgr->free_local_blocks--;
    return id;
}

static void release_block(LLMEngine *mgr, int id)
{
    if (--mgr->ref_count[id] == 0)
        mgr->free_local_blocks++;
}

static int *kv_address(const LLMEngine *mgr, int id, int offset)
{
    char *base = mgr->pool_base_ptr;

    return (int *)(base + id * BLOCK_SIZE + offset);
}

static Sequence *make_sequence(int id)
{
    Sequence *seq = calloc(1, sizeof(*seq));

    seq->seq_id = id;
    seq->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    return seq;
}

/* Pointer to the table entry of a logical block; makes the L2 table if needed. */
static int *l2_entry(Sequence *seq, int logical)
{
    int **l1_slot = &seq->block_table[logical / L2_PT_SIZE];

    if (*l1_slot == NULL) {
        *l1_slot = malloc(sizeof(int) * L2_PT_SIZE);
        for (int i = 0; i < L2_PT_SIZE; i++)
            (*l1_slot)[i] = -1;
    }
    return &(*l1_slot)[logical % L2_PT_SIZE];
}

static int l2_read(const Sequence *seq, int logical)
{
    const int *l2 = seq->block_table[logical / L2_PT_SIZE];

    return l2 ? l2[logical % L2_PT_SIZE] : -1;
}

static void free_seq_memory(LLMEngine *mgr, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int id = seq->block_table[i][j];
            if (id != -1)
                release_block(mgr, id);
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *mgr;
    size_t blocks = pool_size / BLOCK_SIZE;

    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;

    mgr = malloc(sizeof(*mgr));
    mgr->pool_base_ptr = pool_addr;
    mgr->total_local_blocks = (int)blocks;
    mgr->free_local_blocks = (int)blocks;
    mgr->ref_count = calloc(blocks, sizeof(int));
    mgr->active_seqs.prev = &mgr->active_seqs;
    mgr->active_seqs.next = &mgr->active_seqs;
    return mgr;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0 || initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
        return NULL;
    if (find_sequence(engine, seq_id))
        return NULL;

    int nblocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (nblocks > engine->free_local_blocks)
        return NULL;

    Sequence *seq = make_sequence(seq_id);
    for (int k = 0; k < nblocks; k++)
        *l2_entry(seq, k) = new_block(engine);
    seq->kv_count = initial_kv_len;
    list_add_tail(&seq->node, &engine->active_seqs);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;

    Sequence *seq = find_sequence(engine, seq_id);
    if (!seq)
        return -1;
    list_del(&seq->node);
    free_seq_memory(engine, seq);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;

    Sequence *parent = find_sequence(engine, parent_seq_id);
    if (!parent || find_sequence(engine, new_seq_id))
        return NULL;

    Sequence *child = make_sequence(new_seq_id);
    for (int k = 0; k < MAX_LOGICAL_BLOCKS; k++) {
        if (!parent->block_table[k / L2_PT_SIZE])
            continue;
        int id = l2_read(parent, k);
        *l2_entry(child, k) = id;
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

    Sequence *seq = find_sequence(engine, seq_id);
    if (!seq)
        return -1;

    int logical = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS)
        return -1;

    int old = l2_read(seq, logical);
    int exclusive = old != -1 && engine->ref_count[old] == 1;
    if (!exclusive && engine->free_local_blocks == 0)
        return -1;

    int *entry = l2_entry(seq, logical);
    if (!exclusive) {
        *entry = new_block(engine);
        if (old != -1) {
            memcpy(kv_address(engine, *entry, 0), kv_address(engine, old, 0), BLOCK_SIZE);
            release_block(engine, old);
        }
    }
    *kv_address(engine, *entry, offset) = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;

    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *seq = seq_of(engine->active_seqs.next);
        list_del(&seq->node);
        free_seq_memory(engine, seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
