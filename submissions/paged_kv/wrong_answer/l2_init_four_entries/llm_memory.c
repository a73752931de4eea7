#include "llm_memory.h"

#include <string.h>
#include <stdlib.h>

#define container_of(ptr, type, member) \
    ((type *)((uintptr_t)(ptr) - offsetof(type, member)))

#define UNMAPPED (-1)

typedef struct {
    int l1;
    int l2;
    int offset;
} kv_pos;

static kv_pos locate(int kv_index)
{
    kv_pos p;
    int logical = kv_index / KV_PER_BLOCK;

    p.l1 = logical / L2_PT_SIZE;
    p.l2 = logical % L2_PT_SIZE;
    p.offset = kv_index % KV_PER_BLOCK;
    return p;
}

static void list_add_tail(struct list_node *head, struct list_node *n)
{
    struct list_node *last = head->prev;

    last->next = n;
    n->prev = last;
    n->next = head;
    head->prev = n;
}

static struct list_node *find_node(LLMEngine *engine, int seq_id)
{
    struct list_node *n = engine->active_seqs.next;

    for (; n != &engine->active_seqs; n = n->next)
        if (container_of(n, Sequence, node)->seq_id == seq_id)
            return n;
    return NULL;
}

static Sequence *find_sequence(LLMEngine *engine, int seq_id)
{
    struct list_node *n = find_node(engine, seq_id);

    return n == NULL ? NULL : container_of(n, Sequence, node);
}

static int find_free_block(LLMEngine *engine)
{
    for (int i = 0; i <= engine->total_local_blocks - 1; ++i) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return UNMAPPED;
}

static void *physical(LLMEngine *engine, int block)
{
    return (char *)engine->pool_base_ptr + block * BLOCK_SIZE;
}

static void ensure_l2(Sequence *seq, int l1)
{
    if (seq->block_table[l1] != NULL)
        return;
    seq->block_table[l1] = malloc(L2_PT_SIZE * sizeof(int));
    memset(seq->block_table[l1], 0xff, L2_PT_SIZE);
}

static Sequence *sequence_alloc(int seq_id, int kv_count)
{
    Sequence *seq = malloc(sizeof(Sequence));

    seq->seq_id = seq_id;
    seq->kv_count = kv_count;
    seq->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    return seq;
}

static void unref_table(LLMEngine *engine, const int *l2)
{
    for (int j = 0; j < L2_PT_SIZE; ++j) {
        if (l2[j] == UNMAPPED)
            continue;
        engine->ref_count[l2[j]] -= 1;
        if (engine->ref_count[l2[j]] == 0)
            engine->free_local_blocks++;
    }
}

static void sequence_free(LLMEngine *engine, Sequence *seq)
{
    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (seq->block_table[i] != NULL) {
            unref_table(engine, seq->block_table[i]);
            free(seq->block_table[i]);
        }
    }
    free(seq->block_table);
    free(seq);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;

    int total = (int)(pool_size / BLOCK_SIZE);
    LLMEngine *engine = calloc(1, sizeof(LLMEngine));

    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = total;
    engine->free_local_blocks = total;
    engine->ref_count = calloc((size_t)total, sizeof(int));
    engine->active_seqs = (struct list_node){ &engine->active_seqs, &engine->active_seqs };
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL || initial_kv_len <= 0)
        return NULL;
    if (find_sequence(engine, seq_id) != NULL)
        return NULL;
    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
        return NULL;
    if ((initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK > engine->free_local_blocks)
        return NULL;

    Sequence *seq = sequence_alloc(seq_id, initial_kv_len);

    for (int kv = 0; kv < initial_kv_len; kv += KV_PER_BLOCK) {
        kv_pos p = locate(kv);
        ensure_l2(seq, p.l1);
        seq->block_table[p.l1][p.l2] = find_free_block(engine);
    }
    list_add_tail(&engine->active_seqs, &seq->node);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;

    struct list_node *n = find_node(engine, seq_id);
    if (n == NULL)
        return -1;

    n->prev->next = n->next;
    n->next->prev = n->prev;
    sequence_free(engine, container_of(n, Sequence, node));
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;

    Sequence *parent = find_sequence(engine, parent_seq_id);
    Sequence *other = find_sequence(engine, new_seq_id);
    if (parent == NULL || other != NULL)
        return NULL;

    Sequence *child = sequence_alloc(new_seq_id, parent->kv_count);

    for (int i = 0; i < L1_PT_SIZE; ++i) {
        if (parent->block_table[i] == NULL)
            continue;
        ensure_l2(child, i);
        for (int j = 0; j < L2_PT_SIZE; ++j) {
            int block = parent->block_table[i][j];
            if (block != UNMAPPED) {
                child->block_table[i][j] = block;
                engine->ref_count[block] += 1;
            }
        }
    }
    list_add_tail(&engine->active_seqs, &child->node);
    return child;
}

/* Give the sequence a block of its own at p. */
static void own_block(LLMEngine *engine, Sequence *seq, kv_pos p)
{
    int *entry = &seq->block_table[p.l1][p.l2];

    if (*entry == UNMAPPED) {
        *entry = find_free_block(engine);
    } else if (engine->ref_count[*entry] > 1) {
        int fresh = find_free_block(engine);
        memcpy(physical(engine, fresh), physical(engine, *entry), BLOCK_SIZE);
        engine->ref_count[*entry] -= 1;
        *entry = fresh;
    }
}

static int needs_block(LLMEngine *engine, Sequence *seq, kv_pos p)
{
    if (seq->block_table[p.l1] == NULL)
        return 1;
    int block = seq->block_table[p.l1][p.l2];
    return block == UNMAPPED || engine->ref_count[block] > 1;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;

    Sequence *seq = find_sequence(engine, seq_id);
    if (seq == NULL)
        return -1;
    if (seq->kv_count / KV_PER_BLOCK >= MAX_LOGICAL_BLOCKS)
        return -1;

    kv_pos p = locate(seq->kv_count);
    if (needs_block(engine, seq, p) && engine->free_local_blocks == 0)
        return -1;

    ensure_l2(seq, p.l1);
    own_block(engine, seq, p);

    int *records = physical(engine, seq->block_table[p.l1][p.l2]);
    records[p.offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;

    for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs; ) {
        Sequence *seq = container_of(n, Sequence, node);
        n = n->next;
        sequence_free(engine, seq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
