"""The list of names: what a program may use of libc, what links to a stub, and what the linker complains of."""

from __future__ import annotations

from functools import cache

import pytest

from grader.runtime.native.compile import libc_names
from grader.runtime.native.compile.harness_objects import HarnessObjects, harness_objects
from grader.runtime.native.compile.libc_names import is_allowed
from grader.tests.support.programs import native

_STANDARD = """
    isalnum isalpha isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit tolower toupper
    imaxabs imaxdiv strtoimax strtoumax wcstoimax wcstoumax setlocale localeconv longjmp raise
    fclose fflush setbuf setvbuf fprintf fscanf printf scanf snprintf sprintf sscanf vfprintf vfscanf vprintf vscanf
    vsnprintf vsprintf vsscanf fgetc fgets fputc fputs getc getchar putc putchar puts ungetc fread fwrite fgetpos fseek
    fsetpos ftell rewind clearerr feof ferror perror
    atof atoi atol atoll strtod strtof strtold strtol strtoll strtoul strtoull rand srand aligned_alloc calloc free
    malloc realloc abort atexit at_quick_exit exit _Exit quick_exit bsearch qsort abs labs llabs div ldiv lldiv mblen
    mbtowc wctomb mbstowcs wcstombs
    memcpy memmove strcpy strncpy strcat strncat memcmp strcmp strcoll strncmp strxfrm memchr strchr strcspn strpbrk
    strrchr strspn strstr strtok memset strerror strlen
    call_once cnd_broadcast cnd_destroy cnd_init cnd_signal cnd_timedwait cnd_wait mtx_destroy mtx_init mtx_lock
    mtx_timedlock mtx_trylock mtx_unlock thrd_current thrd_equal thrd_exit thrd_yield tss_create tss_delete tss_get
    tss_set clock difftime mktime time timespec_get asctime ctime gmtime localtime strftime
    mbrtoc16 c16rtomb mbrtoc32 c32rtomb fwprintf fwscanf swprintf swscanf vfwprintf vfwscanf vswprintf vswscanf vwprintf
    vwscanf wprintf wscanf fgetwc fgetws fputwc fputws fwide getwc getwchar putwc putwchar ungetwc wcstod wcstof wcstold
    wcstol wcstoll wcstoul wcstoull wcscpy wcsncpy wmemcpy wmemmove wcscat wcsncat wcscmp wcscoll wcsncmp wcsxfrm
    wmemcmp wcschr wcscspn wcspbrk wcsrchr wcsspn wcsstr wcstok wmemchr wcslen wmemset wcsftime btowc wctob mbsinit
    mbrlen mbrtowc wcrtomb mbsrtowcs wcsrtombs iswalnum iswalpha iswblank iswcntrl iswdigit iswgraph iswlower iswprint
    iswpunct iswspace iswupper iswxdigit iswctype wctype towlower towupper towctrans wctrans
"""
"""The library of C11 but libm's part, and but files, processes, signals, the environment, and threads that run."""


@cache
def side() -> HarnessObjects:
    """The grader's side of the lab's programs."""
    return harness_objects(native().project)


def test_standard_c_can_be_used() -> None:
    """Whatever a textbook has."""
    assert libc_names.doubtful(_STANDARD.split()) == []


_DOORS = (
    "sigset __sigaction sigaction __libc_malloc __libc_calloc __libc_free __strdup __asprintf getcontext makecontext "
    "setcontext swapcontext _IO_file_overflow _IO_2_1_stdout_ _IO_list_all _IO_file_jumps __libc_start_main _start "
    "main on_exit __cxa_atexit __register_atfork _dl_find_object _rtld_global __curbrk _Unwind_ForcedUnwind "
    "__emutls_get_address __morestack __splitstack_makecontext __enable_execute_stack fork open64 __open_2 __read_chk"
)


@pytest.mark.parametrize("name", _DOORS.split())
def test_a_door_is_refused(name: str) -> None:
    """Also where it is an internal name of libc, or one that only gcc's support routines have."""
    assert libc_names.doubtful({name, "puts", "malloc"}) == [name]
    assert libc_names.refused({name}, side().libc).keys() == {name} & side().libc().keys()


@pytest.mark.parametrize(
    "name",
    [
        *("write", "printf", "__printf_chk", "__isoc99_sscanf", "__isoc23_strtol", "fputs_unlocked", "strtod_l"),
        *("localtime_r", "fseeko64", "__ctype_b_loc", "__popcountdi2", "__udivti3", "__mulxc3", "__fixunsdfti"),
        *("pthread_mutexattr_settype", "mtx_lock", "qsort", "raise", "environ", "stdout", "wcstoull", "__stpcpy"),
    ],
)
def test_what_headers_and_gcc_make_of_an_ordinary_program_is_allowed(name: str) -> None:
    """By one pattern where it is a variant of a name that is allowed."""
    assert is_allowed(name)
