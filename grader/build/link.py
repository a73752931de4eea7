"""Make a program of the student's object, the driver and the harness, keeping their names and memory apart."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import tools
from grader.build.project import FLAGS, CProject
from grader.errors import DriverError
from grader.process import Completed
from grader.sandbox import COMPILE_LIMITS, Workspace

__all__ = ["Symbols", "link"]

_RENAMED = (
    *(
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "aligned_alloc",
        "posix_memalign",
        "strdup",
        "strndup",
        "free",
    ),
    *("exit", "_exit", "_Exit", "quick_exit", "abort"),
)
"""What the harness has in the place of libc's."""

_SECTIONS = {
    **dict.fromkeys((".data", ".data.rel", ".data.rel.local", ".data.rel.ro", ".data.rel.ro.local"), "student_data"),
    ".bss": "student_bss",
}
"""Writable data gets sections of its own, which the harness restores before every case."""

_STATIC_SAFE = frozenset(
    {
        *_RENAMED,
        *("memcpy", "memmove", "memset", "__memcpy_chk", "__memmove_chk", "__memset_chk"),
        *("__stack_chk_fail", "__assert_fail", "_GLOBAL_OFFSET_TABLE_"),
    }
)
"""With nothing but these a program is linked statically: Valgrind starts it five times faster.

Of other functions of libc Valgrind has its own versions, which it can only put into a dynamic program; libc's string
functions read whole vectors past the end of a string, and Valgrind would call that an error of the student's.
"""


@dataclass(frozen=True, slots=True)
class Symbols:
    """The names that an object defines for others, and those that it wants from others."""

    defined: frozenset[str]
    undefined: frozenset[str]

    @classmethod
    def of(cls, data: bytes) -> Symbols:
        """Read them from the bytes of an object file."""
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - slow to import
        from elftools.elf.sections import SymbolTableSection  # noqa: PLC0415

        table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            return cls(frozenset(), frozenset())
        visible = [symbol for symbol in table.iter_symbols() if symbol["st_info"]["bind"] != "STB_LOCAL"]
        undefined = {symbol.name for symbol in visible if symbol["st_shndx"] == "SHN_UNDEF"}
        return cls(frozenset({symbol.name for symbol in visible} - undefined), frozenset(undefined))


def link(project: CProject, work: Workspace, symbols: Symbols, missing: Sequence[str]) -> Completed:
    """Hide everything but the demanded functions, rename what the harness replaces, link with the driver."""
    prefix = f"h{secrets.token_hex(8)}_"  # so that nothing in the student's object can name our functions
    _add_lines(work, "theirs.sym", (f"{name} {prefix}{name}" for name in _RENAMED))
    _add_lines(work, "ours.sym", (f"harness_{name} {prefix}{name}" for name in _RENAMED))
    _add_lines(work, "api.sym", project.functions)
    sections = [f"--rename-section={old}={new}" for old, new in _SECTIONS.items()]
    hide = ("--redefine-syms=theirs.sym", "--keep-global-symbols=api.sym")
    objects = ["student.o", "driver.o", "harness.o"]
    steps = [
        ["objcopy", *hide, *sections, project.object_name, "student.o"],
        *(["objcopy", "--redefine-syms=ours.sym", f"{name}.plain", name] for name in objects[1:]),
    ]
    for name, path in _driver_objects(project).items():
        work.add(f"{name}.plain", path)
    if missing:
        include = f'#include "{project.header.name}"'
        _add_lines(work, "stubs.c", (include, *(project.functions[name] for name in missing)))
        steps.append(["gcc", "-std=c11", "-O2", "-c", "stubs.c", "-o", "stubs.o"])
        objects.append("stubs.o")
    for step in steps:
        done = work.run(step, limits=COMPILE_LIMITS)
        if not done.succeeded:
            raise DriverError(f"{' '.join(step)}: {done.stderr.decode(errors='replace')}")
    command = ["gcc", "-no-pie", "-o", "program", *objects]
    if symbols.undefined <= _STATIC_SAFE:
        linked = work.run([*command, "-static"], limits=COMPILE_LIMITS)
        if linked.succeeded:
            return linked
    return work.run(command, limits=COMPILE_LIMITS)


def _add_lines(work: Workspace, name: str, lines: Iterable[str]) -> None:
    work.add(name, "".join(f"{line}\n" for line in lines).encode())


def _driver_objects(project: CProject) -> dict[str, bytes]:
    """The driver and the harness, compiled once for this compiler and kept between runs."""
    sources = [project.harness, project.harness.with_suffix(".h"), project.driver, project.header]
    parts = [source.read_bytes() for source in sources] + [tools.version("gcc").encode(), b"3"]
    key = hashlib.sha256(b"\0".join(parts) + _has_valgrind_header()).hexdigest()[:24]
    folder = _cache_folder() / key
    wanted = {"harness.o": project.harness, "driver.o": project.driver}
    objects = {name: folder / name for name in wanted}
    if not all(path.is_file() for path in objects.values()):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, source in wanted.items():
            _compile_ours(project, source, objects[name])
    return {name: path.read_bytes() for name, path in objects.items()}


def _compile_ours(project: CProject, source: Path, target: Path) -> None:
    from grader import process  # noqa: PLC0415

    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    includes = [f"-I{project.harness.parent}", f"-I{project.header.parent}"]
    done = process.run(
        ["gcc", *FLAGS, *includes, "-c", str(source), "-o", str(temporary)],
        cwd=target.parent,
        limits=COMPILE_LIMITS,
        environment={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"},
    )
    if not done.succeeded:
        raise DriverError(f"our own driver does not compile:\n{done.stderr.decode(errors='replace')}")
    temporary.replace(target)


def _cache_folder() -> Path:
    """A folder that only we can write to; what lies there is linked into graded programs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paged-kv-grader"
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = base.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DriverError(f"{base} can be written by others; remove it, or set XDG_CACHE_HOME to a folder of your own")
    return base


def _has_valgrind_header() -> bytes:
    return str(Path("/usr/include/valgrind/memcheck.h").is_file()).encode()
