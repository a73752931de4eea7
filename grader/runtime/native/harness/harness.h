/* The interface between a lab's driver and the harness. harness.c explains how it works. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>

/* One operation of a trace, as the grader sends it. */
struct call {
    int32_t code;      /* index into the lab's list of operations */
    int32_t target;    /* number of the engine, 0 for a NULL engine */
    int32_t nulls;     /* bit i: argument i is NULL */
    int32_t argument[5];
};

enum { MOST_SPANS = 2 };

/* The bytes of a lab's memory that one call may touch; all others are then forbidden. Used under Valgrind only, where
 * no state is judged. `on`: 0 when nothing is forbidden. */
struct contract {
    int32_t on;
    struct span {
        int32_t target, start, length; /* of which engine's memory; length 0: no span */
    } may[MOST_SPANS];
};

/* What a pointer of the student's code points to; grader/labs/paged_kv/judging/record.py has the same numbers. */
enum pointer { PTR_OK, PTR_NULL, PTR_STRAY, PTR_SMALL, PTR_FREED, PTR_SHARED };

/* --- functions of the lab --------------------------------------------------------------------------------------- */

/* Forget the last case. `settings` are the case's numbers in the order of the lab's list of settings. */
void lab_start(const int32_t *settings);
/* Do one operation, with harness_forbid around it where there is a contract (NULL: natively).
 * Returns 0 for a poke that does not fit the state; the case ends there. */
int lab_apply(const struct call *call, const struct contract *contract);
/* Return whether the last call said that it failed. */
int lab_refused(void);
/* Write the canonical record with harness_put. Reads the student's memory, trusts nothing in it. */
void lab_record(void);
/* Return whether this address lies in memory that the student's functions got from the lab, and must not free. */
int lab_lends(const void *address);
/* Pass every part of the memory of the lab that a call changes, its own and that which it lends. The parts, and what was
 * passed before them, may be written anew by `part`; see closure.c. */
void lab_parts(void (*part)(void *start, size_t size));
/* Call harness_root with every pointer that the caller of the student's functions keeps. */
void lab_roots(void);

/* --- functions of the harness ----------------------------------------------------------------------------------- */

/* Marks large tables without an initial value: small variables then lie together, and fork copies few pages. */
#define HARNESS_LARGE __attribute__((section(".bss.large")))
/* Make and remove `size` bytes of zeros that belong neither to the student's code nor to any heap. */
void *harness_pages(size_t size);
void harness_drop(void *pages, size_t size);
/* Let Valgrind report every access to these bytes, or no longer. Their content does not change. */
void harness_forbid(const void *start, size_t size);
void harness_allow(const void *start, size_t size);
/* Return whether there are `need` bytes at `address`, by the table of the student's allocations. */
enum pointer harness_pointer(const void *address, size_t need);
/* Return whether these bytes lie outside their allocation and were never written. (The allocation is too small.) */
int harness_outside(const void *address, size_t size);
/* Report that the allocation here contains something that its table should not contain: once for each allocation, and
 * one in each operation. */
void harness_unfilled(const void *address);
/* Return whether this address was already passed since the record was begun, and remember it. */
int harness_seen(const void *address);
/* The block that this points to, if any, can still be reached and so is not lost. */
void harness_root(const void *pointer);
/* Append words to the record. */
void harness_put(int32_t word);
/* The same for a word that describes what lies at this address. */
void harness_put_of(const void *address, int32_t word);
void harness_put_words(const void *words, size_t count);
/* Called by lab_start: in this case each allocation lies below the one before, and not above it. */
void harness_fall(void);
/* An allocation like one of the student's own (a table that a poke puts in, which the student will free). */
void *harness_malloc(size_t size);

#endif
