#include "llm_memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* =====================================================================
 *  Statistics (only for me, to see how much copy-on-write helps)
 * ===================================================================== */
static unsigned long stat_created, stat_forked, stat_freed, stat_rejected;
static unsigned long stat_pages, stat_cow, stat_in_place;
static int           stat_peak_used = 0;

void llm_print_statistics(void);        /* call it from gdb or from main */

void llm_print_statistics(void)
{
    printf("sequences: %lu created, %lu forked, %lu freed, %lu calls rejected\n",
           stat_created, stat_forked, stat_freed, stat_rejected);
    printf("appends:   %lu new pages, %lu copies, %lu in place, peak %d blocks\n",
           stat_pages, stat_cow, stat_in_place, stat_peak_used);
}

/* =====================================================================
 *  Macros
 * ===================================================================== */
#define NO_BLOCK            (-1)

#define REJECT(value)       return (stat_rejected++, (value))
#define CHECK(cond, value)  if (!(cond)) REJECT(value)
#define CHECK_ENGINE(value) CHECK(engine != NULL, value)

#define SEQ_OF(n)           ((Sequence *)((char *)(n) - offsetof(Sequence, node)))

/* sets s to the sequence with that id or to NULL */
#define FIND(s, id)                                                             \
    do {                                                                        \
        struct list_node *n_ = engine->active_seqs.next;                        \
        for ((s) = NULL; n_ != &engine->active_seqs; n_ = n_->next)             \
            if (SEQ_OF(n_)->seq_id == (id)) { (s) = SEQ_OF(n_); break; }        \
    } while (0)

/* sets b to the first free block, marks it used */
#define FIRST_FIT(b)                                                            \
    do {                                                                        \
        for ((b) = 0; (b) <= engine->total_local_blocks - 1; (b)++)             \
            if (engine->ref_count[(b)] == 0) break;                             \
        engine->ref_count[(b)] = 1;                                             \
        engine->free_local_blocks--;                                            \
        if (engine->total_local_blocks - engine->free_local_blocks > stat_peak_used) \
            stat_peak_used = engine->total_local_blocks - engine->free_local_blocks; \
    } while (0)

#define EACH_L1(i)          for (int i = 0; i < L1_PT_SIZE; i++)
#define EACH_L2(j)          for (int j = 0; j < L2_PT_SIZE; j++)

#define NEW_L2(t)           do { (t) = malloc(L2_PT_SIZE * sizeof(int)); EACH_L2(j_) (t)[j_] = NO_BLOCK; } while (0)

#define BLOCK_ADDR(b)       ((int *)(engine->pool_base_ptr + (long)(b) * BLOCK_SIZE))

#define ADD_TAIL(s)                                                             \
    do {                                                                        \
        (s)->node.prev = engine->active_seqs.prev;                              \
        (s)->node.next = &engine->active_seqs;                                  \
        engine->active_seqs.prev->next = &(s)->node;                            \
        engine->active_seqs.prev = &(s)->node;                                  \
    } while (0)

/* =====================================================================
 *  API
 * ===================================================================== */
LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    CHECK(pool_addr != NULL && pool_size >= BLOCK_SIZE, NULL);

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    engine->pool_base_ptr      = pool_addr;
    engine->total_local_blocks = pool_size / BLOCK_SIZE;
    engine->free_local_blocks  = pool_size / BLOCK_SIZE;
    engine->ref_count          = calloc(pool_size / BLOCK_SIZE, sizeof(int));
    engine->active_seqs.prev   = &engine->active_seqs;
    engine->active_seqs.next   = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    CHECK_ENGINE(NULL);
    CHECK(initial_kv_len > 0, NULL);

    Sequence *seq;
    FIND(seq, seq_id);
    CHECK(seq == NULL, NULL);

    int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    CHECK(blocks <= MAX_LOGICAL_BLOCKS, NULL);
    CHECK(blocks <= engine->free_local_blocks, NULL);

    seq              = malloc(sizeof(Sequence));
    seq->seq_id      = seq_id;
    seq->kv_count    = initial_kv_len;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    EACH_L1(i) seq->block_table[i] = NULL;

    int b;
    EACH_L1(i)
    {
        if (blocks == 0) break;
        NEW_L2(seq->block_table[i]);
        EACH_L2(j)
        {
            if (blocks == 0) break;
            FIRST_FIT(b);
            seq->block_table[i][j] = b;
            blocks--;
        }
    }

    ADD_TAIL(seq);
    stat_created++;
    return seq;
}

