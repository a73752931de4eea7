// llm_memory.c -- paged KV cache: engine, sequences, block tables.

#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define MAX_PAGES (L1_PT_SIZE * L2_PT_SIZE)
#define node_to_seq(n) ((Sequence *)(void *)((unsigned char *)(n) - offsetof(Sequence, node)))
#define for_each_node(n, eng) \
    for (struct list_node *n = (eng)->active_seqs.next; n != &(eng)->active_seqs; n = n->next)

// position of a logical block in the two table levels
struct kv_idx {
    int l1;
    int l2;
};

static struct kv_idx kv_index(int logical)
{
    struct kv_idx pos = { logical / L2_PT_SIZE, logical % L2_PT_SIZE };
    return pos;
}

static Sequence *kv_seq_by_id(LLMEngine *eng, int id)
{
    for_each_node(n, eng) {
        if (node_to_seq(n)->seq_id == id)
            return node_to_seq(n);
    }
    return NULL;
}

static void kv_list_push(LLMEngine *eng, Sequence *seq)
{
    struct list_node *head = &eng->active_seqs;
    struct list_node *last = head->prev;

    seq->node.next = head;
    seq->node.prev = last;
    last->next = &seq->node;
    head->prev = &seq->node;
}

static void kv_list_pop(Sequence *seq)
{
    struct list_node *before = seq->node.prev;
    struct list_node *after = seq->node.next;

    before->next = after;
    after->prev = before;
}

static int *kv_new_l2(void)
{
    int *table = malloc(sizeof(int) * L2_PT_SIZE);

    if (table)
        memset(table, 0xff, sizeof(int) * L2_PT_SIZE);
    return table;
}

static Sequence *kv_seq_alloc(int id)
{
    Sequence *seq = calloc(1, sizeof *seq);

    seq->seq_id = id;
    seq->block_table = calloc(L1_PT_SIZE, sizeof *seq->block_table);
    return seq;
}

static int kv_block_scan(const LLMEngine *eng)
{
    for (int blk = 0; blk < eng->total_local_blocks; blk++)
        if (!eng->ref_count[blk])
            return blk;
    return -1;
}

static int kv_block_take(LLMEngine *eng)
{
    int blk = kv_block_scan(eng);

    eng->ref_count[blk] = 1;
    eng->free_local_blocks -= 1;
    return blk;
}

static void kv_block_drop(LLMEngine *eng, int blk)
{
    if (--eng->ref_count[blk] == 0)
        eng->free_local_blocks += 1;
}

static void *kv_block_at(const LLMEngine *eng, int blk)
{
    return (unsigned char *)eng->pool_base_ptr + (size_t)BLOCK_SIZE * (size_t)blk;
}

// gives back everything a sequence owns
static void kv_seq_destroy(LLMEngine *eng, Sequence *seq)
{
    kv_list_pop(seq);
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        int *table = seq->block_table[i];

        if (!table)
            continue;
        int unused = 0;
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            if (table[j] == -1)
                continue;
            kv_block_drop(eng, table[j]);
            if (eng->ref_count[table[j]] == 0)
                unused = 1;
        }
        if (unused)
            free(table);
    }
    free(seq->block_table);
    free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *eng;

    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;

    eng = calloc(1, sizeof *eng);
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = eng->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof *eng->ref_count);
    eng->active_seqs.prev = eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    Sequence *seq;
    int nblk;

    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || kv_seq_by_id(engine, seq_id))
        return NULL;
    nblk = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (nblk > MAX_PAGES || nblk > engine->free_local_blocks)
        return NULL;

    seq = kv_seq_alloc(seq_id);
    for (int logical = 0; logical < nblk; logical++) {
        struct kv_idx pos = kv_index(logical);

        if (!seq->block_table[pos.l1])
            seq->block_table[pos.l1] = kv_new_l2();
        seq->block_table[pos.l1][pos.l2] = kv_block_take(engine);
    }
    seq->kv_count = initial_kv_len;
    kv_list_push(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *seq;

    if (engine == NULL)
        return -1;
    seq = kv_seq_by_id(engine, seq_id);
    if (!seq)
        return -1;
    kv_seq_destroy(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    Sequence *parent, *child;

    if (engine == NULL)
        return NULL;
    parent = kv_seq_by_id(engine, parent_seq_id);
    if (!parent || kv_seq_by_id(engine, new_seq_id))
        return NULL;

    child = kv_seq_alloc(new_seq_id);
    child->kv_count = parent->kv_count;
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (!parent->block_table[i])
            continue;
        child->block_table[i] = kv_new_l2();
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            int blk = parent->block_table[i][j];

            if (blk == -1)
                continue;
            child->block_table[i][j] = blk;
            engine->ref_count[blk] += 1;
        }
    }
    kv_list_push(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    Sequence *seq;
    struct kv_idx pos;
    int logical, offset, old, fresh;

    if (engine == NULL)
        return -1;
    seq = kv_seq_by_id(engine, seq_id);
    if (!seq)
        return -1;

    logical = seq->kv_count / KV_PER_BLOCK;
    offset = seq->kv_count % KV_PER_BLOCK;
    if (logical >= MAX_PAGES)
        return -1;
    pos = kv_index(logical);

    old = seq->block_table[pos.l1] ? seq->block_table[pos.l1][pos.l2] : -1;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (!seq->block_table[pos.l1])
            seq->block_table[pos.l1] = kv_new_l2();
        fresh = kv_block_take(engine);
        seq->block_table[pos.l1][pos.l2] = fresh;
        if (old != -1) {
            memcpy(kv_block_at(engine, fresh), kv_block_at(engine, old), BLOCK_SIZE);
            kv_block_drop(engine, old);
        }
    }

    int *cell = (int *)kv_block_at(engine, seq->block_table[pos.l1][pos.l2]) + offset;
    *cell = kv_data;
    seq->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs)
        kv_seq_destroy(engine, node_to_seq(engine->active_seqs.next));
    free(engine->ref_count);
    free(engine);
    return 0;
}
