#include "llm_memory.h"
#include <string.h>
#include <stdlib.h>

#define SEQ_OF(p) ((Sequence *)((char *)(p) - offsetof(Sequence, node)))

static Sequence *search(LLMEngine *engine, int id) {
    for (struct list_node *p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next)
        if (SEQ_OF(p)->seq_id == id)
            return SEQ_OF(p);
    return NULL;
}

static int find_free_block(LLMEngine *engine) {
    int i;
    for (i = 0; i < engine->total_local_blocks; i++)
        if (engine->ref_count[i] == 0)
            return i;
    return -1;
}

static void assign_block(LLMEngine *engine, int *entry, int block) {
    engine->ref_count[block] = 1;
    engine->free_local_blocks--;
    *entry = block;
}

static int *alloc_l2(void) {
    int *l2 = malloc(L2_PT_SIZE * sizeof *l2);
    if (!l2)
        return NULL;
    memset(l2, 0xff, L2_PT_SIZE * sizeof *l2);
    return l2;
}

static Sequence *alloc_seq(int id) {
    Sequence *s = calloc(1, sizeof(Sequence));
    if (!s)
        return NULL;
    s->seq_id = id;
    s->block_table = malloc(sizeof(int *) * L1_PT_SIZE);
    if (!s->block_table) {
        free(s);
        return NULL;
    }
    for (unsigned i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    return s;
}

static void link_tail(LLMEngine *engine, Sequence *s) {
    s->node.next = &engine->active_seqs;
    s->node.prev = engine->active_seqs.prev;
    engine->active_seqs.prev->next = &s->node;
    engine->active_seqs.prev = &s->node;
}

/* Returns 1 if the block became free. */
static int unref(LLMEngine *engine, int block) {
    engine->ref_count[block] -= 1;
    if (engine->ref_count[block] > 0)
        return 0;
    engine->free_local_blocks++;
    return 1;
}

static void free_tables(LLMEngine *engine, Sequence *s) {
    for (unsigned i = 0; i < L1_PT_SIZE; i++) {
        int *l2 = s->block_table[i];
        if (!l2)
            continue;
        int released = 0;
        for (unsigned j = 0; j < L2_PT_SIZE; j++)
            if (l2[j] != -1)
                released += unref(engine, l2[j]);
        if (released > 0)
            free(l2);
    }
    free(s->block_table);
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;

    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (!engine)
        return NULL;
    engine->total_local_blocks = pool_size / BLOCK_SIZE;
    engine->free_local_blocks = engine->total_local_blocks;
    engine->pool_base_ptr = pool_addr;
    engine->ref_count = calloc(engine->total_local_blocks, sizeof(int));
    if (!engine->ref_count) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.next = engine->active_seqs.prev = &engine->active_seqs;
    return engine;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (!engine)
        return NULL;
    if (initial_kv_len <= 0)
        return NULL;
    if (search(engine, seq_id))
        return NULL;

    int need = initial_kv_len / KV_PER_BLOCK + (initial_kv_len % KV_PER_BLOCK != 0);
    if (need > MAX_LOGICAL_BLOCKS || need > engine->free_local_blocks)
        return NULL;

    Sequence *s = alloc_seq(seq_id);
    if (!s)
        return NULL;
    for (int i = 0; i < need; i++) {
        int a = i / L2_PT_SIZE, b = i % L2_PT_SIZE;
        if (!s->block_table[a])
            s->block_table[a] = alloc_l2();
        if (!s->block_table[a]) {
            free_tables(engine, s);
            free(s);
            return NULL;
        }
        assign_block(engine, &s->block_table[a][b], find_free_block(engine));
    }
    s->kv_count = initial_kv_len;
    link_tail(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (!engine)
        return -1;

    Sequence *s = search(engine, seq_id);
    if (!s)
        return -1;
    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;
    free_tables(engine, s);
    free(s);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (!engine)
        return NULL;

    Sequence *parent = search(engine, parent_seq_id);
    if (!parent || search(engine, new_seq_id))
        return NULL;
    Sequence *child = alloc_seq(new_seq_id);
    if (!child)
        return NULL;

    for (unsigned i = 0; i < L1_PT_SIZE; i++) {
        if (parent->block_table[i]) {
            int *l2 = alloc_l2();
            if (!l2) {
                free_tables(engine, child);
                free(child);
                return NULL;
            }
            for (unsigned j = 0; j < L2_PT_SIZE; j++) {
                l2[j] = parent->block_table[i][j];
                if (l2[j] != -1)
                    engine->ref_count[l2[j]]++;
            }
            child->block_table[i] = l2;
        }
    }
    child->kv_count = parent->kv_count;
    link_tail(engine, child);
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (!engine)
        return -1;

    Sequence *s = search(engine, seq_id);
    if (!s)
        return -1;
    int logical_idx = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
        return -1;

    int a = logical_idx / L2_PT_SIZE, b = logical_idx % L2_PT_SIZE;
    int phys = s->block_table[a] ? s->block_table[a][b] : -1;
    int exclusive = phys != -1 && engine->ref_count[phys] == 1;
    if (!exclusive && engine->free_local_blocks == 0)
        return -1;

    if (!s->block_table[a]) {
        s->block_table[a] = alloc_l2();
        if (!s->block_table[a])
            return -1;
    }
    if (!exclusive) {
        int *entry = &s->block_table[a][b];
        assign_block(engine, entry, find_free_block(engine));
        if (phys != -1) {
            char *base = engine->pool_base_ptr;
            memcpy(base + *entry * BLOCK_SIZE, base + phys * BLOCK_SIZE, BLOCK_SIZE);
            unref(engine, phys);
        }
        phys = *entry;
    }

    int *records = engine->pool_base_ptr;
    records[phys * KV_PER_BLOCK + offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (!engine)
        return -1;

    while (engine->active_seqs.next != &engine->active_seqs)
        free_sequence(engine, SEQ_OF(engine->active_seqs.next)->seq_id);
    free(engine->ref_count);
    free(engine);
    return 0;
}
