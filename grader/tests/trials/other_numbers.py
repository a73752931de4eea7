"""`python -m grader.tests.trials.other_numbers`: paged_kv with 32 records a block and tables of 8; about two minutes.

The header of a copied house gets other numbers, and nothing else in the copy is changed. What must hold: every case is
valid, accepted programs that use the header's macros keep all points, and 30 wrong ones keep their verdicts. A program
uses the macros if its code has none of the numbers that change. The 30 are taken evenly from all such wrong samples.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from grader.assignment.samples import program_of, samples_in
from grader.core.verdict import Verdict
from grader.tests.support.command import ROOT, SAMPLES, copy_of_the_house, grade_process
from grader.tests.support.hunting import HOSTILE
from reference.paged_kv.constants import CONSTANTS, HEADER

_NUMBERS = {"BLOCK_SIZE": 128, "KV_PER_BLOCK": 32, "L1_PT_SIZE": 8, "L2_PT_SIZE": 8, "MAX_LOGICAL_BLOCKS": 64}
_WRONG = 30
_SOURCE = "llm_memory.c"
_NO_CODE = re.compile(rb'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_WRITTEN = re.compile(rb"(?<![\w.])[0-9]+")
_NOT_PLAYED = (Verdict.ACCEPTED, Verdict.COMPILE_ERROR, Verdict.REJECTED)


def main() -> int:
    """Run the trial and print the results; return the exit code."""
    programs = dict(_with_macros())
    right = [name for name in programs if name.startswith(f"{Verdict.ACCEPTED}/")]
    wrong = [name for name in programs if not name.startswith(_NOT_PLAYED)]
    wrong = [wrong[place * len(wrong) // _WRONG] for place in range(_WRONG)]
    with tempfile.TemporaryDirectory(prefix="other-numbers-") as folder:
        house = copy_of_the_house(Path(folder, "house"))
        header = house / HEADER.relative_to(ROOT)
        header.write_text(_with_other_numbers(header.read_text(encoding="utf-8")), encoding="utf-8")
        cases = grade_process("cases", "--lab", "paged_kv", cwd=house, root=house)
        for name in (*right, *wrong):
            (house / "in" / name).mkdir(parents=True)
            (house / "in" / name / _SOURCE).write_bytes(programs[name])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            graded = dict(zip((*right, *wrong), pool.map(partial(_graded, house), (*right, *wrong)), strict=True))
    less = [name for name in right if graded[name] != (Verdict.ACCEPTED, 100)]
    other = [f"{name} ({graded[name][0]})" for name in wrong if graded[name][0] != name.partition("/")[0]]
    lines = (
        (f"every case is valid: {cases.err or 'yes'}", cases.code == 0),
        (f"of {len(right)} accepted programs with macros, these lose points: {less}", bool(right) and not less),
        (f"of {len(wrong)} wrong ones, these have another verdict: {other}", not other),
    )
    for line, held in lines:
        sys.stdout.write(f"{'holds ' if held else 'BROKEN'}  {line}\n")
    return 0 if all(held for _, held in lines) else 1


def _with_macros() -> Iterator[tuple[str, bytes]]:
    """Yield name and program of the samples that have none of the numbers which change; no hostile ones."""
    changing = {b"%d" % CONSTANTS[name] for name in _NUMBERS}
    for sample in samples_in(SAMPLES, _SOURCE):
        program = program_of(sample, _SOURCE)
        if HOSTILE not in sample.name and changing.isdisjoint(_WRITTEN.findall(_NO_CODE.sub(b" ", program))):
            yield f"{sample.parent.name}/{sample.name}", program


def _with_other_numbers(header: str) -> str:
    for name, number in _NUMBERS.items():
        header, count = re.subn(rf"(#define {name}) \d+", rf"\1 {number}", header)
        assert count == 1, name
    return header


def _graded(house: Path, name: str) -> tuple[str, int]:
    """Return verdict and points of a program in that house."""
    run = grade_process("run", house / "in" / name, "--lab", "paged_kv", "--format", "json", cwd=house, root=house)
    record = json.loads(run.out)
    return record["verdict"], record["score"]


if __name__ == "__main__":
    sys.exit(main())
