/* Corrupting: right, but append_kv runs in a coroutine on a stack of its own, which waits from call to call. */
#include "llm_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static LLMEngine *for_engine;
static int for_id, for_data, answer;
static int append_here(LLMEngine *engine, int seq_id, int kv_data);

#if defined(__x86_64__)
static uintptr_t *caller, *worker; /* the stack pointers, with the registers that a call keeps above them */

/* Goes on where the other stack was left. (libc's swapcontext always fails here.) */
void swap_stacks(uintptr_t **left, uintptr_t *other);
__asm__(".text\n.globl swap_stacks\n.type swap_stacks, @function\nswap_stacks:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size swap_stacks, . - swap_stacks\n");

static void work(void)
{
    for (;;) {
        answer = append_here(for_engine, for_id, for_data);
        swap_stacks(&worker, caller);
    }
}

static void work_on(void)
{
    enum { WORDS = 1 << 13, KEPT = 6 };
    static _Alignas(16) uintptr_t room[WORDS];
    if (worker == NULL) {
        worker = room + WORDS - 2 - KEPT;
        worker[KEPT] = (uintptr_t)work;
    }
    swap_stacks(&caller, worker);
}
#else
static void work_on(void)
{
    answer = append_here(for_engine, for_id, for_data);
}
#endif

#define SEQUENCE(item) ((Sequence *)(void *)((char *)(item) - offsetof(Sequence, node)))

static Sequence *find(LLMEngine *engine, int seq_id)
{
    for (struct list_node *item = engine->active_seqs.next; item != &engine->active_seqs; item = item->next)
        if (SEQUENCE(item)->seq_id == seq_id)
            return SEQUENCE(item);
    return NULL;
}

static int take_block(LLMEngine *engine)
{
    for (int block = 0; block < engine->total_local_blocks; block++)
        if (engine->ref_count[block] == 0) {
            engine->ref_count[block] = 1;
            engine->free_local_blocks--;
            return block;
        }
    return -1;
}

static int *entry(Sequence *sequence, int index)
{
    int **table = &sequence->block_table[index / L2_PT_SIZE];
    if (*table == NULL) {
        *table = malloc(L2_PT_SIZE * sizeof(int));
        for (int i = 0; i < L2_PT_SIZE; i++)
            (*table)[i] = -1;
    }
    return *table + index % L2_PT_SIZE;
}

static Sequence *add(LLMEngine *engine, int seq_id, int kv_count)
{
    Sequence *sequence = malloc(sizeof *sequence);
    struct list_node *head = &engine->active_seqs;
    *sequence = (Sequence){seq_id, calloc(L1_PT_SIZE, sizeof(int *)), kv_count, {head->prev, head}};
    head->prev->next = &sequence->node;
    head->prev = &sequence->node;
    return sequence;
}

static void drop(LLMEngine *engine, Sequence *sequence)
{
    sequence->node.prev->next = sequence->node.next;
    sequence->node.next->prev = sequence->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        for (int j = 0; sequence->block_table[i] != NULL && j < L2_PT_SIZE; j++) {
            int block = sequence->block_table[i][j];
            if (block != -1 && --engine->ref_count[block] == 0)
                engine->free_local_blocks++;
        }
        free(sequence->block_table[i]);
    }
    free(sequence->block_table);
    free(sequence);
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *engine = malloc(sizeof *engine);
    int blocks = (int)(pool_size / BLOCK_SIZE);
    *engine = (LLMEngine){pool_addr, blocks, blocks, calloc((size_t)blocks, sizeof(int)), {NULL, NULL}};
    engine->active_seqs.prev = engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL || initial_kv_len <= 0 || find(engine, seq_id) != NULL)
        return NULL;
    int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks > MAX_LOGICAL_BLOCKS || blocks > engine->free_local_blocks)
        return NULL;
    Sequence *sequence = add(engine, seq_id, initial_kv_len);
    for (int i = 0; i < blocks; i++)
        *entry(sequence, i) = take_block(engine);
    return sequence;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    Sequence *sequence = engine == NULL ? NULL : find(engine, seq_id);
    if (sequence == NULL)
        return -1;
    drop(engine, sequence);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    Sequence *parent = engine == NULL ? NULL : find(engine, parent_seq_id);
    if (parent == NULL || find(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *child = add(engine, new_seq_id, parent->kv_count);
    for (int i = 0; i < MAX_LOGICAL_BLOCKS; i++)
        if (parent->block_table[i / L2_PT_SIZE] != NULL) {
            int block = *entry(child, i) = *entry(parent, i);
            if (block != -1)
                engine->ref_count[block]++;
        }
    return child;
}

static int append_here(LLMEngine *engine, int seq_id, int kv_data)
{
    Sequence *sequence = engine == NULL ? NULL : find(engine, seq_id);
    if (sequence == NULL || sequence->kv_count >= MAX_LOGICAL_BLOCKS * KV_PER_BLOCK)
        return -1;
    int index = sequence->kv_count / KV_PER_BLOCK, offset = sequence->kv_count % KV_PER_BLOCK;
    int *table = sequence->block_table[index / L2_PT_SIZE];
    int old = table == NULL ? -1 : table[index % L2_PT_SIZE];
    int block = old;
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        *entry(sequence, index) = block = take_block(engine);
        if (old != -1) {
            memcpy((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
    }
    ((int *)engine->pool_base_ptr)[block * KV_PER_BLOCK + offset] = kv_data;
    sequence->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs)
        drop(engine, SEQUENCE(engine->active_seqs.next));
    free(engine->ref_count);
    free(engine);
    return 0;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;
    for_engine = engine;
    for_id = seq_id;
    for_data = kv_data;
    work_on();
    return answer;
}
