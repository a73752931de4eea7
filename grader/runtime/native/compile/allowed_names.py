"""The names of libc and of gcc's support routines that a submission may use.

It is what an ordinary program needs that keeps its data in memory: everything that prints, reading of stdin, strings,
sorting and searching, numbers, clocks, locales, locks, `raise`. Functions for files, processes, signals and so on are
not on the list, nor is anything that only libc's own parts should call, such as `__libc_malloc`: what a submission
uses of those fails (unneeded_calls.py). The harness replaces the allocators and the functions that end a program
(harness_objects.py). libm is not mentioned: the handout's command does not link with it.
"""

from __future__ import annotations

import re

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
"""The last paragraph has what glibc's headers and gcc make of a program, older headers too (`_IO_putc`)."""

_ALLOWED = frozenset(_WORDS.split())

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
    """Whether a submission may use the function or variable of that name, if libc or gcc has it."""
    return name in _ALLOWED or plain_name(name) in _ALLOWED or _FAMILIES.fullmatch(name) is not None


def plain_name(name: str) -> str:
    """Return the name in a program's text for the name that glibc's headers may make of it; other names as they are."""
    variant = _VARIANT.fullmatch(name)
    return name if variant is None or name in _ALLOWED else variant[1]
