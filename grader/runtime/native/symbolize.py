"""Map addresses to lines of the student's file, by the debug lines of program or object (binutils' addr2line).

addr2line is used because it knows functions that gcc inlined, and binutils is needed for objcopy anyway. If it fails
on a file's debug lines and not on those of /bin/sh, or needs too long for them, no line is known; that costs no point.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grader.core.errors import BrokenTool
from grader.core.sanitize import decoded
from grader.core.verdict import SourceLine
from grader.runtime.native.project import NativeProgram
from grader.system.process import Completed
from grader.system.sandbox import Limits, Workspace

Lines = Mapping[tuple[int, ...], tuple[SourceLine, ...]]
"""The student's lines for each stack of addresses."""

_AT_ONCE, _MOST_ADDRESSES = 2000, 20_000
_TRIES = 2
_LIMITS = Limits(wall_seconds=30, cpu_seconds=2, address_space=160 << 20)
"""An ordinary program needs 0.02 seconds and 30 MB."""
_ENDED_BY_LIMIT = (signal.SIGKILL, signal.SIGXCPU)
_MOST_OF = 0.7  # a tool that was killed after this part of its CPU limit reached it: the kernel counts by ticks
_KNOWN_GOOD = "/bin/sh"
"""A program whose debug lines are not forged: if addr2line fails on it, addr2line is at fault."""
_NUMBER = re.compile("[0-9]{1,7}")
_ADDRESS = re.compile("0x[0-9a-f]+")


def source_lines(
    work: Workspace, program: NativeProgram, stacks: Iterable[tuple[int, ...]], *, checked: bool = False
) -> dict[tuple[int, ...], tuple[SourceLine, ...]]:
    """Return the student's lines on each stack of return addresses, innermost first; functions inlined by gcc included.

    The first address of a stack is taken as it is (where a fault happened), the others as return addresses: the
    call is the instruction before. `checked`: the addresses are those of the program that Valgrind runs. If there are
    more than `_MOST_ADDRESSES`, the last ones have no lines.
    """
    wanted = list(dict.fromkeys(stacks))
    addresses = sorted({address for stack in wanted for address in _call_sites(stack)})
    if not addresses:
        return dict.fromkeys(wanted, ())
    place = program.place(work, checked=checked)
    lines: dict[int, list[SourceLine]] = {}
    for start in range(0, min(len(addresses), _MOST_ADDRESSES), _AT_ONCE):
        lines |= lines_at(work, place, addresses[start : start + _AT_ONCE], program.source_name)
    frames = {stack: [line for address in _call_sites(stack) for line in lines.get(address, ())] for stack in wanted}
    return {stack: tuple(dict.fromkeys(stack_lines)) for stack, stack_lines in frames.items()}


def stack_of(address: int) -> tuple[int, ...]:
    """Return a stack with only this return address, whose call is the instruction before it; empty for address 0."""
    return (0, address) if address else ()


def _call_sites(stack: tuple[int, ...]) -> tuple[int, ...]:
    return (*stack[:1], *(address - 1 for address in stack[1:] if address))


def run_tool(work: Workspace, command: Sequence[str]) -> Completed | None:
    """Run addr2line or objdump with what is left of the time for both tools; None if no time is left.

    Returns None also if the run uses up the time. Nothing is left then, because a file that makes one of the tools
    slow makes both slow.
    """
    left = work.budget.lines
    if left <= 0:
        return None
    done = work.run(command, limits=replace(_LIMITS, cpu_seconds=math.ceil(left)))
    by_limit = done.signal in _ENDED_BY_LIMIT and done.cpu_seconds > _MOST_OF * left
    work.budget.lines = 0.0 if by_limit else left - done.cpu_seconds
    return None if by_limit else done


def lines_at(
    work: Workspace, file: str, addresses: Sequence[int], source_name: str, *, section: str = ""
) -> dict[int, list[SourceLine]]:
    """Return the lines of `source_name` at each of these addresses, innermost first; an address may have none.

    In an object file an address is an offset in `section`. Debug lines may be forged: if addr2line fails on them and
    on nothing else, or needs too long, no line is known. Raises `BrokenTool` if it fails on /bin/sh too.
    """
    place = [f"--section={section}"] if section else []
    command = ["addr2line", "-a", "-i", "-f", *place, "-e", file]
    for _ in range(_TRIES):
        done = run_tool(work, [*command, *map(hex, addresses)])
        if done is None:
            return {}
        lines = _answers(decoded(done.stdout), source_name)
        if done.succeeded and lines.keys() >= set(addresses):
            return lines
        if "stdout" in done.cut and lines:  # names of thousands of characters: the rest is not worth more time
            lines.popitem()
            return lines
        if done.timed_out:
            break
    known_good = work.run(["addr2line", "-a", "-f", "-e", _KNOWN_GOOD, "0x0"], limits=_LIMITS)
    if not known_good.succeeded or 0 not in _answers(decoded(known_good.stdout), source_name):
        raise BrokenTool(f"addr2line failed: {known_good.stderr.decode(errors='replace').strip() or 'it says nothing'}")
    return {}


def _answers(output: str, source_name: str) -> dict[int, list[SourceLine]]:
    lines: dict[int, list[SourceLine]] = {}
    frames: list[str] = []
    current = -1
    for text in [*output.splitlines(), "0x0"]:
        if len(frames) % 2 == 0 and _ADDRESS.fullmatch(text):  # a function name may hold any text
            lines[current] = list(_frames(frames, source_name))
            current, frames = int(text, 16), []
        else:
            frames.append(text)
    return lines


def _frames(texts: list[str], source_name: str) -> Iterable[SourceLine]:
    for function, place in zip(texts[::2], texts[1::2], strict=False):
        file, _, line = place.split(" (discriminator")[0].rpartition(":")
        if Path(file).name == source_name and _NUMBER.fullmatch(line):
            yield SourceLine(file=source_name, line=int(line), function=function)
