#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define container_of(ptr, type, member) \
    ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

#define for_each_node(pos, head) \
    for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

static void list_add_tail(struct list_node *item, struct list_node *head)
{
    item->next = head;
    item->prev = head->prev;
    head->prev->next = item;
    head->prev = item;
}

static Sequence *find_sequence(LLMEngine *engine, int id)
{
    struct list_node *pos;

    for_each_node(pos, &engine->active_seqs) {
        Sequence *s = container_of(pos, Sequence, node);
        if (s->seq_id == id)
            return s;
    }
    return NULL;
}

static int find_free_block(LLMEngine *engine)
{
    int result = -1;

    for (int b = 0; b < engine->total_local_blocks && result < 0; b++)
        if (engine->ref_count[b] == 0)
            result = b;
    return result;
}

static int blocks_needed(int kv_len)
{
    return kv_len / KV_PER_BLOCK + (kv_len % KV_PER_BLOCK != 0);
}

static int *make_l2(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof *t);
    int i = 0;

    while (i < L2_PT_SIZE)
        t[i++] = -1;
    return t;
}

static int **make_l1(void)
{
    int **t = malloc(L1_PT_SIZE * sizeof *t);
    int i = 0;

    while (i < L1_PT_SIZE)
        t[i++] = NULL;
    return t;
}

static void map_new_block(LLMEngine *engine, int *where)
{
    int b = find_free_block(engine);

    *where = b;
    engine->ref_count[b] = 1;
    engine->free_local_blocks -= 1;
}

/* Task 1 */
LLMEngine* llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL)
        return NULL;
    if (pool_size < BLOCK_SIZE)
        return NULL;

    LLMEngine *e = malloc(sizeof *e);
    struct list_node *head = &e->active_seqs;

    e->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    e->free_local_blocks = e->total_local_blocks;
    e->pool_base_ptr = pool_addr;
    e->ref_count = calloc((size_t)e->total_local_blocks, sizeof *e->ref_count);
    head->next = head->prev = head;
    return e;
}

/* Task 2 */
Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || find_sequence(engine, seq_id) != NULL)
        return NULL;

    int need = blocks_needed(initial_kv_len);
    if (need >= MAX_LOGICAL_BLOCKS || need > engine->free_local_blocks)
        return NULL;

    Sequence *s = malloc(sizeof *s);
    s->seq_id = seq_id;
    s->kv_count = initial_kv_len;
    s->block_table = make_l1();

    int l1 = 0, l2 = 0;
    while (need-- > 0) {
        if (l2 == 0)
            s->block_table[l1] = make_l2();
        map_new_block(engine, &s->block_table[l1][l2]);
        if (++l2 == L2_PT_SIZE) {
            l2 = 0;
            l1++;
        }
    }

    list_add_tail(&s->node, &engine->active_seqs);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL)
        return -1;

    Sequence *s = find_sequence(engine, seq_id);
    if (s == NULL)
        return -1;

    s->node.next->prev = s->node.prev;
    s->node.prev->next = s->node.next;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *table = s->block_table[i];
        for (int j = 0; table != NULL && j < L2_PT_SIZE; j++) {
            if (table[j] != -1) {
                int left = --engine->ref_count[table[j]];
                if (left == 0)
                    engine->free_local_blocks += 1;
            }
        }
        free(table);
    }
    free(s->block_table);
    free(s);
    return 0;
}

/* Task 3 */
Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL)
        return NULL;

    Sequence *parent = find_sequence(engine, parent_seq_id);
    if (parent == NULL || find_sequence(engine, new_seq_id) != NULL)
        return NULL;

    Sequence *child = malloc(sizeof *child);
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;
    child->block_table = make_l1();

    for (int i = 0; i < L1_PT_SIZE; i++) {
        const int *from = parent->block_table[i];
        if (from != NULL) {
            int *to = make_l2();
            memcpy(to, from, L2_PT_SIZE * sizeof(int));
            child->block_table[i] = to;
            for (int j = 0; j < L2_PT_SIZE; j++)
                if (to[j] != -1)
                    engine->ref_count[to[j]] += 1;
        }
    }

    list_add_tail(&child->node, &engine->active_seqs);
    return child;
}

/* Task 4 */
int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL)
        return -1;

    Sequence *s = find_sequence(engine, seq_id);
    if (s == NULL)
        return -1;

    const int logical_idx = s->kv_count / KV_PER_BLOCK;
    const int offset = s->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
        return -1;

    int **l1_entry = s->block_table + logical_idx / L2_PT_SIZE;
    const int l2_idx = logical_idx % L2_PT_SIZE;
    int current = -1;
    if (*l1_entry != NULL)
        current = (*l1_entry)[l2_idx];

    if (current == -1 || engine->ref_count[current] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (*l1_entry == NULL)
            *l1_entry = make_l2();
        map_new_block(engine, *l1_entry + l2_idx);
    }

    char *pool = engine->pool_base_ptr;
    int now = (*l1_entry)[l2_idx];
    if (current != -1 && current != now) {
        memcpy(pool + now * BLOCK_SIZE, pool + current * BLOCK_SIZE, BLOCK_SIZE);
        engine->ref_count[current] -= 1;
    }

    int *records = (int *)(void *)(pool + now * BLOCK_SIZE);
    records[offset] = kv_data;
    s->kv_count += 1;
    return 0;
}

/* Task 5 */
int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL)
        return -1;

    struct list_node *head = &engine->active_seqs;
    while (head->next != head)
        free_sequence(engine, container_of(head->next, Sequence, node)->seq_id);

    free(engine->ref_count);
    free(engine);
    return 0;
}
