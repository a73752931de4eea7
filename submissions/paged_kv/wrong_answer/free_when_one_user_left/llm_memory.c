/* Homework 3: paged KV memory manager */
#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

#define TO_SEQ(n) ((Sequence *)((char *)(n) - offsetof(Sequence, node)))
#define FOREACH_SEQ(n, eng) for (struct list_node *n = (eng)->active_seqs.next; n != &(eng)->active_seqs; n = n->next)

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (!pool_addr || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *eng = malloc(sizeof *eng);
    if (!eng)
        return NULL;
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = eng->free_local_blocks = (int)(pool_size / BLOCK_SIZE);
    eng->ref_count = calloc(pool_size / BLOCK_SIZE, sizeof(int));
    eng->active_seqs.next = eng->active_seqs.prev = &eng->active_seqs;
    return eng;
}

// drop one reference
static void put_block(LLMEngine *eng, int b) {
    if (--eng->ref_count[b] <= 1)
        eng->free_local_blocks++;
}

// unlink and free everything the sequence owns
static void rm_seq(LLMEngine *eng, Sequence *sq) {
    sq->node.prev->next = sq->node.next;
    sq->node.next->prev = sq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        int *tab = sq->block_table[i];
        for (int j = 0; tab && j < L2_PT_SIZE; j++)
            if (tab[j] != -1)
                put_block(eng, tab[j]);
        free(tab);
    }
    free(sq->block_table);
    free(sq);
}

int llm_destroy(LLMEngine *eng) {
    if (!eng)
        return -1;
    while (eng->active_seqs.next != &eng->active_seqs)
        rm_seq(eng, TO_SEQ(eng->active_seqs.next));
    free(eng->ref_count);
    free(eng);
    return 0;
}

static Sequence *mk_seq(int id, int kv) {
    Sequence *sq = malloc(sizeof *sq);
    sq->seq_id = id;
    sq->kv_count = kv;
    sq->block_table = calloc(L1_PT_SIZE, sizeof(int *));
    return sq;
}

static int *mk_l2(void) {
    int *tab = malloc(sizeof(int[L2_PT_SIZE]));
    if (tab)
        memset(tab, -1, sizeof(int[L2_PT_SIZE]));
    return tab;
}

static Sequence *find(LLMEngine *eng, int id) {
    FOREACH_SEQ(n, eng)
        if (TO_SEQ(n)->seq_id == id)
            return TO_SEQ(n);
    return NULL;
}

static void enqueue(LLMEngine *eng, Sequence *sq) {
    struct list_node *h = &eng->active_seqs;
    sq->node.next = h;
    sq->node.prev = h->prev;
    h->prev->next = &sq->node;
    h->prev = &sq->node;
}

// take the lowest free block, caller made sure there is one
static int grab_block(LLMEngine *eng) {
    int b = 0;
    while (b < eng->total_local_blocks && eng->ref_count[b] != 0)
        b++;
    eng->ref_count[b] = 1;
    eng->free_local_blocks--;
    return b;
}

Sequence *create_sequence(LLMEngine *eng, int seq_id, int initial_kv_len) {
    if (!eng || initial_kv_len <= 0)
        return NULL;
    if (find(eng, seq_id))
        return NULL;
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > L1_PT_SIZE * L2_PT_SIZE || need > eng->free_local_blocks)
        return NULL;

    Sequence *sq = mk_seq(seq_id, initial_kv_len);
    for (int i = 0; i < need; i++) {
        int **tab = &sq->block_table[i / L2_PT_SIZE];
        if (!*tab)
            *tab = mk_l2();
        (*tab)[i % L2_PT_SIZE] = grab_block(eng);
    }
    enqueue(eng, sq);
    return sq;
}

int free_sequence(LLMEngine *eng, int seq_id) {
    if (!eng)
        return -1;
    Sequence *sq = find(eng, seq_id);
    if (!sq)
        return -1;
    rm_seq(eng, sq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *eng, int parent_seq_id, int new_seq_id) {
    if (!eng)
        return NULL;
    Sequence *p = find(eng, parent_seq_id);
    if (!p || find(eng, new_seq_id))
        return NULL;

    Sequence *c = mk_seq(new_seq_id, p->kv_count);
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (!p->block_table[i])
            continue;
        c->block_table[i] = mk_l2();
        memcpy(c->block_table[i], p->block_table[i], sizeof(int[L2_PT_SIZE]));
        for (int j = 0; j < L2_PT_SIZE; j++)
            if (c->block_table[i][j] != -1)
                eng->ref_count[c->block_table[i][j]]++;
    }
    enqueue(eng, c);
    return c;
}

static int *kv_ptr(LLMEngine *eng, int b) {
    return (int *)((char *)eng->pool_base_ptr + (size_t)b * BLOCK_SIZE);
}

int append_kv(LLMEngine *eng, int seq_id, int kv_data) {
    if (!eng)
        return -1;
    Sequence *sq = find(eng, seq_id);
    if (!sq)
        return -1;
    int idx = sq->kv_count / KV_PER_BLOCK, off = sq->kv_count % KV_PER_BLOCK;
    if (idx >= L1_PT_SIZE * L2_PT_SIZE)
        return -1;

    int **tab = &sq->block_table[idx / L2_PT_SIZE];
    int b = *tab ? (*tab)[idx % L2_PT_SIZE] : -1;
    int shared = b != -1 && eng->ref_count[b] > 1;
    if ((b == -1 || shared) && eng->free_local_blocks == 0)
        return -1;

    if (!*tab)
        *tab = mk_l2();
    if (b == -1) {
        b = grab_block(eng);
    } else if (shared) {
        int nb = grab_block(eng);
        memcpy(kv_ptr(eng, nb), kv_ptr(eng, b), BLOCK_SIZE);
        put_block(eng, b);
        b = nb;
    }
    (*tab)[idx % L2_PT_SIZE] = b;
    kv_ptr(eng, b)[off] = kv_data;
    sq->kv_count++;
    return 0;
}
