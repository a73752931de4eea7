#include "llm_memory.h"
#include <string.h>
#include <stdlib.h>

typedef struct list_node Node;

/* Get the sequence that owns a list node. */
#define container(n) ((Sequence *)(void *)((char *)(n) - offsetof(Sequence, node)))

static Sequence *seq_by_id(LLMEngine *eng, int id) {
    Node *it;
    for (it = eng->active_seqs.next; it != &eng->active_seqs; it = it->next)
        if (container(it)->seq_id == id)
            break;
    return it == &eng->active_seqs ? NULL : container(it);
}

/* Slot of the L2 table that belongs to a logical block, NULL when there is no table. */
static int *slot_of(Sequence *seq, int logical) {
    int *l2 = seq->block_table[logical / L2_PT_SIZE];
    return l2 ? &l2[logical % L2_PT_SIZE] : NULL;
}

static int add_l2(Sequence *seq, int l1) {
    int *l2 = malloc(sizeof(int[L2_PT_SIZE]));
    if (l2 == NULL)
        return 0;
    memset(l2, 0xff, sizeof(int[L2_PT_SIZE]));
    seq->block_table[l1] = l2;
    return 1;
}

static int first_fit(LLMEngine *eng) {
    int found = -1;
    for (int b = 0; b < eng->total_local_blocks && found == -1; b++)
        if (eng->ref_count[b] == 0)
            found = b;
    if (found != -1) {
        eng->ref_count[found] = 1;
        eng->free_local_blocks--;
    }
    return found;
}

static void destroy_seq(LLMEngine *eng, Sequence *seq) {
    for (int l1 = 0; l1 < L1_PT_SIZE; l1++) {
        if (seq->block_table[l1] != NULL) {
            for (int l2 = 0; l2 < L2_PT_SIZE; l2++) {
                int phys = seq->block_table[l1][l2];
                if (phys != -1) {
                    eng->ref_count[phys]--;
                    if (eng->ref_count[phys] == 0)
                        eng->free_local_blocks++;
                }
            }
            free(seq->block_table[l1]);
        }
    }
    free(seq->block_table);
    free(seq);
}

static Sequence *alloc_seq(int id, int kv_count) {
    Sequence *seq = malloc(sizeof(Sequence));
    int **l1 = malloc(sizeof(int *) * L1_PT_SIZE);
    if (seq == NULL || l1 == NULL) {
        free(seq);
        free(l1);
        return NULL;
    }
    for (int i = 0; i < L1_PT_SIZE; i++)
        l1[i] = NULL;
    seq->seq_id = id;
    seq->kv_count = kv_count;
    seq->block_table = l1;
    return seq;
}

static Sequence *link_seq(LLMEngine *eng, Sequence *seq) {
    Node *head = &eng->active_seqs;
    seq->node.next = head;
    seq->node.prev = head->prev;
    head->prev->next = &seq->node;
    head->prev = &seq->node;
    return seq;
}

LLMEngine* llm_init(void *pool_addr, size_t pool_size) {
    if (pool_addr == NULL || pool_size < BLOCK_SIZE)
        return NULL;
    LLMEngine *eng = malloc(sizeof(LLMEngine));
    if (eng == NULL)
        return NULL;
    int total = (int)(pool_size / BLOCK_SIZE);
    eng->ref_count = calloc((size_t)total, sizeof(int));
    if (eng->ref_count == NULL) {
        free(eng);
        return NULL;
    }
    eng->pool_base_ptr = pool_addr;
    eng->total_local_blocks = total;
    eng->free_local_blocks = total;
    eng->active_seqs.next = &eng->active_seqs;
    eng->active_seqs.prev = &eng->active_seqs;
    return eng;
}

Sequence* create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    if (engine == NULL)
        return NULL;
    if (initial_kv_len <= 0 || seq_by_id(engine, seq_id))
        return NULL;
    int required = (initial_kv_len - 1) / KV_PER_BLOCK + 1;
    if (required > MAX_LOGICAL_BLOCKS || required > engine->free_local_blocks)
        return NULL;

    Sequence *seq = alloc_seq(seq_id, initial_kv_len);
    if (seq == NULL)
        return NULL;
    for (int k = 0; k < required; k++) {
        if (slot_of(seq, k) == NULL && !add_l2(seq, k / L2_PT_SIZE)) {
            destroy_seq(engine, seq);
            return NULL;
        }
        *slot_of(seq, k) = first_fit(engine);
    }
    return link_seq(engine, seq);
}

int free_sequence(LLMEngine *engine, int seq_id) {
    if (engine == NULL)
        return -1;
    Sequence *victim = seq_by_id(engine, seq_id);
    if (victim == NULL)
        return -1;
    victim->node.prev->next = victim->node.next;
    victim->node.next->prev = victim->node.prev;
    destroy_seq(engine, victim);
    return 0;
}

Sequence* fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    if (engine == NULL)
        return NULL;
    Sequence *parent = seq_by_id(engine, parent_seq_id);
    if (parent == NULL || seq_by_id(engine, new_seq_id) != NULL)
        return NULL;
    Sequence *kid = alloc_seq(new_seq_id, parent->kv_count);
    if (kid == NULL)
        return NULL;

    for (int k = 0; k < MAX_LOGICAL_BLOCKS; k++) {
        int *src = slot_of(parent, k);
        if (src == NULL)
            continue;
        if (slot_of(kid, k) == NULL && !add_l2(kid, k / L2_PT_SIZE)) {
            destroy_seq(engine, kid);
            return NULL;
        }
        if (*src != -1) {
            *slot_of(kid, k) = *src;
            engine->ref_count[*src]++;
        }
    }
    return link_seq(engine, kid);
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    if (engine == NULL)
        return -1;
    Sequence *seq = seq_by_id(engine, seq_id);
    if (seq == NULL)
        return -1;
    int logical_idx = seq->kv_count / KV_PER_BLOCK;
    int offset = seq->kv_count % KV_PER_BLOCK;
    if (logical_idx >= MAX_LOGICAL_BLOCKS)
        return -1;

    unsigned char *pool = engine->pool_base_ptr;
    int *slot = slot_of(seq, logical_idx);

    if (slot == NULL || *slot == -1) {
        if (engine->free_local_blocks == 0)
            return -1;
        if (slot == NULL && !add_l2(seq, logical_idx / L2_PT_SIZE))
            return -1;
        slot = slot_of(seq, logical_idx);
        *slot = first_fit(engine);
    } else if (engine->ref_count[*slot] > 1) {
        if (engine->free_local_blocks == 0)
            return -1;
        int copy = first_fit(engine);
        memcpy(pool + BLOCK_SIZE * (size_t)copy, pool + BLOCK_SIZE * (size_t)*slot, BLOCK_SIZE);
        *slot = copy;
    }

    int *records = (int *)(void *)(pool + BLOCK_SIZE * (size_t)*slot);
    records[offset] = kv_data;
    seq->kv_count++;
    return 0;
}

int llm_destroy(LLMEngine *engine) {
    if (engine == NULL)
        return -1;
    while (engine->active_seqs.next != &engine->active_seqs) {
        Sequence *first = container(engine->active_seqs.next);
        engine->active_seqs.next = first->node.next;
        destroy_seq(engine, first);
    }
    free(engine->ref_count);
    free(engine);
    return 0;
}
