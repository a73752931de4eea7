"""The grader's side of every program: the driver and the harness, compiled once and cached between runs.

A lane is a way to link a program with this side. A lane works if a test program that it links plays a trace on this
machine, and the grader finds the line at which that program crashes. On some processors a linker makes programs that
cannot walk their stack. The handout's own link (`dynamic`) is always kept, so that there is at least one lane. Of the
lanes that work, the first that links a submission is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path

from grader.core.case import Case, Expected, Signature
from grader.core.errors import BrokenTool, DriverError, OptionalStages
from grader.core.model import Model
from grader.core.verdict import Visibility
from grader.runtime.native.compile.elf import Elf, Flag, SectionType, Symbols, is_safe, start
from grader.runtime.native.compile.libc_names import CALLED_BY_STUBS, RENAMED
from grader.runtime.native.native_played import name_lines
from grader.runtime.native.project import FLAGS, CProject, Driver, NativeProgram
from grader.runtime.native.replay import replay
from grader.runtime.native.symbolize import source_lines
from grader.runtime.native.valgrind.memcheck import memcheck
from grader.system import process, resources, sandbox
from grader.system.budget import TIMING_PACE, Budget
from grader.system.confine.filters import ARCHITECTURES
from grader.system.folders import cached
from grader.system.process import Completed
from grader.system.process_tree import Patience
from reference.operation import Operation, Trace

Lane = Callable[[str, Sequence[str]], list[str]]
"""Returns the command that links the objects into a program of that name."""

BEFORE, BEHIND = "before.rsp", "behind.rsp"
"""Files with the arguments before and after the objects in a command that links a static program."""

# Only code is executable, neither the stack nor constants: suspects.py searches all that is executable.


def dynamic(target: str, objects: Sequence[str]) -> list[str]:
    """Return the usual command: gcc links a dynamic program."""
    return ["gcc", "-no-pie", "-Wl,-z,noexecstack,-z,separate-code", "-o", target, *objects]


def _static(linker: str, code_apart: str) -> Lane:
    """Return a lane that links a static program with this linker; forking a static program costs half as much.

    The parts of libc that the harness needs are linked to the harness beforehand (`_link_libc`).
    """

    def command(target: str, objects: Sequence[str]) -> list[str]:
        *others, native = objects
        with_libc = [f"@{BEFORE}", *others, native.replace(".o", "-libc.o"), f"@{BEHIND}"]
        return [linker, "-static", "--build-id=none", "-znoexecstack", code_apart, "-o", target, *with_libc]

    return command


def _freestanding(target: str, objects: Sequence[str]) -> list[str]:
    """Return the command that links with freestanding.c instead of libc.

    The link fails if the student's object needs more than freestanding.c has.
    """
    code_apart = ("-znoexecstack", "-zseparate-code")
    return ["ld", "-static", "--gc-sections", *code_apart, "-o", target, *objects, "freestanding.o"]


LANES: Mapping[str, Mapping[str, Lane]] = {
    "program": {
        "static": _static("ld.gold", "--rosegment"),  # in two thirds of ld's time
        "static by ld": _static("ld", "-zseparate-code"),
        "dynamic": dynamic,
    },
    "checked": {"freestanding": _freestanding, "dynamic": dynamic},
}
"""For each program its lanes, in the order in which they are tried."""

STOCK: Mapping[str, str] = dict.fromkeys(LANES, "dynamic")
"""For each program, the only lane to try if it must be linked as the handout's own command does it."""


def lanes_with(known: Collection[str], only: Mapping[str, str] | None = None) -> dict[str, dict[str, Lane]]:
    """Return the lanes to try: those `known` to work here, as "program lane", and the usual one (`dynamic`).

    `only` holds, by program, the only lane to try.
    """
    return {
        program: {
            name: lane
            for name, lane in lanes.items()
            if (only is None or only[program] == name) and (lane is dynamic or f"{program} {name}" in known)
        }
        for program, lanes in LANES.items()
    }


