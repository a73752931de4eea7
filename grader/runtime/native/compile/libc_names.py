"""The names of libc and of gcc's support routines: which a submission may use, and what happens to the others.

A submission may use what is needed by an ordinary program that keeps its data in memory: all that prints, reading of
stdin, strings, sorting and searching, numbers, clocks, locales, locks, `raise`. Functions for files, processes, signals
and so on are not on the list, nor is anything that only libc's own parts should call, such as `__libc_malloc`. The
harness replaces the allocators and the functions that end a program (`RENAMED`). libm is not mentioned: the handout's
command does not link with it.

Any other name that libc defines is linked to a stub and reported as advice. A function becomes one that does nothing
and fails; a variable becomes one that holds only zeros. A file that is opened to be written is a stream that drops what
is written, because many programs write a log and do not check whether it could be opened. A name that libc does not
define is left to the linker, which complains about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from grader.core.verdict import Advice, SourceLine

_WORDS = """
    printf fprintf sprintf snprintf dprintf vprintf vfprintf vsprintf vsnprintf vdprintf
    puts fputs putchar putc fputc putw fwrite write perror psignal psiginfo
    warn warnx vwarn vwarnx err errx verr verrx error error_at_line
    scanf fscanf sscanf vscanf vfscanf vsscanf getchar getc fgetc gets fgets getw fread ungetc
    fflush fclose feof ferror clearerr fileno isatty setbuf setvbuf setbuffer setlinebuf
    fseek fseeko ftell ftello rewind fgetpos fsetpos flockfile ftrylockfile funlockfile
    open_memstream open_wmemstream fopencookie stdin stdout stderr
    wprintf fwprintf swprintf vwprintf vfwprintf vswprintf wscanf fwscanf swscanf vwscanf vfwscanf vswscanf
    getwchar getwc fgetwc fgetws putwchar putwc fputwc fputws ungetwc fwide

    memcpy memmove memset memcmp memchr memrchr rawmemchr memmem memccpy mempcpy memfrob memset_explicit
    bcmp bcopy bzero explicit_bzero swab ffs ffsl ffsll index rindex basename dirname
    strlen strnlen strcpy strncpy stpcpy stpncpy strlcpy strcat strncat strlcat strcmp strncmp strcasecmp strncasecmp
    strcoll strxfrm strverscmp strchr strrchr strchrnul strstr strcasestr strpbrk strspn strcspn strtok strsep strfry
    strerror strerrorname_np strerrordesc_np strsignal sigabbrev_np sigdescr_np
    fnmatch regcomp regexec regerror regfree
    isalnum isalpha isascii isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit
    tolower toupper toascii _tolower _toupper
    wcslen wcsnlen wcscpy wcsncpy wcpcpy wcpncpy wcslcpy wcscat wcsncat wcslcat wcscmp wcsncmp wcscasecmp wcsncasecmp
    wcscoll wcsxfrm wcschr wcsrchr wcschrnul wcsstr wcswcs wcspbrk wcsspn wcscspn wcstok wcswidth wcwidth
    wmemcpy wmemmove wmemset wmemcmp wmemchr wmempcpy
    iswalnum iswalpha iswblank iswcntrl iswctype iswdigit iswgraph iswlower iswprint iswpunct iswspace iswupper
    iswxdigit towlower towupper towctrans wctype wctrans
    btowc wctob mblen mbrlen mbsinit mbtowc mbrtowc mbstowcs mbsrtowcs mbsnrtowcs wctomb wcrtomb wcstombs wcsrtombs
    wcsnrtombs mbrtoc8 mbrtoc16 mbrtoc32 c8rtomb c16rtomb c32rtomb

    abs labs llabs imaxabs div ldiv lldiv imaxdiv atoi atol atoll atof a64l l64a
    strtol strtoll strtoul strtoull strtoq strtouq strtoimax strtoumax strtod strtof strtold strfromd strfromf strfroml
    wcstol wcstoll wcstoul wcstoull wcstoq wcstouq wcstoimax wcstoumax wcstod wcstof wcstold
    ecvt fcvt gcvt qecvt qfcvt qgcvt strfmon rpmatch
    rand srand random srandom initstate setstate drand48 erand48 lrand48 nrand48 mrand48 jrand48 srand48 seed48 lcong48
    arc4random arc4random_buf arc4random_uniform getrandom getentropy
    frexp frexpf frexpl ldexp ldexpf ldexpl modf modff modfl scalbn scalbnf scalbnl copysign copysignf copysignl
    finite finitef finitel isinf isinff isinfl isnan isnanf isnanl __signbit __signbitf __signbitl
    qsort bsearch lfind lsearch insque remque tsearch tfind tdelete tdestroy twalk hcreate hsearch hdestroy
    getopt getopt_long getopt_long_only getsubopt optarg optind opterr optopt
    atexit at_quick_exit raise backtrace backtrace_symbols backtrace_symbols_fd
    mallinfo mallinfo2 malloc_info malloc_stats mallopt

    time clock clock_gettime clock_getres timespec_get timespec_getres gettimeofday times getrusage
    difftime mktime timegm timelocal gmtime localtime asctime ctime strftime strptime wcsftime dysize tzset
    timezone daylight tzname
    setlocale localeconv newlocale duplocale uselocale freelocale nl_langinfo
    gettext dgettext dcgettext ngettext dngettext dcngettext textdomain bindtextdomain bind_textdomain_codeset
    call_once thrd_current thrd_equal thrd_exit thrd_yield sched_yield sem_init sem_destroy sem_wait sem_trywait
    sem_timedwait sem_clockwait sem_post sem_getvalue
    pthread_once pthread_self pthread_equal pthread_exit pthread_key_create pthread_key_delete pthread_getspecific
    pthread_setspecific pthread_setcancelstate pthread_setcanceltype pthread_testcancel
    getpid getppid gettid getuid geteuid getgid getegid sysconf getpagesize gnu_get_libc_version
    program_invocation_name program_invocation_short_name errno environ _environ

    __errno_location __assert __assert_fail __assert_perror_fail __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc
    __ctype_get_mb_cur_max __overflow __uflow __woverflow __wuflow _IO_putc _IO_getc
    __stack_chk_fail __stack_chk_guard __tls_get_addr __cpu_model __cpu_features2 __cpu_indicator_init
