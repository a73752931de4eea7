"""The grader's side of every program: the driver and the harness, compiled once and cached between runs."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grader.core.errors import BrokenTool
from grader.runtime.native.compile import scan
from grader.runtime.native.compile.elf import Elf
from grader.runtime.native.compile.lanes import BEFORE, BEHIND, LANES, dynamic
from grader.runtime.native.compile.project import FLAGS, CProject
from grader.runtime.native.compile.startup import start
from grader.runtime.native.compile.symbols import Symbols
from grader.system import process, resources
from grader.system.folders import cached
from grader.system.process import Completed, Patience

RENAMED = (
    *("malloc", "calloc", "realloc", "reallocarray", "free", "malloc_usable_size"),
    *("aligned_alloc", "posix_memalign", "memalign", "valloc", "pvalloc"),
    *("exit", "_exit", "_Exit", "quick_exit", "abort"),
    *("strdup", "strndup", "wcsdup", "asprintf", "vasprintf", "__asprintf_chk", "__vasprintf_chk"),
    *("getline", "getdelim", "__getdelim"),
    *("setjmp", "_setjmp", "__sigsetjmp", "longjmp", "_longjmp", "siglongjmp", "__longjmp_chk"),
)
"""Functions of libc that the harness replaces by its own."""

SANITIZED_CALLS = ("__ubsan_handle_*",)
"""Functions of the harness that gcc lets a build call that reports undefined behaviour."""

_REPLACED = ("memset", "memcpy", "memmove")
TRACED_CALLS = ("__tsan_*", "__sanitizer_cov_*", *_REPLACED)
"""Functions of the harness that gcc lets a build call that reports lines, and functions of libc that store."""

_MARKS = ("first_tdata", "first_tbss")
"""Symbols of marker.c, linked before the student's object: they show where its thread-local variables begin."""

_FILTERS = Path(__file__).parents[3] / "system" / "confine"
_HARNESS = Path(__file__).parents[1] / "harness"

_OUR_FLAGS = (*FLAGS, "-g0")
"""Without debug information: no report has a line of the harness; linker and Valgrind need not read it each time."""

_FIRST, _START, _LAST = ("crti.o", "crtbeginT.o"), "crt1.o", ("crtend.o", "crtn.o")
_LIBRARIES = ("libgcc.a", "libgcc_eh.a", "libc.a")
"""What gcc links into a static program: _FIRST, _START, the program's own objects, _LIBRARIES, _LAST, in this order."""

_PATH = re.compile(r"/[^\s()]+")  # ld's list of files has some in parentheses
_MAGIC = (b"\x7fELF", b"!<arch>")  # others are scripts of ld that name further files
_SYMBOL = re.compile(
    r"^ *\d+: [0-9a-f]+ +(\w+) (\w+) +(\w+) +\w+ +(?:\[[^]]*\] +)?(\w+) ([A-Za-z_]\w*)(?:@@\S+)?$",
    re.ASCII | re.MULTILINE,
)
"""A line of readelf: size, type, binding, visibility, section, and name, without names of old versions only."""
_DECLARED = {"FUNC": "", "IFUNC": "", "OBJECT": "_Alignas(16) char {}[{}]", "TLS": "_Thread_local char {}[{}]"}
"""By type of symbol: a C declaration of a name with a size. Other types mark places, such as the end of a section."""

_LINKED = {"marker.o", "native.o", "native-libc.o", "valgrind.o", "freestanding.o", BEFORE, BEHIND}

_FREESTANDING = (
    *("-fno-builtin", "-fno-stack-protector", "-fno-tree-loop-distribute-patterns"),
    *("-U_FORTIFY_SOURCE", "-ffunction-sections"),
)


@dataclass(frozen=True, slots=True)
class HarnessObjects:
    """The grader's side of a program."""

    prefix: str
    """The prefix of the functions that replace libc's, random so that nothing in a student's file can name them."""
    objects: dict[str, bytes]
    """By name: the files that are linked, and files of linker options."""
    starts: Mapping[str, frozenset[str]]
    """What a known-good program runs besides its functions (startup.py), by program and lane."""
    libc_names: bytes
    """JSON; see `libc` and `only_static`."""

    def libc(self) -> dict[str, str]:
        """Return what the usual link gets from libc and gcc, by name: the C declaration of a variable, or ""."""
        names: dict[str, str] = json.loads(self.libc_names)["usual"]
        return names

    def only_static(self) -> frozenset[str]:
        """Return what else there is in a static libc: inner parts, for which the usual link has no names."""
        return frozenset(json.loads(self.libc_names)["static"])


