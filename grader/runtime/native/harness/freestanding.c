/* The part of libc that the program under Valgrind needs, if the student's object needs no more than this.
 *
 * Valgrind spends most of its time on a program's start: loader, locale, choice of vector functions. This start has a
 * few instructions instead. Also, libc's string functions read whole vectors past the end of a string, which Valgrind
 * would report as the student's error; the functions here touch only the bytes that they must touch.
 *
 * Nobody reads what is printed under Valgrind. So the printing functions print nothing, but read every argument: a
 * value that was never set, or a string that has no end, is found as it would be in libc. This file is compiled
 * without builtins: a loop that copies must not become a call of memcpy. It is for x86_64 only; on other processors
 * the program is linked with libc.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int, char **);
extern const Elf64_Ehdr __ehdr_start;

/* ---------------------------------------------------------------- system calls */

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

static long ask(long number, long a, long b, long c, long d, long e, long f)
{
    long result = call(number, a, b, c, d, e, f);
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

static long ask3(long number, long a, long b, long c)
{
    return ask(number, a, b, c, 0, 0, 0);
}

void *mmap(void *start, size_t size, int access, int flags, int descriptor, off_t offset)
{
    long at = ask(SYS_mmap, (long)start, (long)size, access, flags, descriptor, offset);
    return at == -1 ? MAP_FAILED : (void *)at;
}

int munmap(void *start, size_t size) { return (int)ask3(SYS_munmap, (long)start, (long)size, 0); }
int madvise(void *start, size_t size, int how) { return (int)ask3(SYS_madvise, (long)start, (long)size, how); }
ssize_t read(int descriptor, void *to, size_t size) { return ask3(SYS_read, descriptor, (long)to, (long)size); }
int close(int descriptor) { return (int)ask3(SYS_close, descriptor, 0, 0); }
ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    return ask3(SYS_writev, descriptor, (long)parts, count);
}

int open(const char *path, int flags, ...) { return (int)ask(SYS_openat, AT_FDCWD, (long)path, flags, 0, 0, 0); }
pid_t getpid(void) { return (pid_t)ask3(SYS_getpid, 0, 0, 0); }

int prctl(int what, ...) /* takes the arguments that rights.c passes */
{
    va_list rest;
    va_start(rest, what);
    long mode = va_arg(rest, int);
    void *how = va_arg(rest, void *);
    va_end(rest);
    return (int)ask(SYS_prctl, what, mode, (long)how, 0, 0, 0);
}

int dup2(int from, int to) { return (int)ask3(SYS_dup2, from, to, 0); }

/* Returns from a signal handler. The directives before it tell Valgrind where the stack pointer, the return address
 * and the saved registers of the interrupted function are (as in libc), so that it finds the lines of a program that
 * hangs. */
void freestanding_back(void);
__asm__(".text\n"
        ".cfi_startproc\n"
        ".cfi_signal_frame\n"
        ".cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06\n" /* rsp: at 160 in the context */
        ".cfi_escape 0x10, 16, 3, 0x77, 0xa8, 0x01\n"   /* rip */
        ".cfi_escape 0x10, 6, 3, 0x77, 0xf8, 0x00\n"    /* rbp */
        ".cfi_escape 0x10, 3, 3, 0x77, 0x80, 0x01\n"    /* rbx */
        "nop\n"
        "freestanding_back: mov $15, %eax\n" /* SYS_rt_sigreturn */
        "syscall\n"
        ".cfi_endproc\n");

sighandler_t signal(int number, sighandler_t handler)
{
    enum { WITH_WAY_BACK = 0x04000000 };
    struct {
        sighandler_t handler;
        unsigned long flags;
        void (*back)(void);
        unsigned long mask;
    } wanted = {handler, WITH_WAY_BACK, freestanding_back, 0}, before = {SIG_DFL, 0, NULL, 0};
    long done = ask(SYS_rt_sigaction, number, (long)&wanted, (long)&before, sizeof wanted.mask, 0, 0);
    return done == 0 ? before.handler : SIG_ERR;
}

_Noreturn void _exit(int status)
{
    for (;;)
        ask3(SYS_exit_group, status, 0, 0);
}

/* ---------------------------------------------------------------- memory and strings */

static int in_words(const void *one, const void *other)
{
    return (((uintptr_t)one | (uintptr_t)other) % sizeof(uint64_t)) == 0;
}

void *memmove(void *to, const void *from, size_t size)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    size_t done = 0;
    if ((uintptr_t)target - (uintptr_t)source >= size) {
        if (in_words(to, from))
            for (; done + sizeof(uint64_t) <= size; done += sizeof(uint64_t))
                *(uint64_t *)(void *)(target + done) = *(const uint64_t *)(const void *)(source + done);
        for (; done < size; done++)
            target[done] = source[done];
    } else {
        while (size-- > 0)
            target[size] = source[size];
    }
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size) { return memmove(to, from, size); }

