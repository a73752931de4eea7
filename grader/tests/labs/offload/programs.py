"""Small programs for a device: random ones, and those that a test writes call by call."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.labs.offload.device import LoggedCall, LoggedDevice, ModelSizes

CONFIG = ModelSizes(num_layers=2, num_cpu_blocks=3, block_size=2, num_kv_buffers=2, max_seq_len=6)

_GIVEN = Path(__file__).parents[3] / "labs" / "offload" / "given" / "offload_device.py"


@cache
def given() -> ModuleType:
    """The device module that students get."""
    spec = importlib.util.spec_from_file_location("offload_device", _GIVEN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["offload_device"] = module
    spec.loader.exec_module(module)
    return module


def calls_of(log: list[Any], config: ModelSizes = CONFIG) -> tuple[LoggedDevice, list[LoggedCall]]:
    """Return the grader's device after a log, and the calls of the log."""
    device = LoggedDevice(config)
    return device, [device.take(entry) for entry in log]
