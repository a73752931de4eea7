/* Theory of operation
 *
 * The parts of the harness, a lab's driver.c and the student's object make one program. The grader, another process,
 * starts it, reads what it reports, and alone decides. Expected states are never in this program.
 *
 *   the plan       argv[1] is its descriptor: cases and their operations (read once, then closed)
 *   the report     argv[2] is its descriptor: frames, each with a token, a kind and a length
 *   stdout, stderr the student's; nobody parses them
 *
 * "native": the parent forks one child for every case. The child does the operations and sends a STEP frame with the
 * canonical record after each; a crash or a time limit is caught on an alternate stack and sent as a FAULT frame with
 * the return addresses. The parent sends BEGIN before each case and END after it. A child cannot forge frames of
 * another case, because only those between a case's last BEGIN and the next case's BEGIN count. The parent also limits
 * the time of each operation; see "time" below. Before its first operation the child gives up all rights that it does
 * not need (rights.c). At its end the child reports what it did not free, from its own table, into which the student's
 * code could store. Valgrind, whose record no store of the program reaches, decides.
 *
 * Under Valgrind (compiled a second time) all cases of a plan run in one process. It reports no state, only how many
 * errors Valgrind has counted; a client message puts the case and the operation into Valgrind's own report, after the
 * operation's errors. The plan says which bytes of the lab's memory each call may touch; the others are forbidden, and
 * client messages say where they were, so that the grader can tell a store into them from other errors. Every few cases
 * Valgrind lists all blocks that were never freed; there may not be more of them than the cases reported.
 *
 * The student's malloc, free, exit and so on were renamed to the functions of calls.c. Memory comes from an arena and
 * is never used twice, with a gap before and after each block. Addresses rise with each allocation, or fall where the
 * lab's settings of a case say so: a program that compares them is wrong in one of the two. Natively new bytes are
 * 0xA5, freed ones 0xDD, and the gaps are canaries. Valgrind is instead told of every block, and that the gaps belong
 * to no block: so it finds the same errors in a statically linked program, where it cannot see malloc, and such a
 * program starts five times faster.
 *
 * "trace": native, and after each operation the harness finds the live blocks to which nothing points any more. It
 * reports no state, only where each block that was never freed was lost. It is for the cases that lost something.
 */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PLAN_MAGIC = 0x504c414e, HEADER = 11, SETTINGS = 8 };
enum { PLAN_MEMCHECK = 1, PLAN_TRACE = 2, PLAN_CONFINED = 4, PLAN_LINES = 8, PLAN_CLOSURE = 16 };
enum { CODES = 64 }; /* more than any lab has calls */

void *harness_pages(size_t size)
{
    void *pages = mmap(NULL, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
    if (pages == MAP_FAILED)
        _exit(EXIT_BAD_PLAN);
    return pages;
}

void *pages_of_parent(size_t size)
{
    void *pages = harness_pages(size);
    if (madvise(pages, size, MADV_DONTFORK) != 0)
        _exit(EXIT_BAD_PLAN);
    return pages;
}

void harness_drop(void *pages, size_t size)
{
    ask_kernel(SYS_munmap, (uintptr_t)pages, size ? size : 1, 0);
}

/* Give stdout a buffer that does not look like a leak, as one of libc's own would. Natively use none, so that no line
 * that was printed is lost in a crash. Drop what is printed in a closure, which makes very many calls, and under
 * Valgrind, where every system call is expensive: nobody reads it. */
static void set_up_output(void)
{
    static HARNESS_LARGE char buffer[1 << 12];
    if (MEMCHECK || now.closure) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        close(nowhere);
    }
    setvbuf(stdout, buffer, MEMCHECK ? _IOFBF : _IONBF, sizeof buffer);
    setvbuf(stderr, NULL, _IONBF, 0);
}

/* ---------------------------------------------------------------- what Valgrind is told */

enum { MOST_FORBIDDEN = 16 };
static struct {
    uintptr_t start, end;
} forbidden[MOST_FORBIDDEN]; /* in this operation */
static int forbidden_count;

void harness_forbid(const void *start, size_t size)
{
    if (forbidden_count == MOST_FORBIDDEN)
        return;
    forbidden[forbidden_count].start = (uintptr_t)start;
    forbidden[forbidden_count++].end = (uintptr_t)start + size;
    VALGRIND_MAKE_MEM_NOACCESS(start, size);
}

void harness_allow(const void *start, size_t size)
{
    VALGRIND_MAKE_MEM_DEFINED(start, size);
    (void)start;
    (void)size;
}