void *memset(void *to, int value, size_t size)
{
    unsigned char *target = to;
    size_t done = 0;
    const uint64_t word = (unsigned char)value * (uint64_t)0x0101010101010101;
    if (in_words(to, to))
        for (; done + sizeof word <= size; done += sizeof word)
            *(uint64_t *)(void *)(target + done) = word;
    for (; done < size; done++)
        target[done] = (unsigned char)value;
    return to;
}

int memcmp(const void *one, const void *other, size_t size)
{
    const unsigned char *a = one, *b = other;
    for (size_t i = 0; i < size; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

size_t strnlen(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length] != '\0')
        length++;
    return length;
}

size_t strlen(const char *text) { return strnlen(text, SIZE_MAX); }

int strncmp(const char *one, const char *other, size_t most)
{
    for (size_t i = 0; i < most; i++) {
        if (one[i] != other[i])
            return (unsigned char)one[i] < (unsigned char)other[i] ? -1 : 1;
        if (one[i] == '\0')
            break;
    }
    return 0;
}

int strcmp(const char *one, const char *other) { return strncmp(one, other, SIZE_MAX); }

char *strcpy(char *restrict to, const char *restrict from) { return memmove(to, from, strlen(from) + 1); }

/* The functions that a compiler with hardening defaults calls instead. Valgrind itself reports a target that is too
 * small. */
void *__memcpy_chk(void *, const void *, size_t, size_t);
void *__memmove_chk(void *, const void *, size_t, size_t);
void *__memset_chk(void *, int, size_t, size_t);
void *__memcpy_chk(void *to, const void *from, size_t size, size_t room) { return (void)room, memmove(to, from, size); }
void *__memmove_chk(void *to, const void *from, size_t size, size_t room)
{
    return (void)room, memmove(to, from, size);
}
void *__memset_chk(void *to, int value, size_t size, size_t room) { return (void)room, memset(to, value, size); }

/* ---------------------------------------------------------------- printing that prints nothing */

static struct _IO_FILE nobody; /* FILE is only a name here */
FILE *stdout = &nobody, *stderr = &nobody, *stdin = &nobody;

/* Branches on the value, so that Valgrind reports a value that was never set. */
static int looked_at(uint64_t value)
{
    static volatile int sink;
    if (value)
        sink = 1;
    return sink;
}

static int digits(uint64_t value, unsigned base)
{
    int count = 1;
    for (; value >= base; value /= base)
        count++;
    return count;
}

static uint64_t integer(va_list *arguments, char size)
{
    switch (size) {
    case 'l': case 'z': case 'j': case 't':
        return va_arg(*arguments, uint64_t);
    default:
        return va_arg(*arguments, unsigned);
    }
}

/* Reads one conversion, beginning after its '%', and moves on past it. Returns how many characters it would print. */
static int converted(const char **format, va_list *arguments, int so_far)
{
    int width = 0, precision = -1;
    char size = 0;
    for (; strchr("-+ #0'123456789.*", **format) != NULL && **format != '\0'; ++*format) {
        if (**format == '.')
            precision = 0;
        else if (**format == '*') {
            int given = va_arg(*arguments, int);
            looked_at((unsigned)given);
            *(precision < 0 ? &width : &precision) = given;
        } else if (**format >= '0' && **format <= '9') {
            int *number = precision < 0 ? &width : &precision;
            *number = 10 * *number + **format - '0';
        }
    }
    for (; strchr("hlLqjzt", **format) != NULL && **format != '\0'; ++*format)
        size = **format == 'q' ? 'l' : **format;
    int length = 1;
    const char letter = **format;
    *format += letter != '\0';
    switch (letter) {
    case 'd': case 'i': case 'u': case 'c':
        length = digits(integer(arguments, size), 10);
        break;
    case 'x': case 'X':
        length = digits(integer(arguments, size), 16);
        break;
    case 'o':
        length = digits(integer(arguments, size), 8);
        break;
    case 'p':
        looked_at((uintptr_t)va_arg(*arguments, void *));
        break;
    case 's':
        length = (int)strnlen(va_arg(*arguments, const char *), precision < 0 ? SIZE_MAX : (size_t)precision);
        break;
    case 'n':
        *va_arg(*arguments, int *) = so_far;
        return 0;
    case 'e': case 'E': case 'f': case 'F': case 'g': case 'G': case 'a': case 'A':
        if (size == 'L')
            looked_at(va_arg(*arguments, long double) != 0);
        else
            looked_at(va_arg(*arguments, double) != 0);
        break;
    default:
        break;
    }
    return length > width ? length : width;
}

int vfprintf(FILE *restrict file, const char *restrict format, va_list given)
{
    va_list arguments;
    int length = 0;
    va_copy(arguments, given);
    looked_at((uintptr_t)file);
    for (const char *at = format; *at != '\0';)
        if (*at++ == '%')
            length += converted(&at, &arguments, length);
        else
            length++;
    va_end(arguments);
    return length;
}

