/* Theory of operation
 *
 * This file, a lab's driver.c and the student's object make one program. The grader starts it and reads what it
 * reports; the grader alone, another process, decides. Expected states never come here.
 *
 *   the plan       argv[1] is its descriptor: cases and their operations (read once, then closed)
 *   the report     argv[2] is its descriptor: frames, each with a token, a kind and a length
 *   stdout, stderr the student's; nobody parses them
 *
 * "native": the parent forks one child for every case. The child does the operations and sends a STEP frame with the
 * canonical record after each (or a DELTA frame, with what is new in it); a crash or a time limit is caught on an
 * alternate stack and sent as a FAULT frame with the return addresses. The parent frames each case with BEGIN and
 * END, which the child cannot forge into another case's part because the grader takes the last END before the next
 * BEGIN. The parent limits the time of each operation too; how is said at "time".
 *
 * Under Valgrind (compiled a second time) all cases run in one process. No state is reported, only how many errors
 * Valgrind has counted; a client message puts the case and operation into Valgrind's own report, after its errors.
 * The plan says which bytes of the lab's memory each call may touch; the others are forbidden, and client messages
 * say where they were, so that the grader can tell a store into them from other errors.
 *
 * The student's malloc, free, exit and so on were renamed to the functions below. Memory comes from an arena and is
 * never used twice, with a gap before and behind each block. Natively new bytes are 0xA5, freed ones 0xDD, and the
 * gaps are canaries. Valgrind is told of every block instead, and that the gaps are nobody's: so it finds the same
 * errors in a statically linked program, where it cannot see malloc, and such a program starts five times faster.
 *
 * "trace": natively, and after each operation the harness looks which live blocks nothing points to any more. No
 * state is reported, only where each block that was never freed was lost. It is for the cases that lost something.
 */
#define _GNU_SOURCE
#include "harness.h"

/* This file is compiled twice. The program that Valgrind runs is one of its own: it leaves out most of libc. */
#ifdef UNDER_VALGRIND
enum { MEMCHECK = 1 };
#else
enum { MEMCHECK = 0 };
#endif

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

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

enum { PLAN_MAGIC = 0x504c414e, PLAN_MEMCHECK = 1, PLAN_TRACE = 2, HEADER = 9, SETTINGS = 4 };
enum { EXIT_NO_REPORT = 97, EXIT_BY_STUDENT = 98, EXIT_HANG = 99, EXIT_BAD_PLAN = 100, EXIT_NO_ROOM = 101 };
enum { CODES = 64 }; /* more than any lab has calls */
enum { FRAMES_DEPTH = 32 };

/* ---------------------------------------------------------------- frames */

enum kind { BEGIN = 1, STEP, END, FAULT, LEFT, BLOCK, MISFIT, DONE, DELTA, UNDEFINED };

struct frame {
    uint64_t token;
    uint32_t kind, length; /* bytes that follow */
    int32_t case_number, operation;
    uint32_t attempt;
    uint32_t allocations, frees, bad_frees, broken; /* in this operation */
    uint32_t live;                                  /* blocks, after it */
};

static struct {
    uint64_t token;
    int32_t case_number, operation;
    uint32_t attempt;
    int report, trace;
    int32_t failing; /* see struct one_case */
} now;

static struct {
    uint32_t allocations, frees, bad_frees, broken, live;
    size_t live_bytes;
} heap;

static void send_frame(enum kind kind, const void *body, size_t length)
{
    struct frame frame = {
        .token = now.token, .kind = kind, .length = (uint32_t)length,
        .case_number = now.case_number, .operation = now.operation, .attempt = now.attempt,
        .allocations = heap.allocations, .frees = heap.frees, .bad_frees = heap.bad_frees,
        .broken = heap.broken, .live = heap.live,
    };
    struct iovec parts[2] = {{&frame, sizeof frame}, {(void *)(uintptr_t)body, length}};
    int first = 0;
    while (first < 2) {
        ssize_t sent = writev(now.report, parts + first, 2 - first);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            _exit(EXIT_NO_REPORT);
        while (first < 2 && (size_t)sent >= parts[first].iov_len)
            sent -= (ssize_t)parts[first++].iov_len;
        if (first < 2) {
            parts[first].iov_base = (char *)parts[first].iov_base + sent;
            parts[first].iov_len -= (size_t)sent;
        }
    }
}

/* ---------------------------------------------------------------- the record */

enum { RECORD_WORDS = 6 * 1024 * 1024, SEEN = 1 << 14 };
static int32_t *record, *last_record; /* RECORD_WORDS of pages each, touched only as far as used */
static size_t record_length, last_length;
static const void *seen[SEEN];
static uint32_t seen_in[SEEN], seen_round;

void harness_put(int32_t word)
{
    if (record_length < RECORD_WORDS)
        record[record_length++] = word;
}

void harness_put_words(const void *words, size_t count)
{
    if (count > RECORD_WORDS - record_length)
        count = RECORD_WORDS - record_length;
    memcpy(record + record_length, words, count * sizeof *record);
    record_length += count;
}

int harness_seen(const void *address)
{
    size_t place = ((uintptr_t)address >> 4) % SEEN; /* neighbours stay neighbours: few pages are touched */
    for (size_t tries = 0; tries < SEEN; tries++, place = (place + 1) % SEEN) {
        if (seen_in[place] != seen_round) {
            seen_in[place] = seen_round;
            seen[place] = address;
            return 0;
        }
        if (seen[place] == address)
            return 1;
    }
    return 1; /* more pointers than anybody allocates in one case */
}

/* Send the record. Most operations change little of it: then the body of a DELTA frame is how many words behind the
 * reply are as in the last record, how many at the end are, the reply, and what lies between. */
static void send_record(void)
{
    enum { REPLY = 2, HEAD = 4, WORTH_IT = 64 };
    size_t shorter = record_length < last_length ? record_length : last_length, same = 0, tail = 0;
    while (REPLY + same < shorter && record[REPLY + same] == last_record[REPLY + same])
        same++;
    while (REPLY + same + tail < shorter && record[record_length - 1 - tail] == last_record[last_length - 1 - tail])
        tail++;
    if (same >= HEAD - REPLY && same + tail > WORTH_IT) {
        int32_t *head = record + REPLY + same - HEAD, covered[HEAD];
        int32_t body[HEAD] = {(int32_t)same, (int32_t)tail, record[0], record[1]};
        memcpy(covered, head, sizeof covered);
        memcpy(head, body, sizeof body);
        send_frame(DELTA, head, (record_length - REPLY - same - tail + HEAD) * sizeof *record);
        memcpy(head, covered, sizeof covered);
    } else {
        send_frame(STEP, record, record_length * sizeof *record);
    }
    int32_t *swap = last_record;
    last_record = record;
    last_length = record_length;
    record = swap;
}

