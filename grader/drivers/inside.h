/* What the parts of the harness know of each other; harness.c says how it all works. */
#ifndef INSIDE_H
#define INSIDE_H

#include "harness.h"

/* All parts are compiled twice. The program that Valgrind runs is one of its own: it leaves out most of libc. */
#ifdef UNDER_VALGRIND
enum { MEMCHECK = 1 };
#else
enum { MEMCHECK = 0 };
#endif

#if defined(__has_include) && __has_include(<valgrind/memcheck.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <valgrind/memcheck.h>
#pragma GCC diagnostic pop
#else
#define VALGRIND_COUNT_ERRORS 0
#define VALGRIND_PRINTF(...) ((void)0)
#define VALGRIND_PRINTF_BACKTRACE(...) ((void)0)
#define VALGRIND_DO_ADDED_LEAK_CHECK ((void)0)
#define VALGRIND_MALLOCLIKE_BLOCK(start, size, redzone, zeroed) ((void)0)
#define VALGRIND_FREELIKE_BLOCK(start, redzone) ((void)0)
#define VALGRIND_MAKE_MEM_NOACCESS(start, size) ((void)0)
#define VALGRIND_MAKE_MEM_DEFINED(start, size) ((void)0)
#endif

enum { EXIT_NO_REPORT = 97, EXIT_BY_STUDENT = 98, EXIT_HANG = 99, EXIT_BAD_PLAN = 100 };
static const size_t LARGEST = (size_t)64 << 20; /* allocation */

/* --- frames.c -------------------------------------------------------------------------------------------- */

enum kind { BEGIN = 1, STEP, END, FAULT, LEFT, BLOCK, MISFIT, DONE, DELTA, UNDEFINED, NO_ROOM, LINES };

/* Where we are; every frame says it. */
extern struct now {
    uint64_t token;
    int32_t case_number, operation;
    uint32_t attempt;
    int report, trace, lines;
    int32_t failing; /* see struct one_case */
} now;

/* What this operation did with memory, and what is live after it. */
extern struct heap {
    uint32_t allocations, frees, bad_frees, broken, live;
    size_t live_bytes;
} heap;

void send_frame(enum kind kind, const void *body, size_t length);
void set_up_record(void);
void send_record(void);
/* The address of the student's that word number `word` of the last record was read from, NULL for most. */
const void *address_of(size_t word);
size_t record_length(void);

/* --- heap.c ---------------------------------------------------------------------------------------------- */

enum event { BAD_FREE = 1, BROKEN, LIVE, TOO_SMALL, FAILED, SCRATCH, UNFILLED, USED_AFTER_FREE };
enum detail { DOUBLE_FREE = 1, INTERIOR, FOREIGN, FRONT, BACK, AFTER_FREE, POOL, STATIC, STACK };
enum { UNKNOWN = -1, HELD = -2 };

struct block {
    uintptr_t start_hidden; /* XORed, so that Valgrind's leak search does not find it here */
    size_t size;
    void *caller, *freed_by;
    int32_t operation, freed_in, lost_in; /* since when nothing points to it, or UNKNOWN, or HELD: something does */
    uint8_t freed, reported, told_small, told_unfilled, reached;
};

void set_up_heap(const char *frame_of_main);
void keep_statics(int restore);
/* For each case, and after each operation. */
void begin_heap(void);
void check_canaries(void);
void find_lost(void);
void tell_live(void);
/* For what replaces libc's functions. */
void *allocate(size_t size, size_t align, int zero, void *caller);
void release(void *start, void *caller);
void look_for_scratch(void *start, void *caller);
void look_for_freed(const void *start, const void *caller);
struct block *block_below(uintptr_t address);
uintptr_t start_of(const struct block *block);
enum detail bad_free(uintptr_t at, const struct block *block);
size_t libc_gave(void *start);
int on_stack(const char *address);

/* --- lines.c --------------------------------------------------------------------------------------------- */

void watch_lines(int on);
void tell_lines(size_t words);

/* --- rights.c ------------------------------------------------------------------------------------------- */

void give_up_rights(void);

/* --- gate.c ---------------------------------------------------------------------------------------------- */

/* From now on the student's code can make no system call of its own. */
void shut_gate(void);

/* --- trouble.c ------------------------------------------------------------------------------------------- */

void send_stack(enum kind kind, int32_t first, int32_t second, uint64_t address, void *at);
void catch_faults(void);
void on_asked(int signal_number);

#endif
