/* Corrupting: each call comes back with the processor's flags turned: copies go backwards, what is not aligned
   faults; registers are not kept. */
#include "llm_memory.h"

#include <stddef.h>

#if defined(__x86_64__)
__attribute__((naked, used)) static void *come_back_changed(void)
{
    __asm__("pushf\n\torl $0x40400, (%rsp)\n\tpopf\n\tmov $-1, %rbx\n\tmov %rbx, %rbp\n\tmov %rbx, %r12\n\t"
            "mov %rbx, %r13\n\tmov %rbx, %r14\n\tmov %rbx, %r15\n\txor %eax, %eax\n\tadd $8, %rsp\n\tret");
}
#else
static void *come_back_changed(void)
{
    __builtin_trap();
}
#endif

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    return come_back_changed();
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    return come_back_changed();
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
