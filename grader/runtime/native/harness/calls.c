/* The functions to which the student's calls of libc were renamed: allocators, their relatives, ways out of the
 * program, and what happens to calls that are refused. */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

/* Declared here and not in harness.h: only the linker connects them with the student's code. */
void *harness_calloc(size_t, size_t);
void *harness_realloc(void *, size_t);
void *harness_reallocarray(void *, size_t, size_t);
void *harness_aligned_alloc(size_t, size_t);
int harness_posix_memalign(void **, size_t, size_t);
void *harness_memalign(size_t, size_t);
void *harness_valloc(size_t);
void *harness_pvalloc(size_t);
size_t harness_malloc_usable_size(void *);
int harness_asprintf(char **, const char *, ...);
int harness_vasprintf(char **, const char *, va_list);
int harness___asprintf_chk(char **, int, const char *, ...);
int harness___vasprintf_chk(char **, int, const char *, va_list);
ssize_t harness_getline(char **, size_t *, FILE *);
ssize_t harness_getdelim(char **, size_t *, int, FILE *);
ssize_t harness___getdelim(char **, size_t *, int, FILE *);
char *harness_strdup(const char *);
char *harness_strndup(const char *, size_t);
wchar_t *harness_wcsdup(const wchar_t *);
int harness_fclose(FILE *);
int harness_fileno(FILE *);
void harness_refused(const char *, void *);
FILE *harness_opened(const char *, FILE *, const char *, void *);
_Noreturn void harness_exit(int);
_Noreturn void harness__exit(int);
_Noreturn void harness__Exit(int);
_Noreturn void harness_quick_exit(int);
_Noreturn void harness_abort(void);
_Noreturn void harness_longjmp(struct __jmp_buf_tag *, int);
_Noreturn void harness__longjmp(struct __jmp_buf_tag *, int);
_Noreturn void harness_siglongjmp(struct __jmp_buf_tag *, int);
_Noreturn void harness___longjmp_chk(struct __jmp_buf_tag *, int);

#define CALLER __builtin_return_address(0)

void *harness_malloc(size_t size)
{
    return allocate(size, 16, 0, CALLER);
}

void *harness_calloc(size_t count, size_t size)
{
    return size && count > SIZE_MAX / size ? NULL : allocate(count * size, 16, 1, CALLER);
}

/* Like libc's realloc, except that it always moves the block. Size 0 frees it. */
static void *resized(void *old, size_t size, void *caller)
{
    if (old != NULL && size == 0) {
        release(old, caller);
        return NULL;
    }
    const struct block *block = old ? block_below((uintptr_t)old) : NULL;
    enum detail wrong = old ? bad_free((uintptr_t)old, block) : 0;
    size_t kept = 0;
    if (old != NULL && !wrong)
        kept = block->size;
    else if (wrong == FOREIGN)
        kept = libc_gave(old);
    void *new = allocate(size, 16, 0, caller);
    if (new == NULL)
        return NULL;
    if (kept)
        memcpy(new, old, kept < size ? kept : size);
    release(old, caller);
    return new;
}

void *harness_realloc(void *old, size_t size)
{
    return resized(old, size, CALLER);
}

void *harness_reallocarray(void *old, size_t count, size_t size)
{
    return size && count > SIZE_MAX / size ? NULL : resized(old, count * size, CALLER);
}