def harness_objects(project: CProject) -> HarnessObjects:
    """Return the driver and the harness, compiled once for this compiler and cached between runs."""
    folders = (_HARNESS, project.driver.parent, _FILTERS)
    sources = [source for folder in folders for source in sorted(folder.glob("*.[ch]"))]
    parts = [source.read_bytes() for source in sources] + [resources.version("gcc").encode(), b"11", *_here()]
    cached_folder = cached(parts, partial(_make, project))
    objects = {path.name: path.read_bytes() for path in cached_folder.iterdir() if path.name in _LINKED}
    starts = json.loads((cached_folder / "starts").read_text())
    return HarnessObjects(
        prefix=(cached_folder / "prefix").read_text(),
        objects=objects,
        starts={lane: frozenset(words) for lane, words in starts.items()},
        libc_names=(cached_folder / "libc").read_bytes(),
    )


def _make(project: CProject, folder: Path) -> None:
    """Compile the grader's side into the folder."""
    parts_of_it = [source for source in sorted(_HARNESS.glob("*.c")) if source.stem not in ("freestanding", "marker")]
    lanes = {"native": (), "valgrind": ("-DUNDER_VALGRIND", "-ffunction-sections")}
    commands = {"driver.o": ["gcc", *_OUR_FLAGS, "-c", str(project.driver)]}
    for lane, options in lanes.items():
        parts = {f"{lane}-{source.stem}.o": ["gcc", *_OUR_FLAGS, *options, "-c", str(source)] for source in parts_of_it}
        commands |= {**parts, f"{lane}.o": ["ld", "-r", "driver.o", *parts]}
    commands["marker.o"] = ["gcc", *_OUR_FLAGS, "-c", str(_HARNESS / "marker.c")]
    if os.uname().machine == "x86_64":
        commands["freestanding.o"] = ["gcc", *_OUR_FLAGS, *_FREESTANDING, "-c", str(_HARNESS / "freestanding.c")]
    prefix = f"h{secrets.token_hex(8)}_"
    (folder / "prefix").write_text(prefix)
    for name, command in commands.items():
        includes = [f"-I{path}" for path in (_HARNESS, project.header.parent, _FILTERS)] if command[0] == "gcc" else []
        _run_own([*command, *includes, "-o", name], folder)
    names = (*RENAMED, *_REPLACED, *_MARKS)
    renamed = [part for old in names for part in ("--redefine-sym", f"harness_{old}={prefix}{old}")]
    for name in ("marker.o", "native.o", "valgrind.o"):
        _run_own(["objcopy", *renamed, name], folder)
        global_names = [
            f"--keep-global-symbol={shape}" for shape in ("main", f"{prefix}*", *SANITIZED_CALLS, *TRACED_CALLS)
        ]
        _run_own(["objcopy", "--wildcard", *global_names, name], folder)
        elf = Elf.read((folder / name).read_bytes())
        functions = scan.functions(elf) if elf else []
        kept_names = re.compile(f"main$|{prefix}")
        known = [f"{old} {prefix}{old}\n" for old in functions if not kept_names.match(old)]
        (folder / "functions.sym").write_text("".join(known))
        _run_own(["objcopy", "--redefine-syms=functions.sym", name], folder)
        elf = Elf.read((folder / name).read_bytes())
        defined = Symbols.of(elf).defined if elf else frozenset()
        if not any(symbol.startswith(prefix) for symbol in defined):  # only objects that work are cached
            raise BrokenTool(f"our own driver was not made as it must be: objcopy did not rename what {name} defines")
    _link_libc(folder)
    _try_lanes(project, folder)
    _write_libc_names(folder)
    for path in folder.iterdir():
        if path.name not in {"prefix", "starts", "libc", *_LINKED}:
            path.unlink()


