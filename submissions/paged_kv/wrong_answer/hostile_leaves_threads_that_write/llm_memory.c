/* Corrupting: no call does anything; a thread is left behind that writes into the pool while the harness looks at it.
   */
#include "llm_memory.h"

#include <stddef.h>

enum { THREAD = 0x50f00, SPINS = 20000 };
static char stack[1 << 14] __attribute__((aligned(16)));
static volatile int *target;

#if defined(__x86_64__)
__attribute__((used)) static void write_for_a_while(void)
{
    for (int i = 0; i < SPINS; i++)
        target[i % 16] = i;
}

static void leave_thread(void)
{
    long answer = 56;
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tcall *%5\n\t"
                     "mov $60, %%eax\n\txor %%edi, %%edi\n\tsyscall\n1:"
                     : "+a"(answer) : "D"((long)THREAD), "S"(stack + sizeof stack), "d"(0L), "r"(r10),
                       "r"(write_for_a_while), "r"(r8)
                     : "rcx", "r11", "memory");
}
#else
static void leave_thread(void)
{
    *target = stack[0];
}
#endif

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    target = pool_addr;
    if (pool_addr != NULL && pool_size >= BLOCK_SIZE)
        leave_thread();
    return NULL;
}

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
