#include "llm_memory.h"
#include <stdlib.h>
#include <string.h>

static Sequence *find_seq(LLMEngine *engine, int seq_id) {
    struct list_node *p;
    for (p = engine->active_seqs.next; p != &engine->active_seqs; p = p->next) {
        Sequence *s = (Sequence *)((char *)p - offsetof(Sequence, node));
        if (s->seq_id == seq_id) return s;
    }
    return NULL;
}

static int first_fit(LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; i++)
        if (engine->ref_count[i] == 0) return i;
    return -1;
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) return NULL;
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL) return NULL;
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc((size_t)engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) return NULL;
    if (initial_kv_len <= 0) return NULL;
    if (find_seq(engine, seq_id) != NULL) return NULL;
    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) return NULL;
    int left = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (left > engine->free_local_blocks) return NULL;

    Sequence *seq = malloc(sizeof(Sequence));
    seq->seq_id = seq_id;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
        if (left == 0) continue;
        seq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        for (int j = 0; j < L2_PT_SIZE; j++) {
            seq->block_table[i][j] = -1;
            if (left == 0) continue;
            int b = first_fit(engine);
            seq->block_table[i][j] = b;
            engine->ref_count[b] = 1;
            engine->free_local_blocks--;
            left--;
        }
    }
    seq->kv_count = initial_kv_len;

    struct list_node *head = &engine->active_seqs;
    seq->node.prev = head->prev;
    seq->node.next = head;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
    return seq;
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) return -1;
    Sequence *seq = find_seq(engine, seq_id);
    if (seq == NULL) return -1;
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;
    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL) continue;
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = seq->block_table[i][j];
            if (b == -1) continue;
            engine->ref_count[b]--;
            if (engine->ref_count[b] == 0) engine->free_local_blocks++;
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) return NULL;
    Sequence *parent = find_seq(engine, parent_seq_id);
    if (parent == NULL) return NULL;
    if (find_seq(engine, new_seq_id) != NULL) return NULL;

    Sequence *child = malloc(sizeof(Sequence));
    child->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++) {
        child->block_table[i] = NULL;
        if (parent->block_table[i] == NULL) continue;
        child->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = parent->block_table[i][j];
            child->block_table[i][j] = b;
            if (b != -1) engine->ref_count[b]++;
        }
    }
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;

    struct list_node *head = &engine->active_seqs;
    child->node.prev = head->prev;
    child->node.next = head;
    head->prev->next = &child->node;
    head->prev = &child->node;
    return child;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) return -1;
    Sequence *seq = find_seq(engine, seq_id);
    if (seq == NULL) return -1;
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS) return -1;

    int **l2 = &seq->block_table[logical_idx / L2_PT_SIZE];
    int j = logical_idx % L2_PT_SIZE;
    int old = *l2 == NULL ? -1 : (*l2)[j];
    if (old == -1 || engine->ref_count[old] > 1) {
        if (engine->free_local_blocks == 0) return -1;
        if (*l2 == NULL) *l2 = calloc(L2_PT_SIZE, sizeof(int));
        int b = first_fit(engine);
        if (old != -1) {
            memcpy((char *)engine->pool_base_ptr + (size_t)b * BLOCK_SIZE,
                   (char *)engine->pool_base_ptr + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
        (*l2)[j] = b;
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
    }
    int *dst = (int *)((char *)engine->pool_base_ptr + (size_t)(*l2)[j] * BLOCK_SIZE);
    dst[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) return -1;
    struct list_node *p = engine->active_seqs.next;
    while (p != &engine->active_seqs) {
        struct list_node *next = p->next;
        Sequence *seq = (Sequence *)((char *)p - offsetof(Sequence, node));
        for (int i = 0; i < L1_PT_SIZE; i++) free(seq->block_table[i]);
        free(seq->block_table);
        free(seq);
        p = next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