"""
"""Allowed names. Those in the last paragraph are used by glibc's headers, also older ones (`_IO_putc`), and by gcc."""

_ALLOWED = frozenset(_WORDS.split())

RENAMED = (
    *("malloc", "calloc", "realloc", "reallocarray", "free", "malloc_usable_size"),
    *("aligned_alloc", "posix_memalign", "memalign", "valloc", "pvalloc"),
    *("exit", "_exit", "_Exit", "quick_exit", "abort"),
    *("strdup", "strndup", "wcsdup", "asprintf", "vasprintf", "__asprintf_chk", "__vasprintf_chk"),
    *("getline", "getdelim", "__getdelim", "fclose", "fileno"),
    *("setjmp", "_setjmp", "__sigsetjmp", "longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"),
)
"""Functions of libc that the harness replaces by its own."""

_MODE = "([qhsdt]i|[hsdxtb]f|[hsdxt]c|[sdt]d)"
"""A type of numbers, in the names of libgcc's routines, such as `di` in `__popcountdi2`."""

_FAMILIES = re.compile(
    r"(mtx|cnd|tss|pthread_(mutex|cond|rwlock|barrier)(attr)?|pthread_spin)_[a-z_]+"
    rf"|__(bid_)?([a-z]+?{_MODE}{{1,2}}[2-4]|(extend|trunc|fix(uns)?|float(uns?)?){_MODE}{{2}})"
    r"|__aarch64_(cas|swp|ldadd|ldclr|ldeor|ldset)\d+_[a-z_]+"
)
"""Locks, and libgcc's routines for arithmetic and for atomic operations."""

_VARIANT = re.compile(r"(?:__(?:isoc\d\d_|xpg_)?)?(\w+?)(?:64)?(?:_unlocked)?(?:_l|_r|_internal)?(?:_chk|_2)?")
"""Other names under which the headers of glibc may call a function: `__read_chk`, `__open64_2`, `__isoc99_sscanf`."""


