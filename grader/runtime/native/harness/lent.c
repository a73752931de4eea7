/* The memory that a lab lends to the student's functions: full of words that occur nowhere else, between two guards. */
#include "inside.h"

#include <string.h>
#include <unistd.h>

enum { MOST_LENT = 16, PAGE = 4096 };

static struct lent {
    unsigned char *pages, *start;
    struct loan loan;
} lent[MOST_LENT];
static const struct contract *contract; /* of the operation that runs, if it has one */

static size_t words_of(const struct loan *loan)
{
    return (loan->size + 2 * loan->guard + sizeof(int32_t) - 1) / sizeof(int32_t);
}

/* Whole pages, so that a store shortly after the memory is also a store into forbidden memory. */
static size_t pages_of(const struct loan *loan)
{
    return (words_of(loan) * sizeof(int32_t) + loan->offset + loan->guard + PAGE - 1) / PAGE * PAGE;
}

static void take_back(struct lent *one)
{
    if (one->pages != NULL)
        harness_drop(one->pages, pages_of(&one->loan));
    memset(one, 0, sizeof *one);
}

/* reference/lent.py has the same formula. */
void *harness_lend(int32_t number, const struct loan *loan)
{
    if (number < 0 || number >= MOST_LENT)
        _exit(EXIT_BAD_PLAN);
    struct lent *one = &lent[number];
    take_back(one);
    one->loan = *loan;
    one->pages = harness_pages(pages_of(loan));
    one->start = one->pages + loan->offset + loan->guard;
    uint32_t first = (uint32_t)loan->seed * 0x85EBCA6Bu + ((uint32_t)number << 24);
    for (size_t i = 0; i < words_of(loan); i++) {
        uint32_t word = (first + (uint32_t)i) * 0x9E3779B1u;
        memcpy(one->start - loan->guard + i * sizeof word, &word, sizeof word);
    }
    if (contract != NULL)
        harness_forbid(one->pages, pages_of(loan));
    return one->start;
}

void *harness_lent(int32_t number, size_t *size)
{
    if (size != NULL)
        *size = lent[number].loan.size;
    return lent[number].start;
}

void put_lent(const char *name, int32_t number)
{
    const struct lent *one = &lent[number];
    put_words(name, one->start - one->loan.guard, words_of(&one->loan));
}

int is_lent(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    for (int32_t number = 0; number < MOST_LENT; number++) {
        uintptr_t start = (uintptr_t)lent[number].pages;
        if (start != 0 && at >= start && at < start + pages_of(&lent[number].loan))
            return 1;
    }
    return 0;
}

void lent_parts(void (*part)(void *start, size_t size))
{
    part(lent, sizeof lent);
    for (int32_t number = 0; number < MOST_LENT; number++)
        if (lent[number].pages != NULL)
            part(lent[number].start - lent[number].loan.guard, words_of(&lent[number].loan) * sizeof(int32_t));
}

void take_all_back(void)
{
    for (int32_t number = 0; number < MOST_LENT; number++)
        take_back(&lent[number]);
}

void begin_contract(const struct contract *of)
{
    contract = of != NULL && of->on ? of : NULL;
    for (int32_t number = 0; contract != NULL && number < MOST_LENT; number++)
        if (lent[number].pages != NULL)
            harness_forbid(lent[number].pages, pages_of(&lent[number].loan));
    for (int i = 0; contract != NULL && i < MOST_SPANS; i++)
        if (contract->may[i].length)
            harness_allow(lent[contract->may[i].target].start + contract->may[i].start,
                          (size_t)contract->may[i].length);
}

void end_contract(void)
{
    for (int32_t number = 0; contract != NULL && number < MOST_LENT; number++)
        if (lent[number].pages != NULL)
            harness_allow(lent[number].pages, pages_of(&lent[number].loan));
    contract = NULL;
}