/* Write what was forbidden, the case and the operation into Valgrind's report, after the operation's errors. Without
 * the token a program that writes there could name another case or operation. */
static void mark_errors(int32_t case_number, int32_t operation)
{
    for (int i = 0; i < forbidden_count; i++)
        VALGRIND_PRINTF("pkv forbidden %llx %lx %lx\n", (unsigned long long)now.token,
                        (unsigned long)forbidden[i].start, (unsigned long)forbidden[i].end);
    VALGRIND_PRINTF("pkv errors %llx %x %x\n", (unsigned long long)now.token, (unsigned)case_number,
                    (unsigned)operation);
    (void)case_number;
    (void)operation;
}

/* Let Valgrind list the blocks that were never freed since the arena was new, in the cases up to this one. It reads
 * every accessible word that may hold a pointer, so main makes the plan inaccessible. */
void list_unfreed(void)
{
    VALGRIND_DO_LEAK_CHECK;
    VALGRIND_PRINTF("pkv unfreed %llx %x %x\n", (unsigned long long)now.token, (unsigned)heap.last_case,
                    (unsigned)heap.first_case);
}

/* ---------------------------------------------------------------- cases */

struct one_case {
    int32_t number, operations;
    int32_t failing; /* n > 0: the n-th allocation fails; -1: none, but report memory freed by the call that made it;
                        where lines are reported: those of this operation; in a closure: the length of its tour */
    int32_t arguments, words; /* of all calls, and of the lists among them */
    int32_t settings[SETTINGS];
    struct call calls[]; /* after them their arguments, then the words of lists, then under Valgrind the contracts of
                            the calls, in a closure the tour */
};

enum argument_kind { A_NULL, A_NUMBER, A_LIST };
struct argument {
    int32_t kind;
    int32_t low, high; /* the halves of a number; of a list: its first word, and the number of its ints or bytes */
};

/* The arguments of the case that runs. */
static struct {
    const struct argument *all;
    const int32_t *words;
} arguments;

static const int32_t *behind_arguments(const struct one_case *one)
{
    arguments.all = (const void *)(one->calls + one->operations);
    arguments.words = (const void *)(arguments.all + one->arguments);
    return arguments.words + one->words;
}

static struct argument argument_of(const struct call *call, int place)
{
    return place < call->count ? arguments.all[call->first + place] : (struct argument){A_NULL, 0, 0};
}

int harness_is_null(const struct call *call, int place)
{
    return argument_of(call, place).kind == A_NULL;
}

int64_t harness_number(const struct call *call, int place)
{
    struct argument argument = argument_of(call, place);
    return argument.kind == A_NUMBER ? (int64_t)((uint64_t)(uint32_t)argument.high << 32 | (uint32_t)argument.low) : 0;
}

const int32_t *harness_ints(const struct call *call, int place, size_t *count)
{
    struct argument argument = argument_of(call, place);
    *count = argument.kind == A_LIST ? (size_t)argument.high : 0;
    return arguments.words + argument.low;
}

const char *harness_bytes(const struct call *call, int place, size_t *count)
{
    return (const void *)harness_ints(call, place, count);
}

static size_t words_of(const struct one_case *one)
{
    size_t contracts = MEMCHECK ? (size_t)one->operations * sizeof(struct contract) / sizeof(int32_t) : 0;
    size_t calls = (size_t)one->operations * sizeof(struct call) + (size_t)one->arguments * sizeof(struct argument);
    size_t tour = now.closure ? (size_t)one->failing : 0;
    return (sizeof *one + calls) / sizeof(int32_t) + (size_t)one->words + contracts + tour;
}

/* The child's progress, in a page that it shares with its parent. */
struct progress {
    int32_t operation, inside; /* inside: whether a call runs, and not our own code between two calls */
};
static volatile struct progress *progress;
static int confined;

void enter_call(void)
{
    progress->operation = now.operation;
    progress->inside = 1;
}

void leave_call(void)
{
    progress->inside = 0;
}

/* Natively: local variables that a call never sets hold FILL_NEW too, in every case and on every machine, and not what
 * some earlier call left there. Valgrind reports such a variable only where the program decides by its value. */
__attribute__((noinline)) static void fill_stack(void)
{
    unsigned char below[1 << 12];
    memset(below, FILL_NEW, sizeof below);
    __asm__ volatile("" : : "r"(below) : "memory");
}

