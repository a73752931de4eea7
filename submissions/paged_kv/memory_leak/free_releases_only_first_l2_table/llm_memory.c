/* HW3 vLLM memory manager, Task 1 - Task 5 */

#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

static Sequence *entry(struct list_node *p)
{
    size_t off = offsetof(Sequence, node);
    return (Sequence *)((char *)p - off);
}

static int has_id(LLMEngine *eng, int id, Sequence **out)
{
    int found = 0;
    struct list_node *p = eng->active_seqs.next;
    while (p != &eng->active_seqs && !found)
    {
        Sequence *s = entry(p);
        if (s->seq_id == id)
        {
            found = 1;
            if (out != NULL) *out = s;
        }
        p = p->next;
    }
    return found;
}

static int getBlock(LLMEngine *eng)
{
    int i;
    for (i = 0; i <= eng->total_local_blocks - 1; i++)
    {
        if (eng->ref_count[i] == 0) break;
    }
    if (i == eng->total_local_blocks) return -1;
    eng->ref_count[i] = 1;
    eng->free_local_blocks = eng->free_local_blocks - 1;
    return i;
}

static void putBlock(LLMEngine *eng, int id)
{
    eng->ref_count[id] = eng->ref_count[id] - 1;
    if (eng->ref_count[id] == 0) eng->free_local_blocks = eng->free_local_blocks + 1;
}

static int *newTable(void)
{
    static const int empty[16] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    int *tbl = malloc(sizeof(empty));
    memcpy(tbl, empty, sizeof(empty));
    return tbl;
}

static Sequence *newSeq(int id, int len)
{
    Sequence *s = malloc(sizeof(Sequence));
    int **l1 = malloc(sizeof(int *) * 16);
    int i;
    for (i = 0; i < 16; i++) l1[i] = NULL;
    s->seq_id = id;
    s->kv_count = len;
    s->block_table = l1;
    return s;
}

static void addTail(LLMEngine *eng, Sequence *s)
{
    s->node.next = &eng->active_seqs;
    s->node.prev = eng->active_seqs.prev;
    s->node.prev->next = &s->node;
    s->node.next->prev = &s->node;
}

static int *kvAddr(LLMEngine *eng, int block, int offset)
{
    int *base = (int *)eng->pool_base_ptr;
    return base + (long)block * 16 + offset;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    LLMEngine *eng = NULL;
    if (pool_addr != NULL && pool_size >= BLOCK_SIZE)
    {
        int n = (int)(pool_size / BLOCK_SIZE);
        eng = malloc(sizeof(LLMEngine));
        if (eng == NULL) return NULL;
        eng->ref_count = calloc((size_t)n, sizeof(int));
        eng->pool_base_ptr = pool_addr;
        eng->total_local_blocks = n;
        eng->free_local_blocks = n;
        eng->active_seqs.next = eng->active_seqs.prev = &(eng->active_seqs);
    }
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (has_id(engine, seq_id, NULL)) return NULL;

    int n = (initial_kv_len + 15) / 16;
    if (n > 256) return NULL;
    if (n > engine->free_local_blocks) return NULL;

    Sequence *s = newSeq(seq_id, initial_kv_len);
    int i, j, left = n;
    for (i = 0; i < 16 && left > 0; i++)
    {
        int *tbl = newTable();
        for (j = 0; j < 16 && left > 0; j++)
        {
            tbl[j] = getBlock(engine);
            left--;
        }
        s->block_table[i] = tbl;
    }
    addTail(engine, s);
    return s;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) return -1;
    Sequence *s = NULL;
    int i, j;
    if (!has_id(engine, seq_id, &s)) return -1;

    s->node.prev->next = s->node.next;
    s->node.next->prev = s->node.prev;

    for (i = 0; i < 16; i++)
    {
        int *tbl = s->block_table[i];
        for (j = 0; tbl != NULL && j < 16; j++)
        {
            if (tbl[j] != -1) putBlock(engine, tbl[j]);
        }
    }
    free(s->block_table[0]);
    free(s->block_table);
    free(s);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) return NULL;
    Sequence *par = NULL;
    int i, j;
    if (!has_id(engine, parent_seq_id, &par)) return NULL;
    if (has_id(engine, new_seq_id, NULL)) return NULL;

    Sequence *s = newSeq(new_seq_id, par->kv_count);
    for (i = 0; i < 16; i++)
    {
        if (par->block_table[i] != NULL)
        {
            int *tbl = newTable();
            for (j = 0; j < 16; j++)
            {
                tbl[j] = par->block_table[i][j];
                if (tbl[j] != -1) engine->ref_count[tbl[j]]++;
            }
            s->block_table[i] = tbl;
        }
    }
    addTail(engine, s);
    return s;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) return -1;
    Sequence *s = NULL;
    if (!has_id(engine, seq_id, &s)) return -1;

    int logical_idx = s->kv_count / 16, offset = s->kv_count % 16;
    if (logical_idx >= 256) return -1;

    int **slot = &s->block_table[logical_idx / 16];
    int k = logical_idx % 16;
    int cur = (*slot == NULL) ? -1 : (*slot)[k];

    if (cur == -1)
    {
        if (engine->free_local_blocks == 0) return -1;
        if (*slot == NULL) *slot = newTable();
        cur = getBlock(engine);
        (*slot)[k] = cur;
    }
    else if (engine->ref_count[cur] > 1)
    {
        if (engine->free_local_blocks == 0) return -1;
        int nb = getBlock(engine);
        memcpy(kvAddr(engine, nb, 0), kvAddr(engine, cur, 0), 64);
        putBlock(engine, cur);
        (*slot)[k] = nb;
        cur = nb;
    }

    *kvAddr(engine, cur, offset) = kv_data;
    s->kv_count = s->kv_count + 1;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) return -1;
    struct list_node *p = engine->active_seqs.next, *tmp;
    int i;
    for (; p != &engine->active_seqs; p = tmp)
    {
        tmp = p->next;
        Sequence *s = entry(p);
        for (i = 0; i < 16; i++) free(s->block_table[i]);
        free(s->block_table);
        free(s);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
