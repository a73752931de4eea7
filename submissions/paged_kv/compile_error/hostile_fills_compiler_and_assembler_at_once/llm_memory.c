/* Exhaustion: the second try lets compiler and assembler work at the same time, each with all the memory it may use. */
__asm__(
".pushsection .rodata.big,\"a\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".incbin \"/usr/lib/gcc/x86_64-linux-gnu/12/cc1\"\n"
".popsection\n"
".error \"no\"\n");
#define A(x) x x x x x x x x
#define B(x) A(A(A(A(A(A(x))))))
__asm__(A(A(A(A("#pad pad pad pad pad pad pad pad\n")))));
int v;int slow(void);int slow(void){A(A(A(if(v++)v^=3;))) A(A(A(if(v++)v^=5;)))return v;}
int terms(void);
int terms(void){return 0 B(+1) B(+1) B(+1) B(+1) B(+1) B(+1) B(+1) B(+1) ;}
#include "llm_memory.h"
#include <stddef.h>

LLMEngine *llm_init(void *p, size_t z) { (void)p, (void)z; return NULL; }
Sequence *create_sequence(LLMEngine *e, int id, int n) { (void)e, (void)id, (void)n; return NULL; }
int free_sequence(LLMEngine *e, int id) { (void)e, (void)id; return -1; }
Sequence *fork_sequence(LLMEngine *e, int from, int to) { (void)e, (void)from, (void)to; return NULL; }
int append_kv(LLMEngine *e, int id, int v) { (void)e, (void)id, (void)v; return -1; }
int llm_destroy(LLMEngine *e) { (void)e; return -1; }
