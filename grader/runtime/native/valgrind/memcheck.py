"""Run cases under Valgrind: one process for the public and one for the hidden ones.

Valgrind's start costs more than all cases together, so they share a process. In each process, Valgrind looks for leaks
after the first eight cases that lost something, which gives the lines. The harness's own table of allocations says for
all cases what they lost. Because a program can store into that table, Valgrind also lists, after every few cases, all
memory that was never freed: it may not be more than the cases reported (`Unfreed`).

A program could detect Valgrind and hide its faults there. No state is reported under Valgrind, but the heap after each
operation is, and the total time. The native run showed both too, so a program that behaves differently is noticed.

If Valgrind does not begin, it is run again without the program's debug information, and without an option that old
versions lack. A program for which Valgrind has no room (static zeros above some 1.5 GB) is not checked, and earns no
points for the use of memory. An instruction that Valgrind does not know, such as one of AVX-512, ends a program by
SIGILL, as a trap does. The bytes of the program show which of the two it is. Only a trap costs points.

Only when something is wrong, one further process finds lines that the first could not find. Memcheck cannot mark memory
as readable but not writable. So the line of a store into a shared block, or of a wrong copy, is found only if the block
is forbidden altogether. It also takes additional time to find where an unset value came from.
"""

from __future__ import annotations

import math
import re
import secrets
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest

from grader.core.case import Case
from grader.core.errors import OptionalStages
from grader.core.model import MemorySpan
from grader.core.sanitize import decoded
from grader.core.verdict import SourceLine
from grader.runtime.native.native_played import NativeStep
from grader.runtime.native.project import Driver, NativeProgram
from grader.runtime.native.replay import Frames, plan
from grader.runtime.native.symbolize import run_tool, source_lines
from grader.runtime.native.valgrind.memory_faults import Checked, Classified, Contract, MemoryFault
from grader.runtime.native.valgrind.reports import ReadReport, RunProgress, followed, read
from grader.runtime.protocol import Place
from grader.runtime.runs import by_visibility
from grader.system.budget import Budget
from grader.system.process_tree import MOST_MEMORY, MOST_PROCESSES
from grader.system.sandbox import LINK_LIMITS, RUN_LIMITS, Limits, Workspace

_LEAST_SECONDS, _TIMES_NATIVE = 2.0, 100  # each is several times what Valgrind was seen to need
_MARGIN = 1.15  # the kernel counts by ticks: it ended processes up to 4 % before their limit
_HARNESS_SECONDS = 0.0005  # per native case, for its own process; under Valgrind there is no such process

MOST_RUNS = 4
"""The most processes for one submission in total."""

_MOST_TOGETHER = 3
"""The most processes for a submission's public cases, and the same for its hidden cases."""

_SLOW_SECONDS = 0.03  # of a case natively; slower cases run last, so that they keep no other from being checked
_SLOWER = 1000  # 50 times by Valgrind, and 20 times for an operation that is slower than those around it


def memcheck(
    work: Workspace,
    program: NativeProgram,
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    natively: Mapping[int, float],
    driver: Driver,
    optional: OptionalStages,
    allowed: Mapping[int, Sequence[tuple[MemorySpan, ...]]] | None = None,
    steps: Mapping[int, Sequence[NativeStep]] | None = None,
    strict: bool = False,
    origins: bool = False,
) -> Checked:
    """Run the cases with these numbers under Valgrind. If a process dies, the remaining cases run in another process.

    `natively` is the CPU time in seconds that each case needs without Valgrind, `steps` what the program did natively,
    `allowed` the contract of each case's operations. A silent case is run again, alone, with twice the time, before it
    counts as hanging. `strict`: also find the lines that store into memory that a call may only read, or copy from it;
    run only one process. `origins`: find origins of unset values. `optional` runs the stages that only find lines.
    """
    calls = {number: [operation.name for operation in cases[number].trace.operations] for number in numbers}
    contracts = {number: Contract(calls[number], (allowed or {}).get(number, ()), strict) for number in numbers}
    encoded = {number: contract.encoded() for number, contract in contracts.items()}
    parts = by_visibility(cases, sorted(numbers, key=lambda number: natively[number] > _SLOW_SECONDS))
    limits = work.budget.limits
    patience = _patience(cases, parts, natively, least=limits.checked_silent)
    bare = False

    def most(part: Sequence[int]) -> float:
        return enough(natively[number] for number in part)

    def run_of(part: Sequence[int], times: int) -> ValgrindRun:
        nonlocal bare
        run = partial(
            run_once,
            work,
            program,
            partial(plan, cases, part, driver=driver, contracts=encoded, confined=work.confined),
            times * patience[part[0]],
            planned={number: len(calls[number]) for number in part},
            cpu_seconds=min(limits.checked, _MARGIN * most(part)),
            origins=origins,
            optional=optional,
        )
        done = run(bare=bare)
        if not (done.course.begun or bare or work.budget.empty):  # debug information may be forged: all run without it
            bare = True
            done = run(bare=True)
        return replace(done, too_slow=done.sleeps or (done.by_limit and done.cpu_seconds > most(done.course.begun)))

    processes = _Processes(run_of, work.budget)
    processes.run_parts(parts, 1 if strict else MOST_RUNS)
    return _checked(processes, contracts, numbers, steps or {}, strict=strict)


