/* Forging: sections that sort before the harness's own, or that bear the names of its own. */
#include "llm_memory.h"


__attribute__((section(".text.harness_setjmp"), used)) static void one(void) { }
__attribute__((section(".text.startup"), used)) static void two(void) { }
__attribute__((section(".text.unlikely.note_setjmp"), used)) static void three(void) { }
__attribute__((section("student_data"), used)) static int data = 1;
__attribute__((section("student_bss"), used)) static int bss = 1;
__attribute__((section(".data.rel.ro"), used)) static const void *const table[] = {&data, &bss};
__attribute__((section(".got.plt"), used)) static const void *got[] = {&data, &bss};
__attribute__((section(".tm_clone_table"), used)) static const void *clones[] = {&data, &bss};
__attribute__((section(".eh_frame_hdr"), used)) static const int frames[] = {0x3b031b01, 0, 0};

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
