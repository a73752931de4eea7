/* What is sent to the grader: frames, and the record as its differences from the last one. */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct now now;

struct frame {
    uint64_t token;
    uint32_t kind, length; /* bytes that follow */
    int32_t case_number, operation;
    uint32_t attempt;
    uint32_t allocations, frees, bad_frees, broken; /* in this operation */
    uint32_t live;                                  /* blocks, after it */
};

enum { MOST_PIECES = 3 };

/* Send a frame whose body consists of these pieces, one after the other. */
static void send_pieces(enum kind kind, const struct iovec *pieces, int count)
{
    struct frame frame = {
        .token = now.token, .kind = kind, .case_number = now.case_number, .operation = now.operation,
        .attempt = now.attempt, .allocations = heap.allocations, .frees = heap.frees, .bad_frees = heap.bad_frees,
        .broken = heap.broken, .live = heap.live,
    };
    struct iovec parts[1 + MOST_PIECES] = {{&frame, sizeof frame}};
    int end = 1;
    for (; end <= count; end++) {
        parts[end] = pieces[end - 1];
        frame.length += (uint32_t)parts[end].iov_len;
    }
    int first = 0;
    while (first < end) {
        uintptr_t rest = (uintptr_t)(parts + first);
        ssize_t sent = ask_kernel(SYS_writev, (uintptr_t)now.report, rest, (uintptr_t)(end - first));
        if (sent == -EINTR)
            continue;
        if (sent < 0)
            _exit(EXIT_NO_REPORT);
        while (first < end && (size_t)sent >= parts[first].iov_len)
            sent -= (ssize_t)parts[first++].iov_len;
        if (first < end) {
            parts[first].iov_base = (char *)parts[first].iov_base + sent;
            parts[first].iov_len -= (size_t)sent;
        }
    }
}

void send_frame(enum kind kind, const void *body, size_t length)
{
    const struct iovec piece = {(void *)(uintptr_t)body, length};
    send_pieces(kind, &piece, 1);
}

/* ---------------------------------------------------------------- the record */

enum { RECORD_WORDS = 6 * 1024 * 1024, SEEN = 1 << 14 };
/* What the lab reports after an operation. */
static struct record {
    int32_t *words; /* RECORD_WORDS of pages, touched only as far as used */
    size_t length, memory; /* where the memory begins that is the rest of it */
} record, last_record;
static HARNESS_LARGE struct {
    const void *address;
    uint32_t round;
} seen[SEEN];
static uint32_t seen_round;

/* The addresses from which the words were read, in a build that reports lines. */
static const void **addresses;

static void note(const void *start, size_t count)
{
    for (size_t i = 0; now.lines && i < count; i++)
        addresses[record.length + i] = start == NULL ? NULL : (const int32_t *)start + i;
}

const void *address_of(size_t word)
{
    return addresses[word];
}

size_t record_length(void)
{
    return last_record.length;
}

void harness_put_of(const void *address, int32_t word)
{
    if (record.length < RECORD_WORDS) {
        note(address, 1);
        record.words[record.length++] = word;
    }
}

void harness_put(int32_t word)
{
    harness_put_of(NULL, word);
}

void harness_put_words(const void *words, size_t count)
{
    if (count > RECORD_WORDS - record.length)
        count = RECORD_WORDS - record.length;
    note(words, count);
    memcpy(record.words + record.length, words, count * sizeof *record.words);
    record.length += count;
}

void harness_put_memory(const void *words, size_t count)
{
    record.memory = record.length;
    harness_put_words(words, count);
}

int harness_seen(const void *address)
{
    size_t place = ((uintptr_t)address >> 4) % SEEN; /* neighbours stay neighbours: few pages are touched */
    for (size_t tries = 0; tries < SEEN; tries++, place = (place + 1) % SEEN) {
        if (seen[place].round != seen_round) {
            seen[place].round = seen_round;
            seen[place].address = address;
            return 0;
        }
        if (seen[place].address == address)
            return 1;
    }
    return 1; /* more pointers than anybody allocates in one case */
}

void set_up_record(void)
{
    record.words = harness_pages(RECORD_WORDS * sizeof *record.words);
    last_record.words = harness_pages(RECORD_WORDS * sizeof *record.words);
    if (now.lines)
        addresses = harness_pages(RECORD_WORDS * sizeof *addresses);
}

enum { REPLY = 2 };

/* Send the words that differ from the last record, if both are equally long and few words differ. Return whether they
 * were sent. */
static int send_few_words(void)
{
    enum { FEW = 2, PAIR = 2, EMPTY = 1 + REPLY };
    int32_t body[EMPTY + PAIR * FEW] = {-1, record.words[0], record.words[1]};
    size_t length = EMPTY;
    if (record.length != last_record.length)
        return 0;
    for (size_t place = REPLY; place < record.length; place++) {
        if (record.words[place] == last_record.words[place])
            continue;
        if (length == sizeof body / sizeof *body)
            return 0;
        body[length++] = (int32_t)place - (int32_t)record.length;
        body[length++] = record.words[place];
    }
    send_frame(DELTA, body, length * sizeof *body);
    return 1;
}

/* Send everything that stands before the memory, and the memory from the first to the last word that differs. The
 * memory must be as long as that of the last record. Return whether it was sent. */
static int send_front_and_memory(void)
{
    size_t memory = record.length - record.memory, start = 0, end = memory;
    if (!record.memory || !last_record.memory || last_record.length - last_record.memory != memory)
        return 0;
    const int32_t *words = record.words + record.memory, *last = last_record.words + last_record.memory;
    while (start < end && words[start] == last[start])
        start++;
    while (start < end && words[end - 1] == last[end - 1])
        end--;
    if (start == end)
        start = end = 0;
    int32_t head[] = {(int32_t)memory, (int32_t)start, (int32_t)end};
    const struct iovec pieces[] = {
        {head, sizeof head},
        {record.words, record.memory * sizeof *words},
        {record.words + record.memory + start, (end - start) * sizeof *words},
    };
    send_pieces(DELTA, pieces, sizeof pieces / sizeof *pieces);
    return 1;
}

/* Let the lab write the record, and send its differences from the last one (grader/runtime/native/delta.py), or all
 * of it. */
void send_record(void)
{
    record.length = record.memory = 0;
    seen_round++;
    lab_record();
    if (!send_few_words() && !send_front_and_memory())
        send_frame(STEP, record.words, record.length * sizeof *record.words);
    struct record swap = last_record;
    last_record = record;
    record = swap;
}