/* Do all operations of a case. Return whether each of them fitted the state. */
static int run_case(const struct one_case *one)
{
    begin_heap();
    errno = 0; /* as at the start of a program */
    now.failing = now.lines || now.closure ? 0 : one->failing;
    const int32_t *behind = behind_arguments(one);
    take_all_back();
    lab_start(one->settings);
    if (!MEMCHECK && now.closure) {
        if (!run_closure(one->calls, one->operations, behind, one->failing))
            send_frame(MISFIT, NULL, 0);
        return 1;
    }
    const struct contract *contracts = MEMCHECK ? (const void *)behind : NULL;
    for (int32_t i = 0; i < one->operations; i++) {
        begin_operation();
        forbidden_count = 0;
        now.operation = i;
        unsigned before = VALGRIND_COUNT_ERRORS;
        if (!MEMCHECK)
            fill_stack();
        reply_nothing();
        enter_call();
        if (now.lines)
            watch_lines(i == one->failing);
        begin_contract(contracts ? &contracts[i] : NULL);
        int fits = lab_apply(&one->calls[i]);
        end_contract();
        leave_call();
        if (now.lines)
            watch_lines(0);
        check_canaries();
        if (now.trace)
            find_lost();
        if (!fits) {
            send_frame(MISFIT, NULL, 0);
            return 0;
        }
        int32_t errors = (int32_t)(VALGRIND_COUNT_ERRORS - before);
        if (errors)
            mark_errors(one->number, i);
        if (MEMCHECK) {
            send_frame(STEP, &errors, sizeof errors);
        } else if (!now.trace) {
            send_record();
            if (now.lines && i == one->failing)
                tell_lines(record.length);
        }
    }
    if (!MEMCHECK)
        tell_live();
    enum { MOST_LEAK_CHECKS = 8 };
    static int leak_checks; /* each reads all memory; for other cases our own table says what is lost */
    if (MEMCHECK && heap.live && leak_checks++ < MOST_LEAK_CHECKS) {
        VALGRIND_DO_ADDED_LEAK_CHECK;
        VALGRIND_PRINTF("pkv leaks %llx %x %x\n", (unsigned long long)now.token, (unsigned)one->number,
                        (unsigned)one->operations);
    }
    return 1;
}

/* ---------------------------------------------------------------- time
 *
 * The time of a child is the CPU time that it used and the time that it slept. Waiting for a processor, or for
 * somebody to read what it writes, does not count, so no program is slow because the machine is busy. The parent
 * measures it every millisecond and limits the time of each operation. All figures are in microseconds, from the plan:
 *
 *   first  the limit of a call that is not proven to hang. A case in which a call reaches it is done again in a new
 *          child, with twice the limit. If a call hangs again, it is proven to hang: that costs 3 x first, once for
 *          each call. The plan names the calls for which this was proven in an earlier process.
 *   hangs  the time for all calls that are proven to hang. The limit of such a call is what is left of this time,
 *          divided by the number of cases left, at least `least` and at most `first`. There is no second try.
 *   total  the time of all cases together. The case in which it ends, and those that follow, count as without time.
 *
 * A child that hangs is asked where it is (SIGPROF) and gets half its limit more for the answer. Then it is killed.
 */
static struct {
    int64_t first, least, hangs, total;
} times;
static int8_t proven[CODES];
/* Whether a child that had children hung. Then no later child may fork: each process would have the time of one. */
static int forks_and_hangs;

enum hung { RETURNED, HUNG, WITHOUT_TIME };

struct outcome {
    int32_t status, hung;
    int64_t cpu_microseconds;
};

static int64_t microseconds(clockid_t clock)
{
    struct timespec at;
    return clock_gettime(clock, &at) == 0 ? at.tv_sec * 1000000LL + at.tv_nsec / 1000 : 0;
}

/* Return whether nobody reads what the child writes. Then its sleep is not its own fault. */
static int waits_for_reader(void)
{
    enum { ENDS = 3 };
    struct pollfd ends[ENDS] = {
        {now.report, POLLOUT, 0}, {STDOUT_FILENO, POLLOUT, 0}, {STDERR_FILENO, POLLOUT, 0},
    };
    return poll(ends, ENDS, 0) < ENDS;
}

static char *look_up(const char *form, pid_t child)
{
    static char text[512];
    char path[64];
    snprintf(path, sizeof path, form, (int)child, (int)child);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[length < 0 ? 0 : length] = '\0';
    return text;
}

static int has_children(pid_t child)
{
    return look_up("/proc/%d/task/%d/children", child)[0] != '\0';
}

