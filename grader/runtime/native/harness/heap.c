/* The student's memory: the program's variables, and an allocator that counts blocks, puts canaries around them and
 * records them. */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the student's own writable data */

/* objcopy put this data into sections of these names. Thread-local data cannot have a section of its own: the linker
 * puts it between that of marker.o, which it links before the student's object, and ours, which it links after it. */
static char no_data __attribute__((section("student_data"), used)) = 1;
static char no_bss __attribute__((section("student_bss"), used));
extern char __start_student_data[], __stop_student_data[], __start_student_bss[], __stop_student_bss[];
extern _Thread_local char harness_first_tdata, harness_first_tbss;
static _Thread_local volatile char last_tdata = 1, last_tbss;

static struct statics {
    char *start, *stop, *kept; /* kept: the values before the first case; NULL: zeros */
} statics[4];
enum { STATICS = sizeof statics / sizeof *statics };

/* Fill with zeros. Of large data, whole pages are given back to the kernel: so they are zeros that cost no memory. */
static void clear(char *start, char *stop)
{
    const uintptr_t page = 1 << 16; /* a multiple of every machine's page size: 4, 16 or 64 KB */
    char *first = (char *)(((uintptr_t)start + page - 1) / page * page), *last = (char *)((uintptr_t)stop / page * page);
    enum { WORTH_IT = 1 << 20 };
    if (stop - start < WORTH_IT || madvise(first, (size_t)(last - first), MADV_DONTNEED) != 0)
        first = last = stop;
    VALGRIND_MAKE_MEM_DEFINED(first, last - first);
    memset(start, 0, (size_t)(first - start));
    memset(last, 0, (size_t)(stop - last));
}

