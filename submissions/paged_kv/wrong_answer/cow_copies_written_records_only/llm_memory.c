#include "llm_memory.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define UNMAPPED (-1)
#define L1_BYTES (L1_PT_SIZE * sizeof(int *))
#define L2_BYTES (L2_PT_SIZE * sizeof(int))
#define BLOCKS_FOR(n) (((size_t)(n) + KV_PER_BLOCK - 1) / KV_PER_BLOCK)
#define SEQ_OF(n) ((Sequence *)((char *)(n) - offsetof(Sequence, node)))
#define BLOCK_ADDR(e, id) ((char *)(e)->pool_base_ptr + (size_t)(id) * BLOCK_SIZE)

/* ---- list of sequences ---- */

static void link_tail(struct list_node *head, struct list_node *n) {
    struct list_node *last = head->prev;

    n->prev = last;
    n->next = head;
    last->next = n;
    head->prev = n;
}

static void unlink_node(struct list_node *n) {
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->prev = n->next = n;
}

static Sequence *lookup(LLMEngine *engine, int seq_id) {
    struct list_node *head = &engine->active_seqs;
    struct list_node *n;

    for (n = head->next; n != head; n = n->next) {
        if (SEQ_OF(n)->seq_id == seq_id) {
            return SEQ_OF(n);
        }
    }
    return NULL;
}

/* ---- physical blocks ---- */

/* first block that nobody uses, or -1 */
static int first_fit(const LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            return i;
        }
    }
    return -1;
}

static void claim(LLMEngine *engine, int id) {
    engine->ref_count[id] = 1;
    engine->free_local_blocks--;
}

static void drop(LLMEngine *engine, int id) {
    if (--engine->ref_count[id] == 0) {
        engine->free_local_blocks++;
    }
}

/* ---- tables ---- */

static int *new_l2(void) {
    int *t = malloc(L2_BYTES);

    if (t != NULL) {
        for (int *p = t; p < t + L2_PT_SIZE; p++) {
            *p = UNMAPPED;
        }
    }
    return t;
}

static Sequence *new_seq(int seq_id) {
    Sequence *s = malloc(sizeof *s);

    if (s == NULL) {
        return NULL;
    }
    s->block_table = malloc(L1_BYTES);
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    for (int **p = s->block_table; p < s->block_table + L1_PT_SIZE; p++) {
        *p = NULL;
    }
    s->seq_id = seq_id;
    s->kv_count = 0;
    s->node.prev = s->node.next = &s->node;
    return s;
}

/* gives back everything that a detached sequence holds */
static void release(LLMEngine *engine, Sequence *s) {
    int **l1 = s->block_table;
    int **l1_end = l1 + L1_PT_SIZE;

    for (; l1 < l1_end; l1++) {
        if (*l1 == NULL) {
            continue;
        }
        for (int *p = *l1; p < *l1 + L2_PT_SIZE; p++) {
            if (*p != UNMAPPED) {
                drop(engine, *p);
            }
        }
        free(*l1);
    }
    free(s->block_table);
    free(s);
}

/* ---- the interface ---- */

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }

    size_t blocks = pool_size / BLOCK_SIZE;
    LLMEngine *engine = malloc(sizeof *engine);

    if (engine == NULL) {
        goto fail;
    }
    engine->ref_count = calloc(blocks, sizeof *engine->ref_count);
    if (engine->ref_count == NULL) {
        goto fail;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)blocks;
    engine->free_local_blocks = (int)blocks;
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;

fail:
    free(engine);
    return NULL;
}

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

    int need = (int)BLOCKS_FOR(initial_kv_len);

    if (need > MAX_LOGICAL_BLOCKS || need > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *s = new_seq(seq_id);

    if (s == NULL) {
        return NULL;
    }
    for (int k = 0; k < need; k++) {
        int **l1 = s->block_table + k / L2_PT_SIZE;
        int id;

        if (*l1 == NULL && (*l1 = new_l2()) == NULL) {
            goto fail;
        }
        id = first_fit(engine);
        if (id < 0) {
            goto fail;
        }
        (*l1)[k % L2_PT_SIZE] = id;
        claim(engine, id);
    }
    s->kv_count = initial_kv_len;
    link_tail(&engine->active_seqs, &s->node);
    return s;

fail:
    release(engine, s);
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }

    Sequence *s = lookup(engine, seq_id);

    if (s == NULL) {
        return -1;
    }
    unlink_node(&s->node);
    release(engine, s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }

    Sequence *parent = lookup(engine, parent_seq_id);

    if (parent == NULL) {
        return NULL;
    }
    if (lookup(engine, new_seq_id) != NULL) {
        return NULL;
    }

    Sequence *child = new_seq(new_seq_id);

    if (child == NULL) {
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++) {
        const int *from = parent->block_table[i];
        int *to;

        if (from == NULL) {
            continue;
        }
        to = new_l2();
        if (to == NULL) {
            goto fail;
        }
        child->block_table[i] = to;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (from[j] != UNMAPPED) {
                to[j] = from[j];
                engine->ref_count[from[j]]++;
            }
        }
    }
    child->kv_count = parent->kv_count;
    link_tail(&engine->active_seqs, &child->node);
    return child;

fail:
    release(engine, child);
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }

    Sequence *s = lookup(engine, seq_id);

    if (s == NULL) {
        return -1;
    }

    int logical = s->kv_count / KV_PER_BLOCK;
    int offset = s->kv_count % KV_PER_BLOCK;

    if (logical >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }

    int **l1 = s->block_table + logical / L2_PT_SIZE;
    int slot = logical % L2_PT_SIZE;
    int old = *l1 != NULL ? (*l1)[slot] : UNMAPPED;
    int id = old;

    if (old == UNMAPPED || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks <= 0) {
            return -1;
        }
        id = first_fit(engine);
        if (id < 0) {
            return -1;
        }
        if (*l1 == NULL && (*l1 = new_l2()) == NULL) {
            return -1;
        }
        claim(engine, id);
        if (old != UNMAPPED) {
            memcpy(BLOCK_ADDR(engine, id), BLOCK_ADDR(engine, old), (size_t)offset * KV_SIZE);
            drop(engine, old);
        }
        (*l1)[slot] = id;
    }

    ((int *)(void *)BLOCK_ADDR(engine, id))[offset] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }

    struct list_node *head = &engine->active_seqs;

    while (head->next != head) {
        Sequence *s = SEQ_OF(head->next);

        unlink_node(&s->node);
        release(engine, s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