def _link_libc(folder: Path) -> None:
    """Link native.o with what it needs of a static libc into native-libc.o.

    The files BEFORE and BEHIND list what else every static program is linked with. Where there is no static libc,
    native-libc.o is not made, and no lane that needs it works.
    """
    files = [*_FIRST, _START, *_LIBRARIES, *_LAST]
    paths = {name: _run_own(["gcc", f"-print-file-name={name}"], folder).stdout.decode().strip() for name in files}
    libraries = ["--start-group", *(paths[name] for name in _LIBRARIES), "--end-group"]
    _run(["ld", "-r", "-o", "native-libc.o", paths[_START], "native.o", *libraries], folder)
    (folder / BEFORE).write_text("\n".join(paths[name] for name in _FIRST))
    (folder / BEHIND).write_text("\n".join([*libraries, *(paths[name] for name in _LAST)]))


def _try_lanes(project: CProject, folder: Path) -> None:
    """Link a program that does nothing in every lane that works here, and store what it runs besides its functions."""
    stubs = [f'#include "{project.header.name}"\n', *(f"{stub}\n" for stub in project.functions.values())]
    (folder / "known_good.c").write_text("".join(stubs))
    _run_own(["gcc", *FLAGS, f"-I{project.header.parent}", "-c", "known_good.c", "-o", "known_good.o"], folder)
    starts: dict[str, list[str]] = {}
    for program, harness in (("program", "native.o"), ("checked", "valgrind.o")):
        for lane, command in LANES[program].items():
            words = command(program, ["marker.o", "known_good.o", harness])
            if shutil.which(words[0]) is None:  # gold is not installed everywhere
                continue
            done = _run(words, folder)
            elf = Elf.read((folder / program).read_bytes()) if done.succeeded else None
            if elf is not None:
                starts[f"{program} {lane}"] = sorted(start(elf))
    (folder / "starts").write_text(json.dumps(starts))


def _write_libc_names(folder: Path) -> None:
    """Write what the usual link (lanes.py) and a static one get from libc, gcc and the files at a program's start."""
    traced = [*dynamic("program", ["marker.o", "known_good.o", "native.o"]), "-Wl,--trace"]
    usual = _defined(_run_own(traced, folder).stdout.decode(), folder) | {"main": ""}  # which the harness has
    static = _defined("\n".join((folder / name).read_text() for name in (BEFORE, BEHIND)), folder)
    if "fork" not in usual:  # a list without it would refuse nothing
        raise BrokenTool("what libc defines cannot be read from the files that ld says it uses")
    (folder / "libc").write_text(json.dumps({"usual": usual, "static": sorted(static.keys() - usual.keys())}))


def _defined(text: str, folder: Path) -> dict[str, str]:
    """Return the names that the libraries and objects define whose paths are in the text; see `HarnessObjects.libc`."""
    paths = map(Path, dict.fromkeys(_PATH.findall(text)))
    files = [path for path in paths if path.is_file() and path.read_bytes().startswith(_MAGIC)]
    names = {}
    for path in files:
        table = "--dyn-syms" if ".so" in path.name else "--syms"
        printed = _run_own(["readelf", "-W", table, str(path)], folder).stdout.decode(errors="replace")
        for size, kind, binding, section, name in _SYMBOL.findall(printed):
            if kind in _DECLARED and binding != "LOCAL" and section not in ("UND", "ABS"):
                names[name] = _DECLARED[kind].format("{}", int(size, 0) or 1)
    return names


def _run_own(command: list[str], folder: Path) -> Completed:
    done = _run(command, folder)
    if not done.succeeded:
        raise BrokenTool(f"our own driver does not compile:\n{done.stderr.decode(errors='replace')}")
    return done


def _run(command: list[str], folder: Path) -> Completed:
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}
    return process.run(command, cwd=folder, limits=Patience(wall_seconds=60), environment=environment)


def _here() -> list[bytes]:
    """Return the machine's part of the cache key: whether Valgrind's header and gold exist, and which libc."""
    there = Path("/usr/include/valgrind/memcheck.h").is_file(), shutil.which("ld.gold") is not None
    folders = ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu")
    paths = [Path("/usr", folder, name) for folder in folders for name in ("libc.a", "libc.so.6")]
    libraries = [path.stat() for path in paths if path.is_file()]
    return [str(there).encode(), *(f"{status.st_size} {status.st_mtime_ns}".encode() for status in libraries)]