/* Keep the variables' first values, or restore them. Natively none are kept: each case has a process of its own. */
void keep_statics(int restore)
{
    for (int i = 0; restore && i < STATICS; i++)
        if (statics[i].kept != NULL)
            memcpy(statics[i].start, statics[i].kept, (size_t)(statics[i].stop - statics[i].start));
        else
            clear(statics[i].start, statics[i].stop);
    if (restore)
        return;
    statics[0] = (struct statics){__start_student_data, __stop_student_data, NULL};
    statics[1] = (struct statics){__start_student_bss, __stop_student_bss, NULL};
    statics[2] = (struct statics){&harness_first_tdata, (char *)(uintptr_t)&last_tdata, NULL};
    statics[3] = (struct statics){&harness_first_tbss, (char *)(uintptr_t)&last_tbss, NULL};
    for (int i = 0; MEMCHECK && i < STATICS; i++) {
        size_t size = (size_t)(statics[i].stop - statics[i].start);
        VALGRIND_MAKE_MEM_DEFINED(statics[i].start, size); /* Valgrind does not know that thread-local zeros are set */
        if (i % 2 == 0)
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

enum { BEFORE = 32, BEHIND = 128, FILL_FREED = 0xDD, CANARY = 0xFB };
/* The most bytes for one case, with gaps and freed blocks. A program gets the same under Valgrind as natively. */
static const size_t ROOM = (size_t)256 << 20;
/* The most live bytes at one time. An endless allocation loop soon reaches it, a program that frees never does. */
static const size_t MOST_LIVE = (size_t)64 << 20;
/* Under Valgrind, where all cases share the arena: once cases used this many bytes, it is emptied for the next case. */
static const size_t TIDY_AFTER = (size_t)16 << 20;
/* Natively, bytes of zeros below the arena and above it. New bytes are FILL_NEW, so an index that is computed from
 * memory that was never set is negative: 0xA5A5A5A5 / 256 words of 8 bytes lie 47 MB below. The program finds zeros
 * there, as it might where new bytes are not filled. So it continues, and all that it does wrong can be seen. */
static const size_t BESIDE = (size_t)48 << 20;
static const uintptr_t HIDE = (uintptr_t)0x5a5a5a5a5a5a5a5a;

struct heap heap;
/* Under Valgrind: the blocks of all cases since the arena was new. TIDY_AFTER bytes hold fewer than 1 << 17 blocks. */
enum { ALL_BLOCKS = MOST_BLOCKS + (MEMCHECK ? 1 << 17 : 0) };
static HARNESS_LARGE struct block all_blocks[ALL_BLOCKS];
static unsigned char *arena, *arena_end;
/* What earlier cases left of the arena and of the table. A case takes from the start, or from the end if its addresses
 * fall. */
static struct {
    unsigned char *start, *end;
    struct block *blocks, *blocks_end;
} unused;

void begin_operation(void)
{
    heap.allocations = heap.frees = heap.bad_frees = heap.broken = 0;
}

uintptr_t start_of(const struct block *block)
{
    return block->start_hidden ^ HIDE;
}

/* Return a block by its number in the order of allocation, from 0. */
static struct block *allocation(size_t number)
{
    return &heap.blocks[heap.falls ? heap.block_count - 1 - number : number];
}

/* The last block that starts at or below `address`, or NULL. */
struct block *block_below(uintptr_t address)
{
    enum { NEAR = 8 };
    static size_t last; /* a walk often meets blocks in the order of allocation, so the next ones are tried first */
    for (size_t i = last; i < last + NEAR && i < heap.block_count && start_of(&heap.blocks[i]) <= address; i++)
        if (i + 1 == heap.block_count || address < start_of(&heap.blocks[i + 1]))
            return &heap.blocks[last = i];
    size_t low = 0, high = heap.block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (start_of(&heap.blocks[middle]) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &heap.blocks[last = low - 1] : NULL;
}

/* Report a block. `number`: how many bytes after its start a wrong free points, or how many bytes are needed of a block
 * that is too small. */
static void tell_of_block(enum event event, enum detail detail, const struct block *block, void *caller, int64_t number)
{
    static const struct block none = {.operation = UNKNOWN, .freed_in = UNKNOWN, .lost_in = UNKNOWN};
    if (MEMCHECK || now.closure) /* nobody reads it: Valgrind itself reports what it sees, closure.c what goes wrong */
        return;
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

void report_block(enum event event, enum detail detail, const struct block *block, void *caller)
{
    tell_of_block(event, detail, block, caller, 0);
}

/* Addresses only rise or only fall, so the table stays sorted: it grows at its end or at its start. */
static void remember(unsigned char *start, size_t size, void *caller)
{
    enum { CHUNK = 1 << 10 };
    /* for Valgrind: entries in use are accessible; its search for leaks skips the rest */
    static struct block *defined_to = all_blocks, *defined_from = all_blocks + ALL_BLOCKS;
    struct block *block = heap.falls ? --heap.blocks : heap.blocks + heap.block_count;
    for (; MEMCHECK && !heap.falls && block >= defined_to; defined_to += CHUNK)
        VALGRIND_MAKE_MEM_DEFINED(defined_to, CHUNK * sizeof *defined_to);
    for (; MEMCHECK && heap.falls && block < defined_from; defined_from -= CHUNK)
        VALGRIND_MAKE_MEM_DEFINED(defined_from - CHUNK, CHUNK * sizeof *defined_from);
    heap.next = heap.falls ? start - BEFORE : start + size + BEHIND;
    heap.block_count++;
    *block = (struct block){
        .start_hidden = (uintptr_t)start ^ HIDE, .size = size, .caller = caller,
        .operation = now.operation, .freed_in = UNKNOWN, .lost_in = UNKNOWN};
    heap.allocations++;
    heap.live++;
    heap.live_bytes += size;
}

/* Return whether this is the allocation that must fail by the plan. */
static int must_fail(size_t size, void *caller)
{
    if (now.failing <= 0 || --now.failing > 0)
        return 0;
    report_block(FAILED, 0, &(struct block){.size = size, .caller = caller, .operation = now.operation}, caller);
    return 1;
}

/* Report memory that is freed in the call that allocated it. */
void look_for_scratch(void *start, void *caller)
{
    enum { MOST_TOLD = 64 };
    static int told;
    const struct block *block = start ? block_below((uintptr_t)start) : NULL;
    if (block != NULL && start_of(block) == (uintptr_t)start && !block->freed && block->operation == now.operation
        && told++ < MOST_TOLD)
        report_block(SCRATCH, 0, block, caller);
}

/* Report the first use of freed memory in a call. */
void look_for_freed(const void *start, const void *caller)
{
    static int32_t told_in = UNKNOWN;
    const struct block *block = told_in == now.operation ? NULL : block_below((uintptr_t)start);
    if (block != NULL && block->freed && (uintptr_t)start < start_of(block) + block->size) {
        told_in = now.operation;
        report_block(USED_AFTER_FREE, 0, block, (void *)(uintptr_t)caller);
    }
}

void *allocate(size_t size, size_t align, int zero, void *caller)
{
    if (must_fail(size, caller) || size > LARGEST || align > LARGEST || heap.live_bytes + size > MOST_LIVE) {
        errno = ENOMEM;
        return NULL;
    }
    size_t room = (size_t)(heap.falls ? heap.next - heap.end : heap.end - heap.next);
    if (heap.block_count == MOST_BLOCKS || BEFORE + align + size + BEHIND > room) {
        errno = ENOMEM;
        return NULL;
    }
    unsigned char *start = heap.falls ? heap.next - BEHIND - size : heap.next + BEFORE + align - 1;
    start -= (uintptr_t)start % align;
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

const char *stack_base;

/* Return whether the address is on the stack, in a function that runs or in one that has just returned. */
int on_stack(const char *address)
{
    enum { JUST_RETURNED = 64 * 1024 };
    return address < stack_base && address >= (const char *)__builtin_frame_address(0) - JUST_RETURNED;
}

extern char _end[]; /* of the program's data; libc's heap follows it, and is the only one (M_MMAP_MAX) */

#ifdef UNDER_VALGRIND
extern char _DYNAMIC[] __attribute__((weak)); /* a program without it has no function of libc that allocates ... */
#pragma weak malloc_usable_size
#pragma weak free /* ... and perhaps not these two */
#endif

/* Return the size of a block that libc itself allocated, in a function that is not renamed, or 0. The student's code
 * must free such a block. */
size_t libc_gave(void *start)
{
#ifdef UNDER_VALGRIND
    return _DYNAMIC != NULL ? malloc_usable_size(start) : 0; /* Valgrind's, which knows every block */
#else
    return (char *)start >= _end && (char *)start < (char *)sbrk(0) ? malloc_usable_size(start) : 0;
#endif
}

/* What is wrong with freeing this address, or 0. */
enum detail bad_free(uintptr_t at, const struct block *block)
{
    if (block == NULL || at >= start_of(block) + (block->size ? block->size : 1)) {
        const char *address = (const char *)at;
        return is_lent(address) ? POOL : in_statics(address, 1) ? STATIC : on_stack(address) ? STACK : FOREIGN;
    }
    if (block->freed)
        return DOUBLE_FREE;
    return at != start_of(block) ? INTERIOR : 0;
}

void release(void *start, void *caller)
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
    heap.bad_frees += wrong != 0;
    if (!wrong) {
        block->freed = 1;
        block->freed_by = caller;
        block->freed_in = now.operation;
        heap.live--;
        heap.live_bytes -= block->size;
    }
    if (wrong) {
        int known = wrong == DOUBLE_FREE || wrong == INTERIOR;
        tell_of_block(BAD_FREE, wrong, known ? block : NULL, caller,
                      known ? (int64_t)((uintptr_t)start - start_of(block)) : 0);
        if (MEMCHECK)
            VALGRIND_FREELIKE_BLOCK(start, BEFORE); /* Valgrind reports the bad free with all stacks */
        return;
    }
    if (MEMCHECK)
        VALGRIND_FREELIKE_BLOCK(start, BEFORE);
    else
        memset(start, FILL_FREED, block->size);
}

/* This is checked after every operation, so it compares with a prepared pattern instead of byte by byte. */
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

/* Check every canary and every freed byte; each damage is reported once, at the operation that did it. */
void check_canaries(void)
{
    if (MEMCHECK)
        return;
    for (size_t i = 0; i < heap.block_count; i++) {
        struct block *block = allocation(i);
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

/* Reachability, while tracing. Every word that looks like an address in a block, or of its end, counts as a pointer. */
enum { MOST_LOOKED = 1 << 22 };
static uint32_t *pending; /* blocks that were reached and not looked through yet */
static size_t pending_count, looked; /* looked: words and blocks read so far in this process, which has one case */

void harness_root(const void *pointer)
{
    uintptr_t at = (uintptr_t)pointer;
    if (at < (uintptr_t)arena || at >= (uintptr_t)arena_end)
        return;
    struct block *block = block_below(at);
    if (block == NULL || block->freed || block->reached || at > start_of(block) + block->size)
        return;
    block->reached = 1;
    pending[pending_count++] = (uint32_t)(block - heap.blocks);
}

static void look_through(uintptr_t start, uintptr_t stop)
{
    const uintptr_t word = sizeof(void *);
    looked += (stop - start) / word;
    for (uintptr_t at = (start + word - 1) / word * word; at + word <= stop; at += word)
        harness_root(*(void *const *)at);
}

/* Find blocks to which nothing points any more. After MOST_LOOKED words and blocks, give up: no loss is known then. */
void find_lost(void)
{
    looked += heap.block_count;
    for (size_t i = 0; i < heap.block_count; i++)
        heap.blocks[i].reached = 0;
    if (looked > MOST_LOOKED) {
        for (size_t i = 0; i < heap.block_count; i++)
            heap.blocks[i].lost_in = UNKNOWN;
        return;
    }
    lab_roots();
    for (int i = 0; i < STATICS; i++)
        look_through((uintptr_t)statics[i].start, (uintptr_t)statics[i].stop);
    while (pending_count) {
        const struct block *block = &heap.blocks[pending[--pending_count]];
        look_through(start_of(block), start_of(block) + block->size);
    }
    for (size_t i = 0; i < heap.block_count; i++)
        if (heap.blocks[i].reached)
            heap.blocks[i].lost_in = HELD;
        else if (heap.blocks[i].lost_in < 0)
            heap.blocks[i].lost_in = now.operation;
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
        block->told_small = 1;
        heap.some_too_small = 1;
        heap.broken++;
        tell_of_block(TOO_SMALL, 0, block, NULL, (int64_t)(at + need - start_of(block)));
    }
    /* Data beyond the end, in the canary, can still be read: this is one finding, and the case continues. */
    return at + need <= end + (MEMCHECK ? 0 : BEHIND) ? PTR_OK : PTR_SMALL;
}

int harness_outside(const void *address, size_t size)
{
    if (!heap.some_too_small)
        return 0;
    uintptr_t at = (uintptr_t)address;
    const struct block *block = block_below(at);
    return !MEMCHECK && !in_statics(address, size) && block != NULL && at + size > start_of(block) + block->size
        && all_bytes(address, size, CANARY);
}

void harness_unfilled(const void *address)
{
    struct block *block = block_below((uintptr_t)address);
    if (block == NULL || block->told_unfilled || heap.unfilled_in == now.operation)
        return;
    block->told_unfilled = 1;
    heap.unfilled_in = now.operation;
    report_block(UNFILLED, 0, block, NULL);
}

static void renew_arena(void)
{
    unused.start = heap.next = arena;
    unused.end = arena_end;
    unused.blocks = heap.blocks = all_blocks;
    unused.blocks_end = all_blocks + ALL_BLOCKS;
    heap.block_count = 0;
    heap.falls = 0;
}

void set_up_heap(const char *frame_of_main)
{
    stack_base = frame_of_main;
    size_t arena_bytes = ROOM + (MEMCHECK ? TIDY_AFTER : 0), beside = MEMCHECK ? 0 : BESIDE;
    arena = (unsigned char *)harness_pages(beside + arena_bytes + beside) + beside;
    arena_end = arena + arena_bytes;
    renew_arena();
    if (now.trace)
        pending = harness_pages(MOST_BLOCKS * sizeof *pending);
    if (MEMCHECK) {
        VALGRIND_MAKE_MEM_NOACCESS(arena, arena_bytes);
        VALGRIND_MAKE_MEM_NOACCESS(all_blocks, sizeof all_blocks);
    } else {
        mallopt(M_MMAP_MAX, 0);
    }
    (void)no_data;
    (void)no_bss;
}

static void forget_unfreed(const struct block *from, const struct block *to)
{
    for (const struct block *block = from; block < to; block++)
        if (!block->freed)
            VALGRIND_FREELIKE_BLOCK(start_of(block), BEFORE);
}

/* Empty the arena once cases used TIDY_AFTER bytes of it: so every case has ROOM bytes. */
static void tidy_arena(void)
{
    if ((size_t)(unused.start - arena + arena_end - unused.end) < TIDY_AFTER)
        return;
    list_unfreed();
    forget_unfreed(all_blocks, unused.blocks);
    forget_unfreed(unused.blocks_end, all_blocks + ALL_BLOCKS);
    VALGRIND_MAKE_MEM_NOACCESS(arena, unused.start - arena);
    VALGRIND_MAKE_MEM_NOACCESS(unused.end, arena_end - unused.end);
    renew_arena();
}

void begin_heap(void)
{
    if (heap.falls) {
        unused.end = heap.next;
        unused.blocks_end = heap.blocks;
    } else {
        unused.start = heap.next;
        unused.blocks = heap.blocks + heap.block_count;
    }
    tidy_arena();
    if (unused.start == arena && unused.end == arena_end)
        heap.first_case = now.case_number;
    heap.last_case = now.case_number;
    heap.falls = 0;
    heap.next = unused.start;
    heap.end = heap.next + ROOM;
    heap.blocks = unused.blocks;
    heap.allocations = heap.frees = heap.bad_frees = heap.broken = heap.live = 0;
    heap.live_bytes = heap.block_count = 0;
    heap.some_too_small = 0;
    heap.unfilled_in = UNKNOWN;
}

void heap_parts(void (*part)(void *start, size_t size))
{
    part(&heap, sizeof heap); /* first: it says how much there is of the others */
    part(heap.blocks, heap.block_count * sizeof *heap.blocks);
    if (heap.falls)
        part(heap.next, (size_t)(unused.end - heap.next));
    else
        part(unused.start, (size_t)(heap.next - unused.start));
    for (int i = 0; i < STATICS; i++)
        part(statics[i].start, (size_t)(statics[i].stop - statics[i].start));
}

void harness_fall(void)
{
    heap.falls = 1;
    heap.next = unused.end;
    heap.end = heap.next - ROOM;
    heap.blocks = unused.blocks_end;
}

void tell_live(void)
{
    for (size_t i = 0, told = 0; i < heap.block_count && told < MOST_LIVE_TOLD; i++)
        if (!allocation(i)->freed && ++told)
            report_block(LIVE, 0, allocation(i), NULL);
}
