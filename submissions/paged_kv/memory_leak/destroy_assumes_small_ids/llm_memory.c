#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

/* ---------- list helpers ---------- */

static void list_init(struct list_node *head)
{
    head->prev = head;
    head->next = head;
}

static void list_insert(struct list_node *prev, struct list_node *node)
{
    struct list_node *next = prev->next;

    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

static void list_remove(struct list_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
}

static Sequence *node_to_seq(struct list_node *node)
{
    return (Sequence *)((char *)node - offsetof(Sequence, node));
}

static Sequence *find_seq(LLMEngine *engine, int seq_id)
{
    struct list_node *head = &engine->active_seqs;
    struct list_node *cur;

    for (cur = head->next; cur != head; cur = cur->next) {
        Sequence *seq = node_to_seq(cur);

        if (seq->seq_id == seq_id)
            return seq;
    }
    return NULL;
}

/* ---------- physical blocks ---------- */

static unsigned blocks_needed(int kv_len)
{
    return ((unsigned)kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
}

static int first_free(const LLMEngine *engine)
{
    for (unsigned i = 0; i < (unsigned)engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0)
            return (int)i;
    }
    return -1;
}

static int take_block(LLMEngine *engine)
{
    int block = first_free(engine);

    engine->ref_count[block] = 1;
    engine->free_local_blocks--;
    return block;
}

static void drop_block(LLMEngine *engine, int block)
{
    engine->ref_count[block]--;
    if (engine->ref_count[block] == 0)
        engine->free_local_blocks++;
}

static int *block_ptr(const LLMEngine *engine, int block)
{
    char *base = engine->pool_base_ptr;

    return (int *)(base + (size_t)block * BLOCK_SIZE);
}

/* ---------- block tables ---------- */

static void split_index(unsigned logical, unsigned *l1, unsigned *l2)
{
    *l1 = logical / L2_PT_SIZE;
    *l2 = logical % L2_PT_SIZE;
}

static int *new_l2(void)
{
    int *table = malloc(L2_PT_SIZE * sizeof(int));

    if (table == NULL)
        return NULL;
    for (unsigned i = 0; i < L2_PT_SIZE; i++)
        table[i] = -1;
    return table;
}

static int ensure_l2(Sequence *seq, unsigned l1)
{
    if (seq->block_table[l1] == NULL)
        seq->block_table[l1] = new_l2();
    return seq->block_table[l1] == NULL ? -1 : 0;
}

static int lookup(const Sequence *seq, unsigned logical)
{
    unsigned l1, l2;

    split_index(logical, &l1, &l2);
    if (seq->block_table[l1] == NULL)
        return -1;
    return seq->block_table[l1][l2];
}

static Sequence *new_seq(int seq_id)
{
    Sequence *seq = malloc(sizeof(Sequence));

    if (seq == NULL)
        return NULL;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    if (seq->block_table == NULL) {
        free(seq);
        return NULL;
    }
    for (unsigned i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = NULL;
    seq->seq_id = seq_id;
    seq->kv_count = 0;
    return seq;
}

static void drop_l2(LLMEngine *engine, int *table)
{
    for (unsigned j = 0; j < L2_PT_SIZE; j++) {
        if (table[j] != -1)
            drop_block(engine, table[j]);
    }
    free(table);
}

static void drop_seq(LLMEngine *engine, Sequence *seq)
{
    for (unsigned i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL)
            continue;
        drop_l2(engine, seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
}

static int map_new_block(LLMEngine *engine, Sequence *seq, unsigned logical)
{
    unsigned l1, l2;

    split_index(logical, &l1, &l2);
    if (ensure_l2(seq, l1) != 0)
        return -1;
    seq->block_table[l1][l2] = take_block(engine);
    return 0;
}

/* Gives the sequence a private copy of a block that it shares. */
static void copy_on_write(LLMEngine *engine, Sequence *seq, unsigned logical)
{
    unsigned l1, l2;
    int old_block = lookup(seq, logical);
    int new_block = take_block(engine);

    memcpy(block_ptr(engine, new_block), block_ptr(engine, old_block), BLOCK_SIZE);
    drop_block(engine, old_block);
    split_index(logical, &l1, &l2);
    seq->block_table[l1][l2] = new_block;
}

static int *share_l2(LLMEngine *engine, const int *parent)
{
    int *child = new_l2();

    if (child == NULL)
        return NULL;
    for (unsigned j = 0; j < L2_PT_SIZE; j++) {
        if (parent[j] == -1)
            continue;
        child[j] = parent[j];
        engine->ref_count[parent[j]]++;
    }
    return child;
}

/* ---------- Task 1 ---------- */

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *engine;

    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;

    engine = malloc(sizeof(LLMEngine));
    if (engine == NULL)
        return NULL;

    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    list_init(&engine->active_seqs);
    return engine;
}

/* ---------- Task 2 ---------- */

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    Sequence *seq;
    unsigned needed;

    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (find_seq(engine, seq_id) != NULL)
        return NULL;

    needed = blocks_needed(initial_kv_len);
    if (needed > MAX_LOGICAL_BLOCKS)
        return NULL;
    if (needed > (unsigned)engine->free_local_blocks)
        return NULL;

    seq = new_seq(seq_id);
    if (seq == NULL)
        return NULL;
    for (unsigned i = 0; i < needed; i++) {
        if (map_new_block(engine, seq, i) != 0) {
            drop_seq(engine, seq);
            return NULL;
        }
    }

    seq->kv_count = initial_kv_len;
    list_insert(engine->active_seqs.prev, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *seq;

    if (engine == NULL)
        return -1;

    seq = find_seq(engine, seq_id);
    if (seq == NULL)
        return -1;

    list_remove(&seq->node);
    drop_seq(engine, seq);
    return 0;
}

/* ---------- Task 3 ---------- */

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    Sequence *parent;
    Sequence *child;

    if (engine == NULL)
        return NULL;

    parent = find_seq(engine, parent_seq_id);
    if (parent == NULL)
        return NULL;
    if (find_seq(engine, new_seq_id) != NULL)
        return NULL;

    child = new_seq(new_seq_id);
    if (child == NULL)
        return NULL;
    for (unsigned i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i] == NULL)
            continue;
        child->block_table[i] = share_l2(engine, parent->block_table[i]);
        if (child->block_table[i] == NULL) {
            drop_seq(engine, child);
            return NULL;
        }
    }

    child->kv_count = parent->kv_count;
    list_insert(engine->active_seqs.prev, &child->node);
    return child;
}

/* ---------- Task 4 ---------- */

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    Sequence *seq;
    unsigned logical, offset;
    int block;

    if (engine == NULL)
        return -1;

    seq = find_seq(engine, seq_id);
    if (seq == NULL)
        return -1;

    logical = (unsigned)seq->kv_count / KV_PER_BLOCK;
    offset = (unsigned)seq->kv_count % KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS)
        return -1;

    block = lookup(seq, logical);
    if (block == -1 || engine->ref_count[block] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (block != -1)
            copy_on_write(engine, seq, logical);
        else if (map_new_block(engine, seq, logical) != 0)
            return -1;
    }

    block = lookup(seq, logical);
    block_ptr(engine, block)[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

/* ---------- Task 5 ---------- */

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;

    for (int id = 0; id < engine->total_local_blocks; id++)
        free_sequence(engine, id);
    free(engine->ref_count);
    free(engine);
    return 0;
}