_DATA: dict[int, str] = {SectionType.PROGBITS: "student_data", SectionType.NOBITS: "student_bss"}
"""By type of section: the new name of sections with writable data. Under Valgrind they are restored for each case."""

_CODE = "student_text"
"""The new name of sections with code, from which system calls are refused (harness/gate.c).

Only the native program has sections of this name, because Valgrind expects the name .text.
"""

_CODE_BY_NAME = (".text", ".stub", ".init", ".fini", ".plt", ".iplt", ".gnu.linkonce.t")
"""Names of read-only sections that linkers put next to code, whether or not their flags say that they are code."""


def section_renames(elf: Elf) -> tuple[list[str], list[str]]:
    """Return two lists of objcopy's options: to rename sections of writable data (not thread-local), and of code."""
    variables: dict[str, str] = {}
    code: dict[str, str] = {}
    for section in elf.sections:
        flags = section.flags & (Flag.WRITE | Flag.ALLOC | Flag.EXECUTE | Flag.TLS)
        beside_code = flags & ~Flag.EXECUTE == Flag.ALLOC and section.name.startswith(_CODE_BY_NAME)
        if not is_safe(section.name):  # such a name gets here only when it was allowed (`--allow`)
            continue
        if flags & Flag.ALLOC and (flags & Flag.EXECUTE or beside_code):
            code[section.name] = _CODE
        elif flags == Flag.WRITE | Flag.ALLOC and section.type in _DATA:
            variables[section.name] = _DATA[section.type]
    rename = "--rename-section={}={}".format
    return list(starmap(rename, variables.items())), list(starmap(rename, code.items()))


SANITIZED_CALLS = ("__ubsan_handle_*",)
"""Functions of the harness. gcc inserts calls of them into a build that reports undefined behaviour."""

_REPLACED = ("memset", "memcpy", "memmove")
TRACED_CALLS = ("__tsan_*", "__sanitizer_cov_*", *_REPLACED)
"""Functions of the harness. gcc inserts calls of most into a build that reports lines; `_REPLACED` replace libc's."""

_MARKS = ("first_tdata", "first_tbss")
"""Symbols of marker.c, linked before the student's object: they show where its thread-local variables begin."""

_FILTERS = Path(__file__).parents[3] / "system" / "confine"
_HARNESS = Path(__file__).parents[1] / "harness"

_OUR_FLAGS = (*FLAGS, "-g0")
"""Without debug information, so that no report has a line of the harness, and linker and Valgrind have less to read."""

_FIRST, _START, _LAST = ("crti.o", "crtbeginT.o"), "crt1.o", ("crtend.o", "crtn.o")
_LIBRARIES = ("libgcc.a", "libgcc_eh.a", "libc.a")
"""What gcc links into a static program: _FIRST, _START, the program's own objects, _LIBRARIES, _LAST, in this order."""

_PATH = re.compile(r"/[^\s()]+")  # ld's list of files has some in parentheses
_MAGIC = (b"\x7fELF", b"!<arch>")  # others are scripts of ld that name further files
_SYMBOL = re.compile(
    r"^ *\d+: [0-9a-f]+ +(\w+) (\w+) +(\w+) +\w+ +(?:\[[^]]*\] +)?(\w+) ([A-Za-z_]\w*)(?:@@\S+)?$",
    re.ASCII | re.MULTILINE,
)
"""A line of readelf: size, type, binding, visibility, section, name. `name@OLD_VERSION`, with one @, does not match."""
_DECLARED = {"FUNC": "", "IFUNC": "", "OBJECT": "_Alignas(16) char {}[{}]", "TLS": "_Thread_local char {}[{}]"}
"""By type of symbol: a variable's C declaration, "" for functions. Other types mark places, such as a section's end."""

_CRASHING, _CRASH = "crashing.c", 3
"""A C file whose second function crashes, and the line of the crash."""

_LINKED = {"marker.o", "native.o", "native-libc.o", "valgrind.o", "freestanding.o", BEFORE, BEHIND}

