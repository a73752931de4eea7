"""Make a program of the student's object, the driver and the harness, keeping their names and memory apart."""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path

from grader import process, tools
from grader.build import needless, scan
from grader.build.project import FLAGS, CProject
from grader.build.symbols import Symbols
from grader.errors import DriverError
from grader.kept import kept
from grader.process import Completed, Patience
from grader.sandbox import LINK_LIMITS, Workspace

__all__ = ["Linked", "link"]

_RENAMED = (
    *("malloc", "calloc", "realloc", "reallocarray", "free", "malloc_usable_size"),
    *("aligned_alloc", "posix_memalign", "memalign", "valloc", "pvalloc"),
    *("exit", "_exit", "_Exit", "quick_exit", "abort"),
    *("strdup", "strndup", "asprintf", "vasprintf", "__asprintf_chk", "__vasprintf_chk"),
    *("getline", "getdelim", "__getdelim"),
    *("setjmp", "_setjmp", "__sigsetjmp", "longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"),
)
"""What the harness has in the place of libc's."""

_TOLD = ("memset", "memcpy", "memmove")
"""What the harness has in the place of libc's where a build tells of stores."""

_CALLED_BY_GCC = ("__ubsan_handle_*", "__tsan_*", "__sanitizer_cov_*")
"""Functions of ours that a build calls which tells of undefined behaviour or of lines."""

_MARKS = ("first_tdata", "first_tbss")
"""Names of marker.c, which stands before the student's object so that the harness knows where its variables begin."""

_FILTERS = Path(__file__).parents[1] / "confine"

_DATA = {"SHT_PROGBITS": "student_data", "SHT_NOBITS": "student_bss"}
"""Writable data, whatever its section is called, gets these, which the harness restores before every case."""

_CODE = "student_text"
"""What can be run gets this: system calls from there are refused (drivers/gate.c). Natively: Valgrind knows .text."""

_CODE_BY_NAME = (".text", ".stub", ".init", ".fini", ".plt", ".iplt", ".gnu.linkonce.t")
"""What linkers lay beside code where it is read-only, whether or not its flags say that it is code."""

_WRITE, _ALLOC, _EXECUTE, _TLS = 0x001, 0x002, 0x004, 0x400  # SHF_*

_FREESTANDING = (
    *("-fno-builtin", "-fno-stack-protector", "-fno-tree-loop-distribute-patterns"),
    *("-U_FORTIFY_SOURCE", "-ffunction-sections"),
)


def _renames(data: bytes) -> tuple[list[str], list[str]]:
    """objcopy's options for sections of an object: with writable data that is not thread-local, and with code."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - slow to import

    variables: dict[str, str] = {}
    code: dict[str, str] = {}
    for section in ELFFile(io.BytesIO(data)).iter_sections():
        flags = section["sh_flags"] & (_WRITE | _ALLOC | _EXECUTE | _TLS)
        beside_code = flags & ~_EXECUTE == _ALLOC and section.name.startswith(_CODE_BY_NAME)
        if flags & _ALLOC and (flags & _EXECUTE or beside_code):
            code[section.name] = _CODE
        elif flags == _WRITE | _ALLOC and section["sh_type"] in _DATA:
            variables[section.name] = _DATA[section["sh_type"]]
    rename = "--rename-section={}={}".format
    return list(starmap(rename, variables.items())), list(starmap(rename, code.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The two programs of one submission, or what the linker has against them."""

    done: Completed
    """How the last of its steps ended."""
    step: str = ""
    """The tool that failed; "" when none did."""
    unresolved: bool = False
    """Would it be linked, were it not for functions that no file defines?"""
    native: bytes = b""
    checked: bytes = b""
    """The one that Valgrind runs."""
    prefix: str = ""
    """With which the names of our own functions begin in it."""
    cpu_seconds: float = 0.0


