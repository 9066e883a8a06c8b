"""Numbers for the weights: the same bits on every machine and with every numpy.

A tensor's numbers depend on its name and the seed alone, never on the order in which a builder asks
for them: two models that share a name and a seed share the weight.
"""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def uniform(name: str, shape: tuple[int, ...], low: float, high: float, *, seed: int = 0) -> Array:
    """Draw float32 numbers from [low, high).

    Args:
        name: The name of the tensor; it selects the stream.
        shape: The shape of the result.
        low: The smallest number, included.
        high: The bound above, excluded up to rounding.
        seed: Not negative.

    Returns:
        An array of `shape`.
    """
    # Only the raw stream of a bit generator is promised to stay; Generator methods may change.
    stream = np.random.PCG64(np.random.SeedSequence([seed, zlib.crc32(name.encode())]))
    bits = np.asarray(stream.random_raw(math.prod(shape)), dtype=np.uint64)
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
    return (np.float32(low) + np.float32(high - low) * unit).reshape(shape)


def kernel(
    name: str, shape: tuple[int, ...], fan_in: int, *, gain: float = 1.0, seed: int = 0
) -> Array:
    """Draw a weight that multiplies the standard deviation of its input by about `gain`.

    Args:
        name: The name of the tensor.
        shape: Its shape.
        fan_in: How many inputs one output sums.
        gain: sqrt(2) in front of a Relu keeps the signal alive over many layers; 1 else.
        seed: Not negative.

    Returns:
        An array of `shape`, uniform on [-b, b) with b = gain * sqrt(3 / fan_in).
    """
    bound = gain * math.sqrt(3.0 / fan_in)
    return uniform(name, shape, -bound, bound, seed=seed)
