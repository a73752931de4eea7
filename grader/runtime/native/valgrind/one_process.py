"""One process of Valgrind over some cases: what it reported, and how it ended.

Where Valgrind does not begin, it is run again without the program's debug information, and without an option that an
old one does not know. A program that it has no room
for (static zeros above some 1.5 GB) is not checked: it earns no points for the use of memory.

An instruction that Valgrind does not know, such as one of AVX-512, ends a program by SIGILL, as a trap does. The linked
program tells them apart. No case that ends so costs a point.
"""

from __future__ import annotations

import math
import re
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from grader.core.optional_stages import OptionalStages
from grader.core.sanitize import decoded
from grader.core.verdict import SourceLine
from grader.runtime.native.project import NativeProgram
from grader.runtime.native.replay import Frames
from grader.runtime.native.symbolize import run_tool, source_lines
from grader.runtime.native.valgrind.reports import ReadReport, RunProgress, Stack, followed, read
from grader.system.process_tree import MOST_MEMORY, MOST_PROCESSES
from grader.system.sandbox import LINK_LIMITS, RUN_LIMITS, Limits, Workspace

_WALL_SECONDS = 60.0
_START_SECONDS, _BARE_START_SECONDS = 1.5, 8.0
"""Limits before the first case (Valgrind needs 0.15 s): with the program's debug information and without it."""
_MOST_OF = 0.7  # part of its limit: the kernel counts by ticks and is not exact
_EXIT_BY_STUDENT, _LAST_WORD = 98, b"</valgrindoutput>"
_HARNESS_EXITS = (0, 97, _EXIT_BY_STUDENT, 99, 100)
"""Exit codes after which Valgrind always completes its report; inside.h has their names."""

_LONGEST_INSTRUCTION = 15
_MADE_TO_TRAP = re.compile(r"\(bad\)|\.|ud|int|brk|hlt")
"""The beginning of what objdump prints for bytes that are no instruction, and for instructions that end any program."""

_COMMAND = (
    "valgrind",
    "--tool=memcheck",
    "--xml=yes",
    "--error-limit=no",
    "--redzone-size=128",
    "--leak-check=no",  # at the end; the harness requests one after each case that left memory allocated
    "--show-leak-kinds=all",
    "--num-callers=24",
    "--read-inline-info=no",  # saves a quarter of the start-up; reports.py finds the names that are lost
    "--vgdb=no",
    "--sanity-level=0",  # it would search its own tables twice, which only serves its developers
    "--demangle=no",  # C has no mangled names, and some demangled names grow to gigabytes
    "--command-line-only=yes",  # no options from a file that the program may have left for the next run
)


_WITHOUT_CHASING = "--vex-guest-chase=no"
"""Code behind a jump is translated once, not again with all code that jumps there: a tenth of the time of all cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValgrindRun:
    """What one process of Valgrind reported."""

    course: RunProgress
    report: ReadReport
    hangs: bool
    out_of_time: bool
    """Whether it was ended because the machine is busy, which is not the program's fault."""
    by_limit: bool
    """Whether it was ended for the total time that it used."""
    sleeps: bool
    """Whether it used less CPU time than its limit and slept for the rest. No program needs to sleep."""
    stderr: str
    cpu_seconds: float
    cut: bool
    """Whether the report lacks its end, although the program came to its own end and the grader ended nothing."""
    unexplained: bool
    unknown_instruction: bool = False
    """Whether an instruction ended it that Valgrind does not know."""
    too_slow: bool = False
    """Whether it used far more time than Valgrind needs for what its cases do natively."""

    @property
    def gives_up(self) -> bool:
        """Whether no further process would help."""
        return not self.course.begun or self.out_of_time or self.by_limit

    def without(self, case: int) -> ValgrindRun:
        """Return the same run without what belongs to that case."""
        errors = tuple(error for error in self.report.errors if error.case != case)
        counted = {place: count for place, count in self.course.counted.items() if place[0] != case}
        did = {number: steps for number, steps in self.course.did.items() if number != case}
        course = replace(self.course, counted=counted, did=did)
        return replace(self, course=course, report=replace(self.report, errors=errors))