/* Return whether the child is asleep or stopped (not waiting for a processor or a disk), or has children that compute
 * for it. */
static int sleeps(pid_t child)
{
    const char *state = strrchr(look_up("/proc/%d/stat", child), ')');
    return (state != NULL && strchr("STt", state[2]) != NULL) || has_children(child);
}

static int64_t limit_of(int32_t code, int32_t cases_left)
{
    if (!proven[code])
        return now.attempt * times.first;
    int64_t share = times.hangs / cases_left;
    return share < times.least ? times.least : share > times.first ? times.first : share;
}

static int32_t code_now(const struct one_case *one)
{
    int32_t at = now.closure ? progress->operation % one->operations : progress->operation;
    return at >= 0 && at < one->operations ? one->calls[at].code & (CODES - 1) : 0;
}

/* Wait for the child; `code` is set to the call that it hangs in. */
static struct outcome wait_for(pid_t child, const struct one_case *one, int32_t cases_left, int32_t *code)
{
    enum { LOOK = 1000 };
    struct outcome outcome = {0, RETURNED, 0};
    struct rusage usage;
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    clockid_t clock;
    int known = clock_getcpuclockid(child, &clock) == 0;
    int64_t looked = microseconds(CLOCK_MONOTONIC), slept = 0, used = 0, since = 0, asked = 0, grace = 0;
    int32_t operation = -1;
    enum hung why = RETURNED;
    while (wait4(child, &outcome.status, WNOHANG, &usage) != child) {
        int64_t wall = microseconds(CLOCK_MONOTONIC), passed = wall - looked;
        looked = wall;
        if (passed >= LOOK / 2 && !waits_for_reader() && sleeps(child))
            slept += passed < 2 * LOOK ? passed : 2 * LOOK; /* we too may have waited for a processor */
        used = slept + (known ? microseconds(clock) : 0);
        if (!progress->inside || progress->operation != operation) {
            operation = progress->inside ? progress->operation : -1;
            since = used;
        }
        if (why == RETURNED) {
            int64_t limit = limit_of(code_now(one), cases_left);
            why = used >= times.total ? WITHOUT_TIME : operation >= 0 && used - since >= limit ? HUNG : RETURNED;
            if (why != RETURNED) {
                *code = code_now(one);
                asked = used;
                grace = limit / 2;
                forks_and_hangs |= has_children(child);
                kill(child, SIGPROF); /* where is it? */
            }
        } else if (used - asked >= grace) {
            kill(child, SIGKILL);
        }
        sigtimedwait(&child_ended, NULL, &(struct timespec){0, LOOK * 1000L});
    }
    int killed = WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGKILL;
    if (why != RETURNED && (killed || (WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == EXIT_HANG)))
        outcome.hung = why;
    outcome.cpu_microseconds = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL
        + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    used = slept + outcome.cpu_microseconds;
    times.total -= used;
    if (outcome.hung && proven[*code])
        times.hangs -= used;
    return outcome;
}

/* All cases, in pages that only the parent has: the operations of a case are known only in that case, whose child has
 * a copy of them. */
static int32_t *plan;
static size_t plan_room; /* in bytes */
static struct {
    void *words;
    size_t size; /* of the last case */
} copy;

/* Returns how many bytes the largest case needs. */
static size_t largest_of(const int32_t *at, int32_t cases)
{
    size_t largest = 0;
    for (int32_t i = 0; i < cases; i++) {
        size_t words = words_of((const void *)at);
        largest = words > largest ? words : largest;
        at += words;
    }
    return largest * sizeof(int32_t);
}

static const struct one_case *copied(const struct one_case *one)
{
    size_t size = words_of(one) * sizeof(int32_t);
    memcpy(copy.words, one, size);
    if (size < copy.size)
        memset((char *)copy.words + size, 0, copy.size - size);
    copy.size = size;
    return copy.words;
}

static struct outcome fork_case(const struct one_case *one, int32_t cases_left, int32_t *code)
{
    now.operation = -1;
    memset((void *)(uintptr_t)progress, 0, (size_t)sysconf(_SC_PAGESIZE)); /* no case leaves a word for the next one */
    progress->operation = -1;
    const struct one_case *own = copied(one);
    send_frame(BEGIN, NULL, 0);
    pid_t child = fork();
    if (child < 0)
        _exit(EXIT_BAD_PLAN);
    if (child == 0) {
        setpgid(0, 0);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (forks_and_hangs)
            setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0});
        give_up_rights(confined);
        int fits = run_case(own);
        if (__fpending(stdout)) /* fflush takes a lock, which copies two pages */
            fflush(stdout);
        _exit(fits ? 0 : EXIT_MISFIT);
    }
    struct outcome outcome = wait_for(child, one, cases_left, code);
    kill(-child, SIGKILL); /* whatever it forked */
    while (waitpid(-child, NULL, 0) > 0) /* dead ones count, too, where the number of processes is limited */
        ;
    send_frame(END, &outcome, sizeof outcome);
    return outcome;
}