static void destroy_one(LLMEngine *engine, Sequence *seq)
{
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    EACH_L1(i)
    {
        if (seq->block_table[i] != NULL)
        {
            EACH_L2(j)
            {
                int b = seq->block_table[i][j];
                if (b == NO_BLOCK) continue;
                if (--engine->ref_count[b] == 0) engine->free_local_blocks++;
            }
            free(seq->block_table[i]);
        }
    }
    free(seq->block_table);
    free(seq);
    stat_freed++;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    CHECK_ENGINE(-1);

    Sequence *seq;
    FIND(seq, seq_id);
    CHECK(seq != NULL, -1);

    destroy_one(engine, seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    CHECK_ENGINE(NULL);

    Sequence *parent, *child;
    FIND(parent, parent_seq_id);
    FIND(child, new_seq_id);
    CHECK(parent != NULL, NULL);
    CHECK(child == NULL, NULL);

    child              = malloc(sizeof(Sequence));
    child->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    EACH_L1(i)
    {
        if (parent->block_table[i] == NULL) continue;
        NEW_L2(child->block_table[i]);
        EACH_L2(j)
        {
            int b = parent->block_table[i][j];
            if (b == NO_BLOCK) continue;
            child->block_table[i][j] = b;
            engine->ref_count[b]++;
        }
    }
    child->seq_id   = new_seq_id;
    child->kv_count = parent->kv_count;

    ADD_TAIL(child);
    stat_forked++;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    CHECK_ENGINE(-1);

    Sequence *seq;
    FIND(seq, seq_id);
    CHECK(seq != NULL, -1);

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset      = seq->kv_count % KV_PER_BLOCK;
    CHECK(logical_idx < MAX_LOGICAL_BLOCKS, -1);

    int i = logical_idx / L2_PT_SIZE;
    int j = logical_idx % L2_PT_SIZE;

    enum { IN_PLACE, NEW_PAGE, COPY } action;
    if (seq->block_table[i] == NULL || seq->block_table[i][j] == NO_BLOCK)
        action = NEW_PAGE;
    else if (engine->ref_count[seq->block_table[i][j]] > 1)
        action = COPY;
    else
        action = IN_PLACE;

    CHECK(action == IN_PLACE || engine->free_local_blocks > 0, -1);

    int b;
    switch (action)
    {
    case NEW_PAGE:
        if (seq->block_table[i] == NULL) NEW_L2(seq->block_table[i]);
        FIRST_FIT(b);
        seq->block_table[i][j] = b;
        stat_pages++;
        break;
    case COPY:
        FIRST_FIT(b);
        memcpy(BLOCK_ADDR(b), BLOCK_ADDR(seq->block_table[i][j]), KV_PER_BLOCK * KV_SIZE);
        engine->ref_count[seq->block_table[i][j]]--;
        seq->block_table[i][j] = b;
        stat_cow++;
        break;
    case IN_PLACE:
        stat_in_place++;
        break;
    }

    *(BLOCK_ADDR(seq->block_table[i][j]) + offset) = kv_data;
    seq->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    CHECK_ENGINE(-1);

    for (struct list_node *n = engine->active_seqs.prev, *before; n != &engine->active_seqs; n = before)
    {
        before = n->prev;       /* from the tail to the front */
        destroy_one(engine, SEQ_OF(n));
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
