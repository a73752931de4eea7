/* confine: give up rights, then execute another program.
 *
 *   confine WORD... -- PROGRAM ARGUMENT...
 *
 *   errors=FD       where to write why the program was not started; if it starts, only init writes something there
 *   init            stay and wait for the program, as the first process of a namespace must. Its status, as wait
 *                   returns it, is written after a "=" to errors=; SIGPROF is passed on. Only errors= may come before
 *   cpu= space= file= processes= files=   the most seconds, bytes of memory, bytes in a file, processes, descriptors
 *   user=ID         become this user and group, with no other groups
 *   landlock        allow only the files of the next words, no TCP, no signals to others (as far as the kernel can)
 *   read=PATH       may be read and executed, with all below it; ignored if it does not exist; may be repeated
 *   write=PATH      may be read, written and executed, with all below it; may be repeated
 *   seccomp         refuse the system calls of filter.h
 *   fixed           the same addresses in every run, so that what depends on them repeats; ignored where a container
 *                   forbids it, as Docker does: this word protects nothing
 *
 * The program has no core files, no privileges and no way to new ones, and no blocked or ignored signals. If anything
 * that a word asks for cannot be done, the program is not started. So what was asked for is active in every program
 * that runs. The numbers of Landlock are those of the kernel's documentation; its header is missing or old on many
 * machines.
 */
#define _GNU_SOURCE
#include "filter.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_STARTED = 125 };

static int errors = STDERR_FILENO;

static _Noreturn void stop(const char *what)
{
    dprintf(errors, "%s: %s", what, strerror(errno));
    _exit(NOT_STARTED);
}

/* ---------------------------------------------------------------- Landlock */

enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD = 445, LANDLOCK_RESTRICT = 446, VERSION = 1, BENEATH = 1 };
enum { EXECUTE = 1, WRITE_FILE = 1 << 1, READ_FILE = 1 << 2, READ_DIR = 1 << 3, TRUNCATE = 1 << 14, IOCTL = 1 << 15 };
enum { OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL, READING = EXECUTE | READ_FILE | READ_DIR };

static uint64_t handled;
static int ruleset = -1;

static void make_ruleset(void)
{
    static const int rights[] = {0, 13, 14, 15, 15, 16}; /* how many rights each version knows */
    enum { VERSIONS = sizeof rights / sizeof *rights, WITH_TCP = 4, WITH_SCOPES = 6 };
    long version = syscall(LANDLOCK_CREATE, NULL, 0, VERSION);
    if (version < 1)
        stop("landlock");
    handled = (1ULL << rights[version < VERSIONS ? version : VERSIONS - 1]) - 1;
    struct {
        uint64_t files, tcp, scopes;
    } wanted = {handled, version >= WITH_TCP ? 3 : 0, version >= WITH_SCOPES ? 3 : 0};
    ruleset = (int)syscall(LANDLOCK_CREATE, &wanted, sizeof wanted, 0);
    if (ruleset < 0)
        stop("landlock");
}

static void add_rule(const char *path, uint64_t rights)
{
    struct stat status;
    int at = open(path, O_PATH | O_CLOEXEC);
    if (at < 0 && (errno == ENOENT || errno == ENOTDIR))
        return;
    if (at < 0 || fstat(at, &status) != 0)
        stop(path);
    if (!S_ISDIR(status.st_mode))
        rights &= OF_FILES;
    struct {
        uint64_t rights;
        int32_t parent;
    } __attribute__((packed)) rule = {rights & handled, at};
    if (syscall(LANDLOCK_ADD, ruleset, BENEATH, &rule, 0) != 0)
        stop(path);
    close(at);
}

/* ---------------------------------------------------------------- limits, user, system calls */

