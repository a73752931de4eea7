/* Reports where a program was when it crashed, hung or left, and undefined behaviour in a build that detects it. */
#define _GNU_SOURCE
#include "inside.h"

#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { FRAMES_DEPTH = 32, STACK_FULL = 1 << 16 }; /* no si_code is that large */

void send_stack(enum kind kind, int32_t first, int32_t second, uint64_t address, void *at)
{
    struct {
        int32_t first, second;
        uint64_t address;
        uint64_t stack[FRAMES_DEPTH];
    } body = {first, second, address, {(uint64_t)(uintptr_t)at}};
    size_t head = sizeof body - sizeof body.stack;
    send_frame(kind, &body, head + (at ? sizeof body.stack[0] : 0));
    void *stack[FRAMES_DEPTH];
    int depth = backtrace(stack, FRAMES_DEPTH); /* may itself fault on a damaged stack, so a frame was sent before */
    int from = 0, kept = 0;
    while (at != NULL && from < depth && stack[from] != at) /* the handler's own frames */
        from++;
    for (from %= depth ? depth : 1; from < depth; from++)
        body.stack[kept++] = (uint64_t)(uintptr_t)stack[from];
    send_frame(kind, &body, head + (size_t)kept * sizeof body.stack[0]);
}

/* ---------------------------------------------------------------- crashes and time limits */

static const int FATAL[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

static void *program_counter(void *context)
{
#if defined(__x86_64__)
    return (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (void *)((ucontext_t *)context)->uc_mcontext.pc;
#else
    (void)context;
    return NULL;
#endif
}

static const char *stack_pointer(void *context)
{
#if defined(__x86_64__)
    return (const char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    return (const char *)((ucontext_t *)context)->uc_mcontext.sp;
#else
    (void)context;
    return stack_base;
#endif
}

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    signal(signal_number, SIG_DFL);
    if (signal_number != SIGSEGV)
        signal(SIGSEGV, SIG_DFL); /* the walk up a damaged stack may fault */
    enum { RED_ZONE = 256 }; /* bytes used below the stack pointer: ABIs allow 128, and a call writes there, too */
    int hang = signal_number == SIGPROF;
    const char *at = info->si_addr, *end = stack_pointer(context);
    int full = signal_number == SIGSEGV && at < stack_base && at >= end - RED_ZONE; /* its stack cannot grow */
    uint64_t address = full ? (uint64_t)(stack_base - end) : (uint64_t)(uintptr_t)at;
    if (now.lines)
        tell_lines(0);
    send_stack(FAULT, signal_number, full ? STACK_FULL : info->si_code, hang ? 0 : address, program_counter(context));
    if (hang)
        _exit(EXIT_HANG);
    raise(signal_number);
}

void catch_faults(void)
{
    static HARNESS_LARGE char stack[64 * 1024];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (size_t i = 0; i < sizeof FATAL / sizeof *FATAL; i++)
        sigaction(FATAL[i], &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    void *warm[1];
    backtrace(warm, 1); /* loads libgcc now, not inside a handler */
}

/* Under Valgrind the grader sends SIGPROF to ask where the program is. */
void on_asked(int signal_number)
{
    (void)signal_number;
    VALGRIND_PRINTF_BACKTRACE("pkv hang %llx %x %x\n", (unsigned long long)now.token, (unsigned)now.case_number,
                              (unsigned)now.operation);
    _exit(EXIT_HANG);
}

/* ---------------------------------------------------------------- undefined behaviour */

/* The functions that a build with -fsanitize=undefined calls, with the names and the layout of gcc's libubsan; other
 * programs do not call them. libubsan prints a text; these send a frame with the kind and the place, once for each
 * place in a case. Then the case continues. Only the arguments that are read are declared. */
struct place {
    const char *file;
    uint32_t line, column;
};

struct mismatch {
    struct place place;
    const void *type;
    unsigned char log_align, access;
};

enum undefined {
    OVERFLOW = 1, DIVISION, SHIFT, BOUNDS, ARRAY_SIZE, BAD_VALUE, NULL_ARGUMENT, NULL_RESULT, POINTER_SUM, NULL_POINTER,
    MISALIGNED, OBJECT_SIZE, BUILTIN, UNREACHABLE
};

static void undefined(enum undefined what, struct place *place)
{
    const uint32_t told = UINT32_MAX; /* marks a reported place, as in libubsan; no column is so large */
    struct {
        uint32_t what, line, column;
        char file[128];
    } body = {what, place->line, place->column, ""};
    if (place->column == told)
        return;
    place->column = told;
    size_t length = strnlen(place->file, sizeof body.file);
    memcpy(body.file, place->file, length);
    send_frame(UNDEFINED, &body, offsetof(__typeof__(body), file) + length);
}

#define UNDEFINED_BY(name, what)               \
    void __ubsan_handle_##name(struct place *); \
    void __ubsan_handle_##name(struct place *place) { undefined(what, place); }

UNDEFINED_BY(add_overflow, OVERFLOW)
UNDEFINED_BY(sub_overflow, OVERFLOW)
UNDEFINED_BY(mul_overflow, OVERFLOW)
UNDEFINED_BY(negate_overflow, OVERFLOW)
UNDEFINED_BY(divrem_overflow, DIVISION)
UNDEFINED_BY(shift_out_of_bounds, SHIFT)
UNDEFINED_BY(out_of_bounds, BOUNDS)
UNDEFINED_BY(vla_bound_not_positive, ARRAY_SIZE)
UNDEFINED_BY(load_invalid_value, BAD_VALUE)
UNDEFINED_BY(nonnull_arg, NULL_ARGUMENT)
UNDEFINED_BY(pointer_overflow, POINTER_SUM)
UNDEFINED_BY(invalid_builtin, BUILTIN)

void __ubsan_handle_type_mismatch_v1(struct mismatch *, uintptr_t);
void __ubsan_handle_type_mismatch_v1(struct mismatch *of, uintptr_t pointer)
{
    int misaligned = (pointer & (((uintptr_t)1 << of->log_align) - 1)) != 0;
    undefined(pointer == 0 ? NULL_POINTER : misaligned ? MISALIGNED : OBJECT_SIZE, &of->place);
}

void __ubsan_handle_nonnull_return_v1(void *, struct place *);
void __ubsan_handle_nonnull_return_v1(void *attribute, struct place *place)
{
    (void)attribute;
    undefined(NULL_RESULT, place);
}

_Noreturn void __ubsan_handle_builtin_unreachable(struct place *);
_Noreturn void __ubsan_handle_builtin_unreachable(struct place *place)
{
    undefined(UNREACHABLE, place);
    _exit(EXIT_BY_STUDENT); /* there is no code to go on with */
}