def link(
    project: CProject,
    work: Workspace,
    data: bytes,
    symbols: Symbols,
    *,
    missing: Sequence[str],
    tells_stores: bool = False,
) -> Linked:
    """Hide everything but the demanded functions, rename what the harness replaces, link with the driver.

    `data` is the student's object. A step that fails comes back: whose fault that is the caller has to find out. With
    `tells_stores` copies by libc's functions are told of like other stores.
    """
    ours = _ours(project)
    for name, content in {**ours.objects, project.object_name: data}.items():
        work.add(name, content)
    failing = needless.called(symbols.undefined)
    replaced = (*_RENAMED, *_TOLD) if tells_stores else _RENAMED
    renamed = [f"{name} {ours.prefix}{name}" for name in (*symbols.undefined.intersection(replaced), *failing)]
    stubborn = symbols.stubborn - project.functions.keys()
    renamed += [f"{name} s{secrets.token_hex(8)}" for name in stubborn if name.isidentifier()]
    _add_lines(work, "theirs.sym", renamed)
    _add_lines(work, "api.sym", project.functions)
    variables, code = _renames(data)
    hide = ("--redefine-syms=theirs.sym", "--keep-global-symbols=api.sym")
    steps = [
        ["objcopy", *hide, *variables, project.object_name, "student.o"],
        ["objcopy", *code, "student.o", "gated.o"],
    ]
    others: list[str] = []
    if missing or failing:
        stubs = [needless.stub(name, f"{ours.prefix}{name}") for name in failing]
        stubs += [project.functions[name] for name in missing]
        work.add(project.header.name, project.header.read_bytes())
        _add_lines(work, "stubs.c", ("#include <errno.h>", f'#include "{project.header.name}"', *stubs))
        steps.append(["gcc", "-std=c11", "-O2", "-c", "stubs.c", "-o", "stubs.o"])
        others.append("stubs.o")
    spent = 0.0
    for command in steps:
        done = work.run(command, limits=LINK_LIMITS)
        spent += done.cpu_seconds
        if not done.succeeded:
            return Linked(done=done, step=command[0], cpu_seconds=spent)
    lanes = (_freestanding, _dynamic) if "freestanding.o" in ours.objects else (_dynamic,)
    objects = ["marker.o", "gated.o", *others, "native.o"]
    made = _first_that_links(work, (_static, _dynamic), "program", objects)
    native, spent = work.read("program"), spent + made.cpu_seconds
    checked = b""
    if made.succeeded and scan.is_whole(native):
        objects = ["marker.o", "student.o", *others, "valgrind.o"]
        made = _first_that_links(work, lanes, "checked", objects)
        checked, spent = work.read("checked"), spent + made.cpu_seconds
    if not made.succeeded or not scan.is_whole(checked):
        blind = work.run([*_dynamic("blind", objects), _IGNORE], limits=LINK_LIMITS)
        spent += blind.cpu_seconds
        return Linked(done=made, step="ld", unresolved=blind.succeeded and not made.succeeded, cpu_seconds=spent)
    return Linked(done=made, native=native, checked=checked, prefix=ours.prefix, cpu_seconds=spent)


_IGNORE = "-Wl,--unresolved-symbols=ignore-all"
"""Only by this ld tells, without a text to read, that undefined references are all that is wrong."""

_Lane = Callable[[str, Sequence[str]], list[str]]
"""A way to link objects to a program of that name."""


def _first_that_links(work: Workspace, lanes: Sequence[_Lane], target: str, objects: Sequence[str]) -> Completed:
    done = work.run(lanes[0](target, objects), limits=LINK_LIMITS)
    if done.succeeded or len(lanes) == 1:
        return done
    again = _first_that_links(work, lanes[1:], target, objects)
    return replace(again, cpu_seconds=done.cpu_seconds + again.cpu_seconds)


# Nothing but code can be run, neither the stack nor constants: what could be run is searched (scan.py).


def _dynamic(target: str, objects: Sequence[str]) -> list[str]:
    return ["gcc", "-no-pie", "-Wl,-z,noexecstack,-z,separate-code", "-o", target, *objects]


def _static(target: str, objects: Sequence[str]) -> list[str]:
    """Forking a static program costs half as much, and gold links libc in half the time."""
    code_apart = "-Wl,-z,noexecstack,--rosegment"
    return ["gcc", "-no-pie", "-static", "-fuse-ld=gold", code_apart, "-o", target, *objects]


def _freestanding(target: str, objects: Sequence[str]) -> list[str]:
    """See freestanding.c. It fails where the student's object needs more than that has."""
    code_apart = ("-znoexecstack", "-zseparate-code")
    return ["ld", "-static", "--gc-sections", *code_apart, "-o", target, *objects, "freestanding.o"]


