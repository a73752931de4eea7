#include <stdlib.h>
#include <string.h>
#include "llm_memory.h"

static Sequence *SeqOf(struct list_node *nd) {
    size_t off = offsetof(Sequence, node);
    return (Sequence *)((char *)nd - off);
}

static int lookup_seq(LLMEngine *m, int id, Sequence **out) {
    int found = 0;
    struct list_node *nd = m->active_seqs.next;
    while (nd != &m->active_seqs && !found) {
        Sequence *sq = SeqOf(nd);
        if (sq->seq_id == id) {
            found = 1;
            if (out != NULL) *out = sq;
        }
        nd = nd->next;
    }
    return found;
}

static int fit(LLMEngine *m) {
    int i;
    for (i = 0; i <= m->total_local_blocks - 1; i++) {
        if (m->ref_count[i] == 0) break;
    }
    if (i == m->total_local_blocks) return -1;
    m->ref_count[i] = 1;
    m->free_local_blocks = m->free_local_blocks - 1;
    return i;
}

static void deref(LLMEngine *m, int id) {
    m->ref_count[id] = m->ref_count[id] - 1;
    if (m->ref_count[id] == 0) m->free_local_blocks = m->free_local_blocks + 1;
}

/* L2 table of -1 */
static int *make_table(void) {
    static const int empty[16] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    int *row = malloc(sizeof(empty));
    memcpy(row, empty, sizeof(empty));
    return row;
}

static Sequence *make_seq(int id, int len) {
    Sequence *sq = malloc(sizeof(Sequence));
    int **l1 = malloc(sizeof(int *) * 16);
    int i;
    for (i = 0; i < 16; i++) l1[i] = NULL;
    sq->seq_id = id;
    sq->kv_count = len;
    sq->block_table = l1;
    return sq;
}

static void push_back(LLMEngine *m, Sequence *sq) {
    sq->node.next = &m->active_seqs;
    sq->node.prev = m->active_seqs.prev;
    sq->node.prev->next = &sq->node;
    sq->node.next->prev = &sq->node;
}

static int *word_at(LLMEngine *m, int block, int offset) {
    int *base = (int *)m->pool_base_ptr;
    return base + (long)block * KV_PER_BLOCK + offset;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    LLMEngine *m = NULL;
    if (pool_addr != NULL && pool_size >= BLOCK_SIZE) {
        int nblocks = (int)(pool_size / BLOCK_SIZE);
        m = malloc(sizeof(LLMEngine));
        if (m == NULL) return NULL;
        m->ref_count = calloc((size_t)nblocks, sizeof(int));
        m->pool_base_ptr = pool_addr;
        m->total_local_blocks = nblocks;
        m->free_local_blocks = nblocks;
        m->active_seqs.next = m->active_seqs.prev = &(m->active_seqs);
    }
    return m;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (lookup_seq(engine, seq_id, NULL)) return NULL;

    /* ceil(len / 16) */
    int nblocks = (initial_kv_len + 15) / 16;
    if (nblocks > 256) return NULL;
    if (nblocks > engine->free_local_blocks) return NULL;

    Sequence *sq = make_seq(seq_id, initial_kv_len);
    int i, j, remain = nblocks;
    for (i = 0; i < 16 && remain > 0; i++) {
        int *row = make_table();
        for (j = 0; j < 16 && remain > 0; j++) {
            row[j] = fit(engine);
            remain--;
        }
        sq->block_table[i] = row;
    }
    push_back(engine, sq);
    return sq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;
    Sequence *sq = NULL;
    int i, j;
    if (!lookup_seq(engine, seq_id, &sq)) return -1;

    sq->node.prev->next = sq->node.next;
    sq->node.next->prev = sq->node.prev;

    for (i = 0; i < 16; i++) {
        int *row = sq->block_table[i];
        for (j = 0; row != NULL && j < 16; j++) {
            if (row[j] != -1) deref(engine, row[j]);
        }
        free(row);
    }
    free(sq->block_table);
    free(sq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;
    Sequence *p = NULL;
    int i, j;
    if (!lookup_seq(engine, parent_seq_id, &p)) return NULL;
    if (lookup_seq(engine, new_seq_id, NULL)) return NULL;

    Sequence *sq = make_seq(new_seq_id, p->kv_count);
    for (i = 0; i < 16; i++) {
        if (p->block_table[i] != NULL) {
            int *row = make_table();
            for (j = 0; j < 16; j++) {
                row[j] = p->block_table[i][j];
                if (row[j] != -1) engine->ref_count[row[j]]++;
            }
            sq->block_table[i] = row;
        }
    }
    push_back(engine, sq);
    return sq;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;
    Sequence *sq = NULL;
    if (!lookup_seq(engine, seq_id, &sq)) return -1;

    int logical_idx = (sq->kv_count + 15) / 16, offset = sq->kv_count % 16;
    if (logical_idx >= 256) return -1;

    int **rowp = &sq->block_table[logical_idx / 16];
    int col = logical_idx % 16;
    int pb = (*rowp == NULL) ? -1 : (*rowp)[col];

    if (pb == -1) {
        if (engine->free_local_blocks == 0) return -1;
        if (*rowp == NULL) *rowp = make_table();
        pb = fit(engine);
        (*rowp)[col] = pb;
    } else if (engine->ref_count[pb] > 1) {
        if (engine->free_local_blocks == 0) return -1;
        int nb = fit(engine);
        memcpy(word_at(engine, nb, 0), word_at(engine, pb, 0), 64);
        deref(engine, pb);
        (*rowp)[col] = nb;
        pb = nb;
    }

    *word_at(engine, pb, offset) = kv_data;
    sq->kv_count = sq->kv_count + 1;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;
    struct list_node *nd = engine->active_seqs.next, *tmp;
    int i;
    for (; nd != &engine->active_seqs; nd = tmp) {
        tmp = nd->next;
        Sequence *sq = SeqOf(nd);
        for (i = 0; i < 16; i++) free(sq->block_table[i]);
        free(sq->block_table);
        free(sq);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
