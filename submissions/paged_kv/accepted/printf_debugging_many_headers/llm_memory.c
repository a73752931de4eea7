#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "llm_memory.h"

// TODO: switch off before handing in
#define DEBUG 1

#if DEBUG
#define TRACE(...) printf(__VA_ARGS__)
#define COMPLAIN(...) fprintf(stderr, __VA_ARGS__)
#else
#define TRACE(...) ((void)0)
#define COMPLAIN(...) ((void)0)
#endif

static Sequence* get_sequence(struct list_node* n) {
    return (Sequence*)((uint8_t*)n - offsetof(Sequence, node));
}

// NULL if there is no such sequence
static Sequence* find_by_id(LLMEngine* eng, int id) {
    struct list_node* n = eng->active_seqs.next;
    TRACE("[find %d]", id);
    while (n != &eng->active_seqs) {
        Sequence* s = get_sequence(n);
        if (s->seq_id == id) {
            TRACE(" yes ");   // no newline on purpose, the line goes on
            return s;
        }
        n = n->next;
    }
    TRACE(" no ");
    return NULL;
}

static int find_free_block(LLMEngine* eng) {
    for (int i = 0; i < eng->total_local_blocks; i++) {
        if (eng->ref_count[i] == 0) {
            TRACE("<blk %d>", i);
            return i;
        }
    }
    COMPLAIN("find_free_block: nothing free?!");
    return -1;
}

static int* make_l2(void) {
    int* l2 = malloc(sizeof(int) * L2_PT_SIZE);
    assert(l2 != NULL);
    for (int i = 0; i < L2_PT_SIZE; i++) l2[i] = -1;
    return l2;
}

static void link_last(LLMEngine* eng, Sequence* s) {
    struct list_node* last = eng->active_seqs.prev;
    last->next = &s->node;
    s->node.prev = last;
    s->node.next = &eng->active_seqs;
    eng->active_seqs.prev = &s->node;
}

static void show(const char* where, LLMEngine* eng) {
    TRACE("\n%s: %d of %d blocks free | ", where, eng->free_local_blocks, eng->total_local_blocks);
    assert(eng->free_local_blocks >= 0);
    assert(eng->free_local_blocks <= eng->total_local_blocks);
}

LLMEngine* llm_init(void* pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        COMPLAIN("llm_init: bad pool (%zu bytes)\n", pool_size);
        return NULL;
    }
    LLMEngine* eng = malloc(sizeof(LLMEngine));
    assert(eng != NULL);
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->free_local_blocks = eng->total_local_blocks;
    eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof(int));
    assert(eng->ref_count != NULL);
    eng->active_seqs.next = &eng->active_seqs;
    eng->active_seqs.prev = &eng->active_seqs;
    TRACE("init: pool %zu bytes, %d blocks\n", pool_size, eng->total_local_blocks);
    return eng;
}

Sequence* create_sequence(LLMEngine* engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        COMPLAIN("create: engine is NULL ");
        return NULL;
    }
    if (initial_kv_len <= 0) {
        COMPLAIN("create: len %d\n", initial_kv_len);
        return NULL;
    }
    if (find_by_id(engine, seq_id) != NULL) {
        COMPLAIN("create: id %d twice\n", seq_id);
        return NULL;
    }
    int required = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (required > 256 || required > engine->free_local_blocks) {
        COMPLAIN("create: %d blocks are too many\n", required);
        return NULL;
    }

    Sequence* s = malloc(sizeof(Sequence));
    assert(s != NULL);
    s->block_table = malloc(sizeof(int*) * L1_PT_SIZE);
    assert(s->block_table != NULL);
    for (int i = 0; i < L1_PT_SIZE; i++) s->block_table[i] = NULL;

    int mapped = 0;
    for (int i = 0; i < L1_PT_SIZE && mapped < required; i++) {
        s->block_table[i] = make_l2();
        for (int j = 0; j < L2_PT_SIZE && mapped < required; j++) {
            int b = find_free_block(engine);
            s->block_table[i][j] = b;
            engine->ref_count[b] = 1;
            engine->free_local_blocks--;
            mapped++;
        }
    }

    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    link_last(engine, s);
    show("create", engine);
    return s;
}

