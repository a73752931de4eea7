/* The record as named values. Each value has its kind, so the grader can read a record without knowing the lab. The
 * format is that of grader/runtime/native/values.py: a name, in an object only, then a kind, then the value.
 */
#include "inside.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

enum value { CLOSE, NOTHING, INT, LONG, INTS, TEXT, OBJECT, LIST, UNREADABLE };
enum { MOST_OPEN = 32 };

/* The objects and lists that are open. */
static struct {
    size_t start; /* the word with its kind */
    int32_t items;
    int is_list, has_others; /* has_others: an item that is no int */
} parts[MOST_OPEN];
static int open_parts;
static const void *reached_by; /* the pointer through which the next value was reached */

static struct {
    enum value kind; /* NOTHING, LONG, TEXT or UNREADABLE */
    int64_t number; /* or the kind of a pointer */
    char text[128];
} reply;

static void put_text_words(const char *text)
{
    size_t length = strlen(text), words = (length + sizeof(int32_t) - 1) / sizeof(int32_t);
    harness_put((int32_t)length);
    if (words == 0 || words > RECORD_WORDS - record.length)
        return;
    record.words[record.length + words - 1] = 0;
    memcpy(record.words + record.length, text, length);
    for (size_t i = 0; now.lines && i < words; i++)
        record.addresses[record.length + i] = NULL;
    record.length += words;
}

static void begin(const char *name, enum value kind)
{
    if (open_parts > 0) {
        parts[open_parts - 1].items++;
        parts[open_parts - 1].has_others |= kind != INT;
    }
    if (name != NULL)
        put_text_words(name);
    harness_put_of(reached_by, (int32_t)kind);
    reached_by = NULL;
}

void put_unreadable(const char *name, const void *pointer, enum pointer kind)
{
    reached_by = pointer;
    begin(name, kind == PTR_NULL ? NOTHING : UNREADABLE);
    if (kind != PTR_NULL)
        harness_put((int32_t)kind);
}

void put_null(const char *name)
{
    begin(name, NOTHING);
}

void put_number(const char *name, int64_t value)
{
    if (value >= INT_MIN && value <= INT_MAX) {
        begin(name, INT);
        harness_put((int32_t)value);
        return;
    }
    begin(name, LONG);
    harness_put((int32_t)(uint32_t)value);
    harness_put((int32_t)(value >> 32));
}

void put_int(const char *name, const int *where)
{
    begin(name, INT);
    harness_put_of(where, *where);
}

void put_size(const char *name, const size_t *where)
{
    const int32_t *words = (const void *)where; /* the low one first */
    if (*where <= INT_MAX) {
        begin(name, INT);
        harness_put_of(words, *words);
        return;
    }
    begin(name, LONG);
    harness_put_of(words, words[0]);
    harness_put_of(words + 1, words[1]);
}

void put_words(const char *name, const void *words, size_t count)
{
    begin(name, INTS);
    harness_put((int32_t)count);
    harness_put_words(words, count);
}

void put_entries(const char *name, const int *ints, size_t count, int blank)
{
    if (count > 0 && !harness_outside(&ints[count - 1], sizeof *ints)) {
        put_words(name, ints, count);
        return;
    }
    begin(name, INTS);
    harness_put((int32_t)count);
    for (size_t i = 0; i < count; i++)
        harness_put_of(&ints[i], harness_outside(&ints[i], sizeof *ints) ? blank : ints[i]);
}

void put_ints(const char *name, const int *ints, size_t count)
{
    put_entries(name, ints, count, 0);
}

void put_text(const char *name, const char *text)
{
    begin(name, TEXT);
    put_text_words(text);
}

