/* Exhaustion: the assembler would wait for ever for what a terminal or a pipe of its own says.
 * Held by Landlock, and by the 2.5 s that gcc may sleep. */
__asm__(".incbin \"/dev/ptmx\"\n.include \"/dev/stdout\"\n.include \"/dev/stderr\"\n.incbin \"/proc/self/fd/2\"\n.incbin \"/dev/zero\"");
#include "llm_memory.h"
#include <stddef.h>

LLMEngine *llm_init(void *p, size_t z) { (void)p, (void)z; return NULL; }
Sequence *create_sequence(LLMEngine *e, int id, int n) { (void)e, (void)id, (void)n; return NULL; }
int free_sequence(LLMEngine *e, int id) { (void)e, (void)id; return -1; }
Sequence *fork_sequence(LLMEngine *e, int from, int to) { (void)e, (void)from, (void)to; return NULL; }
int append_kv(LLMEngine *e, int id, int v) { (void)e, (void)id, (void)v; return -1; }
int llm_destroy(LLMEngine *e) { (void)e; return -1; }
