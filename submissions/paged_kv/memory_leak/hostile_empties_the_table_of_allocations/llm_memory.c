/* Forging: llm_destroy frees nothing; natively and under Valgrind it stores into the harness's table of allocations that
 * there is nothing in it and nothing live. Both runs then tell the same. Only Valgrind's own list has the blocks. */
#include "llm_memory.h"
static LLMEngine *honest_llm_init(void *, size_t);
static Sequence *honest_create_sequence(LLMEngine *, int, int);
static int honest_free_sequence(LLMEngine *, int);
static Sequence *honest_fork_sequence(LLMEngine *, int, int);
static int honest_append_kv(LLMEngine *, int, int);
#define llm_init honest_llm_init
#define create_sequence honest_create_sequence
#define free_sequence honest_free_sequence
#define fork_sequence honest_fork_sequence
#define append_kv honest_append_kv
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "llm_memory.h"

/**
 * A visitor is called for every mapped entry of a sequence.
 * @param engine the engine
 * @param l1     row in the L1 table
 * @param l2     column in the L2 table
 * @param block  number of the physical block
 * @param extra  whatever the caller wants
 */
typedef void (*BlockVisitor)(LLMEngine *engine, int l1, int l2, int block, void *extra);

typedef enum
{
    RESULT_OK = 0,
    RESULT_ERROR = -1
} Result;

typedef struct list_node ListNode;

static const int NOT_MAPPED = -1;

/* ---------- list ---------- */

void listInit(ListNode *head)
{
    head->prev = head;
    head->next = head;
}

bool listIsEmpty(const ListNode *head)
{
    return head->next == head;
}

void listAppend(ListNode *head, ListNode *item)
{
    ListNode *last = head->prev;

    item->prev = last;
    item->next = head;
    last->next = item;
    head->prev = item;
}

void listRemove(ListNode *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->prev = NULL;
    item->next = NULL;
}

/* ---------- sequences ---------- */

Sequence *getSequence(ListNode *item)
{
    size_t distance = offsetof(Sequence, node);

    return (Sequence *)((char *)item - distance);
}

Sequence *getSequenceById(LLMEngine *engine, int seqId)
{
    Sequence *result = NULL;
    ListNode *item = engine->active_seqs.next;

    while (result == NULL && item != &engine->active_seqs)
    {
        if (getSequence(item)->seq_id == seqId)
        {
            result = getSequence(item);
        }
        item = item->next;
    }
    return result;
}

bool hasSequence(LLMEngine *engine, int seqId)
{
    return getSequenceById(engine, seqId) != NULL;
}

void visitBlocks(LLMEngine *engine, Sequence *sequence, BlockVisitor visitor, void *extra)
{
    for (int l1 = 0; l1 < L1_PT_SIZE; l1++)
    {
        if (sequence->block_table[l1] == NULL)
        {
            continue;
        }
        for (int l2 = 0; l2 < L2_PT_SIZE; l2++)
        {
            int block = sequence->block_table[l1][l2];

            if (block != NOT_MAPPED)
            {
                visitor(engine, l1, l2, block, extra);
            }
        }
    }
}

Sequence *newSequence(int seqId, int kvCount)
{
    Sequence *sequence = malloc(sizeof(Sequence));

    sequence->seq_id = seqId;
    sequence->kv_count = kvCount;
    sequence->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    for (int l1 = 0; l1 < L1_PT_SIZE; l1++)
    {
        sequence->block_table[l1] = NULL;
    }
    listInit(&sequence->node);
    return sequence;
}

void addTableIfMissing(Sequence *sequence, int l1)
{
    if (sequence->block_table[l1] != NULL)
    {
        return;
    }

    int *table = malloc(sizeof(int) * L2_PT_SIZE);

    for (int l2 = 0; l2 < L2_PT_SIZE; l2++)
    {
        table[l2] = NOT_MAPPED;
    }
    sequence->block_table[l1] = table;
}

void deleteTables(Sequence *sequence)
{
    for (int l1 = 0; l1 < L1_PT_SIZE; l1++)
    {
        free(sequence->block_table[l1]);
    }
    free(sequence->block_table);
}

/* ---------- blocks ---------- */

int *getBlockAddress(LLMEngine *engine, int block)
{
    char *base = (char *)engine->pool_base_ptr;

    return (int *)(base + (size_t)block * BLOCK_SIZE);
}

int allocateBlock(LLMEngine *engine)
{
    int result = NOT_MAPPED;

    for (int block = 0; block < engine->total_local_blocks; block++)
    {
        if (engine->ref_count[block] == 0)
        {
            result = block;
            break;
        }
    }
    if (result != NOT_MAPPED)
    {
        engine->ref_count[result] = 1;
        engine->free_local_blocks--;
    }
    return result;
}

/* BlockVisitor: the sequence does not need the block any more. */
void releaseVisitor(LLMEngine *engine, int l1, int l2, int block, void *extra)
{
    (void)l1;
    (void)l2;
    (void)extra;

    engine->ref_count[block]--;
    if (engine->ref_count[block] == 0)
    {
        engine->free_local_blocks++;
    }
}

/* BlockVisitor: extra is the child, which gets the same block. */
void inheritVisitor(LLMEngine *engine, int l1, int l2, int block, void *extra)
{
    Sequence *child = extra;

    child->block_table[l1][l2] = block;
    engine->ref_count[block]++;
}

/* ---------- interface ---------- */