def _checked(
    processes: _Processes,
    contracts: Mapping[int, Contract],
    numbers: Sequence[int],
    steps: Mapping[int, Sequence[NativeStep]],
    *,
    strict: bool,
) -> Checked:
    """Return what all processes together reported, and how they ended."""
    runs, stopped, hung = processes.runs, processes.stopped, processes.hung
    courses = [run.course for run in runs]
    seen = stopped.keys() | hung.keys() | {number for course in courses for number in course.ended}
    unchecked = tuple(number for number in numbers if number not in seen)
    errors = [error for run in runs for error in run.report.errors]
    counted = {place: count for course in courses for place, count in course.counted.items() if count}
    classified = Classified(contracts, errors, counted)
    return Checked(
        asked=len(numbers),
        errors=tuple(error for error in errors if not error.breach),
        counted={place: count for place, count in counted.items() if not classified.is_breach(place)},
        stopped=stopped,
        hung=hung,
        diverged=diverged(courses, steps, counted.keys()),
        unchecked=unchecked,
        breaches=tuple(classified.breaches),
        left={case: course.left[case] for course in courses for case in course.ended if course.did_all(case)},
        unfreed=tuple(unfreed for run in runs for unfreed in run.report.unfreed),
        stores=classified.lines(stores=True),
        copies=classified.lines(stores=False) if strict else {},
        processes=len(runs),
        cpu_seconds=sum(run.cpu_seconds for run in runs),
        evasion=_evasion(runs, failed=bool(stopped or hung)) if unchecked else "",
        unknown_instruction=any(run.unknown_instruction for run in runs),
        cut=any(run.cut for run in runs),
        unexplained=any(run.unexplained for run in runs),
        unread=tuple(
            (run.course.at, run.report.unread, tuple(run.course.begun))
            for run in runs
            if run.report.unread and run.course.begun
        ),
        refused=next((run.stderr or "it says nothing" for run in runs if not run.course.begun), ""),
    )


def _evasion(runs: Sequence[ValgrindRun], *, failed: bool) -> str:
    """Return how a program kept cases from Valgrind, in words that fit after "the program"; "" if it did not.

    The program is not to blame if the machine was busy, or if Valgrind does not know one of its instructions.
    """
    if any(run.out_of_time or run.unknown_instruction for run in runs):
        return ""
    if not all(run.course.begun for run in runs):
        return "cannot be started under it"
    if failed:
        return "crashes or does not come back under it"
    return "spoils its report" if any(run.report.unread for run in runs) else ""


def _patience(
    cases: Sequence[Case], parts: Iterable[Sequence[int]], natively: Mapping[int, float], *, least: float
) -> dict[int, float]:
    """Return the seconds that each case may be silent: at least `least`, or more if its operations are slow natively.

    Only cases of the same part count: a process of public cases must not learn how long hidden ones took.
    """
    slowest = ((part, max(natively[i] / len(cases[i].trace.operations) for i in part)) for part in parts)
    return {number: max(least, _SLOWER * seconds) for part, seconds in slowest for number in part}


@dataclass(slots=True)
class _Processes:
    """Runs the processes for one submission, and collects the cases that stop or hang in them, and where."""

    run_of: Callable[[Sequence[int], int], ValgrindRun]
    """Runs one process for these cases. The number multiplies the time that a case may be silent."""
    budget: Budget
    runs: list[ValgrindRun] = field(default_factory=list)
    stopped: dict[int, int] = field(default_factory=dict)
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]] = field(default_factory=dict)

    def run_parts(self, parts: Sequence[Sequence[int]], most: int) -> None:
        """Run part after part, in at most `most` processes; the cases of a part may share a process."""
        for later, part in zip(reversed(range(len(parts))), parts, strict=True):
            others = len(self.runs)  # one process is left for each part that follows
            self._run_part(part, min(others + _MOST_TOGETHER, most - later))
            if self.runs and self.runs[-1].gives_up:
                break

    def _run_part(self, numbers: Sequence[int], most: int) -> None:
        """Run process after process until every case was run, or there are `most` processes."""
        left, suspect = list(numbers), None
        while (left or suspect is not None) and len(self.runs) < most and not self.budget.empty:
            run = self.run_of(left, 1) if suspect is None else self.run_of([suspect], 2)
            begun = run.course.begun
            if not begun:
                self.runs.append(replace(run, report=replace(run.report, errors=())))
                break
            left = [number for number in left if number not in begun]
            cut_off = begun[-1] if begun[-1] not in run.course.ended else None
            if suspect is not None:
                self.runs = [earlier.without(suspect) for earlier in self.runs]
            self.runs.append(run)
            hangs = run.hangs and cut_off is not None and not run.gives_up
            if hangs and suspect is None:
                suspect = cut_off
                continue
            suspect = None
            if cut_off is not None and (run.too_slow or hangs):
                self.hung[cut_off] = run.course.at[1], run.report.where
            elif cut_off is not None and not (run.gives_up or run.unknown_instruction or run.report.unread):
                self.stopped[cut_off] = run.course.at[1]
            if run.gives_up:
                break


