"""Calls of libc that no memory manager needs: they link to functions that fail, and are reported as advice.

What an ordinary program may call stays libc's own: everything that prints (`write` too, which prints on descriptors 1
and 2), reading of stdin, strings, sorting, numbers, clocks, locales, locks, `raise`. The allocators and the calls that
end a program are replaced by the harness's (link.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from grader.core.verdict import Advice, SourceLine

__all__ = ["KIND", "advice", "called", "stub"]

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
    _Calls("processes", "ENOSYS", "posix_spawn posix_spawnp"),
    _Calls("threads", "ENOSYS", "pthread_create pthread_join pthread_detach pthread_cancel pthread_kill"),
    _Calls("threads", "2 /* thrd_error */", "thrd_create thrd_join thrd_detach"),
    _Calls("signals", "-1", "signal __sysv_signal bsd_signal ssignal sigaction sigprocmask sigsuspend sigwaitinfo"),
    _Calls("signals", "-1", "sigaltstack sigqueue siginterrupt sigpending sigtimedwait pause setitimer timer_create"),
    _Calls("signals", "-1", "timer_settime timerfd_create timerfd_settime signalfd"),
    _Calls("signals", "ENOSYS", "pthread_sigmask sigwait"),
    _Calls("signals", "0", "alarm ualarm"),
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
    _Calls("the system itself", "-1", "syscall"),
)
_CALLS = {name: calls for calls in _TABLE for name in calls.names.split()}

_VARIANT = re.compile(r"__(\w+?)(?:64)?(?:_chk|_2)|(\w+)64")
"""Other names under which the headers of glibc may call a function: `__read_chk`, `__open64_2`, `fopen64`."""


def called(undefined: Collection[str]) -> list[str]:
    """Return the unneeded calls among the names that an object needs from others, sorted."""
    return sorted(name for name in undefined if _plain(name) in _CALLS)


def stub(name: str, as_name: str) -> str:
    """Return the C function that replaces the called one; it ignores its arguments, whatever they are."""
    return f"long {as_name}(void) {{ errno = ENOSYS; return {_CALLS[_plain(name)].fails_with}; }}"


def advice(lines: dict[str, tuple[SourceLine, ...]]) -> Iterator[Advice]:
    """Yield one advice for each name that is called, with the lines of its calls."""
    for name, places in lines.items():
        calls = _CALLS[_plain(name)]
        others = f" (also in line {', '.join(str(place.line) for place in places[1:])})" if len(places) > 1 else ""
        message = (
            f"{_plain(name)}{others} is about {calls.about}; a memory manager needs none of that. "
            "While you are graded the call always fails"
        )
        yield Advice(kind=KIND, message=message, source=places)


def _plain(name: str) -> str:
    variant = _VARIANT.fullmatch(name)
    return name if name in _CALLS or variant is None else next(filter(None, variant.groups()))
