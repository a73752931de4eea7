"""The shelf and the ring as labs, for tests: submissions of them, and the command line that knows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.classroom.workers import grading_plan
from grader.cli import batch
from grader.core.picture import Drawing
from grader.core.record import Record
from grader.labs import LABS, LabEntry
from grader.system.budget import TIME_LIMITS, Budget, TimeLimits
from grader.tests.support import toy_c
from grader.tests.support.counter_lab import in_process
from grader.tests.support.toy.lab import lab as toy
from grader.tests.support.toy_c.lab import lab as ring

lab = cache(toy)
"""The lab of the shelf."""

RIGHT = '''"""A right shelf."""

from dataclasses import dataclass


@dataclass(eq=False)
class Box:
    users: int = 0


class Shelf:
    def __init__(self, count):
        self.boxes = [Box() for _ in range(count)]
        self.free = list(self.boxes)
        self.names = {}

    def take(self, count):
        if count > len(self.free):
            raise ValueError("too few boxes are free")
        taken = [self.free.pop(0) for _ in range(count)]
        for box in taken:
            box.users = 1
        return taken

    def give(self, boxes):
        if any(box.users == 0 for box in boxes):
            raise ValueError("a box has no user")
        for box in boxes:
            box.users -= 1
        self.free += [box for box in boxes if box.users == 0]

    def label(self, word, box):
        self.names[word] = box

    def find(self, word):
        return self.names.get(word)

    def usage(self):
        return sum(box.users > 0 for box in self.boxes) / len(self.boxes)
'''


def edited(*changes: tuple[str, str]) -> str:
    """The right shelf with texts replaced, each of which must be there."""
    text = RIGHT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


WRONG = edited(("self.free += [box for box in boxes if box.users == 0]", "self.free[:0] = boxes"))
"""Boxes go to the front of the queue."""

RING = (Path(toy_c.__file__).parent / "right.c").read_text(encoding="utf-8")
"""A right ring."""
ROUND = "(ring->first + 1) % ring->capacity"
"""Where it goes round."""
WRONG_RING = RING.replace(ROUND, "ring->first + 1")


def graded(folder: Path, source: str | bytes, limits: TimeLimits = TIME_LIMITS) -> Record:
    """The record of this shelf."""
    content = source if isinstance(source, bytes) else source.encode()
    (folder / "shelf.py").write_bytes(content)
    cases = select_cases(lab(), seed=1).cases
    return pipeline.grade(folder, lab(), cases, draw=Drawing.ALL, budget=Budget(limits))


def toy_in_process() -> AbstractContextManager[None]:
    """Let the shelf be a lab, and let commands grade in this process."""
    return lab_in_process("toy", LabEntry("shelf.py", lab))


def ring_in_process() -> AbstractContextManager[None]:
    """Let the ring be a lab, and let commands grade in this process."""
    return lab_in_process("ring", LabEntry("ring.c", ring))


@contextmanager
def lab_in_process(name: str, entry: LabEntry) -> Iterator[None]:
    """Let this be a lab, and let commands grade in this process."""
    with patch.dict(LABS, {name: entry}), patch.object(batch, "ProcessPool", lambda _: in_process()):
        grading_plan.cache_clear()
        try:
            yield
        finally:
            grading_plan.cache_clear()