def enough(natively: Iterable[float]) -> float:
    """Return the most CPU seconds that Valgrind needs for cases that took the seconds `natively`."""
    return _LEAST_SECONDS + _TIMES_NATIVE * sum(max(0.0, seconds - _HARNESS_SECONDS) for seconds in natively)


def diverged(
    courses: Iterable[RunProgress], steps: Mapping[int, Sequence[NativeStep]], wrong: Collection[Place]
) -> dict[int, int]:
    """Return for each case the first operation that differs from the native run, if no error by then explains it."""
    first_differing: dict[int, int] = {}
    for course in courses:
        for case, did in course.did.items():
            natively = [(step.allocations, step.frees, step.live) for step in steps.get(case, ())]
            pairs = zip_longest(did, natively) if case in course.ended else zip(did, natively, strict=False)
            first = next((number for number, (here, there) in enumerate(pairs) if here != there), None)
            if natively and first is not None and not any((case, number) in wrong for number in range(first + 1)):
                first_differing[case] = first
    return first_differing


def completed(checked: Checked, more: Checked) -> Checked:
    """Return `checked`, completed by a second run that looked for lines. `more` adds lines, but no errors or cases."""
    origins = {_identity(error): error.auxiliary for error in more.errors if error.unset}
    return replace(
        checked,
        errors=tuple(
            replace(error, auxiliary=error.auxiliary or origins.get(_identity(error), ())) for error in checked.errors
        ),
        stores=more.stores | checked.stores,
        copies=more.copies,
        processes=checked.processes + more.processes,
        cpu_seconds=checked.cpu_seconds + more.cpu_seconds,
    )


def _identity(error: MemoryFault) -> tuple[object, ...]:
    return error.case, error.operation, error.kind, error.lines


_WALL_SECONDS = 60.0
_START_SECONDS, _BARE_START_SECONDS = 1.5, 8.0
"""Limits of the time before the first case, with debug information and without it (Valgrind needs 0.15 s)."""
_MOST_OF = 0.7  # a process that was killed after this part of its CPU limit reached it: the kernel counts by ticks
_EXIT_BY_STUDENT, _LAST_WORD = 98, b"</valgrindoutput>"
_HARNESS_EXITS = (0, 97, _EXIT_BY_STUDENT, 99, 100)
"""Exit codes after which Valgrind always completes its report; inside.h has their names."""

_LONGEST_INSTRUCTION = 15
_MADE_TO_TRAP = re.compile(r"\(bad\)|\.|ud|int|brk|hlt")
"""The beginnings of what objdump prints for bytes that are no instruction, and for instructions that always trap."""

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
"""With this option, Valgrind translates the target of a jump once, not once for each jump: a tenth of the time less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValgrindRun:
    """What one process of Valgrind reported."""

    course: RunProgress
    report: ReadReport
    hangs: bool
    out_of_time: bool
    """Whether the process was ended because the machine is busy, which is not the program's fault."""
    by_limit: bool
    """Whether the process was ended for the total time that it used."""
    sleeps: bool
    """Whether the process used less CPU time than its limit and slept for the rest. No program needs to sleep."""
    stderr: str
    cpu_seconds: float
    cut: bool
    """Whether the report lacks its end, although the program came to its own end and the grader ended nothing."""
    unexplained: bool
    unknown_instruction: bool = False
    """Whether an instruction that Valgrind does not know ended the process."""
    too_slow: bool = False
    """Whether the process used far more time than Valgrind needs for what its cases do natively."""

    @property
    def gives_up(self) -> bool:
        """Whether no further process would help."""
        return not self.course.begun or self.out_of_time or self.by_limit

    def without(self, case: int) -> ValgrindRun:
        """Return the run without what was reported of that case."""
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
    own_limit = max(0.1, min(cpu_limit, work.budget.cpu))  # the time left may be less than the smallest `cpu_limit`
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
    look_up = partial(source_lines, work, program, checked=True)
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
    """Return whether the bytes at the address are an instruction, and not one that always ends the program."""
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

    `bare`: without debug information, on which Valgrind may fail. The grader looks up lines itself.
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
