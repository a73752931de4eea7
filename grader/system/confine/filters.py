"""Make filter_ARCHITECTURE.h with libseccomp's own compiler: run `scripts/filter` after a change here.

The filters are in the repository, so that every machine has them and no machine needs libseccomp.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The names of `uname -m`, with the kernel's numbers (linux/audit.h)."""

# System calls that neither a compiler nor Valgrind nor a memory manager needs.
_REFUSED = {
    "other processes": "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_open "
    "pidfd_getfd pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo sched_setaffinity sched_setattr sched_setparam "
    "sched_setscheduler setpriority ioprio_set migrate_pages move_pages",
    "the network": "socket socketpair connect bind listen accept accept4",
    "what outlives a process": "msgget semget shmget mq_open add_key keyctl request_key",
    "namespaces and mounts": "unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig "
    "fsmount fspick mount_setattr statmount listmount",
    "the machine": "acct bpf delete_module finit_module init_module iopl ioperm kexec_file_load kexec_load modify_ldt "
    "nfsservctl perf_event_open personality quotactl quotactl_fd reboot sethostname setdomainname settimeofday "
    "clock_settime clock_adjtime adjtimex swapoff swapon syslog vhangup lookup_dcookie",
    "doors around filters": "io_uring_setup io_uring_enter io_uring_register userfaultfd open_by_handle_at "
    "name_to_handle_at fanotify_init inotify_init inotify_init1 memfd_secret",
}
_SIGNALS = "kill tkill tgkill"
_OPENS = {"open": 1, "openat": 2}
"""The index of the argument that holds the flags."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OF_DESCRIPTORS = (0, 1, 2, 3, 1030)
"""Commands of fcntl: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC. Others affect all users of the file."""
_NEW_NAMESPACES = 0x7E020080
"""All CLONE_NEW... flags of clone."""

OWN_PROCESS = 0x5E1F_5E1F
"""A placeholder in the filter, which the harness replaces with its process id."""

_EQUAL, _NOT_EQUAL, _MASKED_EQUAL = 4, 1, 7
_EXEC, _FIXED = 4, 0x10
"""PROT_EXEC, MAP_FIXED."""

_NEEDED = {
    "the harness's report and what is printed": "writev write lseek",
    "the end": "exit exit_group rt_sigreturn restart_syscall",
    "memory": "brk munmap",
    "clocks": "clock_gettime clock_getres gettimeofday time times getrusage",
    "crashes, setjmp and raise": "rt_sigaction rt_sigprocmask",
    "locks": "futex sched_yield",
    "random numbers": "getrandom",
    "who it is": "getpid gettid getppid getuid geteuid getgid getegid",
}
"""All system calls that the harness, libc's functions on open descriptors and a correct program need. Natively, gate.c
decides which calls for memory are allowed."""

_INSTRUMENTS = {
    "its lock": "read",
    "memory, its own and the program's": "mmap mremap mprotect madvise",
    "signals": "rt_sigtimedwait rt_sigpending sigaltstack",
    "files of which it reads lines": "close fstat newfstatat stat lstat statx pread64 readlink readlinkat access "
    "faccessat getcwd",
    "limits and the machine": "getrlimit prlimit64 uname sysinfo arch_prctl set_tid_address set_robust_list poll ppoll",
}
"""All further system calls that Valgrind needs after the cases have begun, also to report an error that ends the
program. Calls that wait in the kernel, such as membarrier and sync, are not allowed."""


def _error(number: int) -> int:
    return 0x00050000 | number


_IN_A_ROW = 4
_ALLOW, _REFUSE = 0x7FFF0000, _error(errno.EPERM)


class _Compare(ctypes.Structure):
    """libseccomp's struct scmp_arg_cmp."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class _CallRule(NamedTuple):
    call: str
    action: int = _REFUSE
    compares: tuple[tuple[int, int, int, int], ...] = ()


class _CallFilter(NamedTuple):
    """A filter of system calls: its rules, and the action for calls without a rule."""

    otherwise: int
    rules: tuple[_CallRule, ...]


def _confined() -> Iterator[_CallRule]:
    """Yield the rules for every program that the launcher starts, compilers included."""
    for calls in _REFUSED.values():
        yield from map(_CallRule, calls.split())
    yield _CallRule("clone3", _error(errno.ENOSYS))  # a filter cannot see its flags; libc then uses clone
    for bit in range(32):
        if _NEW_NAMESPACES >> bit & 1:
            yield _CallRule("clone", compares=((0, _MASKED_EQUAL, 1 << bit, 1 << bit),))
    yield _CallRule("prlimit64", compares=((0, _NOT_EQUAL, 0, 0),))


