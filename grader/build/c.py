"""Build a C submission: the handout's exact command, then a program of its object, the driver and the harness."""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.build import diagnostics, toolchain
from grader.build.diagnostics import Diagnostic
from grader.errors import DriverError
from grader.lab import Built, Program
from grader.process import Completed
from grader.sandbox import COMPILE_LIMITS, Workspace
from grader.verdict import Finding, SourceLine, Tool, Verdict

__all__ = ["FLAGS", "CProject", "build"]

FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-ggdb")
"""The handout's flags, in its order (Compilation Standard)."""

_RENAMED = (
    *("malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "posix_memalign", "strdup", "strndup", "free"),
    *("exit", "_exit", "_Exit", "quick_exit", "abort"),
)
"""What the harness has in the place of libc's."""

_SECTIONS = {
    **dict.fromkeys((".data", ".data.rel", ".data.rel.local", ".data.rel.ro", ".data.rel.ro.local"), "student_data"),
    ".bss": "student_bss",
}
"""Writable data gets sections of its own, which the harness restores before every case."""

_MOST_FINDINGS = 20
_QUOTED = re.compile(r"['‘](\w+)['’]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CProject:
    """What a C lab is built from."""

    source_name: str
    header: Path
    driver: Path
    harness: Path
    functions: Mapping[str, str]
    """The functions that the handout demands, each with a stub that returns the refusing value."""
    rule: str
    """The rule that a failing build breaks."""

    @property
    def compile_command(self) -> tuple[str, ...]:
        return ("gcc", *FLAGS, "-c", self.source_name, "-o", self.object_name)

    @property
    def object_name(self) -> str:
        return str(Path(self.source_name).with_suffix(".o"))


def build(
    project: CProject, work: Workspace, source: bytes, own_headers: Mapping[str, bytes], *, relaxed: bool
) -> Built:
    """Compile and link `source` in the workspace. What is wrong with it comes back as findings.

    `own_headers` are only consulted to explain a failure. `relaxed` forgives warnings and missing functions, to
    tell what a submission that does not compile would have scored.
    """
    toolchain.require("gcc", "objcopy")
    work.add(project.source_name, source)
    work.add(project.header.name, project.header.read_bytes())
    command = [flag for flag in project.compile_command if not (relaxed and flag == "-Werror")]
    compiled = work.run(command, limits=COMPILE_LIMITS)
    spent = compiled.cpu_seconds
    findings: list[Finding] = []
    program = None
    if not compiled.succeeded:
        if not relaxed:
            findings += _compile_findings(project, work, compiled, own_headers)
    else:
        symbols = _Symbols.of((work.folder / project.object_name).read_bytes())
        missing = [name for name in project.functions if name not in symbols.defined]
        findings += _symbol_findings(project, symbols, missing)
        if not missing or relaxed:
            linked = _link(project, work, symbols, missing)
            spent += linked.cpu_seconds
            if linked.succeeded:
                program = Program(executable=work.folder / "program", source_name=project.source_name)
            else:
                findings.append(_link_finding(project, linked))
    return Built(
        program=program,
        findings=tuple(findings),
        compiler=toolchain.version("gcc"),
        command=" ".join(project.compile_command),
        cpu_seconds=spent,
    )


@dataclass(frozen=True, slots=True)
class _Symbols:
    defined: frozenset[str]
    undefined: frozenset[str]

    @classmethod
    def of(cls, data: bytes) -> _Symbols:
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - slow to import
        from elftools.elf.sections import SymbolTableSection  # noqa: PLC0415

        table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            return cls(frozenset(), frozenset())
        visible = [symbol for symbol in table.iter_symbols() if symbol["st_info"]["bind"] != "STB_LOCAL"]
        undefined = {symbol.name for symbol in visible if symbol["st_shndx"] == "SHN_UNDEF"}
        return cls(frozenset({symbol.name for symbol in visible} - undefined), frozenset(undefined))


def _symbol_findings(project: CProject, symbols: _Symbols, missing: Sequence[str]) -> Iterator[Finding]:
    for name in missing:
        similar = difflib.get_close_matches(name, symbols.defined - project.functions.keys(), n=1)
        hint = f"; is your {similar[0]} meant to be it?" if similar else ""
        yield _finding(project, "missing-function", f"{project.source_name} does not define {name}{hint}", field=name)
    if "main" in symbols.defined:
        message = (
            f"{project.source_name} defines main; it clashes with the main of every program that it is linked with. "
            "Put your tests into a file of their own"
        )
        yield _finding(project, "extra-main", message, field="main")


def _link(project: CProject, work: Workspace, symbols: _Symbols, missing: Sequence[str]) -> Completed:
    """Hide everything but the demanded functions, rename what the harness replaces, link with the driver."""
    prefix = f"h{secrets.token_hex(8)}_"  # so that nothing in the student's object can name our functions
    _add_lines(work, "theirs.sym", (f"{name} {prefix}{name}" for name in _RENAMED))
    _add_lines(work, "ours.sym", (f"harness_{name} {prefix}{name}" for name in _RENAMED))
    _add_lines(work, "api.sym", project.functions)
    sections = [f"--rename-section={old}={new}" for old, new in _SECTIONS.items()]
    objects = ["student.o", "driver.o", "harness.o"]
    steps = [
        ["objcopy", "--redefine-syms=theirs.sym", "--keep-global-symbols=api.sym", *sections]
        + [project.object_name, "student.o"],
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
    return work.run(["gcc", "-no-pie", "-o", "program", *objects], limits=COMPILE_LIMITS)


def _add_lines(work: Workspace, name: str, lines: Iterable[str]) -> None:
    work.add(name, "".join(f"{line}\n" for line in lines).encode())


def _driver_objects(project: CProject) -> dict[str, bytes]:
    """The driver and the harness, compiled once for this compiler and kept between runs."""
    sources = [project.harness, project.harness.with_suffix(".h"), project.driver, project.header]
    parts = [source.read_bytes() for source in sources] + [toolchain.version("gcc").encode(), b"3"]
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


def _compile_findings(
    project: CProject, work: Workspace, compiled: Completed, own_headers: Mapping[str, bytes]
) -> list[Finding]:
    """Ask gcc once more, now for machine-readable messages."""
    if compiled.timed_out or compiled.signal is not None:
        return [_finding(project, "compiler-stopped", "gcc needed too much time or memory for this file and was stopped")]
    option = diagnostics.diagnostics_option(toolchain.gcc_major())
    again = work.run([*project.compile_command, option], limits=COMPILE_LIMITS)
    errors = [diagnostic for diagnostic in diagnostics.parse(again.stderr) if diagnostic.is_error]
    own = own_headers.get(project.header.name)
    if own is not None and own != project.header.read_bytes():
        blamed = _blame_header(project, work, own_headers, errors)
        if blamed is not None:
            return [blamed, *(_gcc_finding(project, error) for error in errors[: _MOST_FINDINGS - 1])]
    errors = list(dict.fromkeys(errors))
    if not errors:
        text = compiled.stderr.decode(errors="replace")[:2000]
        return [_finding(project, "compiler", f"gcc refuses the file: {text}")]
    return [_gcc_finding(project, error) for error in errors[:_MOST_FINDINGS]]


def _blame_header(
    project: CProject, work: Workspace, own_headers: Mapping[str, bytes], errors: Sequence[Diagnostic]
) -> Finding | None:
    """Would it compile with the student's own header? Then the names that only his header declares are missing."""
    try:
        for name, content in own_headers.items():
            work.add(name, content)
        passes = work.run(project.compile_command, limits=COMPILE_LIMITS).succeeded
    finally:
        work.add(project.header.name, project.header.read_bytes())
    if not passes:
        return None
    own_words = set(re.findall(r"\w+", own_headers[project.header.name].decode(errors="replace")))
    official = set(re.findall(r"\w+", project.header.read_text()))
    quoted = [name for error in errors for name in _QUOTED.findall(error.message)]
    missing = [name for name in dict.fromkeys(quoted) if name in own_words - official]
    named = f" Only your header declares: {', '.join(missing)}." if missing else ""
    message = (
        f"it compiles with your own {project.header.name}, but is graded with the official one.{named} "
        f"Move what you need into {project.source_name}"
    )
    return _finding(project, "own-header", message, field=", ".join(missing))


def _gcc_finding(project: CProject, error: Diagnostic) -> Finding:
    option = f" [{error.option}]" if error.option else ""
    place = SourceLine(file=error.file or project.source_name, line=error.line, column=error.column)
    return _finding(
        project,
        "compiler",
        f"{error.message}{option}",
        field=diagnostics.meaning(error),
        source=(place,) if error.line else (),
    )


def _link_finding(project: CProject, linked: Completed) -> Finding:
    """What the linker says, with its own file names taken back to the student's."""
    lines = [line for line in linked.stderr.decode(errors="replace").splitlines() if "collect2" not in line]
    text = "\n".join(line.split(": ", 1)[-1] if line.startswith("/usr/bin/") else line for line in lines)[:2000]
    message = f"it compiles, but cannot be linked: {text.strip()}"
    return _finding(project, "linker", message, field="A function is used that no file defines.")


def _finding(
    project: CProject, kind: str, message: str, *, field: str = "", source: tuple[SourceLine, ...] = ()
) -> Finding:
    return Finding(
        rule=project.rule,
        verdict=Verdict.COMPILE_ERROR,
        tool=Tool.GCC,
        kind=kind,
        message=message,
        field=field,
        source=source,
    )