int put_pointer(const char *name, const void *pointer, size_t need)
{
    const void *address = NULL;
    if (!heap.some_too_small || !harness_outside(pointer, sizeof address))
        memcpy(&address, pointer, sizeof address);
    reached_by = pointer;
    if (address == NULL) { /* most are */
        begin(name, NOTHING);
        return 0;
    }
    enum pointer kind = harness_pointer(address, need);
    if (kind == PTR_OK && harness_seen(address))
        kind = PTR_SHARED;
    if (kind != PTR_OK)
        put_unreadable(name, pointer, kind);
    return kind == PTR_OK;
}

/* Written without snprintf, because it is called for many names of each record. */
const char *harness_numbered(const char *text, int32_t number)
{
    enum { ROOM = 64, DIGITS = 10 };
    static char texts[2][ROOM];
    static int turn;
    char digits[DIGITS], *to = texts[turn ^= 1];
    int count = 0;
    for (uint32_t left = number < 0 ? 0u - (uint32_t)number : (uint32_t)number; left || !count; left /= DIGITS)
        digits[count++] = (char)('0' + left % DIGITS);
    for (; *text != '\0' && to < texts[turn] + ROOM / 2; text++)
        *to++ = *text;
    if (to > texts[turn])
        *to++ = ' ';
    if (number < 0)
        *to++ = '-';
    while (count)
        *to++ = digits[--count];
    *to = '\0';
    return texts[turn];
}

static void open_part(const char *name, enum value kind)
{
    begin(name, kind);
    if (open_parts == MOST_OPEN)
        _exit(EXIT_BAD_PLAN);
    parts[open_parts].start = record.length - 1;
    parts[open_parts].items = parts[open_parts].has_others = 0;
    parts[open_parts++].is_list = kind == LIST;
}

void open_object(const char *name)
{
    open_part(name, OBJECT);
}

void open_list(const char *name)
{
    open_part(name, LIST);
}

/* A list of ints is written as put_ints does. */
void close_part(void)
{
    harness_put(CLOSE);
    if (--open_parts >= 0 && parts[open_parts].is_list && !parts[open_parts].has_others)
        pack_ints(parts[open_parts].start, INTS, parts[open_parts].items);
}

void reply_number(int64_t value)
{
    reply.kind = LONG;
    reply.number = value;
}

void reply_nothing(void)
{
    reply.kind = NOTHING;
}

void reply_text(const char *text)
{
    size_t length = strlen(text);
    if (length >= sizeof reply.text)
        length = sizeof reply.text - 1;
    reply.kind = TEXT;
    memcpy(reply.text, text, length);
    reply.text[length] = '\0';
}

void reply_pointer(const char *text, const void *address, size_t need)
{
    enum pointer pointer = harness_pointer(address, need);
    if (pointer == PTR_OK) {
        reply_text(text);
        return;
    }
    reply.kind = pointer == PTR_NULL ? NOTHING : UNREADABLE;
    reply.number = (int64_t)pointer;
}

/* ---------------------------------------------------------------- defaults, which most labs keep */

static void clear(void *start, size_t size)
{
    memset(start, 0, size);
}

__attribute__((weak)) void lab_start(const int32_t *settings)
{
    (void)settings;
    lab_parts(clear);
}

__attribute__((weak)) int lab_refused(void)
{
    return reply.kind == NOTHING || (reply.kind == LONG && reply.number == -1);
}

static void root_words(void *start, size_t size)
{
    void *const *words = start;
    for (size_t i = 0; i < size / sizeof *words; i++)
        harness_root(words[i]);
}

__attribute__((weak)) void lab_roots(void)
{
    lab_parts(root_words);
}

/* The reply comes last, because its length changes most between operations: so what is before it keeps its place. */
void begin_state(void)
{
    open_parts = 0;
    open_object(NULL);
    open_object("state");
}

void end_state(void)
{
    close_part();
    open_object("reply");
    if (reply.kind == LONG)
        put_number("returned", reply.number);
    else if (reply.kind == TEXT)
        put_text("returned", reply.text);
    else
        put_unreadable("returned", NULL, reply.kind == NOTHING ? PTR_NULL : (enum pointer)reply.number);
    close_part();
    close_part();
}