def _instrumented() -> Iterator[_CallRule]:
    """Yield the rules for Valgrind running student code. They allow what both need, and reading of files."""
    for calls in (*_NEEDED.values(), *_INSTRUMENTS.values()):
        yield from (_CallRule(call, _ALLOW) for call in calls.split())
    yield from _own_signals()
    for call, flags in _OPENS.items():
        yield _CallRule(call, _ALLOW, ((flags, _MASKED_EQUAL, _WRITING, 0),))
    for command in _OF_DESCRIPTORS:
        yield _CallRule("fcntl", _ALLOW, ((1, _EQUAL, command, 0),))


def _natively() -> Iterator[_CallRule]:
    """Yield the rules for a process in which a student's functions run natively. They allow only what it needs."""
    for calls in _NEEDED.values():
        yield from (_CallRule(call, _ALLOW) for call in calls.split())
    yield from _own_signals()
    yield _CallRule("read", _ALLOW, ((0, _EQUAL, 0, 0),))  # only from stdin, which is empty
    yield _CallRule("mmap", _ALLOW, ((2, _MASKED_EQUAL, _EXEC, 0), (3, _MASKED_EQUAL, _FIXED, 0)))


def _own_signals() -> Iterator[_CallRule]:
    for call in _SIGNALS.split():
        yield _CallRule(call, _ALLOW, ((0, _EQUAL, OWN_PROCESS, 0),))


def header(architecture: str) -> str:
    """Return the text of filter_ARCHITECTURE.h. Raises `OSError` if libseccomp is not installed."""
    filters = {
        "confine_filter": _CallFilter(_ALLOW, tuple(_confined())),
        "natively_filter": _CallFilter(_REFUSE, tuple(_natively())),
        "instrumented_filter": _CallFilter(_REFUSE, tuple(_instrumented())),
    }
    tables = [_table(name, _compiled(wanted, ARCHITECTURES[architecture])) for name, wanted in filters.items()]
    comment = f"/* Made by scripts/filter with libseccomp {version()}; filters.py says what is refused, and why. */"
    return "\n".join([comment, *tables])


def version() -> str:
    """Return the version of the installed libseccomp."""

    class Version(ctypes.Structure):
        _fields_ = (("major", ctypes.c_uint), ("minor", ctypes.c_uint), ("micro", ctypes.c_uint))

    library = _library()
    library.seccomp_version.restype = ctypes.POINTER(Version)
    installed = library.seccomp_version().contents
    return f"{installed.major}.{installed.minor}.{installed.micro}"


def _table(name: str, program: bytes) -> str:
    cells = [f"{{0x{code:02x}, {yes}, {no}, 0x{k:08x}}}," for code, yes, no, k in struct.iter_unpack("<HBBI", program)]
    rows = [f"    {' '.join(cells[at : at + _IN_A_ROW])}\n" for at in range(0, len(cells), _IN_A_ROW)]
    return f"static struct sock_filter {name}[] __attribute__((unused)) = {{\n{''.join(rows)}}};\n"


def _compiled(wanted: _CallFilter, architecture: int) -> bytes:
    """Return the filter in the kernel's format: instructions of eight bytes."""
    library = _library()
    context = ctypes.c_void_p(library.seccomp_init(wanted.otherwise))
    _must(library.seccomp_arch_remove(context, 0), "arch_remove", allowed=(-errno.EEXIST,))
    _must(library.seccomp_arch_add(context, architecture), "arch_add", allowed=(-errno.EEXIST,))
    for rule in wanted.rules:
        name = rule.call.encode()
        if library.seccomp_syscall_resolve_name_arch(architecture, name) < 0:  # not there, or newer than libseccomp
            continue
        number = library.seccomp_syscall_resolve_name(name)  # of this machine: libseccomp translates it
        count = len(rule.compares)
        compares = (_Compare * count)(*(_Compare(*compare) for compare in rule.compares))
        _must(library.seccomp_rule_add_array(context, rule.action, number, count, compares), rule.call)
    reading, writing = os.pipe()
    try:
        _must(library.seccomp_export_bpf(context, writing), "export_bpf")
        return os.read(reading, 1 << 16)
    finally:
        os.close(reading)
        os.close(writing)
        library.seccomp_release(context)


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_arch_add.argtypes = library.seccomp_arch_remove.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(_Compare),
    ]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    library.seccomp_syscall_resolve_name_arch.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    return library


def _must(result: int, what: str, *, allowed: tuple[int, ...] = ()) -> None:
    if result != 0 and result not in allowed:
        raise OSError(-result, f"libseccomp: {what}: {os.strerror(-result)}")


def main() -> None:
    """Write the headers to the folder of this file."""
    for architecture in ARCHITECTURES:
        (Path(__file__).parent / f"filter_{architecture}.h").write_text(header(architecture), encoding="utf-8")


if __name__ == "__main__":
    main()
