#include "llm_memory.h"

#include <stdlib.h>
#include <string.h>

static Sequence *get_seq(struct list_node *n) {
    return (Sequence *)((char *)n - offsetof(Sequence, node));
}

static int first_free(LLMEngine *engine) {
    for (int i = 0; i < engine->total_local_blocks; i++) {
        if (engine->ref_count[i] == 0) {
            return i;
        }
    }
    return -1;
}

/* Task 1 */
LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE) {
        return NULL;
    }
    LLMEngine *engine = malloc(sizeof(LLMEngine));
    if (engine == NULL) {
        return NULL;
    }
    engine->pool_base_ptr = pool_addr;
    engine->total_local_blocks = (int)(pool_size / BLOCK_SIZE);
    engine->free_local_blocks = engine->total_local_blocks;
    engine->ref_count = calloc(engine->total_local_blocks, sizeof(int));
    if (engine->ref_count == NULL) {
        free(engine);
        return NULL;
    }
    engine->active_seqs.prev = &engine->active_seqs;
    engine->active_seqs.next = &engine->active_seqs;
    return engine;
}

/* Task 2 */
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL) {
        return NULL;
    }
    if (initial_kv_len <= 0) {
        return NULL;
    }
    struct list_node *head = &engine->active_seqs;
    for (struct list_node *n = head->next; n != head; n = n->next) {
        if (get_seq(n)->seq_id == seq_id) {
            return NULL;
        }
    }
    if (initial_kv_len > MAX_LOGICAL_BLOCKS * KV_PER_BLOCK) {
        return NULL;
    }
    int need = (initial_kv_len + KV_PER_BLOCK - 1) / KV_PER_BLOCK;
    if (need > MAX_LOGICAL_BLOCKS || need > engine->free_local_blocks) {
        return NULL;
    }

    Sequence *seq = malloc(sizeof(Sequence));
    seq->seq_id = seq_id;
    seq->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++) {
        seq->block_table[i] = NULL;
    }
    for (int k = 0; k < need; k++) {
        int i = k / L2_PT_SIZE;
        int j = k % L2_PT_SIZE;
        if (seq->block_table[i] == NULL) {
            seq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
            for (int t = 0; t < L2_PT_SIZE; t++) {
                seq->block_table[i][t] = -1;
            }
        }
        int b = first_free(engine);
        seq->block_table[i][j] = b;
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
    }
    seq->kv_count = initial_kv_len;

    seq->node.next = head;
    seq->node.prev = head->prev;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
    return seq;
}

/* Task 2 */
int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL) {
        return -1;
    }
    struct list_node *head = &engine->active_seqs;
    Sequence *seq = NULL;
    for (struct list_node *n = head->next; n != head; n = n->next) {
        if (get_seq(n)->seq_id == seq_id) {
            seq = get_seq(n);
            break;
        }
    }
    if (seq == NULL) {
        return -1;
    }
    seq->node.prev->next = seq->node.next;
    seq->node.next->prev = seq->node.prev;

    for (int i = 0; i < L1_PT_SIZE; i++) {
        if (seq->block_table[i] == NULL) {
            continue;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = seq->block_table[i][j];
            if (b != -1) {
                engine->ref_count[b]--;
                if (engine->ref_count[b] == 0) {
                    engine->free_local_blocks++;
                }
            }
        }
        free(seq->block_table[i]);
    }
    free(seq->block_table);
    free(seq);
    return 0;
}

/* Task 3 */
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL) {
        return NULL;
    }
    struct list_node *head = &engine->active_seqs;
    Sequence *parent = NULL;
    for (struct list_node *n = head->next; n != head; n = n->next) {
        Sequence *s = get_seq(n);
        if (s->seq_id == new_seq_id) {
            return NULL;
        }
        if (s->seq_id == parent_seq_id) {
            parent = s;
        }
    }
    if (parent == NULL) {
        return NULL;
    }

    Sequence *child = malloc(sizeof(Sequence));
    child->seq_id = new_seq_id;
    child->kv_count = parent->kv_count;
    child->block_table = malloc(L1_PT_SIZE * sizeof(int *));
    for (int i = 0; i < L1_PT_SIZE; i++) {
        child->block_table[i] = NULL;
        if (parent->block_table[i] == NULL) {
            continue;
        }
        child->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        for (int j = 0; j < L2_PT_SIZE; j++) {
            child->block_table[i][j] = -1;
        }
        for (int j = 0; j < L2_PT_SIZE; j++) {
            int b = parent->block_table[i][j];
            if (b != -1) {
                child->block_table[i][j] = b;
                engine->ref_count[b]++;
            }
        }
    }

    child->node.next = head;
    child->node.prev = head->prev;
    head->prev->next = &child->node;
    head->prev = &child->node;
    return child;
}

/* Task 4 */
int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL) {
        return -1;
    }
    struct list_node *head = &engine->active_seqs;
    Sequence *seq = NULL;
    for (struct list_node *n = head->next; n != head; n = n->next) {
        if (get_seq(n)->seq_id == seq_id) {
            seq = get_seq(n);
            break;
        }
    }
    if (seq == NULL) {
        return -1;
    }
    int idx = seq->kv_count / KV_PER_BLOCK;
    int off = seq->kv_count % KV_PER_BLOCK;
    if (idx >= MAX_LOGICAL_BLOCKS) {
        return -1;
    }
    int i = idx / L2_PT_SIZE;
    int j = idx % L2_PT_SIZE;

    int old = -1;
    if (seq->block_table[i] != NULL) {
        old = seq->block_table[i][j];
    }
    int need = (old == -1 || engine->ref_count[old] > 1);
    if (need && engine->free_local_blocks == 0) {
        return -1;
    }

    if (seq->block_table[i] == NULL) {
        seq->block_table[i] = malloc(L2_PT_SIZE * sizeof(int));
        for (int t = 0; t < L2_PT_SIZE; t++) {
            seq->block_table[i][t] = -1;
        }
    }

    char *pool = engine->pool_base_ptr;
    if (need) {
        int b = first_free(engine);
        if (old != -1) {
            memcpy(pool + (size_t)b * BLOCK_SIZE, pool + (size_t)old * BLOCK_SIZE, BLOCK_SIZE);
            engine->ref_count[old]--;
        }
        engine->ref_count[b] = 1;
        engine->free_local_blocks--;
        seq->block_table[i][j] = b;
    }

    int *dst = (int *)(pool + (size_t)seq->block_table[i][j] * BLOCK_SIZE);
    dst[off] = kv_data;
    seq->kv_count++;
    return 0;
}

/* Task 5 */
int llm_destroy(LLMEngine *engine) {
    if (engine == NULL) {
        return -1;
    }
    struct list_node *n = engine->active_seqs.next;
    while (n != &engine->active_seqs) {
        Sequence *seq = get_seq(n);
        for (int i = 0; i < L1_PT_SIZE; i++) {
            free(seq->block_table[i]);
        }
        free(seq->block_table);
        free(seq);
        n = n->next;
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
