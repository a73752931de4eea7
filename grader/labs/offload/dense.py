"""The model in numpy (Part 3), and a device that runs work in the orders that Part 0 allows.

Numbers are float64. The weights are drawn once for each size of a model, so that every grading uses the same weights.

Work may run when the earlier work in its stream and the work that it waits for are done. A schedule chooses:

    eager    everything at once, as it is enqueued
    late     only what is forced: by a host wait, or as a dependency; of two dependencies the one enqueued last first
    early    copies and waits as soon as they may, kernels as late as they may
    random   after each enqueue whatever may run, each with probability 0.3

New and freed memory holds NaN. Where a kernel's result would be NaN it is 0 (`Memory.run`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grader.labs.offload.device import LoggedCall, ModelSizes, RowSpan

Array = NDArray[np.float64]

_EPSILON = 1e-6
_BASE = 1e4
_MLP = 2
"""The width of the MLP, as a multiple of the hidden width."""
_SEED = 20261125
_FILL = 0.1


@dataclass(frozen=True, slots=True)
class Layer:
    """What a layer computes from its rows: keys before they are rotated, and values."""

    keys: Array
    values: Array


Computed = tuple[list[Layer], Array]
"""What each layer computes in a call, and the logits of the call's last row."""


@dataclass(slots=True)
class DenseModel:
    """The kernels of Part 0, and the model of Part 3 that consists of them."""

    config: ModelSizes
    embeddings: Array = field(init=False)
    norms: dict[str, Array] = field(init=False)
    weights: dict[str, Array] = field(init=False)
    last_norm: Array = field(init=False)

    def __post_init__(self) -> None:
        """Draw the weights."""
        config, random = self.config, np.random.default_rng(_SEED)
        layers, hidden = config.num_layers, config.hidden
        shapes = {
            "q_proj": (hidden, config.q_width),
            "k_proj": (hidden, config.kv_width),
            "v_proj": (hidden, config.kv_width),
            "o_proj": (config.q_width, hidden),
            "up": (hidden, _MLP * hidden),
            "down": (_MLP * hidden, hidden),
        }
        self.embeddings = random.normal(size=(config.vocab, hidden))
        self.norms = {which: 1 + random.normal(size=(layers, hidden)) / 4 for which in ("attention", "mlp")}
        self.weights = {name: random.normal(size=(layers, *shape)) / shape[0] ** 0.5 for name, shape in shapes.items()}
        self.weights["logits"] = random.normal(size=(1, hidden, config.vocab)) / hidden**0.5
        self.last_norm = 1 + random.normal(size=hidden) / 4

    # Kernels

    def rms_norm(self, x: Array, layer: int, which: str) -> Array:
        """Return the rows, normalised and scaled."""
        scale: Array = self.norms[which][layer]
        return _normalised(x) * scale

    def project(self, name: str, x: Array, layer: int) -> Array:
        """Return rows times the weights of "q_proj", "k_proj", "v_proj" or "o_proj"."""
        rows: Array = x @ self.weights[name][layer]
        return rows

    def rotary(self, x: Array, pos: int) -> Array:
        """Rotate row i for position pos + i: in each head value d forms a pair with value d + head_dim / 2."""
        half = self.config.head_dim // 2
        heads = x.reshape(len(x), -1, self.config.head_dim)
        cosine, sine = _turns(half, pos, len(x))
        first, second = heads[..., :half], heads[..., half : 2 * half]
        turned = np.concatenate(
            [first * cosine - second * sine, first * sine + second * cosine, heads[..., 2 * half :]], axis=-1
        )
        return turned.reshape(x.shape)

    def attention(self, q: Array, k: Array, v: Array, *, causal: bool) -> Array:
        """Return grouped-query attention. With `causal` query i sees keys 0 to i, whatever the number of keys."""
        config, rows, keys = self.config, len(q), len(k)
        groups = config.num_kv_heads
        queries = q.reshape(rows, groups, -1, config.head_dim).transpose(1, 2, 0, 3)
        heads = k.reshape(keys, groups, config.head_dim).transpose(1, 2, 0)[:, None]
        values = v.reshape(keys, groups, config.head_dim).transpose(1, 0, 2)[:, None]
        scores = queries @ heads / config.head_dim**0.5
        if causal:
            unseen = np.arange(keys) > np.arange(rows)[:, None]
            scores = np.where(unseen, -np.inf, scores)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result = scores @ values / scores.sum(axis=-1, keepdims=True)
        joined: Array = result.transpose(2, 0, 1, 3).reshape(rows, -1)
        return joined

    def mlp(self, x: Array, layer: int) -> Array:
        """Return the output of the MLP, without norm and without residual."""
        rows: Array = np.tanh(x @ self.weights["up"][layer]) @ self.weights["down"][layer]
        return rows

    def logits(self, x: Array) -> Array:
        """Return the logits of rows: final norm and output weights."""
        row: Array = _normalised(x) * self.last_norm @ self.weights["logits"][0]
        return row

    # The model

    def prompt(self, tokens: Sequence[int], *, causal: bool = True) -> Computed:
        """Return what each layer computes for a prompt, and the logits of its last token. `causal=False` is wrong."""
        return self._forward(tokens, 0, [], causal=causal)

    def token(
        self, token: int, position: int, cached: Sequence[tuple[Array, Array]], *, causal: bool = False
    ) -> Computed:
        """Run a token over the rotated keys and the values in `cached`, by layer. `causal=True` is wrong."""
        return self._forward([token], position, cached, causal=causal)

    def _forward(
        self, tokens: Sequence[int], position: int, cached: Sequence[tuple[Array, Array]], *, causal: bool
    ) -> Computed:
        x, layers = self.embeddings[list(tokens)], []
        for layer in range(self.config.num_layers):
            h = self.rms_norm(x, layer, "attention")
            q, k, v = (self.project(name, h, layer) for name in ("q_proj", "k_proj", "v_proj"))
            layers.append(Layer(k, v))
            keys, values = self.rotary(k, position), v
            if cached:
                keys, values = (np.concatenate(pair) for pair in zip(cached[layer], (keys, values), strict=True))
            a = self.attention(self.rotary(q, position), keys, values, causal=causal)
            x = x + self.project("o_proj", a, layer)
            x = x + self.mlp(self.rms_norm(x, layer, "mlp"), layer)
        return layers, self.logits(x[-1:])