_PROCESSORS = "x86-64 and 64-bit Arm"
"""The processors for which the harness is written, in words; `ARCHITECTURES` has their system calls."""

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
    """The files that are linked, and files of linker options, by name."""
    starts: Mapping[str, frozenset[str]]
    """What a known-good program runs in addition to its functions (`elf.start`), by program and lane."""
    libc_names: bytes
    """JSON with the content of `libc` and `only_static`."""

    def libc(self) -> dict[str, str]:
        """Return what the usual link gets from libc and gcc, by name: a variable's C declaration; "" for functions."""
        names: dict[str, str] = json.loads(self.libc_names)["usual"]
        return names

    def only_static(self) -> frozenset[str]:
        """Return the names that only a static libc defines; they belong to its inner parts."""
        return frozenset(json.loads(self.libc_names)["static"])


def harness_objects(project: CProject) -> HarnessObjects:
    """Return the driver and the harness, compiled once for this compiler and cached between runs.

    They are read once in a process, because checking each source for changes takes 6 ms.
    """
    if project.driver not in _READ:
        _READ[project.driver] = _from_cache(project)
    return _READ[project.driver]


_READ: dict[Path, HarnessObjects] = {}


def _from_cache(project: CProject) -> HarnessObjects:
    folders = (_HARNESS, project.driver.parent, project.header.parent, _FILTERS)
    sources = [source for folder in folders for source in sorted(folder.glob("*.[ch]"))]
    parts = [source.read_bytes() for source in sources] + [resources.version("gcc").encode(), b"12", *_here()]
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
    if os.uname().machine not in ARCHITECTURES:
        raise BrokenTool(f"submissions in C can be graded on {_PROCESSORS} only; this machine is {os.uname().machine}")
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
    names = (*RENAMED, *CALLED_BY_STUBS, *_REPLACED, *_MARKS)
    renamed = [part for old in names for part in ("--redefine-sym", f"harness_{old}={prefix}{old}")]
    for name in ("marker.o", "native.o", "valgrind.o"):
        _run_own(["objcopy", *renamed, name], folder)
        global_names = [
            f"--keep-global-symbol={shape}" for shape in ("main", f"{prefix}*", *SANITIZED_CALLS, *TRACED_CALLS)
        ]
        _run_own(["objcopy", "--wildcard", *global_names, name], folder)
        elf = Elf.read((folder / name).read_bytes())
        functions = sorted({symbol.name for symbol in elf.functions()}) if elf else []
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
    """Link native.o with the parts of a static libc that it needs into native-libc.o.

    The files `BEFORE` and `BEHIND` list the files to link before and after the objects of a static program. If there
    is no static libc, native-libc.o is not made, and no lane that needs it works.
    """
    files = [*_FIRST, _START, *_LIBRARIES, *_LAST]
    paths = {name: _run_own(["gcc", f"-print-file-name={name}"], folder).stdout.decode().strip() for name in files}
    libraries = ["--start-group", *(paths[name] for name in _LIBRARIES), "--end-group"]
    _run(["ld", "-r", "-o", "native-libc.o", paths[_START], "native.o", *libraries], folder)
    (folder / BEFORE).write_text("\n".join(paths[name] for name in _FIRST))
    (folder / BEHIND).write_text("\n".join([*libraries, *(paths[name] for name in _LAST)]))


def trial(project: CProject) -> tuple[Case, Driver]:
    """Return a case that calls the first two demanded functions, and a driver for this case only."""
    operations = tuple(Operation(name=name) for name in list(project.functions)[:2])
    case = Case(
        name="trial",
        path=Path(),
        title="",
        handout=(),
        rule="",
        visibility=Visibility.PUBLIC,
        weight=0,
        trace=Trace(operations=operations),
        expected=Expected.of(()),
    )
    signatures = dict.fromkeys(project.functions, Signature(arguments=()))
    return case, Driver(operations=signatures, settings=lambda _: (), places=lambda *_: {}, model=_no_model)


