"""The model in numpy: its kernels, a prompt as a whole, and a token over cached keys and values (Part 3).

Numbers are float64. The weights are drawn once for each size of a model, so that every grading uses the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from grader.labs.offload.device import ModelSizes

Array = NDArray[np.float64]

_EPSILON = 1e-6
_BASE = 1e4
_MLP = 2
"""The width of the MLP, as a multiple of the hidden width."""
_SEED = 20261125
_FILL = 0.1


@dataclass(frozen=True, slots=True)
class Layer:
    """What a layer computes of its rows: keys before they are rotated, and values."""

    keys: Array
    values: Array


Computed = tuple[list[Layer], Array]
"""What each layer computes in a call, and the logits of its last row."""


@dataclass(slots=True)
class DenseModel:
    """The kernels of Part 0, and the model of Part 3 made of them."""

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
        """Rows, normalised and scaled."""
        scale: Array = self.norms[which][layer]
        return _normalised(x) * scale

    def project(self, name: str, x: Array, layer: int) -> Array:
        """Rows times the weights of "q_proj", "k_proj", "v_proj" or "o_proj"."""
        rows: Array = x @ self.weights[name][layer]
        return rows

    def rotary(self, x: Array, pos: int) -> Array:
        """Rows, row i rotated for position pos + i: in each head value d forms a pair with value d + head_dim / 2."""
        half = self.config.head_dim // 2
        heads = x.reshape(len(x), -1, self.config.head_dim)
        cosine, sine = _turns(half, pos, len(x))
        first, second = heads[..., :half], heads[..., half : 2 * half]
        turned = np.concatenate(
            [first * cosine - second * sine, first * sine + second * cosine, heads[..., 2 * half :]], axis=-1
        )
        return turned.reshape(x.shape)

    def attention(self, q: Array, k: Array, v: Array, *, causal: bool) -> Array:
        """Grouped-query attention. With `causal` query i sees keys 0 to i, whatever the number of keys."""
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
        """The MLP, without norm and without residual."""
        rows: Array = np.tanh(x @ self.weights["up"][layer]) @ self.weights["down"][layer]
        return rows

    def logits(self, x: Array) -> Array:
        """Final norm and output weights."""
        row: Array = _normalised(x) * self.last_norm @ self.weights["logits"][0]
        return row

    # The model

    def prompt(self, tokens: Sequence[int], *, causal: bool = True) -> Computed:
        """A whole prompt: what each layer computes, and the logits of the last token. Right is `causal=True`."""
        return self._forward(tokens, 0, [], causal=causal)

    def token(
        self, token: int, position: int, cached: Sequence[tuple[Array, Array]], *, causal: bool = False
    ) -> Computed:
        """A token over cached rows: for each layer the rotated keys and the values. Right is `causal=False`."""
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
    """The cosines and sines of rows from a position on."""
    speeds = _BASE ** (-np.arange(half) / max(half, 1))
    angles = (position + np.arange(rows))[:, None, None] * speeds
    return np.cos(angles), np.sin(angles)


def _normalised(x: Array) -> Array:
    mean = np.add.reduce(x * x, axis=-1, keepdims=True) / x.shape[-1]
    rows: Array = x / np.sqrt(mean + _EPSILON)
    return rows


@cache
def model_of(config: ModelSizes) -> DenseModel:
    """The model of these sizes; its weights are drawn once."""
    return DenseModel(config)


def pair_lengths(keys: Array, head_dim: int) -> Array:
    """The lengths of the pairs that `rotary` rotates, which no position changes; what has no partner as it is."""
    half = head_dim // 2
    heads = keys.reshape(len(keys), -1, head_dim)
    lengths = np.hypot(heads[..., :half], heads[..., half : 2 * half])
    return np.concatenate([lengths, heads[..., 2 * half :]], axis=-1).reshape(len(keys), -1)


def rows_of_fill(number: int, rows: int, width: int) -> Array:
    """The rows that the driver's `fill` of this number writes: no value occurs twice."""
    return number + _FILL + np.arange(rows * width).reshape(rows, width) / (2 * rows * width)
