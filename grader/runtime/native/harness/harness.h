/* What a lab's driver and the harness around it know of each other. See harness.c for how it all works. */
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

/* What one call may touch of the memory that a lab hands out; all else of it is then forbidden. Sent under Valgrind
 * only, from which no state is judged. `on`: 0 when nothing is forbidden. */
struct contract {
    int32_t on;
    struct span {
        int32_t target, start, length; /* of which engine's memory; length 0: no span */
    } may[MOST_SPANS];
};

/* What a pointer of the student's leads to; reference/paged_kv/record.py has the same numbers. */
enum pointer { PTR_OK, PTR_NULL, PTR_STRAY, PTR_SMALL, PTR_FREED, PTR_SHARED };

/* A function harness_call_NAME that calls the student's NAME and does nothing else: compiled to one jump. */
#define HARNESS_DOOR __attribute__((noipa))

/* --- the lab gives --------------------------------------------------------------------------------------- */

/* Forget the last case. `settings` are the case's numbers in the order of the lab's list of settings. */
void lab_start(const int32_t *settings);
/* Do one operation, with harness_forbid around it where there is a contract (NULL: natively).
 * 0: a poke that does not fit the state; the case ends there. */
int lab_apply(const struct call *call, const struct contract *contract);
/* Write the canonical record with harness_put. Reads the student's memory, trusts nothing in it. */
void lab_record(void);
/* Does this address lie in memory that the student's functions were lent, and must not free? */
int lab_lends(const void *address);
/* Tell harness_root every pointer that the caller of the student's functions keeps. */
void lab_roots(void);

/* --- the harness gives ----------------------------------------------------------------------------------- */

/* For large tables without an initial value: small variables then lie together, and fork copies few pages. */
#define HARNESS_LARGE __attribute__((section(".bss.large")))
/* `size` bytes of zeros that are neither the student's nor on any heap, and their end. */
void *harness_pages(size_t size);
void harness_drop(void *pages, size_t size);
/* Valgrind shall report every access to these bytes; and shall not any more. Their content stays. */
void harness_forbid(const void *start, size_t size);
void harness_allow(const void *start, size_t size);
/* Is there room for `need` bytes at `address`, by the table of the student's allocations? */
enum pointer harness_pointer(const void *address, size_t need);
/* Do these bytes lie outside their allocation, never written by anybody? (The allocation is too small.) */
int harness_outside(const void *address, size_t size);
/* What is allocated here holds something that its table should not hold. Told once of each allocation, and of one in
 * each operation. */
void harness_unfilled(const void *address);
/* Was this address already shown since the record was begun? Remembers it. */
int harness_seen(const void *address);
/* What this points to, if anything, can still be reached and so is not lost. */
void harness_root(const void *pointer);
/* Append words to the record. */
void harness_put(int32_t word);
/* The same for a word that tells of what lies at this address. */
void harness_put_of(const void *address, int32_t word);
void harness_put_words(const void *words, size_t count);
/* The same for memory that stands last in the record, and of which an operation changes little. Of several the last. */
void harness_put_memory(const void *words, size_t count);
/* An allocation like one of the student's own (a table that a poke puts in, which the student will free). */
void *harness_malloc(size_t size);

#endif
