"""The device that students are given refuses wrong calls, and the grader takes what it logs and nothing else."""

from __future__ import annotations

import copy
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from grader.labs.offload.device import LoggedDevice
from grader.labs.offload.given.offload_device import MOST_VALUES, Config, Device, DeviceError
from grader.tests.labs.offload.programs import CONFIG, calls_of

_ANYTHING: tuple[Any, ...] = (None, True, -1, 0, 1, 2, 3, 10**30, 0.5, "x", "attention", [], [0], {}, [0, 0, 2])


def _device() -> Any:
    sizes = CONFIG.num_layers, CONFIG.num_cpu_blocks, CONFIG.block_size, CONFIG.num_kv_buffers, CONFIG.max_seq_len
    return Device(Config(*sizes))


def _all_calls() -> Any:
    """A device on which every call was made once."""
    dev = _device()
    s, other, e = dev.stream("one"), dev.stream(), dev.event()
    x, y = dev.alloc(3, CONFIG.hidden, s), dev.alloc(3, CONFIG.hidden, s)
    q = dev.alloc(3, CONFIG.q_width, s)
    k, v = dev.alloc(3, CONFIG.kv_width, s), dev.alloc(3, CONFIG.kv_width, s)
    host = dev.alloc_pinned(3, CONFIG.kv_width)
    out = dev.alloc(1, CONFIG.vocab, s)
    dev.launch("embed", s, tokens=[1, 2, 3], out=x)
    dev.launch("rms_norm", s, x=x, out=y, layer=1, which="mlp")
    dev.launch("q_proj", s, x=y, out=q, layer=0)
    dev.launch("k_proj", s, x=y, out=k, layer=0)
    dev.launch("v_proj", s, x=(y, 0, 3), out=v, layer=0)
    dev.launch("rotary", s, x=q, pos=4)
    dev.launch("rotary", s, x=k, pos=4)
    dev.launch("attention", s, q=q, k=[(k, 0, 2), (k, 2, 3)], v=v, out=q, causal=True)
    dev.launch("o_proj", s, x=q, out=y, layer=1)
    dev.launch("mlp", s, x=y, out=y, layer=1)
    dev.launch("add", s, x=x, y=y, out=x)
    dev.launch("logits", s, x=(x, 2, 3), out=out)
    dev.record(e, s)
    dev.wait(other, e)
    dev.copy((host, 0, 2), (k, 1, 3), other)
    dev.record_stream(k, other)
    dev.free(k)
    dev.sync(s)
    dev.sync(e)
    dev.sync()
    return dev


def test_the_grader_takes_what_the_device_logs() -> None:
    """Every call of the device."""
    dev = _all_calls()
    device, calls = calls_of(dev._log)

    assert [entry[0] for entry in dev._log] == [call.name for call in calls]
    assert (MOST_VALUES - dev._validator.left[False]) * 8 == device.device_bytes
    assert MOST_VALUES - dev._validator.left[True] == sum(buf.values for buf in device.buffers if buf.stream is None)