static void limit(int which, const char *number)
{
    struct rlimit now;
    rlim_t most = strtoull(number, NULL, 10);
    getrlimit(which, &now);
    if (now.rlim_max != RLIM_INFINITY && now.rlim_max < most)
        most = now.rlim_max;
    if (setrlimit(which, &(struct rlimit){most, most}) != 0)
        stop("limit");
}

static void become(const char *user)
{
    uid_t id = (uid_t)strtoul(user, NULL, 10);
    if (setgroups(0, NULL) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0)
        stop("user");
    if (getuid() != id || getgid() != id) /* -1 means: do not change */
        errno = EINVAL, stop("user");
}

/* Root loses them too: without them it is like any other user who owns many files. The program cannot get them
 * back. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}};
    if (syscall(SYS_capset, &header, none) != 0)
        stop("capabilities");
}

static void refuse_calls(void)
{
#ifdef NO_FILTER
    errno = ENOSYS, stop("seccomp");
#else
    struct sock_fprog program = {sizeof confine_filter / sizeof *confine_filter, confine_filter};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        stop("seccomp");
#endif
}

/* A new program would keep our blocked and ignored signals. */
static void let_signals_in(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
}

/* ---------------------------------------------------------------- the first process of a namespace */

static pid_t program;

static void pass_on(int number)
{
    kill(program, number);
}

/* When this process ends, so do the program, the namespace and everything left in it. */
static void stay_as_init(void)
{
    signal(SIGPROF, pass_on);
    program = fork();
    if (program < 0)
        stop("fork");
    if (program == 0)
        return;
    for (int descriptor = 0; descriptor < 1024; descriptor++)
        if (descriptor != errors)
            close(descriptor);
    int status;
    pid_t ended;
    do
        ended = waitpid(-1, &status, 0);
    while (ended != program && (ended > 0 || errno == EINTR));
    dprintf(errors, "=%d", status);
    _exit(0);
}

static const char *value(const char *word, const char *name)
{
    size_t length = strlen(name);
    return strncmp(word, name, length) == 0 ? word + length : NULL;
}

int main(int count, char **words)
{
    const char *user = NULL, *files = NULL, *found;
    int refuses = 0, at = 1;
    limit(RLIMIT_CORE, "0");
    for (; at < count && strcmp(words[at], "--") != 0; at++) {
        const char *word = words[at];
        if ((found = value(word, "errors=")))
            fcntl(errors = atoi(found), F_SETFD, FD_CLOEXEC);
        else if (strcmp(word, "init") == 0)
            stay_as_init();
        else if ((found = value(word, "cpu=")))
            limit(RLIMIT_CPU, found);
        else if ((found = value(word, "space=")))
            limit(RLIMIT_AS, found);
        else if ((found = value(word, "file=")))
            limit(RLIMIT_FSIZE, found);
        else if ((found = value(word, "processes=")))
            limit(RLIMIT_NPROC, found);
        else if ((found = value(word, "files=")))
            files = found;
        else if ((found = value(word, "user=")))
            user = found;
        else if (strcmp(word, "landlock") == 0)
            make_ruleset();
        else if ((found = value(word, "read=")))
            add_rule(found, READING);
        else if ((found = value(word, "write=")))
            add_rule(found, ~0ULL);
        else if (strcmp(word, "seccomp") == 0)
            refuses = 1;
        else if (strcmp(word, "fixed") == 0)
            personality(ADDR_NO_RANDOMIZE);
        else
            errno = EINVAL, stop(word);
    }
    if (at + 1 >= count)
        errno = EINVAL, stop("no program");
    let_signals_in();
    if (user != NULL)
        become(user);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        stop("no new privileges");
    drop_capabilities();
    if (ruleset >= 0 && (syscall(LANDLOCK_RESTRICT, ruleset, 0) != 0 || close(ruleset) != 0))
        stop("landlock");
    if (refuses)
        refuse_calls();
    if (files != NULL)
        limit(RLIMIT_NOFILE, files);
    execvp(words[at + 1], words + at + 1);
    stop(words[at + 1]);
}
