/* The interface between a lab's driver and the harness. harness.c explains how it works. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>

/* One operation of a trace, as the grader sends it. */
struct call {
    int32_t code;      /* index into the lab's list of operations */
    int32_t target;    /* number of the object that it goes to, 0 for NULL */
    int32_t first, count; /* its arguments among those of the case */
};

/* An argument by its place, from 0: whether it is NULL or not there; a number, 0 for none; the ints of a list, or the
 * bytes of a text, with their number. */
int harness_is_null(const struct call *call, int place);
int64_t harness_number(const struct call *call, int place);
const int32_t *harness_ints(const struct call *call, int place, size_t *count);
const char *harness_bytes(const struct call *call, int place, size_t *count);

enum { MOST_SPANS = 2 };

/* The bytes of a lab's memory that one call may touch; all others are then forbidden. Used under Valgrind only, where
 * no state is judged. `on`: 0 when nothing is forbidden. */
struct contract {
    int32_t on;
    struct span {
        int32_t target, start, length; /* of which engine's memory; length 0: no span */
    } may[MOST_SPANS];
};

/* What a pointer of the student's code points to; what reads a record has the same numbers (native/values.py). */
enum pointer { PTR_OK, PTR_NULL, PTR_STRAY, PTR_SMALL, PTR_FREED, PTR_SHARED };

/* --- functions of the lab: those behind lab_parts have a default (values.c) -------------------------------------- */

/* Do one operation, with harness_forbid around it where there is a contract (NULL: natively).
 * Returns 0 for a poke that does not fit the state; the case ends there. */
int lab_apply(const struct call *call, const struct contract *contract);
/* Write the canonical record with harness_put. Reads the student's memory, trusts nothing in it. */
void lab_record(void);
/* Pass every part of the memory of the lab that a call changes, its own and that which it lends. The parts, and what was
 * passed before them, may be written anew by `part`; see closure.c. */
void lab_parts(void (*part)(void *start, size_t size));
/* Forget the last case. `settings` are the case's numbers in the order of the lab's list of settings. Default: fill
 * lab_parts with zeros. */
void lab_start(const int32_t *settings);
/* Return whether the last call said that it failed. Default: it replied -1 or null. */
int lab_refused(void);
/* Return whether this address lies in memory that the student's functions got from the lab, and must not free. Default:
 * it lends nothing. */
int lab_lends(const void *address);
/* Call harness_root with every pointer that the caller of the student's functions keeps. Default: with every word of
 * lab_parts. */
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
/* --- the record as named values (values.c): lab_record calls begin_state, the functions below, and end_state. A name is
 * that of the reference's state, and NULL in a list. In the reference's order equal states are equal bytes. ---------- */

void begin_state(void);
void end_state(void);
void put_number(const char *name, int64_t value);
/* What the student's code may have set: the line that set it can then be found. Entries behind an allocation that is too
 * small count as 0. */
void put_int(const char *name, const int *where);
void put_size(const char *name, const size_t *where);
void put_ints(const char *name, const int *ints, size_t count);
void put_text(const char *name, const char *text);
/* Return whether `need` bytes can be read at this address, and were not read before in this record. Otherwise the value
 * is put: null, or what is wrong with the pointer. */
int put_pointer(const char *name, const void *address, size_t need);
void open_object(const char *name);
void open_list(const char *name);
void close_part(void);
/* What the call returned: a number, null (also where nothing is said), or a pointer, which is called `text` where it
 * can be read. */
void reply_number(int64_t value);
void reply_nothing(void);
void reply_pointer(const char *text, const void *address, size_t need);

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Called by lab_start: in this case each allocation lies below the one before, and not above it. */
void harness_fall(void);
/* An allocation like one of the student's own (a table that a poke puts in, which the student will free). */
void *harness_malloc(size_t size);

#endif
