"""Modules of the lab that a submission may import: executed anew for each case, and calls on them are recorded."""

from __future__ import annotations

import json

from grader.runtime.python import process
from grader.runtime.python.table import CallTable
from grader.system import sandbox

_DEVICE = """
import math

LIMIT = 3


class Device:
    def __init__(self):
        self.copied = []

    def copy(self, block, *, to):
        self._note(block)
        return math.floor(to)

    def _note(self, block):
        self.copied.append(block)


def reset(*devices):
    return len(devices)
"""
_ENGINE = """
from device import LIMIT, Device, reset


class Engine:
    def __init__(self):
        self.device = Device()

    def run(self, count):
        for number in range(count):
            self.device.copy(number, to=number + 0.5)
        reset(self.device)
        return LIMIT
"""
_TABLE = CallTable(
    setup="from engine import Engine",
    calls={"engine": "engine = Engine()", "run": "engine.run(count)"},
    parameters={"engine": (), "run": ("count",)},
    reads={"calls": "calls_of('device')"},
)


def records(source: str) -> list[object]:
    """What an engine leaves after being made, after two copies, and after none."""
    operations = [["engine", []], ["run", [2]], ["run", [0]]]
    with sandbox.workspace(tools=(process.interpreter(),)) as work:
        plan = [{"case": 0, "operations": operations}]
        done = process.run(work, source.encode(), _TABLE, plan, given={"device": _DEVICE}, total=5.0)
    frames = process.frames(done.channels[0])
    return [json.loads(frame.body) for frame in frames if frame.kind in "SX"]


def test_calls_on_a_given_module_are_recorded() -> None:
    """Public functions and methods, with their arguments; what a method of the module itself calls is not."""
    made, copied, none = records(_ENGINE)

    assert made == {"reply": {"returned": None}, "state": {"calls": []}}
    assert copied == {
        "reply": {"returned": 3},
        "state": {"calls": [["Device.copy", 0, 0.5], ["Device.copy", 1, 1.5], ["reset", "?"]]},
    }
    assert none == {"reply": {"returned": 3}, "state": {"calls": [["reset", "?"]]}}
