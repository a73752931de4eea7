#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

/* ---------- list ---------- */

static void list_init(struct list_node *h)
{
    h->prev = h;
    h->next = h;
}

static void list_add_tail(struct list_node *n, struct list_node *h)
{
    struct list_node *tail = h->prev;

    tail->next = n;
    n->prev = tail;
    n->next = h;
    h->prev = n;
}

static void list_del(struct list_node *n)
{
    struct list_node *before = n->prev;
    struct list_node *after = n->next;

    before->next = after;
    after->prev = before;
}

static Sequence *node_to_seq(struct list_node *n)
{
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

/* ---------- blocks ---------- */

static int find_free_block(const LLMEngine *eng)
{
    int i;

    for (i = 0; i < eng->total_local_blocks; i++) {
        if (eng->ref_count[i] == 0)
            return i;
    }
    return -1;
}

static void *block_addr(LLMEngine *eng, int block)
{
    return (unsigned char *)eng->pool_base_ptr + (size_t)BLOCK_SIZE * (size_t)block;
}

static void put_block(LLMEngine *eng, int block)
{
    eng->ref_count[block] -= 1;
    if (eng->ref_count[block] == 0)
        eng->free_local_blocks += 1;
}

/* ---------- sequences ---------- */

static Sequence *get_seq(LLMEngine *eng, int id)
{
    struct list_node *n = eng->active_seqs.next;

    while (n != &eng->active_seqs) {
        Sequence *s = node_to_seq(n);
        if (s->seq_id == id)
            return s;
        n = n->next;
    }
    return NULL;
}

static void release_tables(LLMEngine *eng, Sequence *s)
{
    int i, j;

    for (i = 0; i < L1_PT_SIZE; i++) {
        if (s->block_table[i] == NULL)
            break;
        for (j = 0; j < L2_PT_SIZE; j++) {
            if (s->block_table[i][j] != -1)
                put_block(eng, s->block_table[i][j]);
        }
        free(s->block_table[i]);
    }
    free(s->block_table);
}

static int *new_table(void)
{
    int i;
    int *t = malloc(L2_PT_SIZE * sizeof *t);

    if (!t)
        return NULL;
    for (i = 0; i < L2_PT_SIZE; i++)
        t[i] = -1;
    return t;
}

static Sequence *new_seq(void)
{
    int i;
    Sequence *s = malloc(sizeof *s);

    if (!s)
        return NULL;
    s->block_table = malloc(L1_PT_SIZE * sizeof *s->block_table);
    if (!s->block_table) {
        free(s);
        return NULL;
    }
    for (i = 0; i < L1_PT_SIZE; i++)
        s->block_table[i] = NULL;
    return s;
}

/* ---------- API ---------- */

LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *eng;

    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    eng = malloc(sizeof *eng);
    if (!eng)
        return NULL;
    eng->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->free_local_blocks = eng->total_local_blocks;
    eng->pool_base_ptr = pool_addr;
    eng->ref_count = calloc((size_t)eng->total_local_blocks, sizeof *eng->ref_count);
    if (!eng->ref_count) {
        free(eng);
        return NULL;
    }
    list_init(&eng->active_seqs);
    return eng;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (!engine)
        return NULL;

    int want, i;
    Sequence *s;

    if (initial_kv_len <= 0)
        return NULL;
    if (get_seq(engine, seq_id))
        return NULL;
    want = initial_kv_len / KV_PER_BLOCK;
    if (initial_kv_len % KV_PER_BLOCK != 0)
        want++;
    if (want > MAX_LOGICAL_BLOCKS || want > engine->free_local_blocks)
        return NULL;

    s = new_seq();
    if (!s)
        return NULL;
    for (i = 0; i < want; i++) {
        int **entry = &s->block_table[i / L2_PT_SIZE];
        int block;

        if (*entry == NULL) {
            *entry = new_table();
            if (*entry == NULL) {
                release_tables(engine, s);
                free(s);
                return NULL;
            }
        }
        block = find_free_block(engine);
        (*entry)[i % L2_PT_SIZE] = block;
        engine->ref_count[block] = 1;
        engine->free_local_blocks -= 1;
    }
    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    list_add_tail(&s->node, &engine->active_seqs);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (!engine)
        return -1;

    Sequence *s = get_seq(engine, seq_id);

    if (!s)
        return -1;
    list_del(&s->node);
    release_tables(engine, s);
    free(s);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (!engine)
        return NULL;

    Sequence *from = get_seq(engine, parent_seq_id);
    Sequence *to;
    int i, j;

    if (!from || get_seq(engine, new_seq_id))
        return NULL;
    to = new_seq();
    if (!to)
        return NULL;
    for (i = 0; i < L1_PT_SIZE; i++) {
        if (!from->block_table[i])
            continue;
        to->block_table[i] = new_table();
        if (!to->block_table[i]) {
            release_tables(engine, to);
            free(to);
            return NULL;
        }
        memcpy(to->block_table[i], from->block_table[i], L2_PT_SIZE * sizeof(int));
        for (j = 0; j < L2_PT_SIZE; j++) {
            if (to->block_table[i][j] >= 0)
                engine->ref_count[to->block_table[i][j]] += 1;
        }
    }
    to->seq_id = new_seq_id;
    to->kv_count = from->kv_count;
    list_add_tail(&to->node, &engine->active_seqs);
    return to;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (!engine)
        return -1;

    Sequence *s = get_seq(engine, seq_id);
    int logical, block, fresh;
    int **entry;

    if (!s)
        return -1;
    logical = s->kv_count / KV_PER_BLOCK;
    if (logical >= MAX_LOGICAL_BLOCKS)
        return -1;
    entry = &s->block_table[logical / L2_PT_SIZE];
    block = *entry ? (*entry)[logical % L2_PT_SIZE] : -1;

    if (block < 0 || engine->ref_count[block] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (!*entry) {
            *entry = new_table();
            if (!*entry)
                return -1;
        }
        fresh = find_free_block(engine);
        engine->ref_count[fresh] = 1;
        engine->free_local_blocks -= 1;
        if (block >= 0) {
            memcpy(block_addr(engine, fresh), block_addr(engine, block), BLOCK_SIZE);
            put_block(engine, block);
        }
        (*entry)[logical % L2_PT_SIZE] = fresh;
        block = fresh;
    }

    ((int *)block_addr(engine, block))[s->kv_count % KV_PER_BLOCK] = kv_data;
    s->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (!engine)
        return -1;

    struct list_node *head = &engine->active_seqs;
    struct list_node *n, *tmp;

    for (n = head->next, tmp = n->next; n != head; n = tmp, tmp = n->next) {
        Sequence *s = node_to_seq(n);
        release_tables(engine, s);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
