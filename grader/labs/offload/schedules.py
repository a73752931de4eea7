"""Run calls with real numbers, in an order that a device may choose (Part 0 of the handout).

Work may run when the work before it in its stream is done, and what it waits for. A schedule chooses:

    eager    everything at once, as it is enqueued
    late     only what is forced: by a host wait, or as a dependency; of two dependencies the one enqueued last first
    early    copies and waits as soon as they may, kernels as late as they may
    random   after each enqueue whatever may run, each with probability 0.3

New and freed memory holds NaN. Where a kernel's result would be NaN it is 0 (`Memory.run`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from grader.labs.offload.dense import Array, DenseModel, rows_of_fill
from grader.labs.offload.device import LoggedCall, RowSpan

_CHANCE = 0.3


def may_hold_garbage(rows: Array) -> bool:
    """Whether there may be NaN among the values, by one sum; infinities of both signs are taken for it, too."""
    total = np.add.reduce(rows, axis=None)
    return math.isnan(total)


@dataclass(slots=True)
class Memory:
    """The contents of all buffers, and the kernels that change them."""

    model: DenseModel
    contents: dict[int, Array] = field(default_factory=dict)

    def create(self, number: int, rows: int, width: int) -> None:
        """A new buffer, which holds garbage."""
        self.contents[number] = np.empty((rows, width))
        self.contents[number].fill(np.nan)

    def rows(self, span: RowSpan) -> Array:
        """The rows of a range: a view."""
        return self.contents[span.buffer][span.lo : span.hi]

    def run(self, call: LoggedCall) -> Array | None:
        """Do a piece of work. Return what a kernel computed.

        What a kernel makes of garbage is 0. So NaN in a buffer always means that nothing was computed or copied there;
        otherwise one wrong read would make NaN of every row that follows, and all these would count as missing.
        """
        match call.name:
            case "alloc" | "free":
                self.rows(call.writes[0]).fill(np.nan)
            case "copy":
                self.rows(call.writes[0])[:] = self.rows(call.reads[0])
            case "wait" | "probe":
                pass
            case _:
                result = self._computed(call)
                if may_hold_garbage(result):
                    result = np.where(np.isnan(result), 0.0, result)
                self.rows(call.writes[0])[:] = result
                return result
        return None

    def _computed(self, call: LoggedCall) -> Array:
        model = self.model
        result: Array
        inputs = {name: self._input(value) for name, value in call.arguments.items() if name != "out"}
        match call.name:
            case "embed":
                result = model.embeddings[inputs["tokens"]]
            case "fill":
                result = rows_of_fill(inputs["number"], call.writes[0].rows, model.config.kv_width)
            case "add":
                result = inputs["x"] + inputs["y"]
            case "q_proj" | "k_proj" | "v_proj" | "o_proj":
                result = model.project(call.name, **inputs)
            case _:
                result = getattr(model, call.name)(**inputs)
        return result

    def _input(self, value: Any) -> Any:
        """An argument as the model takes it: ranges as rows, joined where there are several."""
        if isinstance(value, RowSpan):
            return self.rows(value)
        if isinstance(value, tuple):
            return np.concatenate([self.rows(part) for part in value])
        return value


@dataclass(slots=True, eq=False)
class Node:
    """Work that was enqueued, and what must be done before it."""

    call: LoggedCall
    number: int
    needs: list[Node]
    is_done: bool = False
    result: Array | None = None


class Schedule:
    """What was enqueued and what of it ran; subclasses choose the order."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.tails: dict[int, Node] = {}
        self.events: dict[int, Node | None] = {}
        self.waiting: list[Node] = []
        self.enqueued = 0

    def take(self, call: LoggedCall) -> None:
        """Enqueue work, or do what the host does."""
        match call.name:
            case "record":
                self.events[call.event] = self.tails.get(call.stream)
            case "sync":
                self._sync(call)
            case _ if call.is_work:
                node = self._node(call)
                self.waiting.append(node)
                self.enqueued += 1
                self.go_on()
                self.waiting = [other for other in self.waiting if not other.is_done]

    def finish(self) -> None:
        """Run all that is left."""
        self._force([*self.waiting])

    def go_on(self) -> None:
        """Run what this schedule wants to run now that work was enqueued, the last that waits."""
        raise NotImplementedError

    def order(self, nodes: list[Node]) -> list[Node]:
        """The order in which dependencies are forced."""
        return sorted(nodes, key=lambda node: node.number)

    def _node(self, call: LoggedCall) -> Node:
        tail = self.tails.get(call.stream)
        needs = [tail] if tail is not None else []
        if call.name == "free" and call.others:
            needs += [self.tails[stream] for stream in call.others if stream in self.tails]
            return Node(call, self.enqueued, needs)
        event = self.events.get(call.event) if call.name == "wait" else None
        if event is not None:
            needs.append(event)
        node = self.tails[call.stream] = Node(call, self.enqueued, needs)
        return node

    def _sync(self, call: LoggedCall) -> None:
        if call.stream >= 0:
            targets = [self.tails.get(call.stream)]
        elif call.event >= 0:
            targets = [self.events.get(call.event)]
        else:
            targets = [*self.waiting]
        self._force([node for node in targets if node is not None])
        self.waiting = [node for node in self.waiting if not node.is_done]

    def _force(self, nodes: list[Node]) -> None:
        """Run these and what they need."""
        stack = self.order([node for node in nodes if not node.is_done])[::-1]
        while stack:
            node = stack[-1]
            needs = [other for other in node.needs if not other.is_done]
            if needs and not node.is_done:
                stack += self.order(needs)[::-1]
                continue
            stack.pop()
            self.run(node)

    def run(self, node: Node) -> None:
        """Run a node whose needs are done."""
        if not node.is_done:
            node.result = self.memory.run(node.call)
            node.is_done = True
            node.needs = []

    def ready(self) -> Iterator[Node]:
        """Yield what may run now."""
        for node in self.waiting:
            if not node.is_done and all(other.is_done for other in node.needs):
                yield node


class EagerOrder(Schedule):
    """Everything at once."""

    def go_on(self) -> None:
        """Run it."""
        self.run(self.waiting[-1])


class LateOrder(Schedule):
    """Only what is forced."""

    def go_on(self) -> None:
        """Run nothing."""

    def order(self, nodes: list[Node]) -> list[Node]:
        """The one enqueued last first."""
        return sorted(nodes, key=lambda node: -node.number)


class EarlyOrder(Schedule):
    """Copies and waits as soon as they may, kernels as late as they may."""

    def go_on(self) -> None:
        """Run copies and waits until none may run."""
        ran = True
        while ran:
            ran = False
            for other in self.ready():
                if other.call.name in ("copy", "wait"):
                    self.run(other)
                    ran = True


class RandomOrder(Schedule):
    """Each that may run, with a chance."""

    def __init__(self, memory: Memory, seed: int = 0) -> None:
        super().__init__(memory)
        self.random = Random(seed)

    def go_on(self) -> None:
        """Run some of what may run."""
        for other in [*self.ready()]:
            if self.random.random() < _CHANCE:
                self.run(other)


SCHEDULES: dict[str, type[Schedule]] = {
    "eager": EagerOrder,
    "late": LateOrder,
    "early": EarlyOrder,
    "at random": RandomOrder,
}
