"""Exceptions in the middle of the stages that cannot change points, at random calls of the functions inside them."""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest.mock import patch

from grader.core.errors import CannotStart, DriverError, OptionalStages, OutOfRoom, TooBusy

ERRORS: tuple[Callable[[str], Exception], ...] = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, IndexError, KeyError, MemoryError, NameError),
    *(OSError, OverflowError, RecursionError, RuntimeError, TypeError, ValueError, ZeroDivisionError, struct.error),
    *(CannotStart, DriverError, OutOfRoom, TooBusy),
    lambda words: UnicodeDecodeError("utf-8", b"\xff", 0, 1, words),
)

INSIDE = (
    *("judge.case_findings:hint", "judge.case_findings:sentence", "judge.case_findings:_beside", "judge.calls:comb"),
    *("runtime.native.runtime:stacks_of", "pipeline:compare", "pipeline:rule_scores"),
    *("result.assemble:decoded", "result.assemble:decoded_lines"),
    *("result.draw_states:_scenes", "result.draw_states:panels_of", "result.draw_states:_fewer"),
    *("result.draw_states:_program", "result.draw_states:_expected"),
    *("runtime.native.advice:_undefined", "runtime.native.advice:_to_fail", "runtime.native.advice:_failures"),
    *("runtime.native.advice:_failure_advice", "runtime.native.advice:_scratch_advice", "runtime.native.advice:replay"),
    *("runtime.native.lines:_followed", "runtime.native.lines:_return_of"),
    *("runtime.native.compile.build:link", "runtime.native.compile.libc_names:doubtful"),
    *("runtime.native.symptoms:replay", "runtime.native.symptoms:_completed_events", "runtime.native.symptoms:_live"),
    *("runtime.native.lines:replay", "runtime.native.lines:_report_of", "runtime.native.lines:_origin"),
    *("runtime.native.lines:_right_stores", "runtime.native.lines:_places", "runtime.native.lines:_decoded"),
    *("runtime.native.replay:_take_down", "runtime.native.runtime:memcheck", "runtime.native.runtime:completed"),
    *("runtime.native.symbolize:run_tool", "runtime.native.symbolize:_answers", "runtime.native.symbolize:_frames"),
    *("runtime.native.valgrind.memory_faults:_touched", "runtime.native.valgrind.memcheck:_identity"),
    *("system.sandbox:Workspace.add", "system.sandbox:Workspace.run", "system.sandbox:Workspace.read"),
)
"""Functions that are called within such stages, some of them elsewhere too: there they work."""


@dataclass(slots=True)
class Failing:
    """Raises in the functions of `inside` with a chance of `share`, but only within optional stages."""

    chance: random.Random
    share: float
    inside: tuple[str, ...] = INSIDE
    raised: int = 0
    _depth: int = field(default=0, init=False)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let them fail until the end."""
        run = OptionalStages.run

        def counted(*args: Any, **options: Any) -> Any:
            self._depth += 1
            try:
                return run(*args, **options)
            finally:
                self._depth -= 1

        with ExitStack() as stack:
            stack.enter_context(patch.object(OptionalStages, "run", counted))
            for name in self.inside:
                module, _, path = name.partition(":")
                *owners, function = path.split(".")
                owner = functools.reduce(getattr, owners, import_module(f"grader.{module}"))
                stack.enter_context(patch.object(owner, function, self._around(getattr(owner, function), name)))
            yield

    def _around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def failing(*args: Any, **options: Any) -> Any:
            if self._depth and self.chance.random() < self.share:
                self.raised += 1
                raise self.chance.choice(ERRORS)(f"raised in {name}")
            return function(*args, **options)

        return failing
