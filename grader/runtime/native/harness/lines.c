/* Records the lines that a call went through, and which line stored what, in a build that reports lines.
 *
 * gcc's -fsanitize-coverage=trace-pc calls these functions at the beginning of every block of code, -fsanitize=thread
 * before every load and store, and objcopy renames calls of memset, memcpy and memmove to the functions here. Other
 * programs do not contain these calls. One operation of a case is observed; when it has returned, a frame reports the
 * last blocks and, for each word of the record, the address of the last store to it. Address 0 means memory that the
 * operation allocated and, as far as is known, did not store to. An entry for word 0, to which no code of the student's
 * stores, means that not all stores are known. */
#include "inside.h"

#include <string.h>

enum { WAY = 512, ENTERED = 1, LEFT_IT = 2, STORES = 1 << 14, TOLD = 1 << 12 };

static struct {
    int on;
    uint64_t way[WAY]; /* the last blocks of code, and where functions were entered and left */
    size_t way_length, store_count;
    struct store {
        uintptr_t start, end;
        uint64_t at;
    } *stores; /* the last STORES ones */
} watched HARNESS_LARGE;

void watch_lines(int on)
{
    if (on && watched.stores == NULL)
        watched.stores = harness_pages(STORES * sizeof *watched.stores);
    if (on)
        watched.way_length = watched.store_count = 0;
    watched.on = on;
}

static void went(uint64_t where)
{
    if (watched.on)
        watched.way[watched.way_length++ % WAY] = where;
}

static void loaded(const void *start, const void *at)
{
    if (watched.on)
        look_for_freed(start, at);
}

static void stored(const void *start, size_t size, const void *at)
{
    loaded(start, at);
    if (watched.on)
        watched.stores[watched.store_count++ % STORES] =
            (struct store){(uintptr_t)start, (uintptr_t)start + size, (uint64_t)(uintptr_t)at};
}

static uint64_t last_store(uintptr_t address)
{
    size_t first = watched.store_count > STORES ? watched.store_count - STORES : 0;
    for (size_t i = watched.store_count; i > first; i--) {
        const struct store *store = &watched.stores[(i - 1) % STORES];
        if (store->start <= address && address < store->end)
            return store->at;
    }
    return 0;
}

static int allocated_by_this_call(uintptr_t address)
{
    const struct block *block = block_below(address);
    return block != NULL && block->operation == now.operation && address < start_of(block) + block->size;
}

/* Send the length of the path, the path (its end last), and pairs: a word's number and the address of its store. */
void tell_lines(size_t words)
{
    enum { PAIR = 2 };
    enum { ROOM = 1 + WAY + PAIR * (TOLD + 1) };
    uint64_t *body = harness_pages(ROOM * sizeof *body);
    size_t count = watched.way_length < WAY ? watched.way_length : WAY, length = 1, word = 0;
    body[0] = count;
    for (size_t i = watched.way_length - count; i < watched.way_length; i++)
        body[length++] = watched.way[i % WAY];
    for (; word < words && length + 2 * PAIR <= ROOM; word++) {
        uintptr_t address = (uintptr_t)record.addresses[word];
        uint64_t at = address ? last_store(address) : 0;
        if (at || (address && allocated_by_this_call(address))) {
            body[length++] = word;
            body[length++] = at;
        }
    }
    if (word < words || watched.store_count > STORES)
        length += PAIR; /* of zeros */
    send_frame(LINES, body, length * sizeof *body);
    harness_drop(body, ROOM * sizeof *body);
}

/* ---------------------------------------------------------------- what the compiler calls */

#define CALLER __builtin_return_address(0)

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    went((uint64_t)(uintptr_t)CALLER);
}

#define STORE_OF(name, size)         \
    void __tsan_##name(void *start); \
    void __tsan_##name(void *start) { stored(start, size, CALLER); }
#define LOAD_OF(name)                \
    void __tsan_##name(void *start); \
    void __tsan_##name(void *start) { loaded(start, CALLER); }
#define RANGE_OF(name, noted)                     \
    void __tsan_##name(void *start, size_t size); \
    void __tsan_##name(void *start, size_t size) { stored(start, noted, CALLER); (void)size; }

STORE_OF(write1, 1)
STORE_OF(write2, 2)
STORE_OF(write4, 4)
STORE_OF(write8, 8)
STORE_OF(write16, 16)
STORE_OF(unaligned_write2, 2)
STORE_OF(unaligned_write4, 4)
STORE_OF(unaligned_write8, 8)
STORE_OF(unaligned_write16, 16)
STORE_OF(volatile_write1, 1)
STORE_OF(volatile_write2, 2)
STORE_OF(volatile_write4, 4)
STORE_OF(volatile_write8, 8)
LOAD_OF(read1)
LOAD_OF(read2)
LOAD_OF(read4)
LOAD_OF(read8)
LOAD_OF(read16)
LOAD_OF(unaligned_read2)
LOAD_OF(unaligned_read4)
LOAD_OF(unaligned_read8)
LOAD_OF(unaligned_read16)
LOAD_OF(volatile_read1)
LOAD_OF(volatile_read2)
LOAD_OF(volatile_read4)
LOAD_OF(volatile_read8)
RANGE_OF(write_range, size)
RANGE_OF(read_range, 0)

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller)
{
    (void)caller;
    went(ENTERED);
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
    went(LEFT_IT);
}

/* ---------------------------------------------------------------- what the student calls */

void *harness_memset(void *, int, size_t);
void *harness_memcpy(void *, const void *, size_t);
void *harness_memmove(void *, const void *, size_t);

void *harness_memset(void *start, int value, size_t size)
{
    stored(start, size, CALLER);
    return memset(start, value, size);
}

void *harness_memcpy(void *to, const void *from, size_t size)
{
    loaded(from, CALLER);
    stored(to, size, CALLER);
    return memmove(to, from, size);
}

void *harness_memmove(void *to, const void *from, size_t size)
{
    loaded(from, CALLER);
    stored(to, size, CALLER);
    return memmove(to, from, size);
}