static void run_natively(const struct one_case *one, int32_t cases_left)
{
    int32_t code;
    now.attempt = 1;
    if (fork_case(one, cases_left, &code).hung != HUNG || proven[code])
        return;
    now.attempt = 2;
    if (fork_case(one, cases_left, &code).hung == HUNG)
        proven[code] = 1;
}

/* ---------------------------------------------------------------- the program */

/* Read the plan into `plan`. Returns how many words it has. */
static size_t read_plan(int descriptor)
{
    size_t room = (size_t)1 << 20, length = 0;
    char *pages = pages_of_parent(room);
    ssize_t got;
    while ((got = read(descriptor, pages + length, room - length)) > 0) {
        length += (size_t)got;
        if (length == room) {
            char *larger = pages_of_parent(2 * room);
            memcpy(larger, pages, length);
            harness_drop(pages, room);
            pages = larger;
            room *= 2;
        }
    }
    close(descriptor);
    plan = (int32_t *)(void *)pages;
    plan_room = room;
    return length / sizeof(int32_t);
}

static int descriptor_of(const char *text)
{
    int number = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        number = 10 * number + *text - '0';
    return number;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return EXIT_BAD_PLAN;
    now.report = descriptor_of(argv[2]);
    size_t words = read_plan(descriptor_of(argv[1]));
    const int32_t *head = plan;
    if (words < HEADER || head[0] != PLAN_MAGIC || (head[3] & PLAN_MEMCHECK) != MEMCHECK)
        return EXIT_BAD_PLAN;
    memcpy(&now.token, head + 1, sizeof now.token);
    now.trace = head[3] & PLAN_TRACE;
    now.lines = head[3] & PLAN_LINES;
    now.closure = head[3] & PLAN_CLOSURE;
    confined = head[3] & PLAN_CONFINED;
    times.first = head[4];
    times.least = head[5];
    times.hangs = head[6];
    times.total = head[7];
    uint64_t hanging;
    memcpy(&hanging, head + 8, sizeof hanging);
    for (int32_t code = 0; code < CODES; code++)
        proven[code] = hanging >> code & 1;
    int32_t cases = head[10];
    set_up_output();
    set_up_heap(__builtin_frame_address(0));
    if (MEMCHECK) {
        signal(SIGPROF, on_asked);
        give_up_rights(confined);
    } else {
        set_up_record();
        catch_faults();
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        sigset_t child_ended;
        sigemptyset(&child_ended);
        sigaddset(&child_ended, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child_ended, NULL);
    }
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED)
        return EXIT_BAD_PLAN;
    keep_statics(0);
    if (confined)
        shut_gate();

    const int32_t *at = head + HEADER;
    VALGRIND_MAKE_MEM_NOACCESS(plan, plan_room);
    if (!MEMCHECK)
        copy.words = harness_pages(largest_of(at, cases));
    enum { CASES_BETWEEN = 16 }; /* between two lists of unfreed blocks; a list takes up to a millisecond */
    for (int32_t i = 0; i < cases && times.total > 0; i++) {
        const struct one_case *one = (const void *)at;
        VALGRIND_MAKE_MEM_DEFINED(one, sizeof *one);
        VALGRIND_MAKE_MEM_DEFINED(one, words_of(one) * sizeof *at);
        now.case_number = one->number;
        if (MEMCHECK) {
            now.attempt = 1;
            now.operation = -1;
            send_frame(BEGIN, NULL, 0);
            keep_statics(1);
            run_case(one);
            struct outcome fine = {0, RETURNED, 0};
            send_frame(END, &fine, sizeof fine);
            if ((i + 1) % CASES_BETWEEN == 0 || i + 1 == cases)
                list_unfreed();
        } else {
            run_natively(one, cases - i);
        }
        at += words_of(one);
        VALGRIND_MAKE_MEM_NOACCESS(one, (size_t)(at - (const int32_t *)one) * sizeof *at);
    }
    send_frame(DONE, NULL, 0);
    return 0;
}