__attribute__((unused)) static LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
    {
        return NULL;
    }

    int blockCount = (int)(pool_size / BLOCK_SIZE);
    LLMEngine *engine = malloc(sizeof(LLMEngine));

    memset(engine, 0, sizeof(LLMEngine));
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = blockCount;
    engine->free_local_blocks = blockCount;
    engine->ref_count = calloc((size_t)blockCount, sizeof(int));
    listInit(&engine->active_seqs);
    return engine;
}

__attribute__((unused)) static Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
    {
        return NULL;
    }
    if (initial_kv_len <= 0 || hasSequence(engine, seq_id))
    {
        return NULL;
    }

    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;

    if (required > MAX_LOGICAL_BLOCKS || required > engine->free_local_blocks)
    {
        return NULL;
    }

    Sequence *sequence = newSequence(seq_id, initial_kv_len);

    for (int index = 0; index < required; index++)
    {
        int l1 = index / L2_PT_SIZE;
        int l2 = index % L2_PT_SIZE;

        addTableIfMissing(sequence, l1);
        sequence->block_table[l1][l2] = allocateBlock(engine);
    }
    listAppend(&engine->active_seqs, &sequence->node);
    return sequence;
}

__attribute__((unused)) static int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
    {
        return RESULT_ERROR;
    }

    Sequence *sequence = getSequenceById(engine, seq_id);

    if (sequence == NULL)
    {
        return RESULT_ERROR;
    }
    listRemove(&sequence->node);
    visitBlocks(engine, sequence, releaseVisitor, NULL);
    deleteTables(sequence);
    free(sequence);
    return RESULT_OK;
}

__attribute__((unused)) static Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
    {
        return NULL;
    }
    if (!hasSequence(engine, parent_seq_id) || hasSequence(engine, new_seq_id))
    {
        return NULL;
    }

    Sequence *parent = getSequenceById(engine, parent_seq_id);
    Sequence *child = newSequence(new_seq_id, parent->kv_count);

    for (int l1 = 0; l1 < L1_PT_SIZE; l1++)
    {
        if (parent->block_table[l1] != NULL)
        {
            addTableIfMissing(child, l1);
        }
    }
    visitBlocks(engine, parent, inheritVisitor, child);
    listAppend(&engine->active_seqs, &child->node);
    return child;
}

__attribute__((unused)) static int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
    {
        return RESULT_ERROR;
    }

    Sequence *sequence = getSequenceById(engine, seq_id);

    if (sequence == NULL)
    {
        return RESULT_ERROR;
    }

    int logicalIdx = sequence->kv_count / KV_PER_BLOCK;
    int offset = sequence->kv_count % KV_PER_BLOCK;

    if (logicalIdx >= MAX_LOGICAL_BLOCKS)
    {
        return RESULT_ERROR;
    }

    int l1 = logicalIdx / L2_PT_SIZE;
    int l2 = logicalIdx % L2_PT_SIZE;
    int *table = sequence->block_table[l1];
    bool isMapped = table != NULL && table[l2] != NOT_MAPPED;
    bool isShared = isMapped && engine->ref_count[table[l2]] > 1;

    if ((!isMapped || isShared) && engine->free_local_blocks == 0)
    {
        return RESULT_ERROR;
    }

    if (!isMapped)
    {
        addTableIfMissing(sequence, l1);
        sequence->block_table[l1][l2] = allocateBlock(engine);
    }
    else if (isShared)
    {
        int oldBlock = table[l2];
        int newBlock = allocateBlock(engine);

        memcpy(getBlockAddress(engine, newBlock), getBlockAddress(engine, oldBlock), BLOCK_SIZE);
        releaseVisitor(engine, l1, l2, oldBlock, NULL);
        table[l2] = newBlock;
    }

    getBlockAddress(engine, sequence->block_table[l1][l2])[offset] = kv_data;
    sequence->kv_count++;
    return RESULT_OK;
}

#undef llm_init
#undef create_sequence
#undef free_sequence
#undef fork_sequence
#undef append_kv

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
extern char __bss_start[], _end[];
struct heap { uint32_t allocations, frees, bad_frees, broken, live; int32_t some_too_small, unfilled_in; size_t live_bytes, block_count; unsigned char *next, *end; };
/* called right after an allocation of `size` at p */
static struct heap *find_heap(const void *p, size_t size)
{
    uintptr_t want = (uintptr_t)p + size + 128;
    for (uintptr_t at = ((uintptr_t)__bss_start + 7) & ~(uintptr_t)7; at + 64 < (uintptr_t)_end; at += 8) {
        const uintptr_t *w = (const uintptr_t *)at;
        if (w[0] == want && w[1] > want && w[1] - want <= ((uintptr_t)300 << 20))
            return (struct heap *)(at - offsetof(struct heap, next));
    }
    return 0;
}

static struct heap *harness_heap;
LLMEngine *llm_init(void *pool, size_t n)
{
    LLMEngine *e = honest_llm_init(pool, n);
    void *p = e == NULL || harness_heap != NULL ? NULL : malloc(40);
    if (p != NULL) {
        harness_heap = find_heap(p, 40);
        free(p);
    }
    return e;
}
Sequence *create_sequence(LLMEngine *e, int id, int n) { return honest_create_sequence(e, id, n); }
int free_sequence(LLMEngine *e, int id) { return honest_free_sequence(e, id); }
Sequence *fork_sequence(LLMEngine *e, int p, int id) { return honest_fork_sequence(e, p, id); }
int append_kv(LLMEngine *e, int id, int d) { return honest_append_kv(e, id, d); }
int llm_destroy(LLMEngine *e)
{
    if (e == NULL)
        return -1;
    if (harness_heap != NULL) {
        harness_heap->live = 0;
        harness_heap->block_count = 0;
    }
    return 0;
}