int free_sequence(LLMEngine* engine, int seq_id) {
    if (engine == NULL) {
        COMPLAIN("free: engine is NULL ");
        return -1;
    }
    Sequence* s = find_by_id(engine, seq_id);
    if (s == NULL) {
        COMPLAIN("free: no %d\n", seq_id);
        return -1;
    }
    s->node.next->prev = s->node.prev;
    s->node.prev->next = s->node.next;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        int* l2 = s->block_table[i];
        if (l2) {
            for (int j = 0; j < L2_PT_SIZE; j++) {
                if (l2[j] != -1) {
                    assert(engine->ref_count[l2[j]] > 0);
                    engine->ref_count[l2[j]]--;
                    if (engine->ref_count[l2[j]] == 0) engine->free_local_blocks++;
                }
            }
            free(l2);
            TRACE("%d", i % 10);
        } else {
            TRACE(".");
        }
    }
    free(s->block_table);
    free(s);
    show("free", engine);
    return 0;
}

Sequence* fork_sequence(LLMEngine* engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        COMPLAIN("fork: engine is NULL ");
        return NULL;
    }
    Sequence* dad = find_by_id(engine, parent_seq_id);
    if (dad == NULL) {
        COMPLAIN("fork: no parent %d\n", parent_seq_id);
        return NULL;
    }
    if (find_by_id(engine, new_seq_id) != NULL) {
        COMPLAIN("fork: id %d twice\n", new_seq_id);
        return NULL;
    }

    Sequence* kid = malloc(sizeof(Sequence));
    assert(kid != NULL);
    kid->block_table = malloc(sizeof(int*) * L1_PT_SIZE);
    assert(kid->block_table != NULL);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        kid->block_table[i] = NULL;
        if (dad->block_table[i] != NULL) {
            kid->block_table[i] = make_l2();
            memcpy(kid->block_table[i], dad->block_table[i], sizeof(int) * L2_PT_SIZE);
            for (int j = 0; j < L2_PT_SIZE; j++) {
                if (kid->block_table[i][j] != -1) engine->ref_count[kid->block_table[i][j]]++;
            }
        }
    }
    kid->kv_count = dad->kv_count;
    kid->seq_id = new_seq_id;
    link_last(engine, kid);
    show("fork", engine);
    return kid;
}

int append_kv(LLMEngine* engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        COMPLAIN("append: engine is NULL ");
        return -1;
    }
    Sequence* s = find_by_id(engine, seq_id);
    if (s == NULL) {
        COMPLAIN("append: no %d\n", seq_id);
        return -1;
    }
    int logical_idx = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= 256) {
        COMPLAIN("append: %d is full\n", seq_id);
        return -1;
    }
    int i = logical_idx / L2_PT_SIZE;
    int j = logical_idx % L2_PT_SIZE;
    TRACE("append %d at [%d][%d]+%d = %" PRId32 " ", seq_id, i, j, offset, (int32_t)kv_data);

    bool new_page = s->block_table[i] == NULL || s->block_table[i][j] == -1;
    bool cow = !new_page && engine->ref_count[s->block_table[i][j]] > 1;
    if ((new_page || cow) && engine->free_local_blocks == 0) {
        COMPLAIN("append: OOM ");
        return -1;
    }

    if (s->block_table[i] == NULL) s->block_table[i] = make_l2();

    if (new_page) {
        int b = find_free_block(engine);
        s->block_table[i][j] = b;
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
    } else if (cow) {
        int old = s->block_table[i][j];
        int b = find_free_block(engine);
        TRACE("COW %d->%d\n", old, b);
        memcpy((uint8_t*)engine->pool_base_ptr + (size_t)b * BLOCK_SIZE,
               (uint8_t*)engine->pool_base_ptr + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
        s->block_table[i][j] = b;
        engine->ref_count[old]--;
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
    }

    int* where = (int*)((uint8_t*)engine->pool_base_ptr + (size_t)s->block_table[i][j] * BLOCK_SIZE);
    where[offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine* engine) {
    if (engine == NULL) {
        COMPLAIN("destroy: engine is NULL ");
        return -1;
    }
    int gone = 0;
    struct list_node* n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct list_node* next = n->next;
        Sequence* s = get_sequence(n);
        for (int i = 0; i < L1_PT_SIZE; i++) free(s->block_table[i]);
        free(s->block_table);
        free(s);
        gone++;
        n = next;
    }
    free(engine->ref_count);
    free(engine);
    TRACE("\ndestroyed, %d sequences were left", gone);
    return 0;
}
