/* The closure of a small engine: every call of a list, in every state that these calls lead to.
 *
 * The plan has the calls, the first of which opens the engine, and a tour: the calls that lead to new states, and
 * GO_BACK where the tour returns to the state from which the present one was reached. All memory of the student and of
 * the lab is kept for each state on the way, so a state costs a copy of some kilobytes and not its whole history. In
 * each state every call but the first is done; before each call the kept state is brought back. For each state, in the
 * order of the tour, one checksum is reported: of the records of these calls and of what they did wrong with memory. If
 * it is wrong, the grader plays these calls once more, each at the end of a trace of its own.
 */
#include "inside.h"

#include <string.h>
#include <unistd.h>

enum { MOST_STATES = 1 << 17, MOST_LEVELS = 64, GO_BACK = -1 };
static const size_t LEVEL_ROOM = (size_t)1 << 16;

/* ---------------------------------------------------------------- states */

static unsigned char *levels[MOST_LEVELS];
static unsigned char *place; /* in the level that is kept or brought back */
static size_t left;
static int brings_back, too_large;

static void part(void *start, size_t size)
{
    if (too_large || size > left) {
        too_large = 1;
        return;
    }
    if (brings_back)
        memcpy(start, place, size);
    else
        memcpy(place, start, size);
    place += size;
    left -= size;
}

static void keep_or_bring_back(int level, int back)
{
    if (levels[level] == NULL)
        levels[level] = harness_pages(LEVEL_ROOM);
    place = levels[level];
    left = LEVEL_ROOM;
    brings_back = back;
    heap_parts(part);
    lent_parts(part);
    lab_parts(part);
}

/* ---------------------------------------------------------------- checksums */

/* CRC-32 as zlib computes it, four words at a time. */
enum { AT_ONCE = 4 };
static uint32_t table[4 * AT_ONCE][256];

static void set_up_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum & 1 ? sum >> 1 ^ 0xEDB88320u : sum >> 1;
        table[0][byte] = sum;
    }
    for (int more = 1; more < 4 * AT_ONCE; more++)
        for (int byte = 0; byte < 256; byte++)
            table[more][byte] = table[more - 1][byte] >> 8 ^ table[0][table[more - 1][byte] & 255];
}

/* What a word adds to the sum if `after` words follow it. */
static inline uint32_t part_of(uint32_t word, int after)
{
    uint32_t(*of)[256] = table + 4 * after;
    return of[3][word & 255] ^ of[2][word >> 8 & 255] ^ of[1][word >> 16 & 255] ^ of[0][word >> 24];
}

static uint32_t checksum(uint32_t sum, const int32_t *words, size_t count)
{
    const uint32_t *at = (const void *)words, *end = at + count;
    sum = ~sum;
    for (; end - at >= AT_ONCE; at += AT_ONCE)
        sum = part_of(sum ^ at[0], 3) ^ part_of(at[1], 2) ^ part_of(at[2], 1) ^ part_of(at[3], 0);
    for (; at < end; at++)
        sum = part_of(sum ^ *at, 0);
    return ~sum;
}

/* ---------------------------------------------------------------- the tour */

static const struct call *calls;
static int32_t call_count;
static uint32_t *sums;
static int32_t state_count;

/* Bring back a kept state and do a call in it. The grader reads state and call from the operation's number. */
static void do_call(int level, int32_t number)
{
    keep_or_bring_back(level, 1);
    begin_operation();
    now.operation = (state_count - 1) * call_count + number;
    reply_nothing();
    enter_call();
    lab_apply(&calls[number]);
    leave_call();
    check_canaries();
}

static void do_all_calls(int level)
{
    for (int32_t number = 1; number < call_count; number++) {
        do_call(level, number);
        uint32_t in_vain = lab_refused() ? heap.allocations : 0;
        const int32_t harm[] = {(int32_t)(heap.bad_frees + heap.broken), (int32_t)in_vain};
        uint32_t *sum = &sums[state_count - 1];
        *sum = checksum(*sum, harm, sizeof harm / sizeof *harm);
        size_t words = write_record();
        *sum = checksum(*sum, record.words, words);
    }
}

int run_closure(const struct call *list, int32_t count, const int32_t *tour, int32_t length)
{
    calls = list;
    call_count = count;
    sums = harness_pages(MOST_STATES * sizeof *sums);
    set_up_table();
    keep_or_bring_back(0, 0);
    int level = 0;
    for (int32_t i = 0; i < length; i++) {
        if (tour[i] == GO_BACK) {
            level--;
            continue;
        }
        if (level + 1 == MOST_LEVELS || state_count == MOST_STATES)
            _exit(EXIT_BAD_PLAN);
        do_call(level, tour[i]);
        keep_or_bring_back(++level, 0);
        if (too_large)
            return 0;
        state_count++;
        do_all_calls(level);
    }
    send_frame(SUMS, sums, (size_t)state_count * sizeof *sums);
    return 1;
}
