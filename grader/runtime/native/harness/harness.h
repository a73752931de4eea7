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

/* What a pointer of the student's code points to; what reads a record has the same numbers (native/values.py). */
enum pointer { PTR_OK, PTR_NULL, PTR_STRAY, PTR_SMALL, PTR_FREED, PTR_SHARED };

/* --- functions of the lab: those after lab_parts have a default (values.c) --------------------------------------- */

/* Do one operation. Returns 0 for a poke that does not fit the state; the case ends there. */
int lab_apply(const struct call *call);
/* Write the state as named values. Reads the student's memory, trusts nothing in it. */
void lab_record(void);
/* Pass every variable of the driver that a call changes. `part` may overwrite them; see closure.c. */
void lab_parts(void (*part)(void *start, size_t size));
/* Forget the last case. `settings` are the case's numbers in the order of the lab's list of settings. Default: fill
 * lab_parts with zeros. */
void lab_start(const int32_t *settings);
/* Return whether the last call said that it failed. Default: it replied -1 or null. */
int lab_refused(void);
/* Call harness_root with every pointer that the caller of the student's functions keeps. Default: with every word of
 * lab_parts. */
void lab_roots(void);

/* --- functions of the harness ----------------------------------------------------------------------------------- */

/* Marks large tables without an initial value: small variables then lie together, and fork copies few pages. */
#define HARNESS_LARGE __attribute__((section(".bss.large")))
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
/* --- the record as named values (values.c): lab_record calls begin_state, the functions below, and end_state. A name is
 * that of the reference's state, and NULL in a list. In the reference's order equal states are equal bytes. ---------- */

void begin_state(void);
void end_state(void);
void put_number(const char *name, int64_t value);
/* What the student's code may have set: the line that set it can then be found. Entries after the end of an allocation
 * that is too small count as 0. */
void put_int(const char *name, const int *where);
void put_size(const char *name, const size_t *where);
void put_ints(const char *name, const int *ints, size_t count);
/* The same, but entries after the end of the allocation count as `blank`. */
void put_entries(const char *name, const int *ints, size_t count, int blank);
void put_text(const char *name, const char *text);
void put_null(const char *name);
/* Return whether `need` bytes can be read through this pointer, and were not read before in this record: the
 * next value is what is there. Otherwise the value is put: null, or what is wrong with the pointer. */
int put_pointer(const char *name, const void *pointer, size_t need);
void put_unreadable(const char *name, const void *pointer, enum pointer kind);
/* "text number", or the number alone for ""; until this is called twice more. */
const char *harness_numbered(const char *text, int32_t number);
void open_object(const char *name);
void open_list(const char *name);
void close_part(void);
/* What the call returned: a number, null (also where nothing is said), or a pointer, which is called `text` (at
 * most 127 bytes) where it can be read. */
void reply_number(int64_t value);
void reply_nothing(void);
void reply_text(const char *text);
void reply_pointer(const char *text, const void *address, size_t need);

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Lend memory to the student's functions under a number below 16, instead of what it had before; it is taken back
 * when the case ends. Under Valgrind a call may touch only the bytes of it that the reference's call touches. */
struct loan {
    size_t size, guard, offset; /* guard: bytes on both sides that nobody may touch; offset: from a boundary of 4096 */
    int32_t seed;
};
void *harness_lend(int32_t number, const struct loan *loan);
/* What was lent under the number, NULL for nothing; `size` may be NULL. */
void *harness_lent(int32_t number, size_t *size);
/* Its words, guards included. */
void put_lent(const char *name, int32_t number);
/* Called by lab_start: in this case each allocation has a lower address than the one before, not a higher one. */
void harness_fall(void);
/* An allocation like one of the student's own (a table that a poke puts in, which the student will free). */
void *harness_malloc(size_t size);
/* Free such an allocation, or one that the student's functions hand over to their caller. */
void harness_free(void *start);

#endif
