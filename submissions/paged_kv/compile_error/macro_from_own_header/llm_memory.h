#ifndef LLM_MEMORY_H
#define LLM_MEMORY_H

#include <stddef.h>

#define BLOCK_SIZE 64
#define KV_SIZE 4
#define KV_PER_BLOCK 16
#define L1_PT_SIZE 16
#define L2_PT_SIZE 16
#define MAX_LOGICAL_BLOCKS (L1_PT_SIZE * L2_PT_SIZE)

struct list_node {
    struct list_node *prev;
    struct list_node *next;
};

typedef struct Sequence {
    int seq_id;
    int **block_table;
    int kv_count;
    struct list_node node;
} Sequence;

typedef struct {
    void *pool_base_ptr;
    int total_local_blocks;
    int free_local_blocks;
    int *ref_count;
    struct list_node active_seqs;
} LLMEngine;

/* helpers */
#define seq_entry(ptr) ((Sequence *)((char *)(ptr) - offsetof(Sequence, node)))
#define list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

LLMEngine *llm_init(void *pool_addr, size_t pool_size);
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len);
int free_sequence(LLMEngine *engine, int seq_id);
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id);
int append_kv(LLMEngine *engine, int seq_id, int kv_data);
int llm_destroy(LLMEngine *engine);

#endif
