"""Placeholder."""
from grader.record import Record
def render(record: Record) -> str:
    return f"{record.verdict} {record.score}/{record.max_score}\n{record.diagnosis}\n"
