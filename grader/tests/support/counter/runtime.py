"""How a counter runs: the grader's own script reads the submission, calls its functions, and reports the total."""

# ruff: noqa: ARG002 - the interface has arguments that a shell does not need

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from grader.core.case import Case
from grader.core.errors import OptionalStages
from grader.core.verdict import Finding, SourceLine, Tool, Verdict
from grader.runtime.protocol import Built, Ending, GradingOptions, Played, PlayedStep, Program, Replayed, Runtime
from grader.system.resources import NeededTool
from grader.system.sandbox import RUN_LIMITS, Workspace
from grader.tests.support.counter.model import pack
from reference.operation import written

_DRIVER = """
. ./counter.sh
while read -r call number; do
    "$call" $number && reply=0 || reply=-1
    [ "$call" != add_all ] || reply=${total:-0}
    echo "$reply ${total:-0}"
done <calls
"""
_RULE = "starts"
_LIMITS = replace(RUN_LIMITS, cpu_seconds=1)


class ShellRuntime(Runtime):
    """See `grader.runtime.protocol.Runtime`."""

    source_name = "counter.sh"

    language = "sh"

    programs = ("sh",)

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """A shell."""
        return (NeededTool(name="sh", purpose="runs the submission", makes=Tool.BUILD),)

    def build(
        self,
        work: Workspace,
        source: bytes,
        *,
        beside: Mapping[str, bytes],
        optional: OptionalStages,
        relaxed: bool = False,
        allowed: frozenset[str] = frozenset(),
        stock: bool = False,
    ) -> Built:
        """Let the shell read the file."""
        work.add(self.source_name, source)
        done = work.run(["sh", "-n", self.source_name], limits=RUN_LIMITS)
        if done.succeeded:
            return Built(program=Program(content=source, source_name=self.source_name), command="sh -n counter.sh")
        said = done.stderr.decode(errors="replace")
        number = re.search(r"\b(\d+):", said)
        line = SourceLine(file=self.source_name, line=int(number[1]) if number else 1)
        finding = Finding(
            rule=_RULE,
            verdict=Verdict.COMPILE_ERROR,
            kind="syntax",
            message=said.strip(),
            source=(line,),
            tool=Tool.BUILD,
        )
        return Built(program=None, findings=(finding,))

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Run each case in a process of its own."""
        work.add(program.source_name, program.content)
        work.add("driver.sh", _DRIVER.encode())
        return Replayed(played=tuple(self._played(work, case) for case in cases), output=b"", cpu_seconds=0.0)

    def _played(self, work: Workspace, case: Case) -> Played:
        calls = [
            f"{one.name} {' '.join(re.findall(r'[0-9]+', written(one.arguments)))}\n" for one in case.trace.operations
        ]
        work.add("calls", "".join(calls).encode())
        done = work.run(["sh", "driver.sh"], limits=_LIMITS)
        lines = done.stdout.decode(errors="replace").splitlines()[: len(calls)]
        reports = [re.fullmatch(r"(-?\d{1,9}) (-?\d{1,9})", line) for line in lines]
        steps = [PlayedStep(record=pack(int(report[1]), int(report[2]))) for report in reports if report is not None]
        played = Played(case=case, steps=steps)
        if not played.complete:
            hangs = f"{played.next_call} does not come back within its time limit"
            dies = f"the program ended inside {played.next_call} without reporting why"
            played.bad_end = (
                Ending(kind="hang", verdict=Verdict.TIME_LIMIT_EXCEEDED, sentence=hangs)
                if done.signal is not None
                else Ending(kind="stopped", verdict=Verdict.RUN_TIME_ERROR, sentence=dies)
            )
        return played
