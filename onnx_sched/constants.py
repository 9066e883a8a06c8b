"""Constant tensors that are read only when their numbers are needed.

A `Const` knows its shape, dtype and a key (equal keys promise equal values), and how to load its
array.  What passes do to weights (transpose, scale, stack) stays a recipe until the model is
written, so that a model of many gigabytes never sits in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SMALL = 1024
"""Up to this many bytes a constant is compared by value, above it by where it comes from."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file: where an external tensor's numbers are."""

    path: Path
    offset: int
    length: int


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A constant tensor: shape, ONNX element type, identity, and a way to its numbers.

    Attributes:
        shape: Its sizes.
        elem_type: ONNX's number of its type.
        dtype: The same for numpy.
        key: Equal keys promise equal values.
        load: Gives the array.
        span: Where its bytes stand in a file as they are, if they do.
        parts: The constants that follow each other in its bytes, if it is made of some.
    """

    shape: tuple[int, ...]
    elem_type: int
    dtype: np.dtype[Any]
    key: Hashable
    load: Callable[[], Array]
    span: Span | None = None
    parts: tuple[Const, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def map(self, key: Hashable, shape: Sequence[int], change: Callable[[Array], Array]) -> Const:
        """A constant made from this one by `change`, done when it is loaded."""
        load = self.load
        return Const(
            tuple(shape), self.elem_type, self.dtype, (key, self.key), lambda: change(load())
        )

    def reshape(self, shape: Sequence[int]) -> Const:
        """The same numbers in another shape."""
        target = tuple(shape)
        if target == self.shape:
            return self
        made = self.map(("reshape", target), target, lambda a: a.reshape(target))
        return replace(made, span=self.span, parts=self.parts)

    def transpose(self, perm: Sequence[int]) -> Const:
        """The axes in another order."""
        order = tuple(perm)
        if order == tuple(range(self.rank)):
            return self
        shape = tuple(self.shape[p] for p in order)
        return self.map(("transpose", order), shape, lambda a: a.transpose(order))

    def scale(self, factor: float) -> Const:
        """Every number times a factor, in the constant's own dtype."""
        if factor == 1:
            return self
        return self.map(("scale", factor), self.shape, lambda a: a * a.dtype.type(factor))


def from_array(array: Array, elem_type: int, name: Hashable = None) -> Const:
    """A constant whose numbers are at hand.

    Without a name it is known by its value, whatever its size.
    """
    array = np.asarray(array)
    by_value = name is None or array.nbytes <= SMALL
    key = value_key(array, elem_type) if by_value else name
    return Const(array.shape, elem_type, array.dtype, key, lambda: array)


def value_key(array: Array, elem_type: int) -> Hashable:
    """A key that is equal for equal tensors only: bits, not numbers, decide (0.0 is not -0.0)."""
    if array.dtype == object:
        return ("value", elem_type, array.shape, tuple(array.ravel().tolist()))
    return ("value", elem_type, array.shape, np.ascontiguousarray(array).tobytes())


def stack(parts: Sequence[Const], axis: int = 0) -> Const:
    """Constants of one shape along a new axis."""
    shape = (*parts[0].shape[:axis], len(parts), *parts[0].shape[axis:])
    key = ("stack", axis, *(p.key for p in parts))
    return Const(
        shape,
        parts[0].elem_type,
        parts[0].dtype,
        key,
        lambda: np.stack([p.load() for p in parts], axis),
        parts=() if axis else tuple(parts),
    )


def total(parts: Sequence[Const], factor: float = 1.0) -> Const:
    """The sum of constants of one shape, times a factor; worked out in double precision and rounded once."""
    dtype = parts[0].dtype

    def load() -> Array:
        whole = np.sum([np.asarray(p.load(), np.float64) for p in parts], axis=0) * factor
        with np.errstate(over="ignore"):  # as the sum of what the parts make would
            return np.asarray(whole, dtype)

    key = ("total", factor, *(p.key for p in parts))
    return Const(parts[0].shape, parts[0].elem_type, dtype, key, load)


def concat(parts: Sequence[Const], axis: int) -> Const:
    """Constants side by side along an axis they have."""
    total = sum(p.shape[axis] for p in parts)
    shape = (*parts[0].shape[:axis], total, *parts[0].shape[axis + 1 :])
    key = ("concat", axis, *(p.key for p in parts))
    return Const(
        shape,
        parts[0].elem_type,
        parts[0].dtype,
        key,
        lambda: np.concatenate([p.load() for p in parts], axis),
        parts=() if axis else tuple(parts),
    )