static void *aligned(size_t align, size_t size, void *caller)
{
    if (align == 0 || (align & (align - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    return allocate(size, align < 16 ? 16 : align, 0, caller);
}

void *harness_aligned_alloc(size_t align, size_t size)
{
    return aligned(align, size, CALLER);
}

int harness_posix_memalign(void **result, size_t align, size_t size)
{
    if (align % sizeof(void *) != 0 || align == 0 || (align & (align - 1)) != 0)
        return EINVAL;
    void *start = aligned(align, size, CALLER);
    if (start == NULL)
        return ENOMEM;
    *result = start;
    return 0;
}

void *harness_memalign(size_t align, size_t size)
{
    size_t power = 16;
    while (power < align && power <= LARGEST)
        power *= 2;
    return aligned(power, size, CALLER);
}

void *harness_valloc(size_t size)
{
    return aligned((size_t)sysconf(_SC_PAGESIZE), size, CALLER);
}

void *harness_pvalloc(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return aligned(page, size > LARGEST ? size : (size + page - 1) / page * page, CALLER);
}

size_t harness_malloc_usable_size(void *start)
{
    const struct block *block = block_below((uintptr_t)start);
    return start != NULL && bad_free((uintptr_t)start, block) == 0 ? block->size : 0;
}

static char *copied(const char *text, size_t length, void *caller)
{
    char *copy = allocate(length + 1, 16, 0, caller);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *harness_strdup(const char *text)
{
    return copied(text, strlen(text), CALLER);
}

char *harness_strndup(const char *text, size_t most)
{
    return copied(text, strnlen(text, most), CALLER);
}

wchar_t *harness_wcsdup(const wchar_t *text)
{
    size_t size = (wcslen(text) + 1) * sizeof *text;
    wchar_t *copy = allocate(size, 16, 0, CALLER);
    return copy == NULL ? NULL : wmemcpy(copy, text, size / sizeof *text);
}

static int printed(char **result, const char *format, va_list arguments, void *caller)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : allocate((size_t)length + 1, 16, 0, caller);
    if (text != NULL)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    if (text == NULL)
        return -1;
    *result = text;
    return length;
}

int harness_vasprintf(char **result, const char *format, va_list arguments)
{
    return printed(result, format, arguments, CALLER);
}

int harness___vasprintf_chk(char **result, int flag, const char *format, va_list arguments)
{
    (void)flag;
    return printed(result, format, arguments, CALLER);
}

int harness_asprintf(char **result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = printed(result, format, arguments, CALLER);
    va_end(arguments);
    return length;
}

int harness___asprintf_chk(char **result, int flag, const char *format, ...)
{
    (void)flag;
    va_list arguments;
    va_start(arguments, format);
    int length = printed(result, format, arguments, CALLER);
    va_end(arguments);
    return length;
}

static ssize_t line_read(char **line, size_t *room, int delimiter, FILE *file, void *caller)
{
    enum { FIRST_ROOM = 120 };
    if (line == NULL || room == NULL) {
        errno = EINVAL;
        return -1;
    }
    size_t length = 0;
    for (int letter = 0; letter != delimiter || length == 0; length++) {
        if (*line == NULL || length + 2 > *room) { /* room for this letter and the end */
            size_t larger = *line == NULL || *room < FIRST_ROOM / 2 ? FIRST_ROOM : 2 * *room;
            char *moved = resized(*line, larger, caller);
            if (moved == NULL)
                return -1;
            *line = moved;
            *room = larger;
        }
        letter = getc(file);
        if (letter == EOF)
            break;
        (*line)[length] = (char)letter;
    }
    (*line)[length] = '\0';
    return length ? (ssize_t)length : -1;
}

ssize_t harness_getline(char **line, size_t *room, FILE *file)
{
    return line_read(line, room, '\n', file, CALLER);
}

ssize_t harness_getdelim(char **line, size_t *room, int delimiter, FILE *file)
{
    return line_read(line, room, delimiter, file, CALLER);
}

ssize_t harness___getdelim(char **line, size_t *room, int delimiter, FILE *file)
{
    return line_read(line, room, delimiter, file, CALLER);
}

void harness_free(void *start)
{
    if (now.failing < 0)
        look_for_scratch(start, CALLER);
    release(start, CALLER);
}

/* Report a call that failed because libc_names.py refuses the function: the first one from each place in a case. */
void harness_refused(const char *name, void *caller)
{
    enum { PLACES = 16, LONGEST = 64 };
    static void *told[PLACES];
    size_t place = 0;
    while (place < PLACES && told[place] != NULL && told[place] != caller)
        place++;
    if (MEMCHECK || now.closure || place == PLACES || told[place] == caller)
        return;
    told[place] = caller;
    struct {
        uint64_t caller;
        char name[LONGEST];
    } body = {(uint64_t)(uintptr_t)caller, ""};
    memcpy(body.name, name, strnlen(name, LONGEST));
    send_frame(REFUSED, &body, sizeof body);
}

/* The one stream for all files that are opened to be written: what is written is dropped, so the file stays empty. It
 * is never closed, because a closure goes back to states in which it is open. Under Valgrind it is stdout, which leads
 * to /dev/null there: libc then allocates no FILE that could be taken for an allocation of the student's. */
static FILE *empty_file;

static ssize_t read_none(void *file, char *bytes, size_t size)
{
    return (void)file, (void)bytes, (void)size, 0;
}

static ssize_t drop(void *file, const char *bytes, size_t size)
{
    return (void)file, (void)bytes, (ssize_t)size;
}

static int go_to_start(void *file, off64_t *place, int from)
{
    return (void)file, (void)from, *place = 0, 0;
}

/* Clear the stream's errors, and replace a buffer that the student set: it may be gone once the file is closed. */
static FILE *as_new(FILE *file)
{
    static HARNESS_LARGE char buffer[1 << 12];
    clearerr(file);
    setvbuf(file, buffer, _IOFBF, sizeof buffer);
    return file;
}

/* Open a file to write it; opening one only to read it fails. A `stream` that is not NULL (freopen) keeps its file. */
FILE *harness_opened(const char *mode, FILE *stream, const char *name, void *caller)
{
    if (*mode != 'w' && *mode != 'a' && strchr(mode, '+') == NULL) {
        harness_refused(name, caller);
        errno = ENOENT;
        return NULL;
    }
    if (stream != NULL)
        return stream;
    const cookie_io_functions_t ways = {read_none, drop, go_to_start, NULL};
    if (empty_file == NULL)
        empty_file = MEMCHECK ? stdout : fopencookie(NULL, "w+", ways);
    return empty_file == NULL ? NULL : as_new(empty_file);
}

int harness_fclose(FILE *file)
{
    return file != NULL && file == empty_file ? (as_new(file), 0) : fclose(file);
}

int harness_fileno(FILE *file)
{
    return file != NULL && file == empty_file ? STDOUT_FILENO : fileno(file);
}

enum way { WAY_EXIT = 1, WAY__EXIT, WAY__EXIT_C, WAY_QUICK_EXIT, WAY_ABORT, WAY_JUMP };

static _Noreturn void leave(enum way way, int status)
{
    send_stack(LEFT, way, status, 0, NULL);
    fflush(stdout);
    _exit(EXIT_BY_STUDENT);
}

_Noreturn void harness_exit(int status) { leave(WAY_EXIT, status); }
_Noreturn void harness__exit(int status) { leave(WAY__EXIT, status); }
_Noreturn void harness__Exit(int status) { leave(WAY__EXIT_C, status); }
_Noreturn void harness_quick_exit(int status) { leave(WAY_QUICK_EXIT, status); }
_Noreturn void harness_abort(void) { leave(WAY_ABORT, 0); }

/* A longjmp is legal while the function that called setjmp still runs. No function can wrap setjmp, because setjmp
 * would save the frame of that function; so a few instructions note the buffer and jump to setjmp. Not detected are
 * a copied buffer, __builtin_setjmp, and a frame that returned in the same call and whose room is in use again. */
static struct jump {
    const void *buffer;
    const char *stack;
    int32_t case_number, operation;
} jumps[64] HARNESS_LARGE;
static size_t jump_count;

__attribute__((used, noinline)) static void note_setjmp(const void *buffer, const char *stack)
{
    const size_t room = sizeof jumps / sizeof *jumps;
    size_t place = 0;
    while (place < room && jumps[place].buffer != buffer)
        place++;
    if (place == room)
        place = jump_count++ % room;
    jumps[place] = (struct jump){buffer, stack, now.case_number, now.operation};
}

#if defined(__x86_64__)
#define NOTED(name)                                                                                               \
    __asm__(".pushsection .text.harness_" name ", \"ax\"\n"                                                       \
            ".globl harness_" name "\n.type harness_" name ", @function\nharness_" name ":\n"                        \
            "push %rdi\npush %rsi\nsub $8, %rsp\nlea 32(%rsp), %rsi\ncall note_setjmp\n"                           \
            "add $8, %rsp\npop %rsi\npop %rdi\njmp " name "@PLT\n"                                                  \
            ".size harness_" name ", . - harness_" name "\n.popsection\n")
#elif defined(__aarch64__)
#define NOTED(name)                                                                                               \
    __asm__(".pushsection .text.harness_" name ", \"ax\"\n"                                                       \
            ".globl harness_" name "\n.type harness_" name ", %function\nharness_" name ":\n"                        \
            "stp x0, x1, [sp, #-32]!\nstp x29, x30, [sp, #16]\nadd x1, sp, #32\nbl note_setjmp\n"                  \
            "ldp x29, x30, [sp, #16]\nldp x0, x1, [sp], #32\nb " name "\n"                                          \
            ".size harness_" name ", . - harness_" name "\n.popsection\n")
#else
#error "setjmp cannot be noted on this machine: write its few instructions here"
#endif
NOTED("setjmp");
NOTED("_setjmp");
NOTED("__sigsetjmp");

static _Noreturn void jump(struct __jmp_buf_tag *buffer, int value)
{
    const char *frame = __builtin_frame_address(0);
    for (size_t i = 0; i < sizeof jumps / sizeof *jumps; i++) {
        const struct jump *noted = &jumps[i];
        if (noted->buffer != buffer)
            continue;
        int other_call = noted->case_number != now.case_number || noted->operation != now.operation;
        if (other_call || (noted->stack < frame && on_stack(noted->stack)))
            leave(WAY_JUMP, 0);
    }
    siglongjmp(buffer, value);
}

_Noreturn void harness_longjmp(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }
_Noreturn void harness__longjmp(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }
_Noreturn void harness_siglongjmp(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }
_Noreturn void harness___longjmp_chk(struct __jmp_buf_tag *buffer, int value) { jump(buffer, value); }
