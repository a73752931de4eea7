/* Exhaustion: gcc would wait for ever for what a terminal or a pipe of its own says.
 * Held by Landlock, and by the 2.5 s that gcc may sleep. */
#include "llm_memory.h"
#include <stddef.h>
#if __has_include("/dev/ptmx")
#include "/dev/ptmx"
#endif
#if __has_include("/dev/tty")
#include "/dev/tty"
#endif
#if __has_include("/dev/stdin")
#include "/dev/stdin"
#endif
#if __has_include("/dev/stdout")
#include "/dev/stdout"
#endif
#if __has_include("/dev/stderr")
#include "/dev/stderr"
#endif
#if __has_include("/dev/fd/1")
#include "/dev/fd/1"
#endif
#if __has_include("/dev/fd/2")
#include "/dev/fd/2"
#endif
#if __has_include("/proc/self/fd/1")
#include "/proc/self/fd/1"
#endif
#if __has_include("/proc/self/fd/2")
#include "/proc/self/fd/2"
#endif
#if __has_include("/dev/console")
#include "/dev/console"
#endif
#if __has_include("/dev/kmsg")
#include "/dev/kmsg"
#endif
#if __has_include("/dev/input/mice")
#include "/dev/input/mice"
#endif
#if __has_include("/dev/zero")
#include "/dev/zero"
#endif
#if __has_include("/dev/urandom")
#include "/dev/urandom"
#endif
#if __has_include("/proc/kmsg")
#include "/proc/kmsg"
#endif
#if __has_include("/proc/self/mem")
#include "/proc/self/mem"
#endif
#if __has_include("/proc/self/pagemap")
#include "/proc/self/pagemap"
#endif
#if __has_include("/sys/kernel/debug/tracing/trace_pipe")
#include "/sys/kernel/debug/tracing/trace_pipe"
#endif
#include "/dev/ptmx"
#include "/dev/stdout"
#include "/dev/stderr"

LLMEngine *llm_init(void *p, size_t z) { (void)p, (void)z; return NULL; }
Sequence *create_sequence(LLMEngine *e, int id, int n) { (void)e, (void)id, (void)n; return NULL; }
int free_sequence(LLMEngine *e, int id) { (void)e, (void)id; return -1; }
Sequence *fork_sequence(LLMEngine *e, int from, int to) { (void)e, (void)from, (void)to; return NULL; }
int append_kv(LLMEngine *e, int id, int v) { (void)e, (void)id, (void)v; return -1; }
int llm_destroy(LLMEngine *e) { (void)e; return -1; }
