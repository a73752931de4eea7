"""The model against its definition in Part 3, written out number by number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grader.labs.offload.dense import Array, model_of, pair_lengths
from grader.tests.labs.offload.programs import CONFIG

TOKENS = [3, 1, 4, 1, 5, 9, 2]
MODEL = model_of(CONFIG)


def _attended(q: Array, k: Array, v: Array, *, causal: bool) -> Array:
    """Grouped-query attention, one number at a time."""
    size, groups = CONFIG.head_dim, CONFIG.num_heads // CONFIG.num_kv_heads
    out = np.zeros_like(q)
    for row in range(len(q)):
        for head in range(CONFIG.num_heads):
            query = q[row, head * size : head * size + size]
            at = (head // groups) * size
            seen = range(min(len(k), row + 1) if causal else len(k))
            scores = [math.exp(float(query @ k[key, at : at + size]) / math.sqrt(size)) for key in seen]
            for key, score in zip(seen, scores, strict=True):
                out[row, head * size : head * size + size] += score / sum(scores) * v[key, at : at + size]
    return out


@pytest.mark.parametrize("mask", ["causal", "none"])
def test_attention_is_grouped_and_its_mask_begins_top_left(mask: str) -> None:
    """Query i sees keys 0 to i with the mask, all without it, also where there are more keys than queries."""
    random, causal = np.random.default_rng(1), mask == "causal"
    q, k, v = random.normal(size=(3, 16)), random.normal(size=(5, 8)), random.normal(size=(5, 8))

    assert np.allclose(_attended(q, k, v, causal=causal), MODEL.attention(q, k, v, causal=causal), rtol=1e-12)


def test_a_rotation_keeps_the_lengths_of_pairs_and_the_distance_of_positions() -> None:
    """Scores depend on the distance of two positions only; position 0 changes nothing."""
    q, k = np.random.default_rng(2).normal(size=(2, 1, 4))
    near = (MODEL.rotary(q, 7) @ MODEL.rotary(k, 5).T).item()

    assert np.allclose(q, MODEL.rotary(q, 0))
    assert np.isclose(near, (MODEL.rotary(q, 12) @ MODEL.rotary(k, 10).T).item())
    assert not np.isclose(near, (MODEL.rotary(q, 8) @ MODEL.rotary(k, 5).T).item())
    assert np.allclose(pair_lengths(k, 4), pair_lengths(MODEL.rotary(k, 9), 4))


def test_a_token_over_cached_rows_is_the_last_of_the_whole_prompt() -> None:
    """Decode and prefill agree: logits, keys and values."""
    layers, _ = MODEL.prompt(TOKENS[:-1])
    cached = [(MODEL.rotary(layer.keys, 0), layer.values) for layer in layers]
    new, logits = MODEL.token(TOKENS[-1], len(TOKENS) - 1, cached)
    whole, wanted = MODEL.prompt(TOKENS)

    assert np.allclose(wanted, logits, rtol=1e-10)
    for mine, theirs in zip(whole, new, strict=True):
        assert np.allclose(mine.keys[-1:], theirs.keys, rtol=1e-10)
        assert np.allclose(mine.values[-1:], theirs.values, rtol=1e-10)
