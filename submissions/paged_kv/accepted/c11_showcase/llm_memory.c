/* HW3, written in "modern" C (C11). */

#include "llm_memory.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>

/* ---- compile time checks ------------------------------------------------ */

_Static_assert(sizeof(int[16]) == BLOCK_SIZE, "a block must be 16 ints");
_Static_assert(KV_PER_BLOCK * sizeof(int) == BLOCK_SIZE, "records must fill a block");
_Static_assert(sizeof(int) == 4, "int must have 4 bytes");
_Static_assert(L1_PT_SIZE == 16 && L2_PT_SIZE == 16, "tables are 16 x 16");
_Static_assert(offsetof(Sequence, node) > offsetof(Sequence, kv_count), "node comes last");

/* ---- types ---------------------------------------------------------------- */

/* Physical block: as a whole, or record by record. */
typedef union Block {
    int record[KV_PER_BLOCK];
    unsigned char raw[BLOCK_SIZE];
} Block;

_Static_assert(alignof(Block) == alignof(int), "block needs int alignment only");

/* Where a logical position lives. The anonymous struct groups the table part. */
typedef struct Place {
    struct {
        unsigned l1;
        unsigned l2;
    };
    unsigned offset;
    bool in_range;
} Place;

enum { UNMAPPED = -1, CAPACITY = L1_PT_SIZE * L2_PT_SIZE };

static const int empty_table[L2_PT_SIZE] = {
    UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED,
    UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED, UNMAPPED,
};

_Static_assert(sizeof empty_table == sizeof(int[16]), "template has the wrong size");

/* The same name for "the object around the node", const or not. */
#define SEQUENCE_OF(n)                                                               \
    _Generic((n),                                                                    \
        struct list_node *: (Sequence *)((uintptr_t)(n) - offsetof(Sequence, node)), \
        const struct list_node *: (const Sequence *)((uintptr_t)(n) - offsetof(Sequence, node)))

#define NEW(type, ...) memcpy(malloc(sizeof(type)), &(type){ __VA_ARGS__ }, sizeof(type))

/* ---- helpers -------------------------------------------------------------- */

static inline Place locate(int kv_count)
{
    const unsigned block = (unsigned)kv_count / KV_PER_BLOCK;
    return (Place){
        .l1 = block / L2_PT_SIZE,
        .l2 = block % L2_PT_SIZE,
        .offset = (unsigned)kv_count % KV_PER_BLOCK,
        .in_range = block < CAPACITY,
    };
}

static inline Block *block_at(LLMEngine *engine, int id)
{
    return &((Block *)engine->pool_base_ptr)[id];
}

static const Sequence *peek(const LLMEngine *engine, int seq_id)
{
    for (const struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next) {
        const Sequence *s = SEQUENCE_OF(n);
        if (s->seq_id == seq_id)
            return s;
    }
    return NULL;
}

static Sequence *lookup(LLMEngine *engine, int seq_id)
{
    for (struct list_node *n = engine->active_seqs.next; n != &engine->active_seqs; n = n->next)
        if (SEQUENCE_OF(n)->seq_id == seq_id)
            return SEQUENCE_OF(n);
    return NULL;
}

static int *clone_table(const int table[static L2_PT_SIZE])
{
    return memcpy(malloc(sizeof(int[16])), table, sizeof(int[16]));
}

static int claim_block(LLMEngine *engine)
{
    for (int id = 0; id < engine->total_local_blocks; ++id) {
        if (engine->ref_count[id] == 0) {
            engine->ref_count[id] = 1;
            --engine->free_local_blocks;
            return id;
        }
    }
    return UNMAPPED;
}

static void drop_block(LLMEngine *engine, int id)
{
    if (id != UNMAPPED && --engine->ref_count[id] == 0)
        ++engine->free_local_blocks;
}

