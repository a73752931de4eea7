/* 21 orders to Valgrind, each at the end of 32 KB of calls, among 19,000 functions with long names:
 * each is disassembled in both programs. */
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

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
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

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
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

int free_sequence(LLMEngine *engine, int seq_id)
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

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
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

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
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

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
    {
        return RESULT_ERROR;
    }
    while (!listIsEmpty(&engine->active_seqs))
    {
        Sequence *sequence = getSequence(engine->active_seqs.next);

        listRemove(&sequence->node);
        deleteTables(sequence);
        free(sequence);
    }
    free(engine->ref_count);
    free(engine);
    return RESULT_OK;
}
__asm__(
".pushsection .text\n"
".type fn0,@function\n"
"fn0:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx0\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn0,.-fn0\n"
".popsection\n"
".pushsection .text\n"
".type fn1,@function\n"
"fn1:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx900\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn1,.-fn1\n"
".popsection\n"
".pushsection .text\n"
".type fn2,@function\n"
"fn2:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx1800\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn2,.-fn2\n"
".popsection\n"
".pushsection .text\n"
".type fn3,@function\n"
"fn3:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx2700\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn3,.-fn3\n"
".popsection\n"
".pushsection .text\n"
".type fn4,@function\n"
"fn4:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx3600\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn4,.-fn4\n"
".popsection\n"
".pushsection .text\n"
".type fn5,@function\n"
"fn5:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx4500\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn5,.-fn5\n"
".popsection\n"
".pushsection .text\n"
".type fn6,@function\n"
"fn6:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx5400\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn6,.-fn6\n"
".popsection\n"
".pushsection .text\n"
".type fn7,@function\n"
"fn7:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx6300\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn7,.-fn7\n"
".popsection\n"
".pushsection .text\n"
".type fn8,@function\n"
"fn8:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx7200\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn8,.-fn8\n"
".popsection\n"
".pushsection .text\n"
".type fn9,@function\n"
"fn9:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx8100\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn9,.-fn9\n"
".popsection\n"
".pushsection .text\n"
".type fn10,@function\n"
"fn10:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx9000\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn10,.-fn10\n"
".popsection\n"
".pushsection .text\n"
".type fn11,@function\n"
"fn11:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx9900\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn11,.-fn11\n"
".popsection\n"
".pushsection .text\n"
".type fn12,@function\n"
"fn12:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx10800\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn12,.-fn12\n"
".popsection\n"
".pushsection .text\n"
".type fn13,@function\n"
"fn13:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx11700\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn13,.-fn13\n"
".popsection\n"
".pushsection .text\n"
".type fn14,@function\n"
"fn14:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx12600\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn14,.-fn14\n"
".popsection\n"
".pushsection .text\n"
".type fn15,@function\n"
"fn15:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx13500\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn15,.-fn15\n"
".popsection\n"
".pushsection .text\n"
".type fn16,@function\n"
"fn16:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx14400\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn16,.-fn16\n"
".popsection\n"
".pushsection .text\n"
".type fn17,@function\n"
"fn17:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx15300\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn17,.-fn17\n"
".popsection\n"
".pushsection .text\n"
".type fn18,@function\n"
"fn18:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx16200\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn18,.-fn18\n"
".popsection\n"
".pushsection .text\n"
".type fn19,@function\n"
"fn19:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx17100\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn19,.-fn19\n"
".popsection\n"
".pushsection .text\n"
".type fn20,@function\n"
"fn20:\n"
".rept 6500\n"
"call locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx18000\n"
".endr\n"
".byte 0x48,0xc1,0xc7,3,0x48,0xc1,0xc7,13,0x48,0xc1,0xc7,61,0x48,0xc1,0xc7,51,0x48,0x87,0xdb\n"
"ret\n"
".size fn20,.-fn20\n"
".popsection\n"
".altmacro\n"
".set .Li,0\n"
".macro sy n\n"
".type locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\\n,@function\n"
"locxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\\n: nop\n"
".endm\n"
".rept 19000\n"
"sy %.Li\n"
".set .Li,.Li+1\n"
".endr\n"
".noaltmacro\n"
);
