"""Let a program walk through the closure of a small engine (harness/closure.c)."""

from __future__ import annotations

import secrets
import struct
from array import array
from dataclasses import replace

from grader.core.closure import Closure
from grader.core.errors import DriverError
from grader.runtime.native.project import Driver, NativeProgram
from grader.runtime.native.replay import EXIT_BAD_PLAN, FrameKind, Frames, encoded, plan_head
from grader.runtime.protocol import Walked
from grader.system.sandbox import RUN_LIMITS, Workspace
from reference.operation import Trace

_CLOSURE = 16
_SECONDS = 3.0
"""For the whole tour, with which a right program is done in less than a second."""


def walk(work: Workspace, program: NativeProgram, closure: Closure, driver: Driver) -> Walked:
    """Return the checksum of each state, or the state and call in which the program ended."""
    token = secrets.randbits(64)
    limits = replace(work.budget.limits, replay=_SECONDS)
    pace = work.budget.pace
    head = plan_head(
        token=token, mode=_CLOSURE, limits=limits, total=_SECONDS, pace=pace, cases=1, confined=work.confined
    )
    calls = encoded(Trace(operations=closure.calls), driver)
    plan = head + struct.pack("<3i", 0, len(closure.calls), len(closure.tour)) + calls + closure.tour.tobytes()
    patience = replace(RUN_LIMITS, own_seconds=max(0.1, min(_SECONDS, work.budget.cpu)))
    done = work.run(
        lambda ends: [f"./{program.place(work)}", *map(str, ends)], limits=patience, feeds=[plan], channels=1
    )
    if done.exit_code == EXIT_BAD_PLAN:
        raise DriverError("the driver could not read the plan of a closure or had no memory")
    sums: array[int] | None = None
    last, fits = -1, True
    for frame in Frames(done.channels[0], token, 1):
        fits = fits and frame.kind != FrameKind.MISFIT
        last = frame.operation if frame.kind == FrameKind.FAULT else last
        if frame.kind == FrameKind.SUMS and len(frame.body) == 4 * len(closure):
            sums = array("I", frame.body)
    state, call = divmod(last, len(closure.calls)) if 0 <= last < len(closure) * len(closure.calls) else (0, 0)
    return Walked(sums=sums, fits=fits, state=state, call=call, cpu_seconds=done.cpu_seconds)
