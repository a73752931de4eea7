"""Modules of the lab that a submission may import: executed anew for each case, and of no effect on the next."""

from __future__ import annotations

import json

from grader.runtime.python import process
from grader.runtime.python.driver import PythonDriver
from grader.system import sandbox

_DEVICE = "import math\n\ncopied = []\n\n\ndef copy(to):\n    copied.append(math.floor(to))\n"
_ENGINE = "from device import copy\n\n\ndef run(count):\n    copy(count + 0.5)\n"
_DRIVER = """
import device
import engine as submission

class World: pass

def run(world: World, count: int) -> Any: return submission.run(count)

def read(world): return {"copied": lambda: device.copied}
"""


def test_a_given_module_is_executed_anew_for_each_case() -> None:
    """A submission imports it, and the driver reads what it has."""
    driver = PythonDriver.of(_DRIVER, given={"device": _DEVICE})
    plan = [{"case": case, "operations": [["run", [case]], ["run", [7]]]} for case in (0, 1)]
    with sandbox.workspace(tools=(process.interpreter(),)) as work:
        done = process.run(
            work, process.PythonProgram(content=_ENGINE.encode(), source_name=driver.file), driver, plan, total=5.0
        )
    sent = [json.loads(frame.body) for frame in process.frames(done.channels[0]) if frame.kind in "SX"]

    assert [record["state"]["copied"] for record in sent] == [[0], [0, 7], [1], [1, 7]]
