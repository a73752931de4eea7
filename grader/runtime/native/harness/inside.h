/* The interface between the parts of the harness; harness.c explains how it works. */
#ifndef INSIDE_H
#define INSIDE_H

#include "harness.h"

/* All parts are compiled twice. Valgrind runs a separate program, which leaves out most of libc. */
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
#define VALGRIND_DO_LEAK_CHECK ((void)0)
#define VALGRIND_DO_ADDED_LEAK_CHECK ((void)0)
#define VALGRIND_MALLOCLIKE_BLOCK(start, size, redzone, zeroed) ((void)0)
#define VALGRIND_FREELIKE_BLOCK(start, redzone) ((void)0)
#define VALGRIND_MAKE_MEM_NOACCESS(start, size) ((void)0)
#define VALGRIND_MAKE_MEM_DEFINED(start, size) ((void)0)
#endif

enum { EXIT_NO_REPORT = 97, EXIT_BY_STUDENT = 98, EXIT_HANG = 99, EXIT_BAD_PLAN = 100, EXIT_MISFIT };
enum { FILL_NEW = 0xA5 }; /* each byte that the student's code got and never set */
static const size_t LARGEST = (size_t)64 << 20; /* the most bytes of one allocation */

/* --- harness.c ------------------------------------------------------------------------------------------- */

/* Return pages of zeros that a forked child does not get. */
void *pages_of_parent(size_t size);
/* Under Valgrind: let it list what was never freed. */
void list_unfreed(void);
/* The student's code runs between these two calls, and its time is measured. */
void enter_call(void);
void leave_call(void);

/* Make and remove `size` bytes of zeros that belong neither to the student's code nor to any heap. */
void *harness_pages(size_t size);
void harness_drop(void *pages, size_t size);
/* Let Valgrind report every access to these bytes, or stop reporting it. Their content does not change. */
void harness_forbid(const void *start, size_t size);
void harness_allow(const void *start, size_t size);

/* --- lent.c ---------------------------------------------------------------------------------------------- */

enum { MOST_SPANS = 2 };

/* The bytes of lent memory that one call may touch; all its other bytes are forbidden. Used under Valgrind only, where
 * no state is judged. `on`: 0 when nothing is forbidden. */
struct contract {
    int32_t on;
    struct span {
        int32_t target, start, length; /* target: the number under which memory is lent; length 0: no span */
    } may[MOST_SPANS];
};

void begin_contract(const struct contract *contract);
void end_contract(void);
void take_all_back(void);
int is_lent(const void *address);
/* Call `part` for the lent memory, as lab_parts does for variables. */
void lent_parts(void (*part)(void *start, size_t size));

/* --- frames.c -------------------------------------------------------------------------------------------- */

enum kind { BEGIN = 1, STEP, END, FAULT, LEFT, BLOCK, MISFIT, DONE, UNDEFINED = 10, LINES = 12, SUMS, REFUSED };

/* The current case and operation; every frame contains them. */
extern struct now {
    uint64_t token;
    int32_t case_number, operation;
    uint32_t attempt;
    int report, trace, lines, closure;
    int32_t failing; /* see struct one_case */
} now;

void send_frame(enum kind kind, const void *body, size_t length);
void set_up_record(void);
void send_record(void);
enum { RECORD_WORDS = 6 * 1024 * 1024 };
/* What the lab reports after an operation. */
extern struct record {
    int32_t *words; /* RECORD_WORDS of pages, touched only as far as used */
    size_t length;
    const void **addresses; /* from which the words were read, NULL for most; only in a build that reports lines */
} record;

/* Append a word that describes what is at this address. */
static inline void harness_put_of(const void *address, int32_t word)
{
    if (record.length == RECORD_WORDS)
        return;
    if (now.lines)
        record.addresses[record.length] = address;
    record.words[record.length++] = word;
}

static inline void harness_put(int32_t word)
{
    harness_put_of(NULL, word);
}

void harness_put_words(const void *words, size_t count);
/* Put these words as a list of ints. */
void put_words(const char *name, const void *words, size_t count);
/* Let the lab write the record; returns its number of words. */
size_t write_record(void);
/* The words from `start` on are a mark, pairs of a mark and an int, and an end. Replace them by `mark`, the number of
 * ints, and the ints. */
