#include "llm_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
   Plan for create_sequence:
     1. all checks
     2. one walk over ref_count, write down the first `need` free block numbers
     3. make all tables
     4. fill the tables from the notes
   This way the walk from 0 happens only once and not once for every block.
*/

typedef struct list_node Link;

static Sequence *owner(Link *link)
{
    char *p = (char *)link;
    p -= offsetof(Sequence, node);
    return (Sequence *)p;
}

static Sequence *search(LLMEngine *eng, int id)
{
    Link *stop = &eng->active_seqs;
    Link *at = stop->next;
    while (at != stop && owner(at)->seq_id != id)
        at = at->next;
    return at == stop ? NULL : owner(at);
}

/* Writes the numbers of the `need` lowest free blocks to `out`, returns how many were found. */
static int collect_free(const LLMEngine *eng, int need, int *out)
{
    int found = 0;
    for (int b = 0; b < eng->total_local_blocks && found < need; b++)
        if (eng->ref_count[b] == 0)
            out[found++] = b;
    return found;
}

static void occupy(LLMEngine *eng, int block)
{
    eng->ref_count[block] = 1;
    eng->free_local_blocks--;
}

static int *blank_l2(void)
{
    int *t = malloc(L2_PT_SIZE * sizeof *t);
    memset(t, -1, L2_PT_SIZE * sizeof *t);
    return t;
}

static void push_back(LLMEngine *eng, Sequence *seq)
{
    Link *head = &eng->active_seqs;
    Link *tail = head->prev;
    seq->node.next = head;
    seq->node.prev = tail;
    tail->next = &seq->node;
    head->prev = &seq->node;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    if (pool_addr == NULL || pool_size < (size_t)BLOCK_SIZE)
        return NULL;

    int n = (int)(pool_size / BLOCK_SIZE);
    LLMEngine *eng = malloc(sizeof *eng);

    eng->ref_count = calloc((size_t)n, sizeof *eng->ref_count);
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = eng->free_local_blocks = n;
    eng->active_seqs.next = eng->active_seqs.prev = &eng->active_seqs;
    return eng;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (search(engine, seq_id)) return NULL;

    /* 64 bits, so that a huge length can not overflow */
    int64_t need64 = ((int64_t)initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need64 > (int64_t)L1_PT_SIZE * L2_PT_SIZE) return NULL;
    if (need64 > (int64_t)engine->free_local_blocks) return NULL;
    int need = (int)need64;

    int *notes = malloc((size_t)need * sizeof *notes);
    if (collect_free(engine, need, notes) < need) {
        free(notes);
        return NULL;
    }

    Sequence *seq = malloc(sizeof *seq);
    seq->block_table = malloc(L1_PT_SIZE * sizeof *seq->block_table);
    int tables = (need + L2_PT_SIZE - 1) / L2_PT_SIZE;
    for (int i = 0; i < L1_PT_SIZE; i++)
        seq->block_table[i] = i < tables ? blank_l2() : NULL;

    for (int i = 0; i < need; i++) {
        seq->block_table[i / L2_PT_SIZE][i % L2_PT_SIZE] = notes[i];
        occupy(engine, notes[i]);
    }
    free(notes);

    seq->seq_id = seq_id;
    seq->kv_count = initial_kv_len;
    push_back(engine, seq);
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    if (engine == NULL) return -1;
    Sequence *seq = search(engine, seq_id);
    if (!seq) return -1;

    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *l2 = seq->block_table[i];
        if (l2 == NULL) continue; /* continue, not break */
        for (int j = 0; j < L2_PT_SIZE; j++) {
            if (l2[j] == -1) continue;
            engine->ref_count[l2[j]] -= 1;
            if (engine->ref_count[l2[j]] == 0)
                engine->free_local_blocks += 1;
        }
        free(l2);
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    if (engine == NULL) return NULL;
    Sequence *mum = search(engine, parent_seq_id);
    if (!mum || search(engine, new_seq_id)) return NULL;

    Sequence *kid = malloc(sizeof *kid);
    memcpy(kid, mum, sizeof *kid); /* kv_count comes along, the rest is overwritten */
    kid->seq_id = new_seq_id;
    kid->block_table = calloc(L1_PT_SIZE, sizeof *kid->block_table);

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!mum->block_table[i]) continue;
        kid->block_table[i] = blank_l2();
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = mum->block_table[i][j];
            if (b == -1) continue;
            kid->block_table[i][j] = b;
            engine->ref_count[b] += 1;
        }
    }
    push_back(engine, kid);
    return kid;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    if (engine == NULL) return -1;
    Sequence *seq = search(engine, seq_id);
    if (!seq) return -1;

    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= L1_PT_SIZE * L2_PT_SIZE) return -1;
    int hi = logical_idx / L2_PT_SIZE, lo = logical_idx % L2_PT_SIZE;

    int now = seq->block_table[hi] ? seq->block_table[hi][lo] : -1;
    int target = now;

    if (now == -1 || engine->ref_count[now] > 1) {
        int fresh;
        if (engine->free_local_blocks == 0 || collect_free(engine, 1, &fresh) != 1)
            return -1;
        if (!seq->block_table[hi])
            seq->block_table[hi] = blank_l2();
        if (now != -1) {
            memcpy((char *)engine->pool_base_ptr + (size_t)fresh * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)now * BLOCK_SIZE,
                   BLOCK_SIZE);
            engine->ref_count[now] -= 1;
        }
        occupy(engine, fresh);
        seq->block_table[hi][lo] = fresh;
        target = fresh;
    }

    int *words = (int *)((char *)engine->pool_base_ptr + (size_t)target * BLOCK_SIZE);
    words[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine)
{
    if (engine == NULL) return -1;
    /* easiest way: always free the first one until the list is empty */
    while (engine->active_seqs.next != &engine->active_seqs)
        free_sequence(engine, owner(engine->active_seqs.next)->seq_id);
    free(engine->ref_count);
    free(engine);
    return 0;
}