/* ---------------------------------------------------------------- the student's own writable data */

/* objcopy gave it sections of these names. Thread-local data cannot have its own: the linker lays it between that of
 * marker.o, which stands before the student's object in the link, and ours, which stands behind it. */
static char no_data __attribute__((section("student_data"), used)) = 1;
static char no_bss __attribute__((section("student_bss"), used));
extern char __start_student_data[], __stop_student_data[], __start_student_bss[], __stop_student_bss[];
extern _Thread_local char harness_first_tdata, harness_first_tbss;
static _Thread_local volatile char last_tdata = 1, last_tbss;

static struct statics {
    char *start, *stop, *kept; /* kept: as they were before the first case */
} statics[4];
enum { STATICS = sizeof statics / sizeof *statics };

static void keep_statics(int restore)
{
    for (int i = 0; restore && i < STATICS; i++)
        memcpy(statics[i].start, statics[i].kept, (size_t)(statics[i].stop - statics[i].start));
    if (restore)
        return;
    statics[0] = (struct statics){__start_student_data, __stop_student_data, NULL};
    statics[1] = (struct statics){__start_student_bss, __stop_student_bss, NULL};
    statics[2] = (struct statics){&harness_first_tdata, (char *)(uintptr_t)&last_tdata, NULL};
    statics[3] = (struct statics){&harness_first_tbss, (char *)(uintptr_t)&last_tbss, NULL};
    for (int i = 0; i < STATICS; i++) {
        size_t size = (size_t)(statics[i].stop - statics[i].start);
        VALGRIND_MAKE_MEM_DEFINED(statics[i].start, size); /* it does not know that thread-local zeros are set */
        statics[i].kept = memcpy(harness_pages(size), statics[i].start, size);
    }
}

static int in_statics(const char *address, size_t need)
{
    for (int i = 0; i < STATICS; i++)
        if (address >= statics[i].start && address <= statics[i].stop && need <= (size_t)(statics[i].stop - address))
            return 1;
    return 0;
}

/* ---------------------------------------------------------------- the student's memory */

enum { BEFORE = 32, BEHIND = 128, FILL_NEW = 0xA5, FILL_FREED = 0xDD, CANARY = 0xFB };
/* Valgrind needs a moment for every megabyte that it is told of. */
static const size_t NATIVE_ARENA = (size_t)1 << 30, MEMCHECK_ARENA = (size_t)32 << 20, LARGEST = (size_t)64 << 20;
/* Of one case at one time. An allocation loop soon comes to its end, and nobody who frees ever does. */
static const size_t MOST_LIVE = (size_t)64 << 20;
enum { MOST_BLOCKS = 1 << 19, MOST_LEAK_CHECKS = 8, MOST_LIVE_TOLD = 1000 };

struct block {
    uintptr_t start_hidden; /* XORed, so that Valgrind's leak search does not find it here */
    size_t size;
    void *caller, *freed_by;
    int32_t operation, freed_in, lost_in; /* since when nothing points to it, or UNKNOWN, or HELD: something does */
    uint8_t freed, reported, told_small, reached;
};
static const uintptr_t HIDE = (uintptr_t)0x5a5a5a5a5a5a5a5a;

static struct block *blocks; /* by rising address */
static size_t block_count, block_room;
static unsigned char *arena, *arena_next, *arena_end;
static int some_too_small; /* of the blocks of this case */

enum event { BAD_FREE = 1, BROKEN, LIVE, TOO_SMALL, FAILED, SCRATCH };
enum detail { DOUBLE_FREE = 1, INTERIOR, FOREIGN, FRONT, BACK, AFTER_FREE, POOL, STATIC, STACK };
enum { UNKNOWN = -1, HELD = -2 };

static uintptr_t start_of(const struct block *block)
{
    return block->start_hidden ^ HIDE;
}