def run_once(
    work: Workspace,
    program: NativeProgram,
    feed: Callable[..., bytes],
    patience: float,
    *,
    planned: Mapping[int, int],
    cpu_seconds: float,
    origins: bool,
    optional: OptionalStages,
    bare: bool = False,
) -> ValgrindRun:
    """Run one process for the cases of `planned`; end it after `patience` seconds of silence. `bare`: see `_placed`."""
    token = secrets.randbits(64)
    cpu_limit = work.budget.cpu_limit(math.ceil(cpu_seconds))
    own_limit = max(
        0.1, min(cpu_limit, work.budget.cpu)
    )  # what is left for it may be less than a kernel's limit can be
    done = work.run(
        lambda ends: [
            *_COMMAND,
            *([] if bare else [_WITHOUT_CHASING]),
            *(["--track-origins=yes"] if origins else []),
            f"--xml-fd={ends[2]}",
            f"./{_placed(work, program, bare=bare)}",
            *map(str, ends[:2]),
        ],
        limits=_limits(patience, cpu_limit, own_limit, bare=bare),
        feeds=[feed(token=token)],
        channels=2,
    )
    reports, document = done.channels
    frames = Frames(reports, token, sum(planned.values()))
    course = followed(frames, planned, token)

    def look_up(stacks: Sequence[Stack]) -> Mapping[Stack, tuple[SourceLine, ...]]:
        return source_lines(work, program, stacks, checked=True)

    report = read(document, course, program.source_name, look_up, optional=optional)
    worked = done.cpu_seconds > _MOST_OF * cpu_limit
    by_limit = done.slow or (done.signal in (signal.SIGKILL, signal.SIGXCPU) and worked)
    ended = by_limit or done.timed_out or done.flooded or done.large
    complete = ended or report.unread or document.rstrip().endswith(_LAST_WORD)
    cut = not complete and (course.through or done.exit_code in _HARNESS_EXITS)
    unknown = done.signal == signal.SIGILL and _is_instruction(work, program, report.fatal_at)
    explained = ended or cut or unknown or done.exit_code == _EXIT_BY_STUDENT
    unread = _unread(report.unread, large=done.large, too_much=done.flooded or frames.too_many, cut=cut)
    return ValgrindRun(
        course=course,
        report=replace(report, unread=unread),
        hangs=done.silent,
        out_of_time=done.timed_out and not done.silent,
        by_limit=by_limit,
        sleeps=done.slow and done.cpu_seconds <= _MOST_OF * own_limit,
        stderr=done.stderr.decode(errors="replace").strip()[-500:],
        cpu_seconds=done.cpu_seconds,
        unexplained=not (explained or course.ended.issuperset(course.begun)),
        cut=cut,
        unknown_instruction=unknown,
    )


def _is_instruction(work: Workspace, program: NativeProgram, address: int) -> bool:
    """Whether an instruction of the program begins at the address that can do anything but end it."""
    window = [f"--start-address={address}", f"--stop-address={address + _LONGEST_INSTRUCTION}"]
    place = program.place(work, checked=True)
    done = run_tool(work, ["objdump", "-d", "--no-show-raw-insn", *window, place]) if address else None
    line = re.search(rf"^ *{address:x}:\t(\S+)", decoded(done.stdout), re.MULTILINE) if done is not None else None
    return line is not None and not _MADE_TO_TRAP.match(line[1])


def _unread(unread: str, *, large: bool, too_much: bool, cut: bool) -> str:
    """Return why a process's report could not be read in full, in words that fit after "its report"; else ""."""
    if large:
        most = f"more than {MOST_MEMORY >> 20} MB of memory or {MOST_PROCESSES} processes"
        return f"was cut off, for the program takes {most}"
    if unread:
        return unread
    if too_much:
        return "comes with more messages than any program needs"
    return "was cut off before its end" if cut else ""


def _placed(work: Workspace, program: NativeProgram, *, bare: bool) -> str:
    """Put the program into the workspace and return its name.

    `bare`: without debug information, on which Valgrind may fail; lines are looked up anyway.
    """
    name = program.place(work, checked=True)
    if not bare:
        return name
    bare_name = f"bare{secrets.token_hex(8)}"  # an earlier program may have left a file under a known name
    work.run(["objcopy", "--strip-debug", name, bare_name], limits=LINK_LIMITS)
    return bare_name


def _limits(patience: float, cpu_seconds: int, own_seconds: float, *, bare: bool) -> Limits:
    return replace(
        RUN_LIMITS,
        sees_processes=False,
        sees_itself=True,
        wall_seconds=_WALL_SECONDS,
        cpu_seconds=cpu_seconds,
        address_space=None,
        open_files=None,
        own_seconds=own_seconds,
        silent_seconds=patience,
        silent_start_seconds=_BARE_START_SECONDS if bare else _START_SECONDS,
    )
