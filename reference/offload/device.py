"""Part 0: what a device can do, for host code; and a device that notes its calls and does nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(eq=False)
class Stream:
    """A queue of work."""

    name: str = ""


@dataclass(eq=False)
class Event:
    """A point in a stream."""


@dataclass(eq=False)
class Buf:
    """A table of numbers."""

    rows: int
    width: int
    pinned: bool


Range = tuple[Buf, int, int]
"""Rows of a buffer, from the first to the one before the last number."""


@dataclass(frozen=True)
class Config:
    """The sizes of a model and of its caches."""

    num_layers: int
    num_cpu_blocks: int
    block_size: int
    num_kv_buffers: int
    max_seq_len: int
    hidden: int = 12
    q_width: int = 16
    kv_width: int = 8
    vocab: int = 23


class Device(Protocol):
    """A device; the handout says what each call means."""

    def stream(self, name: str = "") -> Any:
        """A new stream."""

    def event(self) -> Any:
        """A new event."""

    def alloc(self, rows: int, width: int, stream: Any) -> Any:
        """Device memory that belongs to a stream."""

    def alloc_pinned(self, rows: int, width: int) -> Any:
        """Memory of the host."""

    def free(self, buf: Any) -> None:
        """Give device memory back to its stream."""

    def copy(self, dst: Any, src: Any, stream: Any) -> None:
        """Copy a range."""

    def launch(self, kernel: str, stream: Any, **args: Any) -> None:
        """Run a kernel."""

    def record(self, event: Any, stream: Any) -> None:
        """Let an event stand for all work of a stream so far."""

    def wait(self, stream: Any, event: Any) -> None:
        """Let later work of a stream run after what an event stands for now."""

    def sync(self, x: Any = None) -> None:
        """Let the host wait."""


@dataclass
class Notes:
    """A device that notes its calls."""

    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def stream(self, name: str = "") -> Stream:
        """A new stream."""
        return Stream(name)

    def event(self) -> Event:
        """A new event."""
        return Event()

    def alloc(self, rows: int, width: int, stream: Stream) -> Buf:
        """Device memory."""
        self.calls.append(("alloc", (rows, width, stream), {}))
        return Buf(rows, width, pinned=False)

    def alloc_pinned(self, rows: int, width: int) -> Buf:
        """Memory of the host."""
        self.calls.append(("alloc_pinned", (rows, width), {}))
        return Buf(rows, width, pinned=True)

    def free(self, buf: Buf) -> None:
        """Give device memory back."""
        self.calls.append(("free", (buf,), {}))

    def copy(self, dst: Buf | Range, src: Buf | Range, stream: Stream) -> None:
        """Copy a range."""
        self.calls.append(("copy", (_range(dst), _range(src), stream), {}))

    def launch(self, kernel: str, stream: Stream, **args: Any) -> None:
        """Run a kernel."""
        self.calls.append((kernel, (stream,), args))

    def record(self, event: Event, stream: Stream) -> None:
        """Record an event."""
        self.calls.append(("record", (event, stream), {}))

    def wait(self, stream: Stream, event: Event) -> None:
        """Let a stream wait."""
        self.calls.append(("wait", (stream, event), {}))

    def sync(self, x: Stream | Event | None = None) -> None:
        """Let the host wait."""
        self.calls.append(("sync", (x,), {}))


def _range(value: Buf | Range) -> Range:
    """A buffer alone stands for all its rows."""
    return (value, 0, value.rows) if isinstance(value, Buf) else value