static Sequence *enlist(LLMEngine *engine, Sequence *s)
{
    struct list_node *const head = &engine->active_seqs;
    s->node = (struct list_node){ .prev = head->prev, .next = head };
    s->node.prev->next = head->prev = &s->node;
    return s;
}

static void demolish(LLMEngine *engine, Sequence *s)
{
    s->node.next->prev = s->node.prev;
    s->node.prev->next = s->node.next;
    for (int **l1 = s->block_table; l1 != s->block_table + L1_PT_SIZE; ++l1) {
        for (int *slot = *l1; slot && slot != *l1 + L2_PT_SIZE; ++slot)
            drop_block(engine, *slot);
        free(*l1);
    }
    free(s->block_table);
    free(s);
}

/* ---- API ------------------------------------------------------------------ */

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;

    const size_t blocks = pool_size / BLOCK_SIZE;
    LLMEngine *engine = NEW(LLMEngine,
        .pool_base_ptr = pool_addr,
        .total_local_blocks = (int)blocks,
        .free_local_blocks = (int)blocks,
        .ref_count = calloc(blocks, sizeof(int)));
    engine->active_seqs = (struct list_node){ &engine->active_seqs, &engine->active_seqs };
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || peek(engine, seq_id) != NULL)
        return NULL;

    const int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > CAPACITY || required > engine->free_local_blocks)
        return NULL;

    Sequence *s = NEW(Sequence,
        .seq_id = seq_id,
        .block_table = malloc(sizeof(int *[L1_PT_SIZE])),
        .kv_count = initial_kv_len);
    for (int i = 0; i < L1_PT_SIZE; ++i)
        s->block_table[i] = NULL;

    for (int done = 0; done < required; ++done) {
        const Place at = locate(done * KV_PER_BLOCK);
        if (s->block_table[at.l1] == NULL)
            s->block_table[at.l1] = clone_table(empty_table);
        s->block_table[at.l1][at.l2] = claim_block(engine);
    }
    return enlist(engine, s);
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;

    Sequence *s = lookup(engine, seq_id);
    if (s == NULL)
        return -1;
    demolish(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;

    const Sequence *parent = peek(engine, parent_seq_id);
    if (parent == NULL || peek(engine, new_seq_id) != NULL)
        return NULL;

    Sequence *child = NEW(Sequence,
        .seq_id = new_seq_id,
        .block_table = malloc(sizeof(int *[L1_PT_SIZE])),
        .kv_count = parent->kv_count);

    for (int i = 0; i < L1_PT_SIZE; ++i) {
        child->block_table[i] = parent->block_table[i] ? clone_table(parent->block_table[i]) : NULL;
        for (int j = 0; child->block_table[i] && j < L2_PT_SIZE; ++j)
            if (child->block_table[i][j] != UNMAPPED)
                ++engine->ref_count[child->block_table[i][j]];
    }
    return enlist(engine, child);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;

    Sequence *s = lookup(engine, seq_id);
    if (s == NULL)
        return -1;

    const Place at = locate(s->kv_count);
    if (!at.in_range)
        return -1;

    int **table = &s->block_table[at.l1];
    const int old = *table ? (*table)[at.l2] : UNMAPPED;
    const bool unmapped = old == UNMAPPED;
    const bool shared = !unmapped && engine->ref_count[old] > 1;

    if ((unmapped || shared) && engine->free_local_blocks == 0)
        return -1;

    if (*table == NULL)
        *table = clone_table(empty_table);
    if (unmapped || shared)
        (*table)[at.l2] = claim_block(engine);
    if (shared) {
        *block_at(engine, (*table)[at.l2]) = *block_at(engine, old); /* all 64 bytes at once */
        drop_block(engine, old);
    }

    block_at(engine, (*table)[at.l2])->record[at.offset] = kv_data;
    ++s->kv_count;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;

    for (struct list_node *n = engine->active_seqs.next, *next; n != &engine->active_seqs; n = next) {
        next = n->next;
        demolish(engine, SEQUENCE_OF(n));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
