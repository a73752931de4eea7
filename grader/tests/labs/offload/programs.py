"""Small programs for a device: random ones, and those that a test writes call by call."""

from __future__ import annotations

from typing import Any

from grader.labs.offload.device import LoggedCall, LoggedDevice, ModelSizes

CONFIG = ModelSizes(num_layers=2, num_cpu_blocks=3, block_size=2, num_kv_buffers=2, max_seq_len=6)


def calls_of(log: list[Any], config: ModelSizes = CONFIG) -> tuple[LoggedDevice, list[LoggedCall]]:
    """Return the grader's device after a log, and the calls of the log."""
    device = LoggedDevice(config)
    return device, [device.take(entry) for entry in log]
