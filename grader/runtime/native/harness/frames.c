/* What is sent to the grader: frames, and the record after each operation. */
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

void send_frame(enum kind kind, const void *body, size_t length)
{
    struct frame frame = {
        .token = now.token, .kind = kind, .length = (uint32_t)length, .case_number = now.case_number,
        .operation = now.operation, .attempt = now.attempt, .allocations = heap.allocations, .frees = heap.frees,
        .bad_frees = heap.bad_frees, .broken = heap.broken, .live = heap.live,
    };
    struct iovec parts[] = {{&frame, sizeof frame}, {(void *)(uintptr_t)body, length}};
    int first = 0, end = sizeof parts / sizeof *parts;
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

/* ---------------------------------------------------------------- the record */

enum { SEEN = 1 << 14 };
struct record record;
static HARNESS_LARGE struct {
    const void *address;
    uint32_t round;
} seen[SEEN];
static uint32_t seen_round;

static void note(const void *start, size_t count)
{
    for (size_t i = 0; now.lines && i < count; i++)
        record.addresses[record.length + i] = start == NULL ? NULL : (const int32_t *)start + i;
}

void harness_put_words(const void *words, size_t count)
{
    if (count > RECORD_WORDS - record.length)
        count = RECORD_WORDS - record.length;
    note(words, count);
    memcpy(record.words + record.length, words, count * sizeof *record.words);
    record.length += count;
}

void pack_ints(size_t start, int32_t mark, int32_t count)
{
    if (record.length == RECORD_WORDS)
        return;
    int32_t *words = record.words + start;
    words[0] = mark;
    for (size_t i = 0; i < (size_t)count; i++) {
        words[2 + i] = words[2 + 2 * i];
        if (now.lines)
            record.addresses[start + 2 + i] = record.addresses[start + 2 + 2 * i];
    }
    words[1] = count;
    record.length = start + 2 + (size_t)count;
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
    return 1; /* the table is full, of more pointers than anybody allocates in one case */
}

void set_up_record(void)
{
    record.words = harness_pages(RECORD_WORDS * sizeof *record.words);
    if (now.lines)
        record.addresses = harness_pages(RECORD_WORDS * sizeof *record.addresses);
}

size_t write_record(void)
{
    record.length = 0;
    seen_round++;
    lab_record();
    return record.length;
}

/* Let the lab write the record, and send it. */
void send_record(void)
{
    write_record();
    send_frame(STEP, record.words, record.length * sizeof *record.words);
}
