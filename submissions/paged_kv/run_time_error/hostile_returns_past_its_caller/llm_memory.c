/* Forging: whoever compares is never reached when we return to the caller of our caller. */
#include "llm_memory.h"


#if defined(__x86_64__)
__asm__(".globl llm_init\n.type llm_init, @function\nllm_init:\n"
        "lea 8(%rsp), %rsp\nxor %eax, %eax\nxor %ebx, %ebx\nxor %ebp, %ebp\nret\n.size llm_init, .-llm_init\n");
#elif defined(__aarch64__)
__asm__(".globl llm_init\n.type llm_init, %function\nllm_init:\n"
        "ldp x29, x30, [sp]\nmov x0, #0\nmov x19, #0\nmov x20, #0\nret\n.size llm_init, .-llm_init\n");
#endif

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    return NULL;
}

int free_sequence(LLMEngine *engine, int seq_id)
{
    (void)engine, (void)seq_id;
    return -1;
}

Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)
{
    (void)engine, (void)parent_seq_id, (void)new_seq_id;
    return NULL;
}

int append_kv(LLMEngine *engine, int seq_id, int kv_data)
{
    (void)engine, (void)seq_id, (void)kv_data;
    return -1;
}

int llm_destroy(LLMEngine *engine)
{
    (void)engine;
    return -1;
}