def _wrong_calls(dev: Any) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Calls with a wrong argument."""
    s, x, q, k = dev._streams[0], dev._buffers[0], dev._buffers[2], dev._buffers[4]
    host, freed, e = dev._buffers[5], dev._buffers[3], dev._events[0]
    foreign = _device()
    launch = "launch"
    return [
        ("stream", (3,), {}),
        ("alloc", (1, 1, foreign.stream()), {}),
        ("alloc", (-1, 1, s), {}),
        ("alloc", (1, 0, s), {}),
        ("alloc", (True, 1, s), {}),
        ("alloc", (MOST_VALUES, 2, s), {}),
        ("alloc_pinned", (MOST_VALUES + 1, 1), {}),
        ("free", (host,), {}),
        ("free", (freed,), {}),
        ("free", ((x, 0, 1),), {}),
        ("record_stream", (host, s), {}),
        ("record_stream", (x, e), {}),
        ("copy", (host, host, s), {}),
        ("copy", ((host, 0, 2), (k, 0, 3), s), {}),
        ("copy", (host, x, s), {}),
        ("copy", ((host, 2, 4), (k, 1, 3), s), {}),
        ("copy", ((host, 2, 1), (k, 2, 1), s), {}),
        ("copy", (host, freed, s), {}),
        ("copy", (host, [k, 0, 3], s), {}),
        ("record", (s, e), {}),
        ("wait", (e, s), {}),
        ("wait", (s, foreign.event()), {}),
        ("sync", (x,), {}),
        (launch, ("gemm", s), {}),
        (launch, ("mlp", s), {"x": x, "out": x}),
        (launch, ("mlp", s), {"x": x, "out": x, "layer": CONFIG.num_layers}),
        (launch, ("mlp", s), {"x": x, "out": x, "layer": -1}),
        (launch, ("mlp", s), {"x": x, "out": x, "layer": False}),
        (launch, ("mlp", s), {"x": x, "out": q, "layer": 0}),
        (launch, ("mlp", s), {"x": x, "out": (x, 0, 2), "layer": 0}),
        (launch, ("embed", s), {"tokens": (1, 2, 3), "out": x}),
        (launch, ("embed", s), {"tokens": [1, 2], "out": x}),
        (launch, ("embed", s), {"tokens": [1, 2, CONFIG.vocab], "out": x}),
        (launch, ("rms_norm", s), {"x": x, "out": x, "layer": 0, "which": "final"}),
        (launch, ("rotary", s), {"x": x, "pos": 0}),
        (launch, ("rotary", s), {"x": q, "pos": -1}),
        (launch, ("rotary", s), {"x": q, "pos": 1.0}),
        (launch, ("k_proj", s), {"x": x, "out": q, "layer": 0}),
        (launch, ("k_proj", s), {"x": x, "out": host, "layer": 0}),
        (launch, ("add", s), {"x": x, "y": q, "out": x}),
        (launch, ("logits", s), {"x": x, "out": dev._buffers[6]}),
        (launch, ("attention", s), {"q": q, "k": k, "v": k, "out": q, "causal": 1}),
        (launch, ("attention", s), {"q": q, "k": [], "v": [], "out": q, "causal": True}),
        (launch, ("attention", s), {"q": q, "k": k, "v": (k, 0, 2), "out": q, "causal": True}),
        (launch, ("attention", s), {"q": q, "k": q, "v": k, "out": q, "causal": True}),
        (launch, ("attention", s), {"q": k, "k": k, "v": k, "out": q, "causal": True}),
        (launch, ("attention", s), {"q": q, "k": (k, k), "v": k, "out": q, "causal": True}),
    ]


@pytest.mark.parametrize("number", range(47))
def test_a_call_with_a_wrong_argument_is_refused(number: int) -> None:
    """The device raises, makes nothing and logs nothing; the grader refuses what it logs without its validator."""
    dev = _all_calls()
    wrong = _wrong_calls(dev)
    assert len(wrong) == 47
    name, arguments, named = wrong[number]
    before = copy.deepcopy(dev._log), dict(dev._validator.left), len(dev._buffers), len(dev._streams)
    with pytest.raises(DeviceError):
        getattr(dev, name)(*arguments, **named)

    assert before == (dev._log, dict(dev._validator.left), len(dev._buffers), len(dev._streams))
    assert dev._validator.counts == {"stream": 2, "event": 1}
    assert len(dev._validator.buffers) == len(dev._buffers)

    device, calls = calls_of(dev._log)
    dev._validator.take = lambda *_: None
    with suppress(DeviceError):  # of what is no handle
        getattr(dev, name)(*arguments, **named)
    for entry in dev._log[len(calls) :]:
        with pytest.raises(DeviceError):
            device.take(entry)


def test_a_copy_between_overlapping_rows_is_refused_by_both() -> None:
    """CUDA forbids it. Ranges of one buffer that only touch, or that are empty, do not overlap."""
    dev = _device()
    s = dev.stream()
    x = dev.alloc(4, 1, s)
    for lo, hi, first, end in ((0, 2, 1, 3), (1, 3, 0, 2), (0, 4, 0, 4)):
        device, _ = calls_of(dev._log)
        with pytest.raises(DeviceError, match="overlap"):
            dev.copy((x, lo, hi), (x, first, end), s)
        with pytest.raises(DeviceError, match="overlap"):
            device.take(["copy", [0, 0, 0], [lo, hi, first, end], 3])

    dev.copy((x, 0, 2), (x, 2, 4), s)
    dev.copy((x, 1, 1), (x, 1, 1), s)
    _, calls = calls_of(dev._log)

    assert [call.name for call in calls] == ["stream", "alloc", "copy", "copy"]


def test_a_log_of_anything_is_refused_entry_by_entry() -> None:
    """Right logs with a part replaced by anything: a wrong entry is refused, and nothing else is raised."""
    dev = _all_calls()
    refused = 0
    for seed in range(3000):
        random = Random(seed)
        log = copy.deepcopy(dev._log)
        entry = random.choice(log)
        place: Any = entry
        while True:
            key = random.choice([*place] if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], list | dict) or not place[key] or random.random() < 0.3:
                break
            place = place[key]
        place[key] = copy.deepcopy(random.choice(_ANYTHING))
        device = LoggedDevice(CONFIG)
        try:
            for line in log:
                device.take(line)
        except DeviceError:
            refused += 1

    assert refused > 1500
