"""Words that every report for people uses."""

from __future__ import annotations

from grader.record import Record
from grader.report.groups import Group
from grader.verdict import Verdict

__all__ = ["VERDICTS", "cost_of", "count", "verdict_of"]

VERDICTS = {
    Verdict.ACCEPTED: "accepted",
    Verdict.COMPILE_ERROR: "does not compile",
    Verdict.WRONG_ANSWER: "wrong answer",
    Verdict.RUN_TIME_ERROR: "it crashes",
    Verdict.TIME_LIMIT_EXCEEDED: "a call never returns",
    Verdict.MEMORY_ERROR: "memory error",
    Verdict.MEMORY_LEAK: "memory leak",
    Verdict.REJECTED: "rejected until somebody has looked at it",
    Verdict.JUDGE_ERROR: "the grader failed",
}


def verdict_of(record: Record) -> str:
    """The verdict of a submission, in words."""
    if record.verdict is Verdict.COMPILE_ERROR and record.outcomes:
        return "does not build as demanded"
    return VERDICTS[record.verdict]


def cost_of(group: Group) -> str:
    """In how many cases a cause shows, and what they cost."""
    points = round(group.lost)
    costs = f"about {count(points, 'point')}" if points else "less than a point" if group.lost else "no point"
    return f"seen in {count(len(group.outcomes), 'case')}, costs {costs}"


def count(number: int, word: str) -> str:
    """So many of them."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
