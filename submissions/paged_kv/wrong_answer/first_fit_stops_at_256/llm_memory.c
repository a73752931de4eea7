#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

static inline Sequence *entry(struct list_node *n)
{
    size_t off = offsetof(Sequence, node);
    return (Sequence *)((uintptr_t)n - off);
}

static void push_back(struct list_node *head, struct list_node *n)
{
    struct list_node *last = head->prev;
    last->next = n;
    n->prev = last;
    n->next = head;
    head->prev = n;
}

static void unlink_node(struct list_node *n)
{
    struct list_node *before = n->prev, *after = n->next;
    before->next = after;
    after->prev = before;
}

static Sequence *get_sequence(LLMEngine *eng, int id)
{
    struct list_node *n = eng->active_seqs.next;
    while (n != &eng->active_seqs) {
        if (entry(n)->seq_id == id) {
            return entry(n);
        }
        n = n->next;
    }
    return NULL;
}

static int block_get(LLMEngine *eng)
{
    for (unsigned id = 0; id < MAX_LOGICAL_BLOCKS; ++id) {
        if (eng->ref_count[id] != 0) {
            continue;
        }
        eng->ref_count[id] = 1;
        eng->free_local_blocks -= 1;
        return (int)id;
    }
    return -1;
}

static void block_put(LLMEngine *eng, int id)
{
    if (--eng->ref_count[id] == 0) {
        eng->free_local_blocks += 1;
    }
}

static uint8_t *block_bytes(LLMEngine *eng, int id)
{
    return (uint8_t *)eng->pool_base_ptr + (size_t)id * BLOCK_SIZE;
}

static int *make_inner_table(void)
{
    int *inner = malloc(sizeof(int) * L2_PT_SIZE);
    for (unsigned k = 0; inner != NULL && k < L2_PT_SIZE; ++k) {
        inner[k] = -1;
    }
    return inner;
}

/* Entry of a logical block in the table, NULL if its inner table is missing. */
static int *slot_peek(Sequence *s, unsigned lblk)
{
    int *inner = s->block_table[lblk / L2_PT_SIZE];
    return inner == NULL ? NULL : &inner[lblk % L2_PT_SIZE];
}

static int *slot_make(Sequence *s, unsigned lblk)
{
    int **outer = &s->block_table[lblk / L2_PT_SIZE];
    if (*outer == NULL) {
        *outer = make_inner_table();
    }
    return slot_peek(s, lblk);
}

static Sequence *make_sequence(int id, int kv)
{
    Sequence *s = malloc(sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    if (s->block_table == NULL) {
        free(s);
        return NULL;
    }
    s->seq_id = id;
    s->kv_count = kv;
    return s;
}

static void release_sequence(LLMEngine *eng, Sequence *s)
{
    for (unsigned i = 0; i < L1_PT_SIZE; ++i) {
        int *inner = s->block_table[i];
        if (inner != NULL) {
            for (unsigned k = 0; k < L2_PT_SIZE; ++k) {
                if (inner[k] != -1) {
                    block_put(eng, inner[k]);
                }
            }
            free(inner);
        }
    }
    free(s->block_table);
    free(s);
}

static int *allocate_ref_counts(unsigned count)
{
    int *refs = calloc(count, sizeof(int));
    return refs;
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL) {
        return NULL;
    }
    if (pool_size < BLOCK_SIZE) {
        return NULL;
    }
    unsigned count = (unsigned)(pool_size / BLOCK_SIZE);
    LLMEngine *eng = malloc(sizeof *eng);
    int *refs = allocate_ref_counts(count);
    if (eng == NULL || refs == NULL) {
        free(eng);
        free(refs);
        return NULL;
    }
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = (int)count;
    eng->free_local_blocks = (int)count;
    eng->ref_count = refs;
    eng->active_seqs.prev = &eng->active_seqs;
    eng->active_seqs.next = &eng->active_seqs;
    return eng;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0 || get_sequence(engine, seq_id) != NULL) {
        return NULL;
    }
    size_t want = ((size_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (want > MAX_LOGICAL_BLOCKS || want > (size_t)engine->free_local_blocks) {
        return NULL;
    }
    Sequence *s = make_sequence(seq_id, initial_kv_len);
    if (s == NULL) {
        return NULL;
    }
    for (unsigned lblk = 0; lblk < want; ++lblk) {
        int *slot = slot_make(s, lblk);
        if (slot == NULL) {
            release_sequence(engine, s);
            return NULL;
        }
        *slot = block_get(engine);
    }
    push_back(&engine->active_seqs, &s->node);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) {
        return -1;
    }
    Sequence *s = get_sequence(engine, seq_id);
    if (s == NULL) {
        return -1;
    }
    unlink_node(&s->node);
    release_sequence(engine, s);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) {
        return NULL;
    }
    Sequence *from = get_sequence(engine, parent_seq_id);
    if (from == NULL || get_sequence(engine, new_seq_id) != NULL) {
        return NULL;
    }
    Sequence *to = make_sequence(new_seq_id, from->kv_count);
    if (to == NULL) {
        return NULL;
    }
    for (unsigned lblk = 0; lblk < MAX_LOGICAL_BLOCKS; ++lblk) {
        int *src = slot_peek(from, lblk);
        if (src == NULL) {
            continue;
        }
        int *dst = slot_make(to, lblk);
        if (dst == NULL) {
            release_sequence(engine, to);
            return NULL;
        }
        *dst = *src;
        if (*src != -1) {
            engine->ref_count[*src] += 1;
        }
    }
    push_back(&engine->active_seqs, &to->node);
    return to;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) {
        return -1;
    }
    Sequence *s = get_sequence(engine, seq_id);
    if (s == NULL) {
        return -1;
    }
    unsigned lblk = (unsigned)s->kv_count / KV_PER_BLOCK;
    unsigned offset = (unsigned)s->kv_count % KV_PER_BLOCK;
    if (lblk >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }

    int *slot = slot_peek(s, lblk);
    int unmapped = (slot == NULL || *slot == -1);
    int shared = (!unmapped && engine->ref_count[*slot] > 1);
    if ((unmapped || shared) && engine->free_local_blocks == 0) {
        return -1;
    }

    if (unmapped) {
        slot = slot_make(s, lblk);
        if (slot == NULL) {
            return -1;
        }
        *slot = block_get(engine);
    } else if (shared) {
        int fresh = block_get(engine);
        memcpy(block_bytes(engine, fresh), block_bytes(engine, *slot), BLOCK_SIZE);
        block_put(engine, *slot);
        *slot = fresh;
    }

    int *record = (int *)(void *)block_bytes(engine, *slot) + offset;
    *record = kv_data;
    s->kv_count += 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) {
        return -1;
    }
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        struct list_node *after = n->next;
        release_sequence(engine, entry(n));
        n = after;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