int vprintf(const char *restrict format, va_list arguments) { return vfprintf(stdout, format, arguments); }

#define PRINTS(file)                                    \
    va_list arguments;                                  \
    va_start(arguments, format);                        \
    int length = vfprintf(file, format, arguments);     \
    va_end(arguments);                                  \
    return length

int printf(const char *restrict format, ...) { PRINTS(stdout); }
int fprintf(FILE *restrict file, const char *restrict format, ...) { PRINTS(file); }
int __printf_chk(int, const char *, ...);
int __fprintf_chk(FILE *, int, const char *, ...);
int __printf_chk(int flag, const char *format, ...) { (void)flag; PRINTS(stdout); }
int __fprintf_chk(FILE *file, int flag, const char *format, ...) { (void)flag; PRINTS(file); }

int fputs(const char *restrict text, FILE *restrict file)
{
    looked_at((uintptr_t)file);
    return (int)strlen(text);
}

int puts(const char *text) { return fputs(text, stdout) + 1; }
void perror(const char *text) { fputs(text == NULL ? "" : text, stderr); }

int fputc(int character, FILE *file)
{
    looked_at((uintptr_t)file);
    looked_at((unsigned)character);
    return character;
}

int putc(int character, FILE *file) { return fputc(character, file); }
int putchar(int character) { return fputc(character, stdout); }

size_t fwrite(const void *restrict items, size_t size, size_t count, FILE *restrict file)
{
    const unsigned char *bytes = items;
    looked_at((uintptr_t)file);
    for (size_t i = 0; i < size * count; i++)
        looked_at(bytes[i]);
    return count;
}

int fflush(FILE *file) { return (void)file, 0; }
int fclose(FILE *file) { return looked_at((uintptr_t)file), 0; }
void clearerr(FILE *file) { (void)file; }
int ferror(FILE *file) { return looked_at((uintptr_t)file), 0; }
int setvbuf(FILE *restrict file, char *restrict buffer, int mode, size_t size)
{
    return (void)file, (void)buffer, (void)mode, (void)size, 0;
}

/* ---------------------------------------------------------------- the rest */

static _Thread_local int error_number;
int *__errno_location(void) { return &error_number; }
char *(strchr)(const char *text, int wanted) /* in parentheses: it is a macro too where libc follows C23 */
{
    for (;; text++) {
        if (*text == (char)wanted)
            return (char *)(uintptr_t)text;
        if (*text == '\0')
            return NULL;
    }
}

_Noreturn void __stack_chk_fail(void);
_Noreturn void __stack_chk_fail(void) { __builtin_trap(); }
_Noreturn void __assert_fail(const char *what, const char *file, unsigned line, const char *function)
{
    (void)what, (void)file, (void)line, (void)function;
    __builtin_trap();
}

/* Returns no addresses, because the native run shows where a program ended itself. */
int backtrace(void **stack, int most) { return (void)stack, (void)most, 0; }

/* Thread-local data lies below the thread's own address, and the word at this address is the address itself (ELF,
 * x86_64). The compiler's stack protector reads its canary 0x28 bytes above. Data that is too large for `room` gets
 * pages of its own. errno must not be used until the thread is made. */
static void make_thread(void)
{
    enum { ROOM = 1 << 12, HEAD = 64, ARCH_SET_FS = 0x1002 };
    static _Alignas(HEAD) unsigned char room[ROOM + HEAD];
    const Elf64_Phdr *parts = (const void *)((const char *)&__ehdr_start + __ehdr_start.e_phoff), *data = NULL;
    unsigned char *self = room + ROOM;
    for (int i = 0; i < __ehdr_start.e_phnum; i++)
        if (parts[i].p_type == PT_TLS)
            data = parts + i;
    if (data != NULL) {
        size_t align = data->p_align ? data->p_align : 1, size = (data->p_memsz + align - 1) / align * align;
        if (size > ROOM || align > HEAD) {
            long start = call(SYS_mmap, 0, (long)(size + align + HEAD), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (start < 0 && start > -4096)
                call(SYS_exit_group, 127, 0, 0, 0, 0, 0);
            self = (unsigned char *)(((uintptr_t)start + size + align - 1) / align * align);
        }
        memmove(self - size, (const void *)data->p_vaddr, data->p_filesz);
    }
    *(uintptr_t *)(void *)self = (uintptr_t)self;
    *(uintptr_t *)(void *)(self + 0x28) = (uintptr_t)0x5bd1e99500a7c3f1;
    ask3(SYS_arch_prctl, ARCH_SET_FS, (long)self, 0);
}

_Noreturn void freestanding_start(long *stack);
_Noreturn void freestanding_start(long *stack)
{
    make_thread();
    _exit(main((int)stack[0], (char **)(stack + 1)));
}

__asm__(".globl _start\n"
        "_start: xor %ebp, %ebp\n"
        "mov %rsp, %rdi\n"
        "and $-16, %rsp\n"
        "call freestanding_start\n");
