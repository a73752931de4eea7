"""What a submission uses of libc and may not (allowed_names.py): it links to stubs, and is reported as advice.

A function becomes one that does nothing and fails; a variable becomes one that holds only zeros. A name that libc does
not define is left to the linker, which complains about it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from grader.core.verdict import Advice, SourceLine
from grader.runtime.native.compile.allowed_names import is_allowed, plain_name
from grader.runtime.native.compile.harness_objects import RENAMED, HarnessObjects

KIND = "needless-call"
"""The kind of the advice."""


@dataclass(frozen=True, slots=True)
class _Calls:
    """Functions that fail in the same way."""

    about: str
    fails_with: str
    """The C expression that they return; they also set errno to ENOSYS."""
    names: str


_TABLE = (
    _Calls("files", "0", "fopen freopen fdopen fmemopen tmpfile tmpnam opendir fdopendir readdir getcwd realpath"),
    _Calls("files", "-1", "open openat creat close read pread readv writev pwrite pwritev lseek dup dup2 dup3 pipe"),
    _Calls("files", "-1", "pipe2 fcntl ioctl flock lockf fsync fdatasync ftruncate truncate fallocate sendfile splice"),
    _Calls("files", "-1", "stat fstat lstat fstatat __xstat __fxstat __lxstat access faccessat chmod fchmod chown"),
    _Calls("files", "-1", "remove rename renameat unlink unlinkat link linkat symlink readlink mkdir rmdir mkstemp"),
    _Calls("files", "-1", "mkfifo mknod chdir fchdir chroot mount umount closedir memfd_create inotify_init eventfd"),
    _Calls("processes", "0", "popen"),
    _Calls("processes", "-1", "fork vfork _Fork clone system execl execle execlp execv execve execvp execvpe fexecve"),
    _Calls("processes", "-1", "wait waitpid waitid wait3 wait4 kill killpg setsid setpgid setpgrp daemon pclose"),
    _Calls("processes", "-1", "ptrace prctl unshare setns nice setpriority setrlimit prlimit setuid setgid seteuid"),
    _Calls("processes", "-1", "process_vm_readv process_vm_writev sched_setaffinity sched_setscheduler reboot"),
    _Calls("processes", "-1", "getrlimit getpriority sched_getaffinity"),
    _Calls("processes", "ENOSYS", "posix_spawn posix_spawnp pthread_atfork"),
    _Calls("threads", "ENOSYS", "pthread_create pthread_join pthread_detach pthread_cancel pthread_kill"),
    _Calls("threads", "2 /* thrd_error */", "thrd_create thrd_join thrd_detach"),
    _Calls("signals", "-1", "signal sysv_signal bsd_signal ssignal sigset sigaction sigprocmask sigsuspend pause"),
    _Calls("signals", "-1", "sigwaitinfo sigtimedwait sigaltstack sigqueue siginterrupt sigpending sigignore sighold"),
    _Calls(
        "signals", "-1", "sigrelse sigpause sigblock sigsetmask sigstack sigemptyset sigfillset sigaddset sigdelset"
    ),
    _Calls("signals", "-1", "sigismember setitimer timer_create timer_settime timerfd_create timerfd_settime signalfd"),
    _Calls("signals", "ENOSYS", "pthread_sigmask sigwait"),
    _Calls("signals", "0", "alarm ualarm"),
    _Calls("switching stacks", "-1", "getcontext setcontext swapcontext"),
    _Calls("switching stacks", "0", "makecontext"),
    _Calls("waiting", "-1", "usleep nanosleep"),
    _Calls("waiting", "0", "sleep thrd_sleep"),
    _Calls("waiting", "ENOSYS", "clock_nanosleep"),
    _Calls("pages of the system", "-1", "mmap munmap mremap mprotect msync madvise mlock munlock mlockall brk sbrk"),
    _Calls("pages of the system", "-1", "shm_open shm_unlink shmget shmat shmdt shmctl mq_open semget semop msgget"),
    _Calls("libraries", "0", "dlopen dlmopen dlsym dlvsym dladdr dl_iterate_phdr"),
    _Calls("libraries", "-1", "dlclose dlinfo"),
    _Calls("sockets", "-1", "socket socketpair bind connect listen accept accept4 send sendto sendmsg recv recvfrom"),
    _Calls("sockets", "-1", "recvmsg shutdown setsockopt getsockopt getaddrinfo select pselect poll ppoll"),
    _Calls("sockets", "-1", "epoll_create epoll_create1 epoll_ctl epoll_wait"),
    _Calls("sockets", "0", "gethostbyname"),
    _Calls("the environment", "0", "getenv secure_getenv"),
    _Calls("the environment", "-1", "setenv unsetenv putenv clearenv"),
    _Calls("the system itself", "-1", "syscall uname gethostname sysinfo statfs fstatfs statvfs fstatvfs"),
    _Calls("the end of the program", "-1", "on_exit"),
    _Calls("the program that calls yours", "0", "main _start"),
)
_CALLS = {name: calls for calls in _TABLE for name in calls.names.split()}

_INTERNAL = re.compile(r"(?:__libc_|__|_IO_)(\w+)")
"""Names by which the parts of libc call each other, such as `__libc_malloc`."""

_NOT_KNOWN = "0"
"""What other functions return. Of those that return a pointer nearly all fail with NULL, and a caller that checks for
NULL would follow -1; -1 for an error is in the table, for all calls that are likely."""


def doubtful(undefined: Collection[str]) -> list[str]:
    """Return the names that are not allowed, among those that an object needs from others, sorted."""
    return sorted(name for name in undefined if name not in RENAMED and not is_allowed(name))


def refused(undefined: Collection[str], side: HarnessObjects) -> dict[str, str]:
    """Return what libc defines of the names that are not allowed, as `HarnessObjects.libc` has them."""
    names = doubtful(undefined)
    known = side.libc() if names else {}
    return {name: known[name] for name in names if name in known}


def stub(declaration: str, name: str, as_name: str) -> str:
    """Return the C definition that replaces it; a function ignores its arguments, whatever they are."""
    if declaration:
        return f"{declaration.format(as_name)};"
    calls = _CALLS.get(_plain(name))
    return f"long {as_name}(void) {{ errno = ENOSYS; return {calls.fails_with if calls else _NOT_KNOWN}; }}"


def advice(lines: Mapping[str, tuple[SourceLine, ...]], declarations: Mapping[str, str]) -> Iterator[Advice]:
    """Yield one advice for each name that is used, with the lines of its uses."""
    for name, places in lines.items():
        others = f" (also in line {', '.join(str(place.line) for place in places[1:])})" if len(places) > 1 else ""
        instead = "it holds only zeros" if declarations[name] else "the call always fails"
        message = f"{_reason(name, others)}. While you are graded {instead}"
        yield Advice(kind=KIND, message=message, source=places)


def _reason(name: str, others: str) -> str:
    plain = _plain(name)
    if plain in _CALLS:
        return f"{plain}{others} is about {_CALLS[plain].about}; a memory manager needs none of that"
    if plain != name:
        return f"{name}{others} is a name for the inner parts of libc; call {plain} instead"
    return f"{name}{others} is not part of standard C; a memory manager needs none of that"


def _plain(name: str) -> str:
    """Return the name that a program should use for it, or by which the table has it."""
    internal = _INTERNAL.fullmatch(name)
    names = (name, plain_name(name), *([internal[1]] if internal else []))
    return next((plain for plain in names if plain in _CALLS or plain in RENAMED or is_allowed(plain)), name)