def is_allowed(name: str) -> bool:
    """Return whether a submission may use the function or variable of that name, if libc or gcc has it."""
    return name in _ALLOWED or plain_name(name) in _ALLOWED or _FAMILIES.fullmatch(name) is not None


def plain_name(name: str) -> str:
    """Return the name in a program's text that glibc's headers may have replaced by `name`; else `name` itself."""
    variant = _VARIANT.fullmatch(name)
    return name if variant is None or name in _ALLOWED else variant[1]


_TABLE = {
    ("files", "0"): "fopen freopen fdopen fmemopen tmpfile tmpnam opendir fdopendir readdir getcwd realpath",
    ("files", "-1"): "open openat creat close read pread readv writev pwrite pwritev lseek dup dup2 dup3 pipe "
    "pipe2 fcntl ioctl flock lockf fsync fdatasync ftruncate truncate fallocate sendfile splice "
    "stat fstat lstat fstatat __xstat __fxstat __lxstat access faccessat chmod fchmod chown "
    "remove rename renameat unlink unlinkat link linkat symlink readlink mkdir rmdir mkstemp "
    "mkfifo mknod chdir fchdir chroot mount umount closedir memfd_create inotify_init eventfd",
    ("processes", "0"): "popen",
    ("processes", "-1"): "fork vfork _Fork clone system execl execle execlp execv execve execvp execvpe fexecve "
    "wait waitpid waitid wait3 wait4 kill killpg setsid setpgid setpgrp daemon pclose "
    "ptrace prctl unshare setns nice setpriority setrlimit prlimit setuid setgid seteuid "
    "process_vm_readv process_vm_writev sched_setaffinity sched_setscheduler reboot "
    "getrlimit getpriority sched_getaffinity",
    ("processes", "ENOSYS"): "posix_spawn posix_spawnp pthread_atfork",
    ("threads", "ENOSYS"): "pthread_create pthread_join pthread_detach pthread_cancel pthread_kill",
    ("threads", "2 /* thrd_error */"): "thrd_create thrd_join thrd_detach",
    ("signals", "-1"): "signal sysv_signal bsd_signal ssignal sigset sigaction sigprocmask sigsuspend pause "
    "sigwaitinfo sigtimedwait sigaltstack sigqueue siginterrupt sigpending sigignore sighold "
    "sigrelse sigpause sigblock sigsetmask sigstack sigemptyset sigfillset sigaddset sigdelset "
    "sigismember setitimer timer_create timer_settime timerfd_create timerfd_settime signalfd",
    ("signals", "ENOSYS"): "pthread_sigmask sigwait",
    ("signals", "0"): "alarm ualarm",
    ("switching stacks", "-1"): "getcontext setcontext swapcontext",
    ("switching stacks", "0"): "makecontext",
    ("waiting", "-1"): "usleep nanosleep",
    ("waiting", "0"): "sleep thrd_sleep",
    ("waiting", "ENOSYS"): "clock_nanosleep",
    ("pages of the system", "-1"): "mmap munmap mremap mprotect msync madvise mlock munlock mlockall brk sbrk "
    "shm_open shm_unlink shmget shmat shmdt shmctl mq_open semget semop msgget",
    ("libraries", "0"): "dlopen dlmopen dlsym dlvsym dladdr dl_iterate_phdr",
    ("libraries", "-1"): "dlclose dlinfo",
    ("sockets", "-1"): "socket socketpair bind connect listen accept accept4 send sendto sendmsg recv recvfrom "
    "recvmsg shutdown setsockopt getsockopt getaddrinfo select pselect poll ppoll "
    "epoll_create epoll_create1 epoll_ctl epoll_wait",
    ("sockets", "0"): "gethostbyname",
    ("the environment", "0"): "getenv secure_getenv",
    ("the environment", "-1"): "setenv unsetenv putenv clearenv",
    ("the system itself", "-1"): "syscall uname gethostname sysinfo statfs fstatfs statvfs fstatvfs",
    ("the end of the program", "-1"): "on_exit",
    ("the program that calls yours", "0"): "main _start",
}
"""Functions of libc: their subject, the C expression that they return to fail, and their names. They also set errno to
ENOSYS."""
_CALLS = {name: calls for calls, names in _TABLE.items() for name in names.split()}

