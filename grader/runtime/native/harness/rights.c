/* The rights that a process in which the student's functions run gives up, beyond those that the launcher took away
 * (confine.c): files, other processes, other programs. The parent process, which forks it, still needs them, and
 * Valgrind needs its files. */
#define _GNU_SOURCE
#include "filter.h"
#include "inside.h"

#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UNDER_VALGRIND
/* Landlock's first version, without any rule: no file can be opened, made or removed. Older kernels ignore it. */
static void close_files(void)
{
    enum { LANDLOCK_CREATE = 444, LANDLOCK_RESTRICT = 446 };
    const uint64_t all = (1 << 13) - 1;
    long ruleset = syscall(LANDLOCK_CREATE, &all, sizeof all, 0);
    if (ruleset < 0)
        return;
    syscall(LANDLOCK_RESTRICT, ruleset, 0);
    close((int)ruleset);
}
#endif

#ifdef UNDER_VALGRIND
#define FILTER instrumented_filter
#else
#define FILTER natively_filter
#endif

/* The plan sets `refuse_calls` only where a trial showed that the kernel refuses system calls. */
void give_up_rights(int refuse_calls)
{
#ifndef UNDER_VALGRIND
    close_files();
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0}); /* open descriptors still work, but no new ones can be made */
#endif
    if (!refuse_calls)
        return;
    enum { LENGTH = sizeof FILTER / sizeof *FILTER };
    struct sock_filter filter[LENGTH];
    memcpy(filter, FILTER, sizeof filter);
    for (int i = 0; i < LENGTH; i++)
        if (filter[i].k == OWN_PROCESS)
            filter[i].k = (uint32_t)getpid();
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){LENGTH, filter}, 0, 0);
}