@lru_cache(maxsize=1024)
def _turns(half: int, position: int, rows: int) -> tuple[Array, Array]:
    """Return the cosines and sines of the rotary angles of `rows` tokens, the first of them at `position`."""
    speeds = _BASE ** (-np.arange(half) / max(half, 1))
    angles = (position + np.arange(rows))[:, None, None] * speeds
    return np.cos(angles), np.sin(angles)


def _normalised(x: Array) -> Array:
    mean = np.add.reduce(x * x, axis=-1, keepdims=True) / x.shape[-1]
    rows: Array = x / np.sqrt(mean + _EPSILON)
    return rows


@cache
def model_of(config: ModelSizes) -> DenseModel:
    """Return the model of these sizes; its weights are drawn once."""
    return DenseModel(config)


def pair_lengths(keys: Array, head_dim: int) -> Array:
    """Return the lengths of the pairs that `rotary` rotates, and unpaired values: no rotation changes these numbers."""
    half = head_dim // 2
    heads = keys.reshape(len(keys), -1, head_dim)
    lengths = np.hypot(heads[..., :half], heads[..., half : 2 * half])
    return np.concatenate([lengths, heads[..., 2 * half :]], axis=-1).reshape(len(keys), -1)


def rows_of_fill(number: int, rows: int, width: int) -> Array:
    """Return the rows that the driver's `fill` of this number writes: no value occurs twice."""
    return number + _FILL + np.arange(rows * width).reshape(rows, width) / (2 * rows * width)


_CHANCE = 0.3


def may_hold_garbage(rows: Array) -> bool:
    """Return whether there may be NaN among the values. Only the sum is tested: inf - inf gives NaN too."""
    total = np.add.reduce(rows, axis=None)
    return math.isnan(total)


@dataclass(slots=True)
class Memory:
    """The contents of all buffers, and the kernels that change them."""

    model: DenseModel
    contents: dict[int, Array] = field(default_factory=dict)

    def create(self, number: int, rows: int, width: int) -> None:
        """Create a buffer, which holds garbage."""
        self.contents[number] = np.empty((rows, width))
        self.contents[number].fill(np.nan)

    def rows(self, span: RowSpan) -> Array:
        """Return a view of the rows of a range."""
        return self.contents[span.buffer][span.lo : span.hi]

    def run(self, call: LoggedCall) -> Array | None:
        """Do a piece of work. Return what a kernel computed.

        A kernel computes 0 from garbage. So NaN in a buffer always means that nothing was computed or copied there.
        Otherwise one wrong read would make NaN of all rows that follow, and they would count as missing.
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
        """Return an argument as the model needs it: the rows of a range, or of several ranges."""
        if isinstance(value, RowSpan):
            return self.rows(value)
        if isinstance(value, tuple):
            return np.concatenate([self.rows(part) for part in value])
        return value


@dataclass(slots=True, eq=False)
class Node:
    """Work that was enqueued, and the work that must be done before it."""

    call: LoggedCall
    number: int
    needs: list[Node]
    is_done: bool = False


class Schedule:
    """The work that was enqueued, and which of it has run. Subclasses choose the order."""

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

    def go_on(self) -> None:
        """Run what this schedule chooses after work was enqueued; the new work is the last of `waiting`."""
        raise NotImplementedError

    def order(self, nodes: list[Node]) -> list[Node]:
        """Return dependencies in the order in which they are forced to run."""
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
        """Run these nodes and all work that they need."""
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
        """Run a node. All work that the node needs is done already."""
        if not node.is_done:
            self.memory.run(node.call)
            node.is_done = True
            node.needs = []

    def ready(self) -> Iterator[Node]:
        """Yield the nodes that may run now."""
        for node in self.waiting:
            if not node.is_done and all(other.is_done for other in node.needs):
                yield node


class EagerOrder(Schedule):
    """Runs everything at once."""

    def go_on(self) -> None:
        """Run the new work."""
        self.run(self.waiting[-1])


class LateOrder(Schedule):
    """Runs only what is forced."""

    def go_on(self) -> None:
        """Run nothing."""

    def order(self, nodes: list[Node]) -> list[Node]:
        """Return the dependencies, the one enqueued last first."""
        return sorted(nodes, key=lambda node: -node.number)


class EarlyOrder(Schedule):
    """Runs copies and waits as soon as they may run, kernels as late as possible."""

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
    """Runs each piece of work that may run, with a probability."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.random = Random(0)

    def go_on(self) -> None:
        """Run some of the work that may run."""
        for other in [*self.ready()]:
            if self.random.random() < _CHANCE:
                self.run(other)


SCHEDULES: dict[str, type[Schedule]] = {
    "eager": EagerOrder,
    "late": LateOrder,
    "early": EarlyOrder,
    "at random": RandomOrder,
}
