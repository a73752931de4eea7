/* The interface between a lab's driver and the harness. harness.c explains how it works. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stddef.h>
#include <stdint.h>

/* One operation of a trace, as the grader sends it. */
struct call {
    int32_t code;      /* index into the lab's list of operations */
    int32_t target;    /* number of the object that it is called on, 0 for NULL */
    int32_t first, count; /* the place of its first argument among those of the case, and their number */
};

/* Read the argument at `place`, from 0. Return whether it is NULL or missing; its number, or 0 if it is no number; the
 * ints of a list, or the bytes of a text. `count` is set to how many these are, or 0. */
int harness_is_null(const struct call *call, int place);
int64_t harness_number(const struct call *call, int place);
const int32_t *harness_ints(const struct call *call, int place, size_t *count);
const char *harness_bytes(const struct call *call, int place, size_t *count);

/* What a pointer of the student's code points to. native/values.py, which reads records, has the same numbers. */
enum pointer { PTR_OK, PTR_NULL, PTR_STRAY, PTR_SMALL, PTR_FREED, PTR_SHARED };

/* --- functions of the lab: those after lab_parts have a default (values.c) --------------------------------------- */

/* Do one operation. Returns 0 for a poke that does not fit the state; the case ends there. */
int lab_apply(const struct call *call);
/* Write the state as named values. Reads the student's memory, trusts nothing in it. */
void lab_record(void);
/* Call `part` for every variable of the driver that a call changes. It may overwrite the variable; see closure.c. */
void lab_parts(void (*part)(void *start, size_t size));
/* Forget the last case. `settings` are the case's numbers in the order of the lab's list of settings. Default: fill
 * the variables of lab_parts with zeros. */
void lab_start(const int32_t *settings);
/* Return whether the last call said that it failed. Default: it replied -1 or null. */
int lab_refused(void);
/* Call harness_root with every pointer that the caller of the student's functions keeps. Default: with every word of
 * lab_parts. */
void lab_roots(void);

/* --- functions of the harness ----------------------------------------------------------------------------------- */

/* Marks large tables without an initial value: small variables then lie together, and fork copies few pages. */
#define HARNESS_LARGE __attribute__((section(".bss.large")))
/* Return what `address` points to, by the table of the student's allocations: PTR_OK if `need` bytes can be read. */
enum pointer harness_pointer(const void *address, size_t need);
/* Return whether these bytes lie outside their allocation and were never written. (The allocation is too small.) */
int harness_outside(const void *address, size_t size);
/* Report that the table in this allocation contains something that it should not contain. Each allocation is reported
 * at most once, and at most one in each operation. */
void harness_unfilled(const void *address);
/* Return whether this address was already passed since the record was begun, and remember it. */
int harness_seen(const void *address);
/* Note that the block to which this points, if any, can still be reached and so is not lost. */
void harness_root(const void *pointer);
/* --- the record as named values (values.c): lab_record calls begin_state, the functions below, and end_state. Names
 * and order are those of the reference's state: so equal states are equal bytes. In a list the name is NULL. ------- */

void begin_state(void);
void end_state(void);
void put_number(const char *name, int64_t value);
/* Put a value that the student's code may have set: so the line that set it can be found. put_ints: entries after the
 * end of an allocation that is too small count as 0. */
void put_int(const char *name, const int *where);
void put_size(const char *name, const size_t *where);
void put_ints(const char *name, const int *ints, size_t count);
/* As put_ints, but entries after the end of the allocation count as `blank`. */
void put_entries(const char *name, const int *ints, size_t count, int blank);
void put_text(const char *name, const char *text);
void put_null(const char *name);
/* `pointer` is the address of a pointer. Return whether `need` bytes can be read where it leads, and this record has
 * not read them before; then put what is there next. Otherwise put null, or what is wrong with the pointer. */
int put_pointer(const char *name, const void *pointer, size_t need);
void put_unreadable(const char *name, const void *pointer, enum pointer kind);
/* Return "text number", or only the number if the text is "". The second call after this one overwrites it. */
const char *harness_numbered(const char *text, int32_t number);
void open_object(const char *name);
void open_list(const char *name);
void close_part(void);
/* Note what the call returned: a number; null, the default; a text (at most 127 bytes); or a pointer: `text` if `need`
 * bytes can be read there, otherwise what is wrong with it. */
void reply_number(int64_t value);
void reply_nothing(void);
void reply_text(const char *text);
void reply_pointer(const char *text, const void *address, size_t need);

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Lend memory to the student's functions under a number below 16, and take back what was lent under it. All is taken
 * back before the next case. Under Valgrind a call may touch only the bytes of it that the reference's call touches. */
struct loan {
    size_t size, guard, offset; /* guard: bytes on each side that nobody may touch; offset: of the guard in its page */
    int32_t seed;
};
void *harness_lend(int32_t number, const struct loan *loan);
/* Return the memory that is lent under the number, or NULL, and set `size` unless that is NULL. */
void *harness_lent(int32_t number, size_t *size);
/* Put the words of the memory that is lent under the number, guards included. */
void put_lent(const char *name, int32_t number);
/* Called by lab_start: in this case each allocation has a lower address than the one before, not a higher one. */
void harness_fall(void);
/* Allocate as the student's code does, for a poke: for example a table that the student's code will free. */
void *harness_malloc(size_t size);
/* Free such an allocation, or one that the student's functions hand over to their caller. */
void harness_free(void *start);

#endif
