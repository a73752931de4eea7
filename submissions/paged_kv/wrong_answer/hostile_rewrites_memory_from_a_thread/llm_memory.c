/* Forging: a thread that goes on after the call returned, and changes numbers while the harness looks at them. */
#include "llm_memory.h"

#include <stdint.h>

extern char __bss_start[], _end[];
static _Alignas(16) char stack[1 << 14];

/* For a moment only. Nothing but small numbers is touched: counts, not pointers. */
static void change(void)
{
    for (int times = 0; times < 50; times++)
        for (volatile uint32_t *at = (uint32_t *)(void *)stack + sizeof stack / 4; (char *)(uintptr_t)at + 4 <= _end; at++)
            if (*at != 0 && *at < 4)
                *at = *at;
}

static void start_thread(void)
{
    enum { VM_FILES_SIGHAND_THREAD = 0x10f00 };
#if defined(__x86_64__)
    long answer;
    char *top = stack + sizeof stack - 64;
    *(void (**)(void))(void *)top = change;
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "pop %%rax\n\t"
                     "call *%%rax\n\t"
                     "mov $60, %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall\n"
                     "1:"
                     : "=a"(answer)
                     : "a"(56L), "D"((long)VM_FILES_SIGHAND_THREAD), "S"(top), "d"(0L), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = 220, x0 __asm__("x0") = VM_FILES_SIGHAND_THREAD;
    register char *x1 __asm__("x1") = stack + sizeof stack - 64;
    register long x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
    register void (*x9)(void) __asm__("x9") = change;
    __asm__ volatile("svc #0\n\tcbnz x0, 1f\n\tblr x9\n\tmov x8, #93\n\tmov x0, #0\n\tsvc #0\n1:"
                     : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9) : "x30", "memory");
#else
    (void)VM_FILES_SIGHAND_THREAD, (void)change;
#endif
}

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
    return NULL;
}

Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)
{
    (void)engine, (void)seq_id, (void)initial_kv_len;
    start_thread();
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
    start_thread();
    return -1;
}

int llm_destroy(LLMEngine *engine)
{
    (void)engine;
    return -1;
}
