"""What examples of rules are made of: ways in, constants that differ by lane, common nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from tests.nets import Array, numbers
from tests.rule_examples import FLAT, Maker

MS = "com.microsoft"

DEEP = ("rows3", "wide3")
"""Ways to lanes of shape [N, S, 4], both sizes open."""

ROWS = FLAT + DEEP
"""Ways to lanes of shape [..., 4]."""

EVERY = (*ROWS, "channels")
"""Ways to lanes of any shape."""

EARLY = (*FLAT, "wide3", "channels")
"""Ways that are open before opset 14, too: to lanes of any shape, but no rows of two open sizes in front."""

STACKED = ("rows", "conv_t", "nonempty", "grouped_conv", "rows3")
"""Ways to lanes that do not lie side by side along their last axis."""

WIDE = ("wide", "wide3")
"""Ways to lanes that do, from one value `x` of width 5."""


def indices(*shape: int, below: int, least: int = 0) -> Maker:
    """Int64 indices that differ by lane."""
    return lambda lane: np.random.default_rng([lane, *shape]).integers(least, below, shape)


def codes(*shape: int, dtype: DTypeLike = np.int8) -> Maker:
    """Quantised numbers that differ by lane."""
    info = np.iinfo(np.dtype(dtype))

    def make(lane: int) -> Array:
        rng = np.random.default_rng([lane, *shape])
        return rng.integers(max(info.min, -100), min(info.max, 100), shape).astype(dtype)

    return make


def scale(*shape: int) -> Maker:
    """Scales of quantisation that differ by lane."""
    return lambda lane: (
        (np.abs(numbers(*shape, seed=lane + 300)) + np.float32(0.5)) / np.float32(40)
    )


def zero(*shape: int, dtype: DTypeLike = np.int8) -> Maker:
    """Zero points that differ by lane."""
    return lambda lane: (
        (np.arange(np.prod(shape, dtype=int)) % 3 + lane).reshape(shape).astype(dtype)
    )


def quantise(axis: int | None, zero_type: DTypeLike = np.int8, size: int = 4) -> dict[str, Maker]:
    """Scale and zero point that differ by lane: a number each, or a row."""
    shape = () if axis is None else (size,)
    return {"s@": scale(*shape), "z@": zero(*shape, dtype=zero_type)}


NEG = " y@ = Neg(r@)"
"""Makes the result something else than what the rule in question makes."""

QUANTISED = "q@ = QuantizeLinear(a@, s, z) "
Q = {"s": scale(), "z": zero()}