def _try_lanes(project: CProject, folder: Path) -> None:
    """Store which lanes work here, each with what a program that does nothing runs in addition to its functions."""
    (folder / "known_good.c").write_text(project.stubs)
    first, *others = project.functions
    crashes = [f"void *{name}(void) {{ return *nowhere; }}" for name in others]
    lines = ["static void **volatile nowhere = (void *)64;", f"void *{first}(void) {{ return 0; }}", *crashes]
    (folder / _CRASHING).write_text("".join(f"{line}\n" for line in lines))
    for source in ("known_good.c", _CRASHING):
        _run_own(["gcc", *FLAGS, f"-I{project.header.parent}", "-c", source], folder)
    starts: dict[str, list[str]] = {}
    for program, harness in (("program", "native.o"), ("checked", "valgrind.o")):
        for lane, command in LANES[program].items():
            known_good, crashing = (
                _linked(command(program, ["marker.o", student, harness]), folder, program)
                for student in ("known_good.o", _CRASHING.replace(".c", ".o"))
            )
            if known_good is None or crashing is None:
                continue
            if lane == "dynamic" or _plays(project, crashing, checked=program == "checked"):
                starts[f"{program} {lane}"] = sorted(start(known_good))
    (folder / "starts").write_text(json.dumps(starts))


def _plays(project: CProject, crashing: Elf, *, checked: bool) -> bool:
    """Return whether a program plays a trace up to its crash, and the line of the crash is found."""
    if checked and not resources.version("valgrind"):
        return False
    case, driver = trial(project)
    program = NativeProgram(content=crashing.data, checked=crashing.data, source_name=_CRASHING)
    with contextlib.suppress(DriverError), sandbox.workspace(Budget(pace=TIMING_PACE)) as work:
        if checked:
            report = memcheck(work, program, [case], [0], natively={0: 0.0}, driver=driver, optional=OptionalStages())
            lines = [line for error in report.errors for line in error.lines]
        else:
            played = replay(work, program, [case], driver=driver).played
            name_lines(played, partial(source_lines, work, program))
            lines = [*played[0].fault_lines]
        return any(line.line == _CRASH for line in lines)
    return False


def _no_model(trace: Trace) -> Model:
    raise NotImplementedError


def _linked(command: list[str], folder: Path, program: str) -> Elf | None:
    """Return the program that the command links; None if it fails, or if the linker is not installed."""
    works = shutil.which(command[0]) is not None and _run(command, folder).succeeded
    return Elf.read((folder / program).read_bytes()) if works else None


def _write_libc_names(folder: Path) -> None:
    """Write what the usual link (`dynamic`) and a static one get from libc, gcc and the files at a program's start."""
    traced = [*dynamic("program", ["marker.o", "known_good.o", "native.o"]), "-Wl,--trace"]
    usual = _defined(_run_own(traced, folder).stdout.decode(), folder) | {"main": ""}  # which the harness has
    static = _defined("\n".join((folder / name).read_text() for name in (BEFORE, BEHIND)), folder)
    if "fork" not in usual:  # a list without it would refuse nothing
        raise BrokenTool("what libc defines cannot be read from the files that ld says it uses")
    (folder / "libc").write_text(json.dumps({"usual": usual, "static": sorted(static.keys() - usual.keys())}))


def _defined(text: str, folder: Path) -> dict[str, str]:
    """Return the names defined by the libraries and objects whose paths are in the text; see `HarnessObjects.libc`."""
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
    """Return the machine's part of the cache key: whether Valgrind, its header and gold exist, and which libc."""
    tools = shutil.which("ld.gold"), shutil.which("valgrind")
    there = Path("/usr/include/valgrind/memcheck.h").is_file(), *(tool is not None for tool in tools)
    folders = ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu")
    paths = [Path("/usr", folder, name) for folder in folders for name in ("libc.a", "libc.so.6")]
    libraries = [path.stat() for path in paths if path.is_file()]
    return [str(there).encode(), *(f"{status.st_size} {status.st_mtime_ns}".encode() for status in libraries)]
