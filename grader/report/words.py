"""What several formats say in the same words."""

from __future__ import annotations

from grader.record import Record
from grader.report.groups import Group
from grader.verdict import Verdict

__all__ = ["cost_of", "counted", "points_of", "result_of"]

_WORDS = {
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


def result_of(record: Record) -> str:
    """The verdict."""
    if record.verdict is Verdict.COMPILE_ERROR and record.outcomes:
        return "does not build as demanded"
    return _WORDS[record.verdict]


def points_of(record: Record) -> str:
    """The score."""
    return "no score" if record.score is None else f"{record.score} of {record.max_score} points"


def cost_of(group: Group) -> str:
    """How many cases have this cause, and what that costs."""
    points = round(group.lost)
    costs = f"about {counted(points, 'point')}" if points else "less than a point" if group.lost else "no point"
    return f"seen in {counted(len(group.outcomes), 'case')}, costs {costs}"


def counted(number: int, word: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