/* The last block that starts at or below `address`, or NULL. */
static struct block *block_below(uintptr_t address)
{
    static size_t last; /* a walk meets blocks in the order in which they were allocated: often it is the next one */
    for (size_t i = last; i < last + 2 && i < block_count; i++)
        if (start_of(&blocks[i]) <= address && (i + 1 == block_count || address < start_of(&blocks[i + 1])))
            return &blocks[last = i];
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (start_of(&blocks[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &blocks[last = low - 1] : NULL;
}

/* `number`: how far behind the block's start a bad free points, or how large too small an allocation should be. */
static void tell_of_block(enum event event, enum detail detail, const struct block *block, void *caller, int64_t number)
{
    static const struct block none = {.operation = UNKNOWN, .freed_in = UNKNOWN, .lost_in = UNKNOWN};
    if (block == NULL)
        block = &none;
    struct {
        int32_t event, detail, operation, freed_in, lost_in, unused;
        uint64_t size, allocated_at, freed_at, caller;
        int64_t number;
    } body = {event, detail, block->operation, block->freed_in, block->lost_in, 0, block->size,
              (uint64_t)(uintptr_t)block->caller, (uint64_t)(uintptr_t)block->freed_by, (uint64_t)(uintptr_t)caller,
              number};
    send_frame(BLOCK, &body, sizeof body);
}

static void report_block(enum event event, enum detail detail, const struct block *block, void *caller)
{
    tell_of_block(event, detail, block, caller, 0);
}

/* Addresses only rise, so the table stays sorted. */
static void remember(void *start, size_t size, void *caller)
{
    blocks[block_count++] = (struct block){
        .start_hidden = (uintptr_t)start ^ HIDE, .size = size, .caller = caller,
        .operation = now.operation, .freed_in = UNKNOWN, .lost_in = UNKNOWN};
    heap.allocations++;
    heap.live++;
    heap.live_bytes += size;
}

/* Is this the allocation that the plan wants to fail? */
static int must_fail(size_t size, void *caller)
{
    if (now.failing <= 0 || --now.failing > 0)
        return 0;
    report_block(FAILED, 0, &(struct block){.size = size, .caller = caller, .operation = now.operation}, caller);
    return 1;
}

/* Tell of memory that goes back in the call that allocated it. */
static void look_for_scratch(void *start, void *caller)
{
    enum { MOST_TOLD = 64 };
    static int told;
    const struct block *block = start ? block_below((uintptr_t)start) : NULL;
    if (block != NULL && start_of(block) == (uintptr_t)start && !block->freed && block->operation == now.operation
        && told++ < MOST_TOLD)
        report_block(SCRATCH, 0, block, caller);
}

static void *allocate(size_t size, size_t align, int zero, void *caller)
{
    if (must_fail(size, caller) || size > LARGEST || align > LARGEST || heap.live_bytes + size > MOST_LIVE) {
        errno = ENOMEM;
        return NULL;
    }
    unsigned char *start = arena_next + BEFORE;
    start += (align - (uintptr_t)start % align) % align;
    if (block_count == block_room || start > arena_end || size + BEHIND + 16 > (size_t)(arena_end - start)) {
        if (MEMCHECK)
            _exit(EXIT_NO_ROOM); /* natively there was room: nothing of this is the student's fault */
        errno = ENOMEM;
        return NULL;
    }
    arena_next = start + size + BEHIND;
    if (MEMCHECK) {
        VALGRIND_MALLOCLIKE_BLOCK(start, size, BEFORE, 0);
        if (zero)
            memset(start, 0, size);
    } else {
        memset(start - BEFORE, CANARY, BEFORE);
        memset(start, zero ? 0 : FILL_NEW, size);
        memset(start + size, CANARY, BEHIND);
    }
    remember(start, size, caller);
    return start;
}

static const char *stack_base; /* main's frame */

/* On the stack, in a function that runs or in one that has just returned. */
static int on_stack(const char *address)
{
    enum { JUST_RETURNED = 64 * 1024 };
    return address < stack_base && address >= (const char *)__builtin_frame_address(0) - JUST_RETURNED;
}

extern char _end[]; /* of the program's data; behind it is libc's heap, and main sees to it that there is no other */

#ifdef UNDER_VALGRIND
extern char _DYNAMIC[] __attribute__((weak)); /* a program without it has no function of libc that allocates ... */
#pragma weak malloc_usable_size
#pragma weak free /* ... and perhaps not these two */
#endif

/* Did libc itself allocate it, in a function that is not renamed? Whoever called that must free it. */
static int libc_gave(void *start)
{
#ifdef UNDER_VALGRIND
    if (_DYNAMIC != NULL && malloc_usable_size(start) > 0) /* Valgrind's, which knows every block */
        return 1;
#endif
    return !MEMCHECK && (char *)start >= _end && (char *)start < (char *)sbrk(0);
}

/* What is wrong with freeing this address, or 0. */
static enum detail bad_free(uintptr_t at, const struct block *block)
{
    if (block == NULL || at >= start_of(block) + (block->size ? block->size : 1)) {
        const char *address = (const char *)at;
        return lab_lends(address) ? POOL : in_statics(address, 1) ? STATIC : on_stack(address) ? STACK : FOREIGN;
    }
    if (block->freed)
        return DOUBLE_FREE;
    return at != start_of(block) ? INTERIOR : 0;
}

static void release(void *start, void *caller)
{
    if (start == NULL)
        return;
    struct block *block = block_below((uintptr_t)start);
    enum detail wrong = bad_free((uintptr_t)start, block);
    if (wrong == FOREIGN && libc_gave(start)) {
        free(start);
        return;
    }
    heap.frees++;
    if (wrong) {
        int known = wrong == DOUBLE_FREE || wrong == INTERIOR;
        heap.bad_frees++;
        tell_of_block(BAD_FREE, wrong, known ? block : NULL, caller,
                      known ? (int64_t)((uintptr_t)start - start_of(block)) : 0);
        if (MEMCHECK)
            VALGRIND_FREELIKE_BLOCK(start, BEFORE); /* it reports the bad free with all stacks */
        return;
    }
    block->freed = 1;
    block->freed_by = caller;
    block->freed_in = now.operation;
    heap.live--;
    heap.live_bytes -= block->size;
    if (MEMCHECK)
        VALGRIND_FREELIKE_BLOCK(start, BEFORE);
    else
        memset(start, FILL_FREED, block->size);
}

/* Looked at after every operation, so it compares with a ready pattern instead of byte by byte. */
static int all_bytes(const unsigned char *bytes, size_t count, int value)
{
    static unsigned char canaries[BEHIND], freed[BEHIND];
    if (canaries[0] != CANARY) {
        memset(canaries, CANARY, sizeof canaries);
        memset(freed, FILL_FREED, sizeof freed);
    }
    const unsigned char *pattern = value == CANARY ? canaries : freed;
    for (; count > BEHIND; count -= BEHIND, bytes += BEHIND)
        if (memcmp(bytes, pattern, BEHIND) != 0)
            return 0;
    return memcmp(bytes, pattern, count) == 0;
}

/* Look at every canary and every freed byte; each damage is reported once, at the operation that did it. */
static void check_canaries(void)
{
    if (MEMCHECK)
        return;
    for (size_t i = 0; i < block_count; i++) {
        struct block *block = &blocks[i];
        const unsigned char *start = (const unsigned char *)start_of(block);
        enum detail damage = 0;
        if (block->reported)
            continue;
        if (!all_bytes(start + block->size, BEHIND, CANARY))
            damage = BACK;
        else if (!all_bytes(start - BEFORE, BEFORE, CANARY))
            damage = FRONT;
        else if (block->freed && !all_bytes(start, block->size, FILL_FREED))
            damage = AFTER_FREE;
        if (damage) {
            block->reported = 1;
            heap.broken++;
            report_block(BROKEN, damage, block, NULL);
        }
    }
}

/* Reachability, while tracing. Whatever looks like an address in a block or of its end is taken for a pointer. */
enum { MOST_LOOKED = 1 << 22 };
static uint32_t *pending; /* blocks that were reached and not looked through yet */
static size_t pending_count, looked; /* looked: words and blocks, in this process, which has one case */

void harness_root(const void *pointer)
{
    uintptr_t at = (uintptr_t)pointer;
    if (at < (uintptr_t)arena || at >= (uintptr_t)arena_next)
        return;
    struct block *block = block_below(at);
    if (block == NULL || block->freed || block->reached || at > start_of(block) + block->size)
        return;
    block->reached = 1;
    pending[pending_count++] = (uint32_t)(block - blocks);
}

static void look_through(uintptr_t start, uintptr_t stop)
{
    const uintptr_t word = sizeof(void *);
    looked += (stop - start) / word;
    for (uintptr_t at = (start + word - 1) / word * word; at + word <= stop; at += word)
        harness_root(*(void *const *)at);
}

/* Where a block was lost is worth some time, but not all: a program that allocates without measure is not traced. */
static void find_lost(void)
{
    looked += block_count;
    for (size_t i = 0; i < block_count; i++)
        blocks[i].reached = 0;
    if (looked > MOST_LOOKED) {
        for (size_t i = 0; i < block_count; i++)
            blocks[i].lost_in = UNKNOWN;
        return;
    }
    lab_roots();
    for (int i = 0; i < STATICS; i++)
        look_through((uintptr_t)statics[i].start, (uintptr_t)statics[i].stop);
    while (pending_count) {
        const struct block *block = &blocks[pending[--pending_count]];
        look_through(start_of(block), start_of(block) + block->size);
    }
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].reached)
            blocks[i].lost_in = HELD;
        else if (blocks[i].lost_in < 0)
            blocks[i].lost_in = now.operation;
}

enum pointer harness_pointer(const void *address, size_t need)
{
    if (address == NULL)
        return PTR_NULL;
    if (in_statics(address, need))
        return (uintptr_t)address % 4 ? PTR_STRAY : PTR_OK;
    uintptr_t at = (uintptr_t)address;
    struct block *block = block_below(at);
    if (block == NULL || at >= start_of(block) + (block->size ? block->size : 1) || at % 4)
        return PTR_STRAY;
    if (block->freed)
        return PTR_FREED;
    uintptr_t end = start_of(block) + block->size;
    if (at + need > end && !block->told_small && !MEMCHECK) {
        block->told_small = some_too_small = 1;
        heap.broken++;
        tell_of_block(TOO_SMALL, 0, block, NULL, (int64_t)(at + need - start_of(block)));
    }
    /* What runs over the end into the canary can be read all the same: one finding, not a ruined case. */
    return at + need <= end + (MEMCHECK ? 0 : BEHIND) ? PTR_OK : PTR_SMALL;
}

int harness_outside(const void *address, size_t size)
{
    if (!some_too_small)
        return 0;
    uintptr_t at = (uintptr_t)address;
    const struct block *block = block_below(at);
    return !MEMCHECK && !in_statics(address, size) && block != NULL && at + size > start_of(block) + block->size
        && all_bytes(address, size, CANARY);
}

void *harness_pages(size_t size)
{
    void *pages = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
    if (pages == MAP_FAILED)
        _exit(EXIT_BAD_PLAN);
    return pages;
}

void harness_drop(void *pages, size_t size)
{
    munmap(pages, size ? size : 1);
}

enum { MOST_FORBIDDEN = 16 };
static struct {
    uintptr_t start, end;
} forbidden[MOST_FORBIDDEN]; /* in this operation */
static int forbidden_count;

void harness_forbid(const void *start, size_t size)
{
    if (forbidden_count == MOST_FORBIDDEN)
        return;
    forbidden[forbidden_count].start = (uintptr_t)start;
    forbidden[forbidden_count++].end = (uintptr_t)start + size;
    VALGRIND_MAKE_MEM_NOACCESS(start, size);
}

void harness_allow(const void *start, size_t size)
{
    VALGRIND_MAKE_MEM_DEFINED(start, size);
    (void)start;
    (void)size;
}

/* Put what was forbidden, the case and the operation behind the operation's errors in Valgrind's report. */
static void mark_errors(int32_t case_number, int32_t operation, int32_t errors)
{
    for (int i = 0; i < forbidden_count; i++)
        VALGRIND_PRINTF("pkv forbidden %lx %lx\n", (unsigned long)forbidden[i].start, (unsigned long)forbidden[i].end);
    VALGRIND_PRINTF("pkv errors %d %d %d\n", case_number, operation, errors);
    (void)case_number;
    (void)operation;
    (void)errors;
}

/* ---------------------------------------------------------------- what the student's calls were renamed to */

/* Declared here and not in harness.h: only the linker connects them with the student's code. */
void *harness_calloc(size_t, size_t);
void *harness_realloc(void *, size_t);
void *harness_reallocarray(void *, size_t, size_t);
void *harness_aligned_alloc(size_t, size_t);
int harness_posix_memalign(void **, size_t, size_t);
void *harness_memalign(size_t, size_t);
void *harness_valloc(size_t);
void *harness_pvalloc(size_t);
size_t harness_malloc_usable_size(void *);
int harness_asprintf(char **, const char *, ...);
int harness_vasprintf(char **, const char *, va_list);
int harness___asprintf_chk(char **, int, const char *, ...);
int harness___vasprintf_chk(char **, int, const char *, va_list);
ssize_t harness_getline(char **, size_t *, FILE *);
ssize_t harness_getdelim(char **, size_t *, int, FILE *);
ssize_t harness___getdelim(char **, size_t *, int, FILE *);
char *harness_strdup(const char *);
char *harness_strndup(const char *, size_t);
void harness_free(void *);
_Noreturn void harness_exit(int);
_Noreturn void harness__exit(int);
_Noreturn void harness__Exit(int);
_Noreturn void harness_quick_exit(int);
_Noreturn void harness_abort(void);
_Noreturn void harness_longjmp(struct __jmp_buf_tag *, int);
_Noreturn void harness__longjmp(struct __jmp_buf_tag *, int);
_Noreturn void harness_siglongjmp(struct __jmp_buf_tag *, int);
_Noreturn void harness___longjmp_chk(struct __jmp_buf_tag *, int);

#define CALLER __builtin_return_address(0)

void *harness_malloc(size_t size)
{
    return allocate(size, 16, 0, CALLER);
}

void *harness_calloc(size_t count, size_t size)
{
    return size && count > SIZE_MAX / size ? NULL : allocate(count * size, 16, 1, CALLER);
}

/* As libc's, but that it always moves: size 0 frees. */
static void *resized(void *old, size_t size, void *caller)
{
    if (old != NULL && size == 0) {
        release(old, caller);
        return NULL;
    }
    const struct block *block = old ? block_below((uintptr_t)old) : NULL;
    enum detail wrong = old ? bad_free((uintptr_t)old, block) : 0;
    size_t kept = 0;
    if (old != NULL && !wrong)
        kept = block->size;
    else if (wrong == FOREIGN && libc_gave(old))
        kept = malloc_usable_size(old);
    void *new = allocate(size, 16, 0, caller);
    if (new == NULL)
        return NULL;
    if (kept)
        memcpy(new, old, kept < size ? kept : size);
    release(old, caller);
    return new;
}

void *harness_realloc(void *old, size_t size)
{
    return resized(old, size, CALLER);
}

void *harness_reallocarray(void *old, size_t count, size_t size)
{
    return size && count > SIZE_MAX / size ? NULL : resized(old, count * size, CALLER);
}

static void *aligned(size_t align, size_t size, void *caller)
{
    if (align == 0 || (align & (align - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(size, align < 16 ? 16 : align, 0, caller);
}

void *harness_aligned_alloc(size_t align, size_t size)
{
    return aligned(align, size, CALLER);
}

int harness_posix_memalign(void **result, size_t align, size_t size)
{
    if (align % sizeof(void *) != 0 || align == 0 || (align & (align - 1)) != 0)
        return EINVAL;
    void *start = aligned(align, size, CALLER);
    if (start == NULL)
        return ENOMEM;
    *result = start;
    return 0;
}

void *harness_memalign(size_t align, size_t size)
{
    size_t power = 16;
    while (power < align && power <= LARGEST)
        power *= 2;
    return aligned(power, size, CALLER);
}

void *harness_valloc(size_t size)
{
    return aligned((size_t)sysconf(_SC_PAGESIZE), size, CALLER);
}

void *harness_pvalloc(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return aligned(page, size > LARGEST ? size : (size + page - 1) / page * page, CALLER);
}

size_t harness_malloc_usable_size(void *start)
{
    const struct block *block = block_below((uintptr_t)start);
    return start != NULL && bad_free((uintptr_t)start, block) == 0 ? block->size : 0;
}

static char *copied(const char *text, size_t length, void *caller)
{
    char *copy = allocate(length + 1, 16, 0, caller);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *harness_strdup(const char *text)
{
    return copied(text, strlen(text), CALLER);
}

char *harness_strndup(const char *text, size_t most)
{
    return copied(text, strnlen(text, most), CALLER);
}

static int printed(char **result, const char *format, va_list arguments, void *caller)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : allocate((size_t)length + 1, 16, 0, caller);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    if (text == NULL)
        return -1;
    *result = text;
    return length;
}

int harness_vasprintf(char **result, const char *format, va_list arguments)
{
    return printed(result, format, arguments, CALLER);
}

int harness___vasprintf_chk(char **result, int flag, const char *format, va_list arguments)
{
    (void)flag;
    return printed(result, format, arguments, CALLER);
}

int harness_asprintf(char **result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = printed(result, format, arguments, CALLER);
    va_end(arguments);
    return length;
}

int harness___asprintf_chk(char **result, int flag, const char *format, ...)
{
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    int length = printed(result, format, arguments, CALLER);
    va_end(arguments);
    return length;
}

static ssize_t line_read(char **line, size_t *room, int delimiter, FILE *file, void *caller)
{
    enum { FIRST_ROOM = 120 };
    if (line == NULL || room == NULL) {
        errno = EINVAL;
        return -1;
    }
    size_t length = 0;
    for (int letter = 0; letter != delimiter || length == 0; length++) {
        if (*line == NULL || length + 2 > *room) { /* room for this letter and the end */
            size_t larger = *line == NULL || *room < FIRST_ROOM / 2 ? FIRST_ROOM : 2 * *room;
            char *moved = resized(*line, larger, caller);
            if (moved == NULL)
                return -1;
            *line = moved;
            *room = larger;
        }
        letter = getc(file);
        if (letter == EOF)
            break;
        (*line)[length] = (char)letter;
    }
    (*line)[length] = '\0';
    return length ? (ssize_t)length : -1;
}

ssize_t harness_getline(char **line, size_t *room, FILE *file)
{
    return line_read(line, room, '\n', file, CALLER);
}

ssize_t harness_getdelim(char **line, size_t *room, int delimiter, FILE *file)
{
    return line_read(line, room, delimiter, file, CALLER);
}

ssize_t harness___getdelim(char **line, size_t *room, int delimiter, FILE *file)
{
    return line_read(line, room, delimiter, file, CALLER);
}

void harness_free(void *start)
{
    if (now.failing < 0)
        look_for_scratch(start, CALLER);
    release(start, CALLER);
}

enum way { WAY_EXIT = 1, WAY__EXIT, WAY__EXIT_C, WAY_QUICK_EXIT, WAY_ABORT, WAY_JUMP };

static void send_stack(enum kind kind, int32_t first, int32_t second, uint64_t address, void *at)
{
    struct {
        int32_t first, second;
        uint64_t address;
        uint64_t stack[FRAMES_DEPTH];
    } body = {first, second, address, {(uint64_t)(uintptr_t)at}};
    size_t head = sizeof body - sizeof body.stack;
    send_frame(kind, &body, head + (at ? sizeof body.stack[0] : 0));
    void *stack[FRAMES_DEPTH];
    int depth = backtrace(stack, FRAMES_DEPTH); /* may itself fault on a ruined stack: the frame above is out */
    int from = 0, kept = 0;
    while (at != NULL && from < depth && stack[from] != at) /* the handler's own frames */
        from++;
    for (from %= depth ? depth : 1; from < depth; from++)
        body.stack[kept++] = (uint64_t)(uintptr_t)stack[from];
    send_frame(kind, &body, head + (size_t)kept * sizeof body.stack[0]);
}

static _Noreturn void leave(enum way way, int status)
{
    send_stack(LEFT, way, status, 0, NULL);
    fflush(stdout);
    _exit(EXIT_BY_STUDENT);
}

_Noreturn void harness_exit(int status) { leave(WAY_EXIT, status); }
_Noreturn void harness__exit(int status) { leave(WAY__EXIT, status); }
_Noreturn void harness__Exit(int status) { leave(WAY__EXIT_C, status); }
_Noreturn void harness_quick_exit(int status) { leave(WAY_QUICK_EXIT, status); }
_Noreturn void harness_abort(void) { leave(WAY_ABORT, 0); }

/* A longjmp is legal when the function that called setjmp still runs. No function can stand before setjmp, because
 * setjmp would save that function's frame; so a few instructions note the buffer and jump on. What cannot be seen:
 * a copied buffer, __builtin_setjmp, and a frame that returned in this very call and whose room is in use again. */
static struct jump {
    const void *buffer;
    const char *stack;
    int32_t case_number, operation;
} jumps[64];
static size_t jump_count;

__attribute__((used, noinline)) static void note_setjmp(const void *buffer, const char *stack)
{
    const size_t room = sizeof jumps / sizeof *jumps;
    size_t place = 0;
    while (place < room && jumps[place].buffer != buffer)
        place++;
    if (place == room)
        place = jump_count++ % room;
    jumps[place] = (struct jump){buffer, stack, now.case_number, now.operation};
}

#if defined(__x86_64__)
#define NOTED(name)                                                                                               \
    __asm__(".pushsection .text.harness_" name ", \"ax\"\n"                                                       \
            ".globl harness_" name "\n.type harness_" name ", @function\nharness_" name ":\n"                        \
            "push %rdi\npush %rsi\nsub $8, %rsp\nlea 32(%rsp), %rsi\ncall note_setjmp\n"                           \
            "add $8, %rsp\npop %rsi\npop %rdi\njmp " name "@PLT\n"                                                  \
            ".size harness_" name ", . - harness_" name "\n.popsection\n")
#elif defined(__aarch64__)
#define NOTED(name)                                                                                               \
    __asm__(".pushsection .text.harness_" name ", \"ax\"\n"                                                       \
            ".globl harness_" name "\n.type harness_" name ", %function\nharness_" name ":\n"                        \
            "stp x0, x1, [sp, #-32]!\nstp x29, x30, [sp, #16]\nadd x1, sp, #32\nbl note_setjmp\n"                  \
            "ldp x29, x30, [sp, #16]\nldp x0, x1, [sp], #32\nb " name "\n"                                          \
            ".size harness_" name ", . - harness_" name "\n.popsection\n")
#else
#error "setjmp cannot be noted on this machine: write its few instructions here"
#endif
NOTED("setjmp");
NOTED("_setjmp");
NOTED("__sigsetjmp");

static _Noreturn void jump(struct __jmp_buf_tag *buffer, int value)
{
    const char *frame = __builtin_frame_address(0);
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        const struct jump *noted = &jumps[i];
        if (noted->buffer != buffer)
            continue;
        int other_call = noted->case_number != now.case_number || noted->operation != now.operation;
        if (other_call || (noted->stack < frame && on_stack(noted->stack)))
            leave(WAY_JUMP, 0);
    }
    siglongjmp(buffer, value);
}

_Noreturn void harness_longjmp(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }
_Noreturn void harness__longjmp(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }
_Noreturn void harness_siglongjmp(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }
_Noreturn void harness___longjmp_chk(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }

/* ---------------------------------------------------------------- crashes and time limits */

static const int FATAL[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

static void *program_counter(void *context)
{
#if defined(__x86_64__)
    return (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (void *)((ucontext_t *)context)->uc_mcontext.pc;
#else
    (void)context;
    return NULL;
#endif
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    signal(signal_number, SIG_DFL);
    if (signal_number != SIGSEGV)
        signal(SIGSEGV, SIG_DFL); /* the walk up the stack below may meet ruins */
    int hang = signal_number == SIGPROF;
    send_stack(FAULT, signal_number, info->si_code, hang ? 0 : (uint64_t)(uintptr_t)info->si_addr,
               program_counter(context));
    if (hang)
        _exit(EXIT_HANG);
    raise(signal_number);
}

static void catch_faults(void)
{
    static char stack[64 * 1024];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (size_t i = 0; i < sizeof FATAL / sizeof *FATAL; i++)
        sigaction(FATAL[i], &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    void *warm[1];
    backtrace(warm, 1); /* loads libgcc now, not inside a handler */
}

/* Under Valgrind it is the grader that asks: where is it? */
static void on_asked(int signal_number)
{
    (void)signal_number;
    VALGRIND_PRINTF_BACKTRACE("pkv hang %d %d 0\n", now.case_number, now.operation);
    _exit(EXIT_HANG);
}

/* What a program prints in a hidden case is not kept: it would tell what the case asks. */
static void silence(void)
{
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
}

/* No buffer of libc's own may look like a leak. Natively a crash must lose no line; nobody reads what is printed
 * under Valgrind, where every system call is dear. */
static void set_up_output(void)
{
    static char buffer[1 << 12];
    if (MEMCHECK)
        silence();
    setvbuf(stdout, buffer, MEMCHECK ? _IOFBF : _IONBF, sizeof buffer);
    setvbuf(stderr, NULL, _IONBF, 0);
}

/* ---------------------------------------------------------------- undefined behaviour */

/* What a build with -fsanitize=undefined calls, with names and layout of gcc's libubsan; other programs have none of
 * these calls. Unlike libubsan each sends a frame in place of a text: what it is and where, once for each place in a
 * case. Then the case goes on. Of the arguments only those that are looked at are declared. */
struct place {
    const char *file;
    uint32_t line, column;
};

struct mismatch {
    struct place place;
    const void *type;
    unsigned char log_align, access;
};

enum undefined {
    OVERFLOW = 1, DIVISION, SHIFT, BOUNDS, ARRAY_SIZE, BAD_VALUE, NULL_ARGUMENT, NULL_RESULT, POINTER_SUM, NULL_POINTER,
    MISALIGNED, OBJECT_SIZE, BUILTIN, UNREACHABLE
};

static void undefined(enum undefined what, struct place *place)
{
    const uint32_t told = UINT32_MAX; /* no column is that far to the right; libubsan marks its places so, too */
    struct {
        uint32_t what, line, column;
        char file[128];
    } body = {what, place->line, place->column, ""};
    if (place->column == told)
        return;
    place->column = told;
    size_t length = strnlen(place->file, sizeof body.file);
    memcpy(body.file, place->file, length);
    send_frame(UNDEFINED, &body, offsetof(__typeof__(body), file) + length);
}

#define UNDEFINED_BY(name, what)               \
    void __ubsan_handle_##name(struct place *); \
    void __ubsan_handle_##name(struct place *place) { undefined(what, place); }

UNDEFINED_BY(add_overflow, OVERFLOW)
UNDEFINED_BY(sub_overflow, OVERFLOW)
UNDEFINED_BY(mul_overflow, OVERFLOW)
UNDEFINED_BY(negate_overflow, OVERFLOW)
UNDEFINED_BY(divrem_overflow, DIVISION)
UNDEFINED_BY(shift_out_of_bounds, SHIFT)
UNDEFINED_BY(out_of_bounds, BOUNDS)
UNDEFINED_BY(vla_bound_not_positive, ARRAY_SIZE)
UNDEFINED_BY(load_invalid_value, BAD_VALUE)
UNDEFINED_BY(nonnull_arg, NULL_ARGUMENT)
UNDEFINED_BY(pointer_overflow, POINTER_SUM)
UNDEFINED_BY(invalid_builtin, BUILTIN)

void __ubsan_handle_type_mismatch_v1(struct mismatch *, uintptr_t);
void __ubsan_handle_type_mismatch_v1(struct mismatch *of, uintptr_t pointer)
{
    int misaligned = (pointer & (((uintptr_t)1 << of->log_align) - 1)) != 0;
    undefined(pointer == 0 ? NULL_POINTER : misaligned ? MISALIGNED : OBJECT_SIZE, &of->place);
}

void __ubsan_handle_nonnull_return_v1(void *, struct place *);
void __ubsan_handle_nonnull_return_v1(void *attribute, struct place *place)
{
    (void)attribute;
    undefined(NULL_RESULT, place);
}

_Noreturn void __ubsan_handle_builtin_unreachable(struct place *);
_Noreturn void __ubsan_handle_builtin_unreachable(struct place *place)
{
    undefined(UNREACHABLE, place);
    _exit(EXIT_BY_STUDENT); /* there is no code to go on with */
}

/* ---------------------------------------------------------------- cases */

struct one_case {
    int32_t number, operations, quiet;
    int32_t failing; /* n: the n-th allocation fails; -1: none, but tell of memory freed by the call that made it */
    int32_t settings[SETTINGS];
    struct call calls[]; /* under Valgrind their contracts lie behind them */
};

/* Under Valgrind all cases share the arena. Long before it is full it is begun anew, between two cases. */
static void tidy_arena(void)
{
    if (arena_next - arena < (arena_end - arena) / 2)
        return;
    for (size_t i = 0; i < block_count; i++)
        if (!blocks[i].freed)
            VALGRIND_FREELIKE_BLOCK(start_of(&blocks[i]), BEFORE);
    VALGRIND_MAKE_MEM_NOACCESS(arena, arena_next - arena);
    arena_next = arena;
}

static size_t words_of(const struct one_case *one)
{
    size_t each = sizeof(struct call) + (MEMCHECK ? sizeof(struct contract) : 0);
    return (sizeof *one + (size_t)one->operations * each) / sizeof(int32_t);
}

/* How far the child is, in a page that it shares with its parent. */
struct progress {
    int32_t operation, inside; /* inside: in a call, not in what we do between two of them */
};
static volatile struct progress *progress;

/* Do all operations of a case. */
static void run_case(const struct one_case *one)
{
    memset(&heap, 0, sizeof heap);
    tidy_arena();
    block_count = 0;
    some_too_small = 0;
    now.failing = one->failing;
    lab_start(one->settings);
    const struct contract *contracts = MEMCHECK ? (const void *)(one->calls + one->operations) : NULL;
    for (int32_t i = 0; i < one->operations; i++) {
        heap.allocations = heap.frees = heap.bad_frees = heap.broken = 0;
        forbidden_count = 0;
        now.operation = i;
        unsigned before = VALGRIND_COUNT_ERRORS;
        progress->operation = i;
        progress->inside = 1;
        int fits = lab_apply(&one->calls[i], contracts ? &contracts[i] : NULL);
        progress->inside = 0;
        check_canaries();
        if (now.trace)
            find_lost();
        if (!fits) {
            send_frame(MISFIT, NULL, 0);
            return;
        }
        int32_t errors = (int32_t)(VALGRIND_COUNT_ERRORS - before);
        if (errors)
            mark_errors(one->number, i, errors);
        if (MEMCHECK) {
            send_frame(STEP, &errors, sizeof errors);
        } else if (!now.trace) {
            record_length = 0;
            seen_round++;
            lab_record();
            send_record();
        }
    }
    for (size_t i = 0, told = 0; i < block_count && told < MOST_LIVE_TOLD; i++)
        if (!blocks[i].freed && ++told)
            report_block(LIVE, 0, &blocks[i], NULL);
    static int leak_checks; /* each looks at all memory; where else memory is lost our own table tells */
    if (MEMCHECK && heap.live && leak_checks++ < MOST_LEAK_CHECKS) {
        VALGRIND_DO_ADDED_LEAK_CHECK;
        VALGRIND_PRINTF("pkv leaks %d %d %u\n", one->number, one->operations, heap.live);
    }
}

/* ---------------------------------------------------------------- time
 *
 * The time of a child is the CPU time that it used and the time that it slept; while it waits for a processor, or for
 * somebody to read what it writes, it has none. So a busy machine makes nobody slow. The parent looks at it every
 * millisecond and limits the time of each operation. All figures are in microseconds and come with the plan:
 *
 *   first   the limit of a call that never hung. One that runs into it is done again in a new child, alone, with twice
 *           the limit. If it hangs again the call is proven to hang: that costs 3 x first, once for each call.
 *   hangs   is shared from then on: the limit of a call that is proven to hang is what is left of it, divided by the
 *           cases that are left, at least `least` and at most `first`. There is no second try any more.
 *   total   of all cases together. A case that it ends, and those that follow, are said to be without time.
 *
 * A child that hangs is asked where it is (SIGPROF) and gets half its limit more to answer, then it is killed.
 */
static struct {
    int64_t first, least, hangs, total;
} times;
static int8_t proven[CODES];
static int forks_and_hangs; /* then no later child may fork: many processes would each have the time of one */

enum hung { RETURNED, HUNG, WITHOUT_TIME };

struct outcome {
    int32_t status, hung;
    int64_t cpu_microseconds;
};

static int64_t microseconds(clockid_t clock)
{
    struct timespec at;
    return clock_gettime(clock, &at) == 0 ? at.tv_sec * 1000000LL + at.tv_nsec / 1000 : 0;
}

/* Does nobody read what the child writes? Then it sleeps through no fault of its own. */
static int waits_for_reader(void)
{
    struct pollfd ends[] = {{now.report, POLLOUT, 0}, {STDOUT_FILENO, POLLOUT, 0}, {STDERR_FILENO, POLLOUT, 0}};
    return poll(ends, 3, 0) < 3;
}

static char *look_up(const char *form, pid_t child)
{
    static char text[512];
    char path[64];
    snprintf(path, sizeof path, form, (int)child, (int)child);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[length < 0 ? 0 : length] = '\0';
    return text;
}

static int has_children(pid_t child)
{
    return look_up("/proc/%d/task/%d/children", child)[0] != '\0';
}

/* Is it asleep or stopped, and not waiting for a processor or a disk? Or has it children that compute for it? */
static int sleeps(pid_t child)
{
    const char *state = strrchr(look_up("/proc/%d/stat", child), ')');
    return (state != NULL && strchr("STt", state[2]) != NULL) || has_children(child);
}

static int64_t limit_of(int32_t code, int32_t cases_left)
{
    if (!proven[code])
        return now.attempt * times.first;
    int64_t share = times.hangs / cases_left;
    return share < times.least ? times.least : share > times.first ? times.first : share;
}

static int32_t code_now(const struct one_case *one)
{
    int32_t at = progress->operation;
    return at >= 0 && at < one->operations ? one->calls[at].code & (CODES - 1) : 0;
}

/* Wait for the child; `code` is set to the call that it hangs in. */
static struct outcome wait_for(pid_t child, const struct one_case *one, int32_t cases_left, int32_t *code)
{
    enum { LOOK = 1000 };
    struct outcome outcome = {0, RETURNED, 0};
    struct rusage usage;
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    clockid_t clock;
    int known = clock_getcpuclockid(child, &clock) == 0;
    int64_t looked = microseconds(CLOCK_MONOTONIC), slept = 0, used = 0, since = 0, asked = 0, grace = 0;
    int32_t operation = -1;
    enum hung why = RETURNED;
    while (wait4(child, &outcome.status, WNOHANG, &usage) != child) {
        int64_t wall = microseconds(CLOCK_MONOTONIC), passed = wall - looked;
        looked = wall;
        if (passed >= LOOK / 2 && !waits_for_reader() && sleeps(child))
            slept += passed < 2 * LOOK ? passed : 2 * LOOK; /* we too may have waited for a processor */
        used = slept + (known ? microseconds(clock) : 0);
        if (!progress->inside || progress->operation != operation) {
            operation = progress->inside ? progress->operation : -1;
            since = used;
        }
        if (why == RETURNED) {
            int64_t limit = limit_of(code_now(one), cases_left);
            why = used >= times.total ? WITHOUT_TIME : operation >= 0 && used - since >= limit ? HUNG : RETURNED;
            if (why != RETURNED) {
                *code = code_now(one);
                asked = used;
                grace = limit / 2;
                forks_and_hangs |= has_children(child);
                kill(child, SIGPROF); /* where is it? */
            }
        } else if (used - asked >= grace) {
            kill(child, SIGKILL);
        }
        sigtimedwait(&child_ended, NULL, &(struct timespec){0, LOOK * 1000L});
    }
    int killed = WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGKILL;
    if (why != RETURNED && (killed || (WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == EXIT_HANG)))
        outcome.hung = why;
    outcome.cpu_microseconds = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL
        + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    used = slept + outcome.cpu_microseconds;
    times.total -= used;
    if (outcome.hung && proven[*code])
        times.hangs -= used;
    return outcome;
}

static struct outcome fork_case(const struct one_case *one, int32_t cases_left, int32_t *code)
{
    now.operation = -1;
    memset(&heap, 0, sizeof heap);
    *progress = (struct progress){-1, 0};
    send_frame(BEGIN, NULL, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        _exit(EXIT_BAD_PLAN);
    if (child == 0) {
        setpgid(0, 0);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (one->quiet)
            silence();
        if (forks_and_hangs)
            setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0});
        run_case(one);
        fflush(stdout);
        _exit(0);
    }
    struct outcome outcome = wait_for(child, one, cases_left, code);
    kill(-child, SIGKILL); /* whatever it forked */
    while (waitpid(-child, NULL, 0) > 0) /* the dead count too where the number of processes is limited */
        ;
    send_frame(END, &outcome, sizeof outcome);
    return outcome;
}

static void run_natively(const struct one_case *one, int32_t cases_left)
{
    int32_t code;
    now.attempt = 1;
    if (fork_case(one, cases_left, &code).hung != HUNG || proven[code])
        return;
    now.attempt = 2;
    if (fork_case(one, cases_left, &code).hung == HUNG)
        proven[code] = 1;
}

static int32_t *read_plan(int descriptor, size_t *words)
{
    size_t room = (size_t)1 << 20, length = 0;
    char *plan = harness_pages(room);
    ssize_t got;
    while ((got = read(descriptor, plan + length, room - length)) > 0) {
        length += (size_t)got;
        if (length == room) {
            char *larger = harness_pages(2 * room);
            memcpy(larger, plan, length);
            harness_drop(plan, room);
            plan = larger;
            room *= 2;
        }
    }
    close(descriptor);
    *words = length / sizeof(int32_t);
    return (int32_t *)(void *)plan;
}

static int descriptor_of(const char *text)
{
    int number = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        number = 10 * number + *text - '0';
    return number;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_BAD_PLAN;
    now.report = descriptor_of(argv[2]);
    size_t words;
    const int32_t *plan = read_plan(descriptor_of(argv[1]), &words);
    if (words < HEADER || plan[0] != PLAN_MAGIC || (plan[3] == PLAN_MEMCHECK) != MEMCHECK)
        return EXIT_BAD_PLAN;
    memcpy(&now.token, plan + 1, sizeof now.token);
    now.trace = plan[3] == PLAN_TRACE;
    times.first = plan[4];
    times.least = plan[5];
    times.hangs = plan[6];
    times.total = plan[7];
    int32_t cases = plan[8];
    set_up_output();
    stack_base = __builtin_frame_address(0);
    if (!MEMCHECK)
        mallopt(M_MMAP_MAX, 0);

    block_room = MEMCHECK ? MOST_BLOCKS / 64 : MOST_BLOCKS; /* a leak check looks through it */
    blocks = harness_pages((block_room + 1) * sizeof *blocks);
    size_t arena_bytes = MEMCHECK ? MEMCHECK_ARENA : NATIVE_ARENA;
    arena = arena_next = harness_pages(arena_bytes);
    arena_end = arena + arena_bytes;
    if (now.trace)
        pending = harness_pages(block_room * sizeof *pending);
    if (MEMCHECK) {
        VALGRIND_MAKE_MEM_NOACCESS(arena, arena_bytes);
        signal(SIGPROF, on_asked);
    } else {
        record = harness_pages(RECORD_WORDS * sizeof *record);
        last_record = harness_pages(RECORD_WORDS * sizeof *record);
        catch_faults();
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        sigset_t child_ended;
        sigemptyset(&child_ended);
        sigaddset(&child_ended, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child_ended, NULL);
    }
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED)
        return EXIT_BAD_PLAN;
    keep_statics(0);

    const int32_t *at = plan + HEADER;
    for (int32_t i = 0; i < cases && times.total > 0; i++) {
        const struct one_case *one = (const void *)at;
        now.case_number = one->number;
        if (MEMCHECK) {
            now.attempt = 1;
            now.operation = -1;
            send_frame(BEGIN, NULL, 0);
            keep_statics(1);
            run_case(one);
            struct outcome fine = {0, RETURNED, 0};
            send_frame(END, &fine, sizeof fine);
        } else {
            run_natively(one, cases - i);
        }
        at += words_of(one);
    }
    send_frame(DONE, NULL, 0);
    (void)no_data;
    (void)no_bss;
    return 0;
}
