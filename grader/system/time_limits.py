"""How long one submission may take. All limits that a slow or hanging program can reach are in one record.

Seconds are those that a program computes or sleeps, never those that it waits for a processor: on a busy machine
everything takes longer, but nothing counts as slow because of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Seconds; grader.system.budget explains how they work together. Smaller ones are for tests."""

    submission: float = 7.0
    """For everything: its programs, the compiler's, and the grader's own computation. A correct one needs about 1."""
    replay: float = 5.0
    """For all cases of a C submission in all processes, without the memory checker. A correct program needs 0.1."""
    second_replay: float = 2.0
    """The same for a run of some cases that only adds details, such as lines."""
    operation: float = 0.06
    """For an operation of a call that never hung. A correct program needs 0.00006."""
    least_operation: float = 0.003
    """For an operation of a call that is proven to hang, however little is left of `hangs`."""
    hangs: float = 0.9
    """For all operations of all calls that are proven to hang."""
    python_replay: float = 5.0
    """For all cases of a Python submission in all processes, beside the time for everything else; see the next one."""
    python_trace: float = 0.01
    """As much again for each trace, random ones counted singly. A correct program needs a quarter of all this."""
    python_operation: float = 0.5
    """For an operation of a Python submission. A correct program needs 0.00001."""
    python_least: float = 0.03
    """For an operation of a Python call that is proven to hang, however little is left of `hangs`."""
    silent: float = 2.0
    """Without a report. The harness reports after every operation, and after every hang."""
    checked_silent: float = 0.3
    """Without a report, under the memory checker. A correct program needs a few milliseconds for an operation."""
    checked: float = 8.0
    """For one process under the memory checker."""


TIME_LIMITS = TimeLimits()
"""Those of every submission."""