def _add_lines(work: Workspace, name: str, lines: Iterable[str]) -> None:
    work.add(name, "".join(f"{line}\n" for line in lines).encode())


@dataclass(frozen=True, slots=True)
class _Ours:
    """Our side of a program."""

    prefix: str
    """What the names of the functions that replace libc's begin with: nothing in a student's file can name them."""
    objects: dict[str, bytes]


def _ours(project: CProject) -> _Ours:
    """The driver and the harness, compiled once for this compiler and kept between runs."""
    folder = project.harness.parent
    folders = (folder, project.driver.parent, _FILTERS)
    sources = [source for one in folders for source in sorted(one.glob("*.[ch]"))]
    parts = [source.read_bytes() for source in sources] + [tools.version("gcc").encode(), b"6", _has_valgrind_header()]
    made = kept(parts, partial(_make, project))
    objects = {path.name: path.read_bytes() for path in made.glob("*.o")}
    return _Ours((made / "prefix").read_text(), objects)


def _make(project: CProject, made: Path) -> None:
    """Compile our side into the folder `made`."""
    folder = project.harness.parent
    ours = {
        source.stem: source for source in sorted(folder.glob("*.c")) if source.stem not in ("freestanding", "marker")
    }
    lanes = {"native": (), "valgrind": ("-DUNDER_VALGRIND", "-ffunction-sections")}
    commands = {"driver.o": ["gcc", *FLAGS, "-c", str(project.driver)]}
    for lane, options in lanes.items():
        parts = {f"{lane}-{name}.o": ["gcc", *FLAGS, *options, "-c", str(source)] for name, source in ours.items()}
        commands |= {**parts, f"{lane}.o": ["ld", "-r", "driver.o", *parts]}
    commands["marker.o"] = ["gcc", *FLAGS, "-c", str(folder / "marker.c")]
    if os.uname().machine == "x86_64":
        commands["freestanding.o"] = ["gcc", *FLAGS, *_FREESTANDING, "-c", str(folder / "freestanding.c")]
    prefix = f"h{secrets.token_hex(8)}_"
    (made / "prefix").write_text(prefix)
    for name, command in commands.items():
        includes = [f"-I{path}" for path in (folder, project.header.parent, _FILTERS)] if command[0] == "gcc" else []
        _run_ours([*command, *includes, "-o", name], made)
    names = (*_RENAMED, *_TOLD, *_MARKS, *(f"call_{demanded}" for demanded in project.functions))
    renamed = [part for old in names for part in ("--redefine-sym", f"harness_{old}={prefix}{old}")]
    for name in ("marker.o", "native.o", "valgrind.o"):
        _run_ours(["objcopy", *renamed, name], made)
        global_names = [f"--keep-global-symbol={shape}" for shape in ("main", f"{prefix}*", *_CALLED_BY_GCC)]
        _run_ours(["objcopy", "--wildcard", *global_names, name], made)
        functions = scan.functions((made / name).read_bytes())
        kept_names = re.compile(f"main$|__ubsan_|__tsan_|__sanitizer_|{prefix}")
        known = [f"{old} {prefix}{old}\n" for old in functions if not kept_names.match(old)]
        (made / "functions.sym").write_text("".join(known))
        _run_ours(["objcopy", "--redefine-syms=functions.sym", name], made)
        defined = Symbols.of((made / name).read_bytes()).defined
        if not any(symbol.startswith(prefix) for symbol in defined):  # nothing is kept that does not work
            raise DriverError(f"our own driver was not made as it must be: objcopy did not rename what {name} defines")
    for path in made.iterdir():
        if path.name not in ("prefix", "marker.o", "native.o", "valgrind.o", "freestanding.o"):
            path.unlink()


def _run_ours(command: list[str], folder: Path) -> None:
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}
    done = process.run(command, cwd=folder, limits=Patience(wall_seconds=60), environment=environment)
    if not done.succeeded:
        raise DriverError(f"our own driver does not compile:\n{done.stderr.decode(errors='replace')}")


def _has_valgrind_header() -> bytes:
    return str(Path("/usr/include/valgrind/memcheck.h").is_file()).encode()
