/* CS110 Homework 3. Write the six functions here; the handout says what each must do.
 * It compiles as it is, and every function answers "not yet". `./check` says what is missing. */
#include "llm_memory.h"

#include <stdlib.h>

/* Task 1 */
LLMEngine *llm_init(void *pool_addr, size_t pool_size) {
    (void)pool_addr; /* take such a line away when you use the parameter */
    (void)pool_size;
    return NULL;
}

/* Task 2 */
Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len) {
    (void)engine;
    (void)seq_id;
    (void)initial_kv_len;
    return NULL;
}

/* Task 2 */
int free_sequence(LLMEngine *engine, int seq_id) {
    (void)engine;
    (void)seq_id;
    return -1;
}

/* Task 3 */
Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id) {
    (void)engine;
    (void)parent_seq_id;
    (void)new_seq_id;
    return NULL;
}

/* Task 4 */
int append_kv(LLMEngine *engine, int seq_id, int kv_data) {
    (void)engine;
    (void)seq_id;
    (void)kv_data;
    return -1;
}

/* Task 5 */
int llm_destroy(LLMEngine *engine) {
    (void)engine;
    return -1;
}
