/* The official header of CS110 Homework 3: the constants, structures and calls that the handout shows,
 * and what the course's starter header has in addition: two constants and <stdint.h>. The grader puts this
 * file instead of whatever llm_memory.h a submission brings. */
#ifndef LLM_MEMORY_H
#define LLM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define BLOCK_SIZE 64          /* bytes of a physical block (handout, Part 2.1) */
#define KV_SIZE 4              /* bytes of a KV record */
#define KV_PER_BLOCK 16        /* KV records in a physical block */
#define L1_PT_SIZE 16          /* slots of an L1 block table (Part 2.2) */
#define L2_PT_SIZE 16          /* slots of an L2 block table */
#define MAX_LOGICAL_BLOCKS 256 /* logical blocks of one sequence */

struct list_node {
    struct list_node *prev;
    struct list_node *next;
};

typedef struct Sequence {
    int seq_id;            /* unique identifier */
    int **block_table;     /* L1 table: L1_PT_SIZE pointers to L2 tables */
    int kv_count;          /* KV records held */
    struct list_node node; /* intrusive list node, always last */
} Sequence;

typedef struct {
    void *pool_base_ptr;          /* the memory pool; belongs to the caller */
    int total_local_blocks;       /* physical blocks in the pool */
    int free_local_blocks;        /* physical blocks with ref_count 0 */
    int *ref_count;               /* one count for each physical block */
    struct list_node active_seqs; /* dummy head of the sequence list */
} LLMEngine;

LLMEngine *llm_init(void *pool_addr, size_t pool_size);                                /* Task 1 */
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len);          /* Task 2 */
int free_sequence(LLMEngine *engine, int seq_id);                                      /* Task 2 */
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id);         /* Task 3 */
int append_kv(LLMEngine *engine, int seq_id, int kv_data);                             /* Task 4 */
int llm_destroy(LLMEngine *engine);                                                    /* Task 5 */

#endif