void pack_ints(size_t start, int32_t mark, int32_t count);

/* --- heap.c ---------------------------------------------------------------------------------------------- */

enum event { BAD_FREE = 1, BROKEN, LIVE, TOO_SMALL, FAILED, SCRATCH, UNFILLED, USED_AFTER_FREE };
enum detail { DOUBLE_FREE = 1, INTERIOR, FOREIGN, FRONT, BACK, AFTER_FREE, POOL, STATIC, STACK };
enum { UNKNOWN = -1, HELD = -2 };

struct block {
    uintptr_t start_hidden; /* XORed, so that Valgrind's leak search does not take it for a pointer to the block */
    size_t size;
    void *caller, *freed_by;
    int32_t operation, freed_in, lost_in; /* lost_in: since when nothing points to it; UNKNOWN; HELD: something does */
    uint8_t freed, reported, told_small, told_unfilled, reached;
};

enum { MOST_BLOCKS = 1 << 19, MOST_LIVE_TOLD = 1000 };

/* What heap.c records of a case, in memory into which the student's code could store. Valgrind has a record of its own
 * of each block (list_unfreed), and each operation must do the same to the heap under Valgrind as natively. */
extern struct heap {
    /* What this operation did with memory, and what is live after it. */
    uint32_t allocations, frees, bad_frees, broken, live;
    int32_t some_too_small; /* whether a block of this case is too small */
    int32_t unfilled_in;    /* the last operation in which harness_unfilled reported a block */
    size_t live_bytes, block_count;
    unsigned char *next, *end;        /* of the arena, for this case */
    struct block *blocks;             /* of this case, by rising address */
    int32_t falls;                    /* each allocation has a lower address than the one before */
    int32_t first_case, last_case; /* under Valgrind: since the arena was new */
} heap;

void set_up_heap(const char *frame_of_main);
/* Set to 0 the counts of what an operation does with memory. */
void begin_operation(void);
void keep_statics(int restore);
/* Called before each case. */
void begin_heap(void);
/* Call `part` for every part of the student's memory, and for what heap.c records of it. */
void heap_parts(void (*part)(void *start, size_t size));
void check_canaries(void);
void find_lost(void);
void tell_live(void);
void report_block(enum event event, enum detail detail, const struct block *block, void *caller);
/* Used by the functions that replace libc's. */
void *allocate(size_t size, size_t align, int zero, void *caller);
void release(void *start, void *caller);
void look_for_scratch(void *start, void *caller);
void look_for_freed(const void *start, const void *caller);
struct block *block_below(uintptr_t address);
uintptr_t start_of(const struct block *block);
enum detail bad_free(uintptr_t at, const struct block *block);
size_t libc_gave(void *start);
int on_stack(const char *address);
extern const char *stack_base; /* main's frame */

/* --- closure.c ------------------------------------------------------------------------------------------- */

/* Play a closure; only natively. Returns 0 when the student's memory is too large to be kept. */
int run_closure(const struct call *calls, int32_t count, const int32_t *tour, int32_t length);

/* --- lines.c --------------------------------------------------------------------------------------------- */

void watch_lines(int on);
void tell_lines(size_t words);

/* --- rights.c ------------------------------------------------------------------------------------------- */

/* Give up rights for good. `refuse_calls`: also system calls; set only where the kernel can refuse them. */
void give_up_rights(int refuse_calls);

/* --- gate.c ---------------------------------------------------------------------------------------------- */

/* From now on the student's code cannot make system calls of its own. */
void shut_gate(void);
/* Call munmap or writev. Only from here may the program unmap, or write to the report. Returns < 0 for an error. */
long ask_kernel(long number, uintptr_t a, uintptr_t b, uintptr_t c);

/* --- faults.c ------------------------------------------------------------------------------------------- */

void send_stack(enum kind kind, int32_t first, int32_t second, uint64_t address, void *at);
void catch_faults(void);
void on_asked(int signal_number);

#endif
