/* What a case allocated and freed natively, recorded by its parent process, where no store of the student's code can
 * reach it.
 *
 * The child writes a note of every operation, every allocation and every free into a pipe. A note cannot be taken
 * back: the child has no end to read from, and the kernel lets only our own code write there (gate.c). The
 * descriptor's number is part of that code, so there is no variable to change. The parent decides what is left at the
 * end of a case. A program that finds the child's own table and frees everything in it has freed it, like one that
 * keeps such a list.
 *
 * Instead, the child's table could be made writable only during each change (mprotect): then all cases of a right
 * program took more than half as long again; with the notes they take 7 % longer.
 */
#define _GNU_SOURCE
#include "inside.h"

#ifndef UNDER_VALGRIND

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOME = 1 << 10, MOST_READS = 1 << 6, LARGE_PIPE = 1 << 20 };

static struct note {
    uint64_t size;
    void *caller;
    int32_t operation; /* as its parent counts them; the child says nothing of it */
    uint32_t frees;    /* 0: this is an allocation, otherwise the number of the block that is freed, from 1 */
} *blocks, *read_notes; /* MOST_BLOCKS and SOME of them; no child has these pages */

enum { BEGINS = UINT32_MAX }; /* in the place of a number: an operation begins */

static size_t block_count;
static int32_t begun; /* operations */
static int reading = -1;

void set_up_ledger(void)
{
    int ends[2];
    blocks = pages_of_parent(MOST_BLOCKS * sizeof *blocks);
    read_notes = pages_of_parent(SOME * sizeof *read_notes);
    if (now.report == NOTES)
        now.report = dup(now.report);
    if (pipe2(ends, O_NONBLOCK) != 0)
        _exit(EXIT_BAD_PLAN);
    fcntl(ends[0], F_SETPIPE_SZ, LARGE_PIPE); /* where it may be so large, the child waits less often */
    reading = ends[0] == NOTES ? dup(ends[0]) : ends[0];
    if (dup2(ends[1], NOTES) < 0 || fcntl(NOTES, F_SETFL, 0) != 0)
        _exit(EXIT_BAD_PLAN);
    if (ends[1] != NOTES)
        close(ends[1]);
}

void leave_ledger(void)
{
    close(reading);
}

static void note(const struct note *one)
{
    long written;
    do
        written = ask_kernel(SYS_write, NOTES, (uintptr_t)one, sizeof *one);
    while (written == -EINTR);
    if (written < 0)
        _exit(EXIT_NO_REPORT);
}

void note_allocation(size_t size, void *caller)
{
    note(&(struct note){.size = size, .caller = caller});
}

void note_operation(void)
{
    note(&(struct note){.frees = BEGINS});
}

void note_free(size_t number)
{
    note(&(struct note){.frees = (uint32_t)number + 1});
}

void read_ledger(void)
{
    ssize_t got;
    for (int times = 0; times < MOST_READS && (got = read(reading, read_notes, SOME * sizeof *read_notes)) > 0; times++)
        for (struct note *one = read_notes; one < read_notes + (size_t)got / sizeof *one; one++) {
            if (one->frees == BEGINS)
                begun++;
            else if (one->frees != 0 && one->frees <= block_count)
                blocks[one->frees - 1].frees = 1;
            else if (one->frees == 0 && block_count < MOST_BLOCKS) {
                one->operation = begun - 1;
                blocks[block_count++] = *one;
            }
        }
}

void close_ledger(int tell)
{
    read_ledger();
    heap.live = 0; /* of the parent: it goes along with the end of the case */
    for (size_t i = 0; tell && i < block_count; i++)
        if (!blocks[i].frees && ++heap.live <= MOST_LIVE_TOLD)
            report_block(LIVE, 0, &(struct block){.size = blocks[i].size, .caller = blocks[i].caller,
                .operation = blocks[i].operation, .freed_in = UNKNOWN, .lost_in = UNKNOWN}, NULL);
    block_count = 0;
    begun = 0;
}

#endif
