"""From logs to states: the reference handed in as a submission, every schedule, and logs that no device wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from grader.judge.compare import compare
from grader.labs import open_lab
from grader.labs.offload.derive import derive
from grader.labs.offload.device import LoggedDevice, ModelSizes
from grader.labs.offload.given import offload_device
from grader.runtime.protocol import Played, PlayedStep
from grader.tests.labs.offload.sent import SAMPLES, Sent, cases, graded
from reference.offload.engine import OffloadEngine
from reference.operation import Operation
from reference.oracle import text_of

_ROOT = Path(__file__).parents[4]
_ACCEPTED = SAMPLES / "accepted"
_PARTS = ("block_manager", "engine", "runner")
_ERRORS = (
    "def Refused(name, *_):\n    return {'KeyError': KeyError, 'ValueError': ValueError}.get(name, RuntimeError)()\n"
)
_MIB = 1 << 20


@cache
def _sent(name: str) -> list[Sent]:
    record, sent = graded(_ACCEPTED / name)

    assert (record.score, record.max_score) == (100, 100)

    return sent


def test_the_reference_is_accepted(tmp_path: Path) -> None:
    """Its three classes, handed in as they are: by way of the log they leave the oracle's states."""
    lines = [_ERRORS]
    for part in _PARTS:
        text = (_ROOT / "reference" / "offload" / f"{part}.py").read_text(encoding="utf-8")
        lines += [line for line in text.splitlines() if not line.startswith(("from __future__", "from reference"))]
    (tmp_path / "offload.py").write_text("from __future__ import annotations\n" + "\n".join(lines), encoding="utf-8")
    record, _ = graded(tmp_path)

    assert [(finding.case, finding.message) for finding in record.findings] == []
    assert (record.score, record.max_score) == (100, 100)


def test_the_storage_has_the_sizes_of_a_large_model() -> None:
    """Qwen3-4B with 128K tokens: ring, decode buffers and CPU cache in values of two bytes; nothing is allocated."""
    sizes = {"num_layers": 36, "num_kv_buffers": 4, "max_seq_len": 131072, "num_kv_heads": 8, "head_dim": 128}
    for size, decode in ((1024, 144), (4096, 576)):
        blocks = 131072 // size
        dev = offload_device.Device(offload_device.Config(num_cpu_blocks=blocks, block_size=size, **sizes))
        dev._validator.left = {False: 1 << 50, True: 1 << 50}
        config = ModelSizes(num_cpu_blocks=blocks, block_size=size, **sizes)
        OffloadEngine(dev, config)
        device = LoggedDevice(config, most_values=1 << 50)
        for entry in dev._log:
            device.take(entry)

        assert device.device_bytes == 4 * (2048 + decode) * _MIB
        assert 2 * sum(buffer.values for buffer in device.buffers if buffer.stream is None) == 18432 * _MIB


def _changed(value: Any, random: Random, others: Sequence[Any]) -> Any:
    """A value of JSON with a part replaced, removed or doubled."""
    value = json.loads(json.dumps(value))
    place: Any = [value]
    while True:
        key = random.choice([*place] if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], list | dict) or not place[key] or random.random() < 0.15:
            break
        place = place[key]
    drawn = random.random()
    if drawn < 0.5 or isinstance(place, dict):
        place[key] = random.choice(others)
    elif drawn < 0.75:
        del place[key]
    else:
        place.insert(key, place[key])
    return value


_OTHERS: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 3, 10**40, 0.5, float("nan"), "", "copy", "free", "a", [], {}, [[]], {"a": [[0], 1, 1]}),
    *(["free", [0], [], 3], ["alloc", [9, 0], [400, 8], 4], ["sync", [], [], 0], {"!": "AttributeError"}, [0, 1, 2]),
)


@pytest.mark.parametrize("name", ["compact_io_stream", "generator_pipeline"])
def test_records_of_anything_are_judged(name: str) -> None:
    """Right records with parts replaced by anything: whatever comes of it is the program's, never an exception."""
    lab = open_lab("offload")
    by_trace = {case.trace.operations: case for case in cases() if case.generated is None}
    sent = [
        (by_trace[tuple(operations)], records) for operations, records in _sent(name) if tuple(operations) in by_trace
    ]
    stopped = differ = 0
    for seed in range(300):
        random = Random(seed)
        case, records = random.choice(sent)
        number = random.randrange(len(records))
        wrong = json.loads(json.dumps(records[number]))
        if random.random() < 0.6:
            wrong["state"]["log"] = _changed(wrong["state"]["log"], random, _OTHERS)
        else:
            wrong = _changed(wrong, random, _OTHERS)
        changed = [*records[:number], wrong, *records[number + 1 :]]
        derived = derive(case.trace.operations, [one if isinstance(one, dict) else {} for one in changed])
        stopped += bool(derived.stopped)
        steps = [PlayedStep(record=text_of(step.record).encode(), lines=step.lines) for step in derived.steps]
        differ += bool(compare(Played(case, steps=steps), lab.model).wrong)

    assert stopped > 80
    assert differ > 50


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([["alloc", [9, 0], [1 << 40, 1], 3]], "is not the next buffer"),
        ([["gemm", [0], {}, 3]], "there is no call 'gemm' of the device"),
        ("log", "its log cannot be read"),
        ([["sync", [], [], 1]] * 30_000, "a thousand times"),
    ],
)
def test_a_log_that_no_device_writes_ends_the_case(entries: Any, why: str) -> None:
    """With the reason, at the call in which it was written."""
    operations = [Operation(name="engine", arguments=(1, 1, 1, 1, 1)), Operation(name="flush", arguments=(0, 0))]
    begin = [["stream", [0, "compute"], [], 3]]
    records = [{"reply": {"returned": None}, "state": {"log": log}} for log in (begin, entries)]
    derived = derive(operations, records)

    assert len(derived.steps) == 1
    assert why in derived.stopped