_INTERNAL = re.compile(r"(?:__libc_|__|_IO_)(\w+)")
"""Names by which the parts of libc call each other, such as `__libc_malloc`."""

_NOT_KNOWN = "0"
"""The return value of functions that are not in the table. Nearly all functions that return a pointer fail with NULL,
and a caller that checks for NULL would follow -1. Likely functions that fail with -1 are in the table."""


CALLED_BY_STUBS = ("opened", "refused")
"""Functions in harness/calls.c that stubs call."""

_OPENING = {
    "fopen": ("const char *path, const char *mode", "mode, 0"),
    "freopen": ("const char *path, const char *mode, void *file", 'path ? mode : "+", file'),
    "tmpfile": ("void", '"w+", 0'),
}
"""Functions that open a file: their parameters, and the mode and the stream that `opened` gets."""


def doubtful(undefined: Collection[str]) -> list[str]:
    """Return the names that are not allowed, among those that an object needs from others, sorted."""
    return sorted(name for name in undefined if name not in RENAMED and not is_allowed(name))


def refused(undefined: Collection[str], libc: Callable[[], Mapping[str, str]]) -> dict[str, str]:
    """Return the entries of `libc` (`HarnessObjects.libc`) for the names that are not allowed."""
    names = doubtful(undefined)
    known = libc() if names else {}
    return {name: known[name] for name in names if name in known}


def declarations(prefix: str) -> tuple[str, ...]:
    """Return the C lines that precede stubs. The names of the harness's functions begin with `prefix`."""
    opened = f"void *{prefix}opened(const char *, void *, const char *, void *);"
    return "#include <errno.h>", opened, f"void {prefix}refused(const char *, void *);"


def stub(declaration: str, name: str, prefix: str) -> str:
    """Return the C definition that replaces a function or variable; most replaced functions ignore their arguments."""
    if declaration:
        return f"{declaration.format(prefix + name)};"
    plain, call = _plain(name), f'"{name}", __builtin_return_address(0)'
    if plain in _OPENING:
        parameters, arguments = _OPENING[plain]
        return f"void *{prefix}{name}({parameters}) {{ return {prefix}opened({arguments}, {call}); }}"
    _, fails_with = _CALLS.get(plain, ("", _NOT_KNOWN))
    return f"long {prefix}{name}(void) {{ {prefix}refused({call}); errno = ENOSYS; return {fails_with}; }}"


def advice(lines: Mapping[str, tuple[SourceLine, ...]], declarations: Mapping[str, str]) -> Iterator[Advice]:
    """Yield one advice for each name that is used, with the lines of its uses."""
    for name, places in lines.items():
        others = f" (also in line {', '.join(str(place.line) for place in places[1:])})" if len(places) > 1 else ""
        called, reason = _reason(name)
        fate = f"{_NO_FILE}, and what is written to one is dropped" if called in _OPENING else "the call always fails"
        instead = "it holds only zeros" if declarations[name] else fate
        message = f"{called}{others} {reason}. While you are graded {instead}"
        yield Advice(kind="needless-call", message=message, source=places)


def refusal(name: str, line: SourceLine | None) -> str:
    """Return the sentence that says that a function, called in this line, failed."""
    called, reason = _reason(name)
    at = f", called at {line}," if line is not None else ""
    return f"{called}{at} fails while you are graded: {_NO_FILE if called in _OPENING else f'it {reason}'}."


_NO_FILE = "no file is there to be read"


def _reason(name: str) -> tuple[str, str]:
    """Return the name in a program's text, and why it is refused."""
    plain = _plain(name)
    if plain in _CALLS:
        return plain, f"is about {_CALLS[plain][0]}; a memory manager needs none of that"
    if plain != name:
        return name, f"is a name for the inner parts of libc; call {plain} instead"
    return name, "is not part of standard C; a memory manager needs none of that"


def _plain(name: str) -> str:
    """Return the function to call instead of a libc symbol, such as `memcpy` for `__memcpy_chk`; else `name`."""
    internal = _INTERNAL.fullmatch(name)
    names = (name, plain_name(name), *([internal[1]] if internal else []))
    return next((plain for plain in names if plain in _CALLS or plain in RENAMED or is_allowed(plain)), name)
