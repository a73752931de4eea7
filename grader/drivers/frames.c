/* What goes to the grader: frames, and the record as what is new in it. */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct now now;
struct heap heap;

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

void set_up_record(void)
{
    record = harness_pages(RECORD_WORDS * sizeof *record);
    last_record = harness_pages(RECORD_WORDS * sizeof *record);
}

/* Have the record written, and send it. Most operations change little of it: then the body of a DELTA frame is how
 * many words behind the reply are as in the last record, how many at the end are, the reply, and what lies between. */
void send_record(void)
{
    record_length = 0;
    seen_round++;
    lab_record();
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
