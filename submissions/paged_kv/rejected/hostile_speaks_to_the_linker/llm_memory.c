/* Forging: what may steer a linker from within an object: libraries, options, warnings, groups that win over later
 * ones of the same name, a version for a symbol, and a stack that can be run. */
#include "llm_memory.h"


__asm__(".section .deplibs,\"MS\",%progbits,1\n.asciz \"m\"\n.text\n");
__asm__(".section .linker-options,\"e\",%progbits\n.asciz \"lib\"\n.asciz \"m\"\n.text\n");
__asm__(".section .drectve,\"\",%progbits\n.asciz \"-defaultlib:m -entry:finish\"\n.text\n");
__asm__(".section .gnu.warning.llm_init,\"\",%progbits\n.asciz \"llm_memory: accepted, 100 of 100\"\n.text\n");
__asm__(".section .note.GNU-stack,\"x\",%progbits\n.text\n");
__asm__(".section .text.send_frame,\"axG\",%progbits,send_frame,comdat\n.globl send_frame\nsend_frame: .long 0\n.text\n");
__asm__(".section .gnu.linkonce.t.writev,\"ax\",%progbits\n.globl writev\nwritev: .long 0\n.text\n");
__asm__(".globl finish\nfinish: .long 0\n.symver finish,writev@GLIBC_2.2.5\n");

LLMEngine *llm_init(void *pool_addr, size_t pool_size)
{
    (void)pool_addr, (void)pool_size;
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
